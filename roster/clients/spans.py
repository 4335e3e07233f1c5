"""JSON as config files hold it (comments, trailing commas, JSON5 words and quotes), read as spans of its own text.

An edit touches the members it is asked for and leaves every other character where it is. Nothing is decoded that
nobody asks for: a number of ten thousand digits elsewhere in the file is only ever a piece of text.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn

from roster.clients.faults import FormatError

__all__ = [
    "Document",
    "Member",
    "Node",
    "Raw",
    "Style",
    "decode",
    "drop",
    "find",
    "line_indent",
    "members_of",
    "parse",
    "put",
    "style_of",
    "swap",
]

_TOKEN = re.compile(
    r"(?P<blank>[\s\ufeff]+)"
    r"|(?P<comment>//[^\r\n]*|/\*.*?\*/)"
    r'|(?P<string>"(?:[^"\\\r\n]|\\(?:\r\n|.))*"|\'(?:[^\'\\\r\n]|\\(?:\r\n|.))*\')'
    r"|(?P<mark>[{}\[\]:,])"
    r"|(?P<word>[^\s{}\[\]:,\"'/]+)",
    re.DOTALL,
)
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|Infinity|NaN|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)", re.ASCII)
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*|[$_][\w$]*")
_WORDS = {"true": True, "false": False, "null": None}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_UNFINISHED = {'"': "a string is not closed", "'": "a string is not closed", "/": "a comment is not closed"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r\n|.))", re.DOTALL)
# What may stand behind a member on its own line; the next member must start on another one.
_TRAILING = re.compile(r"[ \t]*(?:/\*[^\r\n]*?\*/[ \t]*)*(?://[^\r\n]*)?(?=[\r\n])")


@dataclass(slots=True)
class Node:
    """One value and where it stands: text[start:end]. kind: object, array or scalar."""

    kind: str
    start: int
    end: int = -1
    members: list[Member] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Member:
    """A key, its value, and where the comma after it stands; None when there is none."""

    key: str
    start: int
    value: Node
    comma: int | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed text. pieces: its significant tokens, commas aside, as (start, end)."""

    text: str
    root: Node | None
    pieces: list[tuple[int, int]]
    comment_ends: frozenset[int]

    def outside(self, spans: list[tuple[int, int]]) -> list[str]:
        """Every significant token that stands in none of `spans`, which are sorted and apart."""
        starts = [start for start, _ in spans]
        out = []
        for start, end in self.pieces:
            at = bisect_right(starts, start) - 1
            if at < 0 or start >= spans[at][1]:
                out.append(self.text[start:end])
        return out


# -------------------------------------------------------------------------------------------- reading


def _fail(text: str, at: int, message: str) -> NoReturn:
    line = text.count("\n", 0, at) + 1
    raise FormatError(message, line, at - (text.rfind("\n", 0, at) + 1) + 1)


def _tokens(text: str) -> tuple[list[tuple[str, int, int]], frozenset[int]]:
    """The significant tokens as (kind, start, end), and where each line comment ends. Raises FormatError."""
    found, ends, at = [], set(), 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            _fail(text, at, _UNFINISHED.get(text[at], "unexpected character"))
        kind, at = str(match.lastgroup), match.end()
        if kind == "comment":
            if text.startswith("//", match.start()):
                ends.add(at)
        elif kind != "blank":
            found.append((text[match.start()] if kind == "mark" else kind, match.start(), at))
    return found, frozenset(ends)


def _is_value(raw: str) -> bool:
    return raw in _WORDS or _NUMBER.fullmatch(raw) is not None


