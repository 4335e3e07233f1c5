"""Embedding what has no vector yet: once per text, whoever does it, and safe to kill at any moment."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from roster.catalogue import Catalogue
from roster.config import Home
from roster.registry import Registry

__all__ = ["CHUNK", "Writer", "embed_missing"]

CHUNK = 16
"""Texts embedded between two commits: all that a kill can cost."""


class Writer:
    """The one connection of this process that writes, and its lock."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.registry = Registry(db)
        self.lock = threading.Lock()

    def close(self) -> None:
        """Close the connection once nobody is using it."""
        with self.lock:
            self.db.close()


@contextmanager
def _turn(home: Home, waiting: Callable[[], bool]) -> Iterator[bool]:
    """This process's turn to embed, held until the block ends or the process dies.

    `waiting` is called every second until the turn comes; False from it gives up.
    """
    lock = FileLock(home.folder / "embedding.lock", mode=0o600)
    while True:
        try:
            lock.acquire(timeout=1)
        except Timeout:
            if waiting():
                continue
            yield False
            return
        try:
            yield True
        finally:
            lock.release()
        return


def embed_missing(
    catalogue: Catalogue,
    writer: Writer,
    home: Home,
    *,
    on_progress: Callable[[int, int], None] | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> int:
    """Embed what draftable cards have no vector for, commit by commit, then save the index; how many texts that took.

    Of several processes one does it; the others take the vectors over as they appear, so no text is embedded twice.
    `stopping` is asked between chunks; what was embedded by then is kept.
    """
    encoder = catalogue.encoder
    if encoder is None:
        return 0
    if not catalogue.unread_texts():
        catalogue.save(home.index)
        return 0

    def waiting() -> bool:
        catalogue.take_stored()
        return not stopping() and bool(catalogue.unread_texts())

    wanted: Collection[str] = ()

    def still_wanted() -> Collection[str]:
        nonlocal wanted
        if catalogue.refresh():
            wanted = catalogue.unread_texts()
        return wanted

    done = 0
    with _turn(home, waiting) as mine:
        if mine:
            catalogue.refresh()
            catalogue.take_stored()
            missing = catalogue.unread_texts()
            wanted = missing
            hashes = list(missing)
            for start in range(0, len(hashes), CHUNK):
                if stopping():
                    return done
                chunk = hashes[start : start + CHUNK]
                vectors = encoder.encode_cards([missing[key] for key in chunk])
                with writer.lock:
                    writer.registry.vectors.keep(encoder.fingerprint, chunk, vectors, still_wanted)
                catalogue.take(chunk, vectors)
                done += len(chunk)
                if on_progress is not None:
                    on_progress(done, len(hashes))
            catalogue.take_stored()
        catalogue.save(home.index)
    return done
