"""What the review found in the cards on file: which rule, how grave, where; never a word of the text itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from roster.database import atomic

__all__ = ["Noted", "Reviews"]


@dataclass(frozen=True, slots=True)
class Noted:
    """One finding on file. fingerprint: of the definition it is about."""

    card: str
    fingerprint: str
    rule: str
    severity: str
    where: str


class Reviews:
    """The findings table, over one connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def keep(
        self, cards: Iterable[str], found: Sequence[Noted], among: Collection[str], pairs: Sequence[Noted]
    ) -> None:
        """Replace what is noted of these cards, and what is noted of anybody by the rules `among`: it is `pairs`."""
        marks = ",".join("?" * len(among))
        with atomic(self._db) as db:
            db.executemany("DELETE FROM findings WHERE card = ?", [(card,) for card in cards])
            db.execute(f"DELETE FROM findings WHERE rule IN ({marks})", list(among))
            db.executemany(
                "INSERT OR REPLACE INTO findings (card, rule, place, fingerprint, severity) VALUES (?, ?, ?, ?, ?)",
                [(each.card, each.rule, each.where, each.fingerprint, each.severity) for each in (*found, *pairs)],
            )

    def all(self) -> list[Noted]:
        """What is noted of cards that are listed with that definition, gravest first, then by card."""
        rows = self._db.execute(
            "SELECT f.card, f.fingerprint, f.rule, f.severity, f.place FROM findings f "
            "JOIN cards c ON c.id = f.card AND c.fingerprint = f.fingerprint AND c.removed_at IS NULL "
            "ORDER BY CASE f.severity WHEN 'high' THEN 0 WHEN 'medium' THEN 1 ELSE 2 END, f.card, f.rule, f.place"
        )
        return [Noted(*row) for row in rows]

    @property
    def version(self) -> int:
        """Of the rules that all cards on file were reviewed by last; 0: never."""
        row = self._db.execute("SELECT value FROM meta WHERE key = 'review'").fetchone()
        return int(row[0]) if row else 0

    def reviewed(self, version: int) -> None:
        """Note that every card on file was reviewed by the rules of this version."""
        self._db.execute(
            "INSERT INTO meta VALUES ('review', ?) ON CONFLICT DO UPDATE SET value = excluded.value", (version,)
        )
