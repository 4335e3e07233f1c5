"""A remote MCP server that does what a test tells it, and counts what it carries out: an ASGI app for `asgi.listening`.

It speaks the older era over streamable HTTP, one JSON document an answer, and has no stream of its own to offer.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from asgi import listening
from scripted_backend import running
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from roster.backends import Answer, Backend
from roster.config import Home

Reply = Callable[[Any], Response]
"""What is answered to the request with this id."""


def result_of(id_: Any, words: str = "done") -> dict[str, Any]:
    """The message that answers a call."""
    return {"jsonrpc": "2.0", "id": id_, "result": {"content": [{"type": "text", "text": words}]}}


def error_of(id_: Any, code: int, words: str) -> dict[str, Any]:
    """The message that refuses a request."""
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": words}}


def event(message: Mapping[str, Any] | None = None, number: str = "") -> str:
    """One server-sent event; without a message one that only has its number, to go on from."""
    data = json.dumps(message) if message is not None else ""
    return (f"id: {number}\n" if number else "") + f"data: {data}\n\n"


def events(*parts: str) -> Response:
    """A stream of these events, which ends after the last."""
    return StreamingResponse(iter(parts), media_type="text/event-stream")


def words(answer: Answer) -> str:
    """The text of a result."""
    assert answer.result is not None, answer
    return str(answer.result["content"][0]["text"])


@asynccontextmanager
async def over_http(home: Home, remote: Remote, **entry: Any) -> AsyncIterator[Backend]:
    """A remote server as the backend of a Roster."""
    async with listening(remote) as address, running(home, {"web": {"url": f"{address}/mcp", **entry}}) as roster:
        yield roster.pool["web"]


class Remote:
    """`done` holds the arguments of every call that was carried out, and `asked` every request that came, in order.

    after: what is answered to a call, once it was carried out. unknown: what is answered to a session that is not known
    (any more). pinged: what is answered to a ping. resumed: what is answered to a GET, with which a client goes on
    after a stream that was cut off.
    """

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = list(rows)
        self.done: list[Any] = []
        self.asked: list[str] = []
        self.sessions: set[str] = set()
        self.after: Reply = lambda id_: JSONResponse(result_of(id_))
        self.unknown: Reply = lambda id_: Response(status_code=404)
        self.pinged: Reply = lambda id_: JSONResponse({"jsonrpc": "2.0", "id": id_, "result": {}})
        self.resumed: Callable[[], Response] = lambda: Response(status_code=405)
        self._numbers = itertools.count(1)

    def forgets(self) -> None:
        """Know no session any more, as after a restart."""
        self.sessions.clear()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            request = Request(scope, receive)
            await (await self._answer(request))(scope, receive, send)
        else:
            for stage in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{stage}.complete"})

    async def _answer(self, request: Request) -> Response:
        if request.method != "POST":
            self.asked.append(request.method)
            return self.resumed() if request.method == "GET" else Response()
        message = await request.json()
        method, id_ = message.get("method"), message.get("id")
        self.asked.append(method)
        if method == "initialize":
            session = f"s{next(self._numbers)}"
            self.sessions.add(session)
            version, info = message["params"]["protocolVersion"], {"name": "remote", "version": "1"}
            opened = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            message = {"jsonrpc": "2.0", "id": id_, "result": opened}
            return JSONResponse(message, headers={"mcp-session-id": session})
        if request.headers.get("mcp-session-id") not in self.sessions:
            return self.unknown(id_)
        if id_ is None:
            return Response(status_code=202)
        if method == "tools/call":
            self.done.append(message["params"].get("arguments"))
            return self.after(id_)
        if method == "ping":
            return self.pinged(id_)
        return JSONResponse({"jsonrpc": "2.0", "id": id_, "result": {"tools": self.rows}})
