"""Giving the clients their files back: to the byte where nobody wrote in between, by key where somebody did.

Needs nothing but the journal and its backups: no roster.json, no network, no server.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from roster.clients import files
from roster.clients.dialects import is_roster
from roster.clients.faults import ClientError
from roster.clients.files import ChangedError, Step, no_step
from roster.clients.formats import is_only, restored, servers
from roster.clients.journal import Change, Journal, State, locked, open_journal
from roster.clients.plan import entry_digest
from roster.clients.sync import was_carried_out
from roster.config import Home

__all__ = ["Ejected", "Undone", "eject"]

_TRIES = 5


class Undone(StrEnum):
    """How a file was given back."""

    BYTES = "bytes"
    KEYS = "keys"
    REMOVED = "removed"
    NOTHING = "nothing"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Ejected:
    """What became of one file. put_back: servers that are in it again; problem: why it was left as it is."""

    path: Path
    client: str
    undone: Undone
    put_back: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Result:
    data: bytes | None
    undone: Undone


def eject(
    home: Home, clients: Collection[str] = (), *, force: bool = False, dry_run: bool = False, step: Step = no_step
) -> list[Ejected]:
    """Undo every change on file, of these clients only if any are named. Raises ClientError without a usable journal.

    force: write the bytes from before the first sync, whatever was changed since.
    """
    if not (home.folder / "backups").is_dir():
        return []
    if dry_run:
        return [_eject_file(open_journal(home), *one, force, True, step) for one in _files(open_journal(home), clients)]
    with locked(home):
        journal = open_journal(home, step)
        return [_eject_file(journal, *one, force, False, step) for one in _files(journal, clients)]


def _files(journal: Journal, clients: Collection[str]) -> list[tuple[str, list[Change]]]:
    """Each changed file with its changes; also those that were given back and are as sync had made them again."""
    chains: dict[str, list[Change]] = {}
    for change in (*journal.changes, *(change for change in journal.undone if _is_back(change))):
        if not clients or change.client in clients:
            chains.setdefault(os.path.realpath(change.path), []).append(change)
    return [(chain[0].path, chain) for chain in chains.values()]


def _is_back(change: Change) -> bool:
    """Whether our very entry stands in the file again, and a server that it stood for does not."""
    try:
        data = files.read(Path(change.path)).data
        if data is None:
            return False
        for spot in change.spots:
            now = dict(servers(files.decoded(data), spot.spot))
            ours = now.get(spot.added) if spot.added is not None else None
            missing = any(name not in now for name in spot.removed if name != spot.added)
            if missing and is_roster(ours) and entry_digest(ours) == spot.entry:
                return True
    except ClientError:
        pass
    return False


def _eject_file(journal: Journal, path: str, changes: list[Change], force: bool, dry_run: bool, step: Step) -> Ejected:
    client = changes[0].client
    try:
        for _ in range(_TRIES):
            try:
                return _try(journal, Path(path), changes, force, dry_run, step)
            except ChangedError:
                continue
        raise ClientError("another program keeps changing it: close its client and run it again")
    except ClientError as error:
        return Ejected(Path(path), client, Undone.REFUSED, problem=str(error))


def _try(journal: Journal, path: Path, changes: list[Change], force: bool, dry_run: bool, step: Step) -> Ejected:
    if dry_run:
        found = files.read(path)
        result = _undo(journal, found.data, changes, force)
        return Ejected(path, changes[0].client, result.undone, _names(changes))
    with files.client_lock(path, changes[0].lock):
        found = files.read(path)
        files.clean(found.target)
        result = _undo(journal, found.data, changes, force)
        if result.data != found.data:
            if found.data is not None and files.digest(found.data) != changes[-1].after:
                journal.keep(changes[0].client, found.data)
            step("undoing")
            if result.data is None:
                files.remove(found, step)
            else:
                mode = found.mode if found.data is not None else changes[0].mode
                files.replace(files.Read(found.path, found.target, found.data, mode), result.data, step)
        journal.undo(path, changes)
    return Ejected(path, changes[0].client, result.undone, _names(changes))


def _names(changes: Sequence[Change]) -> tuple[str, ...]:
    ours = {spot.added for change in changes for spot in change.spots}
    names = dict.fromkeys(name for change in changes for spot in change.spots for name in spot.removed)
    return tuple(name for name in names if name not in ours)


def _undo(journal: Journal, data: bytes | None, changes: list[Change], force: bool) -> _Result:
    """What the file becomes when its changes are undone, the last one first. Raises ClientError."""
    first = journal.pristine(changes[0])
    if data == first:
        return _Result(data, Undone.NOTHING)
    if force:
        return _Result(first, Undone.BYTES if first is not None else Undone.REMOVED)
    if data is None:
        raise ClientError("it is gone: `roster eject --force` writes it as it was before the first sync")
    exact = True
    current: bytes | None = data
    for change in reversed(changes):
        if current is None:
            break
        pristine = journal.pristine(change)
        found = files.digest(current)
        if found == change.after:
            current = pristine
        elif found == change.before or (change.state is State.PREPARED and not was_carried_out(change)):
            continue
        else:
            current, exact = _by_key(current, pristine, change), False
    if current is None:
        return _Result(None, Undone.REMOVED)
    return _Result(current, Undone.NOTHING if current == data else Undone.BYTES if exact else Undone.KEYS)


def _by_key(data: bytes, pristine: bytes | None, change: Change) -> bytes | None:
    """The file with our entry out and its servers in, and everything else as it is now; None when only ours is left."""
    text = files.decoded(data)
    before = files.decoded(pristine) if pristine is not None else ""
    for one in reversed(change.spots):
        now = dict(servers(text, one.spot))
        ours = [one.added] if one.added is not None and is_roster(now.get(one.added)) else []
        text = restored(text, before, one.spot, one.removed, ours, one.section)
        if change.created and is_only(text, one.spot):
            return None
    return files.encoded(text, data)
