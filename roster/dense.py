"""Nearest cards by meaning: exact FAISS search over unit rows, and its file, which is only ever a cache.

The one module that knows FAISS and its habits: -1 rows when k exceeds the corpus, a bare AssertionError for a wrong
width, ids that may be added twice, no locking of its own. FAISS is imported when the first index is made.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roster.errors import DimensionError
from roster.vectors import Vectors

__all__ = [
    "DenseIndex",
    "Manifest",
    "corpus_hash",
    "drop_index",
    "drop_manifest",
    "load_index",
    "read_manifest",
    "save_index",
]

FORMAT = 1
STALE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an index file was made of. Any difference from what is wanted means: build it anew."""

    encoder: str
    dim: int
    count: int
    corpus: str
    card_text: int
    format: int = FORMAT


def corpus_hash(rows: Iterable[tuple[int, str]]) -> str:
    """SHA-256 (hex) over the (number, text hash) of every card in an index, in any order."""
    digest = hashlib.sha256()
    for number, text_hash in sorted(rows):
        digest.update(f"{number}:{text_hash}\n".encode())
    return digest.hexdigest()


def _faiss() -> Any:
    import faiss

    # One thread: a router shares its machine with the client, and a second spinning thread made search 4 to 29
    # times slower on two busy cores.
    faiss.omp_set_num_threads(1)
    return faiss


