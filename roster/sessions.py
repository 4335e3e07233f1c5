"""The sessions of the older era: whose they are, which of them makes room for another one, and when each ends.

An ASGI application between the gate and the SDK's. The SDK keeps a session to the name of the token that opened it;
here it is kept to that very token, and ends with it. The SDK refuses a session too many, and would for as long as those
that clients left behind have not timed out; here one of these makes room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roster.gate import PATH, token_of
from roster.replies import Reply, refusal
from roster.resuming import Events, SessionEvents
from roster.tokens import Token

__all__ = ["Session", "Sessions"]

UNUSED_S = 60.0
"""A session that nobody has used for so long makes room for another one, where there are as many as there may be."""
END_LIMIT_S = 5.0

_SESSION = "roster.session"
_UNASKED = 0


@dataclass(slots=True, eq=False)
class Session:
    """One session. id: "" until it is open. used_at: when it last had a request, as `anyio.current_time` tells it.

    requests: how many are open. streams: those with GET, by the stream they follow, 0 for what comes unasked.
    """

    token: Token | None
    user: Any
    used_at: float
    id: str = ""
    requests: int = 0
    over: bool = False
    events: SessionEvents = field(default_factory=SessionEvents)
    streams: dict[int, tuple[anyio.CancelScope, anyio.Event]] = field(default_factory=dict)


class Sessions:
    """Passes requests on to the SDK's session manager, each in the context of its session."""

    def __init__(self, app: ASGIApp, events: Events, limit: int) -> None:
        """limit: so many sessions the manager opens."""
        self._app = app
        self._events = events
        self._limit = limit
        self._open: dict[str, Session] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request that has passed the gate."""
        headers = Headers(scope=scope)
        if headers.get("mcp-protocol-version", HANDSHAKE_PROTOCOL_VERSIONS[0]) not in HANDSHAKE_PROTOCOL_VERSIONS:
            await self._app(scope, receive, send)
            return
        session = await self._session(scope, headers)
        if isinstance(session, Response):
            await session(scope, receive, send)
            return
        scope[_SESSION] = session
        following, reply = None, Reply(send)
        if scope["method"] == "GET":
            last = headers.get("last-event-id")
            following = session.events.stream_of(last) if last else _UNASKED
            if following is None:
                gone = "what came after this event is not kept (any more): ask again"
                await refusal(400, gone)(scope, receive, send)
                return
        session.requests += 1
        try:
            with self._events.of(session.events):
                if following is None:
                    await self._pass(session, scope, receive, reply)
                else:
                    await self._follow(session, following, scope, receive, reply)
        finally:
            session.requests -= 1
            session.used_at = anyio.current_time()

    async def _session(self, scope: Scope, headers: Headers) -> Session | Response:
        """The session that a request names, or one that it may open; or why it is refused."""
        token, id_ = token_of(scope), headers.get("mcp-session-id")
        if id_ is not None:
            session = self._open.get(id_)
            if session is None or session.token != token:
                return refusal(404, "there is no such session (any more): open another one")
            return session
        if scope["method"] != "POST":
            return refusal(400, "no session is named: send its Mcp-Session-Id")
        # Whether it is one that opens a session, the SDK finds out.
        await self._make_room(token)
        return Session(token, scope.get("user"), anyio.current_time())

    async def _pass(self, session: Session, scope: Scope, receive: Receive, reply: Reply) -> None:
        async def note(message: Message) -> None:
            if not session.id and message["type"] == "http.response.start" and message["status"] < 400:
                id_ = Headers(raw=message["headers"]).get("mcp-session-id")
                if id_ is not None and not session.over:
                    session.id = id_
                    self._open[id_] = session
            await reply.send(message)

        await self._app(scope, receive, note)

    async def _follow(self, session: Session, stream: int, scope: Scope, receive: Receive, reply: Reply) -> None:
        """Answer with a stream; another one of the same is the client's last connection, which it gave up before we
        could know."""
        with anyio.move_on_after(END_LIMIT_S):
            while (before := session.streams.get(stream)) is not None:
                before[0].cancel()
                await before[1].wait()
        over = anyio.Event()
        with anyio.CancelScope() as following:
            session.streams[stream] = following, over
            try:
                await self._app(scope, receive, reply.send)
            finally:
                over.set()
                if session.streams.get(stream) == (following, over):
                    del session.streams[stream]
        if following.cancelled_caught:
            await reply.finish(refusal(409, "the same stream was asked for once more"))

    # --------------------------------------------------------------------------------------------- what is open

    @staticmethod
    def of(scope: Scope) -> Session | None:
        """The session of a request; None in the newer era."""
        session = scope.get(_SESSION)
        return session if isinstance(session, Session) else None

    def count(self, token: Token | None) -> int:
        """How many sessions are open: of this token, where it does not see every server; of all otherwise."""
        if token is None or token.servers is None:
            return len(self._open)
        return sum(session.token == token for session in self._open.values())

    def tokens(self) -> set[Token]:
        """The tokens that have sessions."""
        return {session.token for session in self._open.values() if session.token is not None}

    async def keep(self, tokens: Collection[Token]) -> None:
        """End the sessions of every other token: one that has been removed, or sees other servers now."""
        for session in list(self._open.values()):
            if session.token is not None and session.token not in tokens:
                await self._end(session)

    def ended(self, session: Session) -> None:
        """A session is over, for whatever reason."""
        session.over = True
        self._open.pop(session.id, None)
        self._events.forget(session.events)

    async def _make_room(self, newcomer: Token | None) -> None:
        if len(self._open) < self._limit:
            return
        held = Counter(session.token for session in self._open.values())
        most = max(held.values())
        now = anyio.current_time()
        # Of whoever holds most: what is not in use. What is, only where the other would still have as many.
        spare = [
            session
            for session in self._open.values()
            if held[session.token] == most
            and (most > held[newcomer] + 1 or (not session.requests and now - session.used_at >= UNUSED_S))
        ]
        if spare:
            await self._end(min(spare, key=lambda session: (session.requests > 0, session.used_at)))

    async def _end(self, session: Session) -> None:
        """End a session as its own client would."""
        self.ended(session)
        headers = [(b"mcp-session-id", session.id.encode())]
        scope = {"type": "http", "method": "DELETE", "path": PATH, "query_string": b"", "headers": headers}

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_: Message) -> None:
            pass

        with anyio.move_on_after(END_LIMIT_S):
            await self._app({**scope, "user": session.user}, receive, send)
