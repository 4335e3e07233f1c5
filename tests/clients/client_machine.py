"""The three commands on a machine of a test's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from client_samples import client_of, user_path

from roster.clients import commands
from roster.clients.machine import Machine
from roster.config import Home, find_home


@dataclass
class Clients:
    """The three commands on one machine; each answers its exit status and its JSON document."""

    machine: Machine

    @property
    def home(self) -> Home:
        return find_home(self.machine.environ)

    def put(self, client: str, data: bytes) -> Path:
        """The client's user file, with this content."""
        path = user_path(self.machine, client_of(client))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def _ran(self, command: Callable[..., int], **options: Any) -> tuple[int, dict[str, Any]]:
        said: list[dict[str, Any]] = []
        status = command(machine=self.machine, out=said.append, **options)
        return status, said[0]

    def init(self, *clients: str, project: Path | None = None, dry_run: bool = False) -> dict[str, Any]:
        status, said = self._ran(commands.init, clients=clients, project=project, dry_run=dry_run)
        assert status == 0
        return said

    def sync(
        self, *clients: str, keep: tuple[str, ...] = (), project: Path | None = None, dry_run: bool = False
    ) -> tuple[int, dict[str, Any]]:
        return self._ran(commands.sync, clients=clients, keep=keep, project=project, dry_run=dry_run, ask=None)

    def eject(self, *clients: str, force: bool = False, dry_run: bool = False) -> tuple[int, dict[str, Any]]:
        return self._ran(commands.eject, clients=clients, force=force, dry_run=dry_run)
