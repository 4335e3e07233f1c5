"""What a backend connection asks of its dispatcher beyond the SDK's: arguments as headers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import JSONRPCRequest, JSONRPCResponse

from roster.backends.dispatcher import BackendDispatcher

pytestmark = pytest.mark.anyio

NEWER: Any = {"headers": {"mcp-method": "any"}}
REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "query": {}}}
TWICE = {"type": "object", "properties": {one: {"type": "string", "x-mcp-header": "X"} for one in "ab"}}


@asynccontextmanager
async def wire(*rows: dict[str, Any]) -> AsyncIterator[tuple[BackendDispatcher, list[dict[str, str]]]]:
    """A dispatcher whose peer lists these tools, and the headers that came with each request."""
    inbound, read = anyio.create_memory_object_stream[SessionMessage | Exception](10)
    write, outbound = anyio.create_memory_object_stream[SessionMessage](10)
    headers: list[dict[str, str]] = []

    async def peer() -> None:
        async for message in outbound:
            request = message.message
            assert isinstance(request, JSONRPCRequest)
            metadata = message.metadata
            headers.append(dict(metadata.headers or {}) if isinstance(metadata, ClientMessageMetadata) else {})
            result = {"tools": list(rows)} if request.method == "tools/list" else {"content": []}
            await inbound.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=request.id, result=result)))

    async def ignored(*_: Any) -> Any:
        return {}

    dispatcher = BackendDispatcher(read, write)
    with anyio.fail_after(5), inbound, outbound:
        async with anyio.create_task_group() as group:
            group.start_soon(peer)
            await group.start(dispatcher.run, ignored, ignored)
            yield dispatcher, headers
            group.cancel_scope.cancel()


async def test_arguments_that_a_listed_tool_wants_as_headers_are_sent_as_such() -> None:
    """Encoded as the protocol says; what is not given has no header, and the rest of the headers stay."""
    async with wire({"name": "find", "inputSchema": REGION}) as (dispatcher, headers):
        await dispatcher.send_raw_request("tools/list", None, NEWER)
        for arguments in ({"region": "west", "query": "x"}, {"region": "Zürich"}, {"query": "x"}, None):
            await dispatcher.send_raw_request("tools/call", {"name": "find", "arguments": arguments}, NEWER)
        await dispatcher.send_raw_request("tools/call", {"name": "else", "arguments": {"region": "west"}}, NEWER)

    base = NEWER["headers"]
    assert headers[1:] == [
        base | {"Mcp-Param-Region": "west"}, base | {"Mcp-Param-Region": "=?base64?WsO8cmljaA==?="}, base, base, base
    ]  # fmt: skip


async def test_a_schema_that_breaks_the_rules_asks_for_no_headers() -> None:
    """As the server itself then looks at none; and a tool that wants other ones now gets those."""
    rows = [{"name": "find", "inputSchema": TWICE}]
    async with wire(*rows) as (dispatcher, headers):
        await dispatcher.send_raw_request("tools/list", None, NEWER)
        await dispatcher.send_raw_request("tools/call", {"name": "find", "arguments": {"a": "1", "b": "2"}}, NEWER)

    assert headers[1] == NEWER["headers"]


async def test_the_older_era_knows_no_such_headers() -> None:
    """Whatever its schemas say."""
    async with wire({"name": "find", "inputSchema": REGION}) as (dispatcher, headers):
        await dispatcher.send_raw_request("tools/list", None)
        await dispatcher.send_raw_request("tools/call", {"name": "find", "arguments": {"region": "west"}})

    assert headers == [{}, {}]
