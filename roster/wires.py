"""JSON-RPC lines over a pair of pipes, read and written by the event loop itself.

The SDK reads and writes standard streams in threads and hands every message on through tasks and queues of their own;
that is most of what a small call costs. Here a line is read when the pipe has it and parsed when it is asked for, and
an answer is in the pipe by the time `send` returns. Only for pipes and sockets of a POSIX system.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import stat
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic_core import from_json

from roster.streams import Taken

__all__ = ["LineReader", "LineWriter", "can_wire", "standard_wires"]

log = logging.getLogger(__name__)

CHUNK_BYTES = 64 * 1024
AHEAD_BYTES = 1024 * 1024
"""So much may wait to be taken up before no more is read, or to be read before no more is taken: a flood is the
sender's to hold."""
LARGE_BYTES = 256 * 1024
"""A line longer than this is parsed in another way (`_large`)."""
MAX_LINE_BYTES = 128 * 1024 * 1024
"""A message longer than this is the end of a connection: one that never ends would take all memory there is."""
LAST_WORDS_S = 2.0
"""At the end, what has been said but not yet read gets so long to leave."""


def parsed(line: bytes) -> SessionMessage | Exception:
    """One line as a message; the error of a line that is none, which the SDK's dispatchers take in its place."""
    if len(line) > LARGE_BYTES:
        with suppress(ValueError):
            return SessionMessage(types.jsonrpc_message_adapter.validate_python(_large(line), by_name=False))
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        pass
    try:
        # Bytes that are no text cost only themselves.
        text = line.decode("utf-8", "replace")
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValueError as error:
        return error


