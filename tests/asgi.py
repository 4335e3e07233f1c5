"""An ASGI app on a real port of the loopback, for tests of what a remote server does."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import uvicorn
from mcp.server.lowlevel.server import Server
from mcp.server.sse import SseServerTransport
from scripted_backend import plainly, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route


@asynccontextmanager
async def listening(app: Any, port: int = 0) -> AsyncIterator[str]:
    """An ASGI app on a port of the loopback, a free one unless told; its address."""
    # Without the websockets library, whose import warns; nothing here speaks that.
    settings = uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=1, lifespan="on")
    server = uvicorn.Server(settings)
    # Without the protocol named, asyncio leaves Nagle's algorithm on, and every answer waits 40 ms.
    with plainly(), socket.socket(proto=socket.IPPROTO_TCP) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(("127.0.0.1", port))
        async with anyio.create_task_group() as group:
            group.start_soon(server.serve, [door])
            await until(lambda: server.started)
            yield f"http://127.0.0.1:{door.getsockname()[1]}"
            server.should_exit = True


def sse_app(server: Server[Any]) -> Starlette:
    """The server over the older transport, at `/sse`."""
    transport = SseServerTransport("/messages/")

    async def connect(request: Request) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return Response()

    posts = Mount("/messages/", app=transport.handle_post_message)
    return Starlette(routes=[Route("/sse", connect, methods=["GET"]), posts])
