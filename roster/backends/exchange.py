"""One request and its answer: what of a connection's many ways to fail has happened, as a value.

A request that may change something is sent once, whatever comes of it. That a server answers "unknown session" is no
proof that nobody has read it: what stands in between may have tried another replica first, or the session may have
ended under way. So where a session may be gone, that is found out before, with a question that changes nothing.
"""

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
from roster.backends.link import Link, about_session
from roster.backends.pings import Pings
from roster.backends.transports import CONNECTION_CLOSED, HttpRefusal, http_refusal
from roster.outcomes import CallReport, Cause

__all__ = ["Answer", "exchange"]

LOSS_PAUSE_S = 0.2
QUIET_S = 5.0
"""A remote server that was not heard of for so long may have forgotten the session."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished call: the backend's own result, or its own error, or neither when it never gave one."""

    report: CallReport
    result: dict[str, Any] | None = None
    error: types.ErrorData | None = None


async def exchange(
    usable: Callable[[], Awaitable[Link | None]],
    send: Callable[[Link], Awaitable[dict[str, Any]]],
    *,
    remote: bool,
    repeatable: bool,
    pings: Pings,
) -> Answer:
    """What came of a request. Never raises for what a backend does.

    usable: an open link, or None when there is none to be had. send: makes the request over it. remote: it is no child
    process, so the server may have forgotten the session. repeatable: sent twice, it does no more than sent once.
    pings: what this server's pings have shown.
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
        # Others who wait for their answers over it are no worse off for one call more.
        if link is not None and remote and not repeatable and link.silent_s > QUIET_S and not len(link.flights):
            if await pings.forgotten(link) and not len(link.flights):
                link.close()
                if (link := await usable()) is not None:
                    await pings.learn(link)
            link = await usable()
        if link is None:
            return Answer(report(Cause.UNREACHABLE))
        try:
            with http_refusal() as refusal:
                result = await send(link)
        except TimeoutError as error:
            return Answer(report(Cause.TIMEOUT, error=error))
        except MCPError as error:
            if remote and about_session(error, refusal.status) and await pings.forgotten(link, refusal.status):
                link.close()
                if attempt == 1 and repeatable:
                    continue
                return Answer(report(Cause.FORGOTTEN, error.code))
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
    if await link.ended(LOSS_PAUSE_S if not remote or error.message == "Connection closed" else 0):
        return True
    return remote and error.message.startswith("SSE stream")  # the SDK's words for an answer that broke off
