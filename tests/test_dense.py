"""Nearest cards by meaning: exact values, and an index file that is either whole and the wanted one, or not used."""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roster.dense import DenseIndex, Manifest, corpus_hash, load_index, read_manifest, save_index
from roster.errors import DimensionError
from roster.vectors import Vectors, unit_rows


def rows(*values: Sequence[float]) -> Vectors:
    return unit_rows(np.array(values, np.float32))


EAST, NORTH, NORTHEAST, WEST = [1, 0], [0, 1], [1, 1], [-1, 0]
HALF = 2**-0.5


@pytest.fixture
def index() -> DenseIndex:
    """Cards 10 (east), 20 (north), 30 (north-east)."""
    made = DenseIndex(2)
    made.put([10, 20, 30], rows(EAST, NORTH, NORTHEAST))
    return made


def test_similarity_is_cosine_best_first(index: DenseIndex) -> None:
    """Values worked by hand: cos 0° = 1, cos 45° = √½, cos 90° = 0."""
    hits = index.search(rows(EAST), 3)

    assert [number for number, _ in hits] == [10, 30, 20]
    assert [similarity for _, similarity in hits] == pytest.approx([1, HALF, 0], abs=1e-6)
    assert index.search(rows(WEST), 1)[0] == (20, pytest.approx(0, abs=1e-6))


def test_the_floor_is_the_similarity_of_the_farthest_card(index: DenseIndex) -> None:
    """The other end of the scale that blending needs, negative values included; 0 when there is no card."""
    assert index.floor(rows(EAST)) == pytest.approx(0, abs=1e-6)
    assert index.floor(rows(WEST)) == pytest.approx(-1)
    assert DenseIndex(2).floor(rows(EAST)) == 0


def test_a_search_among_some_cards_sees_no_others(index: DenseIndex) -> None:
    """Nearer ones that are not among them take nobody's place, at either end; of none there is nothing to find."""
    assert [number for number, _ in index.search(rows(EAST), 1, [20, 30, 99])] == [30]
    assert index.floor(rows(EAST), [10, 30]) == pytest.approx(HALF, abs=1e-6)
    assert index.search(rows(EAST), 3, []) == []
    assert index.floor(rows(EAST), []) == 0


def test_similarities_of_chosen_cards_are_those_of_search(index: DenseIndex) -> None:
    """Cards that are not there are left out."""
    assert index.similarities(rows(NORTH), [30, 99, 10]) == {
        30: pytest.approx(HALF, abs=1e-6),
        10: pytest.approx(0, abs=1e-6),
    }
    assert index.similarities(rows(NORTH), [99]) == {}


def test_a_card_put_twice_is_there_once_with_its_last_vector(index: DenseIndex) -> None:
    """Replacing does not leave the old row to be found."""
    index.put([10, 40], rows(WEST, EAST))

    assert len(index) == 4
    assert index.numbers == {10, 20, 30, 40}
    assert [number for number, _ in index.search(rows(EAST), 9)] == [40, 30, 20, 10]
    assert index.similarities(rows(WEST), [10]) == {10: pytest.approx(1)}


def test_dropping_ignores_what_is_not_there(index: DenseIndex) -> None:
    """The rest keeps its numbers; an emptied index finds nothing and takes cards again."""
    index.drop([10, 99])
    assert (10 in index, 20 in index, len(index)) == (False, True, 2)
    assert [number for number, _ in index.search(rows(NORTHEAST), 5)] == [30, 20]

    index.drop([20, 30])
    index.put([], np.zeros((0, 2), np.float32))
    assert index.search(rows(EAST), 5) == []
    index.put([20], rows(EAST))
    assert [number for number, _ in index.search(rows(EAST), 5)] == [20]


