"""What happened to a call: every ending has one class, and codes are believed only where they mean something."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roster.outcomes import CallReport, Cause, Clue, Fault, Outcome, class_of_status, classify, judge


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
        (Cause.LIMITED, "tool_fail:quota", False),
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
        (-32042, "tool_fail:auth"),
        (-32002, "tool_fail:other"),
        (-32800, "tool_fail:other"),
        (-32022, "hard_fail:protocol"),
        (-32000, "tool_fail:other"),
        (-32001, "tool_fail:other"),
        (401, "tool_fail:auth"),
        (503, "tool_fail:internal"),
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

    assert fields == set("cause latency_ms code error status fields text fits reported retry_after_s".split())


# ----------------------------------------------------------------------------------- what is believed first

TEXT = Clue(Outcome.QUOTA, "rate-limit")
FIELDS = Clue(Outcome.AUTH, "field:401")


@pytest.mark.parametrize(
    ("report", "outcome", "rule"),
    [
        (CallReport(Cause.TIMEOUT, 1.0, status=429, fields=FIELDS, text=TEXT), Outcome.TIMEOUT, "cause:timeout"),
        (CallReport(Cause.UNREACHABLE, 1.0, fields=FIELDS), Outcome.TRANSPORT, "cause:unreachable"),
        (CallReport(Cause.DISCONNECTED, 1.0, -32000, text=TEXT), Outcome.TRANSPORT, "cause:disconnected"),
        (CallReport(Cause.RPC_ERROR, 1.0, -32602, status=429, fields=FIELDS), Outcome.QUOTA, "http:429"),
        (CallReport(Cause.RPC_ERROR, 1.0, -32603, status=503, text=TEXT), Outcome.TRANSPORT, "http:503"),
        (CallReport(Cause.RPC_ERROR, 1.0, -32602, status=400, text=TEXT), Outcome.SCHEMA, "code:-32602"),
        (CallReport(Cause.RPC_ERROR, 1.0, -32601, fields=FIELDS, text=TEXT), Outcome.PROTOCOL, "code:-32601"),
        (CallReport(Cause.RPC_ERROR, 1.0, -32603, fields=FIELDS, text=TEXT), Outcome.AUTH, "field:401"),
        (CallReport(Cause.RPC_ERROR, 1.0, -32603, text=TEXT), Outcome.QUOTA, "rate-limit"),
        (CallReport(Cause.RPC_ERROR, 1.0, -32000, text=TEXT), Outcome.QUOTA, "rate-limit"),
        (CallReport(Cause.TOOL_ERROR, 1.0, fields=FIELDS, text=TEXT), Outcome.AUTH, "field:401"),
        (CallReport(Cause.TOOL_ERROR, 1.0, text=TEXT), Outcome.QUOTA, "rate-limit"),
        (CallReport(Cause.TOOL_ERROR, 1.0), Outcome.OTHER, "unread"),
        (CallReport(Cause.ANSWERED, 1.0, status=500, fields=FIELDS, text=TEXT, fits=False), Outcome.SUCCESS,
         "cause:answered"),
    ],
)  # fmt: skip
def test_the_strongest_evidence_decides_and_is_named(report: CallReport, outcome: Outcome, rule: str) -> None:
    """Our own decision, the exception, the HTTP status, the code, fields, text; a success is not up for discussion."""
    verdict = judge(report)

    assert (verdict.outcome, verdict.rule) == (outcome, rule)


def test_invalid_params_also_stands_for_a_tool_that_is_not_there() -> None:
    """The one code that its text is asked about: -32602 is what an unknown tool is answered with."""
    unknown = CallReport(Cause.RPC_ERROR, 1.0, -32602, text=Clue(Outcome.PROTOCOL, "unknown-tool"))

    assert judge(unknown).outcome is Outcome.PROTOCOL


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(400, "tool_fail:schema"), (401, "tool_fail:auth"), (402, "tool_fail:quota"), (403, "tool_fail:auth"),
     (404, "tool_fail:other"), (408, "tool_fail:timeout"), (409, "tool_fail:other"), (422, "tool_fail:schema"),
     (429, "tool_fail:quota"), (499, "tool_fail:other"), (500, "tool_fail:internal"), (504, "tool_fail:timeout"),
     (529, "tool_fail:internal"), (200, None), (399, None), (600, None), (None, None)],
)  # fmt: skip
def test_a_status_has_its_class(status: int | None, outcome: str | None) -> None:
    """Those of failures, and no other number."""
    assert class_of_status(status) == outcome


# --------------------------------------------------------------------------------------- whose fault it was

FORMAL = Clue(Outcome.SCHEMA, "formal", formal=True)


@pytest.mark.parametrize(
    ("report", "outcome", "fault", "counted"),
    [
        # Arguments that break the schema are the caller's, whatever the tool made of them ...
        (CallReport(Cause.TOOL_ERROR, 1.0, fits=False), Outcome.SCHEMA, Fault.CALLER, False),
        (CallReport(Cause.TOOL_ERROR, 1.0, text=Clue(Outcome.INTERNAL, "crash"), fits=False), Outcome.SCHEMA,
         Fault.CALLER, False),
        (CallReport(Cause.RPC_ERROR, 1.0, -32602, fits=False), Outcome.SCHEMA, Fault.CALLER, False),
        (CallReport(Cause.RPC_ERROR, 1.0, -32603, fits=False), Outcome.SCHEMA, Fault.CALLER, False),
        # ... unless it names a cause that other arguments would not have changed.
        (CallReport(Cause.TOOL_ERROR, 1.0, text=TEXT, fits=False), Outcome.QUOTA, Fault.BACKEND, True),
        (CallReport(Cause.TOOL_ERROR, 1.0, text=Clue(Outcome.INTERNAL, "unreachable", "unavailable"), fits=False),
         Outcome.INTERNAL, Fault.BACKEND, True),
        (CallReport(Cause.TIMEOUT, 1.0, fits=False), Outcome.TIMEOUT, Fault.TOOL, True),
        # Arguments that keep to it and are refused for their form: the schema may be another one now.
        (CallReport(Cause.RPC_ERROR, 1.0, -32602, fits=True), Outcome.DRIFT_SUSPECT, Fault.BACKEND, False),
        (CallReport(Cause.TOOL_ERROR, 1.0, text=FORMAL, fits=True), Outcome.DRIFT_SUSPECT, Fault.BACKEND, False),
        (CallReport(Cause.TOOL_ERROR, 1.0, text=Clue(Outcome.SCHEMA, "syntax"), fits=True), Outcome.SCHEMA,
         Fault.CALLER, False),
        (CallReport(Cause.TOOL_ERROR, 1.0, text=Clue(Outcome.INTERNAL, "crash"), fits=True), Outcome.INTERNAL,
         Fault.TOOL, True),
        # Where that cannot be checked, a refusal is what it says it is.
        (CallReport(Cause.RPC_ERROR, 1.0, -32602), Outcome.SCHEMA, Fault.CALLER, False),
        (CallReport(Cause.TOOL_ERROR, 1.0, text=FORMAL), Outcome.SCHEMA, Fault.CALLER, False),
        # What nobody but a person decided is held against nobody.
        (CallReport(Cause.TOOL_ERROR, 1.0, text=Clue(Outcome.OTHER, "declined", "denied")), Outcome.OTHER,
         Fault.CALLER, False),
        (CallReport(Cause.RPC_ERROR, 1.0, -32800), Outcome.OTHER, Fault.CALLER, False),
        (CallReport(Cause.TOOL_ERROR, 1.0), Outcome.OTHER, Fault.TOOL, True),
        (CallReport(Cause.DISCONNECTED, 1.0), Outcome.TRANSPORT, Fault.BACKEND, True),
        (CallReport(Cause.MALFORMED, 1.0), Outcome.PROTOCOL, Fault.BACKEND, True),
    ],
)  # fmt: skip
def test_whose_fault_it_was(report: CallReport, outcome: Outcome, fault: Fault, counted: bool) -> None:
    """The class, whose doing it was, and whether it is held against the tool."""
    verdict = judge(report)

    assert (verdict.outcome, verdict.fault, verdict.counted) == (outcome, fault, counted)


CLUES = st.none() | st.builds(
    Clue,
    st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.SUCCESS]),
    st.just("r"),
    st.sampled_from(["", "unavailable", "cancelled", "denied", "model"]),
    st.booleans(),
)


@given(
    st.sampled_from(Cause), st.none() | st.integers(-32800, 600), st.none() | st.integers(100, 600), CLUES, CLUES,
    st.none() | st.booleans(),
)  # fmt: skip
def test_a_caller_is_never_blamed_on_a_tool(
    cause: Cause, code: int | None, status: int | None, fields: Clue | None, text: Clue | None, fits: bool | None
) -> None:
    """Whatever is said: only an answer is a success, and a refusal of arguments is never counted."""
    verdict = judge(CallReport(cause, 0.0, code, None, status, fields, text, fits))

    assert (verdict.outcome is Outcome.SUCCESS) == (cause is Cause.ANSWERED)
    assert (verdict.fault is None) == (verdict.outcome is Outcome.SUCCESS)
    if verdict.outcome in (Outcome.SCHEMA, Outcome.DRIFT_SUSPECT) or verdict.fault is Fault.CALLER:
        assert not verdict.counted
    if verdict.soft:
        assert verdict.outcome in (Outcome.SCHEMA, Outcome.OTHER)
