"""What backends say, taken off the wire as it is: raw results, and listings read row by row.

The SDK validates a listing as a whole and drops the keys it does not know; a router may do neither.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions, Dispatcher, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import methods
from pydantic import ValidationError

__all__ = ["Listing", "Tap", "list_tools", "raw_result", "usable_row"]

LISTING_VERSION = "2025-11-25"
MAX_PAGES = 1_000
METHOD_NOT_FOUND = -32601

_STUBS: dict[str, dict[str, Any]] = {"tools/list": {"tools": []}, "tools/call": {"content": []}}
_kept: ContextVar[dict[str, Any] | None] = ContextVar("roster_raw_result", default=None)


@dataclass(frozen=True, slots=True)
class Listing:
    """One answer to `tools/list`, all pages: rows that can be used, and the names of those that cannot."""

    rows: list[dict[str, Any]]
    rejected: dict[str, str] = field(default_factory=dict)
    complete: bool = True


class Tap(Dispatcher[Any]):
    """A dispatcher that keeps the raw result of chosen methods and shows the typed layer an empty one.

    Whoever wants one sends its request inside `raw_result`.
    """

    def __init__(self, inner: JSONRPCDispatcher[Any], on_closed: Callable[[], None]) -> None:
        self._inner = inner
        self._on_closed = on_closed
        self.ended = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run the inner dispatcher, and say when its stream has ended."""
        try:
            await self._inner.run(on_request, on_notify, on_notify_intercept, task_status=task_status)
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
        result = await self._inner.send_raw_request(method, params, opts)
        box = _kept.get()
        if box is None or method not in _STUBS:
            return result
        box["result"] = result
        return dict(_STUBS[method])


async def raw_result(send: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
    """The raw result of the one request that `send` makes."""
    box: dict[str, Any] = {}
    token = _kept.set(box)
    try:
        await send()
    finally:
        _kept.reset(token)
    return dict(box["result"])


def _finite(value: Any) -> Any:
    """`value` without NaN and infinities, which parsers let in and JSON has no form for."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case _:
            return value


def usable_row(row: Any) -> tuple[dict[str, Any] | None, str]:
    """A `tools/list` row that every client can read, mended where that loses nothing; or None and the reason."""
    if not isinstance(row, dict) or not isinstance(row.get("name"), str) or not row["name"]:
        return None, "it has no name"
    row = _finite(row)
    schema = row.get("inputSchema")
    if schema is None or (isinstance(schema, dict) and "type" not in schema):
        # Common in the wild, refused by strict clients, and it can only mean an object.
        row = {**row, "inputSchema": {"type": "object", **(schema or {})}}
    try:
        methods.validate_server_result("tools/list", LISTING_VERSION, {"tools": [row]})
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"][2:])
        return None, f"{where or 'the row'} is not valid"
    return row, ""


async def list_tools(session: ClientSession) -> Listing:
    """Every page of `tools/list`. A page that fails after the first leaves the listing incomplete."""
    rows: list[dict[str, Any]] = []
    rejected: dict[str, str] = {}
    names: set[str] = set()
    seen: set[str] = set()
    cursor: str | None = None
    for page in range(MAX_PAGES):
        request = types.ListToolsRequest(params=types.PaginatedRequestParams(cursor=cursor))
        try:
            result = await raw_result(lambda request=request: session.send_request(request, types.ListToolsResult))  # type: ignore[misc]
        except MCPError as error:
            if error.code == METHOD_NOT_FOUND and page == 0:
                return Listing([])  # a server of resources or prompts only
            if page == 0:
                raise
            return Listing(rows, rejected, complete=False)
        listed = result.get("tools")
        for raw in listed if isinstance(listed, list) else []:
            row, reason = usable_row(raw)
            name = str(raw.get("name", "")) if isinstance(raw, dict) else ""
            if row is None:
                rejected[name or f"(row {len(rows) + len(rejected)})"] = reason
            elif name in names:
                rejected[name] = "listed twice; the first one is used"
            else:
                names.add(name)
                rows.append(row)
        following = result.get("nextCursor")
        if not isinstance(following, str) or following in seen:
            return Listing(rows, rejected)
        seen.add(following)
        cursor = following
    return Listing(rows, rejected, complete=False)
