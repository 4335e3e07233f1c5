"""The handshake of the one client on stdin and stdout, answered before there is a Roster to serve it.

A client starts its servers one after another and waits for each, and most of what a Roster is made of has no part in
that answer. So this module imports next to nothing; what it takes to serve is imported and opened right afterwards, and
every other message waits for it.
"""

from __future__ import annotations

import gc
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
from anyio import to_thread
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.session import ServerSession
from mcp.shared.message import SessionMessage

from roster.config import Config, Home, Mode, open_home
from roster.database import open_database
from roster.errors import RosterError
from roster.mended import MendedStream
from roster.offers import announced
from roster.rawanswers import as_dict
from roster.servernotes import ServerNotes
from roster.welcome import new_server
from roster.wires import LineWriter, standard_wires

if TYPE_CHECKING:
    from roster.server import Connection, RosterServer

__all__ = ["Lobby", "last_offers"]

log = logging.getLogger(__name__)

GRACE_S = 0.1
"""For so long the handshake has the processor for itself. A client that comes later than that is no worse off."""

LAST_WORD_S = 0.1
"""What a client asked for before it closed its end, all at once as scripts do, has so long to be answered."""


def last_offers(config: Config, home: Home) -> list[Collection[str] | None]:
    """What each server had besides tools when it was last connected; None for one that never was.

    Brings the database up to date. Raises StoreError.
    """
    open_home(home)
    with closing(open_database(home.database)) as db:
        notes = ServerNotes(db).all()
    names = [name for name, spec in config.servers.items() if not spec.disabled]
    noted = [notes[name].offers if name in notes else None for name in names]
    return [None if words is None else words.split() for words in noted]


def _import_all() -> None:
    import roster.app
    import roster.server  # noqa: F401


class _PatientStream(MendedStream):
    """A read stream whose end is not seen before what came ahead of it has been taken up."""

    def __init__(self, inner: Any, lobby: Lobby) -> None:
        super().__init__(inner)
        self._lobby = lobby

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await super().__anext__()
        except StopAsyncIteration:
            await self._lobby.caught_up()
            raise


class Lobby:
    """Serves one client: the handshake by itself, everything else through the RosterServer it opens."""

    def __init__(self, config: Config, home: Home, mode: Mode, offers: Sequence[Collection[str] | None]) -> None:
        """offers: `last_offers`."""
        self._config, self._home, self._mode, self._offers = config, home, mode, offers
        self._server: Server[Any] = new_server(config, mode, self._lifespan)
        self._server.middleware.append(self._receive)
        self._session: ServerSession | None = None
        self._group: anyio.abc.TaskGroup | None = None
        self._write: object = None
        self._connection: Connection | None = None
        self._behind: RosterServer | None = None
        self._waiting, self._opened, self._over = anyio.Event(), anyio.Event(), anyio.Event()

    async def serve_stdio(self) -> None:
        """Serve this process's stdin and stdout until the client closes them."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._open)
            async with standard_wires() as (read, write):
                self._write = write
                await self._server.run(_PatientStream(read, self), write, self._server.create_initialization_options())
            self._over.set()

    async def caught_up(self) -> None:
        """Wait until nothing waits for the opening any more, and what did has had a moment to be answered."""
        if self._waiting.is_set() and not self._opened.is_set():
            await self._opened.wait()
            await anyio.sleep(LAST_WORD_S)

    async def close(self) -> None:
        """Stop the backends and wait for their children to end; then let what was answered reach the client."""
        if self._behind is not None:
            await self._behind.roster.pool.close()
            await self._behind.roster.caller.scribe.finish()
        if isinstance(self._write, LineWriter):
            await self._write.leave()

    @asynccontextmanager
    async def _lifespan(self, _: Server[Any]) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                yield
            finally:
                if self._behind is not None and self._connection is not None:
                    self._behind.forget(self._connection)
                group.cancel_scope.cancel()

    async def _open(self) -> None:
        """Open what serves, and keep it open until the client has gone."""
        with anyio.move_on_after(GRACE_S):
            await self._waiting.wait()
        await to_thread.run_sync(_import_all)
        from roster.app import open_roster
        from roster.server import Connection, RosterServer

        # What is there now stays; from here on only what comes after it is searched for garbage.
        gc.freeze()
        gc.enable()
        try:
            with open_roster(self._config, self._home) as roster:
                server = RosterServer(roster, self._mode, server=self._server)
                async with server.running():
                    connection = Connection(session=self._session, group=self._group)
                    server.add(connection)
                    self._behind, self._connection = server, connection
                    self._opened.set()
                    await self._over.wait()
        except (RosterError, OSError, sqlite3.Error) as error:
            # The database could be opened a moment ago. A thread waits in read(0), so nothing less ends the process.
            log.error("%s", error)
            os._exit(1)

    async def _receive(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Middleware: answer the handshake; with anything else wait for what answers it."""
        if self._behind is None and ctx.method == "initialize":
            self._session = ctx.session
            result = as_dict(await call_next(ctx))
            return {**result, "capabilities": announced(self._mode, self._offers)}
        self._waiting.set()
        await self._opened.wait()
        assert self._behind is not None
        return await self._behind.receive(replace(ctx, lifespan_context=self._connection), call_next)
