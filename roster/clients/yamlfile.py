"""The servers of a YAML file, taken out and put in as whole lines of its own text; ruamel.yaml says where they stand.

A path that ends in `LIST` leads to a list of servers with a `name` each, any other one to a map from name to server.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from roster.clients.faults import FormatError

__all__ = ["LIST", "edit", "outside", "read", "restore"]

Path = tuple[str, ...]

LIST = "[]"
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class _Item:
    """One server: its name, its value's node, its whole lines text[start:end] and the column it stands at."""

    name: str
    node: Any
    start: int
    end: int
    column: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the servers are. node: None when there are none; key_end: behind the colon that leads to them."""

    node: Any
    key_end: int
    column: int
    items: list[_Item]


def _compose(text: str) -> Any:
    from ruamel.yaml import YAML  # not on the way of `roster serve`
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        # Only the parser's own words: its message as a whole quotes the lines around.
        message = "there is more than one document" if "another document" in (error.problem or "") else "not valid YAML"
        raise FormatError(message, mark.line + 1 if mark else 0, mark.column + 1 if mark else 0) from None
    except YAMLError:
        raise FormatError("not valid YAML: a character that may not stand there") from None
    except RecursionError:
        raise FormatError("nested too deeply") from None


def _fail(node: Any, message: str) -> NoReturn:
    raise FormatError(message, node.start_mark.line + 1, node.start_mark.column + 1)


def _value(node: Any, depth: int = 0) -> Any:
    """The plain value of a node. Of a key that stands twice the last one counts."""
    if depth > _DEEPEST:
        _fail(node, "nested too deeply")
    if node.id == "mapping":
        out: dict[Any, Any] = {}
        for key, value in node.value:
            plain = _value(value, depth + 1)
            if key.value == "<<":
                for merged in plain if isinstance(plain, list) else [plain]:
                    out = {**merged, **out} if isinstance(merged, dict) else out
            else:
                out[key.value if isinstance(key.value, str) else repr(_value(key, depth + 1))] = plain
        return out
    if node.id == "sequence":
        return [_value(item, depth + 1) for item in node.value]
    text = node.value
    match node.tag.rpartition(":")[2]:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int" | "float":
            return _number(text)
        case _:
            return text


def _number(text: str) -> Any:
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _content_end(text: str, node: Any) -> int:
    """Behind the last character of a node that is no blank and no comment."""
    if node.id != "scalar" and not node.flow_style and node.value:
        last = node.value[-1]
        if node.id == "mapping":
            key, value = last
            empty = value.start_mark.index == value.end_mark.index
            # An alias stands elsewhere in the text than here.
            if empty or value.start_mark.index < key.end_mark.index:
                return text.index(":", int(key.end_mark.index)) + 1
            return _content_end(text, value)
        return max(_content_end(text, last), int(node.start_mark.index))
    start: int = node.start_mark.index
    return start + len(text[node.start_mark.index : node.end_mark.index].rstrip())


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _item(text: str, name: str, node: Any, at: int) -> _Item:
    start = text.rfind("\n", 0, at) + 1
    if text[start:at].strip():
        _fail(node, f"{name!r} shares its line with something else; give it lines of its own")
    return _Item(name, node, start, _line_end(text, max(_content_end(text, node), at)), at - start)


def _items(text: str, node: Any, listed: bool) -> list[_Item]:
    if node.flow_style:
        if node.value:
            _fail(node, "the servers are written in braces or brackets on one line; give each lines of its own")
        return []
    if not listed:
        found = []
        for key, value in node.value:
            item = _item(text, str(key.value), value, key.start_mark.index)
            alias = value.start_mark.index < key.start_mark.index or value.start_mark.index == value.end_mark.index
            end = _line_end(text, key.end_mark.index) if alias else item.end
            found.append(_Item(item.name, value, item.start, end, item.column))
        return found
    found = []
    for entry in node.value:
        dash = len(text[: entry.start_mark.index].rstrip()) - 1
        if dash < 0 or text[dash] != "-":
            _fail(entry, "a list entry that does not begin with a dash")
        plain = _value(entry)
        name = str(plain.get("name", "")) if isinstance(plain, dict) else ""
        found.append(_item(text, name, entry, dash))
    return found


def _find(text: str, path: Path) -> tuple[Any, _Place | None]:
    """The root and the place `path` leads to; None when it is not there. Raises FormatError."""
    root = _compose(text)
    listed = path[-1] == LIST
    names = path[:-1] if listed else path
    node, key_end, column = root, 0, 0
    for name in names:
        if node is None:
            return root, None
        if node.id != "mapping":
            _fail(node, f"{name} was looked for in something that is no map")
        same = [(key, value) for key, value in node.value if key.value == name]
        if len(same) > 1:
            _fail(same[1][0], f"the key {name!r} stands twice")
        if not same:
            return root, None
        key, node = same[0]
        key_end, column = text.index(":", key.end_mark.index) + 1, key.start_mark.column
    if node.id == "scalar" and not node.value:
        return root, _Place(None, key_end, column, [])
    if node.id != ("sequence" if listed else "mapping"):
        _fail(node, f"{'.'.join(names)} must be a {'list' if listed else 'map'}")
    return root, _Place(node, key_end, column, [])


def read(text: str, path: Path) -> list[tuple[str, Any]] | None:
    """The servers at `path` by name, in order; None when there are none. Raises FormatError."""
    _, place = _find(text, path)
    if place is None or place.node is None:
        return None
    if path[-1] != LIST:
        return [(str(key.value), _value(value)) for key, value in place.node.value]
    values = [_value(entry) for entry in place.node.value]
    return [(str(value.get("name", "")) if isinstance(value, dict) else "", value) for value in values]


def outside(text: str, path: Path) -> str:
    """Everything in the file but the key that leads to the servers."""
    root = _compose(text)
    plain = _value(root) if root is not None else {}
    if isinstance(plain, dict):
        plain.pop(path[0], None)
    return repr(plain)


def _lines(name: str, entry: dict[str, Any], column: int, listed: bool, newline: str) -> str:
    """A server as block lines; every value in JSON's notation, which is YAML as well."""
    fields = [f"{_plain(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    if listed:
        first, *rest = [f"name: {_plain(name)}", *(line for line in fields if not line.startswith("name:"))]
        lines = [f"- {first}", *(f"  {line}" for line in rest)]
    else:
        lines = [f"{_plain(name)}:", *(f"  {line}" for line in fields)]
    return "".join(" " * column + line + newline for line in lines)


def _plain(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key[:1].isalpha() else json.dumps(key)


def edit(text: str, path: Path, leave: Collection[str], add: tuple[str, Any] | None) -> str:
    """The text with the servers `leave` taken out and `add` put where the first of them stood, else at the end."""
    listed = path[-1] == LIST
    newline = "\r\n" if "\r\n" in text else "\n"
    _, place = _find(text, path)
    items = _items(text, place.node, listed) if place is not None and place.node is not None else []
    gone = [item for item in items if item.name in leave]
    if add is not None:
        if items:
            at = gone[0].start if gone else items[-1].end
            block = _lines(*add, items[0].column, listed, newline)
            text = _insert(text, at, block, newline)
        elif place is not None:
            block = _lines(*add, place.column + 2, listed, newline)
            end = place.node.end_mark.index if place.node is not None else place.key_end
            line_end = _line_end(text, end)
            text = _insert(text[: place.key_end] + text[end:line_end], line_end, "", newline) + block + text[line_end:]
        else:
            block = f"{path[0]}:{newline}" + _lines(*add, 2, listed, newline)
            text = _insert(text, len(text), block, newline)
    return _without(text, path, [item.name for item in gone])


def _insert(text: str, at: int, block: str, newline: str) -> str:
    head = text[:at]
    return head + ("" if not head or head.endswith("\n") else newline) + block + text[at:]


def _without(text: str, path: Path, names: Collection[str]) -> str:
    """The text without the lines of some servers; a list or map that this empties is written as empty."""
    if not names:
        return text
    _, place = _find(text, path)
    assert place is not None
    items = _items(text, place.node, path[-1] == LIST)
    for item in reversed(items):
        if item.name in names:
            text = text[: item.start] + text[item.end :]
    if all(item.name in names for item in items):
        text = f"{text[: place.key_end]} {'[]' if path[-1] == LIST else '{}'}{text[place.key_end :]}"
    return text


def restore(text: str, pristine: str, path: Path, names: Sequence[str], leave: Collection[str]) -> str:
    """`text` with the servers `names` as they stand in `pristine`, each behind its old neighbour, without `leave`.

    A name that is in the file again is left as it is now.
    """
    listed = path[-1] == LIST
    newline = "\r\n" if "\r\n" in text else "\n"
    _, source = _find(pristine, path)
    old = _items(pristine, source.node, listed) if source is not None and source.node is not None else []
    behind: str | None = None
    for item in old:
        _, place = _find(text, path)
        now = _items(text, place.node, listed) if place is not None and place.node is not None else []
        there = [one.name for one in now]
        if item.name in names and item.name not in there:
            if not now:
                text = edit(text, path, (), (item.name, _value(item.node)))
            else:
                before = next((one for one in now if one.name == behind), None)
                raw = pristine[item.start : item.end]
                block = _shifted(raw if raw.endswith("\n") else raw + newline, item.column, now[0].column)
                text = _insert(text, before.end if before is not None else now[0].start, block, newline)
            there.append(item.name)
        if item.name in there:
            behind = item.name
    text = _without(text, path, [name for name, _ in read(text, path) or [] if name in leave])
    _, place = _find(text, path)
    if source is None and place is not None and place.node is not None and not place.node.value:
        # The key was made for our entry alone.
        text = text[: text.rfind("\n", 0, place.key_end) + 1] + text[_line_end(text, place.key_end) :]
    return text


def _shifted(block: str, column: int, to: int) -> str:
    if column == to:
        return block
    lines = block.splitlines(keepends=True)
    return "".join(" " * to + line[column:] if line[:column].isspace() or not column else line for line in lines)
