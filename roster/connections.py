"""HTTP connections while they are no request yet: how long they may stay so, and how many there may be.

Nobody has shown a token by then, so whatever is held here, anybody can hold.
"""

from __future__ import annotations

import asyncio
import sys

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["KEEP_ALIVE_S", "SPARE", "Connection", "most_connections"]

KEEP_ALIVE_S = 30
"""For so long a connection may say nothing between two requests."""
HEAD_LIMIT_S = 15.0
"""For so long the head of a request may take to arrive: from the connection on, or from its first byte."""
SPARE = 16
"""So many connections below the limit room is made, so that the next request is not the one that finds none."""


class Connection(H11Protocol):
    """A connection that is given up when no request comes of it in time, or when others need the room.

    The server's own limit is on silence after an answer: not on silence before the first request, on a head that comes
    in byte by byte, or on a body that is still coming in when its answer has left.
    """

    _due: asyncio.TimerHandle | None = None
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._wait(HEAD_LIMIT_S)
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Something has come: a head or a part of it, or a body."""
        super().data_received(data)
        if self._serving:
            self._wait_no_more()
        else:
            self._wait(HEAD_LIMIT_S)

    def on_response_complete(self) -> None:
        """An answer has left."""
        self._since = self.loop.time()
        super().on_response_complete()
        if not self._serving:
            # The silence until then is the server's affair.
            self._wait(KEEP_ALIVE_S + HEAD_LIMIT_S)

    @property
    def _serving(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self, limit_s: float) -> None:
        if self._due is None and not self.transport.is_closing():
            self._due = self.loop.call_later(limit_s, self.transport.close)

    def _wait_no_more(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _make_room(self) -> None:
        """End the connection that has waited longest for a request, once there are about as many as there may be.

        Where all are being answered there is none to end: then the server itself refuses the request, with status 503.
        """
        limit = self.config.limit_concurrency
        if limit is None or len(self.connections) < max(limit - SPARE, 1):
            return
        open_ = [each for each in self.connections if isinstance(each, Connection) and not each.transport.is_closing()]
        if len(open_) >= max(limit - SPARE, 1):
            waiting = [each for each in open_ if not each._serving and each is not self]
            if waiting:
                min(waiting, key=lambda each: each._since).transport.abort()


def most_connections(wanted: int) -> int:
    """So many connections as are wanted, if the system lets this process have that many beside its servers' pipes."""
    if sys.platform == "win32":
        return wanted
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, max(soft // 2, 2 * SPARE))
