"""JSON as config files hold it (comments, trailing commas, JSON5 words and quotes), read as spans of its own text.

Nothing is decoded that nobody asks for: a number of ten thousand digits elsewhere is only ever a piece of text.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn

from roster.clients.faults import FormatError

__all__ = ["Document", "Member", "Node", "decode", "find", "members_of", "parse"]

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
