"""Failure kinds that a capability's author declares: read the same from a config, a tool's `_meta`, or front matter.

One bad declaration never costs the others: it is left out, and a problem names it and the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from roster.errors import json_type
from roster.failures import Failure, FailureKind

__all__ = ["MAX_DECLARED", "META_KEY", "Declared", "by_name", "declarations", "declared_by_skill", "declared_by_tool"]

META_KEY = "failures"
"""Where a tool's `_meta` and a skill's front matter declare kinds, as a server's entry in the config does."""
MAX_DECLARED = 32
LONGEST_DESCRIPTION = 200
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_FLAGS = ("retryable", "partial", "person")
_PLATFORM = frozenset(kind.value for kind in FailureKind)


@dataclass(frozen=True, slots=True)
class Declared:
    """One kind with the flags that its author gave it."""

    name: str
    description: str
    retryable: bool = False
    partial: bool = False
    person: bool = False

    def failure(self) -> Failure:
        """The failure that a report of this kind stands for."""
        return Failure(self.name, self.retryable, self.partial, self.person, declared=True)


def declarations(value: Any) -> tuple[tuple[Declared, ...], list[str]]:
    """The kinds that `value` declares, and what is wrong with the rest, each problem with its remedy.

    value: a list of `{"name", "description", "retryable"?, "partial"?, "person"?}`; `kind` is another word for `name`.
    """
    if value is None:
        return (), []
    if not isinstance(value, list):
        return (), [
            f'failures is {json_type(value)}: it must be an array such as [{{"name": ..., "description": ...}}]'
        ]
    found: dict[str, Declared] = {}
    problems = []
    for place, entry in enumerate(value[:MAX_DECLARED], 1):
        declared, why = _one(entry, found)
        if declared is not None:
            found[declared.name] = declared
        problems += [f"failure kind {_shown(entry, place)}: {reason}" for reason in why]
    if len(value) > MAX_DECLARED:
        problems.append(f"{len(value)} failure kinds are declared: only the first {MAX_DECLARED} are used")
    return tuple(found.values()), problems


def _shown(entry: Any, place: int) -> str:
    name = entry.get("name", entry.get("kind")) if isinstance(entry, Mapping) else None
    return repr(name[:60]) if isinstance(name, str) else f"number {place}"


def _one(entry: Any, before: Mapping[str, Declared]) -> tuple[Declared | None, list[str]]:
    """One declaration, or None; and what is wrong with it. A key that means nothing costs nothing."""
    if not isinstance(entry, Mapping):
        return None, [f"it is {json_type(entry)}: it must be an object with a name and a description"]
    name, description = entry.get("name", entry.get("kind")), entry.get("description")
    if not isinstance(name, str):
        return None, ["it has no name: give it one, such as out_of_paper"]
    if not _NAME.fullmatch(name):
        return None, ["a name is lower-case letters, digits and _, begins with a letter and has at most 40 characters"]
    if name in _PLATFORM:
        return None, ["this is one of the platform's own kinds: declare another name"]
    if name in before:
        return None, ["it is declared twice: the first one is used"]
    if not isinstance(description, str) or not description.strip():
        return None, ["it has no description: say in a sentence when it happens"]
    if len(description) > LONGEST_DESCRIPTION:
        return None, [f"its description has {len(description)} characters: at most {LONGEST_DESCRIPTION} are allowed"]
    problems = [
        f"{flag} is {json_type(entry[flag])}: it must be true or false"
        for flag in _FLAGS
        if not isinstance(entry.get(flag, False), bool)
    ]
    if problems:
        return None, problems
    strange = sorted(str(key) for key in entry.keys() - {"name", "kind", "description", *_FLAGS})
    flags = {flag: entry.get(flag, False) for flag in _FLAGS}
    return Declared(name, description, **flags), [f"the key {key!r} is not known and was ignored" for key in strange]


def declared_by_tool(row: Mapping[str, Any]) -> tuple[tuple[Declared, ...], list[str]]:
    """What a tool's listing row declares in its `_meta`."""
    meta = row.get("_meta")
    return declarations(meta.get(META_KEY)) if isinstance(meta, Mapping) else ((), [])


def declared_by_skill(row: Mapping[str, Any]) -> tuple[tuple[Declared, ...], list[str]]:
    """What a skill's front matter declares."""
    front = row.get("annotations")
    return declarations(front.get(META_KEY)) if isinstance(front, Mapping) else ((), [])


def by_name(own: Iterable[Declared], tool: Iterable[Declared]) -> dict[str, Failure]:
    """The failures by kind: what the user's config says of a server goes before what its tools say of themselves."""
    return {declared.name: declared.failure() for declared in (*tool, *own)}
