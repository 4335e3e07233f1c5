"""What a failed answer says: its fields, then its words; how long to wait; and the failure its author reports. Pure.

An answer is a backend's own JSON, unread so far. Everything here is bounded, and nothing of it is kept but clues.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from roster.errortexts import read, read_code
from roster.outcomes import Clue, Outcome, class_of_status
from roster.waits import seconds_in, wait_in

__all__ = ["MAX_MESSAGE", "Said", "examine", "seconds_of"]

MAX_MESSAGE = 2_000
"""Characters of an author's own failure message that are shown."""
LONGEST_WAIT_S = 31 * 86_400.0

_DEPTH, _WIDTH = 5, 40
_TELLING = frozenset("code status statuscode httpstatus httpstatuscode errorcode error errortype type reason".split())
_TOLD = frozenset("message msg error errormessage errordescription detail details reason title description".split())
_GRPC = frozenset("grpccode grpcstatus grpcstatuscode".split())
_BY_GRPC = {
    **dict.fromkeys((7, 16), Outcome.AUTH),
    8: Outcome.QUOTA,
    **dict.fromkeys((3, 11), Outcome.SCHEMA),
    4: Outcome.TIMEOUT,
    **dict.fromkeys((2, 12, 13, 14, 15), Outcome.INTERNAL),
    **dict.fromkeys((1, 5, 6, 9, 10), Outcome.OTHER),
}
_BY_DETAIL = {"QuotaFailure": Outcome.QUOTA, "BadRequest": Outcome.SCHEMA, "PreconditionFailure": Outcome.OTHER}
_WAITS = frozenset("retryafter retryafterseconds retryaftersecs retryaftersec retryafters retryin retrydelay".split())
_WAITS_MS = frozenset("retryafterms retryaftermilliseconds retryaftermillis retrydelayms retryinms".split())
_CODE = re.compile(r"[A-Za-z][\w .:/-]{1,80}")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_STATUS_WEIGHT, _ENOUGH = 7, 6


@dataclass(frozen=True, slots=True)
class Said:
    """What a failed answer says. kind: the failure kind its author reports, empty for one that is no name; None when it
    reports none. message: the author's own words about it, for the caller's eyes only."""

    fields: Clue | None = None
    text: Clue | None = None
    wait_s: float | None = None
    kind: str | None = None
    message: str = ""


def examine(result: Mapping[str, Any] | None, message: str, data: Any, now: float) -> Said:
    """What a failed answer says: a result with isError, or the message and data of a JSON-RPC error.

    now: seconds since the epoch; a server may name the time of day from which on it can be asked again.
    """
    carriers = [data] if result is None else [result.get("structuredContent"), result.get("_meta")]
    fields = [pair for carrier in carriers for pair in _fields(carrier)]
    words = message if result is None else _words(result)
    kind, own_message = _reported(carriers)
    wait_s = next((wait for key, value, _ in fields if (wait := _wait(key, value, now)) is not None), None)
    wait_s = wait_s or seconds_of(wait_in(words), now)
    return Said(_clue(fields), read(words) if words else None, wait_s, kind, own_message)


def _words(result: Mapping[str, Any]) -> str:
    """The text of a result; of one without any, what its structured content says in sentences."""
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [
        b["text"] for b in blocks if isinstance(b, dict) and b.get("type") == "text" and isinstance(b.get("text"), str)
    ]
    words = "\n".join(texts).strip()
    if words:
        return words
    told = [item for key, item, _ in _fields(result.get("structuredContent")) if key in _TOLD and isinstance(item, str)]
    return "\n".join(told)


