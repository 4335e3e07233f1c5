"""A child process is talked to over pipes, and nothing of it is left when it is let go, whatever it does."""

from __future__ import annotations

import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage

from roster.backends import child
from roster.backends.child import child_streams

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform == "win32", reason="POSIX process groups")]

ECHO = "import sys\nfor line in sys.stdin:\n    print(line, end='', flush=True)\n"
PARENT = """
import subprocess, sys
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(other.pid, file=sys.stderr, flush=True)
"""
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
STAYS = "import time; time.sleep(600)\n"
FLOODS = """
import json, sys
while True:
    print(json.dumps({"jsonrpc": "2.0", "method": "flood", "params": {"x": "y" * 5000}}), flush=True)
"""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "LEAVE_S", 0.3)


def lives(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


class Started:
    """A child with this code, while the context lasts; `said` is what it has written to stderr."""

    def __init__(self, folder: Path, code: str) -> None:
        self._log, self._code = folder / "stderr", code
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Started:
        errlog = self._stack.enter_context(self._log.open("w"))
        command = [sys.executable, "-c", self._code]
        streams = child_streams(command, dict(os.environ), None, errlog)
        self.reader, self.writer = await self._stack.enter_async_context(streams)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def said(self) -> str:
        with anyio.fail_after(30):
            while not (text := self._log.read_text()).endswith("\n"):
                await anyio.sleep(0.01)
        return text


PID = "import os, sys; print(os.getpid(), file=sys.stderr, flush=True)\n"


async def test_large_messages_pass_both_ways(tmp_path: Path) -> None:
    """Megabytes in one line, which no pipe holds at once: both ends read while they write."""
    message = types.JSONRPCRequest(jsonrpc="2.0", id=1, method="x", params={"text": "é" * 3_000_000})
    async with Started(tmp_path, ECHO) as started, anyio.create_task_group() as group:
        group.start_soon(started.writer.send, SessionMessage(message))
        with anyio.fail_after(60):
            item = await started.reader.receive()
    assert isinstance(item, SessionMessage)
    assert item.message == message


async def test_a_child_that_reads_no_more_is_lost(tmp_path: Path) -> None:
    """It may live on, but nothing that waits for it ever gets an answer."""
    message = types.JSONRPCRequest(jsonrpc="2.0", id=1, method="x", params={"text": "x" * 200_000})
    async with Started(tmp_path, "import os\nos.close(0)\n" + PID + STAYS) as started:
        await started.said()
        with anyio.fail_after(30), pytest.raises(anyio.BrokenResourceError):
            await started.writer.send(SessionMessage(message))
        with pytest.raises(anyio.ClosedResourceError):
            await started.reader.receive()


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(ECHO, id="ends when its stdin does"),
        pytest.param(STAYS, id="stays until it is told"),
        pytest.param(DEAF + STAYS, id="does not want to hear"),
        pytest.param(FLOODS, id="writes without end"),
    ],
)
async def test_a_child_is_ended(tmp_path: Path, code: str) -> None:
    """By the end of its stdin, by a signal, or by one that nothing can refuse."""
    async with Started(tmp_path, PID + code) as started:
        pid = int(await started.said())
        assert lives(pid)
    assert not lives(pid)


@pytest.mark.parametrize("code", [PARENT + ECHO, PARENT, DEAF + PARENT + STAYS], ids=["good", "crashed", "hung"])
async def test_what_a_child_started_ends_with_it(tmp_path: Path, code: str) -> None:
    """Also when the child itself has been gone for long, and left it behind."""
    async with Started(tmp_path, code) as started:
        pid = int(await started.said())
        assert lives(pid)
    assert not lives(pid)


async def test_whoever_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    """In the middle of a call, or of ending it."""
    pids: list[int] = []

    async def use(*, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        async with Started(tmp_path, PID + DEAF + STAYS) as started:
            pids.append(int(await started.said()))
            task_status.started()
            await started.reader.receive()

    async with anyio.create_task_group() as group:
        await group.start(use)
        group.cancel_scope.cancel()
    assert not lives(pids[0])


async def test_what_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    """As the system says it."""
    with (tmp_path / "log").open("w") as errlog, pytest.raises(FileNotFoundError):
        async with child_streams(["/no/such/program"], {}, None, errlog):
            raise AssertionError("never here")
