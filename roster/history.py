"""Outcomes, append-only. No word of a need, an argument, a result or an error ever gets here."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roster.database import atomic
from roster.failures import Failure
from roster.outcomes import Outcome
from roster.vectors import Vectors

__all__ = ["History", "Lesson", "NeedRow", "OutcomeRow", "Tally"]


@dataclass(frozen=True, slots=True)
class Tally:
    """What is known of one card's calls, as far as they count."""

    calls: int
    successes: int
    last_at: float


@dataclass(frozen=True, slots=True)
class NeedRow:
    """A need without its words. vector: (dim,) float32 unit row. running: card numbers and scores, best first."""

    encoder: str
    vector: Vectors
    running: Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """One finished call as it is stored. counted: whether it is held for or against the tool. need: its number."""

    card: str
    fingerprint: str
    outcome: Outcome
    failure: Failure | None
    latency_ms: float
    at: float
    drafted: bool
    rule: str = ""
    fault: str | None = None
    counted: bool = True
    need: int | None = None


@dataclass(frozen=True, slots=True)
class Lesson:
    """An outcome that learning can use: which card of which contract, how it went, and for what need."""

    number: int
    card: str
    fingerprint: str
    success: bool
    at: float
    need: int


_PAIR = np.dtype([("number", "<u4"), ("score", "<f4")])


class History:
    """The outcomes, needs and suggestions tables, over one connection. Not for two threads at once."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def record(self, row: OutcomeRow) -> int:
        """Append one outcome; its number."""
        failure = row.failure
        flags: tuple[Any, ...] = (None,) * 5
        if failure is not None:
            flags = (failure.kind, failure.retryable, failure.partial, failure.person, failure.declared)
        (number,) = self._db.execute(
            "INSERT INTO outcomes (at, card, fingerprint, outcome, failure, retryable, partial, person, declared, "
            "latency_ms, drafted, rule, fault, counted, need) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "RETURNING number",
            (row.at, row.card, row.fingerprint, row.outcome.value, *flags,
             row.latency_ms, row.drafted, row.rule or None, row.fault, row.counted, row.need),
        ).fetchone()  # fmt: skip
        return int(number)

    def soften(self, number: int) -> None:
        """A failure that the caller mended is no longer held against the tool. Does nothing to a success."""
        self._db.execute(
            "UPDATE outcomes SET counted = 0 WHERE number = ? AND outcome != ?", (number, Outcome.SUCCESS.value)
        )

    def tallies(self) -> dict[str, Tally]:
        """Calls and successes by card id. A caller's own mistakes are not the tool's, so they are not counted."""
        rows = self._db.execute(
            "SELECT card, count(*), sum(outcome = ?), max(at) FROM outcomes WHERE outcome != ? AND counted "
            "GROUP BY card",
            (Outcome.SUCCESS.value, Outcome.SCHEMA.value),
        )
        return {card: Tally(calls, successes, at) for card, calls, successes, at in rows}

    # ---------------------------------------------------------------------------------------------- needs

    def keep_need(self, need: NeedRow, at: float) -> int:
        """Store a need that led to a call; its number."""
        running = np.array([(number, score) for number, score in need.running], dtype=_PAIR)
        (number,) = self._db.execute(
            "INSERT INTO needs (at, encoder, vector, running) VALUES (?, ?, ?, ?) RETURNING number",
            (at, need.encoder, need.vector.astype("<f2").tobytes(), running.tobytes()),
        ).fetchone()
        return int(number)

    def lessons(self, encoder: str, after: int = 0) -> list[Lesson]:
        """Outcomes after number `after` with a need that this encoder embedded, that count, oldest first."""
        rows = self._db.execute(
            "SELECT o.number, o.card, o.fingerprint, o.outcome = ?, o.at, o.need FROM outcomes o "
            "JOIN needs n ON n.number = o.need WHERE o.number > ? AND o.counted AND o.outcome != ? AND n.encoder = ? "
            "ORDER BY o.number",
            (Outcome.SUCCESS.value, after, Outcome.SCHEMA.value, encoder),
        )
        return [Lesson(number, card, print_, bool(won), at, need) for number, card, print_, won, at, need in rows]

    def vectors_of(self, needs: Sequence[int]) -> Mapping[int, NDArray[np.float32]]:
        """Need number → (dim,) float32 vector, of those that are still there."""
        out: dict[int, NDArray[np.float32]] = {}
        for start in range(0, len(needs), 500):
            some = list(needs[start : start + 500])
            marks = ",".join("?" * len(some))
            for number, blob in self._db.execute(f"SELECT number, vector FROM needs WHERE number IN ({marks})", some):
                out[number] = np.frombuffer(blob, "<f2").astype(np.float32)
        return out

    def running_of(self, needs: Sequence[int]) -> Mapping[int, list[tuple[int, float]]]:
        """Need number → what was in the running for it, as (card number, score), best first."""
        out: dict[int, list[tuple[int, float]]] = {}
        for start in range(0, len(needs), 500):
            some = list(needs[start : start + 500])
            marks = ",".join("?" * len(some))
            for number, blob in self._db.execute(f"SELECT number, running FROM needs WHERE number IN ({marks})", some):
                pairs = np.frombuffer(blob, _PAIR)
                out[number] = list(zip(pairs["number"].tolist(), pairs["score"].tolist(), strict=True))
        return out

    def failure_kinds(self) -> dict[str, dict[str, int]]:
        """Card id → failure kind → how many calls ended in it."""
        out: dict[str, dict[str, int]] = {}
        for card, kind, count in self._db.execute(
            "SELECT card, failure, count(*) FROM outcomes WHERE failure IS NOT NULL GROUP BY card, failure"
        ):
            out.setdefault(card, {})[kind] = count
        return out

    # ---------------------------------------------------------------------------------------- suggestions

    def suggest(self, failed: str, suggested: str, compatible: bool | None, at: float) -> int:
        """Note that one card was suggested after another failed; the suggestion's number."""
        (number,) = self._db.execute(
            "INSERT INTO suggestions (at, failed, suggested, compatible) VALUES (?, ?, ?, ?) RETURNING number",
            (at, failed, suggested, compatible),
        ).fetchone()
        return int(number)

    def took(self, number: int, at: float) -> None:
        """Note that a suggestion was followed."""
        self._db.execute("UPDATE suggestions SET taken_at = ? WHERE number = ? AND taken_at IS NULL", (at, number))

    def clear(self) -> dict[str, int]:
        """Forget everything that was recorded; how many rows of each kind there were."""
        counts = {}
        with atomic(self._db) as db:
            for table in ("outcomes", "needs", "suggestions"):
                counts[table] = int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
                db.execute(f"DELETE FROM {table}")
        return counts
