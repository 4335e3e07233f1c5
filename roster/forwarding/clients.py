"""The clients of this Roster: how to reach them, what they can do, and what they have been shown."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict

__all__ = ["Client", "Links", "Voice"]

LINKS_KEPT = 2_000
UNSENT = 1_000
"""Reports of progress that a client may leave unread in one request, and messages that are kept for it while it is
away; the ones after that it does not get."""

# Keys of `_meta` that belong to one connection and must not be sent on over another.
_OWN_META = ("progressToken", "progress_token")
_OWN_META_PREFIX = "io.modelcontextprotocol/"
_PASSED_META = (types.LOG_LEVEL_META_KEY,)


class _Request(types.Request[dict[str, Any] | None, str]):
    """A request whose params are sent as they are."""


class _Notification(types.Notification[dict[str, Any] | None, str]):
    """A notification whose params are sent as they are."""


class _Result(BaseModel):
    """A result with every key kept."""

    model_config = ConfigDict(extra="allow")


class Links:
    """Which server showed a URI, or started a task, last; the oldest are forgotten."""

    def __init__(self) -> None:
        self._servers: OrderedDict[str, str] = OrderedDict()

    def __getitem__(self, uri: str) -> str | None:
        return self._servers.get(uri)

    def shown(self, uri: str, server: str) -> None:
        """This server has just shown this URI."""
        self._servers[uri] = server
        self._servers.move_to_end(uri)
        if len(self._servers) > LINKS_KEPT:
            self._servers.popitem(last=False)

    def forget(self, uri: str) -> None:
        """Something else has been shown under this URI."""
        self._servers.pop(uri, None)


@dataclass(slots=True, eq=False)
class Client:
    """One client connection. It is `ready` once its handshake is done; one of the newer era never is, and cannot be
    asked anything. servers: the only ones that exist for it; None: all."""

    session: ServerSession | None = None
    servers: frozenset[str] | None = None
    ready: bool = False
    log_level: str | None = None
    links: Links = field(default_factory=Links)
    tasks: Links = field(default_factory=Links)

    def sees(self, server: str) -> bool:
        """Whether a server exists for this client."""
        return self.servers is None or server in self.servers

    @property
    def client(self) -> Client:
        """Itself: asked outside of any request, it speaks for itself."""
        return self

    @property
    def capabilities(self) -> types.ClientCapabilities | None:
        """What it declared."""
        return self.session.client_capabilities if self.session is not None else None

    @property
    def can_be_asked(self) -> bool:
        """Whether requests can be sent to it now."""
        return self.ready and self.session is not None

    async def ask(self, method: str, params: Mapping[str, Any], limit_s: float, on_progress: Any = None) -> Any:
        """Its raw result. Raises MCPError; ValidationError when the answer is none."""
        assert self.session is not None
        return await _ask(self.session, method, params, limit_s, on_progress, None)

    async def tell(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send it a notification."""
        if self.session is not None:
            note = _Notification(method=method, params=dict(params) if params else None)
            await self.session.send_notification(note)  # type: ignore[arg-type]


