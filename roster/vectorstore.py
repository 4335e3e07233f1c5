"""The vectors of card texts, stored by encoder and text: each text is embedded once, whoever needs it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roster.database import atomic
from roster.vectors import Vectors

__all__ = ["VectorStore"]


class VectorStore:
    """The vectors table, over one connection. Not for two threads at once."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def keep(
        self,
        encoder: str,
        hashes: Sequence[str],
        vectors: Vectors,
        wanted: Callable[[], Collection[str]] | None = None,
    ) -> None:
        """Store one vector per text hash. vectors: (n, dim) float32 unit rows.

        wanted: which texts are still anybody's, asked once nobody else can write: a definition may have changed while
        its text was embedded, and nothing of it must come back. None: all of them.
        """
        rows = [(encoder, key, row.astype("<f4").tobytes()) for key, row in zip(hashes, vectors, strict=True)]
        with atomic(self._db) as db:
            if wanted is not None:
                current = wanted()
                rows = [row for row in rows if row[1] in current]
            db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    def of(
        self, encoder: str, hashes: Iterable[str] | None = None, dim: int | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """Stored vectors by text hash: all of this encoder's, or those of `hashes`.

        dim: what they must have; a row of another length, or of no numbers, was damaged and counts as not there.
        """
        found = self._of(encoder, hashes)
        if dim is None:
            return found
        return {key: row for key, row in found.items() if len(row) == dim and np.isfinite(row).all() and row.any()}

    def _of(self, encoder: str, hashes: Iterable[str] | None) -> dict[str, NDArray[np.float32]]:
        if hashes is None:
            rows = self._db.execute("SELECT text_hash, vector FROM vectors WHERE encoder = ?", (encoder,))
            return {key: _row(blob) for key, blob in rows}
        out = {}
        for key in hashes:
            row = self._db.execute(
                "SELECT vector FROM vectors WHERE encoder = ? AND text_hash = ?", (encoder, key)
            ).fetchone()
            if row:
                out[key] = _row(row[0])
        return out

    def forget(self, encoder: str) -> None:
        """Drop every vector of one encoder, so that all texts are embedded anew."""
        with atomic(self._db) as db:
            db.execute("DELETE FROM vectors WHERE encoder = ?", (encoder,))

    def drop(self, hashes: Iterable[str]) -> None:
        """Forget the vectors of these texts, unless an admitted card has the same text. Inside a transaction."""
        self._db.executemany(
            "DELETE FROM vectors WHERE text_hash = ? AND NOT EXISTS ("
            "SELECT 1 FROM cards WHERE cards.text_hash = vectors.text_hash AND removed_at IS NULL "
            "AND quarantined_at IS NULL)",
            [(each,) for each in hashes],
        )


def _row(blob: Any) -> NDArray[np.float32]:
    """The numbers of a stored vector; none of what is not one."""
    whole = isinstance(blob, bytes) and not len(blob) % 4
    return np.frombuffer(blob if whole else b"", dtype="<f4")
