"""The MCP server a client talks to: every backend tool as it is, or `draft` and `call`.

Results leave as the backends sent them. The SDK would sieve what a handler returns down to the keys it knows, so the
handlers here hand their results past it: they put the raw result in a box and return a stub, and a middleware swaps
the one for the other once the SDK has done its checks.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
from anyio import to_thread
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError

from roster import __version__
from roster.app import Roster
from roster.backends.mended import MendedStream
from roster.briefs import shorten
from roster.call import Called, checked_arguments, unknown_card
from roster.cards import Card
from roster.config import Config, Mode
from roster.draft import DEFAULT_K, MAX_K, Draft, Drafted, DraftMemory, checked_k, checked_need
from roster.errors import CallError, RosterError
from roster.failures import PLATFORM, FailureKind
from roster.outcomes import Cause, Outcome
from roster.ranking import Match
from roster.recorder import CallMemory
from roster.registry import Entry

__all__ = ["RosterServer", "five_tools", "instructions"]

log = logging.getLogger(__name__)

_NEED_SHOWN = 500
NOTIFY_LIMIT_S = 2.0
NO_MATCH = "No tool here fits this need: draft again in other words, or go on without."
WEAK_MATCH = "Weak match: perhaps no tool here fits; draft again in other words, or go on without."
_SERVERS_NAMED = 24
# Keys of `_meta` that belong to one connection and must not be sent on over another.
_OWN_META = ("progressToken", "progress_token")
_OWN_META_PREFIX = "io.modelcontextprotocol/"

_STUB_KEYS = ("tools", "content", "isError")

_box: ContextVar[dict[str, Any] | None] = ContextVar("roster_raw_answer", default=None)

Context = ServerRequestContext["Connection", Any]


@dataclass(slots=True, eq=False)
class Connection:
    """What belongs to one client connection: its drafts, its last calls, and how to tell it that the list changed."""

    drafts: DraftMemory = field(default_factory=DraftMemory)
    calls: CallMemory = field(default_factory=CallMemory)
    session: ServerSession | None = None


def summary(config: Config) -> str:
    """What is behind this Roster, in one line that stays the same for as long as the config does."""
    names = sorted(name for name, spec in config.servers.items() if not spec.disabled)
    if not names:
        return "no servers yet"
    more = f" and {len(names) - _SERVERS_NAMED} more" if len(names) > _SERVERS_NAMED else ""
    return f"{', '.join(names[:_SERVERS_NAMED])}{more}"


def five_tools(config: Config) -> list[dict[str, Any]]:
    """The two tools of five mode. They depend on the config alone, so a client never sees them change."""
    return [
        {
            "name": "draft",
            "title": "Find the right tools",
            "description": (
                f"Find the best tools for your next step. Behind this: {summary(config)}. Say in one sentence what you "
                "need to do; you get up to k matching tools with their inputs. Draft again for each new kind of step."
            ),
            "inputSchema": {
                "type": "object",
                "properties": {
                    "need": {"type": "string", "minLength": 1, "description": "What to do next, in plain words"},
                    "k": {"type": "integer", "minimum": 1, "maximum": MAX_K, "default": DEFAULT_K},
                },
                "required": ["need"],
            },
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
        },
        {
            "name": "call",
            "title": "Use a tool",
            "description": (
                "Use a tool by its id from a draft. args must fit the `input` shown for it. Pass the draft_id along."
            ),
            "inputSchema": {
                "type": "object",
                "properties": {
                    "tool": {"type": "string", "description": "The id of a starter"},
                    "args": {"type": "object", "description": "The tool's own arguments"},
                    "draft_id": {"type": "string"},
                },
                "required": ["tool"],
            },
        },
    ]


def instructions(config: Config, mode: Mode) -> str:
    """What a client's model should know of this server."""
    if mode is Mode.TRANSPARENT:
        return f"Tools of several servers, named server__tool. Servers: {summary(config)}."
    return (
        f"One way to every tool of: {summary(config)}. For each step, `draft` the need in plain words, then `call` "
        "one of the starters by id. If none fits, draft again in other words."
    )


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _roster_block(shown: dict[str, Any]) -> dict[str, Any]:
    return _text(_compact({"_roster": shown}))


