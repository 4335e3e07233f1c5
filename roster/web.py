"""Roster over streamable HTTP: the SDK's own server behind a gate, one set of backends, a connection a session.

In the older era a client opens a session, and what belongs to it (drafts, last calls) lives and dies with that session.
In the newer era every request stands alone. What a client did before is then found by its token, its name and its host,
and a draft by its id, which nobody can guess.
"""

from __future__ import annotations

import logging
import signal
import socket
import sqlite3
import sys
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any, TypeVar

import anyio
import anyio.abc
import uvicorn
from anyio import to_thread
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from roster import __version__, connections
from roster.addresses import LOOPBACKS
from roster.app import Roster
from roster.backends import State
from roster.config import Mode
from roster.connections import SPARE, most_connections
from roster.database import open_database
from roster.errors import StoreError
from roster.gate import PATH, Gate, Rules, token_of
from roster.resuming import Events
from roster.server import Connection, Context, RosterServer
from roster.sessions import Sessions
from roster.tokens import Token, Tokens

__all__ = ["PATH", "Web", "listening", "serve_web"]

log = logging.getLogger(__name__)

CONNECTIONS_A_SESSION = 4
FLUSH_LIMIT_S = 2.0
LOOK_AGAIN_S = 2.0
"""So often it is looked whether those who are inside may still be."""
_OURS = "roster"
T = TypeVar("T")


class Web:
    """One RosterServer as an ASGI application.

    token: whether one is asked for. hosts: names it is served at besides this machine's own. here: whether this machine
    alone can reach it.
    """

    def __init__(
        self, roster: Roster, mode: Mode, *, token: bool = False, hosts: Collection[str] = (), here: bool = True
    ) -> None:
        self.roster = roster
        self.settings = roster.config.settings.http
        self.server = RosterServer(roster, mode, connection_of=self._connection_of)
        self._token = token
        self._looking = threading.Lock()
        self._visitors = Visitors(self.settings.max_sessions, self.settings.session_idle_s)
        self._events = Events()
        self._manager = StreamableHTTPSessionManager(
            self.server.server,
            event_store=self._events,
            # The gate has looked already, and knows which address a request came in on.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            session_idle_timeout=self.settings.session_idle_s,
            max_sessions=self.settings.max_sessions,
            max_request_body_size=self.settings.max_body_bytes,
        )
        self._sessions = Sessions(self._manager.handle_request, self._events, self.settings.max_sessions)
        self.most_connections = most_connections(self.settings.max_sessions * CONNECTIONS_A_SESSION + 2 * SPARE)
        rules = Rules(
            hosts=frozenset(name.lower() for name in (*LOOPBACKS, *hosts, *self.settings.hosts)),
            origins=frozenset(self.settings.origins),
            pages_here=here,
            token=token,
            max_body_bytes=self.settings.max_body_bytes,
            # So that one of them leaves the others room.
            at_once=self.most_connections // 2,
        )
        self.gate = Gate(self._sessions, rules, self._holder, self._health)
        self.app: ASGIApp = self.gate
        if self.settings.origins:
            # A page may only read an answer that says so; without pages there is nobody to say it to.
            self.app = CORSMiddleware(
                self.gate,
                allow_origins=self.settings.origins,
                allow_methods=("GET", "POST", "DELETE"),
                allow_headers=("*",),
                expose_headers=("Mcp-Session-Id", "Mcp-Protocol-Version"),
            )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Backends and sessions, for as long as requests are served."""
        # A connection of its own, so that nobody waits at the gate for somebody else's draft.
        with closing(open_database(self.roster.home.database)) as self._db:
            async with self.server.running(at_once=True), self._manager.run():
                yield

    async def watch(self) -> None:
        """For as long as this runs, end what is open for a token that was removed or sees other servers now, and forget
        what nobody came back for."""
        while True:
            await anyio.sleep(LOOK_AGAIN_S)
            try:
                await self._look_again()
            except StoreError as error:
                log.warning("it cannot be looked which tokens are gone: %s", error)

    async def _look_again(self) -> None:
        self._events.tidy(anyio.current_time())
        if self.gate.tokens() or self._sessions.tokens():
            tokens = await self._asked(Tokens.all)
            self.gate.keep(tokens)
            await self._sessions.keep(tokens)

    async def drain(self) -> None:
        """Let nobody else in, give calls in flight a little time, then end them with an answer that says so."""
        self.gate.close()
        with anyio.move_on_after(self.settings.stop_grace_s):
            await self.gate.quiet()
        self.server.stop_calls()
        with anyio.move_on_after(FLUSH_LIMIT_S):
            await self.gate.quiet()

    # ------------------------------------------------------------------------------------------ who is there

    def _connection_of(self, ctx: Context) -> Connection:
        scope = ctx.request.scope if ctx.request is not None else {}
        token = token_of(scope)
        # The SDK gives handlers no other way to what belongs to a connection, though it is meant for them.
        session = ctx.session._connection
        if session.session_id is None:
            info = session.client_params.client_info if session.client_params is not None else None
            host = (scope.get("client") or ("",))[0]
            who = f"{token.name} {token.created_at}" if token else ""
            visitor = (who, host, info.name if info else "", info.version if info else "")
            connection = self._visitors.connection(visitor, anyio.current_time())
        elif _OURS in session.state:
            connection = session.state[_OURS]
        else:
            connection = session.state[_OURS] = Connection()
            self.server.add(connection)
            session.exit_stack.callback(self.server.forget, connection)
            if (own := self._sessions.of(scope)) is not None:
                session.exit_stack.callback(self._sessions.ended, own)
        # Of this request's token: what it may see can have been changed since the session began.
        if token is not None:
            connection.servers = token.servers
        else:
            connection.servers = frozenset() if self._token else None
        return connection

    async def _holder(self, secret: str) -> Token | None:
        return await self._asked(lambda tokens: tokens.holder(secret))

    async def _asked(self, question: Callable[[Tokens], T]) -> T:
        def ask() -> T:
            with self._looking:
                return question(Tokens(self._db))

        try:
            return await to_thread.run_sync(ask)
        except sqlite3.Error as error:
            raise StoreError(f"{self.roster.home.database} cannot be read ({error})") from error

    def _health(self, token: Token | None) -> dict[str, Any]:
        seen = [backend for name, backend in self.roster.pool.items() if _sees(token, name)]
        ready = sum(backend.state is State.READY for backend in seen)
        return {
            "version": __version__,
            "servers": {"ready": ready, "all": len(seen)},
            "sessions": {"open": self._sessions.count(token), "all": self.settings.max_sessions},
        }


def _sees(token: Token | None, server: str) -> bool:
    return token is None or token.servers is None or server in token.servers


class Visitors:
    """Connections of clients without a session, by who they are; those not seen for long are forgotten."""

    def __init__(self, limit: int, idle_s: float) -> None:
        self._limit, self._idle_s = limit, idle_s
        self._seen: OrderedDict[tuple[str, ...], tuple[float, Connection]] = OrderedDict()

    def connection(self, visitor: tuple[str, ...], now: float) -> Connection:
        """This visitor's connection. now: seconds, of any clock that only goes forward."""
        oldest = now - self._idle_s
        while self._seen and next(iter(self._seen.values()))[0] < oldest:
            self._seen.popitem(last=False)
        _, connection = self._seen.pop(visitor, (now, None))
        if connection is None:
            connection = Connection()
            if len(self._seen) >= self._limit:
                self._seen.popitem(last=False)
        self._seen[visitor] = now, connection
        return connection


