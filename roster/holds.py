"""What holds each card, as it is kept in the cards table."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from roster.dwell import Hold, Moment, Reason
from roster.uptime import Uptime

__all__ = ["HOLD_COLUMNS", "Held", "Holds", "hold_of"]

HOLD_COLUMNS = "held_reason, quarantined_at, stable_s, stable_at, stable_uptime, stable_run"


@dataclass(frozen=True, slots=True)
class Held:
    """A card that is listed and held. waits_s: stable time until it clears itself; None: a person must look."""

    id: str
    server: str
    reason: Reason
    at: float
    waits_s: float | None


def hold_of(row: Sequence[Any]) -> Hold | None:
    """The hold that `HOLD_COLUMNS` of a row describe; None for a card that is free."""
    reason, at, stable_s, seen_at, seconds, run = row
    if reason is None:
        return None
    steady = Uptime(seconds, run) if seconds is not None and run is not None else None
    return Hold(Reason(reason), at, Moment(seen_at if seen_at is not None else at, steady), stable_s or 0.0)


class Holds:
    """The columns of the cards table that say what holds a card, over one connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def put(self, number: int, hold: Hold | None) -> None:
        """What holds a card from now on; None: nothing."""
        values: tuple[Any, ...] = (None,) * 6
        if hold is not None:
            steady = hold.seen.uptime
            values = (hold.reason.value, hold.at, hold.stable_s, hold.seen.at,
                      steady.seconds if steady else None, steady.run if steady else None)  # fmt: skip
        self._db.execute(
            "UPDATE cards SET held_reason = ?, quarantined_at = ?, stable_s = ?, stable_at = ?, stable_uptime = ?, "
            "stable_run = ? WHERE number = ?",
            (*values, number),
        )

    def all(self) -> list[Held]:
        """The cards that are listed and held, by id."""
        rows = self._db.execute(
            f"SELECT id, server, {HOLD_COLUMNS} FROM cards "
            "WHERE held_reason IS NOT NULL AND removed_at IS NULL ORDER BY id"
        )
        found = [(id_, server, hold_of(rest)) for id_, server, *rest in rows]
        return [Held(id_, server, h.reason, h.at, h.waits_s) for id_, server, h in found if h is not None]
