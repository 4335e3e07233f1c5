"""A change as a person reads it: what went, what came, what is around, nothing hidden and nothing without end."""

from __future__ import annotations

from typing import Any

import pytest

from roster.contracts import Change, Severity, What
from roster.diffs import COMPARED, change_json, print_change
from roster.terminal import lasting, visible


def shown(old: Any, new: Any, what: What = What.CHANGED, where: str = "description", *, colour: bool = False) -> str:
    text = where in ("description", "body")
    change = Change(where, what, Severity.TEXT, old, new, text=text)
    return "\n".join(line.plain for line in print_change(change, colour=colour))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("Add an event", "Add an old event", "description: Add an {+old +}event"),
        ("Add an event", "Add event", "description: Add [-an -]event"),
        ("one two", "one  two", "description: one[- -]{+  +}two"),
        (None, "Add", "description: {+Add+}"),
        ("Add", None, "description: [-Add-]"),
        ("a\u202eb", "a b", "description: [-a\\u202eb-]{+a b+}"),
        ("[bold]x[/]", "[red]x[/]", "description: [-[bold]x[/]-]{+[red]x[/]+}"),
    ],
)
def test_prose_is_compared_word_by_word(old: Any, new: Any, expected: str) -> None:
    """What went in `[-…-]`, what came in `{+…+}`, the words around as they are."""
    assert shown(old, new) == expected


def test_far_from_a_difference_words_are_left_out() -> None:
    """A word that changed in a long text is shown among its neighbours."""
    words = [f"w{n}" for n in range(1_000)]
    text = shown(" ".join(words), " ".join([*words[:500], "NEW", *words[501:]]))

    assert "w499 [-w500-]{+NEW+} w501" in text
    assert "w400" not in text
    assert len(text) < 200


def test_values_stand_beside_each_other() -> None:
    """As JSON, so that a text and a number that look alike do not."""
    assert shown(1, "1", where="input.x.default") == 'input.x.default: 1 -> "1"'
    assert shown(None, ["a"], What.ADDED, "input.x.enum") == 'input.x.enum added: {+["a"]+}'
    assert shown(False, True, What.REQUIRED, "input.x") == "input.x required"
    assert shown(None, 1, where="input.x.default") == "input.x.default: (absent) -> 1"


def test_bodies_are_compared_line_by_line() -> None:
    """With the lines around, and how many are the same."""
    lines = [f"line {n}" for n in range(30)]
    text = shown("\n".join(lines), "\n".join([*lines[:15], "new", *lines[16:]]), where="body")

    assert text.splitlines() == [
        "body:", "    … 11 lines the same", *(f"    line {n}" for n in range(11, 15)),
        "  - line 15", "  + new", *(f"    line {n}" for n in range(16, 20)), "    … 10 lines the same",
    ]  # fmt: skip


def test_texts_of_megabytes_are_shown_by_their_beginning() -> None:
    """In bounded time and space, whatever they are made of."""
    for before, after in (("a b ", "c d "), ("a\n", "b\n"), ("aaaa", "bbbb")):
        text = shown(before * 250_000, after * 250_000, where="body")
        assert len(text) < 250 * COMPARED
        assert "more" in text
    assert len(shown({"x": "y" * 10**6}, [], where="input.x")) < 1_000


def test_on_a_terminal_colours_tell_what_went_and_what_came() -> None:
    """Then without the brackets."""
    change = Change("description", What.CHANGED, Severity.TEXT, "old one", "new one", text=True)
    (line,) = print_change(change, colour=True)

    assert line.plain == "description: oldnew one"
    assert {str(span.style) for span in line.spans} >= {"red strike", "green"}


def test_a_change_as_json_is_whole() -> None:
    """Values as they are."""
    assert change_json(Change("a", What.RETYPED, Severity.CONTRACT, "x", ["y"])) == {
        "where": "a", "what": "retyped", "severity": "contract", "old": "x", "new": ["y"]}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, with äöü, 日本 and 🙂", "plain, with äöü, 日本 and 🙂"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\u202eb\u2066c\u200bd\ufeff", "a\\u202eb\\u2066c\\u200bd\\ufeff"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("x\u3164\u2800\ufe0f\U000e0100", "x\\u3164\\u2800\\ufe0f\\U000e0100"),
        ("a\nb\tc\rd\x85", "a\\nb\\tc\\rd\\x85"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_a_terminal_would_hide_or_obey_is_written_out(text: str, expected: str) -> None:
    """Escape sequences, direction marks, what has no width, tags, fillers, line ends, half characters."""
    assert visible(text) == expected


def test_what_is_still_to_come_is_rounded_up() -> None:
    """Nobody waits for less than it says."""
    assert [lasting(s) for s in (1, 59, 61, 3_600, 3_601, 86_400)] == [
        "1 min",
        "1 min",
        "2 min",
        "60 min",
        "2 h",
        "24 h",
    ]
