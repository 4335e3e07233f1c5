"""Two definitions of a card, compared: what changed, where, and how grave that is. Pure.

The parts compared are those that are fingerprinted, so two definitions with different fingerprints always differ here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import Any

from roster.cards import Kind, canonical, fingerprint

__all__ = ["Change", "Severity", "What", "body_print", "compare", "severity_of"]

DEEPEST = 40
"""Levels of a schema that are compared part by part; what is deeper is compared as a whole."""


class Severity(StrEnum):
    """How grave a change is, in rising order: words only, what callers rely on, what keeps people safe."""

    TEXT = "text"
    CONTRACT = "contract"
    SAFETY = "safety"

    def or_worse(self, other: Severity) -> Severity:
        """The graver of the two."""
        order = list(Severity)
        return max(self, other, key=order.index)


class What(StrEnum):
    """What became of a part of a definition."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    RETYPED = "retyped"
    REQUIRED = "required"  # was optional
    OPTIONAL = "optional"  # was required


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. where: the part, `input.order.items[].sku` for a parameter; old, new: its values, None if absent.

    text: the values are prose that reads better as a diff of words or lines.
    """

    where: str
    what: What
    severity: Severity
    old: Any = None
    new: Any = None
    text: bool = False

    def brief(self) -> str:
        """The change without its values."""
        return self.where if self.what is What.CHANGED else f"{self.where} {self.what.value}"


def compare(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """What differs between two definitions of a card, in reading order; empty when their fingerprints are the same.

    old, new: listing rows of a tool, or rows of a skill. An empty `old` stands for a card that was not there.
    """
    found = [
        *_prose("name", old.get("name"), new.get("name"), Severity.CONTRACT),
        *_prose("title", old.get("title"), new.get("title")),
        *_prose("description", old.get("description"), new.get("description")),
        *_schemas("input", old.get("inputSchema"), new.get("inputSchema")),
        *_schemas("output", old.get("outputSchema"), new.get("outputSchema")),
        *_annotations(old.get("annotations"), new.get("annotations")),
        *_parts("execution", old.get("execution"), new.get("execution")),
    ]
    if not _same(old.get("body"), new.get("body")):
        found += _prose("body", old.get("body"), new.get("body"), Severity.CONTRACT)
    if kind is Kind.SKILL:
        found += _parts("files", old.get("files"), new.get("files"))
    return found


def severity_of(changes: list[Change]) -> Severity:
    """The gravest of the changes; `text` for none."""
    return reduce(Severity.or_worse, (change.severity for change in changes), Severity.TEXT)


def body_print(kind: Kind, row: Mapping[str, Any]) -> str:
    """The fingerprint of everything but the name: equal for a card that was only renamed."""
    files = row.get("files") if kind is Kind.SKILL else None
    return fingerprint(kind, {**row, "name": None}, files if isinstance(files, Mapping) else None)


# ---------------------------------------------------------------------------------------------- parts


def _same(old: Any, new: Any) -> bool:
    # Python takes `True` for 1, JSON does not; 1.0 and 1 are one number to both.
    return old is new or canonical(old) == canonical(new)


def _what(old: Any, new: Any) -> What:
    return What.ADDED if old is None else What.REMOVED if new is None else What.CHANGED


def _prose(where: str, old: Any, new: Any, severity: Severity = Severity.TEXT) -> Iterator[Change]:
    if not _same(old, new):
        prose = all(value is None or isinstance(value, str) for value in (old, new))
        yield Change(where, _what(old, new), severity, old, new, text=prose)


def _parts(where: str, old: Any, new: Any, severity: Severity = Severity.CONTRACT) -> Iterator[Change]:
    """Key by key where both are objects (or one is not there), and as a whole otherwise."""
    if all(value is None or isinstance(value, Mapping) for value in (old, new)):
        before, after = old or {}, new or {}
        keys = [*before, *(key for key in after if key not in before)]
        changes = [
            Change(f"{where}.{key}", _what(before.get(key), after.get(key)), severity, before.get(key), after.get(key))
            for key in keys
            if (key in before) != (key in after) or not _same(before.get(key), after.get(key))
        ]
        if changes:
            yield from changes
            return
    if not _same(old, new):
        yield Change(where, _what(old, new), severity, old, new)


# What an absent hint stands for, by the protocol; and the value that warns a client.
_HINTS = {"readOnlyHint": (False, False), "destructiveHint": (True, True), "openWorldHint": (True, True)}


def _annotations(old: Any, new: Any) -> Iterator[Change]:
    for change in _parts("annotations", old, new):
        hint = change.where.partition(".")[2]
        if hint == "title":
            yield Change(change.where, change.what, Severity.TEXT, change.old, change.new, text=True)
        elif _toward_danger(hint, change.old, change.new):
            yield Change(change.where, change.what, Severity.SAFETY, change.old, change.new)
        elif (
            not hint
            and isinstance(change.old, Mapping)
            and any(_toward_danger(name, change.old.get(name), None) for name in _HINTS)
        ):
            # The whole object became something that is none: every hint is gone.
            yield Change(change.where, change.what, Severity.SAFETY, change.old, change.new)
        else:
            yield change


def _toward_danger(hint: str, old: Any, new: Any) -> bool:
    """Whether a hint stopped promising what it promised. What is no boolean promises nothing."""
    if hint not in _HINTS:
        return False
    absent, danger = _HINTS[hint]
    before, after = (value if isinstance(value, bool) else absent for value in (old, new))
    return before is not danger and after is danger


# -------------------------------------------------------------------------------------------- schemas


def _schemas(where: str, old: Any, new: Any) -> Iterator[Change]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from _schema(where, old, new, DEEPEST)
    elif old is None and isinstance(new, Mapping) and new and where == "input":
        yield from _schema(where, {}, new, DEEPEST)
    elif not _same(old, new):
        yield Change(where, _what(old, new), Severity.CONTRACT, old, new)


_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_NESTED = ("items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames")
_WORDS = ("title", "description", "$comment", "examples")


def _schema(where: str, old: Mapping[str, Any], new: Mapping[str, Any], depth: int) -> Iterator[Change]:
    """What differs between two schemas, parameter by parameter and keyword by keyword."""
    if _same(old, new):
        return
    if depth == 0:
        yield Change(where, What.CHANGED, Severity.CONTRACT, old, new)
        return
    for key in [*old, *(key for key in new if key not in old)]:
        before, after = old.get(key), new.get(key)
        if (key in old) == (key in new) and _same(before, after):
            continue
        both = isinstance(before, Mapping) and isinstance(after, Mapping)
        if key in _NAMED and all(value is None or isinstance(value, Mapping) for value in (before, after)):
            named = list(_members(where if key == "properties" else f"{where}.{key}", before, after, new, depth))
            # An object that came or went without a member is still a change of the schema.
            yield from named or [Change(f"{where}.{key}", _what(before, after), Severity.CONTRACT, before, after)]
        elif key == "required":
            yield from _required(where, old, new)
        elif key in _NESTED and both:
            assert isinstance(before, Mapping)
            assert isinstance(after, Mapping)
            yield from _schema(f"{where}[]" if key == "items" else f"{where}.{key}", before, after, depth - 1)
        elif key == "type":
            yield Change(where, What.RETYPED, Severity.CONTRACT, before, after)
        elif key in _WORDS:
            prose = isinstance(before or "", str) and isinstance(after or "", str)
            yield Change(f"{where}.{key}", _what(before, after), Severity.TEXT, before, after, text=prose)
        else:
            yield Change(f"{where}.{key}", _what(before, after), Severity.CONTRACT, before, after)


def _members(
    where: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    new: Mapping[str, Any],
    depth: int,
) -> Iterator[Change]:
    was, now = before or {}, after or {}
    for name in [*was, *(name for name in now if name not in was)]:
        path = f"{where}.{name}"
        if name not in now:
            yield Change(path, What.REMOVED, Severity.CONTRACT, was[name])
        elif name not in was:
            needed = name in _list(new.get("required"))
            yield Change(path, What.ADDED, Severity.CONTRACT, None, now[name])
            if needed:
                yield Change(path, What.REQUIRED, Severity.CONTRACT, False, True)
        elif isinstance(was[name], Mapping) and isinstance(now[name], Mapping):
            yield from _schema(path, was[name], now[name], depth - 1)
        elif not _same(was[name], now[name]):
            yield Change(path, What.CHANGED, Severity.CONTRACT, was[name], now[name])


def _required(where: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    before, after = _list(old.get("required")), _list(new.get("required"))
    was, now = old.get("properties"), new.get("properties")
    both = set(was if isinstance(was, Mapping) else ()) & set(now if isinstance(now, Mapping) else ())
    flipped = [
        Change(f"{where}.{name}", what, Severity.CONTRACT, name in before, name in after)
        for name in dict.fromkeys([*before, *after])
        if name in both
        for what in ([What.REQUIRED] if name not in before else [What.OPTIONAL] if name not in after else [])
    ]
    # The rest of the ways in which the list can differ: its order, names of no parameter, no list at all.
    told = {name for name in {*before, *after} if name in both or (name in before) != (name in after)}
    said = flipped or any(name not in both and _is_parameter(name, was, now) for name in told)
    yield from flipped
    if not said:
        yield Change(f"{where}.required", _what(old.get("required"), new.get("required")), Severity.CONTRACT,
                     old.get("required"), new.get("required"))  # fmt: skip


def _is_parameter(name: str, *properties: Any) -> bool:
    return any(isinstance(each, Mapping) and name in each for each in properties)


def _list(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []
