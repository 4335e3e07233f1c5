"""Cards: ids that never collide, fingerprints that notice the contract and nothing else, the texts searched."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from fakes import tool
from hypothesis import example, given
from hypothesis import strategies as st

from roster import cards
from roster.cards import (
    ID_LIMIT,
    LISTED_LIMIT,
    Kind,
    card_from_skill,
    card_from_tool,
    dense_text,
    fingerprint,
    lexical_text,
    listed_name,
    parameter_names,
    public_id,
    raw_json,
    skill_id,
    text_hash,
)

# Names as they come, and names made to meet: few letters, underscores and what is replaced by a dash.
_NAMES = st.text(max_size=80) | st.text(st.sampled_from("ab_-. é"), max_size=8) | st.text("a_", min_size=50)
_PAIRS = st.tuples(_NAMES, _NAMES)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)

# ---------------------------------------------------------------------------------------------- names


@given(st.lists(_PAIRS, min_size=2, max_size=12, unique=True), st.sampled_from([ID_LIMIT, LISTED_LIMIT]))
@example([("a", "_b"), ("a_", "b")], ID_LIMIT)
@example([("a__b", "c"), ("a", "b__c")], ID_LIMIT)
@example([("a", "b c"), ("a", "b-c")], ID_LIMIT)
@example([("a", ""), ("", "a__")], ID_LIMIT)
@example([("s", "x" * 80), ("s", "x" * 81)], LISTED_LIMIT)
@example([("\ud800", "a"), ("\ud801", "a")], ID_LIMIT)
@pytest.mark.report("peakflo/20x#533")
def test_no_two_names_share_a_public_id(pairs: list[tuple[str, str]], limit: int) -> None:
    """Whatever servers and tools are called, ids differ, are short enough and hold `[A-Za-z0-9_-]` only."""
    ids = [public_id(server, name, limit) for server, name in pairs]

    assert len(set(ids)) == len(pairs)
    assert all(re.fullmatch(rf"[A-Za-z0-9_-]{{1,{limit}}}", id_) for id_ in ids)


def test_a_name_that_imitates_a_hashed_id_gets_a_hash_of_its_own() -> None:
    """A tool cannot take another one's id by spelling out what that name was cut to."""
    cut = public_id("s", "x" * 80)
    server, _, name = cut.partition("__")

    assert public_id(server, name) != cut


@pytest.mark.parametrize(
    ("server", "name", "expected"),
    [
        ("calendar", "add_event", "calendar__add_event"),
        ("my-files", "read__all", "my-files__read__all"),
        ("s", "n" * 57, "s__" + "n" * 57),
    ],
)
def test_a_plain_name_is_its_own_id(server: str, name: str, expected: str) -> None:
    """`server__tool`, without a hash, up to and including the limit."""
    assert public_id(server, name) == expected


@pytest.mark.parametrize(
    ("server", "name", "expected"),
    [
        ("s", "n" * 58, "s__" + "n" * 46 + "-5d43c043d9"),
        ("my server", "a.b", "my-server__a-b-9528fd57af"),
        ("s", "", "s__-28a3d6d537"),
    ],
)
def test_an_id_never_changes_between_versions(server: str, name: str, expected: str) -> None:
    """Hashed ids are in people's notes and allow-lists: these came out once and come out for good."""
    assert public_id(server, name) == expected


@pytest.mark.report("metatool-ai/metamcp#249", "ChromeDevTools/chrome-devtools-mcp#1169")
def test_a_listed_name_leaves_room_for_a_clients_prefix() -> None:
    """`mcp__roster__` and the listed name together stay within the limit; a short name is the id itself."""
    card = card_from_tool("server", tool("n" * 60))

    assert len("mcp__roster__" + card.listed) == ID_LIMIT
    assert card.listed != card.id
    assert listed_name("server", "short") == public_id("server", "short")


# -------------------------------------------------------------------------------------------- contract

CONTRACT: dict[str, Any] = {
    "name": "read",
    "title": "Read",
    "description": "Read a file",
    "inputSchema": {
        "type": "object",
        "properties": {"path": {"type": "string", "maxLength": 10}},
        "required": ["path"],
    },
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
    "execution": {"taskSupport": "optional"},
    "body": "text",
}


