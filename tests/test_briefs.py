"""Briefs: what a draft shows of a card is short, on one line, and enough to fill in the arguments."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import tool
from hypothesis import given
from hypothesis import strategies as st

from roster.briefs import BUDGET_CHARACTERS, brief, shorten, trimmed_input
from roster.cards import Kind, card_from_tool

NEEDSETS = Path(__file__).parents[1] / "eval" / "needsets"
NULL = {"type": "null"}


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("short", 5, "short"),
        ("two\n  lines\t here", 20, "two lines here"),
        ("First one. Second one is longer.", 20, "First one."),
        ("An. Otherwise cut at a word", 20, "An. Otherwise cut…"),  # a sentence too short to say anything
        ("abcdefghij" * 3, 10, "abcdefghij…"),
        ("one two, three", 9, "one two…"),
        ("一つ目。二つ目はもっと長い", 8, "一つ目。"),
    ],
)
def test_a_long_text_is_cut_where_a_reader_would_stop(text: str, limit: int, expected: str) -> None:
    """At a sentence when enough is left, else at a word, else in it; a cut in a sentence is marked."""
    assert shorten(text, limit) == expected


@given(st.text(), st.integers(3, 40))
def test_a_shortened_text_is_one_line_within_the_limit(text: str, limit: int) -> None:
    """At most `limit` characters and the mark, without line breaks, and a start of the text."""
    short = shorten(text, limit)

    assert len(short) <= limit + 1
    assert short == " ".join(short.split())
    assert " ".join(text.split()).startswith(short.removesuffix("…"))


def test_an_input_keeps_what_filling_it_in_takes() -> None:
    """Types, enums, formats, bounds, defaults and required names stay; prose is cut, the rest goes."""
    schema = {
        "type": "object",
        "description": "of the whole: not needed",
        "$schema": "x",
        "properties": {
            "when": {"type": "string", "format": "date", "description": "w" * 100, "examples": ["2026"], "title": "T"},
            "n": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3, "const": 3},
            "tags": {"type": "array", "items": {"enum": list(range(13)), "maxLength": 3}},
            "map": {"additionalProperties": {"type": "string", "pattern": "x"}, "properties": {}, "required": []},
        },
        "required": ["when"],
        "additionalProperties": False,
    }

    assert trimmed_input(schema, budget=1_000) == {
        "properties": {
            "when": {"type": "string", "format": "date", "description": "w" * 90 + "…"},
            "n": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3, "const": 3},
            "tags": {"type": "array", "items": {"enum": [*range(12), "…"]}},
            "map": {"additionalProperties": {"type": "string"}, "properties": {}},
        },
        "required": ["when"],
    }


def _structure(schema: Any) -> Any:
    """Names, types, required ones, enums, items and alternatives: what arguments are made of."""
    if isinstance(schema, list):
        return [_structure(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = ("description", "format", "default", "minimum", "maximum")
    return {key: _structure(value) for key, value in schema.items() if key not in left_out}


def test_a_budget_costs_words_and_never_structure() -> None:
    """Less budget, fewer words: telling descriptions of required parameters go last, and the structure stays."""
    schema = {
        "type": "object",
        "properties": {
            "repo_name": {"type": "string", "description": "Repository name"},
            "head": {"type": "string", "description": "Branch that holds the commits to be merged"},
            "draft": {"type": "boolean", "default": False, "description": "Whether reviewers are not asked yet"},
            "labels": {"type": "array", "items": {"type": "string", "enum": ["bug", "docs"]}},
        },
        "required": ["repo_name", "head"],
    }
    shown = [trimmed_input(schema, budget) for budget in (500, 350, 300, 240, 0)]
    described = [{name for name, p in each["properties"].items() if "description" in p} for each in shown]

    assert described == [{"repo_name", "head", "draft"}, {"head", "draft"}, {"head"}, set(), set()]
    assert ["default" in each["properties"]["draft"] for each in shown] == [True, True, True, True, False]
    assert all(_structure(each) == _structure(shown[0]) for each in shown)
    assert len(json.dumps(shown[1], separators=(",", ":"))) <= 350


def _target(ref: str, whole: Any) -> Any:
    for step in ref.removeprefix("#/").split("/"):
        whole = whole[step]
    return whole


def _lost(whole: Any, node: Any, shown: Any, at: str = "", inside: frozenset[str] = frozenset()) -> Iterator[str]:
    """What arguments are made of in `node`, a part of `whole`, and is not in what is `shown` of it.

    Written apart from the code it checks. A reference into itself counts as shown where it was first followed.
    """
    while ref := node.get("$ref"):
        if ref in inside:
            return
        inside |= {ref}
        node = {**_target(ref, whole), **{key: value for key, value in node.items() if key != "$ref"}}
    if not isinstance(shown, dict):
        yield f"{at}: gone"
        return
    for key in ("anyOf", "oneOf", "allOf"):
        options = [option for option in node.get(key, ()) if option != NULL]
        branches = [option for option in shown.get(key, ()) if option != NULL]
        if len(options) == 1 and not branches:
            branches = [shown]  # "this or null" is shown as this
        if len(branches) < len(options):
            yield f"{at}: {len(options)} of {key}, {len(branches)} shown"
        for option, branch in zip(options, branches, strict=False):
            yield from _lost(whole, option, branch, f"{at}/{key}", inside)
    kind = shown.get("type", "object" if "properties" in shown else None)
    if "type" in node and node["type"] != kind:
        yield f"{at}: type {node['type']}, shown {kind}"
    if "const" in node and node["const"] != shown.get("const"):
        yield f"{at}: const"
    if "enum" in node and node["enum"][:12] + ["…"] * (len(node["enum"]) > 12) != shown.get("enum"):
        yield f"{at}: enum"
    if missing := set(node.get("required", ())) - set(shown.get("required", ())):
        yield f"{at}: not said to be required: {missing}"
    for name, parameter in node.get("properties", {}).items():
        yield from _lost(whole, parameter, shown.get("properties", {}).get(name), f"{at}/{name}", inside)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from _lost(whole, node[key], shown.get(key), f"{at}/{key}", inside)


def _tools() -> list[dict[str, Any]]:
    """Every tool of the need sets that has an input, as its server describes it."""
    rows = [
        json.loads(line)
        for corpus in sorted(NEEDSETS.glob("*/corpus.jsonl"))
        for line in corpus.read_text("utf-8").split("\n")
        if line
    ]
    return [row for row in rows if row.get("inputSchema")]


def test_no_official_tool_loses_structure() -> None:
    """Names, types, required ones, choices, enums and items of real servers' tools, at every level and any budget."""
    tools = _tools()
    lost = [
        f"{row['_id']}{what}"
        for row in tools
        for budget in (BUDGET_CHARACTERS, 0)
        for what in _lost(row["inputSchema"], row["inputSchema"], trimmed_input(row["inputSchema"], budget))
    ]

    assert len({row["server"] for row in tools}) >= 9
    assert lost == []


