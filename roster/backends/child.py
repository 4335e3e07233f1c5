"""A server run as a child process, its stdin and stdout read and written by the event loop itself. POSIX only.

It leads a process group of its own, so that whatever it started can be ended with it.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import IO

import anyio
from anyio import to_thread

from roster.wires import LineReader, LineWriter

__all__ = ["child_streams"]

log = logging.getLogger(__name__)

LEAVE_S = 2.0
"""For so long a server whose stdin was closed may take to end, and once more after it was asked to with a signal."""
POLL_S = 0.01


@asynccontextmanager
async def child_streams(
    command: Sequence[str], env: Mapping[str, str], cwd: str | None, stderr: IO[str]
) -> AsyncIterator[tuple[LineReader, LineWriter]]:
    """Start it and talk to it; end it, and what is left of its process group, on the way out. Raises OSError,
    ValueError for what cannot be started."""
    with anyio.CancelScope(shield=True):
        # Whoever is cancelled while it starts must still end it.
        child = await to_thread.run_sync(_start, command, env, cwd, stderr)
    assert child.stdin is not None
    assert child.stdout is not None
    reader = LineReader(child.stdout.fileno())
    # One that reads no more answers no more, whether it has ended or not.
    writer = LineWriter(child.stdin.fileno(), on_broken=reader.close)
    try:
        yield reader, writer
    finally:
        with anyio.CancelScope(shield=True):
            # It may be unable to read its stdin for all that it has written and nobody took.
            reader.discard()
            with anyio.move_on_after(LEAVE_S / 4):
                await writer.drained()
            writer.let_go()
            child.stdin.close()
            await _end(child)
            reader.close()
            child.stdout.close()


def _start(command: Sequence[str], env: Mapping[str, str], cwd: str | None, stderr: IO[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=env,
        cwd=cwd,
        bufsize=0,
        start_new_session=True,
    )


async def _end(child: subprocess.Popen[bytes]) -> None:
    """Wait for it to end by itself; then end what is left of its process group, first kindly."""
    await _until(lambda: child.poll() is not None)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not _signalled(child, number) or await _until(lambda: child.poll() is not None and not _signalled(child, 0)):
            return
    log.warning("the process %d, or one of its own, cannot be ended", child.pid)


async def _until(so: Callable[[], bool]) -> bool:
    deadline = anyio.current_time() + LEAVE_S
    while not so():
        if anyio.current_time() >= deadline:
            return False
        await anyio.sleep(POLL_S)
    return True


def _signalled(child: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal to the whole group, or with 0 none; False when nobody is left in it."""
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody is there, or was a moment ago
    return True
