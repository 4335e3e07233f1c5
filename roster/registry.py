"""Cards on file: what each backend listed, when, and what changed. The vectors of their texts live beside them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from roster.cards import FORMULA, Card, Kind, card_from_row, dense_text, lexical_text, raw_json, text_hash
from roster.database import atomic, next_generation
from roster.errors import UnknownCardError
from roster.vectors import Vectors
from roster.words import TOKENS_VERSION

__all__ = ["DWELL_S", "Contract", "Entry", "Registry", "ServerNote", "Sighting"]

DWELL_S = 24 * 3600.0
"""How long a changed card waits before a stable re-sighting clears it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A card with its place in the database."""

    number: int
    card: Card
    text_hash: str
    position: int
    removed: bool
    quarantined: bool
    generation: int


@dataclass(frozen=True, slots=True)
class Contract:
    """One definition that a card has had, by its fingerprint, and when it was listed first and last."""

    fingerprint: str
    formula: int
    first_seen: float
    last_seen: float
    current: bool


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one listing of one server brought, as card ids."""

    cards: int
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()

    @property
    def news(self) -> bool:
        """Whether any draft can come out differently after it."""
        return bool(self.added or self.changed or self.removed or self.cleared)


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


_COLUMNS = "number, raw, fingerprint, text_hash, position, removed_at, quarantined_at, generation, server, kind"


_KEPT_OF_SERVERS = (
    "tools",
    "rejected",
    "protocol",
    "version",
    "connect_ms",
    "listed_at",
    "error_kind",
    "error_at",
    "reason",
)


class _News(StrEnum):
    NONE = "none"
    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True)
class _Known:
    """What is on file under a name."""

    number: int
    id: str
    raw: str
    fingerprint: str
    formula: int
    text_hash: str
    position: int
    removed: int
    held_at: float | None


