"""Outcomes, append-only. No word of a need, an argument, a result or an error ever gets here."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from roster.failures import Failure
from roster.outcomes import Outcome

__all__ = ["History", "Tally"]


@dataclass(frozen=True, slots=True)
class Tally:
    """What is known of one card's calls."""

    calls: int
    successes: int
    last_at: float


class History:
    """The outcomes table, over one connection. Not for two threads at once."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def record(
        self,
        card: str,
        fingerprint: str,
        outcome: Outcome,
        failure: Failure | None,
        latency_ms: float,
        now: float,
        *,
        drafted: bool,
    ) -> None:
        """Append one outcome."""
        flags: tuple[str | bool | None, ...] = (None, None, None, None)
        if failure is not None:
            flags = (failure.kind.value, failure.retryable, failure.partial, failure.person)
        self._db.execute(
            "INSERT INTO outcomes (at, card, fingerprint, outcome, failure, retryable, partial, person, latency_ms, "
            "drafted) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (now, card, fingerprint, outcome.value, *flags, latency_ms, drafted),
        )

    def tallies(self) -> dict[str, Tally]:
        """Calls and successes by card id. A caller's own mistakes are not the tool's, so they are not counted."""
        rows = self._db.execute(
            "SELECT card, count(*), sum(outcome = ?), max(at) FROM outcomes WHERE outcome != ? GROUP BY card",
            (Outcome.SUCCESS.value, Outcome.SCHEMA.value),
        )
        return {card: Tally(calls, successes, at) for card, calls, successes, at in rows}
