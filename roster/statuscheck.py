"""`roster status --check`: connect to every server, and say what a person can do about those that do not answer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from roster.app import Roster
from roster.backends import Backend, ErrorKind, State
from roster.commands import sight_all
from roster.config import ServerSpec, Transport, expand
from roster.errors import VariableError

__all__ = ["Checked", "check_all", "notes_of"]

SHORT_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
"""What a program that is started from a menu commonly has as its PATH."""
ELSEWHERE = (
    ".local/bin", ".cargo/bin", ".volta/bin", ".bun/bin", ".deno/bin", ".pyenv/shims", ".asdf/shims",
    ".nvm/versions/node/*/bin", "/opt/homebrew/bin", "/usr/local/bin", "/snap/bin",
)  # fmt: skip
"""Where tools put programs without telling every PATH of it; relative ones are below the home."""
FOLDERS_NAMED = 6


@dataclass(frozen=True, slots=True)
class Checked:
    """How one server answered. notes: what else a person should know, in whole sentences."""

    ok: bool
    state: str
    connect_ms: float | None
    error: str | None
    reason: str
    notes: tuple[str, ...] = ()

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "ok": self.ok,
            "state": self.state,
            "connect_ms": round(self.connect_ms, 1) if self.connect_ms is not None else None,
            "error": self.error,
            "reason": self.reason or None,
            "notes": list(self.notes),
        }


def check_all(roster: Roster) -> dict[str, Checked]:
    """Connect to every server that is not disabled, list its tools, and look at what could trouble others. Synchronous.

    What they list is put on file, as in a `reindex`; nothing is embedded.
    """
    anyio.run(sight_all, roster)
    roster.catalogue.refresh()
    return {
        name: _checked(backend, roster.config.servers[name], name in roster.sightings)
        for name, backend in roster.pool.items()
    }


def _checked(backend: Backend, spec: ServerSpec, listed: bool) -> Checked:
    kind = backend.error.value if backend.error is not None and not listed else None
    state = "answered" if listed else backend.state.value
    ok = listed and backend.state is not State.MISCONFIGURED
    reason = "" if listed else backend.reason
    return Checked(ok, state, backend.connect_ms, kind, reason, tuple(notes_of(spec, kind, os.environ, Path.home())))


def notes_of(spec: ServerSpec, error: str | None, environ: Mapping[str, str], home: Path) -> list[str]:
    """What a person should know of a server beside its error: where its command is, and who may not find it."""
    if spec.transport is not Transport.STDIO:
        return _notes_of_url(spec, error)
    try:
        command = expand(spec.command, environ)
    except VariableError:
        return []
    if os.sep in command:
        return []
    path = environ.get("PATH", "")
    found = shutil.which(command, path=path)
    if found is None:
        folders = [folder for folder in path.split(os.pathsep) if folder]
        more = f" and {len(folders) - FOLDERS_NAMED} more" if len(folders) > FOLDERS_NAMED else ""
        notes = [f"looked for {command!r} in {', '.join(folders[:FOLDERS_NAMED])}{more}"]
        return notes + [f"it is at {there}: name that as the command" for there in _elsewhere(command, home)]
    if shutil.which(command, path=os.pathsep.join(SHORT_PATH)) is None:
        return [f"clients started from a menu often have a short PATH and will not find {command!r}: name {found}"]
    return []


def _elsewhere(command: str, home: Path) -> list[str]:
    """Full paths of this command in the usual places outside of PATH."""
    found = []
    for place in ELSEWHERE:
        folders = [Path(place)] if place.startswith("/") else sorted(home.glob(place))
        found += [there for folder in folders if (there := shutil.which(command, path=str(folder))) is not None]
    return found[:3]


def _notes_of_url(spec: ServerSpec, error: str | None) -> list[str]:
    if error == ErrorKind.REJECTED and not spec.headers:
        return ["it was asked without any header: if it wants a sign-in, leave it with the client (sync --keep)"]
    if error in (ErrorKind.REJECTED, ErrorKind.PROTOCOL) and spec.transport is Transport.HTTP and not spec.guessed:
        return ['it was asked as streamable HTTP: an older server may want "type": "sse"']
    return []
