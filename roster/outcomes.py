"""What happened to a call, as a closed set, and whose fault it was: `CallReport` → `Verdict`. Pure.

Evidence is believed in this order: our own decision, the exception's type, the HTTP status, the JSON-RPC code, fields
of the answer, and only then its text. A report carries what each of them says, never the words themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

__all__ = [
    "CallReport",
    "Cause",
    "Clue",
    "Fault",
    "Outcome",
    "Verdict",
    "class_of_status",
    "classify",
    "judge",
]


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
    LIMITED = "limited"  # never sent: as many as may be were at the backend already


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


class Fault(StrEnum):
    """Whose doing a failure was, as far as one can tell."""

    CALLER = "caller"
    TOOL = "tool"
    BACKEND = "backend"  # the server, its connection, its credentials, its account


@dataclass(frozen=True, slots=True)
class Clue:
    """What a part of an answer says. rule: the name of what decided. kind: a failure kind, where it says more than the
    class. formal: the complaint is about the arguments' form, such as a JSON schema could have made."""

    outcome: Outcome
    rule: str
    kind: str = ""
    formal: bool = False


@dataclass(frozen=True, slots=True)
class CallReport:
    """One call as it went. Holds no argument, result or error text.

    status: of the HTTP answer that carried an error. fields, text: what the answer's fields and its words say. fits:
    whether the arguments validate against the input schema on file; None if that was not or cannot be checked.
    reported: the failure kind that the backend named. retry_after_s: how long it said to wait.
    """

    cause: Cause
    latency_ms: float
    code: int | None = None
    error: str | None = None
    status: int | None = None
    fields: Clue | None = None
    text: Clue | None = None
    fits: bool | None = None
    reported: str | None = None
    retry_after_s: float | None = None

    @property
    def sent(self) -> bool:
        """Whether the request can have reached the backend."""
        return self.cause not in (Cause.UNREACHABLE, Cause.REJECTED, Cause.LIMITED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The class of a call, what decided it, and whether it is held for or against the tool.

    kind: a failure kind where the evidence says more than the class. soft: a caller that gets it right at the next try
    shows that this was its own mistake.
    """

    outcome: Outcome
    rule: str
    kind: str = ""
    fault: Fault | None = None
    counted: bool = True
    soft: bool = False


_BY_STATUS: dict[int, Outcome] = {
    **dict.fromkeys((400, 405, 406, 411, 413, 414, 415, 416, 417, 422, 431), Outcome.SCHEMA),
    **dict.fromkeys((401, 403, 407, 451, 511), Outcome.AUTH),
    **dict.fromkeys((402, 429, 507, 509), Outcome.QUOTA),
    **dict.fromkeys((408, 504, 522, 524, 598), Outcome.TIMEOUT),
    **dict.fromkeys((404, 409, 410, 412, 421, 423, 424, 425, 428), Outcome.OTHER),
}


def class_of_status(status: int | None) -> Outcome | None:
    """What an HTTP status says of the call that was answered with it; None for one that is no failure."""
    if status is None or not 400 <= status < 600:
        return None
    return _BY_STATUS.get(status, Outcome.INTERNAL if status >= 500 else Outcome.OTHER)


# Of the HTTP answer to the MCP request itself. The rest (400, 404, 405, ...) is said better by the JSON-RPC code.
_BY_TRANSPORT_STATUS = {
    **dict.fromkeys((401, 403, 407), Outcome.AUTH),
    **dict.fromkeys((402, 429), Outcome.QUOTA),
    **dict.fromkeys((408, 504, 522, 524), Outcome.TIMEOUT),
    **dict.fromkeys((502, 503, 520, 521, 523, 525, 526, 530), Outcome.TRANSPORT),
    500: Outcome.INTERNAL,
    413: Outcome.SCHEMA,
}
# The codes an SDK or a server sends for a reason of its own.
_BY_CODE = {
    **dict.fromkeys((-32700, -32600, -32601, -32020, -32021, -32022), Outcome.PROTOCOL),
    -32602: Outcome.SCHEMA,
    -32042: Outcome.AUTH,  # somebody must open a page first
    -32002: Outcome.OTHER,  # a resource that is not there
    -32800: Outcome.OTHER,  # cancelled
}
# What everybody sends for anything: believed only when nothing else says more. -32000 and -32001 say nothing at all.
_BY_WEAK_CODE = {-32603: Outcome.INTERNAL, 0: Outcome.INTERNAL}
_INVALID_PARAMS, _CANCELLED = -32602, -32800
_BY_CAUSE = {
    Cause.ANSWERED: Outcome.SUCCESS,
    Cause.TIMEOUT: Outcome.TIMEOUT,
    Cause.DISCONNECTED: Outcome.TRANSPORT,
    Cause.UNREACHABLE: Outcome.TRANSPORT,
    Cause.MALFORMED: Outcome.PROTOCOL,
    Cause.REJECTED: Outcome.SCHEMA,
    Cause.LIMITED: Outcome.QUOTA,
}
_FAULTS = {
    Outcome.SCHEMA: Fault.CALLER,
    Outcome.TIMEOUT: Fault.TOOL,
    Outcome.INTERNAL: Fault.TOOL,
    Outcome.OTHER: Fault.TOOL,
}
# A person's or a caller's own decision says nothing of the tool, nor does a limit that was set here.
_NOBODYS = ("cancelled", "denied")
# What is not there fails with any arguments.
_NOT_THERE = ("unavailable", "model")


def judge(report: CallReport) -> Verdict:
    """The class of a finished call, the name of what decided it, and whose fault it was."""
    found = _decided(report)
    if found.outcome is Outcome.SUCCESS:
        return Verdict(Outcome.SUCCESS, found.rule)
    found = _weighed(found, report)
    own = found.kind in _NOBODYS or report.cause is Cause.LIMITED
    fault = Fault.CALLER if own else _FAULTS.get(found.outcome, Fault.BACKEND)
    if found.outcome is Outcome.INTERNAL and found.kind == "unavailable":
        fault = Fault.BACKEND
    counted = not own and found.outcome not in (Outcome.SCHEMA, Outcome.DRIFT_SUSPECT)
    soft = found.outcome in (Outcome.SCHEMA, Outcome.OTHER)
    return Verdict(found.outcome, found.rule, found.kind, fault, counted, soft)


def classify(report: CallReport) -> Outcome:
    """The class of a finished call."""
    return judge(report).outcome


def _decided(report: CallReport) -> Clue:
    """What the strongest evidence says."""
    if (by_cause := _BY_CAUSE.get(report.cause)) is not None:
        return Clue(by_cause, f"cause:{report.cause.value}")
    if (by_status := _BY_TRANSPORT_STATUS.get(report.status or 0)) is not None:
        kind = "unavailable" if by_status in (Outcome.TRANSPORT, Outcome.INTERNAL) else ""
        return Clue(by_status, f"http:{report.status}", kind)
    code, fields, text = report.code, report.fields, report.text
    if code is not None and (by_code := _BY_CODE.get(code) or class_of_status(code)) is not None:
        if code == _INVALID_PARAMS and text is not None and text.outcome is Outcome.PROTOCOL:
            return text  # the one code that also stands for a tool that is not there
        formal = code == _INVALID_PARAMS and (text is None or text.formal or text.outcome is not Outcome.SCHEMA)
        return Clue(by_code, f"code:{code}", "cancelled" if code == _CANCELLED else "", formal)
    if fields is not None:
        return fields
    if text is not None:
        return text
    if code is not None and (by_weak_code := _BY_WEAK_CODE.get(code)) is not None:
        return Clue(by_weak_code, f"code:{code}")
    return Clue(Outcome.OTHER, "unread")


def _weighed(found: Clue, report: CallReport) -> Clue:
    """A verdict on arguments, or one that may be due to them, in the light of the schema on file.

    Arguments that break the schema are the caller's mistake, whatever the tool made of them, unless it names a cause
    that no arguments would have changed. Arguments that keep to it and are refused for their form: the schema that the
    backend goes by may not be the one on file.
    """
    if report.cause not in (Cause.TOOL_ERROR, Cause.RPC_ERROR):
        return found
    if report.fits is False and found.outcome in (Outcome.SCHEMA, Outcome.INTERNAL, Outcome.OTHER):
        return found if found.kind in (*_NOBODYS, *_NOT_THERE) else Clue(Outcome.SCHEMA, "arguments:unfit")
    if report.fits is True and found.outcome is Outcome.SCHEMA and found.formal:
        return replace(found, outcome=Outcome.DRIFT_SUSPECT)
    return found
