"""One open connection to a backend: the handshake, requests over it, and what comes back unasked."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import anyio
import anyio.abc
import mcp_types as types
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from roster import __version__
from roster.backends.dispatcher import BackendDispatcher
from roster.backends.flights import Flights, requester
from roster.backends.tap import RawRequest, Tap, raw_result
from roster.backends.transports import http_refusal
from roster.mended import MendedStream

__all__ = ["Link", "OnAsk", "OnNote", "Progress", "about_session", "offers_of", "open_link"]

log = logging.getLogger(__name__)

UNSUPPORTED_VERSION = -32022
PING_S = 5.0
ENVELOPE = frozenset({"resultType", "ttlMs", "cacheScope"})
OFFERS = ("resources", "prompts", "completions", "logging", "tasks")

OnAsk = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Answers what a backend asks of the client. Raises MCPError to refuse."""
OnNote = Callable[[str, Mapping[str, Any]], Awaitable[None]]
"""Takes what a backend announces."""


class Progress(Protocol):
    """Takes what a backend reports of a request under way."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """progress, total: in the backend's own units."""


class RawNotification(types.Notification[dict[str, Any] | None, str]):
    """A notification whose params are sent as they are."""


async def _unused(context: ClientRequestContext, params: Any = None) -> types.ErrorData:  # noqa: ARG001
    # Questions are taken off the wire before the SDK reads them; that there is a callback makes it announce them.
    return types.ErrorData(code=types.INTERNAL_ERROR, message="not reached")


def offers_of(capabilities: Mapping[str, Any]) -> tuple[str, ...]:
    """What a backend has besides tools, in words that are safe to store."""
    words = [word for word in OFFERS if isinstance(capabilities.get(word), Mapping)]
    resources = capabilities.get("resources")
    if isinstance(resources, Mapping) and resources.get("subscribe") is True:
        words.append("subscribe")
    return tuple(words)


def about_session(error: MCPError, status: int | None) -> bool:
    """Whether an error may say that the session is not known: by its HTTP status, or else by its words."""
    return status in (400, 404) or "session" in error.message.lower()


