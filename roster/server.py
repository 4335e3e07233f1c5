"""The MCP server a client talks to: every backend tool as it is, or `draft` and `call`.

What is no tool - resources, prompts, logs, questions of a backend to the client - is in `forwarding`.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio
import anyio.abc
import mcp_types as types
from anyio import to_thread
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ToolsListChanged
from mcp.shared.exceptions import MCPError

from roster.app import Roster
from roster.backends import requester
from roster.briefs import shorten
from roster.call import Called, checked_arguments, held_card, unknown_card
from roster.cards import Card, Kind
from roster.config import Mode
from roster.draft import Draft, Drafted, DraftMemory, checked_k, checked_need
from roster.errors import CallError, HeldCardError, RosterError
from roster.failures import PLATFORM, FailureKind
from roster.forwarding import HOLDING, Client, Forwarder, Handlers, Voice, voice_of
from roster.offers import announced
from roster.outcomes import Cause, Outcome
from roster.ranking import Match
from roster.rawanswers import CALL_KEYS, answer_raw, as_dict, is_plain_call, raw_answers
from roster.recorder import CallMemory
from roster.registry import Entry
from roster.welcome import five_tools, instructions, new_server

__all__ = ["Connection", "Context", "RosterServer"]

log = logging.getLogger(__name__)

_NEED_SHOWN = 500
NOTIFY_LIMIT_S = 2.0
NO_MATCH = "No tool here fits this need: draft again in other words, or go on without."
WEAK_MATCH = "Weak match: perhaps no tool here fits; draft again in other words, or go on without."
Context = ServerRequestContext["Connection", Any]


@dataclass(slots=True, eq=False)
class Connection(Client):
    """What belongs to one client connection: how to reach it, its drafts and its last calls.

    group: for what outlives a request; only the connection of the SDK's own lifespan has one.
    """

    group: anyio.abc.TaskGroup | None = None
    drafts: DraftMemory = field(default_factory=DraftMemory)
    calls: CallMemory = field(default_factory=CallMemory)


async def _answered_raw(call_next: CallNext, ctx: Context) -> HandlerResult:
    return await raw_answers(ctx, call_next)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _roster_block(shown: dict[str, Any]) -> dict[str, Any]:
    return _text(_compact({"_roster": shown}))


class RosterServer:
    """An MCP server over one Roster. Serves any number of connections, in both protocol eras."""

    def __init__(
        self,
        roster: Roster,
        mode: Mode,
        *,
        connection_of: Callable[[Context], Connection] | None = None,
        server: Server[Connection] | None = None,
    ) -> None:
        """connection_of: whose request this is, where the SDK's lifespan is not one connection's (HTTP). server: one
        that has begun to serve, and whose messages are brought to `receive` by somebody else."""
        self.roster = roster
        self.mode = mode
        self._connection_of = connection_of or (lambda ctx: ctx.lifespan_context)
        self._connections: set[Connection] = set()
        self._calls: set[anyio.CancelScope] = set()
        self._bus = InMemorySubscriptionBus()
        self._first_request = anyio.Event()
        transparent = mode is Mode.TRANSPARENT
        self.server = server or new_server(roster.config, mode, self._lifespan)
        self.server.add_request_handler("tools/list", types.PaginatedRequestParams, self._list_tools)
        self._calling = self._call_transparent if transparent else self._call_five
        # Five mode announces no tasks; a client that makes one of a call all the same is answered at once.
        self._own_keys = CALL_KEYS if transparent else CALL_KEYS | {"task"}
        self.server.add_request_handler("tools/call", types.CallToolRequestParams, self._call_tool)
        self.forwarder = Forwarder(roster.pool, self._bus, lists=transparent)
        Handlers(self.forwarder, mode).register(self.server)
        if server is None:
            self.server.middleware.append(self.receive)
        roster.pool.switchboard.peer = self.forwarder
        if transparent:
            roster.on_change = self._list_changed

    def options(self) -> InitializationOptions:
        """What `initialize` answers: in five mode the list never changes, and says so."""
        changing = self.mode is Mode.TRANSPARENT
        return self.server.create_initialization_options(NotificationOptions(tools_changed=changing))

    @asynccontextmanager
    async def _lifespan(self, _: Server[Connection]) -> AsyncIterator[Connection]:
        async with anyio.create_task_group() as group:
            connection = Connection(group=group)
            self.add(connection)
            try:
                yield connection
            finally:
                self.forget(connection)
                group.cancel_scope.cancel()

    def add(self, connection: Connection) -> None:
        """Have a connection told and asked things, until it is forgotten."""
        self._connections.add(connection)
        self.forwarder.add(connection)

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""
        self._connections.discard(connection)
        self.forwarder.remove(connection)

    @asynccontextmanager
    async def running(self, *, at_once: bool = False) -> AsyncIterator[None]:
        """The backends, and in five mode the index, for as long as clients are served. at_once: before the first."""
        if at_once:
            self._first_request.set()
        async with self.roster.running(), anyio.create_task_group() as group:
            if self.mode is Mode.FIVE:
                group.start_soon(self._index_after_first_request)
            yield
            self.roster.stop_indexing()
            group.cancel_scope.cancel()

    def stop_calls(self) -> None:
        """End every call in flight, with an answer that says so, and every stream of news."""
        for scope in list(self._calls):
            scope.cancel()
        self.forwarder.close_streams()

    async def _index_after_first_request(self) -> None:
        # Loading an encoder takes the processor for half a second; the client's handshake comes first.
        await self._first_request.wait()
        await self.roster.keep_indexed()

    # ------------------------------------------------------------------------------------ every message first

    async def receive(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Middleware: all that happens to a message before and after its handler."""
        connection = self._connection_of(ctx)
        voice = Voice(connection, ctx)
        token = requester.set(voice)
        try:
            if connection.ready and not voice.modern and ctx.method == "tools/call" and is_plain_call(ctx.params):
                # For the SDK there is nothing to check in it, and its answer leaves unread anyway.
                return await self._calling(ctx, ctx.params["name"], ctx.params.get("arguments"))
            return await self._on_behalf(voice, ctx, partial(_answered_raw, call_next))
        finally:
            requester.reset(token)

    async def _on_behalf(self, voice: Voice, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Say at the opening what there is; hold what the newer era holds."""
        connection = self._connection_of(ctx)
        if ctx.method not in ("initialize", "server/discover"):
            self._first_request.set()
            if ctx.method == "notifications/initialized":
                result = await call_next(ctx)
                if not voice.modern:  # there is no handshake in the newer era, whatever a client sends
                    await self.forwarder.ready(connection)
                return result
            if voice.modern and voice.log_level:
                await self.forwarder.levels.at_least(voice.log_level)
            if voice.modern and ctx.method in HOLDING:
                group = ctx.lifespan_context.group
                assert group is not None
                stamp = {types.SERVER_INFO_META_KEY: self.server.server_info_stamp}
                return await self.forwarder.bridge.run(voice, group, partial(call_next, ctx), stamp)
            return await call_next(ctx)
        connection.session = ctx.session
        result = as_dict(await call_next(ctx))
        if connection.servers is not None:
            result["instructions"] = instructions(self.roster.config, self.mode, connection.servers)
        # The SDK would announce whatever there is a handler for.
        offers = await self._offers(connection)
        return {**result, "capabilities": announced(self.mode, offers, tasks=not voice.modern)}

    async def _offers(self, connection: Connection) -> list[Collection[str] | None]:
        """What each server has besides tools: as it says now, or as it said the last time; None if never."""
        notes = await to_thread.run_sync(self.roster.catalogue.servers)
        out: list[Collection[str] | None] = []
        for name, backend in self.roster.pool.items():
            if not connection.sees(name):
                continue
            noted = notes[name].offers if name in notes else None
            out.append(backend.offers if backend.offers is not None else None if noted is None else noted.split())
        return out

    def _refuse(self, error: RosterError) -> dict[str, Any]:
        """An error result of our own: the words, and in five mode the failure block."""
        content = [_text(str(error))]
        if self.mode is Mode.FIVE and isinstance(error, HeldCardError):
            # Decided before anything was sent, so nothing of it can have happened.
            refused = replace(PLATFORM[FailureKind.REFUSED], partial=False)
            content.append(_roster_block({"failure": refused.wire(Outcome.OTHER)}))
        elif self.mode is Mode.FIVE:
            content.append(_roster_block({"failure": PLATFORM[FailureKind.INVALID_INPUT].wire(Outcome.SCHEMA)}))
        return {"content": content, "isError": True}

    # ---------------------------------------------------------------------------------------------- lists

    async def _list_tools(self, ctx: Context, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        connection = self._connection_of(ctx)
        if self.mode is Mode.FIVE:
            rows = five_tools(self.roster.config, connection.servers)
        else:
            connection.session = ctx.session
            await self.roster.first_listings()
            await to_thread.run_sync(self.roster.catalogue.refresh)
            cards = [entry.card for entry in self.roster.catalogue.living() if connection.sees(entry.card.said_server)]
            rows = [{**card.raw, "name": card.listed} for card in cards if card.kind is Kind.TOOL]
        stub: types.ListToolsResult = answer_raw("tools/list", {"tools": rows})
        return stub

    async def _list_changed(self) -> None:
        """Tell every client that has asked for the list that it is another one now."""
        async with anyio.create_task_group() as group:
            for connection in list(self._connections):
                group.start_soon(self._tell_changed, connection)
        await self._bus.publish(ToolsListChanged())

    async def _tell_changed(self, connection: Connection) -> None:
        # This runs in the task that owns a backend's connection: a client that does not read, or has gone, must
        # neither hold it up nor end it, nor keep the others waiting.
        with anyio.move_on_after(NOTIFY_LIMIT_S):
            try:
                if connection.session is not None:
                    await connection.session.send_tool_list_changed()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, MCPError):
                self._connections.discard(connection)

    # ---------------------------------------------------------------------------------------------- calls

    async def _call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        stub: types.CallToolResult = answer_raw("tools/call", await self._calling(ctx, params.name, params.arguments))
        return stub

    async def _call_transparent(self, ctx: Context, name: str, arguments: dict[str, Any] | None) -> dict[str, Any]:
        entry = await self._entry(self._connection_of(ctx), name)
        if entry is None or entry.card.kind is Kind.SKILL:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {name}")
        try:
            called = await self._call(ctx, entry.card, arguments)
        except RosterError as error:
            return self._refuse(error)
        if called.answer.error is not None:
            error_data = called.answer.error
            raise MCPError(error_data.code, error_data.message, error_data.data)
        if called.answer.result is None:
            return {"content": [_text(called.words())], "isError": True}
        return called.answer.result

    async def _call_five(self, ctx: Context, name: str, arguments: dict[str, Any] | None) -> dict[str, Any]:
        try:
            match name:
                case "draft":
                    return await self._draft(ctx, arguments or {})
                case "call":
                    return await self._call_card(ctx, arguments or {})
                case other:
                    raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {other} (there are two: draft and call)")
        except RosterError as error:
            return self._refuse(error)

    async def _draft(self, ctx: Context, arguments: Mapping[str, Any]) -> dict[str, Any]:
        need, k = checked_need(arguments.get("need")), checked_k(arguments.get("k"))
        connection = self._connection_of(ctx)
        made = await self.roster.draft(need, k, connection.servers)
        shown = {
            "need": shorten(need, _NEED_SHOWN) if len(need) > _NEED_SHOWN else need,
            "draft_id": connection.drafts.remember(made),
            "starters": [starter.wire() for starter in made.starters],
            "usage": self._usage(made, connection),
        }
        return {"content": [_text(_compact(shown))], "structuredContent": shown}

    def _usage(self, made: Draft, connection: Connection) -> str:
        starting = [name for name in self.roster.awaited() if connection.sees(name)]
        waiting = f" Still starting: {', '.join(starting)}." if starting else ""
        if not made.starters:
            return (
                f"{NO_MATCH if made.match is Match.NONE else 'No tool is known yet; draft again in a moment.'}{waiting}"
            )
        match made.match:
            case Match.NONE:
                doubt = f"{NO_MATCH} These have worked here before: "
            case Match.WEAK:
                doubt = f"{WEAK_MATCH} "
            case Match.CLEAR:
                doubt = ""
        return f"{doubt}call(tool=<id>, args=<per input>, draft_id).{waiting}"

    async def _call_card(self, ctx: Context, arguments: Mapping[str, Any]) -> dict[str, Any]:
        strange = sorted(arguments.keys() - {"tool", "args", "draft_id"})
        if strange:
            raise CallError(f"call takes tool, args and draft_id: put {', '.join(strange)} into args")
        id_ = arguments.get("tool")
        if id_ is None:
            raise CallError("tool is missing: give the id of a starter from a draft")
        args = checked_arguments(arguments.get("args"))
        connection = self._connection_of(ctx)
        entry = await self._entry(connection, id_)
        if entry is None:
            raise unknown_card(id_, [known for known in self.roster.catalogue.ids() if self._seen(connection, known)])
        if self.roster.config.settings.quarantine == "call":
            await to_thread.run_sync(self.roster.catalogue.refresh)  # it may have changed since the draft
            entry = self.roster.catalogue.find(id_) or entry
            if entry.held is not None:
                raise held_card(entry.card.id, entry.held)
        draft_id = arguments.get("draft_id")
        drafted = connection.drafts.find(draft_id)
        called = await self._call(ctx, entry.card, args, drafted, draft_id if drafted is not None else None)
        answer = called.answer
        if answer.error is not None and answer.error.code == types.URL_ELICITATION_REQUIRED:
            # Not for the model: the client is to send the person to a page, and reads where from the error itself.
            raise MCPError(answer.error.code, answer.error.message, answer.error.data)
        if called.failure is None:
            return answer.result or {"content": []}
        block = _roster_block(called.wire())
        if answer.result is not None and answer.report.cause is not Cause.MALFORMED:
            return {**answer.result, "content": [*(answer.result.get("content") or []), block]}
        words = f"{answer.error.message} (code {answer.error.code})" if answer.error else called.words()
        return {"content": [_text(words), block], "isError": True}

    async def _entry(self, connection: Connection, id_: Any) -> Entry | None:
        """The card with this id, also when another process has only just put it on file; None where it is not seen."""
        if not isinstance(id_, str):
            return None
        if self.roster.catalogue.find(id_) is None:
            # A client that knows the name from somewhere else may call before anything was listed for the first time.
            await self.roster.first_listings()
            await to_thread.run_sync(self.roster.catalogue.refresh)
        return self._seen(connection, id_)

    def _seen(self, connection: Connection, id_: str) -> Entry | None:
        entry = self.roster.catalogue.find(id_)
        return entry if entry is not None and connection.sees(entry.card.said_server) else None

    def _draftable(self, connection: Connection, id_: str) -> Card | None:
        """The card with this id, if a draft might show it to this client now. From any thread."""
        with suppress(sqlite3.Error):  # what was known a moment ago will do
            self.roster.catalogue.refresh()
        entry = self._seen(connection, id_)
        return entry.card if entry is not None and entry.number in self.roster.catalogue.draftable() else None

    async def _call(
        self,
        ctx: Context,
        card: Card,
        arguments: Mapping[str, Any] | None,
        drafted: Drafted | None = None,
        draft_id: str | None = None,
    ) -> Called:
        if card.kind is Kind.SKILL:
            return await self.roster.skills.call(card, arguments)
        connection, voice = self._connection_of(ctx), voice_of(ctx)
        with anyio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                called = await self.roster.caller.call(
                    card,
                    arguments,
                    drafted=drafted,
                    draft_id=draft_id,
                    find=partial(self._draftable, connection),
                    memory=connection.calls,
                    meta=voice.meta,
                    more={key: value for key, value in voice.params().items() if key not in self._own_keys},
                    on_progress=voice.on_progress,
                )
            finally:
                self._calls.discard(scope)
            if called.answer.error is not None:
                self.forwarder.asking.remember(called.answer.error, connection)
            if called.answer.result is not None:
                self.forwarder.remember(card.server, called.answer.result, connection)
            return called
        raise CallError(f"Roster was stopped before {card.server} answered: the call may have been carried out")
