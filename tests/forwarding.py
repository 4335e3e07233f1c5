"""What the tests of forwarding share: a client that writes down what it is told and asked, and scripts of servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp import ClientSession
from mcp.client._memory import InMemoryTransport
from mcp.shared.dispatcher import DispatchContext
from mcp.shared.exceptions import MCPError
from scripted_backend import until

from roster.server import RosterServer

FULL = {
    "tools": {},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}


def page(uri: str, **more: Any) -> dict[str, Any]:
    """A row of a `resources/list` answer."""
    return {"uri": uri, "name": uri.rsplit("/", 1)[-1], **more}


def contents(uri: str, text: str) -> dict[str, Any]:
    """The answer of a `resources/read`, for a script."""
    return {"result": {"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]}}


def listed(*uris: str, templates: list[str] | None = None, **read: str) -> dict[str, Any]:
    """A script's answers for a server with these resources; each can be read and says its URI."""
    made: dict[str, Any] = {"resources/list": {"result": {"resources": [page(uri) for uri in uris]}}}
    rows = [{"uriTemplate": template, "name": template} for template in templates or []]
    made["resources/templates/list"] = {"result": {"resourceTemplates": rows}}
    for uri in uris:
        made[f"resources/read {uri}"] = contents(uri, f"text of {uri}")
    return made | {f"resources/read {uri}": contents(uri, text) for uri, text in read.items()}


class Heard:
    """A client of the older era, raw on the wire: what it was told and asked, and what it answers."""

    def __init__(self, session: ClientSession, answers: Mapping[str, Any]) -> None:
        self.session = session
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.greeting: dict[str, Any] = {}
        self._answers = answers

    async def request(self, method: str, meta: Mapping[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        """The raw result of a request. Raises MCPError."""
        sent = {**params, **({"_meta": dict(meta)} if meta else {})}
        return dict(await self.session._dispatcher.send_raw_request(method, sent))

    async def notify(self, method: str, **params: Any) -> None:
        await self.session._dispatcher.notify(method, params)

    async def hears(self, method: str) -> dict[str, Any]:
        """The params of the first notification of this kind, once it is there."""
        await until(lambda: self.heard(method))
        return self.heard(method)[0]

    def heard(self, method: str) -> list[dict[str, Any]]:
        """The params of every notification of this kind so far."""
        return [params for told, params in self.told if told == method]

    async def on_request(self, _: DispatchContext[Any], method: str, params: Any) -> dict[str, Any]:
        self.asked.append((method, dict(params or {})))
        answer = self._answers.get(method)
        if isinstance(answer, MCPError):
            raise answer
        return dict(await answer(params) if callable(answer) else answer)

    async def on_notify(self, _: DispatchContext[Any], method: str, params: Any) -> None:
        self.told.append((method, dict(params or {})))


@asynccontextmanager
async def connected(
    server: RosterServer, answers: Mapping[str, Any] | None = None, **capabilities: Any
) -> AsyncIterator[Heard]:
    """One more client of a server, after its handshake. It declares these capabilities and gives these answers."""
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

    async with InMemoryTransport(server.server) as (read, write):
        dispatcher: Any = JSONRPCDispatcher(read, write)
        session = ClientSession(dispatcher=dispatcher)
        client = Heard(session, answers or {})
        inner = dispatcher.run

        async def run(_: Any, __: Any, intercept: Any = None, *, task_status: Any) -> None:
            await inner(client.on_request, client.on_notify, intercept, task_status=task_status)

        dispatcher.run = run
        async with session:
            info = {"name": "test", "version": "0"}
            client.greeting = await client.request(
                "initialize", protocolVersion="2025-11-25", capabilities=capabilities, clientInfo=info
            )
            await client.notify("notifications/initialized")
            yield client


def code_of(error: MCPError) -> int:
    return error.error.code


def block_texts(result: Mapping[str, Any]) -> list[str]:
    return [block["text"] for block in result["content"] if block["type"] == "text"]


LEVEL_KEY = types.LOG_LEVEL_META_KEY
