"""A home that can be taught anything: outcomes through the real history, drafts by the real learner and ranker.

Every train need is drafted once without learning; what a call under that draft would have kept is kept for all the
streams of outcomes that follow. A need is embedded once, whatever is asked of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from roster.cards import Kind
from roster.database import atomic
from roster.draft import Draft, draft
from roster.encoder import Encoder
from roster.evaluation.homes import Filled
from roster.evaluation.measures import score_needs
from roster.evaluation.needsets import Need
from roster.evaluation.rankings import RUN_DEPTH
from roster.history import History, NeedRow, OutcomeRow
from roster.learning import Learner
from roster.outcomes import Outcome
from roster.ranking import Match
from roster.registry import Entry
from roster.vectors import Vectors, unit_rows

__all__ = ["NOW", "Happened", "Remembered", "Run", "Scores", "Seen", "Stage", "pulled"]

NOW = 1_750_000_000.0
"""When everything happens, in seconds: a replay is about what was learned, not about when."""
SEEN = 10
"""How many cards of a need's running are remembered with it."""

ALPHA, BETA, ROUNDS, ENOUGH = 0.3, 0.1, 3, 4
"""Of the published single-centroid method: pull of the needs served, push of those lost, rounds, needs before any."""

Run = dict[str, tuple[str, ...]]
"""Need → corpus ids, best first."""
Scores = dict[str, dict[str, float]]
"""Need → measure → value."""
Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Happened:
    """A call under a draft for a train need: which card, by corpus id, and how it went. again: of the same need."""

    need: str
    card: str
    success: bool = True
    again: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """A train need as it was drafted without learning. first: corpus ids of its first cards; unmet: nothing fitted."""

    lesson: NeedRow | None
    first: tuple[str, ...]
    unmet: bool


class Remembered:
    """An encoder that embeds a need once."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.name, self.fingerprint, self.dim = encoder.name, encoder.fingerprint, encoder.dim
        self.match_floor = encoder.match_floor
        self._needs: dict[str, Vectors] = {}
        self._unread: dict[str, float] = {}

    def encode_needs(self, texts: Sequence[str]) -> Vectors:
        """(n, dim) unit rows."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._needs]
        if missing:
            self._needs |= zip(missing, self._encoder.encode_needs(missing), strict=True)
        rows: Vectors = np.stack([self._needs[text] for text in texts])
        return rows

    def encode_cards(self, texts: Sequence[str]) -> Vectors:
        """(n, dim) unit rows; cards are kept in the home."""
        return self._encoder.encode_cards(texts)

    def unread(self, text: str) -> float:
        """The share of a need that the encoder cannot read."""
        if text not in self._unread:
            self._unread[text] = self._encoder.unread(text)
        return self._unread[text]


