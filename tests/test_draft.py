"""A need becomes a draft: names first, then meaning and words, then what works here; the same every time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from fakes import Clock, WordEncoder, tool
from hypothesis import given
from hypothesis import strategies as st

from roster.cards import card_from_tool
from roster.catalogue import Catalogue
from roster.config import Home
from roster.draft import (
    DEFAULT_K,
    MAX_K,
    MAX_NEED_CHARACTERS,
    Draft,
    Drafted,
    DraftMemory,
    checked_k,
    checked_need,
    draft,
    names_in,
)
from roster.errors import NeedError
from roster.history import Tally
from roster.ranking import ALIKE, DENSE_WEIGHT, LEXICAL_HALF, Match
from roster.reindex import Writer, embed_missing

CALENDAR = [
    tool("add_event", "Add an event to the calendar"),
    tool("list_events", "List the events of a day"),
    tool("deleteEvent", "Remove an event for good"),
    tool("search", "Look for events by their words"),
]
FILES = [
    tool("read_file", "Read a file from disk"),
    tool("search", "Look for files by their words"),
    tool("翻訳", "文書を日本語に翻訳する"),
]


@pytest.fixture
def cards(writer: Writer, clock: Clock) -> Callable[..., Any]:
    """Sight a listing, `calendar`'s unless said otherwise."""
    return lambda *rows, server="calendar": writer.registry.sight(server, rows, clock.now)


@pytest.fixture
def filled(catalogue: Catalogue, writer: Writer, home: Home, encoder: WordEncoder, cards: Any) -> Catalogue:
    """Two servers' cards, all embedded by the fake encoder."""
    cards(*CALENDAR)
    cards(*FILES, server="files")
    catalogue.attach(encoder, home.index)
    embed_missing(catalogue, writer, home)
    return catalogue


@pytest.fixture
def wordy(catalogue: Catalogue, cards: Any) -> Catalogue:
    """The same cards without an encoder: only cards that share a word match."""
    cards(*CALENDAR)
    cards(*FILES, server="files")
    return catalogue


def ids(made: Draft) -> list[str]:
    return [starter.card.id for starter in made.starters]


# ------------------------------------------------------------------------------------------- ranking


@pytest.mark.report(
    "samanhappy/mcphub#748",
    "finchtoys/finch-releases#23",
    "anthropics/claude-code#14978",
    "anthropics/claude-code#89306",
)
def test_a_need_in_a_cards_own_words_drafts_that_card_first(filled: Catalogue) -> None:
    """Five cards by default, best first, out of a ranking of all of them."""
    made = draft(filled, "add an event to the calendar")

    assert len(made.starters) == DEFAULT_K
    assert ids(made)[0] == "calendar__add_event"
    assert len(made.ranking) == len(CALENDAR) + len(FILES)
    assert list(made.ranking[:5]) == ids(made)
    assert made.need == "add an event to the calendar"


@pytest.mark.report("docker/mcp-gateway#420")
def test_a_drafts_numbers_are_those_of_every_stage(
    catalogue: Catalogue, writer: Writer, home: Home, cards: Any
) -> None:
    """Cosine, BM25 and the blend, worked by hand from two cards of counted words.

    "calendar, add: add note" is the bag (calendar, add, add, note), "calendar, drop: gone" (calendar, drop, gone).
    """
    cards(tool("add", "add note"), tool("drop", "gone"))
    catalogue.attach(WordEncoder(), home.index)
    embed_missing(catalogue, writer, home)
    first, second = (starter.scored for starter in draft(catalogue, "calendar note").starters)

    add, drop = 2 / math.sqrt(2 * 6), 1 / math.sqrt(2 * 3)
    assert (first.similarity, second.similarity) == pytest.approx((add, drop), abs=1e-6)
    behind = 1 - (add - drop) / ALIKE  # they are alike, so the scale is not stretched to what lies between them
    assert (first.dense, second.dense) == pytest.approx((1.0, behind), abs=1e-5)
    assert second.bm25 is not None
    assert first.bm25 is not None
    assert first.lexical == pytest.approx(first.bm25 / (first.bm25 + LEXICAL_HALF))
    share = (1 - DENSE_WEIGHT) / (first.bm25 + LEXICAL_HALF)
    assert second.score == pytest.approx(DENSE_WEIGHT * behind + share * second.bm25, abs=1e-5)
    assert first.score == pytest.approx(DENSE_WEIGHT + share * first.bm25, abs=1e-5)


def test_the_same_need_gives_the_same_draft(filled: Catalogue, connect: Any, home: Home) -> None:
    """Again, and in another process that loaded the index from its file."""
    other = Catalogue(connect(), ["calendar", "files"])
    other.attach(WordEncoder(), home.index)

    for need in ("look for events", "file", "翻訳", "nothing like it"):
        assert draft(filled, need, 10) == draft(filled, need, 10) == draft(other, need, 10)


