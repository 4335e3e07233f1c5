"""HTTP responses of our own: refusals that clients of MCP and people can read, and an end for one that was cut off."""

from __future__ import annotations

import json
from collections.abc import Mapping

import anyio
from starlette.responses import Response
from starlette.types import Message, Send

__all__ = ["Reply", "refusal"]

SEND_LIMIT_S = 60.0
"""For so long a client may leave unread what it is sent; then it counts as gone."""


def refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in the form that MCP clients read, and people too."""
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": message}})
    return Response(body, status, headers, media_type="application/json")


class Reply:
    """What has been sent of a response, so that one that is ended early still ends properly."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._over = False
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        """Send on. Raises ConnectionError when the client has not read what it was sent for too long."""
        with anyio.move_on_after(SEND_LIMIT_S) as sending:
            await self._send(message)
        if sending.cancelled_caught:
            raise ConnectionError("the client does not read what it is sent")
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self._over = message["type"] == "http.response.body" and not message.get("more_body", False)

    async def finish(self, instead: Response) -> None:
        """End the response, whatever is missing from it; with another one where nothing of it was sent."""
        if self.status is None:
            await self.send(
                {"type": "http.response.start", "status": instead.status_code, "headers": instead.raw_headers}
            )
            await self.send({"type": "http.response.body", "body": instead.body})
        elif not self._over:
            await self.send({"type": "http.response.body", "body": b""})
