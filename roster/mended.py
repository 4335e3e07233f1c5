"""Lines that are JSON but not text: one half of an emoji must not cost a call its answer.

Programs that cut a string in the middle of a surrogate pair write half of it, and the SDK's reader takes the whole line
for unreadable. It then belongs to nobody, and whoever waits for that answer waits until its time is up. Here such a
line is read again with the half character replaced, and one that cannot be read at all is answered for with an error.
"""

from __future__ import annotations

import json
import re
from typing import Any

import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from roster.streams import StreamAround

__all__ = ["MendedStream", "mended", "mended_body"]

_HALVES = re.compile("[\ud800-\udfff]")
_ESCAPED_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_LAST_ID = re.compile(r'"id"\s*:\s*(\d{1,18})\s*\}\s*$')
_ID = re.compile(r'"id"\s*:\s*(\d{1,18})')


def _whole(value: Any) -> Any:
    """`value` with every lone surrogate replaced by U+FFFD."""
    match value:
        case str():
            return _HALVES.sub("\ufffd", value)
        case dict():
            return {_whole(key): _whole(item) for key, item in value.items()}
        case list():
            return [_whole(item) for item in value]
        case _:
            return value


def _line_of(error: Exception) -> str | None:
    if not isinstance(error, ValidationError):
        return None
    line = error.errors(include_url=False, include_context=False)[0]["input"]
    return line if isinstance(line, str) else None


def mended(error: Exception) -> SessionMessage | Exception:
    """The message of a line the SDK could not read; an error answer if only its id can be read; else the error."""
    line = _line_of(error)
    if line is None:
        return error
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_python(_whole(json.loads(line)), by_name=False))
    except (ValueError, RecursionError):
        # Before the answer itself or at the very end: an "id" inside it is somebody else's.
        head = re.split('"(?:result|error|method)"', line, maxsplit=1)[0]
        found = _ID.search(head) or _LAST_ID.search(line)
    if found is None or '"method"' in line[: len(head) + 10]:
        return error
    data = types.ErrorData(code=types.PARSE_ERROR, message="The server's answer could not be read")
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=data))


def mended_body(body: bytes) -> bytes:
    """A request body without half characters; as it is when it has none, or cannot be read for another reason."""
    if _ESCAPED_HALF.search(body) is None:
        return body
    try:
        return json.dumps(_whole(json.loads(body)), ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return body


class MendedStream(StreamAround):
    """A read stream whose unreadable items are mended where they can be."""

    async def receive(self) -> SessionMessage | Exception:
        """The next item."""
        item = await super().receive()
        return mended(item) if isinstance(item, Exception) else item