def _large(line: bytes) -> Any:
    """The value of a long line, in a quarter of the time: nothing else is heard meanwhile, and a thread would not
    help, as no parser lets go of the interpreter. Collecting garbage among what is just being made finds none."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return from_json(line)
    finally:
        if collecting:
            gc.enable()


class LineReader(Taken):
    """A read stream of messages over a descriptor. One task reads."""

    last_context = None

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._lines: deque[bytes] = deque()
        self._held = 0  # bytes in `_lines`
        self._parts: list[bytes] = []  # the line whose end has not come yet
        self._partly = 0  # bytes in `_parts`
        self._waiter: asyncio.Future[None] | None = None
        self._ended = self._closed = self._reading = self._discarding = False
        self._resume()

    def _resume(self) -> None:
        if not self._reading and not self._ended and not self._closed:
            self._loop.add_reader(self._fd, self._take)
            self._reading = True

    def _pause(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._fd)
            self._reading = False

    def _take(self) -> None:
        """The descriptor has something: one read of it cannot block."""
        try:
            chunk = os.read(self._fd, CHUNK_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            chunk = b""
        if self._discarding and chunk:
            return
        if chunk:
            self._split(chunk)
        else:
            self._end()
        if self._held > AHEAD_BYTES:
            self._pause()
        if self._lines or self._ended:
            self._tell()

    def _split(self, chunk: bytes) -> None:
        begin = 0
        while (end := chunk.find(b"\n", begin) + 1) > 0:
            # As a rule a chunk is one line, or a piece of one: nothing is copied then.
            self._parts.append(chunk if end - begin == len(chunk) else chunk[begin:end])
            self._keep(self._parts[0] if len(self._parts) == 1 else b"".join(self._parts))
            self._parts, self._partly, begin = [], 0, end
        if begin < len(chunk):
            self._parts.append(chunk[begin:] if begin else chunk)
            self._partly += len(chunk) - begin
            if self._partly > MAX_LINE_BYTES:
                log.warning("a line of more than %d MB is taken for the end of a connection", MAX_LINE_BYTES >> 20)
                self._parts = []
                self.close()

    def _keep(self, line: bytes) -> None:
        if line and not line.isspace():
            self._lines.append(line)
            self._held += len(line)

    def _end(self) -> None:
        self._pause()
        self._ended = True
        self._keep(b"".join(self._parts))
        self._parts = []

    async def receive(self) -> SessionMessage | Exception:
        """The next message. Raises anyio.EndOfStream, and anyio.ClosedResourceError once closed."""
        while not self._lines:
            if self._closed:
                raise anyio.ClosedResourceError
            if self._ended:
                raise anyio.EndOfStream
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        line = self._lines.popleft()
        self._held -= len(line)
        if self._held <= AHEAD_BYTES:
            self._resume()
        return parsed(line)

    def discard(self) -> None:
        """Go on reading until `close`, so that whoever writes is not held up, but hand on nothing more."""
        self._closed, self._discarding, self._parts = True, True, []
        self._lines.clear()
        self._held = 0
        self._tell()
        if not self._ended and not self._reading:
            self._loop.add_reader(self._fd, self._take)
            self._reading = True

    async def aclose(self) -> None:
        """Read no more. The descriptor stays open."""
        self.close()

    def close(self) -> None:
        """`aclose`, where nothing can be awaited."""
        self._pause()
        self._closed = True
        self._lines.clear()
        self._tell()

    def _tell(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _line(item: SessionMessage) -> bytes:
    return item.message.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8", "replace") + b"\n"


class LineWriter:
    """A write stream of messages over a descriptor, which does not block meanwhile. Any number of tasks write.

    A message is either not written at all or whole, whatever becomes of the task that sent it.
    """

    def __init__(self, fd: int, on_broken: Callable[[], None] | None = None) -> None:
        """on_broken: told once when nobody is there to read any more."""
        self._fd = fd
        self._blocking = os.get_blocking(fd)
        os.set_blocking(fd, False)
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._rest: deque[memoryview] = deque()
        self._unread = 0  # bytes in `_rest`
        self._turn = asyncio.Lock()
        self._drained: asyncio.Future[None] | None = None
        self._closed = self._broken = False

    async def send(self, item: SessionMessage) -> None:
        """Write one message, after those sent before it, and wait until it has left.

        Raises anyio.ClosedResourceError, anyio.BrokenResourceError.
        """
        if self._closed:
            raise anyio.ClosedResourceError
        if self._unread > AHEAD_BYTES or self._turn.locked():
            async with self._turn:
                await self.drained()
                self._put(_line(item))
        else:
            self._put(_line(item))
        await self.drained()
        if self._broken:
            raise anyio.BrokenResourceError

    def _put(self, line: bytes) -> None:
        if self._rest:
            self._rest.append(memoryview(line))
            self._unread += len(line)
        elif not self._broken:
            self._write(memoryview(line))

    def _write(self, view: memoryview) -> None:
        """Write as much as goes; the rest goes when the other side has read."""
        try:
            gone = os.write(self._fd, view)
        except (BlockingIOError, InterruptedError):
            gone = 0
        except OSError:
            self._break()
            return
        if gone < len(view):
            self._rest.appendleft(view[gone:])
            self._unread += len(view) - gone
            self._loop.add_writer(self._fd, self._go_on)

    def _go_on(self) -> None:
        self._loop.remove_writer(self._fd)
        while self._rest:
            waiting, view = len(self._rest), self._rest.popleft()
            self._unread -= len(view)
            self._write(view)
            if len(self._rest) == waiting:
                return
        self._tell()

    def _break(self) -> None:
        self._broken = True
        self._forget()
        if self._on_broken is not None:
            self._on_broken()

    def _tell(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    async def drained(self) -> None:
        """Wait until all that was sent has left, or nobody is there to read it any more."""
        if self._rest:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    async def aclose(self) -> None:
        """Take no more. What was sent still leaves, and the descriptor stays open."""
        self._closed = True

    async def leave(self) -> None:
        """Let what was sent leave, for a while, and forget the rest. The descriptor is then as it was before."""
        with anyio.move_on_after(LAST_WORDS_S, shield=True):
            await self.drained()
        self.let_go()

    def let_go(self) -> None:
        """`leave`, without the while."""
        self._closed = True
        if self._rest:
            self._loop.remove_writer(self._fd)
        self._forget()
        with suppress(OSError):
            os.set_blocking(self._fd, self._blocking)

    def _forget(self) -> None:
        self._rest.clear()
        self._unread = 0
        self._tell()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def can_wire(*fds: int) -> bool:
    """Whether the event loop can wait for all of these itself."""
    if sys.platform == "win32":
        return False
    try:
        modes = [os.fstat(fd).st_mode for fd in fds]
    except OSError:
        return False
    return all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes)


@asynccontextmanager
async def standard_wires() -> AsyncIterator[tuple[Any, Any]]:
    """This process's stdin and stdout as a read and a write stream; the SDK's own where these are no pipes.

    Until the end, descriptor 0 is empty and 1 is stderr, so that whatever else writes or a child inherits stays off
    the wire.
    """
    if not can_wire(0, 1):
        from mcp.server.stdio import stdio_server

        async with stdio_server() as streams:
            yield streams
        return
    sys.stdout.flush()
    in_, out = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    reader = LineReader(in_)
    writer = LineWriter(out, on_broken=reader.close)  # nobody is there to be answered
    try:
        yield reader, writer
    finally:
        reader.close()
        await writer.leave()
        with suppress(OSError):
            os.dup2(in_, 0)
            os.dup2(out, 1)
        os.close(in_)
        os.close(out)
