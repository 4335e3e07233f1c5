"""The older remote transport: one stream of events for all that the server says, and a POST for each message to it.

Where a message cannot be posted, the SDK's client posts no more but goes on listening: a connection that looks sound
and answers nobody. Here it is over then, as any lost one, and is made again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
from mcp.client.sse import sse_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED

__all__ = ["sse_streams"]

CONNECT_S = 30


class _Client(httpx2.AsyncClient):
    """Says when a message could not be posted: there was no answer, or a refusal."""

    def __init__(self, unposted: anyio.Event, **settings: Any) -> None:
        super().__init__(**settings)
        self._unposted = unposted

    async def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        """Send one request."""
        try:
            response = await super().send(request, **how)
        except httpx2.RequestError:
            self._unposted.set()
            raise
        if request.method == "POST" and response.status_code >= 400:
            self._unposted.set()
        return response


@asynccontextmanager
async def sse_streams(url: str, headers: Mapping[str, str], silence_s: float) -> AsyncIterator[tuple[Any, Any]]:
    """The (read, write) streams of one connection. Raises MCPError when it is lost.

    silence_s: without an event for so long, it is taken for lost.
    """
    unposted = anyio.Event()

    def client(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
        return _Client(unposted, headers=headers, timeout=timeout, auth=auth)

    async def watch() -> None:
        await unposted.wait()
        raise MCPError(CONNECTION_CLOSED, "Connection closed")

    opened = sse_client(
        url, headers=dict(headers), timeout=CONNECT_S, sse_read_timeout=silence_s, httpx_client_factory=client
    )
    async with opened as streams, anyio.create_task_group() as group:
        group.start_soon(watch)
        yield streams
        group.cancel_scope.cancel()
