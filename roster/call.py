"""A card id and arguments become a call; a failure is looked into before the answer goes out.

Whose fault was it, what kind of failure is it, and does the same draft hold another tool that may do?
"""

from __future__ import annotations

import difflib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from anyio import to_thread

from roster.alternates import WORTH_ANOTHER, Suggestion, next_after, suggestion
from roster.answers import examine
from roster.arguments import check_arguments, says_something
from roster.backends import Answer, Backend, State
from roster.cards import Card
from roster.config import Level
from roster.declared import by_name, declared_by_tool
from roster.draft import Drafted
from roster.dwell import Reason
from roster.errors import CallError, HeldCardError, UnknownCardError, json_type
from roster.failures import Failure, failure_of
from roster.history import Limits
from roster.outcomes import CallReport, Cause, Outcome, Verdict, judge
from roster.recorder import CallMemory, Ended, Recorder
from roster.reindex import Writer
from roster.scribe import Scribe

__all__ = ["Called", "Caller", "checked_arguments", "held_card", "unknown_card"]

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 60.0
"""A backend whose tools may have changed is asked for them again, but not more often than this."""

Find = Callable[[str], Card | None]


@dataclass(frozen=True, slots=True)
class Called:
    """A finished call: the backend's answer and its class; for a failure its kind and flags, how long to wait, the
    author's own words about it, and what may be called instead."""

    card: Card
    answer: Answer
    verdict: Verdict
    failure: Failure | None = None
    wait_s: float | None = None
    message: str = ""
    instead: Suggestion | None = None

    @property
    def outcome(self) -> Outcome:
        """The class of the call."""
        return self.verdict.outcome

    def words(self) -> str:
        """What to tell a caller when the backend itself said nothing."""
        if self.answer.report.cause is Cause.LIMITED:
            return f"{self.card.server} was not asked (limit): as many calls as it may have are under way; wait for one"
        kind = str(self.failure.kind) if self.failure else "error"
        seconds = self.answer.report.latency_ms / 1000
        return f"{self.card.server} gave no answer to {self.card.name} ({kind}, after {seconds:.1f} s)"

    def wire(self) -> dict[str, Any]:
        """The `_roster` object of a failed call."""
        if self.failure is None:
            return {}
        failure = self.failure.wire(self.outcome, wait_s=self.wait_s, message=self.message)
        return {"failure": failure} | ({"suggested_alternate": self.instead.wire()} if self.instead else {})


def checked_arguments(args: Any) -> Mapping[str, Any] | None:
    """`args` if it is an object or absent. Raises CallError naming what came instead."""
    if args is None or isinstance(args, Mapping):
        return args
    raise CallError(f'args is {json_type(args)}: it must be an object such as {{"path": "notes.txt"}}')


