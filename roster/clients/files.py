"""Reading and replacing other programs' files so that at every moment the old or the new one is whole.

Every point where a process can die is announced to `step`, so that tests can die there.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from roster.clients.faults import ClientError

__all__ = [
    "ChangedError",
    "Read",
    "Step",
    "client_lock",
    "decoded",
    "digest",
    "encoded",
    "no_step",
    "read",
    "remove",
    "replace",
]  # fmt: skip

Step = Callable[[str], None]
"""Called with the name of each point of a write, before and after it."""

_BOM = b"\xef\xbb\xbf"
_LARGEST_BYTES = 64_000_000
_LOCK_STALE_S = 10.0  # the threshold of the lock that Claude Code takes
_LOCK_WAIT_S = 12.0  # longer than that, so that a lock whose holder was killed is outlived


class ChangedError(ClientError):
    """Somebody else wrote the file between our reading and our writing."""


def no_step(name: str) -> None:
    """Nothing dies."""


@dataclass(frozen=True, slots=True)
class Read:
    """A file as it was found. target: behind symbolic links; data: None when there is no file."""

    path: Path
    target: Path
    data: bytes | None
    mode: int


def digest(data: bytes) -> str:
    """What a file's bytes are known by in the journal."""
    return hashlib.sha256(data).hexdigest()


def read(path: Path) -> Read:
    """The file at `path`, or what its symbolic link leads to. Raises ClientError when it cannot be read."""
    target = Path(os.path.realpath(path))
    try:
        with target.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ClientError("it is no regular file")
            if status.st_size > _LARGEST_BYTES:
                raise ClientError(f"it has {status.st_size:,} bytes, more than a config file has")
            return Read(path, target, file.read(), stat.S_IMODE(status.st_mode))
    except FileNotFoundError:
        return Read(path, target, None, 0o600)
    except OSError as error:
        raise ClientError(f"it cannot be read ({error.strerror})") from None


def decoded(data: bytes) -> str:
    """The text of a file, its byte-order mark taken off. Raises ClientError for another encoding than UTF-8."""
    try:
        return data.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ClientError(f"line {line}: it is not UTF-8") from None


def encoded(text: str, like: bytes | None) -> bytes:
    """The bytes of a text, with a byte-order mark if `like` has one."""
    return (_BOM if like is not None and like.startswith(_BOM) else b"") + text.encode("utf-8")


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.roster-tmp")


def replace(before: Read, data: bytes, step: Step) -> None:
    """Put `data` where `before` was read: a temporary file beside it, flushed, then renamed over it.

    The mode becomes the one of `before`. Raises ChangedError when the file is no longer what was read, and ClientError
    when it or its folder cannot be written.
    """
    target = before.target
    if before.data is not None and not before.mode & 0o222:
        raise ClientError("it is read-only: make it writable first, if it is yours to change")
    temporary = _temporary(target)
    try:
        clean(target)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(descriptor, "wb") as file:
            step("created")
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _like(temporary, target, before)
        step("flushed")
        now = read(before.path)
        if now.data != before.data or now.target != before.target:
            raise ChangedError("another program changed it at this moment")
        temporary.replace(target)
        step("replaced")
        _flush_folder(target.parent)
    except OSError as error:
        raise ClientError(f"it cannot be written ({error.strerror})") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _like(temporary: Path, target: Path, before: Read) -> None:
    """Mode and, where we may, owner of the file that is replaced."""
    temporary.chmod(before.mode)
    if before.data is not None and hasattr(os, "chown"):
        old, new = target.stat(), temporary.stat()
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            with suppress(OSError):
                os.chown(temporary, old.st_uid, old.st_gid)
                temporary.chmod(before.mode)


def remove(before: Read, step: Step) -> None:
    """Delete a file that is still what was read. Raises ChangedError, ClientError."""
    if read(before.path).data != before.data:
        raise ChangedError("another program changed it at this moment")
    try:
        before.target.unlink(missing_ok=True)
        step("removed")
        _flush_folder(before.target.parent)
    except OSError as error:
        raise ClientError(f"it cannot be removed ({error.strerror})") from None


def clean(target: Path) -> None:
    """Delete what a process of ours that died here left behind. Only under Roster's own lock."""
    with suppress(OSError):
        _temporary(target).unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def client_lock(path: Path, suffix: str) -> Iterator[None]:
    """Hold the lock that the client itself takes to write this file: a folder beside it, stale after ten seconds.

    Nothing without a suffix. Raises ClientError when the client does not let go of it.
    """
    if not suffix:
        yield
        return
    lock = path.with_name(path.name + suffix)
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            lock.mkdir()
            break
        except FileExistsError:
            with suppress(OSError):
                if time.time() - lock.stat().st_mtime > _LOCK_STALE_S:
                    lock.rmdir()
                    continue
            if time.monotonic() > deadline:
                raise ClientError("its client is writing it and does not finish: try again") from None
            time.sleep(0.02)
        except OSError as error:
            raise ClientError(f"it cannot be locked ({error.strerror})") from None
    try:
        yield
    finally:
        with suppress(OSError):
            lock.rmdir()