def _shuffled(value: Any) -> Any:
    match value:
        case dict():
            return {key: _shuffled(item) for key, item in reversed(value.items())}
        case list():
            return [_shuffled(item) for item in value]
        case bool():
            return value
        case int() if abs(value) < 2**53:
            return float(value)
        case _:
            return value


@given(_JSON)
@example(2.0**53)
@example([1e300, -1e300, 2**53 - 1])
def test_a_fingerprint_ignores_key_order_and_the_form_of_a_number(schema: Any) -> None:
    """`{"a": 1, "b": 2}` and `{"b": 2.0, "a": 1.0}` are one contract, however deep."""
    row = {**CONTRACT, "inputSchema": {"x": schema, "y": [schema]}}

    assert fingerprint(Kind.TOOL, row) == fingerprint(Kind.TOOL, _shuffled(row))
    assert fingerprint(Kind.TOOL, row) == fingerprint(Kind.TOOL, json.loads(json.dumps(row)))


@pytest.mark.parametrize("field", CONTRACT)
def test_a_fingerprint_notices_every_field_of_the_contract(field: str) -> None:
    """A changed field is another contract, and so is one that went away."""
    known = fingerprint(Kind.TOOL, CONTRACT)
    gone = {key: value for key, value in CONTRACT.items() if key != field}

    assert fingerprint(Kind.TOOL, {**CONTRACT, field: {"other": True}}) != known
    assert fingerprint(Kind.TOOL, gone) != known


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"enum": ["a", "b"]}, {"enum": ["b", "a"]}),
        ({"maximum": 2**53 + 1}, {"maximum": 2**53 + 2}),
        ({"maximum": 2**53 + 1}, {"maximum": str(2**53 + 1)}),
        ({"default": 1}, {"default": True}),
        ({"default": 1}, {"default": "1"}),
        ({"default": None}, {}),
        ({"minimum": 0.1}, {"minimum": 0.2}),
        ({"default": float("nan")}, {"default": float("inf")}),  # no JSON, but parsers let it through
        ({"title": "\ud800"}, {"title": "\ud801"}),
        ({"title": "e\u0301"}, {"title": "é"}),
    ],
)
def test_a_fingerprint_notices_what_a_caller_would(one: Any, other: Any) -> None:
    """Order in an array, digits beyond a double, types and single characters all count."""
    prints = {fingerprint(Kind.TOOL, {**CONTRACT, "inputSchema": schema}) for schema in (one, other)}

    assert len(prints) == 2


@pytest.mark.parametrize("more", [{"icons": [{"src": "x"}]}, {"_meta": {"a": 1}}, {"x-unknown": True}])
def test_a_fingerprint_ignores_what_no_caller_relies_on(more: dict[str, Any]) -> None:
    """Icons, `_meta` and unknown keys may change every day."""
    assert fingerprint(Kind.TOOL, {**CONTRACT, **more}) == fingerprint(Kind.TOOL, CONTRACT)


def test_a_fingerprint_covers_kind_files_and_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """A skill is no tool, a file of a skill is part of it, and another formula gives another print."""
    prints = {
        fingerprint(Kind.TOOL, CONTRACT),
        fingerprint(Kind.SKILL, CONTRACT),
        fingerprint(Kind.SKILL, CONTRACT, {"a.py": "1"}),
        fingerprint(Kind.SKILL, CONTRACT, {"a.py": "2"}),
        fingerprint(Kind.SKILL, CONTRACT, {"b.py": "1"}),
    }
    monkeypatch.setattr(cards, "FORMULA", cards.FORMULA + 1)
    prints.add(fingerprint(Kind.TOOL, CONTRACT))

    assert len(prints) == 6


def test_a_fingerprint_never_changes_between_versions_of_one_formula() -> None:
    """If this value has to change, raise FORMULA: otherwise every card of every home drifts at once."""
    assert cards.FORMULA == 1
    assert fingerprint(Kind.TOOL, CONTRACT) == "de31eac35948f9404a04d9cdff51b66c3445f1158fe4cd4cd30d64d50a2f3b84"


# ------------------------------------------------------------------------------------- cards and texts


