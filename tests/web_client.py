"""A Roster served over HTTP on a port of its own, and what speaks to it: SDK clients of both eras, plain requests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any

import anyio
import anyio.abc
import httpx2
from fakes import tool
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult
from scripted_backend import Scripted

from roster.addresses import Address, listen, url_of
from roster.app import Roster, open_roster
from roster.config import Home, Mode, read_config
from roster.web import PATH, Web, listening

CALENDAR = [tool("add_event", "Add an event to the calendar"), tool("list_events", "List the events of a day")]
NEED = "add an event to the calendar"

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


Open = Callable[..., Roster]


@contextmanager
def opening(home: Home) -> Iterator[Open]:
    """A function that opens a Roster over servers, with settings, without starting it; each is closed in the end.

    more: servers elsewhere, their entries by name.
    """
    with ExitStack() as stack:

        def open_one(*servers: Scripted, more: Mapping[str, Any] | None = None, **settings: Any) -> Roster:
            entries = {server.name: server.entry() for server in servers} | dict(more or {})
            config = read_config(json.dumps({"mcpServers": entries, **settings}))
            assert not config.problems
            return stack.enter_context(open_roster(config, home))

        yield open_one


def ids(reply: CallToolResult) -> list[str]:
    """The cards of a draft."""
    return [starter["id"] for starter in reply.structured_content["starters"]]


def outcomes(roster: Roster) -> list[tuple[Any, ...]]:
    """Of every call so far, in order: its card, how it ended, and whether it counts for a draft."""
    return roster.writer.db.execute("SELECT card, outcome, drafted FROM outcomes ORDER BY number").fetchall()


@asynccontextmanager
async def served(roster: Roster, mode: Mode = Mode.FIVE, **more: Any) -> AsyncIterator[tuple[Web, str]]:
    """The web server and its URL. The Roster is started here."""
    with listen(Address("127.0.0.1", 0)) as sock:
        web = Web(roster, mode, **more)
        async with listening(web, sock):
            await roster.pool.settled()
            yield web, url_of(sock, PATH)


@asynccontextmanager
async def client_at(url: str, era: str = "auto", secret: str | None = None, **more: Any) -> AsyncIterator[Client]:
    """An SDK client with connections of its own."""
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30)) as http,
        Client(streamable_http_client(url, http_client=http), mode=era, **more) as client,
    ):
        yield client


def initialize(version: str = "2025-11-25") -> dict[str, Any]:
    """The body of a request that opens a session."""
    client = {"name": "test", "version": "0"}
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


def answer_in(response: httpx2.Response) -> dict[str, Any]:
    """The JSON-RPC message of a response, plain or as the one event of a stream that says anything."""
    if response.headers["content-type"].startswith("text/event-stream"):
        said = [line.removeprefix("data:").strip() for line in response.text.splitlines() if line.startswith("data:")]
        (line,) = filter(None, said)
        return dict(json.loads(line))
    return dict(response.json())


async def alone(http: httpx2.AsyncClient, url: str, method: str, **params: Any) -> httpx2.Response:
    """The response to a request of the newer era, which stands alone."""
    prefix = "io.modelcontextprotocol/"
    who = {"clientInfo": {"name": "test", "version": "0"}, "clientCapabilities": {}, "protocolVersion": "2026-07-28"}
    meta = {f"{prefix}{key}": value for key, value in who.items()}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method}
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    return await http.post(url, json=body, headers={**HEADERS, **headers})


class Session:
    """A session of the older era, request by request."""

    def __init__(self, http: httpx2.AsyncClient, url: str, headers: Mapping[str, str] | None = None) -> None:
        self.http, self.url = http, url
        self.headers = {**HEADERS, **(headers or {})}

    async def post(self, body: Mapping[str, Any] | bytes) -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(self.url, content=content, headers=self.headers)

    async def open(self, version: str = "2025-11-25") -> httpx2.Response:
        response = await self.post(initialize(version))
        if response.status_code == 200:
            self.headers["Mcp-Session-Id"] = response.headers["mcp-session-id"]
            self.headers["Mcp-Protocol-Version"] = answer_in(response)["result"]["protocolVersion"]
            await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return response

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole answer to a request."""
        return answer_in(await self.post({"jsonrpc": "2.0", "id": 2, "method": method, "params": params}))


async def opened_by_hand(url: str, http: httpx2.AsyncClient) -> Session:
    """A session, opened."""
    session = Session(http, url)
    await session.open()
    return session


def raw_request(session: Session, method: str, body: bytes = b"") -> bytes:
    """A request as it goes over the wire."""
    host = httpx2.URL(session.url)
    headers = {**session.headers, "Host": f"{host.host}:{host.port}", "Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body


@asynccontextmanager
async def cuttable(url: str) -> AsyncIterator[tuple[str, Callable[[], None]]]:
    """Another way to a server, and how to cut every connection that goes over it; new ones may be made."""
    there = httpx2.URL(url)
    open_: set[anyio.CancelScope] = set()

    async def pump(from_: anyio.abc.ByteReceiveStream, to: anyio.abc.ByteSendStream, over: anyio.CancelScope) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for chunk in from_:
                await to.send(chunk)
        over.cancel()

    async def connected(near: anyio.abc.SocketStream) -> None:
        async with near, await anyio.connect_tcp(there.host, there.port or 80) as far:
            async with anyio.create_task_group() as group:
                open_.add(group.cancel_scope)
                group.start_soon(pump, near, far, group.cancel_scope)
                group.start_soon(pump, far, near, group.cancel_scope)
            open_.discard(group.cancel_scope)

    def cut() -> None:
        for scope in list(open_):
            scope.cancel()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, connected)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        yield str(there.copy_with(port=port)), cut
        group.cancel_scope.cancel()
