"""Outcomes, append-only and within limits. No word of a need, an argument, a result or an error ever gets here."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roster.database import atomic
from roster.failures import Failure
from roster.outcomes import Outcome
from roster.ratings import Ending
from roster.vectors import Vectors
from roster.weights import Weights

__all__ = ["Event", "History", "Kept", "Limits", "NeedRow", "Offers", "OutcomeRow", "Tally"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is kept: outcomes of so many days, and no more than the newest so many outcomes and needs."""

    days: float = 365
    outcomes: int = 100_000
    needs: int = 20_000


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
class Event:
    """An outcome that counts: which card of which contract, how it went, when, and for what need, if it is known."""

    number: int
    card: str
    fingerprint: str
    success: bool
    at: float
    need: int | None


@dataclass(frozen=True, slots=True)
class Kept:
    """How many rows of one kind there are, the times of the first and the last, and what they take up, if known."""

    count: int
    oldest: float | None
    newest: float | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class Offers:
    """How often something was suggested, and how often it was then called."""

    given: int
    taken: int


_PAIR = np.dtype([("number", "<u4"), ("score", "<f4")])
_TABLES = ("outcomes", "needs", "suggestions")
_DAY_S = 86_400.0
# Held against nobody: what a caller mended, and what a caller did wrong.
_COUNTS = f"counted AND outcome != '{Outcome.SCHEMA.value}'"


def _vector(blob: object) -> NDArray[np.float32] | None:
    """The vector a blob holds; None for one that holds none, as a hand-edited file may."""
    if not isinstance(blob, bytes) or not blob or len(blob) % 2:
        return None
    vector = np.frombuffer(blob, "<f2").astype(np.float32)
    return vector if bool(np.isfinite(vector).all()) else None