class DenseIndex:
    """`IndexIDMap2(IndexFlatIP)`: exact, deterministic, and a card can be taken out again."""

    def __init__(self, dim: int, index: Any = None) -> None:
        self.dim = dim
        self._faiss = _faiss()
        self._index = index if index is not None else self._faiss.IndexIDMap2(self._faiss.IndexFlatIP(dim))
        self._lock = threading.Lock()
        self._numbers: set[int] = set(self._faiss.vector_to_array(self._index.id_map).tolist())

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    @property
    def numbers(self) -> frozenset[int]:
        """The card numbers in the index."""
        return frozenset(self._numbers)

    def _checked(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        if rows.ndim != 2 or rows.shape[1] != self.dim:
            raise DimensionError(f"vectors of shape {rows.shape} offered to an index of width {self.dim}: same model?")
        return rows

    def put(self, numbers: Sequence[int], vectors: Vectors) -> None:
        """Add cards, replacing those already there. vectors: (n, dim) float32 unit rows. Raises DimensionError."""
        vectors = self._checked(vectors)
        if not len(numbers):
            return
        with self._lock:
            self._drop(numbers)
            self._index.add_with_ids(vectors, np.asarray(numbers, dtype=np.int64))
            self._numbers.update(numbers)

    def drop(self, numbers: Iterable[int]) -> None:
        """Take cards out; numbers that are not in are ignored."""
        with self._lock:
            self._drop(numbers)

    def _drop(self, numbers: Iterable[int]) -> None:
        there = [number for number in numbers if number in self._numbers]
        if there:
            self._index.remove_ids(np.asarray(there, dtype=np.int64))
            self._numbers.difference_update(there)

    def search(self, need: Vectors, k: int, among: Iterable[int] | None = None) -> list[tuple[int, float]]:
        """The k cards nearest to one need as (number, cosine similarity), best first; fewer when there are fewer.

        need: (1, dim) float32, unit length. among: the only cards that are looked at; None: all. Raises DimensionError.
        """
        need, wanted = self._checked(need), None
        if among is not None:
            selector = self._faiss.IDSelectorBatch(np.fromiter(among, dtype=np.int64))
            wanted = self._faiss.SearchParameters(sel=selector)
        with self._lock:
            similarities, numbers = self._index.search(need, max(1, min(k, len(self._numbers))), params=wanted)
        return [
            (number, similarity)
            for number, similarity in zip(numbers[0].tolist(), similarities[0].tolist(), strict=True)
            if number >= 0
        ]

    def rows(self, numbers: Sequence[int]) -> Vectors:
        """(n, dim) float32: the rows of these cards, all of which must be in the index."""
        with self._lock:
            rows: Vectors = self._index.reconstruct_batch(np.asarray(numbers, dtype=np.int64))
        return rows

    def rows_of(self, numbers: Iterable[int]) -> dict[int, Vectors]:
        """(dim,) float32 by card, of those that are in the index."""
        there = [number for number in numbers if number in self._numbers]
        return dict(zip(there, self.rows(there), strict=True)) if there else {}

    def mean(self) -> NDArray[np.float32]:
        """(dim,) mean of all rows; zeros for an empty index."""
        with self._lock:
            if not self._numbers:
                return np.zeros(self.dim, np.float32)
            rows = self._index.reconstruct_batch(np.asarray(sorted(self._numbers), dtype=np.int64))
        mean: NDArray[np.float32] = rows.mean(axis=0)
        return mean

    def floor(self, need: Vectors, among: Iterable[int] | None = None) -> float:
        """The similarity of the card farthest from a need: the other end of min-max. 0 when there is none."""
        farthest = self.search(-need, 1, among)
        return -farthest[0][1] if farthest else 0.0

    def similarities(self, need: Vectors, numbers: Iterable[int]) -> dict[int, float]:
        """Cosine similarity of a need to the given cards; those not in the index are left out."""
        need = self._checked(need)
        with self._lock:
            there = [number for number in numbers if number in self._numbers]
            if not there:
                return {}
            rows = self._index.reconstruct_batch(np.asarray(there, dtype=np.int64))
        return dict(zip(there, (rows @ need[0]).tolist(), strict=True))

    def to_bytes(self) -> bytes:
        """The index as FAISS writes it."""
        with self._lock:
            return bytes(self._faiss.serialize_index(self._index))


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, for its owner only."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def save_index(folder: Path, index: DenseIndex, manifest: Manifest) -> None:
    """Swap the index file in whole: the new file first, then the manifest that names it, then the old files go."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = index.to_bytes()
    name = f"cards-{manifest.corpus[:16]}-{manifest.encoder[:8]}.faiss"
    _replace(folder / name, content)
    described = {**asdict(manifest), "file": name, "size_bytes": len(content), "crc32": zlib.crc32(content)}
    _replace(folder / "manifest.json", json.dumps(described, indent=1).encode())
    for old in folder.iterdir():
        if old.name in (name, "manifest.json"):
            continue
        try:
            # A fresh scratch file is another process's save under way; an old one was left by a kill.
            if old.suffix != ".tmp" or time.time() - old.stat().st_mtime > STALE_S:
                old.unlink()
        except OSError:
            continue  # another process is still reading it, or was faster


def drop_manifest(folder: Path) -> None:
    """Forget the index on disk, so that the next process builds its own."""
    (folder / "manifest.json").unlink(missing_ok=True)


def drop_index(folder: Path) -> None:
    """Remove the index from disk, its rows with it; the next process that needs one builds and saves its own."""
    drop_manifest(folder)
    for file in folder.glob("cards-*.faiss"):
        try:
            file.unlink()
        except OSError:
            continue  # where an open file cannot be removed: without a manifest nobody reads it, the next save will


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest on disk as it stands, or None when there is none that can be read."""
    try:
        described = json.loads((folder / "manifest.json").read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(described, dict):
        return None
    whole = isinstance(described.get("encoder"), str) and isinstance(described.get("count"), int)
    return described if whole else None


def load_index(folder: Path, wanted: Manifest) -> DenseIndex | None:
    """The index on disk if it is exactly the wanted one and whole; None when it has to be built."""
    try:
        described = json.loads((folder / "manifest.json").read_bytes())
        name, size, checksum = (described.pop(key) for key in ("file", "size_bytes", "crc32"))
        if described != asdict(wanted) or Path(name).name != name:
            return None
        content = (folder / name).read_bytes()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if len(content) != size or zlib.crc32(content) != checksum:
        return None
    try:
        index = DenseIndex(wanted.dim, _faiss().deserialize_index(np.frombuffer(content, dtype=np.uint8)))
    except RuntimeError:
        return None  # written by a FAISS that this one cannot read
    return index if len(index) == wanted.count else None
