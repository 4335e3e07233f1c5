"""Failure kinds of an author's own: what may be declared, and what is said of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from roster.config import read_config
from roster.declared import MAX_DECLARED, Declared, by_name, declarations, declared_by_tool
from roster.failures import Failure, FailureKind

PAPER = {"name": "out_of_paper", "description": "A tray is empty", "retryable": True, "person": True}


def test_a_declaration_is_a_name_a_description_and_flags() -> None:
    """The flags default to false; `kind` is another word for `name`."""
    assert declarations([PAPER, {"kind": "jam", "description": "Paper is stuck"}]) == (
        (Declared("out_of_paper", "A tray is empty", True, False, True), Declared("jam", "Paper is stuck")),
        [],
    )
    assert declarations(None) == declarations([]) == ((), [])


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"name": "timeout", "description": "x"}, "'timeout': this is one of the platform's own kinds"),
        ({"name": "Jam", "description": "x"}, "'Jam': a name is lower-case letters"),
        ({"name": "9lives", "description": "x"}, "begins with a letter"),
        ({"name": "x" * 41, "description": "x"}, "at most 40"),
        ({"description": "x"}, "number 2: it has no name"),
        ({"name": "jam"}, "'jam': it has no description"),
        ({"name": "jam", "description": "  "}, "it has no description"),
        ({"name": "jam", "description": "x" * 201}, "has 201 characters: at most 200"),
        ({"name": "jam", "description": "x", "retryable": "yes"}, "retryable is a string: it must be true or false"),
        ({"name": "out_of_paper", "description": "again"}, "declared twice"),
        ("jam", "number 2: it is a string: it must be an object"),
        (None, "number 2: it is null"),
    ],
)
def test_one_that_is_wrong_is_named_and_costs_no_other(entry: Any, problem: str) -> None:
    """What it is, and what to do; the ones around it are used."""
    last = {"name": "last", "description": "x"}
    found, problems = declarations([PAPER, entry, last])

    assert [declared.name for declared in found] == ["out_of_paper", "last"]
    assert len(problems) == 1
    assert problem in problems[0]


@pytest.mark.parametrize("kind", list(FailureKind))
def test_no_platform_kind_can_be_declared(kind: FailureKind) -> None:
    """All fifteen."""
    assert declarations([{"name": kind.value, "description": "x"}])[0] == ()


def test_there_is_room_for_thirty_two() -> None:
    """And one more is one too many."""
    many = [{"name": f"kind_{n}", "description": "x"} for n in range(33)]

    assert len(declarations(many[:MAX_DECLARED])[0]) == 32
    assert declarations(many[:MAX_DECLARED])[1] == []
    found, problems = declarations(many)
    assert len(found) == 32
    assert problems == ["33 failure kinds are declared: only the first 32 are used"]


def test_an_unknown_key_costs_a_word_and_nothing_else() -> None:
    """The kind is used as it is."""
    found, problems = declarations([{**PAPER, "colour": "red"}])

    assert [declared.name for declared in found] == ["out_of_paper"]
    assert problems == ["failure kind 'out_of_paper': the key 'colour' is not known and was ignored"]


@pytest.mark.parametrize("value", [{}, "x", 7, True])
def test_failures_are_a_list(value: Any) -> None:
    """Anything else declares nothing."""
    found, (problem,) = declarations(value)

    assert found == ()
    assert "must be an array" in problem


def test_a_server_declares_in_the_config() -> None:
    """Beside its command; what is wrong is a problem of that server, and it is used all the same."""
    config = read_config(
        '{"mcpServers": {"printer": {"command": "x", "failures": ['
        '{"name": "jam", "description": "Paper is stuck"}, {"name": "budget", "description": "x"}]}}}'
    )

    assert config.servers["printer"].failures == (Declared("jam", "Paper is stuck"),)
    (problem,) = config.problems_of("printer")
    assert "'budget'" in problem


def test_a_tool_declares_in_its_meta() -> None:
    """Under `failures`; a row without `_meta`, or with one of another kind, declares nothing."""
    assert declared_by_tool({"name": "print", "_meta": {"failures": [PAPER]}})[0][0].name == "out_of_paper"
    assert declared_by_tool({"name": "print"}) == declared_by_tool({"name": "print", "_meta": 7}) == ((), [])


def test_what_the_config_says_goes_first() -> None:
    """A user knows their servers; a tool's word about itself is a stranger's."""
    kinds = by_name([Declared("jam", "x", person=True)], [Declared("jam", "y", retryable=True), Declared("z", "z")])

    assert kinds == {
        "jam": Failure("jam", person=True, declared=True),
        "z": Failure("z", declared=True),
    }
