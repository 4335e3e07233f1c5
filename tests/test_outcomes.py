"""What happened to a call: every ending has one class, and codes are believed only where they mean something."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roster.outcomes import CallReport, Cause, Outcome, classify


@pytest.mark.parametrize(
    ("cause", "outcome", "sent"),
    [
        (Cause.ANSWERED, "success", True),
        (Cause.TOOL_ERROR, "tool_fail:other", True),
        (Cause.RPC_ERROR, "tool_fail:other", True),
        (Cause.TIMEOUT, "tool_fail:timeout", True),
        (Cause.DISCONNECTED, "hard_fail:transport", True),
        (Cause.UNREACHABLE, "hard_fail:transport", False),
        (Cause.MALFORMED, "hard_fail:protocol", True),
        (Cause.REJECTED, "tool_fail:schema", False),
    ],
)
def test_every_ending_has_its_class(cause: Cause, outcome: str, sent: bool) -> None:
    """And says whether the request can have reached the backend."""
    report = CallReport(cause, 1.0)

    assert classify(report) == outcome
    assert report.sent is sent


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (-32700, "hard_fail:protocol"),
        (-32600, "hard_fail:protocol"),
        (-32601, "hard_fail:protocol"),
        (-32602, "tool_fail:schema"),
        (-32603, "tool_fail:internal"),
        (0, "tool_fail:internal"),
        (-32000, "tool_fail:other"),
        (-32001, "tool_fail:other"),
        (401, "tool_fail:other"),
        (1, "tool_fail:other"),
        (None, "tool_fail:other"),
    ],
)
def test_an_rpc_error_is_read_by_its_code(code: int | None, outcome: str) -> None:
    """Reserved codes mean what JSON-RPC says; -32000 and -32001 mean anything, so they mean nothing."""
    assert classify(CallReport(Cause.RPC_ERROR, 1.0, code=code)) == outcome


@given(st.sampled_from(Cause), st.none() | st.integers())
def test_any_report_can_be_classified(cause: Cause, code: int | None) -> None:
    """Only an answer is a success, and a code alone makes no failure of it."""
    outcome = classify(CallReport(cause, 0.0, code=code))

    assert (outcome is Outcome.SUCCESS) == (cause is Cause.ANSWERED)


def test_the_stored_classes_are_the_contract() -> None:
    """Ratings of every home are made of these strings (DESIGN 1.4)."""
    kinds = ["auth", "quota", "schema", "timeout", "internal", "other"]
    contract = ["success", "hard_fail:transport", "hard_fail:protocol", *(f"tool_fail:{kind}" for kind in kinds)]

    assert [outcome.value for outcome in Outcome] == [*contract, "schema_drift_suspect"]


def test_a_report_has_no_place_for_words() -> None:
    """No field for arguments, results or error text: what is not kept cannot leak."""
    fields = {field.name for field in dataclasses.fields(CallReport)}

    assert fields == {"cause", "latency_ms", "code", "error"}