class RosterServer:
    """An MCP server over one Roster. Serves any number of connections, in both protocol eras."""

    def __init__(self, roster: Roster, mode: Mode) -> None:
        self.roster = roster
        self.mode = mode
        self._connections: set[Connection] = set()
        self._bus = InMemorySubscriptionBus()
        self._first_request = anyio.Event()
        transparent = mode is Mode.TRANSPARENT
        self.server: Server[Connection] = Server(
            "roster",
            version=__version__,
            title="Roster",
            instructions=instructions(roster.config, mode),
            lifespan=self._lifespan,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_transparent if transparent else self._call_five,
            on_subscriptions_listen=ListenHandler(self._bus) if transparent else None,
        )
        self.server.middleware.append(self._raw_answers)
        if transparent:
            roster.on_change = self._list_changed

    def options(self) -> InitializationOptions:
        """What `initialize` answers: in five mode the list never changes, and says so."""
        changing = self.mode is Mode.TRANSPARENT
        return self.server.create_initialization_options(NotificationOptions(tools_changed=changing))

    @asynccontextmanager
    async def _lifespan(self, _: Server[Connection]) -> AsyncIterator[Connection]:
        connection = Connection()
        self._connections.add(connection)
        try:
            yield connection
        finally:
            self._connections.discard(connection)

    async def serve_stdio(self) -> None:
        """Serve one client on this process's stdin and stdout, until it closes them."""
        from mcp.server.stdio import stdio_server

        async with self.roster.running(), anyio.create_task_group() as group:
            if self.mode is Mode.FIVE:
                group.start_soon(self._index_after_first_request)
            async with stdio_server() as (read, write):
                await self.server.run(MendedStream(read), write, self.options())
            self.roster.stop_indexing()
            group.cancel_scope.cancel()

    async def _index_after_first_request(self) -> None:
        # Loading an encoder takes the processor for half a second; the client's handshake comes first.
        await self._first_request.wait()
        await self.roster.keep_indexed()

    # ----------------------------------------------------------------------------------------- raw answers

    async def _raw_answers(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Middleware: let the SDK check and shape the stub, then answer with what the handler put in the box."""
        if ctx.method != "initialize" and not self._first_request.is_set():
            self._first_request.set()
        if ctx.method not in ("tools/list", "tools/call"):
            return await call_next(ctx)
        box: dict[str, Any] = {}
        token = _box.set(box)
        try:
            shaped = await call_next(ctx)
        finally:
            _box.reset(token)
        if "answer" not in box:
            return shaped
        # What the newer era adds to every result (resultType, the server's stamp) is in the shaped stub.
        envelope = {key: value for key, value in _as_dict(shaped).items() if key not in _STUB_KEYS}
        answer = box["answer"]
        stamp = envelope.pop("_meta", None)
        if stamp and isinstance(answer.get("_meta", {}), dict):
            answer = {**answer, "_meta": {**stamp, **answer.get("_meta", {})}}
        return {**envelope, **answer}

    @staticmethod
    def _answer(answer: dict[str, Any]) -> types.CallToolResult:
        box = _box.get()
        if box is not None:
            box["answer"] = answer
        return types.CallToolResult(content=[])

    def _refuse(self, message: str, *, failure: bool = True) -> types.CallToolResult:
        """An error result of our own: the words, and in five mode the failure block."""
        content = [_text(message)]
        if failure and self.mode is Mode.FIVE:
            content.append(_roster_block({"failure": PLATFORM[FailureKind.INVALID_INPUT].wire(Outcome.SCHEMA)}))
        return self._answer({"content": content, "isError": True})

    # ---------------------------------------------------------------------------------------------- lists

    async def _list_tools(self, ctx: Context, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        if self.mode is Mode.FIVE:
            rows = five_tools(self.roster.config)
        else:
            ctx.lifespan_context.session = ctx.session
            await self.roster.first_listings()
            await to_thread.run_sync(self.roster.catalogue.refresh)
            rows = [{**entry.card.raw, "name": entry.card.listed} for entry in self.roster.catalogue.living()]
        box = _box.get()
        if box is not None:
            box["answer"] = {"tools": rows}
        return types.ListToolsResult(tools=[])

    async def _list_changed(self) -> None:
        """Tell every client that has asked for the list that it is another one now."""
        # This runs in the task that owns a backend's connection: a client that does not read, or has gone, must
        # neither hold it up nor end it.
        for connection in list(self._connections):
            with anyio.move_on_after(NOTIFY_LIMIT_S):
                try:
                    if connection.session is not None:
                        await connection.session.send_tool_list_changed()
                except (anyio.BrokenResourceError, anyio.ClosedResourceError, MCPError):
                    self._connections.discard(connection)
        await self._bus.publish(ToolsListChanged())

    # ---------------------------------------------------------------------------------------------- calls

    async def _call_transparent(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        entry = await self._entry(params.name)
        if entry is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        try:
            called = await self._call(ctx, entry.card, params.arguments)
        except RosterError as error:
            return self._refuse(str(error))
        if called.answer.error is not None:
            error_data = called.answer.error
            raise MCPError(error_data.code, error_data.message, error_data.data)
        if called.answer.result is None:
            return self._answer({"content": [_text(called.words())], "isError": True})
        return self._answer(called.answer.result)

    async def _call_five(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        try:
            match params.name:
                case "draft":
                    return await self._draft(ctx, arguments)
                case "call":
                    return await self._call_card(ctx, arguments)
                case other:
                    raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {other} (there are two: draft and call)")
        except RosterError as error:
            return self._refuse(str(error))

    async def _draft(self, ctx: Context, arguments: Mapping[str, Any]) -> types.CallToolResult:
        need, k = checked_need(arguments.get("need")), checked_k(arguments.get("k"))
        made = await self.roster.draft(need, k)
        shown = {
            "need": shorten(need, _NEED_SHOWN) if len(need) > _NEED_SHOWN else need,
            "draft_id": ctx.lifespan_context.drafts.remember(made),
            "starters": [starter.wire() for starter in made.starters],
            "usage": self._usage(made),
        }
        return self._answer({"content": [_text(_compact(shown))], "structuredContent": shown})

    def _usage(self, made: Draft) -> str:
        starting = self.roster.awaited()
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

    async def _call_card(self, ctx: Context, arguments: Mapping[str, Any]) -> types.CallToolResult:
        strange = sorted(arguments.keys() - {"tool", "args", "draft_id"})
        if strange:
            raise CallError(f"call takes tool, args and draft_id: put {', '.join(strange)} into args")
        id_ = arguments.get("tool")
        if id_ is None:
            raise CallError("tool is missing: give the id of a starter from a draft")
        args = checked_arguments(arguments.get("args"))
        entry = await self._entry(id_)
        if entry is None:
            raise unknown_card(id_, self.roster.catalogue.ids())
        draft_id = arguments.get("draft_id")
        drafted = ctx.lifespan_context.drafts.find(draft_id)
        called = await self._call(ctx, entry.card, args, drafted, draft_id if drafted is not None else None)
        answer = called.answer
        if called.failure is None:
            return self._answer(answer.result or {"content": []})
        block = _roster_block(called.wire())
        if answer.result is not None and answer.report.cause is not Cause.MALFORMED:
            return self._answer({**answer.result, "content": [*(answer.result.get("content") or []), block]})
        words = f"{answer.error.message} (code {answer.error.code})" if answer.error else called.words()
        return self._answer({"content": [_text(words), block], "isError": True})

    async def _entry(self, id_: Any) -> Entry | None:
        """The card with this id, also when another process has only just put it on file."""
        if not isinstance(id_, str):
            return None
        found = self.roster.catalogue.find(id_)
        if found is None:
            await to_thread.run_sync(self.roster.catalogue.refresh)
            found = self.roster.catalogue.find(id_)
        return found

    def _draftable(self, id_: str) -> Card | None:
        """The card with this id, if a draft might show it now. From any thread."""
        with suppress(sqlite3.Error):  # what was known a moment ago will do
            self.roster.catalogue.refresh()
        entry = self.roster.catalogue.find(id_)
        return entry.card if entry is not None and entry.number in self.roster.catalogue.draftable() else None

    async def _call(
        self,
        ctx: Context,
        card: Card,
        arguments: Mapping[str, Any] | None,
        drafted: Drafted | None = None,
        draft_id: str | None = None,
    ) -> Called:
        meta = (ctx.params or {}).get("_meta")
        passed = {
            key: value
            for key, value in (meta if isinstance(meta, Mapping) else {}).items()
            if key not in _OWN_META and not key.startswith(_OWN_META_PREFIX)
        }
        wants_progress = isinstance(meta, Mapping) and meta.get("progressToken") is not None
        return await self.roster.caller.call(
            card,
            arguments,
            drafted=drafted,
            draft_id=draft_id,
            find=self._draftable,
            memory=ctx.lifespan_context.calls,
            meta=passed,
            on_progress=ctx.session.report_progress if wants_progress else None,
        )


def _as_dict(result: HandlerResult) -> dict[str, Any]:
    if isinstance(result, dict):
        return result
    return result.model_dump(by_alias=True, mode="json", exclude_none=True) if result is not None else {}
