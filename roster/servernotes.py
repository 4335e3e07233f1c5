"""What was last known of each backend, for `roster status` and for processes that have not connected yet."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

__all__ = ["ServerNote", "ServerNotes"]


@dataclass(frozen=True, slots=True)
class ServerNote:
    """What was last known of a backend. Never its words: error kinds, and our own about what to do."""

    name: str
    state: str
    tools: int | None = None
    rejected: tuple[str, ...] = ()
    protocol: str | None = None
    version: str | None = None
    connect_ms: float | None = None
    listed_at: float | None = None
    error_kind: str | None = None
    error_at: float | None = None
    reason: str | None = None
    offers: str | None = None  # what it has besides tools, space between


_KEPT = tuple("tools rejected protocol version connect_ms listed_at error_kind error_at reason offers".split())


class ServerNotes:
    """The servers table, over one connection. Not for two threads at once."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def note(self, note: ServerNote) -> None:
        """Remember what a backend was last seen doing; what a note leaves None stays as it was."""
        kept = ", ".join(f"{column} = coalesce(excluded.{column}, {column})" for column in _KEPT)
        rejected = json.dumps(note.rejected) if note.tools is not None else None
        self._db.execute(
            "INSERT INTO servers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            f"ON CONFLICT DO UPDATE SET state = excluded.state, {kept}",
            (note.name, note.state, note.tools, rejected, note.protocol, note.version, note.connect_ms,
             note.listed_at, note.error_kind, note.error_at, note.reason, note.offers),
        )  # fmt: skip

    def all(self) -> dict[str, ServerNote]:
        """The last note of every backend ever seen."""
        return {
            row[0]: ServerNote(row[0], row[1], row[2], tuple(json.loads(row[3] or "[]")), *row[4:])
            for row in self._db.execute("SELECT * FROM servers")
        }