@pytest.mark.report("github/copilot-cli#1876", "open-webui/computer#87")
def test_local_references_are_followed() -> None:
    """A `$ref` into the same schema is put in its place, wherever it stands, escapes included."""
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A~1B"}, "b": {"anyOf": [{"$ref": "#/$defs/A~1B"}, {"type": "null"}]}},
        "$defs": {"A/B": {"type": "string", "enum": ["x"]}},
    }
    target = {"type": "string", "enum": ["x"]}

    assert trimmed_input(schema)["properties"] == {"a": target, "b": target}


def test_alternatives_other_than_null_are_kept() -> None:
    """ "This or null" is shown as this; "this or that" as both."""
    either = {"anyOf": [{"type": "string"}, {"type": "number"}]}
    maybe = {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None}
    schema = {"properties": {"a": either, "b": maybe}}

    assert trimmed_input(schema)["properties"] == {"a": either, "b": {"type": "array", "items": {"type": "string"}}}


@pytest.mark.parametrize("ref", ["#/$defs/none", "https://example.org/x.json", "#/$defs/A/type/s", 7])
def test_a_reference_that_leads_nowhere_is_left_as_it_is(ref: Any) -> None:
    """Foreign, dangling and odd references are shown, not guessed at."""
    schema = {"properties": {"a": {"$ref": ref}}, "$defs": {"A": {"type": "string"}}}

    assert trimmed_input(schema)["properties"]["a"] == {"$ref": ref}


