"""The server tables of a TOML file, taken out and put in as whole statements of its own text.

The standard library reads; editing is by lines, because a round-tripping library counts the comment above a table to
the table before it and would take it out together with that one.
"""

from __future__ import annotations

import datetime
import json
import re
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from roster.clients.faults import FormatError

__all__ = ["edit", "outside", "read", "restore"]

Path = tuple[str, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_KEY_PART = re.compile(r"[ \t]*(?:([A-Za-z0-9_-]+)|(\"(?:[^\"\\]|\\.)*\")|'([^']*)')[ \t]*")
_PLACE = re.compile(r"\(at line (\d+), column (\d+)\)")
# What a value can hold that may run over several lines, or hide a bracket.
_BLANK_LINES = re.compile(r"(?:[ \t]*\r?\n)+")
_PIECE = re.compile(
    r'"""(?:[^\\]|\\.)*?"""{1,3}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|[\[{]|[\]}]|\n', re.DOTALL
)


@dataclass(frozen=True, slots=True)
class _Statement:
    """One header or one `key = value`, by its whole dotted key; text[start:end] are its whole lines."""

    key: Path
    header: bool
    start: int
    end: int


def _load(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError) as error:
        place = _PLACE.search(str(error))
        line, column = (int(place[1]), int(place[2])) if place else (0, 0)
        # Without the library's words: they can quote a key or a value.
        raise FormatError("this is not TOML, or a key stands twice", line, column) from None
    except RecursionError:
        raise FormatError("nested too deeply") from None


def _key(text: str, at: int) -> tuple[Path, int]:
    """The dotted key at `at`, and where it ends."""
    parts: list[str] = []
    while match := _KEY_PART.match(text, at):
        bare, basic, literal = match.groups()
        parts.append(bare or literal if basic is None else next(iter(tomllib.loads(f"{basic} = 0"))))
        at = match.end()
        if not text.startswith(".", at):
            break
        at += 1
    return tuple(part or "" for part in parts), at


def _value_end(text: str, at: int) -> int:
    """Behind the line that the value beginning at `at` ends on."""
    depth = 0
    for match in _PIECE.finditer(text, at):
        piece = match.group()
        if piece == "\n" and depth == 0:
            return match.end()
        depth += (piece in "[{") - (piece in "]}") if len(piece) == 1 and piece != "\n" else 0
    return len(text)


def _statements(text: str) -> list[_Statement]:
    """Every statement of a text that is known to be TOML."""
    found: list[_Statement] = []
    table: Path = ()
    at = 0
    while at < len(text):
        line_end = text.find("\n", at)
        line_end = len(text) if line_end < 0 else line_end + 1
        line = text[at:line_end].strip(" \t\r\n")
        if not line or line.startswith("#"):
            at = line_end
            continue
        if line.startswith("["):
            opened = text.index("[", at) + (2 if line.startswith("[[") else 1)
            table, _ = _key(text, opened)
            found.append(_Statement(table, True, at, line_end))
            at = line_end
            continue
        key, equals = _key(text, at)
        end = _value_end(text, equals + 1)
        found.append(_Statement(table + key, False, at, end))
        at = end
    return found


def _at(data: Any, path: Path) -> Any:
    for depth, name in enumerate(path):
        if not isinstance(data, dict):
            raise FormatError(f"{'.'.join(path[:depth])} must be a table")
        if name not in data:
            return None
        data = data[name]
    if not isinstance(data, dict):
        raise FormatError(f"{'.'.join(path)} must be a table")
    return data


def read(text: str, path: Path) -> list[tuple[str, Any]] | None:
    """The servers at `path` by name, in order; None when there is no such table. Raises FormatError."""
    table = _at(_load(text), path)
    return None if table is None else list(table.items())


def outside(text: str, path: Path) -> str:
    """Everything in the file but the servers."""
    data = _load(text)
    parent = _at(data, path[:-1])
    if parent is not None:
        parent.pop(path[-1], None)
    return repr(data)


def _of(statement: _Statement, path: Path, names: Collection[str]) -> str | None:
    """The server, one of `names`, that a statement belongs to."""
    if len(statement.key) > len(path) and statement.key[: len(path)] == path and statement.key[len(path)] in names:
        return statement.key[len(path)]
    return None


def _without(text: str, path: Path, names: Collection[str]) -> str:
    """The text without the statements of some servers and the blank lines behind each run of them; comments stay."""
    kept, at = [], 0
    for statement in _statements(text):
        if _of(statement, path, names) is None:
            continue
        kept.append(text[at : statement.start])
        at = statement.end
        if blank := _BLANK_LINES.match(text, at):
            at = blank.end()
    return "".join(kept) + text[at:]


def edit(text: str, path: Path, leave: Collection[str], add: tuple[str, Any] | None) -> str:
    """The text with the servers `leave` taken out and `add` put where the first of them stood, else at the end."""
    servers = dict(read(text, path) or [])
    gone = [name for name in servers if name in leave]
    statements = _statements(text)
    # A server inside a longer value cannot be taken out of it by lines.
    loose = [name for name in gone if not any(_of(statement, path, [name]) for statement in statements)]
    if loose or (add is not None and any(s.key == path and not s.header for s in statements)):
        raise FormatError(f"{'.'.join(path)} is written as one value on its own line; write it as tables")
    if add is not None:
        newline = "\r\n" if "\r\n" in text else "\n"
        block = _block(path, add[0], add[1], newline)
        first = next((s for s in statements if s.header and _of(s, path, gone)), None)
        # A table header ends the table it stands in, so ours may only stand where another header does.
        at = first.start if first is not None else _end_of_family(statements, path, len(text))
        text = _insert(text, at, block, newline)
    return _without(text, path, gone)


def _end_of_family(statements: Sequence[_Statement], path: Path, end: int) -> int:
    """Behind the last table below `path`: before the next header, or the end of the file."""
    last = next((i for i in reversed(range(len(statements))) if statements[i].key[: len(path)] == path), None)
    if last is None:
        return end
    while last + 1 < len(statements) and not statements[last + 1].header:
        last += 1
    return statements[last].end


def _insert(text: str, at: int, block: str, newline: str) -> str:
    head, tail = text[:at], text[at:]
    if head and not head.endswith("\n"):
        head += newline
    line = head[head.rfind("\n", 0, -1) + 1 :].strip()
    if line and not line.startswith("#"):
        head += newline
    if tail.strip() and not tail.startswith(("\n", "\r\n")):
        block += newline
    return head + block + tail


def _block(path: Path, name: str, entry: dict[str, Any], newline: str) -> str:
    header = ".".join(_written_key(part) for part in (*path, name))
    plain = {key: value for key, value in entry.items() if not isinstance(value, dict)}
    lines = [f"[{header}]", *(f"{_written_key(key)} = {_written(value)}" for key, value in plain.items())]
    for key, value in entry.items():
        if isinstance(value, dict):
            lines += ["", f"[{header}.{_written_key(key)}]"]
            lines += [f"{_written_key(k)} = {_written(v)}" for k, v in value.items()]
    return newline.join(lines) + newline


def _written_key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _quoted(key)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _written(value: Any) -> str:
    """A value on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value)
        case list():
            return f"[{', '.join(_written(item) for item in value)}]"
        case dict():
            return f"{{{', '.join(f'{_written_key(k)} = {_written(v)}' for k, v in value.items())}}}"
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case _:
            return str(value)


def _with_blank_lines(text: str, statement: _Statement) -> str:
    blank = _BLANK_LINES.match(text, statement.end)
    return text[statement.start : blank.end() if blank else statement.end]


def restore(text: str, pristine: str, path: Path, names: Sequence[str], leave: Collection[str]) -> str:
    """`text` with the servers `names` as they stand in `pristine`, where `leave` stood, without `leave`.

    A name that is in the file again is left as it is now.
    """
    there = dict(read(text, path) or [])
    old = dict(read(pristine, path) or [])
    statements = _statements(pristine)
    newline = "\r\n" if "\r\n" in text else "\n"
    blocks = []
    for name in names:
        if name in there or name not in old:
            continue
        own = [statement for statement in statements if _of(statement, path, [name])]
        if own and own[0].header:
            raw = "".join(_with_blank_lines(pristine, statement) for statement in own)
            blocks.append(raw.rstrip("\r\n") + newline)
        else:
            blocks.append(_block(path, name, old[name], newline))
    if blocks:
        now = _statements(text)
        first = next((s for s in now if s.header and _of(s, path, leave)), None)
        at = first.start if first is not None else _end_of_family(now, path, len(text))
        text = _insert(text, at, newline.join(blocks), newline)
    text = _without(text, path, leave)
    if text.endswith(newline * 2) and not pristine.endswith(newline * 2):
        text = text.removesuffix(newline)  # the blank line that we had put before our own table
    return text
