"""What came of a call, written down without a word of what was in it; and what the next call should know of it.

Three judgements need more than one call: an outage is one failure however many calls run into it; a try that the caller
mended at the next one was the caller's own mistake; and a suggestion was taken once the card it named is called.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from roster.alternates import Suggestion
from roster.cards import Card
from roster.config import Level
from roster.database import atomic, is_busy, patience
from roster.draft import Drafted
from roster.failures import Failure
from roster.history import History, Limits, OutcomeRow
from roster.outcomes import Outcome, Verdict
from roster.reindex import Writer

__all__ = ["OUTAGE_S", "RETRY_S", "TRIMMED_AT_ONCE", "CallMemory", "Ended", "Recorder", "Tried"]

log = logging.getLogger(__name__)

OUTAGE_S = 60.0
"""For so long after a backend was found gone, that it is gone is no news."""
RETRY_S = 120.0
"""For so long a call of the same tool with other arguments is another try at the same thing."""
TRIMMED_AT_ONCE = 2
"""Rows over the limits that a new one takes along: more than it adds, and no more than a call has the time for."""
REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class Tried:
    """A failed call that the next one may show to have been the caller's own mistake. arguments: hashed."""

    number: int
    at: float
    arguments: bytes


@dataclass(slots=True, eq=False)
class CallMemory:
    """What one connection did lately: tries that failed, by card, and suggestions made, by draft and card.

    Arguments are remembered as a hash under a salt that only this memory has, and that is never written down.
    """

    salt: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)
    tried: dict[str, Tried] = field(default_factory=dict)
    offered: dict[tuple[str, str], int] = field(default_factory=dict)

    def hashed(self, arguments: Mapping[str, Any] | None) -> bytes:
        """The arguments, unreadable; the same for the same ones in any order."""
        text = json.dumps(arguments or {}, sort_keys=True, default=str)
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=self.salt, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Ended:
    """A call that has ended, with what recording it needs.

    draft_id: of `drafted`. memory: of the connection that called. before: the failed try that was in mind when the call
    was made; a failure that came later was no reason for it.
    """

    card: Card
    verdict: Verdict
    failure: Failure | None
    latency_ms: float
    arguments: Mapping[str, Any] | None
    memory: CallMemory
    drafted: Drafted | None = None
    draft_id: str | None = None
    before: Tried | None = None
    instead: Suggestion | None = None


