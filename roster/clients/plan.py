"""What sync would change in one client's file, and what it would leave and why. Pure: bytes in, bytes out."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roster.clients.adapters import Client, Dialect, Scope
from roster.clients.dialects import Unroutable, anchored, from_client, is_roster, to_client
from roster.clients.faults import ClientError
from roster.clients.files import encoded
from roster.clients.finding import ClientFile, spot_of, text_of
from roster.clients.formats import Spot, edited, is_blank, section_digest, servers
from roster.clients.identity import covers, differing, references
from roster.clients.journal import Change, SpotChange
from roster.clients.machine import Machine
from roster.clients.redact import shown

__all__ = ["FilePlan", "Kept", "Wish", "entry_digest", "plan_file"]

NAME = "roster"
# What every client hands its servers anyway.
_ALWAYS = frozenset("HOME LOGNAME PATH SHELL TERM USER USERPROFILE APPDATA LOCALAPPDATA TEMP TMP SYSTEMROOT".split())


@dataclass(frozen=True, slots=True)
class Wish:
    """What sync was asked for.

    routed: roster.json's enabled servers by name. named: ids of clients that were asked for by name.
    project_files: whether the project's shared files may be changed. env: what Roster needs in a client's entry.
    """

    routed: Mapping[str, Mapping[str, Any]]
    keep: Collection[str]
    named: Collection[str]
    project: Path
    project_files: bool
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Kept:
    """A server that stays in a client's file, and why."""

    name: str
    reason: str


@dataclass(slots=True)
class FilePlan:
    """One file as it would be. after: None when nothing would change."""

    path: Path
    client: Client
    files: list[ClientFile]
    after: bytes | None = None
    spots: list[SpotChange] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problem: str = ""
    diff: str = ""

    @property
    def removed(self) -> list[str]:
        """The servers that would be taken out."""
        return [name for spot in self.spots for name in spot.removed if name != spot.added]

    @property
    def added(self) -> str | None:
        """The name Roster would have there."""
        return next((spot.added for spot in self.spots if spot.added is not None), None)

    @property
    def lock(self) -> str:
        """What the client locks this file with."""
        return next((file.place.lock for file in self.files if file.place.lock), "")

    @property
    def live(self) -> bool:
        """Whether the client writes this file while it runs."""
        return any(file.place.live for file in self.files)


def entry_digest(entry: Any) -> str:
    """What an entry of ours is known by in the journal; in a list it carries its name, which says nothing."""
    entry = {key: value for key, value in entry.items() if key != "name"}
    return hashlib.sha256(json.dumps(entry, sort_keys=True, default=repr).encode()).hexdigest()


def plan_file(machine: Machine, files: list[ClientFile], wish: Wish, changes: Sequence[Change]) -> FilePlan:
    """What to do with one file, which holds servers at one place or several.

    changes: what the journal has of this file.
    """
    first = files[0]
    plan = FilePlan(first.path, first.client, files)
    try:
        text = before = text_of(first)
        diff: list[str] = []
        for file in files:
            text = _plan_place(machine, file, text, wish, changes, plan, diff)
        if text != before:
            assert first.found is not None
            plan.after = encoded(text, first.found.data)
            plan.diff = "\n".join([f"--- {first.path}", f"+++ {first.path}", *diff])
    except ClientError as error:
        plan.after, plan.spots = None, []
        if all(file.place.scope is Scope.PROJECT for file in files) and not wish.project_files:
            plan.notes.append(f"{first.path} was not looked into: {error}")
        else:
            plan.problem = str(error)
    return plan


def _plan_place(
    machine: Machine,
    file: ClientFile,
    text: str,
    wish: Wish,
    changes: Sequence[Change],
    plan: FilePlan,
    diff: list[str],
) -> str:
    """The text after what is to be done at one place; what that is goes into `plan` and `diff`."""
    spot = spot_of(file, text, wish.project)
    now = servers(text, spot)
    reasons = {name: _why_kept(machine, file, name, value, wish) for name, value in now if not is_roster(value)}
    gone = [name for name, reason in reasons.items() if reason is None]
    hands_off = _hands_off(file, wish)
    plan.kept += [Kept(name, reason or hands_off) for name, reason in reasons.items() if reason or hands_off]
    if hands_off:
        return text
    ours = {name: value for name, value in now if is_roster(value)}
    wanted = _wanted(machine, file, [value for name, value in now if name in gone or name in ours], wish)
    # An entry of ours that nobody touched is renewed; one that a person wrote or changed is theirs.
    stale = [
        name
        for name, value in ours.items()
        if entry_digest(value) != entry_digest(wanted) and _written_by_us(name, value, changes)
    ]
    add = stale[0] if stale else None
    if not ours and (gone or _asked(file, wish)) and not _has_roster_for_all(file, text):
        add = _free_name({name for name, _ in now if name not in gone})
    if not gone and add is None:
        return text
    if file.place.live and file.there and is_blank(text, spot):
        raise ClientError("it is empty, though its client keeps its state in it: it may be writing it just now")
    if file.client.withholds and (names := _variables(wish)):
        plan.notes.append(
            f"{file.client.title} hands its servers few variables: put {', '.join(names)} into the env of the "
            f"entry {add or next(iter(ours))!r}, if servers miss them"
        )
    leave = [*gone, *stale]
    after = edited(text, spot, leave, (add, wanted) if add is not None else None)
    plan.spots.append(
        SpotChange(
            format=spot.format,
            keys=spot.keys,
            removed=tuple(leave),
            added=add,
            entry=entry_digest(dict(servers(after, spot))[add]) if add is not None else "",
            section=section_digest(after, spot),
        )
    )
    diff += _diff(spot.shown, now, servers(after, spot), leave, add)
    return after