def test_a_card_keeps_its_row_and_reads_only_what_has_the_right_type() -> None:
    """A row with odd fields still makes a card; every key of the row is kept."""
    row = {"name": "x", "title": 3, "description": None, "inputSchema": "?", "annotations": [], "_meta": {"k": 1}}
    card = card_from_tool("s", row)

    assert (card.id, card.title, card.description, card.input_schema, card.annotations) == ("s__x", "", "", None, {})
    assert card.raw == row
    assert card.fingerprint == fingerprint(Kind.TOOL, row)
    assert card_from_tool("s", row, "known").fingerprint == "known"


def test_a_title_is_taken_from_the_annotations_when_the_row_has_none() -> None:
    """Older servers put it there; the row's own title goes first."""
    assert card_from_tool("s", tool("x", annotations={"title": "Old"})).title == "Old"
    assert card_from_tool("s", tool("x", title="New", annotations={"title": "Old"})).title == "New"


@pytest.mark.report("tavily-ai/tavily-mcp#141")
def test_the_encoder_reads_server_and_name_as_words_before_the_description() -> None:
    """ "server words, name words: description"; the title stands in for a missing description."""
    assert dense_text(card_from_tool("myCalendar", tool("addEvent", "Add it."))) == "my calendar, add event: Add it."
    assert cards.CARD_TEXT_VERSION == 1  # to be raised when any of this changes
    assert dense_text(card_from_tool("s", tool("x", title="A title"))) == "s, x: A title"
    assert len(dense_text(card_from_tool("s", tool("x", "y" * 10**6)))) == len("s, x: ") + cards.TEXT_LIMIT


@pytest.mark.report("tavily-ai/tavily-mcp#141")
def test_the_full_text_index_is_given_each_field_apart() -> None:
    """Name (with title, and whole when of several words), description, parameter names and server, with stems."""
    schema = {"type": "object", "properties": {"eventIds": {"description": "not searched"}}}
    text = lexical_text(card_from_tool("Cal", tool("addEvents", "Adds", title="New", inputSchema=schema)))

    assert text.name == "add s0add events s0event new s0new addevents s0addev"
    assert text.description == "adds s0add"
    assert text.parameters == "event s0event ids s0id"
    assert text.server == "cal s0cal"
    assert lexical_text(card_from_tool("s", tool("read"))).name == "read s0read"


@pytest.mark.parametrize("schema", [None, {}, {"properties": []}, {"properties": None}])
def test_a_schema_without_properties_has_no_parameters(schema: dict[str, Any] | None) -> None:
    """Whatever stands where an object should be, it names nothing."""
    assert parameter_names(schema) == []
    assert parameter_names({"properties": {"a": {}, "b": True}}) == ["a", "b"]


@given(_JSON)
@example("\ud800 lone")
def test_a_stored_row_comes_back_as_it_was(value: Any) -> None:
    """ASCII on disk, the same value back, lone surrogates included."""
    stored = raw_json({"name": value})

    assert stored.isascii()
    assert json.loads(stored) == {"name": value}


def test_texts_with_lone_surrogates_have_hashes_of_their_own() -> None:
    """No text is too broken to be told from another."""
    assert len({text_hash("\ud800"), text_hash("\ud801"), text_hash("?")}) == 3


def test_a_skill_has_an_id_that_no_tool_can_have() -> None:
    """A server may be called "skill" as well; its tool of the same name gets another id."""
    skill = card_from_skill({"name": "pdf", "description": "Fill in forms", "body": "Open it."})
    tool = card_from_tool("skill", {"name": "pdf"})

    assert skill.id == "skill__pdf"
    assert tool.id != skill.id
    assert len(skill_id("x" * 200)) == ID_LIMIT
    assert skill_id("été") != skill_id("ete")


def test_a_changed_script_is_a_changed_skill() -> None:
    """The fingerprint covers the body and every file; where the folder is does not count."""
    row = {"name": "pdf", "description": "d", "body": "b", "files": {"scripts/fill.py": "00"}, "path": "/here"}

    same = card_from_skill({**row, "path": "/there"})
    changed = [card_from_skill({**row, **part}) for part in ({"body": "c"}, {"files": {"scripts/fill.py": "01"}})]

    assert same.fingerprint == card_from_skill(row).fingerprint
    assert same.fingerprint not in {card.fingerprint for card in changed}
