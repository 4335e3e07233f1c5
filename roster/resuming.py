"""What a client has missed when its stream broke: kept in memory for a while, and only for its own session.

In the older era a call goes on when the connection it came over is lost. The client comes back with the id of the last
event it saw (`Last-Event-ID`) and gets the rest. The SDK has one store for all sessions and gives it the id of the
request alone, with which every client begins at 1. So whose events these are is told by the context: everything that is
done for a session inherits it from the request that opened it.

What is forgotten stays so: a stream goes on with what is left of it, and one of which nothing is known is refused. In
the newer era nothing can be resumed; there a lost connection ends the call.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.server.streamable_http import GET_STREAM_KEY, EventCallback, EventMessage, EventStore

__all__ = ["Events", "SessionEvents"]

KEEP_S = 300.0
"""For so long an event is kept."""
MOST_EVENTS = 1_000
MOST_BYTES = 4 * 1024 * 1024
"""So many events, and so many bytes of them, are kept for one session; the oldest are forgotten first."""
ALL_BYTES = 64 * 1024 * 1024
"""So many bytes are kept for all sessions together. Whoever has most of them loses them first."""

_EVENT_ID = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_UNKNOWN = "0-0"


@dataclass(slots=True, eq=False)
class _Event:
    number: int
    message: Any
    size_bytes: int
    at: float


@dataclass(slots=True, eq=False)
class _Stream:
    """The answers to one request, or what comes unasked. last: the number of its newest event."""

    number: int
    name: str
    last: int = 0
    over: bool = False
    events: deque[_Event] = field(default_factory=deque)

    @property
    def unasked(self) -> bool:
        return self.name == GET_STREAM_KEY


class SessionEvents:
    """The events of one session, by stream."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.closed = False
        self._streams: dict[int, _Stream] = {}
        self._current: dict[str, _Stream] = {}
        self._kept: deque[_Stream] = deque()  # a stream for each event that is kept, in their order
        self._made = 0
        self._news = anyio.Event()

    def add(self, stream_id: str, message: Any, now: float) -> str:
        """Keep an event of a stream; its id. Without a message it is the first of a new stream."""
        stream = self._current.get(stream_id)
        if stream is None or stream.over or (message is None and not stream.unasked):
            if stream is not None and not stream.over:
                # Two requests under one id: nobody can tell any more what belongs to the first.
                stream.over = True
                self._drop_if_spent(stream)
            self._made += 1
            stream = _Stream(self._made, stream_id)
            self._streams[stream.number] = self._current[stream_id] = stream
        stream.last += 1
        if message is not None:
            size_bytes = len(message.model_dump_json(by_alias=True, exclude_unset=True))
            stream.events.append(_Event(stream.last, message, size_bytes, now))
            self._kept.append(stream)
            self.size_bytes += size_bytes
            # Neither a request nor news: the answer, and the last that is heard of this stream.
            stream.over = not stream.unasked and not hasattr(message, "method")
            while len(self._kept) > MOST_EVENTS or self.size_bytes > MOST_BYTES:
                self.forget_oldest()
            self._tell()
        return f"{stream.number}-{stream.last}"

    def forget_oldest(self) -> None:
        """Forget one event."""
        stream = self._kept.popleft()
        self.size_bytes -= stream.events.popleft().size_bytes
        self._drop_if_spent(stream)

    def _drop_if_spent(self, stream: _Stream) -> None:
        if stream.over and not stream.events:
            del self._streams[stream.number]
            if self._current.get(stream.name) is stream:
                del self._current[stream.name]

    def forget_before(self, at: float) -> None:
        """Forget what is older."""
        while self._kept and self._kept[0].events[0].at < at:
            self.forget_oldest()

    def stream_of(self, event_id: str) -> int | None:
        """The number of the stream that an event belongs to, 0 for what comes unasked; None when it is not known (any
        more)."""
        found = self._find(event_id)
        return None if found is None else 0 if found[0].unasked else found[0].number

    async def after(self, event_id: str) -> AsyncIterator[tuple[str, Any]]:
        """What came after an event in its stream, ids and messages, as far as it is kept; then what still comes, until
        the answer or the end of the session."""
        found = self._find(event_id)
        if found is None:
            return
        stream, seen = found
        while True:
            fresh = [event for event in stream.events if event.number > seen]
            for event in fresh:
                seen = event.number
                yield f"{stream.number}-{seen}", event.message
            if not fresh:
                if stream.over or self.closed:
                    return
                await self._news.wait()

    def close(self) -> None:
        """Forget everything, and end every stream that is resumed."""
        self.closed = True
        while self._kept:
            self.forget_oldest()
        self._tell()

    def _find(self, event_id: str) -> tuple[_Stream, int] | None:
        match = _EVENT_ID.fullmatch(event_id)
        stream = self._streams.get(int(match[1])) if match else None
        if match is None or stream is None or int(match[2]) > stream.last:
            return None
        return stream, int(match[2])

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()


_whose: ContextVar[SessionEvents | None] = ContextVar("whose", default=None)


class Events(EventStore):
    """The store that the SDK asks: it finds the session in the context."""

    def __init__(self) -> None:
        self._sessions: set[SessionEvents] = set()
        self._size_bytes = 0

    @contextmanager
    def of(self, session: SessionEvents) -> Iterator[None]:
        """What is done here, and whatever is started here, is done for this session."""
        before = _whose.set(session)
        try:
            yield
        finally:
            _whose.reset(before)

    async def store_event(self, stream_id: str, message: Any) -> str:
        """The id of an event that is kept from now on."""
        session = _whose.get()
        if session is None or session.closed:
            return _UNKNOWN
        before = session.size_bytes
        event_id = session.add(stream_id, message, anyio.current_time())
        self._sessions.add(session)
        self._size_bytes += session.size_bytes - before
        while self._size_bytes > ALL_BYTES:
            most = max(self._sessions, key=lambda each: each.size_bytes)
            before = most.size_bytes
            most.forget_oldest()
            self._size_bytes += most.size_bytes - before
        return event_id

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> None:
        """Send what came after an event and what still comes, to the end.

        The SDK could be left to follow a stream on from here, but would lose what comes while it turns to it.
        """
        session = _whose.get()
        if session is not None:
            async for event_id, message in session.after(last_event_id):
                await send_callback(EventMessage(message, event_id))

    def tidy(self, now: float) -> None:
        """Forget what nobody came back for in time. now: as `anyio.current_time` tells it."""
        for session in list(self._sessions):
            before = session.size_bytes
            session.forget_before(now - KEEP_S)
            self._size_bytes += session.size_bytes - before
            if not session.size_bytes:
                self._sessions.discard(session)

    def forget(self, session: SessionEvents) -> None:
        """A session is over."""
        if session in self._sessions:
            self._sessions.discard(session)
            self._size_bytes -= session.size_bytes
        session.close()
