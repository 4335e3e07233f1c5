"""The server map of a JSON, JSONC or JSON5 file: read it, take servers out, put one in, put them back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from roster.clients.edits import Raw, Style, drop, line_indent, put, style_of, swap
from roster.clients.faults import FormatError
from roster.clients.spans import Document, Node, decode, find, members_of, parse

__all__ = ["edit", "is_blank", "outside", "reach", "read", "restore", "section", "with_section"]

Path = tuple[str, ...]


def is_blank(text: str) -> bool:
    """Whether nothing at all stands in the file."""
    return not text.strip("\ufeff \t\r\n")


def _document(text: str) -> Document:
    document = parse(text)
    if document.root is None and not is_blank(text):
        raise FormatError("there is nothing but comments: a JSON value was expected")
    return document


def _node(document: Document, path: Path) -> Node | None:
    found = find(document.text, document.root, path)
    return found[-1].value if found[-1] is not None else None


def read(text: str, path: Path) -> list[tuple[str, Any]] | None:
    """The servers at `path` by name, in order; None when there is no such map. Raises FormatError."""
    node = _node(_document(text), path)
    return None if node is None else [(name, decode(text, member.value)) for name, member in members_of(node)]


def outside(text: str, path: Path, depth: int) -> list[str]:
    """Everything in the file but the member that the first `depth` names of `path` lead to, layout aside."""
    document = _document(text)
    if document.root is None:
        return ["{", "}"]
    member = find(text, document.root, path[:depth])[-1]
    return document.outside([(member.start, member.value.end)] if member is not None else [])


def reach(text: str, path: Path) -> int:
    """How many of the keys of `path` are there."""
    document = _document(text)
    return sum(member is not None for member in find(text, document.root, path))


def with_section(text: str, path: Path, section: str) -> str:
    """The text with the map's own text replaced."""
    node = _node(_document(text), path)
    assert node is not None
    return text[: node.start] + section + text[node.end :]


def section(text: str, path: Path) -> str | None:
    """The map's own text, comments and all; None when there is none."""
    node = _node(_document(text), path)
    return None if node is None else text[node.start : node.end]


def edit(text: str, path: Path, leave: Collection[str], add: tuple[str, Any] | None) -> str:
    """The text with the servers `leave` taken out and `add` put where the first of them stood, else at the end.

    What is not there of `path` is made, if there is something to put into it.
    """
    document = _document(text)
    if document.root is None:
        text = "{}\n"
        document = parse(text)
    assert document.root is not None
    found = find(text, document.root, path)
    depth = found.index(None) if None in found else len(path)
    parent = document.root if depth == 0 else found[depth - 1].value  # type: ignore[union-attr]
    style = style_of(text, document.root, parent)
    inner = text[parent.start : parent.end]
    names = [name for name, _ in members_of(parent)]
    if depth < len(path):
        if add is None:
            return text
        value: Any = {add[0]: add[1]}
        for name in reversed(path[depth + 1 :]):
            value = {name: value}
        inner = put(inner, path[depth], value, style, names[-1] if names else None)
    else:
        gone = [name for name in names if name in leave]
        if add is not None and gone:
            inner = swap(inner, gone.pop(0), *add, style)
        elif add is not None:
            inner = put(inner, *add, style, names[-1] if names else None)
        for name in gone:
            inner = drop(inner, name)
    return text[: parent.start] + inner + text[parent.end :]


def restore(text: str, pristine: str, path: Path, names: Sequence[str], leave: Collection[str]) -> str:
    """`text` with the servers `names` as they stand in `pristine`, each behind its old neighbour, without `leave`.

    A name that is in the file again is left as it is now.
    """
    before = _document(pristine)
    source = _node(before, path)
    old = members_of(source) if source is not None else []
    document = _document(text)
    target = _node(document, path)
    if target is None:
        values = {name: decode(pristine, member.value) for name, member in old if name in names}
        for name, value in values.items():
            text = edit(text, path, (), (name, value))
        return text
    style: Style = style_of(text, document.root, target)
    inner = text[target.start : target.end]
    there = [name for name, _ in members_of(target)]
    behind: str | None = None
    for name, member in old:
        if name in names and name not in there:
            value = member.value
            raw = Raw(pristine[value.start : value.end], line_indent(pristine, member.start))
            inner = put(inner, name, raw, style, behind)
            there.append(name)
        if name in there:
            behind = name
    for name in leave:
        if name in there:
            inner = drop(inner, name)
    return _without_way(text[: target.start] + inner + text[target.end :], path, reach(pristine, path))


def _without_way(text: str, path: Path, depth: int) -> str:
    """The text without the way to the servers from its key number `depth` on, if nothing is at the end of it."""
    if depth == len(path):
        return text
    document = parse(text)
    assert document.root is not None
    found = find(text, document.root, path)
    empty: Any = {}
    for key in reversed(path[depth + 1 :]):
        empty = {key: empty}
    member = found[depth]
    if member is None or decode(text, member.value) != empty:
        return text
    above = found[depth - 1] if depth else None
    parent = above.value if above is not None else document.root
    return text[: parent.start] + drop(text[parent.start : parent.end], path[depth]) + text[parent.end :]
