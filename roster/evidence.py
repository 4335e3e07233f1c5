"""What past outcomes say about a need and a card. Pure: vectors and numbers in, numbers out; no clock, disk or model.

Needs are compared after taking their mean off: what all needs of a home have in common ("list all … in my
subscription") would otherwise make every used card near to every need. Two kinds of evidence follow for a card:

- *nearness*: to the nearest of its modes. A mode is the mean of needs it served that are alike; a card may have
  several, and each is a learned vector, by which the card is found as well as by what it says of itself.
- *share*: of the past needs around this one, weighted by a kernel, the part that this card served.

Failures lower both and add nothing to anybody else, so more of them never raise a card. How much evidence counts is
another matter: `weights`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roster.vectors import Vectors, unit_rows

__all__ = [
    "FAILING",
    "HALF_LIFE_S",
    "MODES",
    "RATING_CALLS",
    "RATING_START",
    "Evidence",
    "Lessons",
    "Taught",
    "mean_of",
    "rating",
]

Floats = NDArray[np.float32]

SHARPNESS = 14.0
"""Of the kernel exp(s (cosine - 1)): a past need at cosine 0.9 weighs a quarter, one at 0.7 next to nothing."""
NOBODY = 0.15
"""Kernel weight of nobody: evidence from far away has to outweigh it, and does not."""
FEW = 3.0
"""Successes at which a mode counts half."""
MODES = 4
APART = 0.35
"""Cosine to the nearest mode below which a need begins another one, while there is room."""
ASKED = 12
"""Cards whose past needs are compared one by one: those with the nearest modes."""
ROWS = 64
"""Past needs kept for a card; the newest."""
MEAN_FROM = 50.0
"""How many needs the mean of the cards stands for in the mean of the needs: a few needs of one family are not to be
centred away. On train needs 50 was at least as good as 0 or 5 on five sets."""
HALF_LIFE_S = 180 * 86_400.0
"""After this time an outcome counts half."""
FAILING = 0.3
"""What a card loses where everything like this need failed."""
LEFT = 1e-3
"""Weight below which nothing is left of a mode."""
RATING = 0.3
"""What a card that always failed, whatever the need, loses at most."""
RATING_START = 0.9
RATING_CALLS = 4.0
"""A card nobody called is taken to work nine times in ten, and that counts as four calls: a fair start."""
PRAISE = 0.1
"""A record above `RATING_START` counts so much less than one below: it decides between equals."""


@dataclass(frozen=True, slots=True)
class Taught:
    """One outcome: the card it tells of, the need (by number and vector), how it went, and when (seconds)."""

    card: int
    need: int
    vector: Vectors
    success: bool
    at: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """For one need and card, each in [0, 1]: nearness, share, how much of it went well, failing; successes, decayed."""

    near: float = 0.0
    share: float = 0.0
    well: float = 1.0
    failing: float = 0.0
    successes: float = 0.0


def mean_of(needs: Vectors, cards: Floats) -> Floats:
    """(dim,) what all needs of a home have in common. needs: (n, dim). cards: (dim,) mean of the cards' vectors, which
    stands in for needs that nobody had yet."""
    mean: Floats = ((needs.sum(axis=0) + MEAN_FROM * cards) / (len(needs) + MEAN_FROM)).astype(np.float32)
    return mean


def rating(rate: float) -> float:
    """What a card's record as a whole adds to its score: up to `RATING` less for one that fails, hardly more for one
    that works. Being used a lot wins no need that another card matches better.

    rate: its success rate in [0, 1], begun at `RATING_START`.
    """
    above = rate - RATING_START
    return RATING * (above if above < 0 else PRAISE * above)


class _Card:
    """The newest needs of one card, centred, and its modes: sums of the rows that made them, with their weights."""

    __slots__ = ("count", "counts", "modes", "needs", "rows", "sums", "weights", "won")

    def __init__(self, dim: int) -> None:
        self.count = 0
        self.rows = np.empty((2, dim), np.float16)  # half precision: a hundred thousand of them stay in memory
        self.needs = np.empty(2, np.int64)
        self.weights = np.empty(2, np.float32)
        self.won = np.empty(2, np.bool_)
        self.modes = np.empty(2, np.int8)
        self.sums = np.empty((0, dim), np.float32)
        self.counts = np.empty(0, np.float32)

    def append(self, need: int, row: Floats, weight: float, won: bool) -> None:
        """Take in how the card did for a need. One need counts once, the last time: a loop is not many needs."""
        for at in np.flatnonzero(self.needs[: self.count] == need)[::-1]:
            self._remove(int(at))
        mode = self._into_mode(row, weight) if won else -1
        columns = ("rows", "needs", "weights", "won", "modes")
        if self.count == ROWS:
            for name in columns:
                column = getattr(self, name)
                column[:-1] = column[1:]
            self.count -= 1
        elif self.count == len(self.needs):
            for name in columns:
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.empty_like(column)])[:ROWS])
        at = self.count
        self.rows[at], self.needs[at], self.weights[at], self.won[at], self.modes[at] = row, need, weight, won, mode
        self.count += 1

    def _remove(self, at: int) -> None:
        """Take a row out, and out of its mode."""
        mode = int(self.modes[at])
        if mode >= 0:
            self.sums[mode] -= self.weights[at] * self.rows[at].astype(np.float32)
            self.counts[mode] -= self.weights[at]
        for column in (self.rows, self.needs, self.weights, self.won, self.modes):
            column[at : self.count - 1] = column[at + 1 : self.count]
        self.count -= 1

    def _into_mode(self, row: Floats, weight: float) -> int:
        """Leader clustering (Hartigan 1975): to the nearest mode, or a new one while it is far and there is room."""
        if len(self.sums):
            cosines = self.sums @ row / np.maximum(np.linalg.norm(self.sums, axis=1), 1e-9)
            best = int(np.argmax(cosines))
            if cosines[best] >= APART or len(self.sums) >= MODES:
                self.sums[best] += weight * row
                self.counts[best] += weight
                return best
        self.sums = np.concatenate([self.sums, weight * row[None]])
        self.counts = np.append(self.counts, np.float32(weight))
        return len(self.sums) - 1

    @property
    def losses(self) -> bool:
        """Whether any of the kept outcomes was a failure."""
        return not self.won[: self.count].all()

    def successes(self, without: int | None) -> float:
        """How many needs it served, decayed; of those that are kept."""
        won = self.won[: self.count]
        if without is not None:
            won = won & (self.needs[: self.count] != without)
        return float(self.weights[: self.count][won].sum())

    def modes_without(self, need: int | None) -> tuple[Floats, Floats]:
        """(modes, dim) sums and their weights, as they would be if this need had never been."""
        gone = np.flatnonzero((self.needs[: self.count] == need) & self.won[: self.count]) if need is not None else ()
        if not len(gone):
            there = self.counts > LEFT
            return (self.sums, self.counts) if there.all() else (self.sums[there], self.counts[there])
        sums, counts = self.sums.copy(), self.counts.copy()
        for at in gone:
            sums[self.modes[at]] -= self.weights[at] * self.rows[at].astype(np.float32)
            counts[self.modes[at]] -= self.weights[at]
        kept = counts > LEFT
        return sums[kept], counts[kept]


class Lessons:
    """What a home was taught, ready to be asked. Not for two threads at once.

    mean: (dim,) of the needs, see `mean_of`. now: seconds; outcomes weigh by their age then, and by the order of their
    ages ever after.
    """

    def __init__(self, mean: Floats, *, now: float = 0.0) -> None:
        self.mean: Floats = mean.astype(np.float32)
        self._now = now
        self._cards: dict[int, _Card] = {}

    @property
    def cards(self) -> frozenset[int]:
        """The cards that something is known of."""
        return frozenset(self._cards)

    def centred(self, vector: Vectors) -> Floats:
        """(dim,) unit: a need without what all needs have in common."""
        row: Floats = unit_rows((vector - self.mean)[None])[0]
        return row

    def add(self, lesson: Taught) -> None:
        """Take in one outcome."""
        card = self._cards.get(lesson.card)
        if card is None:
            card = self._cards[lesson.card] = _Card(len(self.mean))
        # What is dated later than now was written under a wrong clock, and counts as of now.
        weight = 2.0 ** (min(0.0, lesson.at - self._now) / HALF_LIFE_S)
        card.append(lesson.need, self.centred(lesson.vector), weight, lesson.success)

    def drop(self, card: int) -> None:
        """Forget a card: its definition is another one now."""
        self._cards.pop(card, None)

    def modes(self, card: int) -> Vectors:
        """(modes, dim) float32 unit rows: the card's learned vectors."""
        known = self._cards.get(card)
        return (
            unit_rows(known.sums[known.counts > LEFT])
            if known is not None
            else np.empty((0, len(self.mean)), np.float32)
        )

    def about(self, need: Vectors, cards: Iterable[int], *, without: int | None = None) -> dict[int, Evidence]:
        """What is known of these cards for a need; a card that nothing is known of is left out.

        need: (dim,) unit, as the encoder gave it. without: a past need that is to be forgotten for the moment.
        """
        numbers = [number for number in cards if number in self._cards]
        if not numbers:
            return {}
        known = [self._cards[number] for number in numbers]
        asked = self.centred(need)
        cosines, near = self._nearness(known, asked, without)
        # The kernel is a matter of the nearest needs. Those of a card whose modes are all far away weigh nothing, and
        # reading them would cost more than all else. Modes are made of successes: a card that failed is read too.
        told = {at for at in np.argsort(-cosines, kind="stable")[:ASKED].tolist() if cosines[at] >= APART / 2}
        read: list[tuple[int, _Card, slice | NDArray[np.intp]]] = []
        for at, card in enumerate(known):
            if at in told:
                read.append((at, card, slice(card.count)))
            elif card.losses:
                read.append((at, card, np.flatnonzero(~card.won[: card.count])))
        good, bad = self._kernel(read, len(known), asked, without)
        around = float(good.sum()) + NOBODY
        out = {}
        for at, number in enumerate(numbers):
            own, lost = float(good[at]), float(bad[at])
            out[number] = Evidence(
                near=float(near[at]),
                share=own / around,
                well=(own + NOBODY) / (own + lost + NOBODY),
                failing=lost / (own + lost + NOBODY),
                successes=known[at].successes(without),
            )
        return out

    @staticmethod
    def _kernel(
        read: Sequence[tuple[int, _Card, slice | NDArray[np.intp]]], cards: int, asked: Floats, without: int | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(cards,) kernel weight of the needs each card served, and of those it failed. read: which rows of whom."""
        if not read:
            return np.zeros(cards), np.zeros(cards)
        # All rows at once: one by one, a card's handful of rows costs more in calls than in numbers.
        parts = [card.rows[chosen] for _, card, chosen in read]
        owners = np.repeat([at for at, _, _ in read], [len(part) for part in parts])
        cosines = np.concatenate(parts).astype(np.float32) @ asked
        weights = np.concatenate([card.weights[chosen] for _, card, chosen in read])
        kernel = weights * np.exp(SHARPNESS * (cosines - 1.0))
        if without is not None:
            kernel = kernel * (np.concatenate([card.needs[chosen] for _, card, chosen in read]) != without)
        won = np.concatenate([card.won[chosen] for _, card, chosen in read])
        good, bad = np.zeros(cards), np.zeros(cards)
        np.add.at(good, owners, kernel * won)
        np.add.at(bad, owners, kernel * ~won)
        return good, bad

    @staticmethod
    def _nearness(
        known: Sequence[_Card], asked: Floats, without: int | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(cards,) cosine to each card's nearest mode, -1 without one; and the same, less for a mode of few needs and 0
        for one on the other side."""
        parts = [card.modes_without(without) for card in known]
        owners = np.repeat(np.arange(len(known)), [len(counts) for _, counts in parts])
        sums = np.concatenate([sums for sums, _ in parts])
        counts = np.concatenate([counts for _, counts in parts])
        found = sums @ asked / np.maximum(np.linalg.norm(sums, axis=1), 1e-9)
        cosines, near = np.full(len(known), -1.0), np.zeros(len(known))
        np.maximum.at(cosines, owners, found)
        np.maximum.at(near, owners, np.maximum(found, 0.0) * counts / (counts + FEW))
        return cosines, near