class _Uvicorn(uvicorn.Server):
    """Leaves signals to us: it would end every stream at once, and then end the process with the signal."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _watch(web: Web, *, task_status: anyio.abc.TaskStatus[anyio.CancelScope]) -> None:
    with anyio.CancelScope() as scope:
        task_status.started(scope)
        await web.watch()


@asynccontextmanager
async def listening(web: Web, sock: socket.socket) -> AsyncIterator[None]:
    """Answer what comes in on a listening socket; on the way out, end what is left of it."""
    config = uvicorn.Config(
        web.app,
        http=connections.Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=connections.KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
        limit_concurrency=web.most_connections,
    )
    server = _Uvicorn(config)
    async with anyio.create_task_group() as group, web.running():
        group.start_soon(server.serve, [sock])
        watching = await group.start(_watch, web)
        try:
            yield
        finally:
            web.gate.close()
            web.gate.end()
            watching.cancel()
            server.should_exit = True


async def serve_web(web: Web, sock: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until told to stop by a signal; a second one ends the wait for calls in flight."""
    with _signals() as signals:
        async with listening(web, sock):
            on_ready()
            await anext(signals)
            async with anyio.create_task_group() as group:

                async def hurry() -> None:
                    await anext(signals)
                    group.cancel_scope.cancel()

                group.start_soon(hurry)
                await web.drain()
                group.cancel_scope.cancel()


@contextmanager
def _signals() -> Iterator[AsyncIterator[object]]:
    """The signals that end a process politely, as they come. On Windows none do: Ctrl-C is a cancellation there."""
    if sys.platform == "win32":
        yield _nothing()
    else:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            yield aiter(signals)


async def _nothing() -> AsyncIterator[object]:
    await anyio.sleep_forever()
    yield None