class Recorder:
    """Appends outcomes to the history. Synchronous; one call at a time."""

    def __init__(self, writer: Writer, clock: Callable[[], float], learning: Level, limits: Limits) -> None:
        self._writer = writer
        self._history = History(writer.db)
        self._clock = clock
        self._learning = learning
        self._limits = limits
        self._outages: dict[str, float] = {}

    def record(self, ended: Ended) -> None:
        """Write one call down. A database that cannot be written to costs the record and nothing else."""
        with self._writer.lock:
            self._record(ended, waited=True)

    def record_now(self, ended: Ended) -> bool:
        """`record` where nobody else is writing; False, and nothing is done, where one would have to wait for it.

        It takes a twentieth of a millisecond, half of what it takes to have another thread do it.
        """
        if not self._writer.lock.acquire(blocking=False):
            return False
        try:
            with patience(self._writer.db, 0):
                return self._record(ended, waited=False)
        finally:
            self._writer.lock.release()

    def _record(self, ended: Ended, *, waited: bool) -> bool:
        """Write one call down, under the writer's lock; False when another process kept the database to itself."""
        if self._learning == "off":
            return True
        now = self._clock()
        try:
            counted = self._counts(ended, now)
            with atomic(self._writer.db):
                # A call that only happens to carry a draft's id says nothing of that draft's need.
                drafted = ended.drafted if _was_drafted(ended) and self._is_current(ended.card) else None
                need = self._need_of(drafted, now)
                number = self._history.record(_row(ended, now, counted, need))
                offer = self._note_suggestions(ended, now)
                self._soften(ended, now)
                self._history.trim(self._limits, now, TRIMMED_AT_ONCE)
            # Not before it is committed: a number that was rolled back is given to another row.
            self._remember(ended, now, number, need, offer)
        except sqlite3.Error as error:
            if not waited and is_busy(error):
                return False
            # The caller has an answer; a full disk must not take it away.
            log.warning("an outcome of %s could not be recorded: %s", ended.card.id, error)
        return True

    def _need_of(self, drafted: Drafted | None, now: float) -> int | None:
        """The number of a draft's need, kept with the first call that the draft led to."""
        if drafted is None or drafted.need is None or self._learning != "full":
            return None
        return self._history.keep_need(drafted.need, now) if drafted.stored is None else drafted.stored

    def _is_current(self, card: Card) -> bool:
        """Whether a card is still what was called: its definition may have changed while the call was under way."""
        row = self._writer.db.execute("SELECT fingerprint FROM cards WHERE id = ?", (card.id,)).fetchone()
        return row is None or row[0] == card.fingerprint

    def _counts(self, ended: Ended, now: float) -> bool:
        """Whether an outcome is held for or against the tool. One outage of a backend is one, however many call it."""
        if ended.verdict.outcome is not Outcome.TRANSPORT:
            return ended.verdict.counted
        return not 0 <= now - self._outages.get(ended.card.server, float("-inf")) < OUTAGE_S

    def _note_suggestions(self, ended: Ended, now: float) -> int | None:
        """Note a suggestion that this call follows, and the one that was made after it; the number of the latter."""
        taken = ended.memory.offered.get((ended.draft_id or "", ended.card.id))
        if taken is not None:
            self._history.took(taken, now)
        if ended.instead is None:
            return None
        return self._history.suggest(ended.card.id, ended.instead.card.id, ended.instead.check.valid, now)

    def _soften(self, ended: Ended, now: float) -> None:
        """Take back the failure before a success that came of other arguments. Only the one, and soon after it."""
        before = ended.before
        if (
            ended.verdict.outcome is Outcome.SUCCESS
            and before is not None
            and now - before.at <= RETRY_S
            and ended.memory.hashed(ended.arguments) != before.arguments
        ):
            self._history.soften(before.number)

    def _remember(self, ended: Ended, now: float, number: int, need: int | None, offer: int | None) -> None:
        """Keep in mind what the next call needs."""
        memory, id_ = ended.memory, ended.card.id
        if ended.drafted is not None and need is not None:
            ended.drafted.stored = need
        if ended.verdict.outcome is Outcome.TRANSPORT and self._counts(ended, now):
            self._outages[ended.card.server] = now
        if ended.draft_id is not None:
            memory.offered.pop((ended.draft_id, id_), None)
            if offer is not None and ended.instead is not None:
                _keep(memory.offered, (ended.draft_id, ended.instead.card.id), offer)
        memory.tried.pop(id_, None)
        if ended.verdict.soft:
            _keep(memory.tried, id_, Tried(number, now, memory.hashed(ended.arguments)))


def _was_drafted(ended: Ended) -> bool:
    return ended.drafted is not None and ended.drafted.holds(ended.card)


def _row(ended: Ended, now: float, counted: bool, need: int | None) -> OutcomeRow:
    verdict = ended.verdict
    return OutcomeRow(
        ended.card.id,
        ended.card.fingerprint,
        verdict.outcome,
        ended.failure,
        ended.latency_ms,
        now,
        drafted=_was_drafted(ended),
        rule=verdict.rule,
        fault=verdict.fault.value if verdict.fault else None,
        counted=counted,
        need=need,
    )


def _keep(recent: dict[Any, Any], key: Any, value: Any) -> None:
    """Put an entry into a dict as its newest; the oldest are forgotten."""
    recent.pop(key, None)
    recent[key] = value
    while len(recent) > REMEMBERED:
        del recent[next(iter(recent))]
