"""Embedding what has no vector: once per text, whoever does it, and whatever kills it on the way."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fakes import Clock, WordEncoder, python, tool
from filelock import FileLock

from roster.cards import dense_text
from roster.catalogue import Catalogue
from roster.config import Home
from roster.dense import read_manifest
from roster.errors import EncoderError
from roster.registry import Registry
from roster.reindex import CHUNK, Writer, embed_missing

TEXTS = 5 * CHUNK + 3


@pytest.fixture
def cards(registry: Registry, clock: Clock) -> int:
    """Cards with a text each, on file; how many."""
    registry.sight("calendar", [tool(f"tool_{n}", f"Does thing number {n}") for n in range(TEXTS)], clock.now)
    return TEXTS


@pytest.fixture
def ready(catalogue: Catalogue, encoder: WordEncoder, home: Home, cards: int) -> Catalogue:
    """A catalogue that has seen the cards, with an encoder attached and nothing embedded."""
    catalogue.attach(encoder, home.index)
    return catalogue


def stored(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT count(*) FROM vectors").fetchone()[0])


def size(catalogue: Catalogue) -> int:
    return len(catalogue.dense) if catalogue.dense is not None else -1


@pytest.mark.report("samanhappy/mcphub#748", "finchtoys/finch-releases#23")
def test_every_text_is_embedded_stored_and_indexed(
    ready: Catalogue, encoder: WordEncoder, writer: Writer, home: Home
) -> None:
    """In chunks, with progress after each; then the index is saved, and there is nothing left to do."""
    seen: list[tuple[int, int]] = []

    assert embed_missing(ready, writer, home, on_progress=lambda done, of: seen.append((done, of))) == TEXTS
    assert seen == [(min(done, TEXTS), TEXTS) for done in range(CHUNK, TEXTS + CHUNK, CHUNK)]
    assert len(encoder.embedded) == len(set(encoder.embedded)) == stored(writer.db) == size(ready) == TEXTS
    assert encoder.embedded[0] == "calendar, tool 0: Does thing number 0"
    assert (read_manifest(home.index) or {})["count"] == TEXTS
    assert embed_missing(ready, writer, home) == 0
    assert len(encoder.embedded) == TEXTS


def test_a_text_that_two_cards_share_is_embedded_once(
    catalogue: Catalogue, encoder: WordEncoder, writer: Writer, home: Home, clock: Clock
) -> None:
    """Each of them has it in the index."""
    writer.registry.sight("calendar", [tool("add", "Add"), tool("ADD", "Add"), tool("list", "List")], clock.now)
    catalogue.attach(encoder, home.index)

    assert embed_missing(catalogue, writer, home) == 2
    assert (encoder.embedded, size(catalogue)) == (["calendar, add: Add", "calendar, list: List"], 3)


def test_without_an_encoder_nothing_is_done(catalogue: Catalogue, writer: Writer, home: Home, cards: int) -> None:
    """0, no lock, no index."""
    catalogue.refresh()

    assert embed_missing(catalogue, writer, home) == 0
    assert {path.name for path in home.folder.iterdir()} == {"roster.db", "roster.db-wal", "roster.db-shm"}


def test_held_cards_are_not_embedded(
    catalogue: Catalogue, encoder: WordEncoder, writer: Writer, home: Home, clock: Clock
) -> None:
    """Until they are cleared, nobody could see their vectors; the index is complete without them."""
    for description in ("before", "after"):
        writer.registry.sight("calendar", [tool("add", description), tool("list")], clock.now)
    catalogue.attach(encoder, home.index)

    assert embed_missing(catalogue, writer, home) == 1
    assert encoder.embedded == ["calendar, list: "]
    assert read_manifest(home.index) is not None


def test_a_complete_catalogue_still_saves_its_index(ready: Catalogue, writer: Writer, home: Home, clock: Clock) -> None:
    """A removal needs no embedding, and the file on disk must follow."""
    embed_missing(ready, writer, home)
    writer.registry.sight("calendar", [], clock.now)
    ready.refresh()

    assert embed_missing(ready, writer, home) == 0
    assert (read_manifest(home.index) or {})["count"] == 0


def test_stopping_keeps_what_was_done(
    ready: Catalogue, encoder: WordEncoder, writer: Writer, home: Home, connect: Any
) -> None:
    """It is asked between chunks; the half-filled index is not saved; the next one does only the rest."""
    assert embed_missing(ready, writer, home, stopping=lambda: len(encoder.embedded) >= 2 * CHUNK) == 2 * CHUNK
    assert stored(writer.db) == size(ready) == 2 * CHUNK
    assert not home.index.exists()

    after, encoder2 = Catalogue(connect(), ["calendar"]), WordEncoder()
    after.attach(encoder2, home.index)
    assert embed_missing(after, writer, home) == TEXTS - 2 * CHUNK
    assert not set(encoder2.embedded) & set(encoder.embedded)
    assert size(after) == TEXTS


def test_an_encoder_that_fails_costs_one_chunk(catalogue: Catalogue, writer: Writer, home: Home, cards: int) -> None:
    """What was embedded before is kept, and the turn is given back."""

    def fail(texts: Sequence[str]) -> None:
        if len(encoder.embedded) == CHUNK:
            raise EncoderError("out of memory")

    encoder = WordEncoder(before=fail)
    catalogue.attach(encoder, home.index)
    with pytest.raises(EncoderError):
        embed_missing(catalogue, writer, home)
    assert stored(writer.db) == CHUNK

    with FileLock(home.folder / "embedding.lock", timeout=0):
        pass


def test_a_card_that_changes_while_its_text_is_embedded_is_not_left_with_the_old_vector(
    catalogue: Catalogue, writer: Writer, home: Home, clock: Clock, connect: Callable[[], sqlite3.Connection]
) -> None:
    """Neither in the index nor in the database: nobody would ever take it out again."""
    sighting = Registry(connect())
    sighting.sight("calendar", [tool("add", "before"), tool("list")], clock.now)
    change = [tool("add", "after"), tool("list")]
    encoder = WordEncoder(before=lambda texts: sighting.sight("calendar", change, clock.now))
    catalogue.attach(encoder, home.index)
    embed_missing(catalogue, writer, home)
    catalogue.refresh()

    assert catalogue.dense is not None
    assert catalogue.dense.numbers == {2}
    assert stored(writer.db) == 1
    assert embed_missing(catalogue, writer, home) == 0


# ------------------------------------------------------------------------------- several at a time


def test_who_waits_for_its_turn_takes_over_what_appears(
    ready: Catalogue, encoder: WordEncoder, writer: Writer, home: Home, connect: Any
) -> None:
    """While another one embeds, its vectors are taken as they are committed, and none is embedded here."""
    others = Registry(connect())

    def store_the_rest() -> bool:
        for text_hash, entries in ready.unembedded().items():
            vectors = WordEncoder().encode_cards([dense_text(entries[0].card)])
            others.vectors.keep(encoder.fingerprint, [text_hash], vectors)
        return False

    with FileLock(home.folder / "embedding.lock"):
        assert embed_missing(ready, writer, home, stopping=store_the_rest) == 0

    assert (encoder.embedded, size(ready)) == ([], TEXTS)
    assert read_manifest(home.index) is not None


def test_who_is_stopped_while_waiting_gives_up(
    ready: Catalogue, encoder: WordEncoder, writer: Writer, home: Home
) -> None:
    """A process told to end does not wait for another one's embedding."""
    with FileLock(home.folder / "embedding.lock"):
        assert embed_missing(ready, writer, home, stopping=lambda: True) == 0

    assert (encoder.embedded, size(ready)) == ([], 0)
    assert not home.index.exists()


