"""Which files of which clients are there, with their bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from roster.clients.adapters import Client, Place, Scope
from roster.clients.faults import ClientError
from roster.clients.files import Read, decoded, read
from roster.clients.formats import Spot, servers
from roster.clients.machine import Machine

__all__ = ["ClientFile", "find_files", "path_of", "spot_of", "text_of"]


@dataclass(frozen=True, slots=True)
class ClientFile:
    """A place of a client on this machine. found: None when it cannot be read, and then problem says why."""

    client: Client
    place: Place
    path: Path
    found: Read | None
    problem: str = ""

    @property
    def there(self) -> bool:
        """Whether there is a file."""
        return self.found is None or self.found.data is not None


def path_of(machine: Machine, place: Place, project: Path) -> Path | None:
    """The path of a place: where it is, or would be. None when none of its templates means anything here."""
    named = place.paths.get(machine.platform, ()) or place.paths.get("", ())
    usable = [(template, path) for template in named if (path := machine.place(template, project)) is not None]
    if not usable:
        return None
    if usable[0][0].startswith("$"):
        return usable[0][1]
    return next((path for _, path in usable if path.exists()), usable[0][1])


def find_files(machine: Machine, clients: Iterable[Client], project: Path) -> Iterator[ClientFile]:
    """Every place of these clients, there or not, each file and keys once: the first client that has them counts."""
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for client in clients:
        for place in client.places:
            path = path_of(machine, place, project)
            if path is None:
                continue
            for one in sorted(path.parent.glob(path.name)) if "*" in path.name else [path]:
                mark = (os.path.realpath(one), place.keys)
                if mark in seen:
                    continue
                seen.add(mark)
                try:
                    yield ClientFile(client, place, one, read(one))
                except ClientError as error:
                    yield ClientFile(client, place, one, None, str(error))


def text_of(file: ClientFile) -> str:
    """The file's text; "" when there is none. Raises ClientError."""
    if file.found is None:
        raise ClientError(file.problem)
    return decoded(file.found.data) if file.found.data is not None else ""


def spot_of(file: ClientFile, text: str, project: Path) -> Spot:
    """Where its servers are. Of the ways to write the project's path the one in the file. Raises FormatError."""
    place = file.place
    ways: Sequence[str] = [""]
    if place.scope is Scope.LOCAL:
        ways = list(dict.fromkeys([str(project), project.as_posix(), os.path.realpath(project)]))
    spots = [Spot(place.format, tuple(way if key == "<project>" else key for key in place.keys)) for way in ways]
    return next((spot for spot in spots if servers(text, spot)), spots[0])
