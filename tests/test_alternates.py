"""The Sixth Man: which card is offered after a failure, and what is said of the arguments."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import tool
from hypothesis import given
from hypothesis import strategies as st

from roster.alternates import next_after, suggestion
from roster.arguments import Check
from roster.cards import Card, Kind, card_from_tool
from roster.outcomes import Outcome


def card(id_: str, schema: dict[str, Any] | None = None, kind: Kind = Kind.TOOL) -> Card:
    server, _, name = id_.partition("__")
    made = card_from_tool(server, tool(name, inputSchema=schema or {"type": "object"}))
    return made if kind is Kind.TOOL else Card(**{f: getattr(made, f) for f in made.__slots__} | {"kind": kind})


CARDS = {id_: card(id_) for id_ in ("a__x", "a__y", "b__x", "c__x", "d__x")}


def after(ids: list[str], failed: str, living: str = "abcd", cards: dict[str, Card] = CARDS) -> str | None:
    found = next_after(ids, CARDS[failed], cards.get, lambda each: each.server in living)
    return found.id if found else None


@pytest.mark.parametrize(
    ("ids", "failed", "living", "expected"),
    [
        (["a__x", "b__x", "c__x"], "a__x", "abc", "b__x"),
        (["a__x", "a__y", "b__x"], "a__x", "abc", "b__x"),  # another server
        (["b__x", "a__x", "c__x"], "a__x", "abc", "c__x"),  # what comes next, not what was passed over
        (["a__x", "b__x", "c__x"], "a__x", "ac", "c__x"),  # that lives
        (["a__x", "b__x"], "b__x", "ab", None),  # the last one
        (["a__x", "a__y"], "a__x", "ab", None),
        (["b__x", "c__x"], "a__x", "abc", "b__x"),  # called without having been drafted
        (["a__x", "gone__x", "c__x"], "a__x", "abc", "c__x"),
        ([], "a__x", "abc", None),
    ],
)
def test_the_next_of_the_draft_from_another_living_server(
    ids: list[str], failed: str, living: str, expected: str | None
) -> None:
    """In the order of the draft."""
    assert after(ids, failed, living) == expected


def test_a_skill_is_never_offered() -> None:
    """It instructs; it does nothing that the failed tool would have done."""
    cards = CARDS | {"b__x": card("b__x", kind=Kind.SKILL)}

    assert after(["a__x", "b__x", "c__x"], "a__x", cards=cards) == "c__x"


@given(st.permutations(list(CARDS)), st.sampled_from(sorted(CARDS)), st.sets(st.sampled_from("abcd")))
def test_never_the_server_that_failed_nor_a_dead_one(ids: list[str], failed: str, living: set[str]) -> None:
    """For any draft, failure and state of the servers."""
    found = after(ids, failed, "".join(living))

    assert found is None or (
        CARDS[found].server != CARDS[failed].server
        and CARDS[found].server in living
        and ids.index(found) > ids.index(failed)
    )


def offered(schema: dict[str, Any], arguments: dict[str, Any], outcome: Outcome = Outcome.TIMEOUT) -> dict[str, Any]:
    return suggestion(card("b__x", schema), CARDS["a__x"], outcome, arguments).wire()


def properties(*names: str, required: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {} for name in names}, "required": list(required)}


def test_a_suggestion_travels_as_the_design_says() -> None:
    """Which tool, why, and whether the same arguments would do (DESIGN 1.5); then what to do with them."""
    assert list(offered(properties("path"), {"path": "x"}).items()) == [
        ("tool", "b__x"),
        ("reason", "a did not answer in time; this is the next match of the draft, from another server"),
        ("args_compatible", True),
        ("arguments", {"same": ["path"], "renamed": {}, "missing": []}),
    ]


@pytest.mark.parametrize(
    ("schema", "arguments", "same", "renamed", "missing"),
    [
        (properties("filePath"), {"file_path": "x"}, [], {"file_path": "filePath"}, []),
        (properties("path", "limit"), {"file_path": "x", "limit": 1}, ["limit"], {"file_path": "path"}, []),
        (properties("query"), {"q": "x"}, [], {"q": "query"}, []),
        (properties("source_path", "target_path"), {"path": "x"}, [], {}, []),  # which of the two?
        (properties("query", "token", required=("query", "token")), {"q": "x"}, [], {"q": "query"}, ["token"]),
        (properties("colour"), {"size": 3}, [], {}, []),
        ({"type": "object", "required": "x"}, {"a": 1}, [], {}, []),
        ({}, {}, [], {}, []),
    ],
)
def test_arguments_are_mapped_where_that_is_plain(
    schema: dict[str, Any], arguments: dict[str, Any], same: list[str], renamed: dict[str, str], missing: list[str]
) -> None:
    """By name alone; nothing is guessed between two, and no value is made up."""
    assert offered(schema, arguments)["arguments"] == {"same": same, "renamed": renamed, "missing": missing}


@pytest.mark.parametrize(
    ("schema", "compatible", "reason"),
    [
        (properties("a", required=("a",)), True, ""),
        (properties("b", required=("b",)), False, ""),
        ({"$ref": "https://elsewhere.example.com/x"}, None, "refers to one that is not here"),
        ({"properties": {"a": {"pattern": "^(x+)+$"}}}, None, "pattern"),
        ({"$ref": "#"}, None, "circles"),
    ],
)
def test_whether_the_arguments_would_do_is_checked_or_not_said(
    schema: dict[str, Any], compatible: bool | None, reason: str
) -> None:
    """A schema that cannot be checked says why."""
    shown = offered(schema, {"a": "xxx"})

    assert shown["args_compatible"] is compatible
    assert reason in shown.get("unchecked", "")
    assert ("unchecked" in shown) is (compatible is None)


@given(
    st.dictionaries(st.text(max_size=6), st.integers(), max_size=6),
    st.dictionaries(st.text(max_size=6), st.just({}), max_size=6),
)
def test_no_argument_is_mapped_twice(arguments: dict[str, Any], taken: dict[str, Any]) -> None:
    """Every old name has at most one new one, every new one at most one old one, and both are there."""
    made = suggestion(card("b__x", {"type": "object", "properties": taken}), CARDS["a__x"], Outcome.INTERNAL, arguments)
    renamed = made.renamed or {}

    assert set(made.same) <= arguments.keys() & taken.keys()
    assert len(set(renamed.values())) == len(renamed)
    assert renamed.keys() <= arguments.keys() - set(made.same)
    assert set(renamed.values()) <= taken.keys() - arguments.keys()
    assert made.check == Check(True)
