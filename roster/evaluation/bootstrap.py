"""Intervals by the paired bootstrap (Efron & Tibshirani 1993; for rankings Sakai 2006). Pure: given its seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

__all__ = ["RESAMPLES", "Floats", "Interval", "interval", "resampled_means"]

RESAMPLES = 10_000
CONFIDENCE = 0.95
_CELLS_AT_ONCE = 2_000_000

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the percentile interval around it."""

    mean: float
    low: float
    high: float

    def wire(self) -> dict[str, float]:
        """As it is written to JSON."""
        return {"mean": round(self.mean, 6), "low": round(self.low, 6), "high": round(self.high, 6)}


def resampled_means(values: Floats, seed: int, name: str, resamples: int = RESAMPLES) -> Floats:
    """(resamples, columns) means over needs drawn with replacement.

    values: (needs, columns). All columns see the same draws, so differences between them are paired. name: of the set,
    so that its draws do not depend on which other sets are evaluated.
    """
    needs = len(values)
    rng = np.random.default_rng([seed, crc32(name.encode())])
    out = np.empty((resamples, values.shape[1]))
    step = max(1, _CELLS_AT_ONCE // needs)
    # Around the first need's values: a column that is the same for every need then stays exact.
    centre = values[0]
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        drawn = rng.integers(0, needs, (rows, needs)) + np.arange(rows)[:, None] * needs
        counts = np.bincount(drawn.ravel(), minlength=rows * needs).reshape(rows, needs)
        out[start : start + rows] = centre + counts @ (values - centre) / needs
    return out


def interval(mean: float, means: Floats, confidence: float = CONFIDENCE) -> Interval:
    """`mean` with the percentile interval of its resampled means."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(mean), float(low), float(high))
