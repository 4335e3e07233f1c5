"""A card id and arguments become a call; what came of it is noted, without a word of what was in it.

A failure is looked into before the answer goes out: whose fault it was, what kind it is, and whether the same draft
holds another tool that may do.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import logging
import secrets
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
from anyio import to_thread

from roster.alternates import WORTH_ANOTHER, Suggestion, next_after, suggestion
from roster.answers import examine
from roster.arguments import check_arguments, says_something
from roster.backends import Answer, Backend, State
from roster.cards import Card
from roster.database import atomic
from roster.declared import by_name, declared_by_tool
from roster.draft import Drafted
from roster.errors import CallError, UnknownCardError, json_type
from roster.failures import Failure, failure_of
from roster.history import History, OutcomeRow
from roster.outcomes import CallReport, Cause, Outcome, Verdict, judge
from roster.reindex import Writer

__all__ = ["CallMemory", "Called", "Caller", "checked_arguments", "unknown_card"]

log = logging.getLogger(__name__)

RECORD_WAIT_S = 0.2
OUTAGE_S = 60.0
"""For so long after a backend was found gone, that it is gone is no news."""
RETRY_S = 120.0
"""For so long a call of the same tool with other arguments is another try at the same thing."""
LOOK_AGAIN_S = 60.0
REMEMBERED = 256

Find = Callable[[str], Card | None]


@dataclass(frozen=True, slots=True)
class _Tried:
    """A failed call that the next one may show to have been the caller's own mistake."""

    number: int
    at: float
    arguments: bytes


@dataclass(slots=True, eq=False)
class CallMemory:
    """What one connection did lately: tries that failed, by card, and suggestions made, by draft and card.

    Arguments are remembered as a hash under a salt that only this memory has, and that is never written down.
    """

    salt: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)
    tried: dict[str, _Tried] = field(default_factory=dict)
    offered: dict[tuple[str, str], int] = field(default_factory=dict)

    def hashed(self, arguments: Mapping[str, Any] | None) -> bytes:
        """The arguments, unreadable; the same for the same ones in any order."""
        text = json.dumps(arguments or {}, sort_keys=True, default=str)
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=self.salt, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Called:
    """A finished call: the backend's answer, its class, and for a failure its kind and flags, how long to wait, the
    author's own words about it, and what may be called instead."""

    card: Card
    answer: Answer
    outcome: Outcome
    failure: Failure | None
    wait_s: float | None = None
    message: str = ""
    instead: Suggestion | None = None

    def words(self) -> str:
        """What to tell a caller when the backend itself said nothing."""
        kind = self.failure.kind if self.failure else "error"
        seconds = self.answer.report.latency_ms / 1000
        return f"{self.card.server} gave no answer to {self.card.name} ({kind!s}, after {seconds:.1f} s)"

    def wire(self) -> dict[str, Any]:
        """The `_roster` object of a failed call."""
        if self.failure is None:
            return {}
        shown: dict[str, Any] = {"failure": self.failure.wire(self.outcome, wait_s=self.wait_s, message=self.message)}
        if self.instead is not None:
            shown["suggested_alternate"] = self.instead.wire()
        return shown


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


