"""A server that writes without end costs itself alone: what it says is taken up in turns with everything else.

A line that is there already is handed on without a wait, so a flood of them would hold up the event loop, and with it
every other server and client, until the buffer is empty; and then the next. Lines that nobody can read are no use to
anybody, so after a stretch of them the server is not listened to for a while. Its pipe is full meanwhile, and it waits.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import anyio
from mcp.shared._stream_protocols import ReadStream
from mcp.shared.message import SessionMessage

from roster.streams import StreamAround

__all__ = ["PacedStream"]

STRETCH_S = 0.0003
"""For so long messages are handed on before everybody else has a turn."""
WAITED_S = 0.0001
"""Whoever waited so long for a message has let the others have theirs."""
STRAY = 10
"""So many unreadable lines in a stretch are no flood: a `print` that somebody forgot."""
REST_S = 0.003
"""The rest after a stretch of a flood, which so gets a tenth of the time: enough to hear what else is said in it."""


class PacedStream(StreamAround):
    """A read stream that rests now and then where the one who writes does not."""

    def __init__(
        self,
        inner: ReadStream[SessionMessage | Exception],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        super().__init__(inner)
        self._clock, self._sleep = clock, sleep
        self._begun = 0.0  # this stretch
        self._unreadable = 0  # lines in it

    async def receive(self) -> SessionMessage | Exception:
        """The next message, after a rest if one is due."""
        now = self._clock()
        if now - self._begun > STRETCH_S:
            await self._sleep(REST_S if self._unreadable > STRAY else 0)
            now = self._clock()
            self._begin(now)
        item = await super().receive()
        if isinstance(item, Exception):
            self._unreadable += 1
        elif (then := self._clock()) - now > WAITED_S:
            self._begin(then)
        return item

    def _begin(self, now: float) -> None:
        self._begun, self._unreadable = now, 0
