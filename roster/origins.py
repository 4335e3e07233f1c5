"""Who was who before: new names and new servers that are known ones in disguise. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from roster.cards import Card, canonical
from roster.contracts import body_print
from roster.dwell import Hold

__all__ = ["EventKind", "Known", "Once", "Origin", "Seen", "former_server", "origins_of"]


T = TypeVar("T")


class Once(Generic[T]):
    """A value that is made when it is first asked for: of most rows nobody asks."""

    __slots__ = ("_made", "_make")
    _made: T

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make

    def __call__(self) -> T:
        """The value."""
        try:
            return self._made
        except AttributeError:
            self._made = self._make()
            return self._made


class EventKind(StrEnum):
    """What an event says of a card."""

    CHANGED = "changed"
    RENAMED = "renamed"  # the same contract under another name, the old name gone
    COPIED = "copied"  # the contract of a held card under another name, beside it
    FOUND = "found"  # nothing changed; a review found something


@dataclass(frozen=True, slots=True)
class Known:
    """What is on file of a card. row: its definition, read when asked for."""

    number: int
    id: str
    name: str
    raw: str
    fingerprint: str
    formula: int
    text_hash: str
    position: int
    removed: bool
    hold: Hold | None
    row: Callable[[], Mapping[str, Any]] = field(compare=False, repr=False, default=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """One row of a listing. card: made when asked for, because most rows are the same as before to the byte."""

    name: str
    raw: str
    position: int
    card: Callable[[], Card] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Origin:
    """The card that a new name stands for, and how."""

    card: Known
    kind: EventKind


def origins_of(known: Mapping[str, Known], gone: Sequence[Known], new: Sequence[Seen]) -> dict[str, Origin]:
    """What each new name was called before, where that is beyond doubt.

    The same contract as a card that is gone, or as any held one; or as alike as only one card that is gone, when only
    one new card is so alike.
    """
    held = [old for old in known.values() if old.hold is not None]
    if not new or not (gone or held):
        return {}
    missing = {old.name for old in gone}
    by_body: dict[str, list[Known]] = defaultdict(list)
    for old in {old.name: old for old in [*held, *gone]}.values():
        by_body[_body(old.row(), new[0])].append(old)
    found: dict[str, Origin] = {}
    for seen in new:
        same = by_body.get(_body(seen.card().raw, seen), [])
        free = [old for old in same if old.hold is None and old.name in missing]
        # A held definition is held under every name it takes, however many at once.
        if origin := next((old for old in same if old.hold is not None), None):
            renamed = origin.name in missing
            found[seen.name] = Origin(origin, EventKind.RENAMED if renamed else EventKind.COPIED)
        elif free:
            same.remove(free[0])
            found[seen.name] = Origin(free[0], EventKind.RENAMED)
    taken = {origin.card.name for origin in found.values()}
    left = [old for old in gone if old.name not in taken and (not old.removed or old.hold is not None)]
    return found | _alike(left, [seen for seen in new if seen.name not in found])


def _body(row: Mapping[str, Any], seen: Seen) -> str:
    return body_print(seen.card().kind, row)


def _alike(gone: Sequence[Known], new: Sequence[Seen]) -> dict[str, Origin]:
    """New names whose description or whole input is that of just one card that is gone, which has no other likeness."""
    before: dict[bytes, set[str]] = defaultdict(set)
    after: dict[bytes, set[str]] = defaultdict(set)
    for old in gone:
        for mark in _marks(old.row()):
            before[mark].add(old.name)
    for seen in new:
        for mark in _marks(seen.card().raw):
            after[mark].add(seen.name)
    like: dict[str, set[str]] = defaultdict(set)
    back: dict[str, set[str]] = defaultdict(set)
    for mark in before.keys() & after.keys():
        for name in after[mark]:
            like[name] |= before[mark]
        for name in before[mark]:
            back[name] |= after[mark]
    by_name = {old.name: old for old in gone}
    pairs = {name: next(iter(olds)) for name, olds in like.items() if len(olds) == 1}
    return {name: Origin(by_name[old], EventKind.CHANGED) for name, old in pairs.items() if len(back[old]) == 1}


def _marks(row: Mapping[str, Any]) -> list[bytes]:
    """What a card can be recognised by under another name: its description, or its parameters if it has any."""
    schema = row.get("inputSchema")
    marks = []
    if isinstance(row.get("description"), str) and row["description"].strip():
        marks.append(canonical(["description", row["description"]]))
    if isinstance(schema, Mapping) and schema.get("properties"):
        marks.append(canonical(["input", schema]))
    if isinstance(row.get("body"), str) and row["body"].strip():
        marks.append(canonical(["body", row["body"]]))
    return marks


def former_server(
    listing: Sequence[Seen], candidates: Mapping[str, Mapping[str, Known]]
) -> tuple[str, Mapping[str, Known]] | None:
    """The server that a new one was called before: most of its contracts, and most of the new one's, are the same.

    candidates: the cards, by name, of servers that are configured no more. None when none fits, or two fit equally.
    """
    prints = {seen.card().fingerprint for seen in listing}
    scored = []
    for server, cards in candidates.items():
        there = {old.fingerprint for old in cards.values() if not old.removed} or {
            old.fingerprint for old in cards.values()
        }
        shared = len(prints & there)
        if shared and shared * 2 >= max(len(prints), len(there)):
            scored.append((shared, server))
    scored.sort()
    if not scored or (len(scored) > 1 and scored[-1][0] == scored[-2][0]):
        return None
    server = scored[-1][1]
    return server, candidates[server]