def _fields(value: Any, depth: int = 0) -> Iterator[tuple[str, Any, int]]:
    """(key, value, depth) of nested objects, outermost first; keys in lower case, letters only. What an author reports
    as a failure of its own is not among them: it is read by its own rules."""
    if depth > _DEPTH:
        return
    if isinstance(value, Mapping):
        some = [(re.sub("[^a-z]", "", str(key)[:60].lower()), item) for key, item in list(value.items())[:_WIDTH]]
        yield from ((key, item, depth) for key, item in some)
        for key, item in some:
            if isinstance(item, Mapping | list) and key != "failure":
                yield from _fields(item, depth + 1)
    elif isinstance(value, list):
        for item in value[:_WIDTH]:
            yield from _fields(item, depth + 1)


def _clue(fields: list[tuple[str, Any, int]]) -> Clue | None:
    """The weightiest of what the fields say; of several alike, the innermost, which says why."""
    best: tuple[int, int] = (0, 0)
    clue: Clue | None = None
    for key, value, depth in fields:
        found, weight = _one(key, value)
        if found is not None and weight >= _ENOUGH and (weight, depth) > best:
            best, clue = (weight, depth), found
    return clue


def _one(key: str, value: Any) -> tuple[Clue | None, int]:
    """What one field says, and how much that counts."""
    if isinstance(value, bool):
        return None, 0
    if key in _GRPC and isinstance(value, int) and value in _BY_GRPC:
        return Clue(_BY_GRPC[value], f"field:grpc-{value}"), _STATUS_WEIGHT
    if key == "type" and isinstance(value, str) and (detail := value.rpartition("google.rpc.")[2]) in _BY_DETAIL:
        return Clue(_BY_DETAIL[detail], "field:grpc-detail"), _STATUS_WEIGHT
    if key not in _TELLING:
        return None, 0
    if isinstance(value, str) and value.isdecimal() and len(value) == 3:
        value = int(value)
    if isinstance(value, int) and (outcome := class_of_status(value)) is not None:
        return Clue(outcome, f"field:{value}", "unavailable" if outcome is Outcome.INTERNAL else ""), _STATUS_WEIGHT
    if isinstance(value, str) and _CODE.fullmatch(value):
        found, weight = read_code(value)
        if found is not None:
            return Clue(found.outcome, f"field:{found.rule}", found.kind, found.formal), weight
    return None, 0


def seconds_of(value: Any, now: float) -> float | None:
    """A Retry-After value in seconds: a number, a duration such as `1m30s`, or an HTTP date."""
    seconds: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str) and len(value) <= 60:
        try:
            seconds = float(value)
        except ValueError:
            seconds = seconds_in(value)
            if seconds is None:
                seconds = _until(value, now)
    elif isinstance(value, Mapping):  # google.protobuf.Duration
        whole, nanos = value.get("seconds", 0), value.get("nanos", 0)
        if isinstance(whole, int | float) and isinstance(nanos, int | float):
            seconds = whole + nanos / 1e9
    # Not a comparison with both ends alone: NaN fails them all.
    return round(seconds, 3) if seconds is not None and 0 <= seconds <= LONGEST_WAIT_S else None


def _until(date: str, now: float) -> float | None:
    try:
        then = parsedate_to_datetime(date)
    except (ValueError, TypeError, IndexError):
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return max(0.0, (then - datetime.fromtimestamp(now, UTC)).total_seconds())


def _wait(key: str, value: Any, now: float) -> float | None:
    if key in _WAITS:
        return seconds_of(value, now)
    if key in _WAITS_MS and (ms := seconds_of(value, now)) is not None:
        return round(ms / 1000, 6)
    return None


def _reported(carriers: list[Any]) -> tuple[str | None, str]:
    """The kind and message of the failure that the author reports, wherever it is first found."""
    for carrier in carriers:
        failure = carrier.get("failure") if isinstance(carrier, Mapping) else None
        if isinstance(failure, Mapping) and "kind" in failure:
            kind, message = failure["kind"], failure.get("message")
            named = isinstance(kind, str) and _NAME.fullmatch(kind) is not None
            return kind if named else "", message[:MAX_MESSAGE] if isinstance(message, str) else ""
    return None, ""
