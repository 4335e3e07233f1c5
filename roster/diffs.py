"""A change of a definition as a person reads it: values beside each other, prose as a diff of words, bodies of lines.

Everything shown comes from an untrusted server: what a terminal would hide or obey is written out.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from roster.contracts import Change, Severity, What
from roster.terminal import visible

__all__ = ["STYLES", "change_json", "print_change"]

STYLES = {Severity.TEXT: "", Severity.CONTRACT: "yellow", Severity.SAFETY: "bold red"}
COMPARED = 400
"""Words, or lines, that are compared one by one; a longer stretch that differs is shown by its beginning."""
CONTEXT = 8
"""Words, or half as many lines, shown around a difference."""
LONGEST_VALUE = 400
LONGEST_WORD = 40
"""Characters; a longer run of them without a blank counts as several words."""
LONGEST_READ = 4_000_000
"""Characters of a text that are read at all."""

_PARTS = re.compile(rf"\s+|\S{{1,{LONGEST_WORD}}}")
_GONE, _NEW = "red strike", "green"


def change_json(change: Change) -> dict[str, Any]:
    """A change as `roster drift --json` gives it, values whole."""
    shown = {"where": change.where, "what": change.what.value, "severity": change.severity.value}
    return {**shown, "old": change.old, "new": change.new}


def print_change(change: Change, *, colour: bool) -> Iterator[Text]:
    """Lines for one change. colour: what went and what came is told apart by colour, else as `[-…-]` and `{+…+}`."""
    head = Text(f"{visible(change.where)}")
    head.stylize(STYLES[change.severity])
    if change.what is not What.CHANGED:
        head.append(f" {change.what.value}")
    if change.what in (What.REQUIRED, What.OPTIONAL):
        yield head
        return
    head.append(":")
    if not (change.text and isinstance(change.old, str | None) and isinstance(change.new, str | None)):
        yield Text.assemble(head, " ", _values(change, colour))
        return
    old, new = (value[:LONGEST_READ] if value else "" for value in (change.old, change.new))
    if "\n" in old.strip() and "\n" in new.strip():
        yield head
        yield from _lines(old, new, colour)
        return
    yield Text.assemble(head, " ", _words(old, new, colour))


def _value(value: Any) -> str:
    shown = visible(json.dumps(value, ensure_ascii=False))
    return shown if len(shown) <= LONGEST_VALUE else f"{shown[:LONGEST_VALUE]}… ({len(shown):,} characters)"


def _values(change: Change, colour: bool) -> Text:
    if change.what is What.ADDED:
        return _added(_value(change.new), colour)
    if change.what is What.REMOVED:
        return _removed(_value(change.old), colour)
    absent = "(absent)"
    old = absent if change.old is None else _value(change.old)
    new = absent if change.new is None else _value(change.new)
    return Text.assemble(old, " → " if colour else " -> ", (new, "bold" if colour else ""))


def _removed(text: str, colour: bool) -> Text:
    return Text(text, style=_GONE) if colour else Text(f"[-{text}-]")


def _added(text: str, colour: bool) -> Text:
    return Text(text, style=_NEW) if colour else Text(f"{{+{text}+}}")


# ------------------------------------------------------------------------------------------------ prose


def _same_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many parts are the same at the beginning, and how many of the rest at the end."""
    shorter = min(len(old), len(new))
    start = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    rest = shorter - start
    end = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    return start, end


def _pieces(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """("=", "-" or "+", parts) in reading order. What is too long to compare part by part is replaced as a whole."""
    start, end = _same_ends(old, new)
    yield "=", old[:start]
    was, now = old[start : len(old) - end], new[start : len(new) - end]
    if max(len(was), len(now)) > COMPARED:
        yield "-", was
        yield "+", now
    else:
        for tag, a, b, c, d in difflib.SequenceMatcher(None, was, now, autojunk=False).get_opcodes():
            if tag == "equal":
                yield "=", was[a:b]
            else:
                yield "-", was[a:b]
                yield "+", now[c:d]
    yield "=", old[len(old) - end :]


def _cut(words: Sequence[str], at_most: int) -> tuple[Sequence[str], int]:
    return (words, 0) if len(words) <= at_most else (words[:at_most], len(words) - at_most)


def _words(old: str, new: str, colour: bool) -> Text:
    """One text as the other: words that went and came, with a few around them."""
    # Blanks are parts too: a change that is only one of them has to show.
    before, after = (_PARTS.findall(text) for text in (old, new))
    out = Text()
    pieces = [(tag, parts) for tag, parts in _pieces(before, after) if parts]
    for place, (tag, parts) in enumerate(pieces):
        if tag == "=":
            out.append(visible(_around(parts, first=place == 0, last=place == len(pieces) - 1)))
            continue
        shown, more = _cut(parts, COMPARED)
        text = visible("".join(shown)) + (f" … and {more:,} more" if more else "")
        out.append_text(_removed(text, colour) if tag == "-" else _added(text, colour))
    return out


def _around(parts: Sequence[str], *, first: bool, last: bool) -> str:
    head = [] if first else list(parts[: 2 * CONTEXT])
    tail = [] if last else list(parts[-2 * CONTEXT :])
    if len(head) + len(tail) >= len(parts):
        return "".join(parts)
    return "".join([*head, " … " if head or tail else "", *tail]) if (head or tail) else ""


def _lines(old: str, new: str, colour: bool) -> Iterator[Text]:
    """One text as the other, line by line, with the lines around what differs."""
    pieces = [(tag, parts) for tag, parts in _pieces(old.split("\n"), new.split("\n")) if parts]
    left = COMPARED
    for place, (tag, parts) in enumerate(pieces):
        if tag == "=":
            some = CONTEXT // 2
            head = [] if place == 0 else list(parts[:some])
            tail = [] if place == len(pieces) - 1 else list(parts[max(len(head), len(parts) - some) :])
            gap = len(parts) - len(head) - len(tail)
            yield from (Text(f"    {_line(line)}") for line in head)
            if gap:
                yield Text(f"    … {gap} lines the same", style="dim" if colour else "")
            yield from (Text(f"    {_line(line)}") for line in tail)
            continue
        shown, more = _cut(parts, max(left, 10))
        left -= len(shown)
        yield from (
            Text(f"  {tag} {_line(line)}", style=(_GONE if tag == "-" else _NEW) if colour else "") for line in shown
        )
        if more:
            yield Text(f"  {tag} … and {more:,} more lines")


def _line(line: str) -> str:
    shown = visible(line[:LONGEST_VALUE])
    return shown if len(line) <= LONGEST_VALUE else f"{shown}… ({len(line):,} characters)"
