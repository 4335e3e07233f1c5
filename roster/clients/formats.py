"""One text edited at one place, whichever format it is in, and proof that nothing else in it changed. Pure."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from roster.clients import jsonfile, tomlfile, yamlfile
from roster.clients.adapters import Format
from roster.clients.faults import ClientError, FormatError
from roster.clients.merging import taken_back

__all__ = ["Spot", "edited", "is_blank", "is_only", "restored", "section_digest", "servers"]

_MODULES: dict[Format, ModuleType] = {Format.JSON: jsonfile, Format.TOML: tomlfile, Format.YAML: yamlfile}


@dataclass(frozen=True, slots=True)
class Spot:
    """Where servers stand in a text: its format, and the keys that lead to them."""

    format: Format
    keys: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The way there, for a person."""
        return ".".join(key for key in self.keys if key != yamlfile.LIST)


def servers(text: str, spot: Spot) -> list[tuple[str, Any]]:
    """The servers by name, in order; a name that stands twice is there twice. Raises FormatError."""
    return list(_MODULES[spot.format].read(text, spot.keys) or [])


def is_blank(text: str, spot: Spot) -> bool:
    """Whether the file holds nothing, though its format asks for something."""
    return spot.format is Format.JSON and jsonfile.is_blank(text)


def is_only(text: str, spot: Spot) -> bool:
    """Whether nothing is in the file but the way to a map of no servers: what sync leaves of a file that it made."""
    if servers(text, spot) or any(mark in text for mark in ("//", "/*", "#")):
        return False
    return _outside(text, spot, 1) in (["{", "}"], "{}", "None")


def _outside(text: str, spot: Spot, depth: int) -> Any:
    """Everything in the file but what the first `depth` keys lead to, in a form to compare."""
    if spot.format is Format.JSON:
        return jsonfile.outside(text, spot.keys, depth)
    return _MODULES[spot.format].outside(text, spot.keys)


def section_digest(text: str, spot: Spot) -> str:
    """What the servers' own text is known by; "" where there is none: in TOML and YAML they need not stand together."""
    section = jsonfile.section(text, spot.keys) if spot.format is Format.JSON else None
    return hashlib.sha256(section.encode()).hexdigest() if section is not None else ""


def edited(text: str, spot: Spot, leave: Collection[str], add: tuple[str, Any] | None) -> str:
    """The text without the servers `leave` and with `add`. Raises ClientError when it cannot be made, or not proved."""
    before = servers(text, spot)
    twice = [name for name, count in Counter(name for name, _ in before).items() if count > 1]
    touched = [name for name in twice if name in leave or (add is not None and name == add[0])]
    if touched:
        raise FormatError(f"{touched[0]!r} stands twice under {spot.shown}: keep one of them")
    if add is not None and spot.keys[-1] == yamlfile.LIST:
        add = (add[0], {"name": add[0], **add[1]})
    edit = _MODULES[spot.format].edit
    if add is not None and add[0] in leave:
        # Two of one name would stand side by side for a moment.
        after = str(edit(edit(text, spot.keys, leave, None), spot.keys, (), add))
    else:
        after = str(edit(text, spot.keys, leave, add))
    expected = [(name, value) for name, value in before if name not in leave]
    _prove(text, after, spot, [*expected, add] if add is not None else expected)
    return after


def restored(
    text: str,
    pristine: str,
    spot: Spot,
    names: Sequence[str],
    leave: Collection[str],
    section: str = "",
    written: str | None = None,
) -> str:
    """The text with the servers `names` of `pristine` back in it and without `leave`.

    section: the digest of the servers' own text when Roster had written it: while it is the same, their pristine text
    comes back to the letter. written: the whole text as Roster had written it, if that is known: what we did is taken
    back line by line if nobody changed those lines. Else the servers come back one by one.
    Raises ClientError when it cannot be made, or not proved.
    """
    now, old = servers(text, spot), servers(pristine, spot)
    if section and section_digest(text, spot) == section:
        before = jsonfile.section(pristine, spot.keys)
        if before is not None:
            after = jsonfile.with_section(text, spot.keys, before)
            _prove(text, after, spot, old)
            return after
    there = {name for name, _ in now}
    gone = [name for name, _ in now if name in leave]
    expected = [pair for pair in now if pair[0] not in leave]
    expected += [pair for pair in old if pair[0] in names and pair[0] not in there]
    by_lines = taken_back(text, written, pristine) if written is not None else None
    if by_lines is not None:
        try:
            _prove(text, by_lines, spot, expected)
            return by_lines
        except ClientError:
            pass  # what others wrote goes too closely with what we did
    after = str(_MODULES[spot.format].restore(text, pristine, spot.keys, names, gone))
    _prove(text, after, spot, expected)
    return after


def _prove(before: str, after: str, spot: Spot, expected: list[tuple[str, Any]]) -> None:
    """Read both texts anew: the servers are those expected, and everything else is what it was. Raises ClientError."""
    try:
        found = servers(after, spot)
        depth = min(_reach(before, spot), _reach(after, spot)) + 1
        same = _outside(before, spot, depth) == _outside(after, spot, depth)
    except FormatError as error:
        raise ClientError(f"the edit would have broken it ({error}): edit it by hand") from None
    if not same or _canonical(found) != _canonical(expected):
        raise ClientError("the edit would have changed more than the servers: edit it by hand")


def _canonical(pairs: list[tuple[str, Any]]) -> list[str]:
    return sorted(json.dumps(pair, sort_keys=True, default=repr) for pair in pairs)


def _reach(text: str, spot: Spot) -> int:
    """How many of the keys that lead to the servers are there, the last one aside."""
    there = jsonfile.reach(text, spot.keys) if spot.format is Format.JSON else len(spot.keys)
    return min(there, len(spot.keys) - 1)
