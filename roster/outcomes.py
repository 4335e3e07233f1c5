"""What happened to a call, as a closed set: `CallReport` → `Outcome`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["CallReport", "Cause", "Outcome", "classify"]


class Cause(StrEnum):
    """How a call ended, as the backend layer saw it."""

    ANSWERED = "answered"
    TOOL_ERROR = "tool_error"  # a result with isError
    RPC_ERROR = "rpc_error"  # a JSON-RPC error
    TIMEOUT = "timeout"  # our own deadline
    DISCONNECTED = "disconnected"  # the connection was lost with the call in flight
    UNREACHABLE = "unreachable"  # never sent: the backend could not be connected
    MALFORMED = "malformed"  # an answer that is not one
    REJECTED = "rejected"  # never sent: Roster's own checks said no


class Outcome(StrEnum):
    """The class an outcome is stored under; ratings are made of these."""

    SUCCESS = "success"
    TRANSPORT = "hard_fail:transport"
    PROTOCOL = "hard_fail:protocol"
    AUTH = "tool_fail:auth"
    QUOTA = "tool_fail:quota"
    SCHEMA = "tool_fail:schema"
    TIMEOUT = "tool_fail:timeout"
    INTERNAL = "tool_fail:internal"
    OTHER = "tool_fail:other"
    DRIFT_SUSPECT = "schema_drift_suspect"


@dataclass(frozen=True, slots=True)
class CallReport:
    """One call as it went. Holds no argument, result or error text."""

    cause: Cause
    latency_ms: float
    code: int | None = None
    error: str | None = None

    @property
    def sent(self) -> bool:
        """Whether the request can have reached the backend."""
        return self.cause not in (Cause.UNREACHABLE, Cause.REJECTED)


# The codes an SDK or a server sends for a reason of its own. -32000 and -32001 are left out: everybody uses them.
_BY_CODE = {
    -32700: Outcome.PROTOCOL,
    -32600: Outcome.PROTOCOL,
    -32601: Outcome.PROTOCOL,
    -32602: Outcome.SCHEMA,
    -32603: Outcome.INTERNAL,
    0: Outcome.INTERNAL,
}
_BY_CAUSE = {
    Cause.ANSWERED: Outcome.SUCCESS,
    Cause.TOOL_ERROR: Outcome.OTHER,
    Cause.TIMEOUT: Outcome.TIMEOUT,
    Cause.DISCONNECTED: Outcome.TRANSPORT,
    Cause.UNREACHABLE: Outcome.TRANSPORT,
    Cause.MALFORMED: Outcome.PROTOCOL,
    Cause.REJECTED: Outcome.SCHEMA,
}


def classify(report: CallReport) -> Outcome:
    """The class of a finished call, by how it ended and, for a JSON-RPC error, by its code."""
    if report.cause is Cause.RPC_ERROR:
        return _BY_CODE.get(report.code if report.code is not None else 1, Outcome.OTHER)
    return _BY_CAUSE[report.cause]
