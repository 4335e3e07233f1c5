"""How much evidence counts, and how that is earned: by leaving out each past need in turn and seeing what the rest
would have made of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from roster.evidence import FAILING, Evidence

__all__ = ["FIRST_WEIGHTS", "Sample", "Weights", "boost", "earn"]

MANY = 10.0
"""Successes at which a card's evidence counts half when learning goes slowly: four mislabelled ones weigh little."""
PLAUSIBLE = 0.5
"""Evidence counts by the power of the card's own score: what matches nothing is not carried far by four successes."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What nearness, share and the adapter count. slow: few successes count little."""

    near: float = 0.0
    share: float = 0.0
    slow: bool = False
    adapter: float = 0.0


FIRST_WEIGHTS = Weights(near=0.1, share=0.2)
"""Before a home has taught enough to choose: a need that was served before is remembered, and one like it a little. Of
eight pairs the one that did most good and no harm on held-out train needs of seven sets."""
GRID = tuple(
    Weights(near, share, slow, adapter)
    for adapter in (0.0, 0.5, 1.0, 1.5)
    for slow in (True, False)
    for near in (0.0, 0.1, 0.2, 0.4, 0.8, 1.2, 2.0)
    for share in (0.0, 0.1, 0.2, 0.4, 0.8, 1.2, 2.0, 4.0, 8.0)
)
ERRORS = 2.0
"""Standard errors by which a choice has to be better. One is what a single mended need is always worth; on held-out
train needs of five sets two did as much good as one, and least harm."""
ENOUGH = 10
"""Past needs from which weights are chosen at all."""


def pace(successes: float, slow: bool) -> float:
    """How far evidence of so many successes is believed."""
    return successes**2 / (successes**2 + MANY**2) if slow else 1.0


def boost(base: float, found: Evidence, weights: Weights) -> float:
    """What evidence adds to a card's score for a need; negative where the card failed.

    base: the score without it, in [0, 1] (a need that names the card puts it above).
    """
    believed = pace(found.successes, weights.slow) * found.well * min(1.0, max(0.0, base)) ** PLAUSIBLE
    return float((weights.near * found.near + weights.share * found.share) * believed - FAILING * found.failing)


@dataclass(frozen=True, slots=True)
class Sample:
    """One past need, judged by everything but itself. base: score without evidence, by card; served: who did it.

    adapted: by card, how much nearer the need is to it as the home means it.
    """

    base: Mapping[int, float]
    evidence: Mapping[int, Evidence]
    served: frozenset[int]
    adapted: Mapping[int, float] = field(default_factory=dict)


def earn(samples: Sequence[Sample], k: int = 5) -> tuple[Weights, float]:
    """The weights these past needs ask for, and by how much nDCG@k they beat no learning at all.

    The best of a coarse grid, if it beats both none and `FIRST_WEIGHTS` by `ERRORS` standard errors of the paired
    difference; otherwise the latter, unless none beats them likewise. So learning has to show that it helps here.
    """
    if len(samples) < ENOUGH:
        return FIRST_WEIGHTS, 0.0
    choices = [Weights(), FIRST_WEIGHTS, *GRID]
    gained = np.array([_gains(sample, choices, k) for sample in samples])
    none, first = gained[:, 0], gained[:, 1]
    means = gained.mean(axis=0)
    best = int(np.argmax(means))  # the first of equals: slow before fast, small before large
    if _beats(gained[:, best], none) and _beats(gained[:, best], first):
        return choices[best], float(means[best] - means[0])
    if _beats(none, first):
        return Weights(), 0.0
    return FIRST_WEIGHTS, float(means[1] - means[0])


def _beats(these: NDArray[np.float64], those: NDArray[np.float64]) -> bool:
    apart = these - those
    return bool(apart.mean() > max(1e-12, ERRORS * apart.std(ddof=1) / math.sqrt(len(apart))))


def _gains(sample: Sample, choices: Sequence[Weights], k: int) -> NDArray[np.float64]:
    """(choices,) nDCG@k of the cards that served this need, under each choice of weights."""
    numbers = sorted({*sample.base, *sample.served, *sample.evidence})
    lowest = min(sample.base.values(), default=0.0)
    base = np.array([sample.base.get(number, lowest) for number in numbers])
    known = [sample.evidence.get(number, Evidence()) for number in numbers]
    plausible = np.clip(base, 0.0, 1.0) ** PLAUSIBLE * np.array([found.well for found in known])
    near = np.array([found.near for found in known]) * plausible
    share = np.array([found.share for found in known]) * plausible
    believed = np.array([[pace(found.successes, slow) for found in known] for slow in (False, True)])
    base = base - FAILING * np.array([found.failing for found in known])
    adapted = np.array([sample.adapted.get(number, 0.0) for number in numbers])
    weights = np.array([(choice.near, choice.share, choice.adapter) for choice in choices])
    paces = believed[[int(choice.slow) for choice in choices]]
    scores = base + (weights[:, :1] * near + weights[:, 1:2] * share) * paces + weights[:, 2:] * adapted
    served = [at for at, number in enumerate(numbers) if number in sample.served]
    gained = np.zeros(len(choices))
    for at in served:
        ahead = (scores > scores[:, at : at + 1]).sum(axis=1) + (scores[:, :at] == scores[:, at : at + 1]).sum(axis=1)
        gained += np.where(ahead < k, 1.0 / np.log2(ahead + 2.0), 0.0)
    ideal = sum(1.0 / math.log2(place + 2) for place in range(min(k, len(served))))
    out: NDArray[np.float64] = gained / ideal
    return out
