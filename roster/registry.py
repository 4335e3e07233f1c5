"""Cards on file: what each backend listed and when, what changed (`drift` decides what follows), what is held."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from roster.cards import FORMULA, Card, Kind, card_from_row, dense_text, lexical_text, raw_json, text_hash
from roster.contracts import Severity
from roster.database import atomic, next_generation
from roster.drift import Event, News, Plan, Policy, Step, plan
from roster.driftlog import Batch, By, DriftLog
from roster.dwell import Hold, Moment, Reason
from roster.errors import UnknownCardError
from roster.history import History
from roster.holds import HOLD_COLUMNS, Holds, hold_of
from roster.origins import EventKind, Known, Once, Seen, former_server
from roster.servernotes import ServerNotes
from roster.sighting import Sighting
from roster.uptime import Uptime
from roster.vectorstore import VectorStore
from roster.words import TOKENS_VERSION

__all__ = ["Contract", "Entry", "Registry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A card with its place in the database. held: what keeps it out of drafts."""

    number: int
    card: Card
    text_hash: str
    position: int
    removed: bool
    held: Reason | None
    generation: int

    @property
    def quarantined(self) -> bool:
        """Whether it is kept out of drafts."""
        return self.held is not None


@dataclass(frozen=True, slots=True)
class Contract:
    """One definition that a card has had, by its fingerprint, and when it was listed first and last."""

    fingerprint: str
    formula: int
    first_seen: float
    last_seen: float
    current: bool


