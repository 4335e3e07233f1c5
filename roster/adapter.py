"""A linear adapter: what this home's needs usually turn out to mean. Pure: vectors in, vectors out.

Ridge regression (Hoerl & Kennard 1970) from the vector of a need to the way from there to the card that served it. One
map for the whole home, so that what one card's needs teach about wording helps cards that nobody has called yet, and
four wrong lessons among hundreds move it very little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roster.vectors import Vectors, unit_rows

__all__ = ["PAIRS", "Adapter", "Pair", "fit"]

PAIRS = 5_000
"""Pairs that a map is fitted to; the newest. More would change it little and take longer at every start."""
RIDGE = 10.0
"""Of 3, 10 and 30 the one that did most good on held-out train needs of nine sets."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A need and a card that served it, by their numbers. weight: how much it counts, 1 for one of today."""

    need: int
    card: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Adapter:
    """A fitted map. way: (dim, dim) from a need to what is added to it. inverse: (dim, dim) of the penalised moments.

    ways: by need, its total weight and the (dim,) mean of the ways it was fitted to.
    """

    way: NDArray[np.float32]
    inverse: NDArray[np.float32]
    ways: dict[int, tuple[float, NDArray[np.float32]]]

    def __call__(self, need: Vectors, *, without: int | None = None) -> Vectors:
        """(dim,) unit: the need as this home means it.

        need: (dim,) unit. without: the number of this very need, to see what all others make of it; exact, by the
        rank-one update of the inverse (Sherman & Morrison 1950).
        """
        added = need @ self.way
        if without is not None and without in self.ways:
            weight, own = self.ways[without]
            leverage = weight * float(need @ self.inverse @ need)
            added = (added - leverage * own) / max(1.0 - leverage, 1e-3)
        adapted: Vectors = unit_rows((need + added)[None])[0]
        return adapted


def fit(pairs: Sequence[Pair], needs: Vectors, cards: Vectors) -> Adapter:
    """The map that these pairs teach. needs, cards: (n, dim) unit, row by row the vectors of the pairs."""
    weights = np.array([pair.weight for pair in pairs], np.float32)
    ways = cards - needs
    weighed = needs * weights[:, None]
    moments = weighed.T @ needs + RIDGE * np.eye(needs.shape[1], dtype=np.float32)
    inverse = np.linalg.inv(moments).astype(np.float32)
    of_needs: dict[int, tuple[float, NDArray[np.float32]]] = {}
    for pair, weight, way in zip(pairs, weights.tolist(), ways, strict=True):
        total, mean = of_needs.get(pair.need, (0.0, np.zeros_like(way)))
        if total + weight > 0:
            of_needs[pair.need] = (total + weight, (total * mean + weight * way) / (total + weight))
    return Adapter((inverse @ (weighed.T @ ways)).astype(np.float32), inverse, of_needs)
