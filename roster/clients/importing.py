"""The servers of every client on this machine, merged into roster.json."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roster import jsonc
from roster.clients import files, jsonfile
from roster.clients.adapters import Client, Format, Scope
from roster.clients.dialects import Unroutable, from_client
from roster.clients.faults import ClientError
from roster.clients.files import Step, no_step
from roster.clients.finding import ClientFile, find_files, spot_of, text_of
from roster.clients.formats import Spot, edited, servers
from roster.clients.identity import covers, differing
from roster.clients.journal import locked, open_journal
from roster.clients.machine import Machine
from roster.clients.ourselves import is_roster
from roster.clients.plan import in_project
from roster.clients.redact import literal_secrets
from roster.config import Home
from roster.errors import ConfigError

__all__ = ["Found", "Import", "Left", "counts", "import_servers", "skill_roots", "write_config"]

_SPOT = Spot(Format.JSON, ("mcpServers",))
_SHARED_SKILLS = ("~/.agents/skills", "@xdg/agents/skills", "@project/.agents/skills")
_MOST_SKILLS = 1_000


@dataclass(slots=True)
class Found:
    """A server under its name in roster.json. sources: where it stands; added: whether it is new there."""

    name: str
    entry: dict[str, Any]
    added: bool
    sources: list[tuple[ClientFile, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def secrets(self) -> list[str]:
        """Where it holds values of its own, by key name."""
        return literal_secrets(self.entry)


@dataclass(frozen=True, slots=True)
class Left:
    """A server that stays with its client, and why."""

    file: ClientFile
    name: str
    reason: str


@dataclass(slots=True)
class Import:
    """What was read, and what roster.json would become of it. text: None when it stays as it is."""

    files: list[ClientFile] = field(default_factory=list)
    found: dict[str, Found] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)
    unreadable: list[tuple[ClientFile, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    text: str | None = None

    @property
    def added(self) -> list[Found]:
        """The servers that are new in roster.json."""
        return [found for found in self.found.values() if found.added]


def import_servers(machine: Machine, home: Home, clients: Iterable[Client], project: Path) -> Import:
    """Read every client's servers and say what roster.json would become. Raises ConfigError when that is broken."""
    text = _own_text(home)
    done = Import()
    for name, entry in servers(text, _SPOT):
        if isinstance(entry, dict):
            done.found[name] = Found(name, entry, added=False)
        else:
            done.found[name] = Found(name, {}, added=False)
    for file in find_files(machine, clients, project):
        if not file.there:
            continue
        done.files.append(file)
        try:
            _read_file(machine, file, project, done)
        except ClientError as error:
            done.unreadable.append((file, str(error)))
    done.text = _with_added(text, done.added)
    return done


def _own_text(home: Home) -> str:
    try:
        found = files.read(home.config)
        text = files.decoded(found.data) if found.data is not None else ""
        if not jsonfile.is_blank(text):
            jsonc.loads(text)
        servers(text, _SPOT)
    except (ConfigError, ClientError) as error:
        raise ConfigError(f"{home.config}: {error}; nothing was imported") from None
    return text


def _read_file(machine: Machine, file: ClientFile, project: Path, done: Import) -> None:
    text = text_of(file)
    spot = spot_of(file, text, project)
    entries = [] if jsonfile.is_blank(text) else servers(text, spot)
    twice = {name for name, count in Counter(name for name, _ in entries).items() if count > 1}
    for name in sorted(twice):
        done.left.append(Left(file, name, "it stands twice in this file: keep one of them"))
    for name, value in entries:
        if name in twice or is_roster(value, name):
            continue
        read = from_client(file.client.dialect, value, windows=machine.platform == "win32")
        if isinstance(read, Unroutable):
            done.left.append(Left(file, name, read.reason))
        else:
            found = _merge(machine, file, name, in_project(file, read.entry, project), done)
            found.sources.append((file, name))
            found.notes += [note for note in read.notes if note not in found.notes]
    if file.place.scope is Scope.LOCAL:
        others = _other_projects(text, spot.keys[1])
        if others:
            done.notes.append(
                f"{file.client.title} has servers of their own for {len(others)} other "
                f"{'project' if len(others) == 1 else 'projects'}: "
                "`roster init --project DIR` imports them"
            )


def _other_projects(text: str, project: str) -> list[str]:
    entries = jsonfile.read(text, ("projects",)) or []
    return [name for name, value in entries if name != project and isinstance(value, dict) and value.get("mcpServers")]


def _merge(machine: Machine, file: ClientFile, name: str, entry: dict[str, Any], done: Import) -> Found:
    """The server an entry is, new or one that runs the same with the same values."""
    for found in done.found.values():
        if covers(found.entry, entry, machine.environ):
            if found.added and not entry.get("disabled"):
                found.entry.pop("disabled", None)
            return found
        if found.added and covers(entry, found.entry, machine.environ):
            found.entry = entry
            return found
    notes = []
    for found in done.found.values():
        if differs := differing(found.entry, entry, machine.environ):
            notes.append(f"runs the same as {found.name!r} with another {', '.join(differs)}: kept apart")
    ways = (name, f"{name}-{file.client.id}", *(f"{name}-{file.client.id}-{n}" for n in range(2, 10_000)))
    free = next(way for way in ways if way not in done.found)
    done.found[free] = Found(free, entry, added=True, notes=notes)
    return done.found[free]


def _with_added(text: str, added: list[Found]) -> str | None:
    """roster.json with the new servers at the end of its own; None when there are none."""
    if not added:
        return None
    if jsonfile.is_blank(text):
        whole = {"mcpServers": {found.name: found.entry for found in added}}
        return json.dumps(whole, ensure_ascii=False, indent=2) + "\n"
    for found in added:
        text = edited(text, _SPOT, (), (found.name, found.entry))
    return text


def write_config(home: Home, text: str, step: Step = no_step) -> None:
    """Put roster.json in place, for its owner only; what was there before is kept among the backups."""
    with locked(home):
        found = files.read(home.config)
        if found.data is not None:
            open_journal(home, step).keep("roster", found.data)
        data = files.encoded(text, found.data)
        files.replace(files.Read(found.path, found.target, found.data, 0o600), data, step)


def skill_roots(machine: Machine, clients: Iterable[Client], project: Path) -> list[tuple[Path, int]]:
    """The skill folders that are there, each once, with how many skills stand in them."""
    templates = [*_SHARED_SKILLS, *(template for client in clients for template in client.skills)]
    roots: dict[str, Path] = {}
    for template in templates:
        path = machine.place(template, project)
        if path is not None and path.is_dir():
            roots.setdefault(os.path.realpath(path), path)
    return [(path, _skills_in(path)) for path in roots.values()]


def _skills_in(root: Path) -> int:
    count = 0
    for pattern in ("*/SKILL.md", "*/*/SKILL.md"):
        for _ in root.glob(pattern):
            count += 1
            if count >= _MOST_SKILLS:
                return count
    return count


def counts(done: Import) -> Mapping[str, int]:
    """How many servers were added, were there already, stay with their client, and hold values of their own."""
    met = [found for found in done.found.values() if found.sources]
    return {
        "added": len(done.added),
        "present": sum(not found.added for found in met),
        "left": len(done.left),
        "unreadable": len(done.unreadable),
    }
