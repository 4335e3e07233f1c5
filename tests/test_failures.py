"""Typed failures: the table is the contract, and evidence only ever narrows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roster.failures import PLATFORM, Failure, FailureKind, failure_of
from roster.outcomes import CallReport, Cause, Clue, Outcome, classify

# DESIGN 1.5, row by row. r: retryable, p: partial, h: a person must act first.
TABLE = """
timeout rp|budget ph|limit p|outcome_not_met p|best_of_no_pick p|unknown_outcome ph|denied p|refused ph
invalid_input -|unavailable rp|model rp|tool_failed p|cancelled p|undeclared p|error rp
"""
READS, REPEATS = {"readOnlyHint": True}, {"idempotentHint": True}


def flags(failure: Failure) -> str:
    letters = zip("rph", (failure.retryable, failure.partial, failure.person), strict=True)
    return "".join(letter for letter, is_set in letters if is_set)


def test_the_table_is_the_contract() -> None:
    """Fifteen kinds, each with its three flags."""
    expected = dict(row.split() for row in TABLE.replace("\n", "|").split("|") if row)

    assert {kind.value: flags(PLATFORM[kind]) or "-" for kind in FailureKind} == expected
    assert all(failure.kind is kind for kind, failure in PLATFORM.items())


@pytest.mark.parametrize(
    ("cause", "code", "annotations", "expected"),
    [
        (Cause.TOOL_ERROR, None, {}, "tool_failed p"),
        (Cause.TOOL_ERROR, None, READS, "tool_failed p"),
        (Cause.TIMEOUT, None, {}, "timeout rp"),
        (Cause.TIMEOUT, None, REPEATS, "timeout rp"),
        (Cause.TIMEOUT, None, READS, "timeout r"),
        (Cause.DISCONNECTED, None, {}, "unknown_outcome ph"),
        (Cause.DISCONNECTED, None, READS, "unavailable rp"),
        (Cause.DISCONNECTED, None, REPEATS, "unavailable rp"),
        (Cause.UNREACHABLE, None, {}, "unavailable r"),
        (Cause.MALFORMED, None, {}, "error rp"),
        (Cause.REJECTED, None, {}, "invalid_input "),
        (Cause.LIMITED, None, {}, "limit "),
        (Cause.LIMITED, None, READS, "limit "),
        (Cause.RPC_ERROR, -32602, {}, "invalid_input "),
        (Cause.RPC_ERROR, -32603, {}, "tool_failed p"),
        (Cause.RPC_ERROR, -32000, {}, "tool_failed p"),
        (Cause.RPC_ERROR, None, {}, "tool_failed p"),
        (Cause.DISCONNECTED, None, {"readOnlyHint": "true", "idempotentHint": 1}, "unknown_outcome ph"),
        (Cause.TIMEOUT, None, {"readOnlyHint": 1}, "timeout rp"),
    ],
)
def test_a_failure_is_narrowed_by_what_is_known(
    cause: Cause, code: int | None, annotations: Mapping[str, Any], expected: str
) -> None:
    """Never sent is never partial; a read that ran out of time did nothing; a write that was lost may have happened.

    Our own limit on calls at a time passes by itself, unlike those on size, so there the same call may pass. A hint
    counts only when it is `true`: it comes from a stranger.
    """
    failure = failure_of(CallReport(cause, 1.0, code=code), annotations)

    assert failure is not None
    assert f"{failure.kind.value} {flags(failure)}" == expected


@pytest.mark.parametrize(
    ("outcome", "hint", "expected"),
    [
        (Outcome.AUTH, "", "refused ph"),
        (Outcome.AUTH, "refused", "refused ph"),
        (Outcome.QUOTA, "", "unavailable rp"),
        (Outcome.QUOTA, "budget", "budget ph"),
        (Outcome.SCHEMA, "", "invalid_input "),
        (Outcome.TIMEOUT, "", "timeout rp"),
        (Outcome.INTERNAL, "", "tool_failed p"),
        (Outcome.INTERNAL, "unavailable", "unavailable rp"),
        (Outcome.INTERNAL, "model", "model rp"),
        (Outcome.INTERNAL, "outcome_not_met", "outcome_not_met p"),
        (Outcome.OTHER, "", "tool_failed p"),
        (Outcome.OTHER, "denied", "denied p"),
        (Outcome.OTHER, "refused", "refused ph"),
        (Outcome.OTHER, "cancelled", "cancelled p"),
        (Outcome.PROTOCOL, "", "tool_failed p"),
    ],
)
def test_a_failure_is_of_the_kind_that_the_evidence_says(outcome: Outcome, hint: str, expected: str) -> None:
    """The class gives a kind, unless what decided it says more."""
    failure = failure_of(CallReport(Cause.TOOL_ERROR, 1.0, text=Clue(outcome, "x", hint)), {})

    assert failure is not None
    assert f"{failure.kind!s} {flags(failure)}" == expected


def test_a_tool_that_says_it_ran_out_of_time_is_narrowed_like_one_that_did() -> None:
    """A read that timed out did nothing, whoever's clock it was."""
    failure = failure_of(CallReport(Cause.TOOL_ERROR, 1.0, text=Clue(Outcome.TIMEOUT, "timed-out")), READS)

    assert failure is not None
    assert flags(failure) == "r"