class _Generation:
    """The generation of one transaction, begun by its first change that drafts can see."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._value: int | None = None

    def next(self) -> int:
        if self._value is None:
            self._value = next_generation(self._db)
        return self._value


class Registry:
    """The cards table and its neighbours, over one connection. Not for two threads at once."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    # ------------------------------------------------------------------------------------------ sightings

    def sight(
        self,
        server: str,
        rows: Sequence[Mapping[str, Any]],
        now: float,
        *,
        complete: bool = True,
        present: Iterable[str] = (),
        quarantine: bool = True,
        kind: Kind = Kind.TOOL,
    ) -> Sighting:
        """Record one listing of a server, or of the skills, and say what was new in it.

        rows: usable `tools/list` rows (or skill rows), in order, names distinct. complete: nothing is missing from
        them, so what is not there was removed. present: names that were listed but could not be used, so were not
        removed either.
        A changed fingerprint records drift, drops the vector of the old text and, with `quarantine`, keeps the card
        out of drafts. Written whole or not at all.
        """
        news: dict[_News, list[str]] = {each: [] for each in _News}
        with atomic(self._db):
            known = self._known(server, kind)
            generation = _Generation(self._db)
            for position, row in enumerate(rows):
                old = known.get(str(row["name"]))
                what, id_ = self._sight_row(kind, server, row, old, position, now, generation, quarantine=quarantine)
                news[what].append(id_)
            if complete:
                listed = {str(row["name"]) for row in rows} | set(present)
                for name, old in known.items():
                    if name not in listed and not old.removed:
                        self._remove(old.number, now, generation.next())
                        news[_News.REMOVED].append(old.id)
            self._db.execute(
                "UPDATE cards SET last_seen = ?, sightings = sightings + 1 "
                "WHERE server = ? AND kind = ? AND removed_at IS NULL",
                (now, server, kind.value),
            )
        return Sighting(
            len(rows),
            added=tuple(news[_News.ADDED]),
            changed=tuple(news[_News.CHANGED]),
            removed=tuple(news[_News.REMOVED]),
            cleared=tuple(news[_News.CLEARED]),
        )

    def _sight_row(
        self,
        kind: Kind,
        server: str,
        row: Mapping[str, Any],
        old: _Known | None,
        position: int,
        now: float,
        generation: _Generation,
        *,
        quarantine: bool,
    ) -> tuple[_News, str]:
        """Record one row against what was known under its name."""
        raw = raw_json(row)
        if old is None:
            card = card_from_row(kind, server, row)
            self._insert(card, raw, position, now, generation.next())
            return _News.ADDED, card.id
        due = old.held_at is not None and now - old.held_at >= DWELL_S
        if (old.raw, old.formula, old.removed, old.position, due) == (raw, FORMULA, False, position, False):
            return _News.NONE, old.id  # the row is the same to the byte: by far the most common case
        card = card_from_row(kind, server, row)
        # Another formula gives another fingerprint for the same contract: a new baseline, never drift.
        drifted = old.fingerprint != card.fingerprint and old.formula == FORMULA
        held_at = old.held_at
        what = _News.ADDED if old.removed else _News.NONE
        if drifted:
            what, held_at = _News.CHANGED, now if quarantine else None
            self._db.execute(
                "INSERT INTO drift (card, at, old, new) VALUES (?, ?, ?, ?)",
                (old.id, now, old.fingerprint, card.fingerprint),
            )
        elif due:
            what, held_at = _News.CLEARED, None
            self._clear(old.id, now, "dwell")
        if old.fingerprint != card.fingerprint:
            # The same listing again touches the card alone; what is replaced was there until the card's last one.
            self._db.execute(
                "UPDATE contracts SET last_seen = (SELECT last_seen FROM cards WHERE number = ?) "
                "WHERE card = ? AND fingerprint = ?",
                (old.number, old.id, old.fingerprint),
            )
        self._update(old.number, card, raw, position, held_at, now, generation.next())
        if drifted:
            self._drop_vectors(old.text_hash, text_hash(dense_text(card)))
        return what, old.id

    def _known(self, server: str, kind: Kind) -> dict[str, _Known]:
        rows = self._db.execute(
            "SELECT name, number, id, raw, fingerprint, formula, text_hash, position, removed_at IS NOT NULL, "
            "quarantined_at FROM cards WHERE server = ? AND kind = ?",
            (server, kind.value),
        )
        return {name: _Known(*rest) for name, *rest in rows}

    def _remove(self, number: int, now: float, generation: int) -> None:
        self._db.execute("UPDATE cards SET removed_at = ?, generation = ? WHERE number = ?", (now, generation, number))
        self._db.execute("DELETE FROM words WHERE rowid = ?", (number,))

    def _insert(self, card: Card, raw: str, position: int, now: float, generation: int) -> None:
        (number,) = self._db.execute(
            "INSERT INTO cards (id, kind, server, name, position, raw, fingerprint, formula, text_hash, first_seen, "
            "last_seen, sightings, generation) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?) RETURNING number",
            (card.id, card.kind.value, card.server, card.name, position, raw, card.fingerprint, FORMULA,
             text_hash(dense_text(card)), now, now, generation),
        ).fetchone()  # fmt: skip
        self._index_words(number, card)
        self._contract(card, raw, now)

    def _update(
        self, number: int, card: Card, raw: str, position: int, held_at: float | None, now: float, generation: int
    ) -> None:
        self._db.execute(
            "UPDATE cards SET raw = ?, fingerprint = ?, formula = ?, text_hash = ?, position = ?, removed_at = NULL, "
            "quarantined_at = ?, generation = ? WHERE number = ?",
            (raw, card.fingerprint, FORMULA, text_hash(dense_text(card)), position, held_at, generation, number),
        )
        self._db.execute("DELETE FROM words WHERE rowid = ?", (number,))
        self._index_words(number, card)
        self._contract(card, raw, now)

    def refresh_words(self) -> int:
        """Index every card's words anew if they were split in another way than now; how many cards that took."""
        wanted = TOKENS_VERSION
        if self._tokens_version() == wanted:
            return 0
        with atomic(self._db) as db:
            if self._tokens_version() == wanted:
                return 0  # another process was faster
            rows = db.execute(f"SELECT {_COLUMNS} FROM cards WHERE removed_at IS NULL").fetchall()
            db.execute("DELETE FROM words")
            for entry in map(_entry, rows):
                self._index_words(entry.number, entry.card)
            db.execute(
                "INSERT INTO meta VALUES ('tokens', ?) ON CONFLICT DO UPDATE SET value = excluded.value", (wanted,)
            )
        return len(rows)

    def _tokens_version(self) -> int | None:
        row = self._db.execute("SELECT value FROM meta WHERE key = 'tokens'").fetchone()
        return int(row[0]) if row else None

    def _index_words(self, number: int, card: Card) -> None:
        text = lexical_text(card)
        self._db.execute(
            "INSERT INTO words (rowid, name, description, parameters, server) VALUES (?, ?, ?, ?, ?)",
            (number, text.name, text.description, text.parameters, text.server),
        )

    def _contract(self, card: Card, raw: str, now: float) -> None:
        self._db.execute(
            "INSERT INTO contracts VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET last_seen = excluded.last_seen, raw = excluded.raw",
            (card.id, card.fingerprint, FORMULA, raw, now, now),
        )

    def _drop_vectors(self, old_hash: str, new_hash: str) -> None:
        """Forget the vectors of a drifted card's texts, unless an admitted card has the same text."""
        self._db.execute(
            "DELETE FROM vectors WHERE text_hash IN (?, ?) AND NOT EXISTS ("
            "SELECT 1 FROM cards WHERE cards.text_hash = vectors.text_hash AND removed_at IS NULL "
            "AND quarantined_at IS NULL)",
            (old_hash, new_hash),
        )

    # ------------------------------------------------------------------------------------------ quarantine

    def held(self, id_: str) -> bool:
        """Whether a card is quarantined. Raises UnknownCardError."""
        row = self._db.execute("SELECT quarantined_at FROM cards WHERE id = ?", (id_,)).fetchone()
        if row is None:
            raise UnknownCardError(f"no card has the id {id_!r}: `roster status` names the quarantined ones")
        return row[0] is not None

    def unquarantine(self, id_: str, now: float) -> bool:
        """Let a card into drafts again; False when it was not held. Raises UnknownCardError."""
        with atomic(self._db) as db:
            if not self.held(id_):
                return False
            db.execute(
                "UPDATE cards SET quarantined_at = NULL, generation = ? WHERE id = ?", (next_generation(db), id_)
            )
            self._clear(id_, now, "person")
        return True

    def _clear(self, id_: str, now: float, by: str) -> None:
        self._db.execute(
            "UPDATE drift SET cleared_at = ?, cleared_by = ? WHERE card = ? AND cleared_at IS NULL", (now, by, id_)
        )

    # --------------------------------------------------------------------------------------------- reading

    def since(self, generation: int) -> list[Entry]:
        """Every card that changed after `generation` (-1: all), tombstones included."""
        return [
            _entry(row) for row in self._db.execute(f"SELECT {_COLUMNS} FROM cards WHERE generation > ?", (generation,))
        ]

    def find(self, id_: str) -> Entry | None:
        """The card with this id, tombstone or not."""
        row = self._db.execute(f"SELECT {_COLUMNS} FROM cards WHERE id = ?", (id_,)).fetchone()
        return _entry(row) if row else None

    def servers_by_id(self) -> dict[str, str]:
        """The server of every card that was ever there, by card id."""
        return dict(self._db.execute("SELECT id, server FROM cards"))

    def contracts(self, id_: str) -> list[Contract]:
        """Every definition that a card has had, newest first."""
        rows = self._db.execute(
            "SELECT c.fingerprint, c.formula, c.first_seen, max(c.last_seen, coalesce(k.last_seen, c.last_seen)), "
            "k.id IS NOT NULL FROM contracts c LEFT JOIN cards k ON k.id = c.card AND k.fingerprint = c.fingerprint "
            "WHERE c.card = ? ORDER BY k.id IS NULL, c.first_seen DESC",
            (id_,),
        )
        return [Contract(print_, formula, first, last, bool(current)) for print_, formula, first, last, current in rows]

    # --------------------------------------------------------------------------------------------- vectors

    def keep_vectors(self, encoder: str, hashes: Sequence[str], vectors: Vectors) -> None:
        """Store one vector per text hash. vectors: (n, dim) float32 unit rows."""
        rows = [(encoder, key, row.astype("<f4").tobytes()) for key, row in zip(hashes, vectors, strict=True)]
        with atomic(self._db) as db:
            db.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)", rows)

    def vectors(
        self, encoder: str, hashes: Iterable[str] | None = None
    ) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
        """Stored vectors by text hash: all of this encoder's, or those of `hashes`."""
        if hashes is None:
            rows = self._db.execute("SELECT text_hash, vector FROM vectors WHERE encoder = ?", (encoder,))
            return {key: np.frombuffer(blob, dtype="<f4") for key, blob in rows}
        out = {}
        for key in hashes:
            row = self._db.execute(
                "SELECT vector FROM vectors WHERE encoder = ? AND text_hash = ?", (encoder, key)
            ).fetchone()
            if row:
                out[key] = np.frombuffer(row[0], dtype="<f4")
        return out

    def forget_vectors(self, encoder: str) -> None:
        """Drop every vector of one encoder, so that all texts are embedded anew."""
        with atomic(self._db) as db:
            db.execute("DELETE FROM vectors WHERE encoder = ?", (encoder,))

    # --------------------------------------------------------------------------------------------- servers

    def note_server(self, note: ServerNote) -> None:
        """Remember what a backend was last seen doing; what a note leaves None stays as it was."""
        kept = ", ".join(f"{column} = coalesce(excluded.{column}, {column})" for column in _KEPT_OF_SERVERS)
        rejected = json.dumps(note.rejected) if note.tools is not None else None
        self._db.execute(
            "INSERT INTO servers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            f"ON CONFLICT DO UPDATE SET state = excluded.state, {kept}",
            (note.name, note.state, note.tools, rejected, note.protocol, note.version, note.connect_ms,
             note.listed_at, note.error_kind, note.error_at, note.reason),
        )  # fmt: skip

    def servers(self) -> dict[str, ServerNote]:
        """The last note of every backend ever seen."""
        return {
            row[0]: ServerNote(row[0], row[1], row[2], tuple(json.loads(row[3] or "[]")), *row[4:])
            for row in self._db.execute("SELECT * FROM servers")
        }


def _entry(row: tuple[Any, ...]) -> Entry:
    number, raw, print_, hash_, position, removed_at, held_at, generation, server, kind = row
    card = card_from_row(Kind(kind), server, json.loads(raw), print_)
    return Entry(number, card, hash_, position, removed_at is not None, held_at is not None, generation)
