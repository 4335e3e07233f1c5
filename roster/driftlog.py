"""The drift log on file: what changed, when, how grave it was, and how it ended."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from roster.cards import Kind
from roster.contracts import Change, Severity, compare, severity_of
from roster.drift import Event
from roster.origins import EventKind

__all__ = ["Batch", "By", "DriftLog", "Logged", "State"]


class By(StrEnum):
    """What closed an event."""

    DWELL = "dwell"
    PERSON = "person"
    SUPERSEDED = "superseded"  # the card changed again


class State(StrEnum):
    """Where an event stands."""

    HELD = "held"
    DWELL = "cleared by dwell"
    PERSON = "cleared by a person"
    SUPERSEDED = "superseded"
    FREE = "not held"


@dataclass(frozen=True, slots=True)
class Batch:
    """What happened to a server as a whole: `cards` of its `of` definitions changed at once, or its name did."""

    number: int
    at: float
    server: str
    cards: int
    of: int
    old_version: str | None
    new_version: str | None
    was: str | None = None

    def told(self) -> str:
        """The batch in one line."""
        if self.was:
            changed = f", with {self.cards} of {self.of} definitions changed" if self.cards else ""
            return f"the server {self.was} is called {self.server} now{changed}"
        if self.old_version and self.new_version and self.old_version != self.new_version:
            how = f"from {self.old_version} to {self.new_version}"
        else:
            how = "without a new version"
        return f"{self.server} changed {self.cards} of {self.of} definitions at once, {how}"


@dataclass(frozen=True, slots=True)
class Logged:
    """One event, with both definitions. before, after: listing rows; {} where there was, or is on file, none."""

    number: int
    at: float
    card: str
    server: str
    kind: EventKind
    severity: Severity
    state: State
    was: str | None
    batch: int | None
    cleared_at: float | None
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    card_kind: Kind

    def changes(self) -> list[Change]:
        """What differs between the two definitions; all of it for a card that is new."""
        return compare(self.card_kind, self.before, self.after)


class DriftLog:
    """The drift and batches tables, over one connection. Writes go inside the caller's transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def begin(self, server: str, at: float, cards: int, of: int, versions: tuple[str | None, str | None],
              was: str | None = None) -> Batch:  # fmt: skip
        """Open a batch: one event for a whole server."""
        (number,) = self._db.execute(
            "INSERT INTO batches (at, server, cards, of, old_version, new_version, was) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "RETURNING number",
            (at, server, cards, of, *versions, was),
        ).fetchone()
        return Batch(int(number), at, server, cards, of, *versions, was)

    def add(self, card: str, event: Event, at: float, batch: Batch | None = None) -> None:
        """Append one event. Whatever was open of this card is superseded by it."""
        self.close(card, By.SUPERSEDED, at)
        closed = (at, By.PERSON.value) if event.accepted else (None, None)
        self._db.execute(
            "INSERT INTO drift (card, at, old, new, kind, severity, was, batch, cleared_at, cleared_by) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (card, at, event.old, event.new, event.kind.value, event.severity.value, event.was or None,
             batch.number if batch is not None else None, *closed),
        )  # fmt: skip

    def close(self, card: str, by: By, at: float) -> None:
        """Say what ended the events of this card that are open."""
        self._db.execute(
            "UPDATE drift SET cleared_at = ?, cleared_by = ? WHERE card = ? AND cleared_at IS NULL",
            (at, by.value, card),
        )

    def events(self, card: str | None = None, batch: int | None = None) -> list[Logged]:
        """Events, newest first: all, one card's, or one batch's."""
        which: str = "d.card = ?" if card is not None else "1"
        value: tuple[Any, ...] = (card,) if card is not None else ()
        if batch is not None:
            which, value = f"{which} AND d.batch = ?", (*value, batch)
        rows = self._db.execute(
            "SELECT d.number, d.at, d.card, k.server, d.kind, d.severity, d.cleared_by, "
            "k.quarantined_at IS NOT NULL, d.was, d.batch, d.cleared_at, o.raw, n.raw, k.kind "
            "FROM drift d JOIN cards k ON k.id = d.card "
            "LEFT JOIN contracts o ON o.card = coalesce(d.was, d.card) AND o.fingerprint = d.old "
            "LEFT JOIN contracts n ON n.card = d.card AND n.fingerprint = d.new "
            f"WHERE {which} ORDER BY d.at DESC, d.number DESC",
            value,
        )
        return [_logged(row) for row in rows]

    def batches(self) -> list[Batch]:
        """Every batch, newest first."""
        rows = self._db.execute(
            "SELECT number, at, server, cards, of, old_version, new_version, was FROM batches ORDER BY number DESC"
        )
        return [Batch(*row) for row in rows]

    def batch_of_held(self) -> dict[str, int]:
        """Card id → the batch that its open event is part of."""
        return dict(self._db.execute("SELECT card, batch FROM drift WHERE cleared_at IS NULL AND batch IS NOT NULL"))


def _logged(row: tuple[Any, ...]) -> Logged:
    number, at, card, server, kind, severity, by, held, was, batch, cleared_at, old, new, card_kind = row
    before, after = (json.loads(raw) if raw else {} for raw in (old, new))
    state = State[By(by).name] if by else State.HELD if held else State.FREE
    if severity is None:  # an event of a time before its severity was kept
        severity = severity_of(compare(Kind(card_kind), before, after))
    return Logged(number, at, card, server, EventKind(kind), Severity(severity), state, was, batch, cleared_at,
                  before, after, Kind(card_kind))  # fmt: skip