def _without_envelope(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what the newer era says in each, for a client of the older one; a question stays one."""
    if result.get("resultType", "complete") != "complete":
        return result
    out = {key: value for key, value in result.items() if key not in ENVELOPE}
    if isinstance(meta := out.get("_meta"), dict) and types.SERVER_INFO_META_KEY in meta:
        del out["_meta"]
        if kept := {key: value for key, value in meta.items() if key != types.SERVER_INFO_META_KEY}:
            out["_meta"] = kept
    return out


class Link:
    """A connection after its handshake. Requests may be sent from any task."""

    def __init__(self, session: ClientSession, tap: Tap, group: anyio.abc.TaskGroup) -> None:
        self.session = session
        self.flights = Flights()
        self.log_level: str | None = None
        self._tap = tap
        self._group = group
        self._listening: dict[str, anyio.CancelScope] = {}
        self._heard = anyio.current_time()

    @property
    def silent_s(self) -> float:
        """How long ago the last answer came."""
        return anyio.current_time() - self._heard

    @property
    def closed(self) -> bool:
        """Whether it is over."""
        return self._tap.closed

    def close(self) -> None:
        """Take it for lost."""
        self._tap.close()

    async def ended(self, within_s: float) -> bool:
        """Whether it is over, or is so within that time."""
        with anyio.move_on_after(within_s):
            await self._tap.ended.wait()
        return self._tap.closed

    @property
    def offers(self) -> tuple[str, ...]:
        """`offers_of` this backend."""
        found = self._tap.greeting.get("capabilities")
        return offers_of(found if isinstance(found, Mapping) else {})

    @property
    def protocol(self) -> str | None:
        """The protocol version spoken."""
        return self.session.protocol_version

    @property
    def modern(self) -> bool:
        """Whether that is a version without handshake, in which a backend cannot ask back."""
        return self.protocol in MODERN_PROTOCOL_VERSIONS

    @property
    def version(self) -> str | None:
        """The backend's own name and version."""
        info = self.session.server_info
        return f"{info.name} {info.version}".strip() if info else None

    async def handshake(self) -> None:
        """Open it, in the older era first: only there can a server ask back or announce changes by itself."""
        try:
            await self.session.initialize()
        except MCPError as error:
            if error.code != UNSUPPORTED_VERSION:
                raise
            await self.session.discover()

    async def request(
        self, method: str, params: Mapping[str, Any], limit_s: float, on_progress: Progress | None = None
    ) -> dict[str, Any]:
        """The raw result of one request. Cancelling this cancels it at the backend.

        limit_s: how long it may stay silent; progress it reports, and the time in which it asks the client something,
        do not count. Raises TimeoutError, MCPError, and what a transport raises.
        """
        with self.flights.one_more(limit_s) as flight:

            async def pass_on(progress: float, total: float | None, message: str | None) -> None:
                self.flights.restart(flight)
                if on_progress is not None:
                    await on_progress(progress, total, message)

            result = await self._answer(method, self._with_level(params), pass_on if on_progress else None)
            self._heard = anyio.current_time()
            return result
        raise TimeoutError(f"no answer within {limit_s:g} s")

    async def _answer(self, method: str, params: dict[str, Any], on_progress: Progress | None) -> dict[str, Any]:
        if not self.modern:
            # What the SDK's session would add is one header; what it would read in the answer, nobody needs.
            options: CallOptions = {"headers": {MCP_PROTOCOL_VERSION_HEADER: self.protocol or ""}}
            if on_progress is not None:
                options["on_progress"] = on_progress
            return await self._tap.send_raw_request(method, params, options)
        request = RawRequest(method=method, params=params)
        result = await raw_result(
            lambda: self.session.send_request(request, types.EmptyResult, progress_callback=on_progress)
        )
        who = requester.get()
        return _without_envelope(result) if who is not None and not who.modern else result

    async def forgotten(self) -> bool | None:
        """Whether a remote server does not know this session any more: what it says to a ping is about nothing else.

        None: it does not answer a ping. The newer era has no sessions.
        """
        if self.modern or self.closed:
            return False
        with http_refusal() as refusal:
            try:
                await self.request("ping", {}, PING_S)
            except MCPError as error:
                return error.code != types.METHOD_NOT_FOUND and about_session(error, refusal.status)
            except TimeoutError:
                return None
            except (anyio.ClosedResourceError, anyio.BrokenResourceError, RuntimeError, OSError):
                return False
        return False

    def _with_level(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """`params` saying which log messages are wanted, in the one era in which a request says that."""
        meta = params.get("_meta")
        key = types.LOG_LEVEL_META_KEY
        if self.modern and self.log_level is not None:
            return {**params, "_meta": {key: self.log_level, **(meta or {})}}
        if not self.modern and isinstance(meta, Mapping) and key in meta:
            return {**params, "_meta": {name: value for name, value in meta.items() if name != key}}
        return dict(params)

    async def set_level(self, level: str, limit_s: float) -> None:
        """Have it log from this level up; in the newer era every request says so. Raises MCPError, TimeoutError."""
        self.log_level = level
        if not self.modern:
            await self.request("logging/setLevel", {"level": level}, limit_s)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification; one that cannot be sent any more is dropped."""
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            note = RawNotification(method=method, params=dict(params) if params else None)
            await self.session.send_notification(note)  # type: ignore[arg-type]

    def later(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Have this done soon, for as long as the connection lasts."""
        self._group.start_soon(work, *arguments)

    # ------------------------------------------------------------------------------------------- listening

    async def listen(self) -> None:
        """In the newer era, hear of changed lists for as long as this runs; in the older one they come by themselves.

        What is heard reaches `on_note` like everything else.
        """
        if not self.modern:
            return
        try:
            async with listen(
                self.session, tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
            ) as events:
                async for _ in events:
                    pass
        except (MCPError, SubscriptionLost, RuntimeError) as error:
            log.debug("no changes will be heard of: %s", type(error).__name__)

    async def subscribe(self, uri: str, limit_s: float) -> None:
        """Hear of changes of one resource. Raises MCPError, TimeoutError."""
        if not self.modern:
            await self.request("resources/subscribe", {"uri": uri}, limit_s)
            return
        scope = anyio.CancelScope()
        self._listening[uri] = scope

        async def follow(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            with scope, suppress(SubscriptionLost):
                async with listen(self.session, resource_subscriptions=[uri]) as events:
                    task_status.started()
                    async for _ in events:
                        pass

        await self._group.start(follow)

    async def unsubscribe(self, uri: str, limit_s: float) -> None:
        """Undo `subscribe`. Raises MCPError, TimeoutError."""
        if not self.modern:
            await self.request("resources/unsubscribe", {"uri": uri}, limit_s)
        elif scope := self._listening.pop(uri, None):
            scope.cancel()


@asynccontextmanager
async def open_link(
    transport: Any, *, on_closed: Callable[[], None], on_ask: OnAsk, on_note: OnNote
) -> AsyncIterator[Link]:
    """A link over a transport's streams, before its handshake.

    It announces sampling, elicitation and roots whoever the client is: a backend chooses its tools by what a client can
    do, and the tools on file must not depend on which client happens to be there.
    """
    async with transport as (read, write):
        tap = Tap(BackendDispatcher(MendedStream(read), write), on_closed, on_ask, on_note)
        session = ClientSession(
            dispatcher=tap,
            client_info=types.Implementation(name="roster", version=__version__),
            sampling_callback=_unused,
            sampling_capabilities=types.SamplingCapability(
                context=types.SamplingContextCapability(), tools=types.SamplingToolsCapability()
            ),
            elicitation_callback=_unused,
            list_roots_callback=_unused,
        )
        async with session, anyio.create_task_group() as group:
            try:
                yield Link(session, tap, group)
            finally:
                group.cancel_scope.cancel()