class Questions(Protocol):
    """Where questions to a client of the newer era are put, to be sent as the answer to its request."""

    async def question(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The client's answer, once it came back with one. Raises MCPError."""


@dataclass(slots=True, eq=False)
class Voice:
    """One request of a client while it is handled: what is said with it reaches the client beside its answer.

    ctx: of the newest message of this request. held: takes questions, where the client cannot be asked directly. task:
    it has been answered with a task, or is about to be, and its progress goes on after that.
    """

    client: Client
    ctx: ServerRequestContext[Any, Any]
    held: Questions | None = None
    task: bool = False
    unsent: int = 0
    _kept: list[Callable[[], Awaitable[None]]] | None = None

    @property
    def modern(self) -> bool:
        """Whether it came in the newer era, in which a client cannot be asked."""
        return self.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def can_be_asked(self) -> bool:
        """Whether requests can be sent to the client while it waits for this one."""
        return self.held is not None or self.ctx.session.can_send_request

    @property
    def capabilities(self) -> types.ClientCapabilities | None:
        """What the client declared."""
        return self.ctx.session.client_capabilities

    @property
    def log_level(self) -> str | None:
        """From which level up the client wants log messages with this request; in the older era, in general."""
        if self.modern:
            found = self._meta.get(types.LOG_LEVEL_META_KEY)
            return found if isinstance(found, str) else None
        return self.client.log_level

    async def ask(self, method: str, params: Mapping[str, Any], limit_s: float, on_progress: Any = None) -> Any:
        """The client's raw result. Raises MCPError; ValidationError when the answer is none."""
        if self.held is not None:
            return await self.held.question(method, params)
        metadata = ServerMessageMetadata(related_request_id=self.ctx.request_id)
        return await _ask(self.ctx.session, method, params, limit_s, on_progress, metadata)

    def leave(self) -> None:
        """The request is about to be answered with a question: until the client is back, nobody hears what is said."""
        self._kept = []

    async def back(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """The client has come back with this request. What was said in the meantime is said now, and what comes while
        that is being said, behind it."""
        self.ctx = ctx
        while self._kept:
            await self._kept.pop(0)()
        self._kept = None

    async def _say(self, say: Callable[[], Awaitable[None]]) -> None:
        """Say it now, or in its turn once the client is back."""
        if self._kept is None:
            await say()
        elif len(self._kept) < UNSENT:
            self._kept.append(say)

    async def tell(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send the client a notification with this request."""
        note = _Notification(method=method, params=dict(params) if params else None)
        await self._say(partial(self._send, note))

    async def _send(self, note: _Notification) -> None:
        await self.ctx.session.send_notification(note, related_request_id=self.ctx.request_id)  # type: ignore[arg-type]

    # ------------------------------------------------------------------------ what of the request is passed on

    @property
    def _meta(self) -> Mapping[str, Any]:
        meta = (self.ctx.params or {}).get("_meta")
        return meta if isinstance(meta, Mapping) else {}

    @property
    def meta(self) -> dict[str, Any]:
        """The request's `_meta` without what belongs to this connection."""
        return {
            key: value
            for key, value in self._meta.items()
            if key in _PASSED_META or (key not in _OWN_META and not key.startswith(_OWN_META_PREFIX))
        }

    @property
    def on_progress(self) -> Any:
        """Where progress of the request goes; None when the client did not ask for it."""
        return self._progress if self._meta.get("progressToken") is not None else None

    async def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        await self._say(partial(self._report, progress, total, message))

    async def _report(self, progress: float, total: float | None, message: str | None) -> None:
        if self.unsent < UNSENT:  # or a queue would grow for as long as the client does not read
            self.unsent += 1
            try:
                if self.task:
                    told = {"progressToken": self._meta.get("progressToken"), "progress": progress}
                    more = {"total": total, "message": message}
                    told |= {key: value for key, value in more.items() if value is not None}
                    await self.client.tell("notifications/progress", told)
                else:
                    await self.ctx.session.report_progress(progress, total, message)
            finally:
                self.unsent -= 1

    def params(self, **changed: Any) -> dict[str, Any]:
        """The request's params as they came, with these keys changed and `_meta` as it may be passed on."""
        out = {**(self.ctx.params or {}), **changed}
        out.pop("_meta", None)
        if self.modern:
            out.pop("task", None)  # the newer era has no tasks, and ignores what it does not know
        return {**out, "_meta": meta} if (meta := self.meta) else out


async def _ask(
    session: ServerSession,
    method: str,
    params: Mapping[str, Any],
    limit_s: float,
    on_progress: Any,
    metadata: ServerMessageMetadata | None,
) -> dict[str, Any]:
    request = _Request(method=method, params=dict(params) if params else None)
    result = await session.send_request(
        request,  # type: ignore[arg-type]
        _Result,
        request_read_timeout_seconds=limit_s,
        metadata=metadata,
        progress_callback=on_progress,
    )
    return dict(result.model_extra or {})
