"""Whether two entries run the same server. Pure: what the environment holds is an argument."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from roster.config import expand
from roster.errors import VariableError

__all__ = ["covers", "differing", "is_literal", "references"]

# With a default, a reference holds a value of its own; a bare one in lower case may be part of a password.
_ONLY_NAMES = re.compile(r"\$\{(?:env:)?[A-Za-z_][A-Za-z0-9_]*\}|\$[A-Z_][A-Z0-9_]*")
_NAMES = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}|\$([A-Za-z_][A-Za-z0-9_]*)")
_BRACED = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}")
_URL_KEYS = ("url", "httpUrl", "serverUrl", "uri")


def _core(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """What an entry runs: program, arguments and directory, or the address."""
    if entry.get("command"):
        args = entry.get("args")
        return ("stdio", entry["command"], tuple(args) if isinstance(args, list) else (), entry.get("cwd") or "")
    return ("url", next((entry[key] for key in _URL_KEYS if entry.get(key)), ""))


def _text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _alike(one: Any, other: Any, environ: Mapping[str, str]) -> bool:
    """Whether two values can be one: equal, or a reference that is not set here and so may be either."""
    one, other = _text(one), _text(other)
    if one == other:
        return True
    try:
        return expand(one, environ) == expand(other, environ)
    except VariableError:
        return True


def differing(ours: Mapping[str, Any], theirs: Mapping[str, Any], environ: Mapping[str, str]) -> list[str] | None:
    """Where the values of two entries that run the same thing differ (`env.TOKEN`); None when they do not run the same.

    Two values that differ are two accounts: one server must not stand in for the other.
    """
    if _core(ours) != _core(theirs):
        return None
    found = []
    for key in ("env", "headers"):
        mine = ours.get(key) if isinstance(ours.get(key), Mapping) else {}
        other = theirs.get(key) if isinstance(theirs.get(key), Mapping) else {}
        assert mine is not None
        assert other is not None
        folded = {name.lower() if key == "headers" else name: value for name, value in mine.items()}
        for name, value in other.items():
            own = name.lower() if key == "headers" else name
            if own not in folded or not _alike(folded[own], value, environ):
                found.append(f"{key}.{name}")
    return found


def covers(ours: Mapping[str, Any], theirs: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Whether `ours` runs what `theirs` runs, with every value that `theirs` gives it."""
    return differing(ours, theirs, environ) == []


def _strings(entry: Mapping[str, Any]) -> Iterable[str]:
    for key in ("command", "url", "cwd"):
        yield _text(entry.get(key) or "")
    yield from (_text(arg) for arg in entry.get("args") or [])
    for key in ("env", "headers"):
        yield from (_text(value) for value in (entry.get(key) or {}).values())


def references(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of the variables that entries refer to, sorted. A bare `$NAME` counts when a whole value is one."""
    found: set[str] = set()
    for entry in entries:
        for text in _strings(entry):
            found |= set(_BRACED.findall(text))
            if match := _NAMES.fullmatch(text):
                found.add(match[1] or match[2])
    return sorted(found)


def is_literal(value: Any) -> bool:
    """Whether a value of env or headers holds something itself, and not only refers to it."""
    return bool(_ONLY_NAMES.sub("", _text(value)).removeprefix("Bearer").strip())