def unknown_card(id_: object, known: Collection[str]) -> UnknownCardError:
    """The error for an id nobody has, with the nearest one that somebody has."""
    close = difflib.get_close_matches(str(id_)[:80], known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "draft again and use an id from its starters"
    return UnknownCardError(f"no tool has the id {str(id_)[:80]!r}: {hint}")


_HELD_BECAUSE = {
    Reason.DRIFT: "its definition changed not long ago",
    Reason.SAFETY: "its definition changed in what keeps people safe",
    Reason.REVIEW: "a review found something grave in its definition",
}


def held_card(id_: str, reason: Reason) -> HeldCardError:
    """The error for a call that the user's policy refuses, with what a person can do about it."""
    return HeldCardError(
        f"{id_} is quarantined, because {_HELD_BECAUSE[reason]}, and this Roster refuses calls of quarantined tools. "
        f"A person must look: `roster drift {id_}` shows what is new, `roster unquarantine {id_}` lets it in again"
    )


class Caller:
    """Carries calls out and has their outcomes recorded."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        writer: Writer,
        clock: Callable[[], float] = time.time,
        *,
        learning: Level = "full",
        limits: Limits | None = None,
    ) -> None:
        self._backends = backends
        self._clock = clock
        self.scribe = Scribe(Recorder(writer, clock, learning, limits or Limits()))
        self._memory = CallMemory()
        self._looked: dict[str, float] = {}

    async def call(
        self,
        card: Card,
        arguments: Mapping[str, Any] | None,
        *,
        drafted: Drafted | None = None,
        draft_id: str | None = None,
        find: Find | None = None,
        memory: CallMemory | None = None,
        meta: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] | None = None,
        on_progress: Any = None,
    ) -> Called:
        """Call one card. Raises CallError for a server that is off.

        drafted, draft_id: the draft it came from, if known. find: the card of an id that may be suggested instead; None
        suggests nothing. memory: of the connection that calls. more: what else the request says, for the backend alone.
        """
        backend = self._backends.get(card.server)
        if backend is None:
            raise CallError(f"the server {card.server!r} is not running here: enable it in roster.json")
        memory = memory or self._memory
        before = memory.tried.get(card.id)
        answer = await backend.call(card.name, arguments, meta=meta, more=more, on_progress=on_progress)
        if answer.report.cause is Cause.ANSWERED:
            called = Called(card, answer, judge(answer.report))
        else:
            ids = drafted.ids if drafted is not None and find is not None else ()
            called = await to_thread.run_sync(self._looked_into, backend, card, arguments, answer, ids, find)
            self._suspect(backend, called)
        ended = Ended(
            card,
            called.verdict,
            called.failure,
            answer.report.latency_ms,
            arguments,
            memory,
            drafted,
            draft_id,
            before,
            called.instead,
        )
        await self.scribe.record(ended)
        return called

    def _looked_into(
        self,
        backend: Backend,
        card: Card,
        arguments: Mapping[str, Any] | None,
        answer: Answer,
        ids: tuple[str, ...],
        find: Find | None,
    ) -> Called:
        """What is to be said of a failed call. It only computes, but for milliseconds: not in the event loop."""
        error, report, message = answer.error, answer.report, ""
        if report.cause in (Cause.TOOL_ERROR, Cause.RPC_ERROR):
            said = examine(answer.result, error.message if error else "", error.data if error else None, self._clock())
            wait_s = report.retry_after_s if report.retry_after_s is not None else said.wait_s
            report = replace(report, fields=said.fields, text=said.text, reported=said.kind, retry_after_s=wait_s)
            report, message = _with_fit(report, card, arguments), said.message
        verdict = judge(report)
        declared = by_name(backend.spec.failures, declared_by_tool(card.raw)[0])
        failure = failure_of(report, card.annotations, declared, verdict)
        instead = None
        if find is not None and ids and verdict.outcome in WORTH_ANOTHER:
            other = next_after(ids, card, find, self._lives)
            instead = suggestion(other, card, verdict.outcome, arguments) if other is not None else None
        return Called(card, answer, verdict, failure, report.retry_after_s, message, instead)

    def _lives(self, card: Card) -> bool:
        backend = self._backends.get(card.server)
        return backend is not None and backend.state is State.READY

    def _suspect(self, backend: Backend, called: Called) -> None:
        """Have the list read again when a tool behaves as if it were another one than is on file; now and then only."""
        if called.outcome is Outcome.DRIFT_SUSPECT:
            now = self._clock()
            if now - self._looked.get(backend.name, float("-inf")) >= LOOK_AGAIN_S:
                self._looked[backend.name] = now
                backend.look_again()


def _with_fit(report: CallReport, card: Card, arguments: Mapping[str, Any] | None) -> CallReport:
    """A report that knows whether the arguments fit the schema on file, where that could make a difference.

    A schema that asks for nothing is kept to by anything, so that arguments keep to it is no evidence.
    """
    if judge(report).outcome not in (Outcome.SCHEMA, Outcome.INTERNAL, Outcome.OTHER):
        return report
    fits = check_arguments(card.input_schema, arguments).valid
    if fits is True and not says_something(card.input_schema):
        fits = None
    return replace(report, fits=fits)
