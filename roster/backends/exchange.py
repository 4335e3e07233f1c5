"""One request and its answer: what of a connection's many ways to fail has happened, as a value."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from roster.answers import seconds_of
from roster.backends.link import Link
from roster.backends.transports import CONNECTION_CLOSED, HttpRefusal, http_refusal
from roster.outcomes import CallReport, Cause

__all__ = ["Answer", "exchange"]

LOSS_PAUSE_S = 0.2
INVALID_REQUEST = -32600


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished call: the backend's own result, or its own error, or neither when it never gave one."""

    report: CallReport
    result: dict[str, Any] | None = None
    error: types.ErrorData | None = None


async def exchange(
    usable: Callable[[], Awaitable[Link | None]], send: Callable[[Link], Awaitable[dict[str, Any]]], *, remote: bool
) -> Answer:
    """What came of a request. Never raises for what a backend does.

    usable: an open link, or None when there is none to be had. send: makes the request over it. remote: it is no child
    process, so the server may have forgotten the session.
    """
    begun = anyio.current_time()
    refusal = HttpRefusal()

    def report(cause: Cause, code: int | None = None, error: BaseException | None = None) -> CallReport:
        name = type(error).__name__ if error is not None else None
        elapsed_ms = (anyio.current_time() - begun) * 1000
        wait_s = seconds_of(refusal.retry_after, time.time()) if refusal.retry_after else None
        return CallReport(cause, elapsed_ms, code, name, refusal.status, retry_after_s=wait_s)

    for attempt in (1, 2):
        link = await usable()
        if link is None:
            return Answer(report(Cause.UNREACHABLE))
        try:
            with http_refusal() as refusal:
                result = await send(link)
        except TimeoutError as error:
            return Answer(report(Cause.TIMEOUT, error=error))
        except MCPError as error:
            if remote and error.code == INVALID_REQUEST and "session" in error.message.lower():
                # The server said it does not know this session, so it did not read the call: once more is safe.
                link.close()
                if attempt == 1:
                    continue
                return Answer(report(Cause.UNREACHABLE, error.code))
            if error.code == CONNECTION_CLOSED and await _lost(link, error, remote):
                return Answer(report(Cause.DISCONNECTED, error.code))
            return Answer(report(Cause.RPC_ERROR, error.code), error=error.error)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, RuntimeError, OSError) as error:
            return Answer(report(Cause.DISCONNECTED, error=error))
        except ValidationError as error:
            return Answer(report(Cause.MALFORMED, error=error))
        return Answer(report(Cause.ANSWERED), result=result)
    raise AssertionError("unreachable")


async def _lost(link: Link, error: MCPError, remote: bool) -> bool:
    """Whether -32000 is the SDK's "connection closed" and not a server's own use of that code."""
    # The calls in flight hear of the end a moment before the connection's own end is known.
    if await link.ended(0 if remote else LOSS_PAUSE_S):
        return True
    return remote and "reconnection attempts" in error.message
