"""Failures as a caller sees them: one kind, three flags. The table is the contract; evidence narrows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from roster.outcomes import CallReport, Cause, Outcome, Verdict, judge

__all__ = ["PLATFORM", "Failure", "FailureKind", "failure_of"]


class FailureKind(StrEnum):
    """The platform's kinds; no capability may declare one of these names."""

    TIMEOUT = "timeout"
    BUDGET = "budget"
    LIMIT = "limit"
    OUTCOME_NOT_MET = "outcome_not_met"
    BEST_OF_NO_PICK = "best_of_no_pick"
    UNKNOWN_OUTCOME = "unknown_outcome"
    DENIED = "denied"
    REFUSED = "refused"
    INVALID_INPUT = "invalid_input"
    UNAVAILABLE = "unavailable"
    MODEL = "model"
    TOOL_FAILED = "tool_failed"
    CANCELLED = "cancelled"
    UNDECLARED = "undeclared"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Failure:
    """retryable: the same call may pass. partial: some work may have happened. person: a human must act first.

    kind: a `FailureKind`, or the name that the capability's author gave to one of their own (then it is `declared`).
    """

    kind: str
    retryable: bool = False
    partial: bool = False
    person: bool = False
    declared: bool = False

    def wire(self, outcome: Outcome, *, wait_s: float | None = None, message: str = "") -> dict[str, Any]:
        """The `failure` object of a `_roster` block, with how long to wait and the author's own words where there are
        any."""
        shown: dict[str, Any] = {
            "kind": str(self.kind),
            "retryable": self.retryable,
            "partial": self.partial,
            "person": self.person,
            "declared": self.declared,
            "class": outcome.value,
        }
        if wait_s is not None:
            shown["retry_after"] = int(wait_s) if wait_s == int(wait_s) else wait_s
        if message:
            shown["message"] = message
        return shown


def _row(kind: FailureKind, flags: str) -> Failure:
    return Failure(kind, "r" in flags, "p" in flags, "h" in flags)


# r: retryable, p: partial, h: a human must act first.
PLATFORM: Mapping[FailureKind, Failure] = {
    kind: _row(kind, flags)
    for kind, flags in {
        FailureKind.TIMEOUT: "rp",
        FailureKind.BUDGET: "ph",
        FailureKind.LIMIT: "p",
        FailureKind.OUTCOME_NOT_MET: "p",
        FailureKind.BEST_OF_NO_PICK: "p",
        FailureKind.UNKNOWN_OUTCOME: "ph",
        FailureKind.DENIED: "p",
        FailureKind.REFUSED: "ph",
        FailureKind.INVALID_INPUT: "",
        FailureKind.UNAVAILABLE: "rp",
        FailureKind.MODEL: "rp",
        FailureKind.TOOL_FAILED: "p",
        FailureKind.CANCELLED: "p",
        FailureKind.UNDECLARED: "p",
        FailureKind.ERROR: "rp",
    }.items()
}

_BY_CAUSE = {
    Cause.TIMEOUT: FailureKind.TIMEOUT,
    Cause.DISCONNECTED: FailureKind.UNAVAILABLE,
    Cause.UNREACHABLE: FailureKind.UNAVAILABLE,
    Cause.MALFORMED: FailureKind.ERROR,
    Cause.REJECTED: FailureKind.INVALID_INPUT,
    Cause.LIMITED: FailureKind.LIMIT,
}
_BY_OUTCOME = {
    Outcome.TRANSPORT: FailureKind.UNAVAILABLE,
    Outcome.AUTH: FailureKind.REFUSED,
    Outcome.QUOTA: FailureKind.UNAVAILABLE,  # it comes back by itself; what somebody must pay or clear is a `budget`
    Outcome.SCHEMA: FailureKind.INVALID_INPUT,
    Outcome.DRIFT_SUSPECT: FailureKind.INVALID_INPUT,
    Outcome.TIMEOUT: FailureKind.TIMEOUT,
}


def failure_of(
    report: CallReport,
    annotations: Mapping[str, Any],
    declared: Mapping[str, Failure] = {},
    verdict: Verdict | None = None,
) -> Failure | None:
    """The failure of a call, narrowed by what is known of it; None for a success.

    annotations: the tool's own hints. They come from an untrusted party and only ever narrow what is promised.
    declared: the kinds that the capability's author declared, by name. verdict: `judge(report)`, where already known.
    """
    verdict = verdict or judge(report)
    if verdict.outcome is Outcome.SUCCESS:
        return None
    read_only = annotations.get("readOnlyHint") is True
    repeatable = read_only or annotations.get("idempotentHint") is True
    if report.reported is not None and report.cause in (Cause.TOOL_ERROR, Cause.RPC_ERROR):
        return declared.get(report.reported, PLATFORM[FailureKind.UNDECLARED])
    if report.cause is Cause.DISCONNECTED and not repeatable:
        kind = FailureKind.UNKNOWN_OUTCOME
    elif report.cause in _BY_CAUSE:
        kind = _BY_CAUSE[report.cause]
    elif verdict.kind:
        kind = FailureKind(verdict.kind)
    else:
        kind = _BY_OUTCOME.get(verdict.outcome, FailureKind.TOOL_FAILED)
    failure = PLATFORM[kind]
    if not report.sent or (kind is FailureKind.TIMEOUT and read_only):
        failure = replace(failure, partial=False)
    return failure