def _hands_off(file: ClientFile, wish: Wish) -> str:
    """Why nothing at a place may be changed; "" when it may."""
    if file.place.scope is Scope.PROJECT and not wish.project_files:
        return "a project's file may be shared: --project DIR changes it as well"
    if file.place.many:
        return "one of several files that make one list: take it out by hand"
    return ""


def _asked(file: ClientFile, wish: Wish) -> bool:
    return file.client.id in wish.named and file.place.scope is Scope.USER


def _free_name(taken: Collection[str]) -> str:
    return next(name for name in (NAME, f"{NAME}-mcp", *(f"{NAME}-{n}" for n in range(2, 10_000))) if name not in taken)


def _wanted(machine: Machine, file: ClientFile, gone: list[Any], wish: Wish) -> dict[str, Any]:
    """The entry that would have this client start Roster instead of the servers `gone`, or of its own former one."""
    variables = _variables(wish)
    if file.client.dialect is Dialect.GOOSE:
        # Its own store hands out what the servers there were handed, and refuses to start for a name it does not have.
        keys = [key for value in gone for key in value.get("env_keys") or []]
        variables = sorted({key for key in keys if isinstance(key, str)})
    command = machine.roster_command(short_path=file.client.gui)
    return to_client(file.client.dialect, command, wish.env, variables)


def _variables(wish: Wish) -> list[str]:
    return [name for name in references(wish.routed.values()) if name not in _ALWAYS]


def _written_by_us(name: str, value: Any, changes: Sequence[Change]) -> bool:
    digest = entry_digest(value)
    return any(spot.added == name and spot.entry == digest for change in changes for spot in change.spots)


def _has_roster_for_all(file: ClientFile, text: str) -> bool:
    """Whether Roster is there for every project already, and one project needs no second one."""
    if file.place.scope is not Scope.LOCAL:
        return False
    return any(is_roster(value) for _, value in servers(text, Spot(file.place.format, file.place.keys[-1:])))


def _why_kept(machine: Machine, file: ClientFile, name: str, value: Any, wish: Wish) -> str | None:
    """Why a server stays; None when Roster routes it."""
    if name in wish.keep:
        return "kept, as asked"
    read = from_client(file.client.dialect, value, windows=machine.platform == "win32")
    if isinstance(read, Unroutable):
        return read.reason
    if read.entry.get("disabled"):
        return "it is disabled there"
    entry = in_project(file, read.entry, wish.project)
    if any(covers(ours, entry, machine.environ) for ours in wish.routed.values()):
        return None
    for other, ours in wish.routed.items():
        if differs := differing(ours, entry, machine.environ):
            return f"{other!r} in roster.json runs the same with another {', '.join(differs)}: run `roster init`"
    return "roster.json has nothing enabled that runs this: run `roster init`"


def in_project(file: ClientFile, entry: dict[str, Any], project: Path) -> dict[str, Any]:
    """The entry as it runs from anywhere: one that counts in a project only may mean files there."""
    if file.place.scope is Scope.USER:
        return entry
    return anchored(entry, project, lambda word: os.path.lexists(project / word))


def _diff(
    where: str, before: list[tuple[str, Any]], after: list[tuple[str, Any]], gone: Collection[str], added: str | None
) -> list[str]:
    """The change at one place as lines of a diff, values hidden; of servers that stay only their names."""
    new = dict(after)
    rows = [f"@@ {where} @@"]
    for name, value in before:
        rows += _lines("-", name, shown(value)) if name in gone else [f" {_quoted(name)}: {{…}}"]
    return rows if added is None else [*rows, *_lines("+", added, shown(new[added]))]


def _lines(mark: str, name: str, value: Any) -> list[str]:
    text = f"{_quoted(name)}: {json.dumps(value, ensure_ascii=False, indent=2)}"
    return [mark + line for line in text.splitlines()]


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