class Stage:
    """One need set's scratch home, its train needs seen once, and whatever it is taught.

    filled: with an encoder, a `Remembered` one or every need is embedded again and again.
    """

    def __init__(self, filled: Filled, train: Sequence[Need], k: int) -> None:
        self.catalogue = filled.roster.catalogue
        assert self.catalogue.encoder is not None
        self.encoder = self.catalogue.encoder
        self.train = {need.id: need for need in train}
        self.k = k
        self._filled = filled
        self._writer = filled.roster.writer
        self._corpus_ids = filled.corpus_ids
        self._seen: dict[str, Seen] = {}
        self._stored: dict[tuple[str, int], int] = {}

    def with_train(self, train: Sequence[Need]) -> Stage:
        """The same home with other train needs. Teach one of the two at a time: they have one history."""
        return Stage(self._filled, train, self.k)

    # ------------------------------------------------------------------------------------------ drafting

    def draft(self, text: str, learner: Learner | None = None) -> Draft:
        """What would be answered; without a learner, what would be without any outcome."""
        return draft(self.catalogue, text, self.k, self.catalogue.tallies, learner)

    def look(self, needs: Iterable[str], told: Told = lambda *_: None) -> None:
        """Draft these train needs, unless that was done, as they are before anything is learned."""
        missing = [need for need in dict.fromkeys(needs) if need not in self._seen]
        for done, need in enumerate(missing, 1):
            made = self.draft(self.train[need].text)
            first = tuple(self._corpus_ids[card.server, card.name] for card, _ in made.running[:SEEN])
            self._seen[need] = Seen(made.lesson(), first, made.match is Match.NONE)
            told(done, len(missing))

    def seen(self, need: str) -> Seen:
        """A train need as it is before anything is learned."""
        self.look([need])
        return self._seen[need]

    def rank(self, needs: Sequence[Need], learner: Learner | None = None, told: Told = lambda *_: None) -> Run:
        """Need → what would be ranked, best first; nothing for a need that is told that nothing fits."""
        out: Run = {}
        for done, need in enumerate(needs, 1):
            made = self.draft(need.text, learner)
            running = () if made.match is Match.NONE else made.running[:RUN_DEPTH]
            out[need.id] = tuple(self._corpus_ids[card.server, card.name] for card, _ in running)
            told(done, len(needs))
        return out

    def score(self, needs: Sequence[Need], learner: Learner | None = None, told: Told = lambda *_: None) -> Scores:
        """Need → measure → value of what would be ranked."""
        return score_needs(self.rank(needs, learner, told), {need.id: need.grades for need in needs}, self.k)

    # ------------------------------------------------------------------------------------------ teaching

    def entries(self) -> dict[str, Entry]:
        """Corpus id → the card as it is on file now."""
        self.catalogue.refresh()
        return {self._corpus_ids[entry.card.server, entry.card.name]: entry for entry in self.catalogue.living()}

    def write(self, outcomes: Sequence[Happened], told: Told = lambda *_: None) -> None:
        """Make this the home's whole history."""
        self.look((outcome.need for outcome in outcomes), told)
        History(self._writer.db).clear()
        self._stored.clear()
        self.write_more(outcomes)

    def write_more(self, outcomes: Sequence[Happened]) -> None:
        """Add to the history, as calls under drafts made without learning would: a need once, then its outcomes."""
        self.look(outcome.need for outcome in outcomes)
        entries = self.entries()
        with atomic(self._writer.db) as db:
            history = History(db)
            for outcome in outcomes:
                key, lesson = (outcome.need, outcome.again), self._seen[outcome.need].lesson
                if key not in self._stored and lesson is not None:
                    self._stored[key] = history.keep_need(lesson, NOW)
                card = entries[outcome.card].card
                kind = Outcome.SUCCESS if outcome.success else Outcome.INTERNAL
                row = OutcomeRow(card.id, card.fingerprint, kind, None, 1.0, NOW, drafted=True, rule="replayed",
                                 need=self._stored.get(key))  # fmt: skip
                history.record(row)

    def learner(self) -> Learner:
        """A learner that has read nothing yet; it reads the history, and the weights kept there, at the first draft."""
        return Learner(self.catalogue, clock=lambda: NOW)

    def taught(self, outcomes: Sequence[Happened], told: Told = lambda *_: None) -> Learner:
        """A learner of exactly this history, its weights chosen by it."""
        self.write(outcomes, told)
        learner = self.learner()
        learner.settle(always=True)
        return learner

    def keep(self, learner: Learner) -> None:
        """Keep a learner's weights in the history, for the next one."""
        with atomic(self._writer.db) as db:
            learner.keep(History(db), NOW)

    def change(self, cards: Iterable[str], addition: str) -> None:
        """Let the descriptions of these cards change behind everybody's back, look at them, and admit them again."""
        wanted = set(cards)
        rows: dict[tuple[Kind, str], list[Mapping[str, Any]]] = {}
        for id_, entry in self.entries().items():
            card = entry.card
            changed = {**card.raw, "description": f"{card.raw.get('description', '')} {addition}".strip()}
            rows.setdefault((card.kind, card.server), []).append(changed if id_ in wanted else card.raw)
        for (kind, server), listing in rows.items():
            for id_ in self._writer.registry.sight(server, listing, NOW, kind=kind).changed:
                self._writer.registry.unquarantine(id_, NOW)
        self.catalogue.refresh()
        missing = self.catalogue.unread_texts()
        if missing:
            vectors = self.encoder.encode_cards(list(missing.values()))
            self._writer.registry.vectors.keep(self.encoder.fingerprint, list(missing), vectors)
            self.catalogue.take_stored()

    # ---------------------------------------------------------------------------------- the published method

    @contextmanager
    def centroids(self, outcomes: Sequence[Happened]) -> Iterator[int]:
        """The dense index with every card of enough successes where the published method puts it; how many there are.

        Draft without a learner inside; afterwards every row is what it was.
        """
        served: dict[str, list[str]] = {}
        for outcome in outcomes:
            if outcome.success:
                served.setdefault(outcome.need, []).append(outcome.card)
        gained: dict[str, list[str]] = {}
        lost: dict[str, list[str]] = {}
        for need, cards in served.items():
            for card in cards:
                gained.setdefault(card, []).append(need)
            for card in self.seen(need).first[:5]:
                if card not in cards:
                    lost.setdefault(card, []).append(need)
        dense = self.catalogue.dense
        assert dense is not None
        moved: list[int] = []
        before: list[Vectors] = []
        after: list[Vectors] = []
        known = self._writer.registry.vectors.of(self.encoder.fingerprint)
        entries = self.entries()
        for card, needs in gained.items():
            if len(needs) < ENOUGH:
                continue
            entry = entries[card]
            moved.append(entry.number)
            before.append(known[entry.text_hash])
            after.append(pulled(before[-1], self._vectors(needs), self._vectors(lost.get(card, []))))
        if moved:
            dense.put(moved, np.stack(after))
        try:
            yield len(moved)
        finally:
            if moved:
                dense.put(moved, np.stack(before))

    def _vectors(self, needs: Sequence[str]) -> Vectors:
        if not needs:
            return np.empty((0, self.encoder.dim), np.float32)
        return self.encoder.encode_needs([self.train[need].text for need in needs])


def pulled(row: Vectors, served: Vectors, lost: Vectors) -> Vectors:
    """(dim,) a card's unit row, drawn to the needs it served and away from those it lost. served, lost: (n, dim)."""
    for _ in range(ROUNDS):
        moved = row + ALPHA * served.mean(axis=0)
        if len(lost):
            moved = moved - BETA * lost.mean(axis=0)
        row = unit_rows(moved[None])[0]
    return row
