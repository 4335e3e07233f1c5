"""How these tests ask a demo server: through the protocol, in memory."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult, TextContent

Ask = Callable[..., Awaitable[Any]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def ask() -> Ask:
    """Call one tool; what comes back is its structured result, or its text when it has none."""

    async def ask_server(server: MCPServer, tool: str, **arguments: Any) -> Any:
        reply = await _call(server, tool, arguments)
        assert not reply.is_error, _text(reply)
        if (value := reply.structured_content) is None:
            return _text(reply)
        return value["result"] if isinstance(value, dict) and set(value) == {"result"} else value

    return ask_server


@pytest.fixture
def refusal() -> Ask:
    """Call one tool that must refuse; what comes back is the reason it gives."""

    async def refused_by(server: MCPServer, tool: str, **arguments: Any) -> Any:
        reply = await _call(server, tool, arguments)
        assert reply.is_error, reply
        return _text(reply)

    return refused_by


async def _call(server: MCPServer, tool: str, arguments: dict[str, Any]) -> CallToolResult:
    async with Client(server) as client:
        return await client.call_tool(tool, arguments)


def _text(reply: CallToolResult) -> str:
    return "\n".join(block.text for block in reply.content if isinstance(block, TextContent))