JAM = Failure("jam", person=True, declared=True)


@pytest.mark.parametrize(
    ("cause", "reported", "expected"),
    [
        (Cause.TOOL_ERROR, "jam", JAM),
        (Cause.RPC_ERROR, "jam", JAM),
        (Cause.TOOL_ERROR, "out_of_paper", PLATFORM[FailureKind.UNDECLARED]),
        (Cause.TOOL_ERROR, "timeout", PLATFORM[FailureKind.UNDECLARED]),
        (Cause.TOOL_ERROR, "", PLATFORM[FailureKind.UNDECLARED]),
        (Cause.TIMEOUT, "jam", PLATFORM[FailureKind.TIMEOUT]),
        (Cause.ANSWERED, "jam", None),
    ],
)
def test_an_authors_own_kind_goes_before_ours_if_it_was_declared(
    cause: Cause, reported: str, expected: Failure | None
) -> None:
    """In an error result; what was not declared is `undeclared`, whatever its name. Our own deadline is our own."""
    assert failure_of(CallReport(cause, 1.0, reported=reported), {}, {"jam": JAM}) == expected


def test_a_wait_and_a_message_travel_with_a_failure() -> None:
    """Where there are any, after the rest; whole seconds as whole numbers."""
    shown = PLATFORM[FailureKind.UNAVAILABLE].wire(Outcome.QUOTA, wait_s=90.0, message="Come back later")

    assert list(shown)[-3:] == ["class", "retry_after", "message"]
    assert (repr(shown["retry_after"]), shown["message"]) == ("90", "Come back later")
    assert JAM.wire(Outcome.OTHER, wait_s=1.5)["retry_after"] == 1.5
    assert JAM.wire(Outcome.OTHER)["kind"] == "jam"


def test_a_success_is_no_failure() -> None:
    """None, whatever the hints say."""
    assert failure_of(CallReport(Cause.ANSWERED, 1.0), READS) is None


@given(
    st.sampled_from([cause for cause in Cause if cause is not Cause.ANSWERED]),
    st.none() | st.integers(-32800, 600),
    st.dictionaries(st.sampled_from(["readOnlyHint", "idempotentHint", "destructiveHint"]), st.none() | st.booleans()),
)
def test_evidence_only_narrows(cause: Cause, code: int | None, annotations: dict[str, Any]) -> None:
    """Whatever a backend says, a flag is never set that the table does not set, and only `partial` is ever cleared."""
    report = CallReport(cause, 1.0, code=code)
    failure = failure_of(report, annotations)

    assert failure is not None
    assert failure in (PLATFORM[failure.kind], replace(PLATFORM[failure.kind], partial=False))
    assert report.sent or not failure.partial


def test_a_failure_travels_as_the_design_says() -> None:
    """The `failure` object of a `_roster` block, in its order (DESIGN 1.5)."""
    report = CallReport(Cause.TIMEOUT, 1.0)
    failure = failure_of(report, READS)

    assert failure is not None
    assert list(failure.wire(classify(report)).items()) == [
        ("kind", "timeout"),
        ("retryable", True),
        ("partial", False),
        ("person", False),
        ("declared", False),
        ("class", Outcome.TIMEOUT.value),
    ]
