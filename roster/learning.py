"""One home's history, kept ready for drafting: read once, then outcome by outcome, from whichever process they come."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from roster.adapter import PAIRS, Adapter, Pair, fit
from roster.catalogue import Catalogue
from roster.dense import DenseIndex
from roster.evidence import (
    HALF_LIFE_S,
    MODES,
    RATING_CALLS,
    RATING_START,
    Evidence,
    Lessons,
    Taught,
    mean_of,
    rating,
)
from roster.history import Event, History
from roster.ratings import Standing
from roster.vectors import Vectors
from roster.weights import FIRST_WEIGHTS, Sample, Weights, earn

__all__ = ["Learner", "Learning"]

log = logging.getLogger(__name__)

SAMPLES = 300
"""The newest needs that weights are chosen by."""
FOUND_BY_NEEDS = 15
"""How many learned vectors near a need bring their cards into the running."""
AT_ONCE = 500
"""New outcomes a draft takes in by itself; more of them wait for the next `settle`."""
SUNK = -0.01
"""A record that lowers a card wherever it stands."""
AN_HOUR_S = 3600.0
"""Records are aged by the hour, so that a need asked twice gets the same draft."""
CHUNK = 2_000
"""Outcomes read in one go."""
MEAN_OF = 5_000
"""Needs that the mean is taken over; the newest."""
GROWTH = 1.25
NEW = 5
"""Weights are chosen anew, and needs centred anew, when there are so many times the outcomes, and so many more."""


@dataclass(frozen=True, slots=True)
class Learning:
    """What learning has to say in a draft. weights: what evidence counts; the others by card number.

    adapted: how much nearer the need is to the card as this home means it, in cosine.
    """

    weights: Weights = field(default_factory=Weights)
    evidence: Mapping[int, Evidence] = field(default_factory=dict)
    ratings: Mapping[int, float] = field(default_factory=dict)
    adapted: Mapping[int, float] = field(default_factory=dict)


class _State:
    """Everything learned up to one outcome. Built by one thread; afterwards used under the learner's lock."""

    def __init__(self, catalogue: Catalogue, encoder: str, *, needs: bool, now: float) -> None:
        self._catalogue = catalogue
        self.encoder = encoder
        self.started = now
        self.seen = catalogue.reading(lambda db: History(db).newest())
        kept = catalogue.reading(lambda db: History(db).weights(encoder))
        self.weights, self.gain, self.settled = kept or (FIRST_WEIGHTS, 0.0, 0)
        self.taught = 0
        self.lessons: Lessons | None = None
        # Which cards served the newest needs, the newest last: what weights are chosen by.
        self._served: OrderedDict[int, set[int]] = OrderedDict()
        self._judged: Mapping[int, object] = {}
        self._needs = needs and bool(encoder)
        self._modes: DenseIndex | None = None
        # The newest pairs of a need and a card that served it, and the map they teach.
        self._pairs: OrderedDict[tuple[int, int], float] = OrderedDict()
        self._adapter: Adapter | None = None
        self._records: dict[str, Standing] = {}
        self._sunk: set[str] = set()
        # What records come to in this hour.
        self._rated: dict[str, float] = {}
        self._hour = 0.0
        self._prints: dict[int, str] = {}
        self._dropped: dict[int, str] = {}
        events = [e for e in catalogue.reading(lambda db: History(db).events()) if e.number <= self.seen[0]]
        for start in range(0, len(events), CHUNK):
            self._take(events[start : start + CHUNK], now)
        if self.weights.adapter:
            self._fit_adapter()

    # -------------------------------------------------------------------------------------- taking in

    def catch_up(self, newest: tuple[int, int], now: float) -> None:
        """Take in what was recorded since, unless that is too much to do on the way to a draft."""
        after = self.seen[0]
        events = [e for e in self._catalogue.reading(lambda db: History(db).events(after)) if e.number <= newest[0]]
        if len(events) <= AT_ONCE:
            self._take(events, now)
            self.seen = newest

    def _take(self, events: Sequence[Event], now: float) -> None:
        for event in events:
            standing = self._records.get(event.card, Standing())
            standing = self._records[event.card] = standing.add(event.at, event.success, now)
            self._rated.pop(event.card, None)
            sunk = rating(standing.rate(now, RATING_START, RATING_CALLS).rate) < SUNK
            (self._sunk.add if sunk else self._sunk.discard)(event.card)
        taught = self._lessons_in(events) if self._needs else []
        if not taught:
            return
        if self.lessons is None:
            self.lessons = Lessons(self._mean(), now=self.started)
        for lesson in taught:
            self.lessons.add(lesson)
            if lesson.success:
                self._served.setdefault(lesson.need, set()).add(lesson.card)
                self._pairs[lesson.need, lesson.card] = lesson.at
        while len(self._served) > SAMPLES:
            self._served.popitem(last=False)
        while len(self._pairs) > PAIRS:
            self._pairs.popitem(last=False)
        self.taught += len(taught)
        self._index(self.lessons, {lesson.card for lesson in taught})

    def _mean(self) -> Vectors:
        """What the newest needs have in common."""
        dense = self._catalogue.dense
        assert dense is not None
        newest = self._catalogue.reading(lambda db: History(db).newest_needs(self.encoder, MEAN_OF, dense.dim))
        return mean_of(newest, dense.mean())

    def _lessons_in(self, events: Sequence[Event]) -> list[Taught]:
        """The events that teach: their need is known to this encoder, and their card is still what it was."""
        dense = self._catalogue.dense
        needs = list({event.need for event in events if event.need is not None})
        vectors = self._catalogue.reading(lambda db: History(db).vectors_of(needs, self.encoder))
        out = []
        for event in events:
            entry = self._catalogue.find(event.card)
            if event.need is None or event.need not in vectors or entry is None:
                continue
            if dense is None or len(vectors[event.need]) != dense.dim:
                continue  # a hand-edited file
            if entry.card.fingerprint == event.fingerprint:
                self._prints[entry.number] = event.fingerprint
                out.append(Taught(entry.number, event.need, vectors[event.need], event.success, event.at))
        return out

    def _index(self, lessons: Lessons, cards: Collection[int]) -> None:
        """Put the learned vectors of these cards where a search finds them."""
        numbers: list[int] = []
        rows: list[Vectors] = []
        for card in sorted(cards):
            for mode, row in enumerate(lessons.modes(card)):
                numbers.append(card * MODES + mode)
                rows.append(row)
        if rows:
            if self._modes is None:
                self._modes = DenseIndex(len(rows[0]))
            self._modes.put(numbers, np.stack(rows))

    def forget_changed(self) -> bool:
        """Drop every learned vector and all evidence of a card whose definition is another one now.

        True when one is as it was again: what it had been taught has to be read anew.
        """
        if self.lessons is None:
            return False
        entries = self._catalogue.draftable()
        if entries is self._judged:
            return False
        self._judged = entries
        gone = {n for n, print_ in self._prints.items() if n not in entries or entries[n].card.fingerprint != print_}
        back = any(n in entries and entries[n].card.fingerprint == print_ for n, print_ in self._dropped.items())
        for number in gone:
            self._dropped[number] = self._prints.pop(number)
            self.lessons.drop(number)
            if self._modes is not None:
                self._modes.drop([number * MODES + mode for mode in range(MODES)])
        if gone:
            for cards in self._served.values():
                cards -= gone
            self._pairs = OrderedDict((pair, at) for pair, at in self._pairs.items() if pair[1] not in gone)
            if self._adapter is not None:
                self._fit_adapter()
        return back

    # ---------------------------------------------------------------------------------------- adapter

    def _fit_adapter(self) -> None:
        """Learn anew what this home's needs usually mean, from the cards as they are now."""
        dense = self._catalogue.dense
        self._adapter = None
        if dense is None or not self._pairs:
            return
        vectors = self._catalogue.reading(lambda db: History(db).vectors_of([n for n, _ in self._pairs], self.encoder))
        known = dense.rows_of({card for _, card in self._pairs})
        pairs = [
            Pair(need, card, 2.0 ** (min(0.0, at - self.started) / HALF_LIFE_S))
            for (need, card), at in self._pairs.items()
            if need in vectors and card in known
        ]
        if pairs:
            needs, cards = [vectors[pair.need] for pair in pairs], [known[pair.card] for pair in pairs]
            self._adapter = fit(pairs, np.stack(needs), np.stack(cards))

    def _adapted(self, need: Vectors, cards: Collection[int], without: int | None = None) -> dict[int, float]:
        """By card, how much nearer the need is to it as this home means it, in cosine."""
        dense = self._catalogue.dense
        if self._adapter is None or dense is None or len(need) != dense.dim:
            return {}
        return dense.similarities((self._adapter(need, without=without) - need)[None], cards)

    # ---------------------------------------------------------------------------------------- weights

    def choose_weights(self) -> int:
        """Let the home's own past say how much evidence counts; how many needs that was decided by."""
        self._fit_adapter()
        samples = self._samples(self.lessons) if self.lessons is not None else []
        self.weights, self.gain = earn(samples)
        self.settled = self.seen[0]
        return len(samples)

    def _samples(self, lessons: Lessons) -> list[Sample]:
        """The newest needs that were served, each with what everything but itself says of the cards in its running."""
        served = {need: cards for need, cards in self._served.items() if cards}
        vectors = self._catalogue.reading(lambda db: History(db).vectors_of(list(served), self.encoder))
        running = self._catalogue.reading(lambda db: History(db).running_of(list(served)))
        draftable = self._catalogue.draftable()
        samples = []
        for need, cards in served.items():
            if need not in vectors:
                continue
            base = {number: score for number, score in running.get(need, []) if number in draftable}
            asked = {*base, *cards, *self.near(vectors[need])}
            about = lessons.about(vectors[need], sorted(asked), without=need)
            adapted = self._adapted(vectors[need], asked, without=need)
            samples.append(Sample(base, about, frozenset(cards), adapted))
        return samples

    # ----------------------------------------------------------------------------------------- asking

    def near(self, need: Vectors) -> list[int]:
        """Cards with a learned vector near a need, nearest first."""
        if self._modes is None or self.lessons is None:
            return []
        found = self._modes.search(self.lessons.centred(need)[None], FOUND_BY_NEEDS)
        cards = [number // MODES for number, similarity in found if similarity > 0]
        dense = self._catalogue.dense
        if self._adapter is not None and self.weights.adapter and dense is not None and len(need) == dense.dim:
            cards += [number for number, _ in dense.search(self._adapter(need)[None], FOUND_BY_NEEDS)]
        return list(dict.fromkeys(cards))

    def ask(self, need: Vectors | None, cards: Collection[int], others: Collection[int], now: float) -> Learning:
        """What was learned of these cards, and of `others` that they keep failing."""
        entries = self._catalogue.draftable()
        ids = {number: entries[number].card.id for number in {*cards, *others} if number in entries}
        wanted = [number for number in cards if ids.get(number) in self._records]
        wanted += [number for number in others if ids.get(number) in self._sunk]
        ratings = {number: self._rating(ids[number], now - now % AN_HOUR_S) for number in wanted}
        if self.lessons is None or need is None:
            return Learning(self.weights, {}, ratings)
        adapted = self._adapted(need, {*cards, *others}) if self.weights.adapter else {}
        return Learning(self.weights, self.lessons.about(need, sorted(cards)), ratings, adapted)

    def _rating(self, id_: str, hour: float) -> float:
        """What a card's record adds to its score, aged to this hour."""
        if hour != self._hour:
            self._rated, self._hour = {}, hour
        if id_ not in self._rated:
            self._rated[id_] = rating(self._records[id_].rate(hour, RATING_START, RATING_CALLS).rate)
        return self._rated[id_]


class Learner:
    """Evidence and ratings of the cards of one catalogue. Safe from several threads.

    needs: whether to learn from needs, or from how calls went alone. clock: seconds since the epoch.
    """

    def __init__(self, catalogue: Catalogue, *, needs: bool = True, clock: Callable[[], float] = time.time) -> None:
        self._catalogue = catalogue
        self._needs = needs
        self._clock = clock
        self._lock = threading.Lock()
        self._state: _State | None = None
        self._useless: tuple[int, int] | None = None

    @property
    def weights(self) -> Weights:
        """What evidence counts at present."""
        return self._state.weights if self._state is not None else FIRST_WEIGHTS

    def refresh(self) -> None:
        """Take in what was recorded since the last call, by whichever process. The first call reads all there is.

        A history that cannot be made sense of costs learning and nothing else: it is said once, and drafts go on
        without until there is more of it. A database that cannot be read is the caller's affair.
        """
        with self._lock:
            newest = self._catalogue.reading(lambda db: History(db).newest())
            if self._useless == newest:
                return
            try:
                self._take_in(newest)
            except sqlite3.Error:
                raise
            except Exception as error:  # noqa: BLE001 - rows from a file that anybody may have written
                self._state, self._useless = None, newest
                log.warning("what was recorded cannot be learned from (%s); drafts go on without", type(error).__name__)

    def _take_in(self, newest: tuple[int, int]) -> None:
        state = self._state
        if state is not None and state.forget_changed():
            state = self._state = None
        cleared = state is not None and (newest[1] != state.seen[1] or newest[0] < state.seen[0])
        if state is None or state.encoder != self._encoder() or cleared:
            state = self._state = self._fresh()
        elif newest[0] > state.seen[0]:
            state.catch_up(newest, self._clock())
        state.forget_changed()

    def settle(self, *, always: bool = False) -> bool:
        """Centre the needs and choose the weights anew, if there is enough that is new; True when it was done.

        Drafts go on meanwhile, by what was known before.
        """
        self.refresh()
        if self._useless is not None and self._state is None:
            return False
        with self._lock:
            taught = self._state.taught if self._state is not None else 0
            seen = self._state.seen[0] if self._state is not None else 0
            behind = self._state is not None and (
                self._catalogue.reading(lambda db: History(db).newest()) != self._state.seen
            )
            settled = self._state.settled if self._state is not None else 0
            # Counted by their numbers: a history at its limit does not grow, and goes on changing.
            if not (always or behind or (taught and seen - settled >= max(NEW, (GROWTH - 1) * taught))):
                return False
        fresh = self._fresh()
        needs = fresh.choose_weights()
        with self._lock:
            before, self._state = self.weights, fresh
        if fresh.weights != before:
            log.info("learning: %s, from %d needs (nDCG@5 %+.3f)", fresh.weights, needs, fresh.gain)
        return True

    def _encoder(self) -> str:
        return self._catalogue.encoder.fingerprint if self._catalogue.encoder is not None else ""

    def _fresh(self) -> _State:
        return _State(self._catalogue, self._encoder(), needs=self._needs, now=self._clock())

    def near(self, need: Vectors) -> list[int]:
        """Cards with a learned vector near a need, nearest first; none while evidence counts nothing. need: (dim,)."""
        with self._lock:
            return self._state.near(need) if self._state is not None and self.weights != Weights() else []

    def ask(self, need: Vectors | None, cards: Collection[int], others: Collection[int] = ()) -> Learning:
        """What was learned of these cards, for a need (None: of their records alone).

        others: cards further down, of which only a record that sinks them is of interest.
        """
        with self._lock:
            return self._state.ask(need, cards, others, self._clock()) if self._state is not None else Learning()

    def keep(self, history: History, now: float) -> None:
        """Write down what was settled, so that the next process begins with it."""
        with self._lock:
            state = self._state
        if state is not None and state.encoder and self._needs:
            history.keep_weights(state.encoder, state.weights, state.gain, state.settled, now)

    def figures(self) -> dict[str, Any]:
        """What `roster reindex` and `roster status` say of learning."""
        with self._lock:
            state = self._state
            if state is None:
                return {"outcomes": 0, "cards": 0, "weights": asdict(FIRST_WEIGHTS), "gain": 0.0}
            cards = len(state.lessons.cards) if state.lessons is not None else 0
            return {
                "outcomes": state.taught,
                "cards": cards,
                "weights": asdict(state.weights),
                "gain": round(state.gain, 4),
            }