@pytest.mark.parametrize("bad", [np.ones((1, 3), np.float32), np.ones((1, 1), np.float32), np.ones(2, np.float32)])
@pytest.mark.parametrize("use", ["search", "put", "similarities", "floor"])
def test_vectors_of_another_width_are_refused_in_words(index: DenseIndex, bad: Any, use: str) -> None:
    """A DimensionError naming both widths, not FAISS's bare assertion; the index is as before."""
    calls: dict[str, Callable[[], object]] = {
        "search": lambda: index.search(bad, 1),
        "put": lambda: index.put([10], bad),
        "similarities": lambda: index.similarities(bad, [10]),
        "floor": lambda: index.floor(bad),
    }
    with pytest.raises(DimensionError, match=r"width 2"):
        calls[use]()
    assert len(index) == 3


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 7)), max_size=30))
def test_any_history_of_puts_and_drops_ends_in_what_is_left(steps: list[tuple[bool, int, int]]) -> None:
    """The index always holds exactly the last vector of every card not dropped since."""
    index, expected = DenseIndex(8), {}
    for put, number, axis in steps:
        if put:
            index.put([number], np.eye(8, dtype=np.float32)[[axis]])
            expected[number] = axis
        else:
            index.drop([number])
            expected.pop(number, None)

    assert index.numbers == expected.keys()
    for axis in range(8):
        found = {number for number, similarity in index.search(np.eye(8, dtype=np.float32)[[axis]], 9) if similarity}
        assert found == {number for number, its in expected.items() if its == axis}


def test_the_corpus_hash_ignores_order_and_notices_everything_else() -> None:
    """Of (number, text hash), both count."""
    corpus = [(1, "a"), (2, "b")]
    others = [[(1, "b"), (2, "a")], [(1, "a")], [(1, "a"), (3, "b")], [], [(1, "a2"), (2, "b")], [(12, "a"), (2, "b")]]

    assert corpus_hash(corpus) == corpus_hash(reversed(corpus))
    assert len({corpus_hash(rows_) for rows_ in [corpus, *others]}) == 7


# ------------------------------------------------------------------------------------------------ file

MANIFEST = Manifest("encoder", 2, 3, corpus_hash([(10, "a"), (20, "b"), (30, "c")]), 1)


@pytest.fixture
def folder(tmp_path: Path, index: DenseIndex) -> Path:
    """A folder with a saved index."""
    save_index(tmp_path / "index", index, MANIFEST)
    return tmp_path / "index"


def test_a_saved_index_is_loaded_as_it_was(folder: Path, index: DenseIndex) -> None:
    """The same hits to the bit; cards can be put and dropped as before; the manifest says what it is."""
    loaded = load_index(folder, MANIFEST)

    assert loaded is not None
    assert loaded.numbers == index.numbers
    assert loaded.search(rows([3, 4]), 9) == index.search(rows([3, 4]), 9)
    loaded.put([10], rows(WEST))
    loaded.drop([20])
    assert [number for number, _ in loaded.search(rows(WEST), 9)] == [10, 30]
    assert (read_manifest(folder) or {}).items() >= asdict(MANIFEST).items()


def test_an_empty_index_can_be_saved(tmp_path: Path) -> None:
    """A home without cards has an index too."""
    manifest = replace(MANIFEST, count=0)
    save_index(tmp_path, DenseIndex(2), manifest)
    loaded = load_index(tmp_path, manifest)

    assert loaded is not None
    assert len(loaded) == 0


@pytest.mark.parametrize(
    "other",
    [{"encoder": "x"}, {"dim": 3}, {"count": 2}, {"corpus": "x"}, {"card_text": 2}, {"format": 2}],
    ids=lambda other: next(iter(other)),
)
def test_an_index_of_something_else_is_not_used(folder: Path, other: dict[str, Any]) -> None:
    """Any difference in the manifest, whichever side it is on, means: build it anew."""
    assert load_index(folder, replace(MANIFEST, **other)) is None

    described = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(described | other))
    assert load_index(folder, MANIFEST) is None


def _edit(**fields: Any) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        described = json.loads((folder / "manifest.json").read_text()) | fields
        (folder / "manifest.json").write_text(json.dumps({k: v for k, v in described.items() if v is not ...}))

    return edit


def _file(folder: Path) -> Path:
    (file,) = folder.glob("*.faiss")
    return file


def _flip(folder: Path) -> None:
    content = bytearray(_file(folder).read_bytes())
    content[-3] ^= 1
    _file(folder).write_bytes(content)


def _not_faiss(folder: Path) -> None:
    content = b"written by a FAISS that is newer than this one"
    _file(folder).write_bytes(content)
    _edit(size_bytes=len(content), crc32=zlib.crc32(content))(folder)


