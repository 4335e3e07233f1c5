"""The wire of one backend connection, read and written past the SDK's types.

The SDK drops every key its models do not know; a router may not. Results are kept as they came while the typed layer is
shown a stub, and what a backend asks or announces is handed on before the typed layer sees it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.abc
import mcp_types as types
from mcp.shared.dispatcher import CallOptions, DispatchContext, Dispatcher, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

__all__ = ["ASKED", "RawRequest", "Tap", "raw_result"]

ASKED = frozenset({"elicitation/create", "roots/list", "sampling/createMessage"})
"""What a backend may ask the client for."""

# The least that the SDK takes for a result of each method, in both eras.
_ENVELOPE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
_STUBS: dict[str, dict[str, Any]] = {
    "tools/list": {"tools": []},
    "tools/call": {"content": []},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": []},
    "prompts/list": {"prompts": []},
    "prompts/get": {"messages": []},
    "completion/complete": {"completion": {"values": []}},
}
_kept: ContextVar[dict[str, Any] | None] = ContextVar("roster_raw_result", default=None)

SAYING_S = 0.05

OnAsk = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
OnNote = Callable[[str, Mapping[str, Any]], Awaitable[None]]


class RawRequest(types.Request[dict[str, Any] | None, str]):
    """A request whose params are sent as they are, unknown keys and nulls too."""


class Tap(Dispatcher[Any]):
    """A dispatcher that keeps raw results, and hands on raw what the backend asks and announces.

    Whoever wants a raw result sends its request inside `raw_result`. What the backend said of itself when the
    connection was opened stays in `greeting`.
    """

    def __init__(
        self, inner: JSONRPCDispatcher[Any], on_closed: Callable[[], None], on_ask: OnAsk, on_note: OnNote
    ) -> None:
        self._inner = inner
        self._on_closed = on_closed
        self._on_ask, self._on_note = on_ask, on_note
        self.ended = anyio.Event()
        self.greeting: dict[str, Any] = {}
        self._saying: set[anyio.Event] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,  # noqa: ARG002 (what it would do is done here)
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run the inner dispatcher, and say when its stream has ended."""

        async def asked(context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
            if method in ASKED:
                return await self._on_ask(method, params or {})
            return await on_request(context, method, params)

        async def noted(_: DispatchContext[Any], method: str, params: Mapping[str, Any] | None) -> None:
            # The dispatcher itself has applied cancellation and progress by now.
            if method in ("notifications/cancelled", "notifications/progress"):
                return
            if method.endswith("/list_changed"):  # no part of any answer, and passed on in its own time
                await self._on_note(method, params or {})
                return
            done = anyio.Event()
            self._saying.add(done)
            try:
                await self._on_note(method, params or {})
            finally:
                self._saying.discard(done)
                done.set()

        try:
            await self._inner.run(asked, noted, on_notify_intercept, task_status=task_status)
        finally:
            self.close()

    @property
    def closed(self) -> bool:
        """Whether the connection is over."""
        return self.ended.is_set()

    def close(self) -> None:
        """Take the connection for lost; also for a remote session that the server has forgotten."""
        self.ended.set()
        self._on_closed()

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Pass a notification on."""
        await self._inner.notify(method, params, opts)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request; where the caller asked for it, keep the result and answer the typed layer with a stub."""
        try:
            result = await self._inner.send_raw_request(method, params, opts)
        except MCPError:
            await self._said()
            raise
        await self._said()
        if method in ("initialize", "server/discover"):
            self.greeting = dict(result)
        box = _kept.get()
        if box is None:
            return result
        box["result"] = result
        return {**_ENVELOPE, **_STUBS.get(method, {})}

    async def _said(self) -> None:
        """Let what the backend said before an answer be passed on before the answer: after it, nobody listens.

        Not for long: it is on its way by then, and somebody who does not read must not hold up everybody.
        """
        if self._saying:
            with anyio.move_on_after(SAYING_S):
                for done in list(self._saying):
                    await done.wait()


async def raw_result(send: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
    """The raw result of the one request that `send` makes."""
    box: dict[str, Any] = {}
    token = _kept.set(box)
    try:
        await send()
    finally:
        _kept.reset(token)
    return dict(box["result"])