def test_a_schema_that_contains_itself_comes_to_an_end() -> None:
    """A recursive schema is shown a few levels deep."""
    node: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    shown = json.dumps(trimmed_input({"$ref": "#/$defs/Node", "$defs": {"Node": node}}))

    assert shown.count('"next"') == 1
    assert "#/$defs/Node" in shown


def test_a_schema_that_multiplies_itself_stays_short() -> None:
    """References to references to references: a few hundred bytes of schema do not become megabytes of draft."""
    fan = {"type": "object", "properties": {f"p{n}": {"$ref": "#/$defs/%d"} for n in range(15)}}
    defs = {str(level): json.loads(json.dumps(fan).replace("%d", str(level + 1))) for level in range(5)}

    assert len(json.dumps(trimmed_input({"$ref": "#/$defs/0", "$defs": defs}))) < 200_000


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda inner: {"properties": {"a": inner}},
        lambda inner: {"items": inner},
        lambda inner: {"additionalProperties": inner},
        lambda inner: {"anyOf": [inner]},
        lambda inner: {"oneOf": [inner]},
        lambda inner: {"allOf": [inner]},
    ],
)
def test_a_deep_schema_is_cut(wrapped: Callable[[Any], dict[str, Any]]) -> None:
    """Twelve levels below the top are shown, whichever way they nest."""
    deep: dict[str, Any] = {}
    for level in range(20):
        deep = {**wrapped(deep), "const": f"level {level}."}
    shown = json.dumps(trimmed_input(deep))

    assert ("level 7." in shown, "level 6." in shown) == (True, False)


def test_a_missing_schema_accepts_an_object() -> None:
    """Rather than nothing."""
    assert trimmed_input(None) == trimmed_input({}) == {"type": "object"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["properties", "items", "anyOf", "$ref", "enum", "required", "type", "description"]),
                inner,
                max_size=4,
            )
        ),
    )
)
def test_any_schema_can_be_shown(schema: Any) -> None:
    """However wrong a backend's schema is, a draft does not fail on it."""
    assert isinstance(trimmed_input({"properties": {"a": schema}}), dict)
    assert isinstance(trimmed_input(schema if isinstance(schema, dict) else None), dict)


def test_a_brief_of_a_tool_shows_its_input_and_a_skill_says_what_calling_it_does() -> None:
    """`id`, `kind`, `description`, and `input` or `note`: nothing else."""
    card = card_from_tool("s", tool("x", "What it does."))

    assert brief(card) == {
        "id": "s__x",
        "kind": "tool",
        "description": "What it does.",
        "input": {"properties": {}},
    }
    assert brief(replace(card, kind=Kind.SKILL)) == {
        "id": "s__x",
        "kind": "skill",
        "description": "What it does.",
        "note": "calling this returns its instructions",
    }


def test_a_brief_always_describes() -> None:
    """The title, or else the name, stands in for a missing description; a long one is cut to 120 characters."""
    assert brief(card_from_tool("s", tool("x", title="Title")))["description"] == "Title"
    assert brief(card_from_tool("s", tool("x")))["description"] == "x"
    assert len(brief(card_from_tool("s", tool("x", "y" * 900)))["description"]) == 121
