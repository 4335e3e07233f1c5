"""A card id and arguments become a call; what came of it is noted, without a word of what was in it."""

from __future__ import annotations

import difflib
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
from anyio import to_thread

from roster.backends import Answer, Backend
from roster.cards import Card
from roster.config import Level
from roster.database import atomic
from roster.draft import Drafted
from roster.errors import CallError, UnknownCardError, json_type
from roster.failures import Failure, failure_of
from roster.history import History, Limits, OutcomeRow
from roster.outcomes import CallReport, Outcome, classify
from roster.reindex import Writer

__all__ = ["Called", "Caller", "checked_arguments", "unknown_card"]

log = logging.getLogger(__name__)

RECORD_WAIT_S = 0.2
TRIMMED_AT_ONCE = 2
"""Rows over the limits that a new one takes along: more than it adds, and no more than a call has the time for."""


@dataclass(frozen=True, slots=True)
class Called:
    """A finished call: the backend's answer, its class, and for a failure its kind and flags."""

    card: Card
    answer: Answer
    outcome: Outcome
    failure: Failure | None

    def words(self) -> str:
        """What to tell a caller when the backend itself said nothing."""
        kind = self.failure.kind.value if self.failure else "error"
        seconds = self.answer.report.latency_ms / 1000
        return f"{self.card.server} gave no answer to {self.card.name} ({kind}, after {seconds:.1f} s)"


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
        self._writer = writer
        self._history = History(writer.db)
        self._clock = clock
        self._learning = learning
        self._limits = limits or Limits()

    async def call(
        self,
        card: Card,
        arguments: Mapping[str, Any] | None,
        *,
        drafted: Drafted | None = None,
        meta: Mapping[str, Any] | None = None,
        on_progress: Any = None,
    ) -> Called:
        """Call one card. drafted: the draft it came from, if known. Raises CallError for a server that is off."""
        backend = self._backends.get(card.server)
        if backend is None:
            raise CallError(f"the server {card.server!r} is not running here: enable it in roster.json")
        answer = await backend.call(card.name, arguments, meta=meta, on_progress=on_progress)
        outcome = classify(answer.report)
        failure = failure_of(answer.report, card.annotations)
        with anyio.move_on_after(RECORD_WAIT_S):
            # Nearly always a fraction of a millisecond; when another process holds the database, the answer goes first.
            await to_thread.run_sync(
                self._record, card, outcome, failure, answer.report, drafted, abandon_on_cancel=True
            )
        return Called(card, answer, outcome, failure)

    def _need_of(self, drafted: Drafted | None, now: float) -> int | None:
        """The number of a draft's need, kept with the first call that the draft led to."""
        if drafted is None or drafted.need is None or self._learning != "full":
            return None
        return self._history.keep_need(drafted.need, now) if drafted.stored is None else drafted.stored

    def _record(
        self,
        card: Card,
        outcome: Outcome,
        failure: Failure | None,
        report: CallReport,
        drafted: Drafted | None,
    ) -> None:
        if self._learning == "off":
            return
        now = self._clock()
        shown = drafted is not None and card.id in drafted.ids
        try:
            with self._writer.lock:
                with atomic(self._writer.db):
                    need = self._need_of(drafted, now)
                    row = OutcomeRow(
                        card.id,
                        card.fingerprint,
                        outcome,
                        failure,
                        report.latency_ms,
                        now,
                        drafted=shown,
                        need=need,
                    )
                    self._history.record(row)
                    self._history.trim(self._limits, now, TRIMMED_AT_ONCE)
                if drafted is not None:
                    # Not before it is committed: a number that was rolled back is given to another need.
                    drafted.stored = need
        except sqlite3.Error as error:
            # The caller has an answer; a full disk must not take it away.
            log.warning("an outcome of %s could not be recorded: %s", card.id, error)
