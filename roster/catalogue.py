"""What drafts are made from: the living cards of the configured servers, kept in step with the database.

Every process keeps one. It asks for what changed since its last look, so another process's `reindex` or sighting is
seen at the next draft, and pays only for the cards that changed.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

from roster.cards import CARD_TEXT_VERSION, SKILLS, Kind, dense_text, text_hash
from roster.database import generation
from roster.dense import DenseIndex, Manifest, corpus_hash, load_index, read_manifest, save_index
from roster.encoder import Encoder
from roster.history import History, Tally
from roster.lexical import lexical_hits
from roster.passages import Passages, passages_of
from roster.registry import Entry, Registry
from roster.servernotes import ServerNote
from roster.vectors import Vectors
from roster.words import fold, squashed

__all__ = ["Catalogue"]

T = TypeVar("T")

PASSAGES_GUESSED = 24
"""Passages of a skill whose body has a hundred lines."""


class Catalogue:
    """Cards by number and id, the full-text index, and the dense index once an encoder is attached.

    servers: whose tools are looked at; playbooks: whose skills. Safe from several threads. Its connection is for
    reading: whoever writes has one of their own, so that a draft never waits for a write.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        servers: Collection[str],
        *,
        playbooks: Collection[str] = (SKILLS,),
        quarantine: bool = True,
    ) -> None:
        self._db = db
        self._registry = Registry(db)
        self._lock = threading.Lock()
        self._sources = {Kind.TOOL: frozenset(servers), Kind.SKILL: frozenset(playbooks)}
        self._quarantine = quarantine
        self._generation = -1
        self._living: dict[int, Entry] = {}
        self._draftable: dict[int, Entry] = {}
        self._by_id: dict[str, Entry] = {}
        self._by_listed: dict[str, Entry] = {}
        self._named: dict[str, set[int]] = {}
        self._skills: list[int] = []
        self._passages: Passages | None = None
        self._saved = ""
        self.encoder: Encoder | None = None
        self.dense: DenseIndex | None = None

    def close(self) -> None:
        """Close the connection once nobody is using it."""
        with self._lock:
            self._db.close()

    # ---------------------------------------------------------------------------------------------- cards

    def refresh(self) -> bool:
        """Take in what changed in the database since the last call; True when something did."""
        with self._lock:
            latest = generation(self._db)
            if latest == self._generation:
                return False
            changed = self._registry.since(self._generation)
            self._generation = latest
            for entry in changed:
                card = entry.card
                self._living.pop(entry.number, None)
                if card.server not in self._sources[card.kind]:
                    continue
                # Ids stay callable after removal or quarantine; only drafts and listings look at `_living`.
                self._by_id[card.id] = self._by_listed[card.listed] = entry
                if not entry.removed:
                    self._living[entry.number] = entry
            # A new dict each time: a draft that is under way keeps reading the one it has.
            self._draftable = {
                number: entry
                for number, entry in self._living.items()
                if entry.card.offered and not (entry.quarantined and self._quarantine)
            }
            self._skills = [n for n, entry in self._draftable.items() if entry.card.kind is Kind.SKILL]
            named: dict[str, set[int]] = {}
            for number, entry in self._draftable.items():
                card = entry.card
                written = (fold(card.name), fold(card.id))
                for name in {*written, squashed(card.name), squashed(f"{card.said_server} {card.name}")}:
                    named.setdefault(name, set()).add(number)
            self._named = named
            self._take_stored([entry.number for entry in changed])
            return True

    def living(self) -> list[Entry]:
        """Every card that is there, quarantined or not, by server and place in its listing."""
        with self._lock:
            return sorted(self._living.values(), key=lambda entry: (entry.card.server, entry.position, entry.number))

    def draftable(self) -> Mapping[int, Entry]:
        """The cards a draft may show, by number; a snapshot."""
        return self._draftable

    @property
    def missing(self) -> int:
        """About how many texts of draftable cards have no vector in the indexes yet; 0 without an encoder."""
        held = self._passages
        if self.dense is None or held is None:
            return 0
        unread = sum(number not in held for number in self._skills)
        return max(0, len(self._draftable) - len(self.dense)) + unread * PASSAGES_GUESSED

    @property
    def match_floor(self) -> float | None:
        """The encoder's: below this strength a match is none. None: it has no such floor, or there is no encoder."""
        return self.encoder.match_floor if self.encoder is not None else None

    def named(self, words: Collection[str]) -> set[int]:
        """Draftable cards whose whole name or id, folded or squashed, is one of `words`."""
        named = self._named
        return set().union(*(named[word] for word in words if word in named))

    def find(self, id_: str) -> Entry | None:
        """The card with this id or listed name, whatever became of it since."""
        return self._by_id.get(id_) or self._by_listed.get(id_)

    def ids(self) -> Collection[str]:
        """Every id that can be called."""
        return self._by_id.keys()

    def words(self, need: str, k: int) -> list[tuple[int, float]]:
        """`lexical_hits` over this database."""
        with self._lock:
            return lexical_hits(self._db, need, k)

    def tallies(self) -> dict[str, Tally]:
        """Calls and successes by card id, read past whoever is writing."""
        with self._lock:
            return History(self._db).tallies()

    def reading(self, ask: Callable[[sqlite3.Connection], T]) -> T:
        """What `ask` makes of the database, read past whoever is writing."""
        with self._lock:
            return ask(self._db)

    def servers(self) -> dict[str, ServerNote]:
        """The last note of every backend, read past whoever is writing."""
        with self._lock:
            return self._registry.servers.all()

    # -------------------------------------------------------------------------------------------- vectors

    def attach(self, encoder: Encoder, folder: Path) -> None:
        """Use this encoder: load its index from `folder`, or make it from stored vectors. Embeds nothing."""
        self.refresh()
        with self._lock:
            manifest = self._manifest(encoder)
            index = load_index(folder, manifest)
            self.encoder, self._passages = encoder, Passages(encoder.dim)
            if index is not None:
                self.dense, self._saved = index, manifest.corpus
                self._take_passages()
                return
            self.dense, self._saved = DenseIndex(encoder.dim), ""
            self._take_stored(None)

    def empty_dense(self) -> None:
        """Start the dense index anew."""
        with self._lock:
            if self.encoder is not None:
                self._passages = Passages(self.encoder.dim)
                self.dense, self._saved = DenseIndex(self.encoder.dim), ""

    def unembedded(self) -> dict[str, list[Entry]]:
        """Draftable cards that the dense index does not hold yet, by text hash, oldest first."""
        out: dict[str, list[Entry]] = {}
        with self._lock:
            if self.dense is not None:
                for number in sorted(self._draftable):
                    if number not in self.dense:
                        entry = self._draftable[number]
                        out.setdefault(entry.text_hash, []).append(entry)
        return out

    def unread_texts(self) -> dict[str, str]:
        """Every text that is to be embedded, by hash: those of the cards first, then passages of skills."""
        texts = {key: dense_text(entries[0].card) for key, entries in self.unembedded().items()}
        with self._lock:
            passages = {text_hash(text): text for texts_ in self._take_passages() for text in texts_}
            if self.encoder is not None and passages:
                stored = self._registry.vectors.of(self.encoder.fingerprint, passages, self.encoder.dim)
                texts |= {key: text for key, text in passages.items() if key not in stored}
        return texts

    def passages_near(self, need: Vectors) -> Mapping[int, float]:
        """Card number → similarity of its nearest passage, for skills. need: (1, dim) float32, unit length."""
        return self._passages.nearest(need) if self._passages is not None else {}

    def _take_passages(self) -> list[list[str]]:
        """Take in the passages of every skill all of whose passages have vectors by now; the texts of the others."""
        missing: list[list[str]] = []
        if self.encoder is None or self._passages is None:
            return missing
        for number in self._skills:
            if number in self._passages:
                continue
            texts = passages_of(self._draftable[number].card)
            hashes = [text_hash(text) for text in texts]
            stored = self._registry.vectors.of(self.encoder.fingerprint, hashes, self.encoder.dim)
            if all(key in stored for key in hashes):
                rows = [stored[key] for key in hashes]
                self._passages.put(number, np.stack(rows) if rows else np.empty((0, self.encoder.dim), np.float32))
            else:
                missing.append(texts)
        return missing

    def take_stored(self) -> None:
        """Put the vectors that somebody has stored meanwhile for cards without one into the dense index."""
        with self._lock:
            if self.dense is not None:
                self._take_stored([number for number in self._draftable if number not in self.dense])

    def take(self, hashes: Collection[str], vectors: Vectors) -> None:
        """Put new vectors, one row a text hash, into the dense index, for the cards that still have these texts."""
        rows = dict(zip(hashes, vectors, strict=True))
        with self._lock:
            if self.dense is not None:
                entries = [e for e in self._draftable.values() if e.text_hash in rows and e.number not in self.dense]
                if entries:
                    self.dense.put([e.number for e in entries], np.stack([rows[e.text_hash] for e in entries]))

    def _take_stored(self, numbers: Iterable[int] | None) -> None:
        """Bring these rows of the dense index (None: all) in line with the cards and the stored vectors."""
        if self.encoder is None or self.dense is None:
            return
        chosen = list(self._draftable if numbers is None else numbers)
        entries = [self._draftable[number] for number in chosen if number in self._draftable]
        hashes = None if numbers is None else {entry.text_hash for entry in entries}
        stored = self._registry.vectors.of(self.encoder.fingerprint, hashes, self.encoder.dim)
        there = [entry for entry in entries if entry.text_hash in stored]
        self.dense.drop(chosen)
        if self._passages is not None:
            self._passages.drop(chosen)
        if there:
            self.dense.put([entry.number for entry in there], np.stack([stored[entry.text_hash] for entry in there]))
        self._take_passages()

    def _manifest(self, encoder: Encoder) -> Manifest:
        rows = [(entry.number, entry.text_hash) for entry in self._draftable.values()]
        return Manifest(encoder.fingerprint, encoder.dim, len(rows), corpus_hash(rows), CARD_TEXT_VERSION)

    def save(self, folder: Path) -> bool:
        """Swap the index file in if it is complete and not the one on disk; True when it was written."""
        with self._lock:
            if self.encoder is None or self.dense is None:
                return False
            manifest = self._manifest(self.encoder)
            if manifest.count != len(self.dense):
                return False
            # A sighting takes an index off the disk when a definition changed, even if its rows are the same.
            if manifest.corpus == self._saved and read_manifest(folder) is not None:
                return False
            save_index(folder, self.dense, manifest)
            self._saved = manifest.corpus
            return True