def _outside(folder: Path) -> None:
    (folder.parent / "outside.faiss").write_bytes(_file(folder).read_bytes())
    _edit(file="../outside.faiss")(folder)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda f: _file(f).write_bytes(_file(f).read_bytes()[:-5]), id="truncated"),
        pytest.param(lambda f: _file(f).write_bytes(b""), id="empty"),
        pytest.param(lambda f: _file(f).write_bytes(_file(f).read_bytes() + b"\0"), id="longer"),
        pytest.param(_flip, id="flipped bit"),
        pytest.param(_not_faiss, id="whole but unreadable"),
        pytest.param(lambda f: _file(f).unlink(), id="file missing"),
        pytest.param(lambda f: (f / "manifest.json").unlink(), id="manifest missing"),
        pytest.param(lambda f: (f / "manifest.json").write_bytes(b"{"), id="manifest cut"),
        pytest.param(lambda f: (f / "manifest.json").write_bytes(b"\xff\xfe"), id="manifest not text"),
        pytest.param(lambda f: (f / "manifest.json").write_bytes(b"[]"), id="manifest no object"),
        pytest.param(_edit(crc32=0), id="wrong checksum"),
        pytest.param(_edit(size_bytes=1), id="wrong size"),
        pytest.param(_edit(file=...), id="no file named"),
        pytest.param(_edit(encoder=...), id="no encoder named"),
        pytest.param(_edit(more=1), id="a field too many"),
        pytest.param(_edit(file=7), id="odd file name"),
        pytest.param(_edit(file=".."), id="folder for a file"),
        pytest.param(_outside, id="a file outside the folder"),
    ],
)
def test_a_damaged_index_is_not_used(folder: Path, damage: Callable[[Path], object]) -> None:
    """It is only a cache: None, no error, and the next save mends it."""
    damage(folder)
    assert load_index(folder, MANIFEST) is None

    index = DenseIndex(2)
    index.put([10, 20, 30], rows(EAST, NORTH, NORTHEAST))
    save_index(folder, index, MANIFEST)
    assert load_index(folder, MANIFEST) is not None


@pytest.mark.parametrize("content", [None, b"{", b"[]", b"{}", b'{"count": 1}'])
def test_a_manifest_that_cannot_be_read_is_none(tmp_path: Path, content: bytes | None) -> None:
    """`roster status` shows what is there, whatever it is."""
    if content is not None:
        (tmp_path / "manifest.json").write_bytes(content)

    assert read_manifest(tmp_path) is None
    assert load_index(tmp_path / "none", MANIFEST) is None


def test_a_new_index_replaces_the_old_files(folder: Path, index: DenseIndex) -> None:
    """One index file and its manifest are left, for their owner only; the old one is not loaded any more."""
    left = folder / "cards-old.faiss.123.tmp"
    left.touch()
    os.utime(left, (0, 0))  # by a process that was killed long ago
    newer = replace(MANIFEST, corpus="c" * 64)
    save_index(folder, index, newer)

    assert sorted(path.name for path in folder.iterdir()) == ["cards-cccccccccccccccc-encoder.faiss", "manifest.json"]
    assert load_index(folder, MANIFEST) is None
    assert load_index(folder, newer) is not None
    if os.name == "posix":
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("moment", [0, 1])
def test_a_save_cut_short_leaves_nothing_wrong(
    folder: Path, index: DenseIndex, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before either file is swapped in, the old index is whole, and nothing claims to be the new one."""
    real, calls = Path.replace, []

    def cut(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) > moment:
            raise KeyboardInterrupt
        return real(self, target)

    newer = replace(MANIFEST, corpus="c" * 64)
    monkeypatch.setattr(Path, "replace", cut)
    with pytest.raises(KeyboardInterrupt):
        save_index(folder, index, newer)

    assert load_index(folder, MANIFEST) is not None
    assert load_index(folder, newer) is None


@pytest.mark.parametrize("moment", [0, 1])
def test_two_processes_that_save_at_once_do_not_trip_each_other(
    folder: Path, index: DenseIndex, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cleaning up leaves the file that another process is just writing; what is left can be loaded, or built anew."""
    real, calls = os.fsync, []
    other, mine = replace(MANIFEST, corpus="a" * 64), replace(MANIFEST, corpus="b" * 64)
    pid = os.getpid()

    def meanwhile(descriptor: int) -> None:
        real(descriptor)
        calls.append(descriptor)
        if len(calls) == moment + 1:
            with monkeypatch.context() as patched:
                patched.setattr(os, "getpid", lambda: pid + 1)
                save_index(folder, index, other)

    monkeypatch.setattr(os, "fsync", meanwhile)
    save_index(folder, index, mine)

    assert load_index(folder, other) is None or load_index(folder, mine) is None
    save_index(folder, index, mine)
    assert load_index(folder, mine) is not None
