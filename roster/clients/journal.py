"""What sync has done to other programs' files, on disk before it does it, with the bytes as they were before.

`backups/` in Roster's home, for its owner only: `journal.json`, and a file of pristine bytes for each change.
The journal holds names, paths and digests; values stand in the backups alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from roster.clients import files
from roster.clients.adapters import Format
from roster.clients.faults import ClientError
from roster.clients.files import Step
from roster.clients.formats import Spot
from roster.config import Home, open_home

__all__ = ["Change", "Journal", "SpotChange", "State", "locked", "open_journal"]

_LOCK_WAIT_S = 10.0
_VERSION = 1


class State(StrEnum):
    """How far a change got: its backup is safe, it is carried out as well, or it is undone again.

    What is undone is remembered until the next sync of that file: a client that kept the file in memory may write it
    back as sync had made it.
    """

    PREPARED = "prepared"
    DONE = "done"
    UNDONE = "undone"


class SpotChange(BaseModel):
    """What was changed at one place of a file.

    entry, section: digests of our entry and of the servers' own text, both as they were written.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Format
    keys: tuple[str, ...]
    removed: tuple[str, ...]
    added: str | None
    entry: str = ""
    section: str = ""

    @property
    def spot(self) -> Spot:
        """The place."""
        return Spot(self.format, self.keys)


class Change(BaseModel):
    """One change of one file. before, after: digests of its bytes; before is "" when sync made the file.

    lock: what the client locks it with. mode: its permissions before.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    client: str
    path: str
    backup: str
    before: str
    after: str
    spots: tuple[SpotChange, ...]
    lock: str = ""
    mode: int = 0o600
    state: State = State.PREPARED

    @property
    def created(self) -> bool:
        """Whether there was no file before."""
        return not self.before


class _Journal(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: int = _VERSION
    next: int = 1
    changes: list[Change] = []


@contextmanager
def locked(home: Home) -> Iterator[None]:
    """Nobody else syncs or ejects meanwhile. Raises ClientError when another process does not finish."""
    folder = _open_folder(home)
    try:
        with FileLock(folder / "lock", timeout=_LOCK_WAIT_S, mode=0o600):
            yield
    except Timeout:
        raise ClientError("another `roster sync` or `roster eject` is at work: try again when it is done") from None


def _folder(home: Home) -> Path:
    return home.folder / "backups"


def _open_folder(home: Home) -> Path:
    folder = _folder(open_home(home))
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


class Journal:
    """What was changed, oldest first. Every method that changes it has it on disk when it returns."""

    def __init__(self, home: Home, kept: _Journal, step: Step) -> None:
        self._home = home
        self._folder = _folder(home)
        self._kept = kept
        self._step = step

    @property
    def changes(self) -> tuple[Change, ...]:
        """Every change that is not undone, the oldest first."""
        return tuple(change for change in self._kept.changes if change.state is not State.UNDONE)

    @property
    def undone(self) -> tuple[Change, ...]:
        """The changes that were undone last, the oldest first."""
        return tuple(change for change in self._kept.changes if change.state is State.UNDONE)

    def of(self, path: Path) -> list[Change]:
        """The changes of one file that are not undone, the oldest first."""
        return [change for change in self.changes if _same_file(change.path, path)]

    def prepare(self, client: str, found: files.Read, after: bytes, spots: Iterable[SpotChange], lock: str) -> Change:
        """Keep a file's bytes and say what is about to be done to it."""
        number = self._kept.next
        name = self.keep(client, found.data) if found.data is not None else ""
        change = Change(
            number=number,
            client=client,
            path=str(found.path),
            backup=name,
            before=files.digest(found.data) if found.data is not None else "",
            after=files.digest(after),
            spots=tuple(spots),
            lock=lock,
            mode=found.mode,
        )
        self._kept.next = max(self._kept.next, number + 1)
        self._drop_undone(found.path)
        self._kept.changes.append(change)
        self._write()
        return change

    def keep(self, client: str, data: bytes) -> str:
        """The name of a new backup that holds `data`."""
        _open_folder(self._home)
        while True:
            name = f"{self._kept.next:04}-{client}"
            self._kept.next += 1
            if not (self._folder / name).exists():
                break
        found = files.Read(self._folder / name, self._folder / name, None, 0o600)
        files.replace(found, data, self._named("backup"))
        return name

    def settle(self, change: Change, *, done: bool) -> None:
        """The change is carried out, or will never be."""
        at = self._kept.changes.index(change)
        if done:
            self._kept.changes[at] = change.model_copy(update={"state": State.DONE})
        else:
            del self._kept.changes[at]
        self._write()

    def undo(self, path: Path, changes: Iterable[Change]) -> None:
        """These, of one file, are undone. Their backups stay where they are."""
        undone = [change.model_copy(update={"state": State.UNDONE}) for change in changes]
        numbers = {change.number for change in undone}
        self._kept.changes = [change for change in self._kept.changes if change.number not in numbers]
        self._drop_undone(path)
        self._kept.changes += undone
        self._write()

    def _drop_undone(self, path: Path) -> None:
        kept = self._kept.changes
        self._kept.changes = [c for c in kept if c.state is not State.UNDONE or not _same_file(c.path, path)]

    def pristine(self, change: Change) -> bytes | None:
        """The file's bytes before a change; None when there was no file. Raises ClientError when they are lost."""
        if change.created:
            return None
        place = self._folder / change.backup
        found = files.read(place)
        if found.data is None:
            raise ClientError(f"its backup {place} is gone: put the servers back by hand")
        if files.digest(found.data) != change.before:
            raise ClientError(f"its backup {place} was changed: put the servers back by hand")
        return found.data

    def _named(self, what: str) -> Step:
        return lambda name: self._step(f"{what} {name}")

    def _write(self) -> None:
        path = _open_folder(self._home) / "journal.json"
        data = self._kept.model_dump_json(indent=1).encode()
        found = files.read(path)
        files.replace(files.Read(found.path, found.target, found.data, 0o600), data, self._named("journal"))


def _same_file(one: str, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def open_journal(home: Home, step: Step = files.no_step) -> Journal:
    """The journal of this home; an empty one if there is none. Raises ClientError when it cannot be read."""
    path = _folder(home) / "journal.json"
    data = files.read(path).data
    try:
        kept = _Journal.model_validate_json(data) if data is not None else _Journal()
    except ValidationError:
        raise ClientError(
            f"{path} cannot be read; the files as they were lie beside it, put them back by hand"
        ) from None
    if kept.version != _VERSION:
        raise ClientError(f"{path} was written by another version of Roster: use that one, or upgrade roster-mcp")
    return Journal(home, kept, step)