class Caller:
    """Carries calls out and records their outcomes."""

    def __init__(self, backends: Mapping[str, Backend], writer: Writer, clock: Callable[[], float] = time.time) -> None:
        self._backends = backends
        self._writer = writer
        self._history = History(writer.db)
        self._clock = clock
        self._memory = CallMemory()
        self._outages: dict[str, float] = {}
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
        on_progress: Any = None,
    ) -> Called:
        """Call one card. Raises CallError for a server that is off.

        drafted, draft_id: the draft it came from, if known. find: the card of an id that may be suggested instead; None
        suggests nothing. memory: of the connection that calls.
        """
        backend = self._backends.get(card.server)
        if backend is None:
            raise CallError(f"the server {card.server!r} is not running here: enable it in roster.json")
        memory = memory or self._memory
        before = memory.tried.get(card.id)
        answer = await backend.call(card.name, arguments, meta=meta, on_progress=on_progress)
        if answer.report.cause is Cause.ANSWERED:
            called, verdict = Called(card, answer, Outcome.SUCCESS, None), judge(answer.report)
        else:
            ranking = drafted.ids if drafted is not None and find is not None else ()
            called, verdict = await to_thread.run_sync(
                self._looked_into, backend, card, arguments, answer, ranking, find
            )
            self._suspect(backend, called)
        noted = _Noted(card, called, verdict, arguments, drafted, draft_id, memory, before)
        with anyio.move_on_after(RECORD_WAIT_S):
            # Nearly always a fraction of a millisecond; when another process holds the database, the answer goes first.
            await to_thread.run_sync(self._record, noted, abandon_on_cancel=True)
        return called

    # ------------------------------------------------------------------------------------------- failures

    def _looked_into(
        self,
        backend: Backend,
        card: Card,
        arguments: Mapping[str, Any] | None,
        answer: Answer,
        ranking: Collection[str],
        find: Find | None,
    ) -> tuple[Called, Verdict]:
        """What is to be said of a failed call. It only computes, but for milliseconds: not in the event loop."""
        error, report, message = answer.error, answer.report, ""
        if report.cause in (Cause.TOOL_ERROR, Cause.RPC_ERROR):
            said = examine(answer.result, error.message if error else "", error.data if error else None, self._clock())
            wait_s = report.retry_after_s if report.retry_after_s is not None else said.wait_s
            report = replace(report, fields=said.fields, text=said.text, reported=said.kind, retry_after_s=wait_s)
            report, message = _with_fit(report, card, arguments), said.message
        verdict = judge(report)
        declared = by_name(backend.spec.failures, declared_by_tool(card.raw)[0])
        instead = None
        if verdict.outcome in WORTH_ANOTHER and find is not None and ranking:
            other = next_after(tuple(ranking), card, find, self._lives)
            instead = suggestion(other, card, verdict.outcome, arguments) if other is not None else None
        failure = failure_of(report, card.annotations, declared, verdict)
        return Called(card, answer, verdict.outcome, failure, report.retry_after_s, message, instead), verdict

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

    # ------------------------------------------------------------------------------------------ recording

    def _need_of(self, drafted: Drafted | None, now: float) -> int | None:
        """The number of a draft's need, kept with the first call that the draft led to."""
        if drafted is None or drafted.need is None:
            return None
        if drafted.stored is None:
            drafted.stored = self._history.keep_need(drafted.need, now)
        return drafted.stored

    def _counts(self, noted: _Noted, now: float) -> bool:
        """Whether an outcome is held for or against the tool. One outage of a backend is one, however many call it."""
        if noted.verdict.outcome is not Outcome.TRANSPORT or not noted.verdict.counted:
            return noted.verdict.counted
        server = noted.card.server
        if 0 <= now - self._outages.get(server, float("-inf")) < OUTAGE_S:
            return False
        self._outages[server] = now
        return True

    def _record(self, noted: _Noted) -> None:
        now, card, drafted, verdict = self._clock(), noted.card, noted.drafted, noted.verdict
        try:
            with self._writer.lock, atomic(self._writer.db):
                number = self._history.record(
                    OutcomeRow(
                        card.id,
                        card.fingerprint,
                        verdict.outcome,
                        noted.called.failure,
                        noted.called.answer.report.latency_ms,
                        now,
                        drafted=drafted is not None and card.id in drafted.ids,
                        rule=verdict.rule,
                        fault=verdict.fault.value if verdict.fault else None,
                        counted=self._counts(noted, now),
                        need=self._need_of(drafted, now),
                    )
                )
                self._remember(noted, number, now)
        except sqlite3.Error as error:
            # The caller has an answer; a full disk must not take it away.
            log.warning("an outcome of %s could not be recorded: %s", card.id, error)

    def _remember(self, noted: _Noted, number: int, now: float) -> None:
        """Soften the try before this one, note a suggestion made or taken, keep in mind what the next call needs."""
        memory, id_ = noted.memory, noted.card.id
        if noted.draft_id is not None and (taken := memory.offered.pop((noted.draft_id, id_), None)) is not None:
            self._history.took(taken, now)
        if (instead := noted.called.instead) is not None:
            offer = self._history.suggest(id_, instead.card.id, instead.check.valid, now)
            if noted.draft_id is not None:
                _keep(memory.offered, (noted.draft_id, instead.card.id), offer)
        if noted.verdict.soft:
            _keep(memory.tried, id_, _Tried(number, now, memory.hashed(noted.arguments)))
            return
        if (
            noted.verdict.outcome is Outcome.SUCCESS
            # Not merely the last failure: one that was known when this call was made.
            and (before := noted.before) is not None
            and now - before.at <= RETRY_S
            and memory.hashed(noted.arguments) != before.arguments
        ):
            self._history.soften(before.number)
        memory.tried.pop(id_, None)


def _keep(recent: dict[Any, Any], key: Any, value: Any) -> None:
    """Put an entry into a dict as its newest; the oldest are forgotten."""
    recent.pop(key, None)
    recent[key] = value
    while len(recent) > REMEMBERED:
        del recent[next(iter(recent))]


@dataclass(frozen=True, slots=True)
class _Noted:
    """A finished call with what recording it needs. before: the failed try that was in mind when it was made."""

    card: Card
    called: Called
    verdict: Verdict
    arguments: Mapping[str, Any] | None
    drafted: Drafted | None
    draft_id: str | None
    memory: CallMemory
    before: _Tried | None


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
