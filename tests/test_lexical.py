"""Cards by their words, and the contract that both indexes keep."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable

import pytest
from fakes import Clock, WordEncoder, tool
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from roster.dense import DenseIndex
from roster.lexical import FIELD_WEIGHTS, lexical_hits
from roster.registry import Registry

Hits = list[tuple[int, float]]


# ------------------------------------------------------------------------------- both indexes, one contract


class Words:
    """The full-text index, filled by hand."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def put(self, number: int, text: str) -> None:
        self.db.execute("INSERT INTO words (rowid, description) VALUES (?, ?)", (number, text))

    def drop(self, number: int) -> None:
        self.db.execute("DELETE FROM words WHERE rowid = ?", (number,))

    def search(self, need: str, k: int) -> Hits:
        return lexical_hits(self.db, need, k)


class Meaning:
    """The dense index, behind the fake encoder."""

    def __init__(self) -> None:
        self.encoder = WordEncoder()
        self.index = DenseIndex(self.encoder.dim)

    def put(self, number: int, text: str) -> None:
        self.index.put([number], self.encoder.encode_cards([text]))

    def drop(self, number: int) -> None:
        self.index.drop([number])

    def search(self, need: str, k: int) -> Hits:
        return self.index.search(self.encoder.encode_needs([need]), k)


@pytest.fixture(params=["words", "meaning"])
def index(request: pytest.FixtureRequest, db: sqlite3.Connection) -> Words | Meaning:
    return Words(db) if request.param == "words" else Meaning()


def test_an_empty_index_finds_nothing(index: Words | Meaning) -> None:
    """No card, no hit, no error."""
    assert index.search("add event", 5) == []


def test_an_index_smaller_than_k_gives_what_it_has(index: Words | Meaning) -> None:
    """Fewer hits, each card once, best first."""
    index.put(7, "add event")
    index.put(3, "add note soon")

    assert [number for number, _ in index.search("add event", 5)] == [7, 3]
    assert [number for number, _ in index.search("add event", 1)] == [7]


def test_equal_cards_have_equal_scores(index: Words | Meaning) -> None:
    """Twins are both found, with one score, whichever was there first."""
    for number in (9, 2, 5):
        index.put(number, "add event")
    index.put(4, "unrelated words altogether")
    hits = index.search("add event", 3)

    assert {number for number, _ in hits} == {9, 2, 5}
    assert len({score for _, score in hits}) == 1


def test_a_removed_card_is_not_found_and_can_return(index: Words | Meaning) -> None:
    """Its neighbours stay, under their own numbers."""
    for number, text in enumerate(("add event", "add note", "add file")):
        index.put(number, text)
    index.drop(1)
    assert {number for number, _ in index.search("add note", 5)} == {0, 2}

    index.put(1, "add note")
    assert index.search("add note", 1)[0][0] == 1


# ------------------------------------------------------------------------------------------------- words


def test_a_score_is_bm25_with_field_weights(db: sqlite3.Connection) -> None:
    """Robertson's BM25, k1 = 1.2, b = 0.75, term frequency weighted by field, worked by hand.

    Five cards of 2, 2, 4, 1 and 1 words, 2 on average; `add` is in two of them: idf = ln(3.5 / 2.5).
    """
    assert list(FIELD_WEIGHTS.values()) == [2.0, 1.0, 1.0, 0.5]
    rows = [("add", "event", "", ""), ("list", "event", "", ""), ("note", "add", "add", "add"), ("x", *[""] * 3),
            ("y", *[""] * 3)]  # fmt: skip
    for number, row in enumerate(rows, 1):
        db.execute("INSERT INTO words (rowid, name, description, parameters, server) VALUES (?, ?, ?, ?, ?)",
                   (number, *row))  # fmt: skip
    idf = math.log(3.5 / 2.5)
    in_name = idf * 2 * 2.2 / (2 + 1.2)
    elsewhere = idf * 2.5 * 2.2 / (2.5 + 1.2 * (0.25 + 0.75 * 4 / 2))

    hits = lexical_hits(db, "add", 5)
    assert [number for number, _ in hits] == [1, 3]
    assert [score for _, score in hits] == pytest.approx([in_name, elsewhere], rel=1e-12)


def test_equal_scores_come_in_order_of_card_number(db: sqlite3.Connection) -> None:
    """Never by chance, also where k cuts through them."""
    for number in (9, 2, 5):
        Words(db).put(number, "add event")

    assert [number for number, _ in lexical_hits(db, "event", 2)] == [2, 5]


@pytest.mark.parametrize(
    ("need", "names"),
    [
        ("add events to the calendar", ["add_event"]),
        ("addevent", ["add_event"]),
        ("AddEvent", ["add_event"]),
        ("日程を追加したい", ["追加"]),
        ("resume of a cafe", ["menu"]),
        ("for whom the bell tolls", []),
        ("", []),
        ("?!", []),
    ],
)
@pytest.mark.report("bagofwords1/bagofwords#361")
def test_a_need_finds_the_cards_it_shares_words_with(
    db: sqlite3.Connection, registry: Registry, clock: Clock, need: str, names: list[str]
) -> None:
    """By stem, by a whole name, without accents, in scripts without spaces; never by a phrasing word alone."""
    rows = [tool("add_event", "Adds an entry"), tool("追加", "日程を追加する"), tool("menu", "The menu of a Café"),
            tool("other", "Something for you")]  # fmt: skip
    registry.sight("cal", rows, clock.now)
    hits = lexical_hits(db, need, 5)

    assert [rows[number - 1]["name"] for number, _ in hits] == names
    assert all(score > 0 for _, score in hits)


@given(need=st.text())
@example(need='" OR name:x* NEAR(a b) AND NOT -')
@example(need="ﾞ add")
@example(need="\ud800\0")
@example(need="word " * 5000)
@example(need=" ".join(f"w{n}" for n in range(5000)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_need_breaks_the_query(db: sqlite3.Connection, need: str) -> None:
    """Quotes, operators and column names are words like any other; very long needs are cut."""
    Words(db).put(1, "add event")
    for number, score in lexical_hits(db, need, 3):
        assert number == 1
        assert score > 0
    Words(db).drop(1)


def test_a_very_long_need_is_read_up_to_its_256th_word(db: sqlite3.Connection) -> None:
    """What is looked up stays bounded, whatever a client sends."""
    Words(db).put(1, "add event")
    before = [str(number) for number in range(255)]

    assert lexical_hits(db, " ".join([*before, "event"]), 1) != []
    assert lexical_hits(db, " ".join([*before, "one-more", "event"]), 1) == []


def test_what_another_connection_commits_is_found(
    db: sqlite3.Connection, connect: Callable[[], sqlite3.Connection], registry: Registry, clock: Clock
) -> None:
    """There is no second index to keep in step between processes."""
    reading = connect()
    registry.sight("cal", [tool("add_event")], clock.now)

    assert [number for number, _ in lexical_hits(reading, "add", 3)] == [1]
