"""Which servers each client has, read from its files and, where `sync` has taken them out, from Roster's backups.

Reads only. What is kept of an entry is which server of roster.json it is, and whether and how much of it is used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roster.clients import files
from roster.clients.adapters import Client, Scope
from roster.clients.dialects import Routable, from_client
from roster.clients.faults import ClientError
from roster.clients.finding import ClientFile, find_files, spot_of, text_of
from roster.clients.formats import Spot, servers
from roster.clients.identity import covers
from roster.clients.importing import Import
from roster.clients.journal import Journal, open_journal
from roster.clients.machine import Machine
from roster.clients.ourselves import is_roster
from roster.config import Home
from roster.receipt.ledger import Owned, Server, Use

__all__ = ["Toolset", "owned_by"]


@dataclass(frozen=True, slots=True)
class Toolset:
    """The servers of roster.json, or those that `roster init` would put there, by name. routed: those it starts."""

    servers: Mapping[str, Server]
    routed: Collection[str]


_NEAREST = (Scope.LOCAL, Scope.PROJECT, Scope.USER)
"""Of two entries of one name a client starts the one of the nearest scope."""
_ONLY = ("includeTools", "enabled_tools", "enabledTools")
_NOT = ("excludeTools", "disabled_tools", "disabledTools")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One server of a client's file. key: its name in roster.json, None when it cannot be routed."""

    name: str
    scope: Scope
    key: str | None
    on: bool
    only: frozenset[str] | None
    leave: frozenset[str]


def owned_by(
    machine: Machine,
    home: Home,
    clients: Iterable[Client],
    project: Path,
    done: Import,
    toolset: Toolset,
) -> list[Owned]:
    """Every client that has a file with servers, or with Roster, in it; in the order of the clients."""
    journal = _journal(home)
    found: dict[str, list[ClientFile]] = {}
    for file in find_files(machine, clients, project):
        if file.there:
            found.setdefault(file.client.id, []).append(file)
    rows = [_owned(machine, journal, ours, project, done, toolset) for ours in found.values()]
    return [row for row in rows if row.uses or row.synced or row.unreadable]


def _journal(home: Home) -> Journal | None:
    if not (home.folder / "backups").is_dir():
        return None
    try:
        return open_journal(home)
    except ClientError:
        return None  # `roster eject` says what is wrong with it; what stands in the files is still true


def _owned(
    machine: Machine,
    journal: Journal | None,
    ours: list[ClientFile],
    project: Path,
    done: Import,
    toolset: Toolset,
) -> Owned:
    entries: dict[str, _Entry] = {}
    synced, unreadable = False, 0
    for file in ours:
        try:
            text = text_of(file)
            spot = spot_of(file, text, project)
            there = [] if not text.strip() else servers(text, spot)
        except ClientError:
            unreadable += 1
            continue
        synced = synced or any(is_roster(value) for _, value in there)
        was = _taken_out(journal, file, spot) if synced and journal is not None else []
        for name, value in [*there, *was]:
            if not is_roster(value):
                _keep(entries, _entry(machine, file, name, value, done))
    client = ours[0].client
    uses = tuple(_use(client.id, entry, toolset) for entry in entries.values())
    return Owned(client.id, client.title, uses, synced, unreadable)


def _keep(entries: dict[str, _Entry], entry: _Entry) -> None:
    other = entries.get(entry.name)
    if other is None or _NEAREST.index(entry.scope) < _NEAREST.index(other.scope):
        entries[entry.name] = entry


def _taken_out(journal: Journal, file: ClientFile, spot: Spot) -> Iterator[tuple[str, Any]]:
    """The servers that `sync` has put Roster in the place of, as they stood in the file before the first time."""
    changes = journal.of(file.path)
    names = {name for change in changes for part in change.spots if part.spot == spot for name in part.removed}
    if not names:
        return
    try:
        data = journal.pristine(changes[0])
        before = servers(files.decoded(data), spot) if data is not None else []
    except ClientError:
        return
    yield from (pair for pair in before if pair[0] in names)


def _entry(machine: Machine, file: ClientFile, name: str, value: Any, done: Import) -> _Entry:
    read = from_client(file.client.dialect, value, windows=machine.platform == "win32")
    raw = value if isinstance(value, Mapping) else {}
    on = not (raw.get("disabled") is True or raw.get("enabled") is False)
    only, leave = _picked(raw)
    key = _key(machine, file, name, read, done) if isinstance(read, Routable) else None
    return _Entry(name, file.place.scope, key, on, only, leave)


def _key(machine: Machine, file: ClientFile, name: str, read: Routable, done: Import) -> str | None:
    """The server of roster.json that an entry is, or would be after `roster init`."""
    for found in done.found.values():
        if any(source.path == file.path and own == name for source, own in found.sources):
            return found.name
    same = [found.name for found in done.found.values() if covers(found.entry, read.entry, machine.environ)]
    return same[0] if same else name if name in done.found else None


def _names(value: Any) -> frozenset[str]:
    return frozenset(item for item in value if isinstance(item, str)) if isinstance(value, list) else frozenset()


def _picked(entry: Mapping[str, Any]) -> tuple[frozenset[str] | None, frozenset[str]]:
    """The tools that a client's entry allows (None: all of them) and those that it leaves out."""
    both = entry.get("toolFilter")
    both = both if isinstance(both, Mapping) else {}
    allowed = [value for key in _ONLY if isinstance(value := entry.get(key), list)]
    allowed += [value] if isinstance(value := both.get("include"), list) else []
    allowed += [value] if isinstance(value := entry.get("tools"), list) and "*" not in value else []
    leave = [_names(entry.get(key)) for key in _NOT] + [_names(both.get("exclude"))]
    only = frozenset().union(*map(_names, allowed)) if allowed else None
    return only, frozenset().union(*leave)


def _use(client: str, entry: _Entry, toolset: Toolset) -> Use:
    server = toolset.servers.get(entry.key) if entry.key is not None else None
    if server is None:
        return Use(Server(f"{client}/{entry.name}", entry.name, None), entry.on, stays=True)
    if server.tools is not None and (entry.only is not None or entry.leave):
        some = [
            tool
            for tool in server.tools
            if (entry.only is None or tool.name in entry.only) and tool.name not in entry.leave
        ]
        server = replace(server, tools=tuple(some))
    return Use(server, entry.on, stays=entry.key not in toolset.routed)