_COLUMNS = "number, raw, fingerprint, text_hash, position, removed_at, held_reason, generation, server, kind"
_KNOWN = f"number, id, name, raw, fingerprint, formula, text_hash, position, removed_at IS NOT NULL, {HOLD_COLUMNS}"


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
        self.vectors = VectorStore(db)
        self.servers = ServerNotes(db)
        self.holds = Holds(db)
        self.log = DriftLog(db)

    # ------------------------------------------------------------------------------------------ sightings

    def sight(
        self,
        server: str,
        rows: Sequence[Mapping[str, Any]],
        now: float,
        *,
        uptime: Uptime | None = None,
        complete: bool = True,
        present: Iterable[str] = (),
        quarantine: bool = True,
        kind: Kind = Kind.TOOL,
        version: str | None = None,
        configured: Collection[str] | None = None,
        suspicious: Callable[[Card, Card], bool] = lambda _old, _new: False,
        review: Callable[[Card], bool] | None = None,
    ) -> Sighting:
        """Record one listing of a server, or of the skills, and say what was new in it.

        rows: usable `tools/list` rows (or skill rows), in order, names distinct. complete: nothing is missing from
        them, so what is not there was removed. present: names that were listed but could not be used, so were not
        removed either. uptime: a steady clock beside `now`; without one, time counts for less (`drift.UNSURE_S`).
        version: of the program that listed them. configured: the servers that there are now; one that is new among them
        and lists what another one listed that is not is that one renamed. suspicious, review: see `drift.Policy`.

        A changed fingerprint records drift, drops what was learned of the old definition and its vector and, with
        `quarantine`, keeps the card out of drafts. Written whole or not at all.
        """
        moment = Moment(now, uptime)
        listing = [
            Seen(str(row["name"]), raw_json(row), position, Once(partial(card_from_row, kind, server, row)))
            for position, row in enumerate(rows)
        ]
        with atomic(self._db):
            known = self._known(server, kind)
            former = None if known or configured is None else self._former(listing, kind, {*configured, server})
            policy = Policy(quarantine, suspicious, review, self._accepted())
            moved = former[1] if former is not None else None
            versions = self._versions(server, version, now)
            upgraded = None not in versions and versions[0] != versions[1]
            made = plan(
                known, listing, moment, policy, complete=complete, present=present, moved=moved, upgraded=upgraded
            )
            batch = None
            if made.bulk or former is not None:
                was = former[0] if former is not None else None
                batch = self.log.begin(server, now, made.changed, made.there, versions, was)
            return self._carry_out(made, server, kind, now, batch)

    def _carry_out(self, made: Plan, server: str, kind: Kind, now: float, batch: Batch | None) -> Sighting:
        """Write a plan down; what it comes to. Inside a transaction."""
        generation = _Generation(self._db)
        news: dict[News, list[str]] = {each: [] for each in News}
        held, renamed, hashes = [], [], set()
        drifted: dict[str, int] = {}
        for step in made.steps:
            id_ = step.old.id if step.old is not None else step.seen.card().id
            number = self._write(step, now, generation)
            news[step.news].append(id_)
            if step.news is News.CHANGED:
                drifted[id_] = number
                hashes |= {text_hash(dense_text(step.seen.card()))} | ({step.old.text_hash} if step.old else set())
            if step.hold is not None and step.event is not None:
                held.append(id_)
            if (event := step.event) is not None:
                self.log.add(id_, event, now, batch if step.sweeping else None)
                if event.was and event.kind is EventKind.RENAMED:
                    renamed.append((event.was, id_))
            if step.news is News.CLEARED:
                self.log.close(id_, By.DWELL, now)
        for old in made.removed:
            self._remove(old.number, now, generation.next())
            news[News.REMOVED].append(old.id)
        if drifted:
            self.vectors.drop(hashes)
            History(self._db).forget_evidence(drifted)
        self._db.execute(
            "UPDATE cards SET last_seen = ?, sightings = sightings + 1 "
            "WHERE server = ? AND kind = ? AND removed_at IS NULL",
            (now, server, kind.value),
        )
        return Sighting(
            len(made.steps),
            added=tuple(news[News.ADDED]),
            changed=tuple(news[News.CHANGED]),
            removed=tuple(news[News.REMOVED]),
            cleared=tuple(news[News.CLEARED]),
            held=tuple(held),
            renamed=tuple(renamed),
            batch=batch,
        )

    def _write(self, step: Step, now: float, generation: _Generation) -> int:
        """Store one card as the plan has it; its number."""
        seen, old = step.seen, step.old
        if old is None:
            number = self._insert(seen.card(), seen.raw, seen.position, now, generation.next())
        else:
            number = old.number
            if step.written:
                card = seen.card()
                if old.fingerprint != card.fingerprint:
                    # A listing touches the card alone: what is replaced now was there until the card's last one.
                    self._db.execute(
                        "UPDATE contracts SET last_seen = (SELECT last_seen FROM cards WHERE number = ?) "
                        "WHERE card = ? AND fingerprint = ?",
                        (number, old.id, old.fingerprint),
                    )
                    if step.baseline and old.raw == seen.raw:
                        # Accepted is the definition, whatever formula its fingerprint was made with.
                        self._db.execute(
                            "INSERT OR IGNORE INTO accepted SELECT card, ?, at FROM accepted "
                            "WHERE card = ? AND fingerprint = ?",
                            (card.fingerprint, old.id, old.fingerprint),
                        )
                self._update(number, card, seen.raw, seen.position, now, generation.next())
        if step.hold is not None or (old is not None and old.hold is not None):
            self.holds.put(number, step.hold)
        return number

    def _known(self, server: str, kind: Kind) -> dict[str, Known]:
        rows = self._db.execute(f"SELECT {_KNOWN} FROM cards WHERE server = ? AND kind = ?", (server, kind.value))
        return {known.name: known for known in map(_known, rows)}

    def _accepted(self) -> set[tuple[str, str]]:
        return set(self._db.execute("SELECT card, fingerprint FROM accepted"))

    def _former(
        self, listing: Sequence[Seen], kind: Kind, configured: Collection[str]
    ) -> tuple[str, Mapping[str, Known]] | None:
        """The server, configured no more, that lists what this one does, with its cards."""
        names = self._db.execute("SELECT DISTINCT server FROM cards WHERE kind = ?", (kind.value,))
        gone = [name for (name,) in names if name not in configured]
        return former_server(listing, {name: self._known(name, kind) for name in gone}) if gone else None

    def _versions(self, server: str, version: str | None, now: float) -> tuple[str | None, str | None]:
        """The version that the last listing came from, and this one's, which is remembered."""
        if version is None:
            return None, None
        row = self._db.execute("SELECT version FROM listings WHERE server = ?", (server,)).fetchone()
        self._db.execute(
            "INSERT INTO listings VALUES (?, ?, ?) "
            "ON CONFLICT DO UPDATE SET version = excluded.version, at = excluded.at",
            (server, version, now),
        )
        return row[0] if row is not None else None, version

    def _remove(self, number: int, now: float, generation: int) -> None:
        self._db.execute("UPDATE cards SET removed_at = ?, generation = ? WHERE number = ?", (now, generation, number))
        self._db.execute("DELETE FROM words WHERE rowid = ?", (number,))

    def _insert(self, card: Card, raw: str, position: int, now: float, generation: int) -> int:
        (number,) = self._db.execute(
            "INSERT INTO cards (id, kind, server, name, position, raw, fingerprint, formula, text_hash, first_seen, "
            "last_seen, sightings, generation) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?) RETURNING number",
            (card.id, card.kind.value, card.server, card.name, position, raw, card.fingerprint, FORMULA,
             text_hash(dense_text(card)), now, now, generation),
        ).fetchone()  # fmt: skip
        self._index_words(number, card)
        self._contract(card, raw, now)
        return int(number)

    def _update(self, number: int, card: Card, raw: str, position: int, now: float, generation: int) -> None:
        self._db.execute(
            "UPDATE cards SET raw = ?, fingerprint = ?, formula = ?, text_hash = ?, position = ?, removed_at = NULL, "
            "generation = ? WHERE number = ?",
            (raw, card.fingerprint, FORMULA, text_hash(dense_text(card)), position, generation, number),
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

    # ------------------------------------------------------------------------------------------ quarantine

    def held(self, id_: str) -> Reason | None:
        """What holds a card; None when nothing does. Raises UnknownCardError."""
        return self._known_card(id_)[1]

    def hold(self, id_: str, reason: Reason, now: float) -> bool:
        """Keep a card out of drafts; False when it is held for that or worse, or a person accepted what it is now.

        Raises UnknownCardError.
        """
        with atomic(self._db) as db:
            number, held, print_ = self._known_card(id_)
            accepted = db.execute("SELECT 1 FROM accepted WHERE card = ? AND fingerprint = ?", (id_, print_)).fetchone()
            if accepted or (held is not None and held.or_worse(reason) is held):
                return False
            self.holds.put(number, Hold(reason, now, Moment(now)))
            db.execute("UPDATE cards SET generation = ? WHERE number = ?", (next_generation(db), number))
            if held is None:
                severity = Severity.CONTRACT if reason is Reason.DRIFT else Severity.SAFETY
                self.log.add(id_, Event(EventKind.FOUND, "", print_, severity), now)
        return True

    def accept(self, id_: str, now: float, seen: str | None = None) -> bool:
        """Note that a person looked at what a card is now and wants it; whether it was held. Raises UnknownCardError.

        It is in drafts again, and this definition of it is never held again. seen: the fingerprint that the person
        looked at; when the card has another one by now, nothing is done.
        """
        with atomic(self._db) as db:
            number, held, print_ = self._known_card(id_)
            if seen not in (None, print_):
                return False
            db.execute("INSERT OR IGNORE INTO accepted VALUES (?, ?, ?)", (id_, print_, now))
            if held is None:
                return False
            self.holds.put(number, None)
            db.execute("UPDATE cards SET generation = ? WHERE number = ?", (next_generation(db), number))
            self.log.close(id_, By.PERSON, now)
        return True

    def unquarantine(self, id_: str, now: float, seen: str | None = None) -> bool:
        """`accept` for a card that is held; False, and nothing noted, for one that is not. Raises UnknownCardError."""
        return self.held(id_) is not None and self.accept(id_, now, seen)

    def fingerprint(self, id_: str) -> str:
        """Of what a card is now. Raises UnknownCardError."""
        return self._known_card(id_)[2]

    def _known_card(self, id_: str) -> tuple[int, Reason | None, str]:
        row = self._db.execute("SELECT number, held_reason, fingerprint FROM cards WHERE id = ?", (id_,)).fetchone()
        if row is None:
            raise UnknownCardError(f"no card has the id {id_!r}: `roster status` names the quarantined ones")
        number, reason, print_ = row
        return number, Reason(reason) if reason is not None else None, print_

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


def _known(row: tuple[Any, ...]) -> Known:
    number, id_, name, raw, print_, formula, hash_, position, removed, *hold = row
    return Known(number, id_, name, raw, print_, formula, hash_, position, bool(removed), hold_of(hold),
                 Once(partial(json.loads, raw)))  # fmt: skip


def _entry(row: tuple[Any, ...]) -> Entry:
    number, raw, print_, hash_, position, removed_at, reason, generation, server, kind = row
    card = card_from_row(Kind(kind), server, json.loads(raw), print_)
    held = Reason(reason) if reason is not None else None
    return Entry(number, card, hash_, position, removed_at is not None, held, generation)
