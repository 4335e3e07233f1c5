"""Rows of unit length, and what is done with them. Pure: numbers in, numbers out."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Vectors", "unit_rows"]

Vectors: TypeAlias = NDArray[np.float32]
"""(n, dim) float32, every row of unit length unless said otherwise."""


def unit_rows(rows: NDArray[np.floating[Any]]) -> Vectors:
    """`rows` scaled to unit length, (n, dim) float32, C-contiguous; a row of zeros stays zeros."""
    plain: Vectors = np.ascontiguousarray(rows, dtype=np.float32)
    norms = np.linalg.norm(plain, axis=1, keepdims=True)
    scaled: Vectors = np.divide(plain, norms, out=np.zeros_like(plain), where=norms > 0)
    return scaled