EMBED = """
import sys, time
from fakes import WordEncoder
from roster.catalogue import Catalogue
from roster.config import find_home
from roster.database import open_database
from roster.reindex import Writer, embed_missing

def slow(texts):
    print("chunk", flush=True)
    time.sleep(0.01)

home = find_home()
encoder = WordEncoder(before=slow)
catalogue = Catalogue(open_database(home.database), ["calendar"])
catalogue.attach(encoder, home.index)
print("ready", flush=True)
sys.stdin.readline()
done = embed_missing(catalogue, Writer(open_database(home.database)), home)
assert done == len(encoder.embedded)
print(done, len(catalogue.dense), flush=True)
"""


def start(home: Home) -> subprocess.Popen[str]:
    """A process that has found everything missing and waits for a line to begin embedding."""
    child = python(EMBED)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def go(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def test_processes_on_one_home_embed_every_text_once_between_them(
    home: Home, cards: int, catalogue: Catalogue, encoder: WordEncoder, db: sqlite3.Connection
) -> None:
    """All end with a complete index, and the file on disk is whole."""
    children = [start(home) for _ in range(3)]
    for child in children:
        go(child)
    said = [child.communicate(timeout=60) for child in children]
    results = [out.split()[-2:] for out, _ in said]

    assert [err for _, err in said] == ["", "", ""]
    assert sum(int(done) for done, _ in results) == TEXTS == stored(db)
    assert {int(size_) for _, size_ in results} == {TEXTS}
    catalogue.attach(encoder, home.index)
    assert size(catalogue) == TEXTS
    assert catalogue.save(home.index) is False  # it was loaded from the file


@pytest.mark.parametrize("chunks", [1, 2, 4, 6])
def test_a_process_killed_while_embedding_loses_one_chunk_at_most(
    home: Home, cards: int, catalogue: Catalogue, writer: Writer, chunks: int
) -> None:
    """The database is sound, the turn is free, and who comes next embeds only what was not committed."""
    child = start(home)
    go(child)
    with child:
        assert child.stdout is not None
        for _ in range(chunks):
            assert child.stdout.readline() == "chunk\n"
        child.kill()
        child.stdout.read()
    kept = stored(writer.db)
    assert min(TEXTS, (chunks - 1) * CHUNK) <= kept <= TEXTS
    assert kept % CHUNK == 0 or kept == TEXTS
    assert writer.db.execute("PRAGMA integrity_check").fetchone() == ("ok",)

    encoder = WordEncoder()
    catalogue.attach(encoder, home.index)
    assert size(catalogue) == kept
    assert embed_missing(catalogue, writer, home) == len(encoder.embedded) == TEXTS - kept
    assert stored(writer.db) == size(catalogue) == TEXTS

    reloaded = Catalogue(writer.db, ["calendar"])
    reloaded.attach(WordEncoder(), home.index)
    need = encoder.encode_needs(["thing number 7"])
    assert reloaded.dense is not None
    assert catalogue.dense is not None
    assert reloaded.dense.search(need, 5) == catalogue.dense.search(need, 5)
    assert reloaded.dense.search(need, 1)[0][0] == 8