def test_equal_cards_come_in_the_order_they_were_first_seen(catalogue: Catalogue, cards: Any) -> None:
    """Ties are never broken by chance."""
    cards(*(tool(f"tool_{letter}", "Do it") for letter in "dbca"))

    assert ids(draft(catalogue, "do it", 4)) == [f"calendar__tool_{letter}" for letter in "dbca"]


@pytest.mark.parametrize("k", [1, 2, MAX_K])
def test_k_is_a_maximum(filled: Catalogue, k: int) -> None:
    """Not a promise: with fewer cards there are fewer starters."""
    assert len(draft(filled, "event", k).starters) == min(k, 7)


def test_without_cards_a_draft_is_empty(catalogue: Catalogue, encoder: WordEncoder, home: Home) -> None:
    """With and without an encoder; the encoder is not even asked."""
    assert draft(catalogue, "add event").starters == ()
    catalogue.attach(encoder, home.index)

    assert draft(catalogue, "add event").ranking == ()
    assert encoder.needs == []


def test_a_need_in_a_script_without_spaces_finds_its_card_by_words(filled: Catalogue) -> None:
    """Pairs of characters are shared even where no whole word is."""
    made = draft(filled, "この文書を英語に翻訳してください", 1)

    assert made.starters[0].card.name == "翻訳"
    scored = made.starters[0].scored
    assert scored.similarity == pytest.approx(0, abs=1e-6)
    assert scored.lexical


def test_a_card_without_a_vector_yet_is_judged_by_its_words(filled: Catalogue, cards: Any) -> None:
    """A tool that was sighted a moment ago is drafted before it is embedded."""
    cards(*CALENDAR, tool("invite_guests", "Invite guests by mail"))
    (first, *_) = draft(filled, "invite guests by mail").starters

    assert first.card.id == "calendar__invite_guests"
    assert (first.scored.similarity, first.scored.dense, first.scored.score) == (None, None, 1.0)


def test_cards_that_are_held_or_gone_are_never_drafted(filled: Catalogue, cards: Any) -> None:
    """Not by words, not by meaning, not by name, not by their record."""
    changed = tool("add_event", "Add an event, and mail everybody")
    cards(changed, *CALENDAR[2:])
    tallies = {name: Tally(9, 9, 1.0) for name in ("calendar__add_event", "calendar__list_events")}
    for need in ("add_event", "list_events", "mail everybody about list of events"):
        made = draft(filled, need, MAX_K, lambda: tallies)

        assert len(made.starters) == 5
        assert not {"calendar__add_event", "calendar__list_events"} & {*ids(made), *made.ranking}


# --------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("need", "first"),
    [
        ("use add_event, please", {"calendar__add_event"}),
        ("look for files with `deleteEvent`.", {"calendar__deleteEvent"}),
        ("DELETEEVENT", {"calendar__deleteEvent"}),
        ("files__search for events", {"files__search"}),
        ("search", {"calendar__search", "files__search"}),
        ("read_file, then (list_events)", {"files__read_file", "calendar__list_events"}),
        ("翻訳", {"files__翻訳"}),
    ],
)
def test_cards_that_a_need_names_come_first(filled: Catalogue, need: str, first: set[str]) -> None:
    """By name or id, whatever else the need is about; several names all count."""
    made = draft(filled, need, MAX_K)
    named = {starter.card.id for starter in made.starters if starter.scored.named}

    assert {f"{s.card.server}__{s.card.name}" for s in made.starters if s.scored.named} == first
    assert {starter.card.id for starter in made.starters[: len(first)]} == named
    assert all(starter.scored.score >= 1 for starter in made.starters[: len(first)])


@pytest.mark.parametrize("need", ["search all files", "Read my mail", "add an event today", "list, search and read"])
def test_plain_words_name_nothing(filled: Catalogue, need: str) -> None:
    """`search` in a sentence is a verb, not the tool `search`."""
    assert filled.named(names_in(need)) == set()


@pytest.mark.parametrize(
    "need", ["Add an event", "list the events?", "Calendar: list events", "LIST-EVENTS", "addEvent"]
)
def test_a_need_that_is_nothing_but_a_name_names_its_card(filled: Catalogue, need: str) -> None:
    """However it is joined and written, with the server's name or without."""
    best = draft(filled, need).starters[0]
    assert best.scored.named
    assert best.card.name == ("add_event" if "dd" in need.lower() else "list_events")