@lru_cache(maxsize=16)
def parse(text: str) -> Document:
    """`text` as a tree of spans; the root is None when there is no value at all. Raises FormatError.

    Works through a list, not by recursion: no depth of nesting is too much. The last few are remembered, for one edit
    reads the same text for its plan, its change and its proof.
    """
    tokens, comment_ends = _tokens(text)
    root: Node | None = None
    stack: list[Node] = []
    want = "value"
    key: tuple[str, int] = ("", 0)
    for kind, start, end in tokens:
        top = stack[-1] if stack else None
        if want == "end":
            _fail(text, start, "something stands behind the end")
        elif want == "colon":
            if kind != ":":
                _fail(text, start, "expected a colon")
            want = "value"
        elif want == "comma" and kind == ",":
            assert top is not None
            if top.kind == "object":
                top.members[-1].comma, want = start, "key"
            else:
                want = "item"
        elif kind in "}]" and want in ("comma", "key", "item"):
            assert top is not None
            if (kind == "}") is not (top.kind == "object"):
                _fail(text, start, f"unexpected {kind}")
            stack.pop().end = end
            want = "comma" if stack else "end"
        elif want == "comma":
            _fail(text, start, "expected a comma")
        elif want == "key":
            raw = text[start:end]
            if kind != "string" and not (kind == "word" and _IDENTIFIER.fullmatch(raw)):
                _fail(text, start, "expected a key")
            key, want = (raw, start), "colon"
        else:
            if kind in "}]:," or (kind == "word" and not _is_value(text[start:end])):
                _fail(text, start, "expected a value")
            node = Node({"{": "object", "[": "array"}.get(kind, "scalar"), start, end)
            if top is None:
                root = node
            elif top.kind == "object":
                top.members.append(Member(key[0], key[1], node))
            else:
                top.items.append(node)
            if node.kind == "scalar":
                want = "comma" if stack else "end"
            else:
                stack.append(node)
                want = "key" if kind == "{" else "item"
    if stack or (root is not None and want != "end"):
        _fail(text, len(text), "the file ends too early")
    return Document(text, root, [(a, b) for kind, a, b in tokens if kind != ","], comment_ends)


def _string(raw: str) -> str:
    if raw[0] == '"':
        try:
            return _whole(json.loads(raw, strict=False))
        except ValueError:
            pass  # an escape only JSON5 knows
    elif raw[0] != "'":
        return raw

    def value(match: re.Match[str]) -> str:
        four, two, other = match.groups()
        if four or two:
            return chr(int(four or two, 16))
        return "" if other in ("\n", "\r\n", "\r") else _ESCAPES.get(other, other)

    return _whole(_ESCAPE.sub(value, raw[1:-1]))


def _whole(text: str) -> str:
    """The text with its surrogates in pairs; one that stands alone could not be written to any file."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _number(raw: str) -> Any:
    try:
        return int(raw, 16) if "x" in raw.lower() else int(raw)
    except ValueError:
        pass
    try:
        return float(raw.replace("Infinity", "inf").replace("NaN", "nan"))
    except ValueError:
        return raw


def decode(text: str, node: Node) -> Any:
    """The value of a node; of a key that stands twice, the last one. Raises FormatError when nested too deeply."""
    try:
        return _decode(text, node)
    except RecursionError:
        _fail(text, node.start, "nested too deeply")


def _decode(text: str, node: Node) -> Any:
    if node.kind == "object":
        return {_string(member.key): _decode(text, member.value) for member in node.members}
    if node.kind == "array":
        return [_decode(text, item) for item in node.items]
    raw = text[node.start : node.end]
    if raw in _WORDS:
        return _WORDS[raw]
    return _string(raw) if raw[0] in "\"'" else _number(raw)


def members_of(node: Node) -> list[tuple[str, Member]]:
    """The members of an object with their keys decoded, in order, twice where a key stands twice."""
    return [(_string(member.key), member) for member in node.members]


def find(text: str, root: Node | None, path: tuple[str, ...]) -> list[Member | None]:
    """The members that `path` leads through; None from the first one that is not there.

    Raises FormatError where a key on the way stands twice, or where something on the way is no object.
    """
    out: list[Member | None] = []
    node = root
    for depth, name in enumerate(path):
        if node is not None and node.kind != "object":
            _fail(text, node.start, f"{'.'.join(path[:depth]) or 'the file'} must be an object")
        same = [member for key, member in members_of(node) if key == name] if node is not None else []
        if len(same) > 1:
            _fail(text, same[1].start, f"the key {name!r} stands twice in one object")
        out.append(same[0] if same else None)
        node = same[0].value if same else None
    if node is not None and node.kind != "object":
        _fail(text, node.start, f"{'.'.join(path)} must be an object")
    return out


# -------------------------------------------------------------------------------------------- editing


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
