"""Edits of one JSON object in its own text: a member in, out, or in another's place, in the layout the file has.

Every character that does not belong to that member stays where it is, comments first of all.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from roster.clients.spans import Node, members_of, parse

__all__ = ["Raw", "Style", "drop", "line_indent", "put", "style_of", "swap"]

# What may stand behind a member on its own line; the next member must start on another one.
_TRAILING = re.compile(r"[ \t]*(?:/\*[^\r\n]*?\*/[ \t]*)*(?://[^\r\n]*)?(?=[\r\n])")


@dataclass(frozen=True, slots=True)
class Style:
    """How a file is laid out. base: the indent of the line an object begins on."""

    newline: str
    unit: str
    base: str
    spread: bool
    """Whether its objects take a line a member."""


def line_indent(text: str, at: int) -> str:
    """The blanks that the line of `at` begins with, as far as they stand before it."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def style_of(text: str, root: Node | None, node: Node) -> Style:
    """The layout around one object of a file."""
    newline = "\r\n" if "\r\n" in text else "\n"
    base = line_indent(text, node.start)
    unit = "  "
    for one in (node, root):
        if one is not None and one.members:
            first = one.members[0].start
            outer, inner = line_indent(text, one.start), line_indent(text, first)
            if "\n" in text[one.start : first] and inner.startswith(outer) and len(inner) > len(outer):
                unit = inner[len(outer) :]
                break
    if node.members:
        spread = "\n" in text[node.start : node.members[0].start]
    else:
        spread = "\n" in text[node.start : node.end] or "\n" in text.strip() or len(text.strip()) <= len("{}")
    return Style(newline, unit, base, spread)


def _written(key: str, value: Any, style: Style, indent: str, compact: bool) -> str:
    """`"key": value`, its further lines indented to stand at `indent`. A str value is text already."""
    name = json.dumps(key, ensure_ascii=False)
    if isinstance(value, Raw):
        return f"{name}: {value.indented(indent, style.newline)}"
    if not style.spread:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":") if compact else (", ", ": "))
        return f"{name}:{'' if compact else ' '}{text}"
    text = json.dumps(value, ensure_ascii=False, indent=style.unit)
    return f"{name}: " + text.replace("\n", style.newline + indent)


@dataclass(frozen=True, slots=True)
class Raw:
    """A value as it stands in some file, with the indent of the line it begins on."""

    text: str
    indent: str

    def indented(self, indent: str, newline: str) -> str:
        """The same with another indent in front of its further lines."""
        if self.indent == indent:
            return self.text
        first, *rest = self.text.replace("\r\n", "\n").split("\n")
        return newline.join([first, *(indent + line.removeprefix(self.indent) for line in rest)])


def put(text: str, key: str, value: Any, style: Style, after: str | None) -> str:
    """The object `text` with one more member behind the member `after`; None: at its beginning."""
    document = parse(text)
    node = document.root
    assert node is not None
    if not node.members:
        inner = text[1:-1]
        if not style.spread and not inner.strip():
            return f"{{{_written(key, value, style, style.base, compact=True)}}}"
        indent = style.base + style.unit
        member = _written(key, value, style, indent, compact=False)
        return f"{{{inner.rstrip()}{style.newline}{indent}{member}{style.newline}{style.base}}}"
    first = node.members[0]
    spread = "\n" in text[: first.start]
    indent = line_indent(text, first.start) if spread else style.base + style.unit
    compact = text[first.value.start - 1] == ":"
    member = _written(key, value, Style(style.newline, style.unit, style.base, spread), indent, compact)
    before = next((m for name, m in members_of(node) if name == after), None) if after is not None else None
    at = 1 if before is None else before.value.end if before.comma is None else before.comma + 1
    trailing = _TRAILING.match(text, at)
    to = trailing.end() if trailing else at
    on_new_line = spread or "//" in text[at:to]
    gap = style.newline + indent if on_new_line else "" if compact else " " if before or text[1] == " " else ""
    if before is not None and before.comma is None:
        return f"{text[:at]},{text[at:to]}{gap}{member}{text[to:]}"
    comma = ", " if before is None and not on_new_line and not compact and text[to] != " " else ","
    return f"{text[:to]}{gap}{member}{comma}{text[to:]}"


def swap(text: str, key: str, name: str, value: Any, style: Style) -> str:
    """The object `text` with another member in the place of `key`; what stands around it stays around it."""
    node = parse(text).root
    assert node is not None
    member = next(member for own, member in members_of(node) if own == key)
    spread = "\n" in text[: node.members[0].start]
    indent = line_indent(text, member.start) if spread else style.base + style.unit
    compact = text[member.value.start - 1] == ":"
    new = _written(name, value, Style(style.newline, style.unit, style.base, spread), indent, compact)
    return text[: member.start] + new + text[member.value.end :]


def drop(text: str, key: str) -> str:
    """The object `text` without the member `key`, its blank before and its comma; comments stay."""
    document = parse(text)
    node = document.root
    assert node is not None
    keys = [name for name, _ in members_of(node)]
    at = keys.index(key)
    member = node.members[at]
    start = len(text[: member.start].rstrip(" \t\r\n"))
    rest = text[member.value.end :] if member.comma is None else (
        text[member.value.end : member.comma] + text[member.comma + 1 :]
    )  # fmt: skip
    if start in document.comment_ends and not re.match(r"[ \t]*[\r\n]", rest):
        # The newline that ends a line comment is not ours to take.
        start += len(re.match(r"\r?\n|\r", text[start:]).group())  # type: ignore[union-attr]
    if member.comma is None and at > 0:
        comma = node.members[at - 1].comma
        assert comma is not None
        return text[:comma] + text[comma + 1 : start] + rest
    return text[:start] + rest