def test_a_name_in_a_sentence_may_be_joined_in_another_way(filled: Catalogue) -> None:
    """`delete_event` for `deleteEvent` and the other way round; a hyphen is ordinary writing and joins nothing."""
    assert draft(filled, "please use delete_event for this").starters[0].scored.named
    assert draft(filled, "call addEvent for tomorrow's talk").starters[0].scored.named
    assert not draft(filled, "the add-event for tomorrow's talk").starters[0].scored.named


@pytest.mark.parametrize(
    ("need", "names"),
    [
        ("search", {"search"}),
        ("Search!", {"search"}),
        ("call create_issue and githubSearch", {"create_issue", "createissue", "githubsearch"}),
        ('run "notes-2".', {"notes-2"}),
        ("v2 of files.read", {"files.read"}),
        ("?!", set()),
    ],
)
def test_what_looks_like_an_identifier_may_name_a_card(need: str, names: set[str]) -> None:
    """Anything but a plain word, without the punctuation around it; a word alone may be a name too."""
    words = "and so on, for as long as it takes"  # longer than any name, so that the need as a whole names nothing
    assert names_in(f"{need} {words}" if len(need.split()) > 1 else need) >= names
    if len(need.split()) > 1:
        assert names_in(f"{need} {words}") == names


@pytest.mark.report("mcp-use/mcp-use#138")
def test_a_need_the_encoder_cannot_read_is_drafted_by_words(filled: Catalogue, encoder: WordEncoder) -> None:
    """Its vector says nothing then, so the card that shares characters wins over the nearest one."""
    encoder.unknown = 0.5
    made = draft(filled, "calendar 訳す 日本語")

    assert made.unread == 0.5
    assert made.starters[0].card.name == "翻訳"
    encoder.unknown = 0.0
    assert draft(filled, "calendar 訳す 日本語").starters[0].card.name != "翻訳"


# ------------------------------------------------------------------------------------ several steps


def test_every_step_of_a_long_need_counts(filled: Catalogue) -> None:
    """A need of several steps drafts a card for each, where one vector of it all would see the longer one only."""
    long = "Add one event to the calendar: Monday, nine sharp, second floor, bring coffee, tea, cake, plates, forks. "
    made = draft(filled, f"{long}Then read a file from disk.", 2)

    assert {*ids(made)} == {"calendar__add_event", "files__read_file"}
    steps = {card.id: scored.step for card, scored in made.running}
    assert steps["calendar__add_event"] == steps["files__read_file"] == pytest.approx(1.0)


def test_a_single_step_is_encoded_once(filled: Catalogue, encoder: WordEncoder) -> None:
    """Short needs, and long ones that cannot be taken apart, cost one text."""
    for need in ("Add an event. Then list the events.", "event " * 40):
        before = len(encoder.needs)
        made = draft(filled, need)
        assert len(encoder.needs) == before + 1
        assert {scored.step for _, scored in made.running} == {None}


# ---------------------------------------------------------------------------------------- weak match


def test_a_need_that_nothing_fits_gets_rated_cards_or_none(filled: Catalogue, encoder: WordEncoder) -> None:
    """What was in the running stays visible, and is no alternate either; a named card is never weak."""
    encoder.match_floor = 0.3
    none = draft(filled, "zxqv wvut", 5)
    rated = draft(filled, "zxqv wvut", 5, lambda: {"files__search": Tally(2, 2, 1.0)})

    assert (none.match, none.starters, none.ranking) == (Match.NONE, (), ())
    assert len(none.running) == 7
    assert [(s.card.id, s.rated) for s in rated.starters] == [("files__search", True)]
    assert draft(filled, "add an event to the calendar").match is Match.CLEAR
    assert draft(filled, "search").match is Match.CLEAR
    assert draft(filled, "zxqv wvüt").match is Match.CLEAR
    encoder.match_floor = None
    assert len(draft(filled, "zxqv wvut", 5).starters) == 5


# ------------------------------------------------------------------------------------------ fallback


def test_rated_cards_fill_a_draft_that_too_few_cards_match(wordy: Catalogue) -> None:
    """Best record first (successes over calls plus two), then most recent; never without a success, never twice."""
    tallies = {
        "calendar__add_event": Tally(2, 2, 5.0),  # 2/4, used lately
        "calendar__list_events": Tally(10, 5, 9.0),  # 5/12
        "calendar__search": Tally(8, 5, 1.0),  # 5/10, long ago
        "files__search": Tally(30, 0, 9.0),
        "files__read_file": Tally(99, 99, 9.0),
        "gone__tool": Tally(99, 99, 9.0),
    }
    made = draft(wordy, "disk", 10, lambda: tallies)

    assert ids(made) == ["files__read_file", "calendar__add_event", "calendar__search", "calendar__list_events"]
    assert [starter.rated for starter in made.starters] == [False, True, True, True]
    assert [starter.wire().get("basis") for starter in made.starters] == [None, "rated", "rated", "rated"]
    assert made.ranking == ("files__read_file",)
    assert ids(draft(wordy, "disk", 2, lambda: tallies)) == ids(made)[:2]