class History:
    """The outcomes, needs and suggestions tables, over one connection. Not for two threads at once."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def record(self, row: OutcomeRow) -> int:
        """Append one outcome; its number, which is never used again. A need that is no longer there is left out."""
        failure = row.failure
        flags: tuple[Any, ...] = (None,) * 5
        if failure is not None:
            flags = (failure.kind, failure.retryable, failure.partial, failure.person, failure.declared)
        (number,) = self._db.execute(
            "INSERT INTO outcomes (at, card, fingerprint, outcome, failure, retryable, partial, person, declared, "
            "latency_ms, drafted, rule, fault, counted, need) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
            "(SELECT number FROM needs WHERE number = ?)) RETURNING number",
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
            f"SELECT card, count(*), sum(outcome = ?), max(at) FROM outcomes WHERE {_COUNTS} GROUP BY card",
            (Outcome.SUCCESS.value,),
        )
        return {card: Tally(calls, successes, at) for card, calls, successes, at in rows}

    def endings(self, card: str | None = None) -> dict[str, list[Ending]]:
        """How the calls of every card, or of one, ended, by card id."""
        rows = self._db.execute(
            f"SELECT card, fingerprint, outcome, failure, {_COUNTS}, at, latency_ms FROM outcomes "
            f"WHERE {'TRUE' if card is None else 'card = :card'} ORDER BY number",
            {"card": card},
        )
        # Counted here: SQLite would sort all rows by five columns first, and latencies are wanted one by one.
        alike: dict[tuple[Any, ...], tuple[list[float], list[float]]] = {}
        for *key, at, latency_ms in rows:
            times, latencies = alike.setdefault(tuple(key), ([], []))
            times.append(at)
            latencies.append(latency_ms)
        out: dict[str, list[Ending]] = {}
        for (id_, print_, outcome, kind, held), (times, latencies) in alike.items():
            kept = latencies if outcome == Outcome.SUCCESS.value else ()
            out.setdefault(id_, []).append(
                Ending(print_, outcome, kind, bool(held), len(times), max(times), tuple(kept))
            )
        return out

    # ---------------------------------------------------------------------------------------------- needs

    def keep_need(self, need: NeedRow, at: float) -> int:
        """Store a need that led to a call; its number."""
        running = np.array([(number, score) for number, score in need.running], dtype=_PAIR)
        (number,) = self._db.execute(
            "INSERT INTO needs (at, encoder, vector, running) VALUES (?, ?, ?, ?) RETURNING number",
            (at, need.encoder, need.vector.astype("<f2").tobytes(), running.tobytes()),
        ).fetchone()
        return int(number)

    def events(self, after: int = 0) -> list[Event]:
        """Outcomes after number `after`, oldest first. A caller's own mistakes, and what does not count, are left out.

        The numbers of those left out are skipped with the rest: go on from `newest`.
        """
        rows = self._db.execute(
            "SELECT number, card, fingerprint, outcome = ?, at, need FROM outcomes "
            f"WHERE number > ? AND {_COUNTS} ORDER BY number",
            (Outcome.SUCCESS.value, after),
        )
        return [Event(number, card, print_, bool(won), at, need) for number, card, print_, won, at, need in rows]

    def newest(self) -> tuple[int, int]:
        """The number of the last outcome (0 without any), and how often the history was cleared."""
        cleared = self._db.execute("SELECT value FROM meta WHERE key = 'history'").fetchone()
        return self._last("outcomes"), int(cleared[0]) if cleared else 0

    def vectors_of(self, needs: Sequence[int], encoder: str) -> Mapping[int, NDArray[np.float32]]:
        """Need number → (dim,) float32 vector, of those that are there and that this encoder embedded."""
        out: dict[int, NDArray[np.float32]] = {}
        for start in range(0, len(needs), 500):
            some = list(needs[start : start + 500])
            marks = ",".join("?" * len(some))
            for number, blob in self._db.execute(
                f"SELECT number, vector FROM needs WHERE number IN ({marks}) AND encoder = ?", [*some, encoder]
            ):
                if (vector := _vector(blob)) is not None:
                    out[number] = vector
        return out

    def newest_needs(self, encoder: str, count: int, dim: int) -> Vectors:
        """(n, dim) float32: vectors of the last `count` needs that this encoder embedded."""
        blobs = self._db.execute(
            "SELECT vector FROM needs WHERE encoder = ? ORDER BY number DESC LIMIT ?", (encoder, count)
        ).fetchall()
        rows = [vector for (blob,) in blobs if (vector := _vector(blob)) is not None and len(vector) == dim]
        kept: Vectors = np.array(rows, np.float32).reshape(-1, dim)
        return kept

    def running_of(self, needs: Sequence[int]) -> Mapping[int, list[tuple[int, float]]]:
        """Need number → what was in the running for it, as (card number, score), best first."""
        out: dict[int, list[tuple[int, float]]] = {}
        for start in range(0, len(needs), 500):
            some = list(needs[start : start + 500])
            marks = ",".join("?" * len(some))
            for number, blob in self._db.execute(f"SELECT number, running FROM needs WHERE number IN ({marks})", some):
                if not isinstance(blob, bytes) or len(blob) % _PAIR.itemsize:
                    continue
                pairs = np.frombuffer(blob, _PAIR)
                out[number] = list(zip(pairs["number"].tolist(), pairs["score"].tolist(), strict=True))
        return out

    def keep_weights(self, encoder: str, weights: Weights, gain: float, outcomes: int, at: float) -> None:
        """Store what evidence counts for needs of this encoder, its gain, and how many outcomes it was chosen by."""
        self._db.execute(
            "INSERT INTO learning (encoder, near, share, slow, adapter, gain, outcomes, at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET near = excluded.near, "
            "share = excluded.share, slow = excluded.slow, adapter = excluded.adapter, gain = excluded.gain, "
            "outcomes = excluded.outcomes, at = excluded.at",
            (encoder, weights.near, weights.share, weights.slow, weights.adapter, gain, outcomes, at),
        )

    def weights(self, encoder: str) -> tuple[Weights, float, int] | None:
        """What was stored by `keep_weights` for this encoder."""
        row = self._db.execute(
            "SELECT near, share, slow, adapter, gain, outcomes FROM learning WHERE encoder = ?", (encoder,)
        ).fetchone()
        if row is None or not all(isinstance(value, int | float) and math.isfinite(value) for value in row):
            return None
        near, share, slow, adapter, gain, outcomes = row
        return Weights(float(near), float(share), bool(slow), float(adapter)), float(gain), int(outcomes)

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

    def offers(self, card: str) -> tuple[Offers, Offers]:
        """What was suggested after this card had failed, and how often this card was suggested itself."""
        after, of = (
            Offers(
                *self._db.execute(
                    f"SELECT count(*), count(taken_at) FROM suggestions WHERE {column} = ?", (card,)
                ).fetchone()
            )
            for column in ("failed", "suggested")
        )
        return after, of

    # -------------------------------------------------------------------------------------------- keeping

    def forget_evidence(self, cards: Mapping[str, int]) -> None:
        """Cut these cards (id → number) out of all that was learned from needs; their outcomes stay on record.

        For cards whose definition is another one now: the needs of the old one say nothing of it. Inside a transaction.
        """
        needs: set[int] = set()
        for card in cards:
            rows = self._db.execute("SELECT need FROM outcomes WHERE card = ? AND need IS NOT NULL", (card,))
            needs |= {need for (need,) in rows}
            self._db.execute("UPDATE outcomes SET need = NULL WHERE card = ? AND need IS NOT NULL", (card,))
        self._db.executemany(
            "DELETE FROM needs WHERE number = ? AND NOT EXISTS (SELECT 1 FROM outcomes WHERE need = needs.number)",
            [(need,) for need in needs],
        )
        gone = np.fromiter(cards.values(), "<u4")
        cut = []
        for need, blob in self._db.execute("SELECT number, running FROM needs"):
            if isinstance(blob, bytes) and not len(blob) % _PAIR.itemsize:
                pairs = np.frombuffer(blob, _PAIR)
                left = pairs[~np.isin(pairs["number"], gone)]
                if len(left) < len(pairs):
                    cut.append((left.tobytes(), need))
        self._db.executemany("UPDATE needs SET running = ? WHERE number = ?", cut)

    def trim(self, limits: Limits, now: float, at_most: int) -> int:
        """Drop what is over the limits, oldest first, at most so many rows of each kind; how many that were.

        Needs that no outcome refers to any more go with the last one that did. Inside a transaction of the caller's.
        """
        cut = now - limits.days * _DAY_S
        gone = self._drop("outcomes", "number <= ?", self._last("outcomes") - limits.outcomes, at_most, "need")
        gone += self._drop("outcomes", "at < ?", cut, at_most - len(gone), "need")
        needs = {need for (need,) in gone if need is not None}
        self._db.executemany(
            "DELETE FROM needs WHERE number = ? AND NOT EXISTS (SELECT 1 FROM outcomes WHERE need = needs.number)",
            [(need,) for need in needs],
        )
        gone += self._drop("needs", "number <= ?", self._last("needs") - limits.needs, at_most)
        spare = self._drop("suggestions", "number <= ?", self._last("suggestions") - limits.outcomes, at_most)
        gone += spare + self._drop("suggestions", "at < ?", cut, at_most - len(spare))
        return len(gone)

    def _last(self, table: str) -> int:
        # Numbers are handed out in order, so the newest n rows are those within n of the last number: no counting.
        return int(self._db.execute(f"SELECT coalesce(max(number), 0) FROM {table}").fetchone()[0])

    def _drop(self, table: str, which: str, value: float, at_most: int, returning: str = "number") -> list[Any]:
        order = which.partition(" ")[0]
        return self._db.execute(
            f"DELETE FROM {table} WHERE number IN (SELECT number FROM {table} WHERE {which} ORDER BY {order} LIMIT ?) "
            f"RETURNING {returning}",
            (value, at_most),
        ).fetchall()

    def kept(self) -> dict[str, Kept]:
        """What there is, by table."""
        out = {}
        for table, size_bytes in self._sizes().items():
            count, oldest, newest = self._db.execute(f"SELECT count(*), min(at), max(at) FROM {table}").fetchone()
            out[table] = Kept(count, oldest, newest, size_bytes)
        return out

    def _sizes(self) -> dict[str, int | None]:
        """Bytes by table, its indexes included; None where this SQLite was built without the means to tell."""
        try:
            rows = self._db.execute(
                "SELECT tbl_name, sum(pgsize) FROM dbstat JOIN sqlite_master USING (name) "
                "WHERE aggregate = TRUE GROUP BY tbl_name"
            ).fetchall()
        except sqlite3.DatabaseError:
            return dict.fromkeys(_TABLES)
        return {table: dict(rows)[table] for table in _TABLES}

    def calls_since(self, at: float) -> list[tuple[str, bool, float]]:
        """Card id, whether it worked, and milliseconds of every call from then on, oldest first."""
        rows = self._db.execute("SELECT card, outcome, latency_ms FROM outcomes WHERE at >= ? ORDER BY number", (at,))
        return [(card, outcome == Outcome.SUCCESS, latency_ms) for card, outcome, latency_ms in rows]

    def encoders(self) -> dict[str, int]:
        """How many needs there are of each encoder, by its fingerprint."""
        return dict(self._db.execute("SELECT encoder, count(*) FROM needs GROUP BY encoder"))

    def forget_other_encoders(self, encoder: str) -> int:
        """Drop the needs that other encoders than this one read, and the weights chosen by them; how many needs.

        Their words are not kept, so they cannot be read again. Outcomes stay on record.
        """
        with atomic(self._db) as db:
            (count,) = db.execute("SELECT count(*) FROM needs WHERE encoder != ?", (encoder,)).fetchone()
            if count:
                db.execute("DELETE FROM needs WHERE encoder != ?", (encoder,))
                db.execute("DELETE FROM learning WHERE encoder != ?", (encoder,))
        return int(count)

    def clear(self, tables: Iterable[str] = _TABLES) -> dict[str, int]:
        """Forget everything of these kinds, for good; how many rows of each there were.

        What was learned from needs goes with them. Numbers are not used again, and `newest` tells other processes.
        What is free in the file afterwards is overwritten and given back.
        """
        chosen = [table for table in _TABLES if table in set(tables)]
        counts = dict.fromkeys(_TABLES, 0)
        self._db.execute("PRAGMA secure_delete = ON")
        with atomic(self._db) as db:
            for table in chosen:
                counts[table] = int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
                db.execute(f"DELETE FROM {table}")
            if "needs" in chosen:
                db.execute("DELETE FROM learning")
            db.execute("INSERT INTO meta VALUES ('history', 1) ON CONFLICT DO UPDATE SET value = value + 1")
        # The rows are gone; that their space goes as well can wait for a moment when no other process is in the way.
        with suppress(sqlite3.OperationalError):
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return counts
