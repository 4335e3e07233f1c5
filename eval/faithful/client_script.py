"""Run in another interpreter by `clients.py`: what a client on the SDK 1.x, or fastmcp's, sees of a server."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from typing import Any

URI = "demo://resource/static/document/features.md"


async def with_fastmcp(server: list[str], prefix: str) -> dict[str, str]:
    """Lists, a call, a resource, a prompt and an elicitation with fastmcp's client."""
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    async def elicited(*_: Any) -> dict[str, Any]:
        return {"name": "Ada", "check": True}

    transport = StdioTransport(server[0], server[1:])
    async with Client(transport, elicitation_handler=elicited) as client:
        called = await client.call_tool(f"{prefix}echo", {"message": "hello"})
        asked = await client.call_tool(f"{prefix}trigger-elicitation-request", {})
        return {
            "tools/list": str(len(await client.list_tools())),
            "resources/list": str(len(await client.list_resources())),
            "prompts/list": str(len(await client.list_prompts())),
            "tools/call": called.content[0].text,
            "resources/read": f"{len((await client.read_resource(URI))[0].text)} characters",
            "prompts/get": str(len((await client.get_prompt(f"{prefix}simple-prompt")).messages)),
            "elicitation": "answered" if "Ada" in str(asked.content) else "not answered",
        }


async def with_sdk_1(server: list[str], prefix: str) -> dict[str, str]:
    """The same with the SDK's own client, version 1."""
    from mcp import ClientSession, StdioServerParameters, types
    from mcp.client.stdio import stdio_client

    async def elicited(*_: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada", "check": True})

    parameters = StdioServerParameters(command=server[0], args=server[1:])
    async with (
        stdio_client(parameters) as (read, write),
        ClientSession(read, write, elicitation_callback=elicited) as client,
    ):
        await client.initialize()
        called = await client.call_tool(f"{prefix}echo", {"message": "hello"})
        asked = await client.call_tool(f"{prefix}trigger-elicitation-request", {})
        return {
            "tools/list": str(len((await client.list_tools()).tools)),
            "resources/list": str(len((await client.list_resources()).resources)),
            "prompts/list": str(len((await client.list_prompts()).prompts)),
            "tools/call": called.content[0].text,
            "resources/read": f"{len((await client.read_resource(URI)).contents[0].text)} characters",
            "prompts/get": str(len((await client.get_prompt(f"{prefix}simple-prompt")).messages)),
            "elicitation": "answered" if "Ada" in str(asked.content) else "not answered",
        }


if __name__ == "__main__":
    look = with_fastmcp if importlib.util.find_spec("fastmcp") else with_sdk_1
    print(json.dumps(asyncio.run(look(*json.loads(sys.argv[1])))))