def test_the_record_is_read_only_when_it_is_needed(filled: Catalogue) -> None:
    """A draft that is full asks nobody; one that is not asks once."""
    asked: list[int] = []

    def tallies() -> Mapping[str, Tally]:
        asked.append(1)
        return {}

    draft(filled, "event", 5, tallies)
    assert asked == []
    draft(filled, "event", 10, tallies)
    assert asked == [1]


# ------------------------------------------------------------------------------------------ the door


@pytest.mark.parametrize("need", ["x", " add ", "n" * MAX_NEED_CHARACTERS, "\ud800"])
def test_a_need_of_any_words_is_taken_as_it_is(need: str) -> None:
    """Up to 20,000 characters."""
    assert checked_need(need) == need


@pytest.mark.parametrize(
    ("need", "says"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("n" * (MAX_NEED_CHARACTERS + 1), r"20,001 characters, at most 20,000"),
        (None, "need is missing"),
        (7, "a string, not a number"),
        (["add"], "a string, not an array"),
        ({"need": "add"}, "a string, not an object"),
        (True, "a string, not a boolean"),
    ],
)
def test_a_need_that_cannot_be_drafted_for_is_refused_in_words(need: Any, says: str) -> None:
    """The message says what is wrong and what to send, and repeats no long need."""
    with pytest.raises(NeedError, match=rf"{says}.*: say ") as raised:
        checked_need(need)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(("k", "expected"), [(None, DEFAULT_K), (1, 1), (10, 10), (3.0, 3)])
def test_k_is_five_unless_said(k: Any, expected: int) -> None:
    """A whole number in either form JSON has for it."""
    assert checked_k(k) == expected


@pytest.mark.parametrize("k", [0, 11, -1, 2.5, "5", True, [5], math.inf, math.nan])
def test_a_k_out_of_range_is_refused(k: Any) -> None:
    """The message names the value and the range."""
    with pytest.raises(NeedError, match="whole number from 1 to 10"):
        checked_k(k)


@given(st.text(min_size=1))
def test_any_need_has_names_that_can_be_looked_up(need: str) -> None:
    """No text breaks the first pass."""
    assert all(isinstance(name, str) for name in names_in(need))


# -------------------------------------------------------------------------------------------- memory


def test_a_draft_is_remembered_by_its_id(wordy: Catalogue) -> None:
    """What was shown first, then the rest of the ranking, each card once; no words of the need."""
    memory = DraftMemory()
    made = draft(wordy, "events", 2, lambda: {"files__read_file": Tally(1, 1, 1.0)})
    draft_id = memory.remember(made)
    rated = draft(wordy, "disk", 2, lambda: {"calendar__search": Tally(1, 1, 1.0)})

    assert list(memory.find(draft_id).ids) == list(made.ranking)
    assert len(made.ranking) > 2
    assert list(memory.find(memory.remember(rated)).ids) == ["files__read_file", "calendar__search"]
    assert "events" not in repr(vars(memory)).replace("list_events", "")


@pytest.mark.parametrize("unknown", ["d00000000", "", None, 7, ["d0"], {}])
def test_an_unknown_draft_id_is_none(unknown: Any) -> None:
    """Whatever a client sends."""
    memory = DraftMemory()
    memory.remember(Draft("n", (), ("a",)))

    assert memory.find(unknown) is None


def test_the_oldest_drafts_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long connection stays small; ids are unique even when chance repeats itself."""
    draws = iter(["same", "same", "other", "same", "other", "third"])
    monkeypatch.setattr("secrets.token_hex", lambda size: next(draws))
    memory = DraftMemory(limit=2)
    made = [memory.remember(Draft("n", (), (name,))) for name in "abc"]

    assert len(set(made)) == 3
    assert [found and found.ids for found in map(memory.find, made)] == [None, ("b",), ("c",)]


def test_a_draft_is_of_the_cards_as_they_were() -> None:
    """One whose definition changed since is another card: a call of it says nothing of that need."""
    before = card_from_tool("post", tool("send", "Send a letter"))
    after = card_from_tool("post", tool("send", "Send a letter, and a copy"))
    drafted = Drafted((before.id,), prints={before.id: before.fingerprint})

    assert drafted.holds(before)
    assert not drafted.holds(after)
    assert not drafted.holds(card_from_tool("post", tool("other")))
