"""How many requests may be at one backend at a time, and whose turn it is.

Two limits. Of all requests, whatever their method, no more than `MOST` are at one backend, so that one that hangs
cannot take memory without end. And where the user says how many calls a server can take (`max_concurrency`), the rest
wait in the order in which they came.

Only `tools/call` takes a turn. A resource or a prompt may be just what a client needs to answer the question that a
call under way has put to it, and would otherwise wait for that call; lists and settings are Roster's own affair.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from roster.backends.exchange import Answer
from roster.outcomes import CallReport, Cause

__all__ = ["MOST", "Turns"]

MOST = 1_000
"""So many requests may be at one backend, under way and waiting for their turn together."""


class Turns:
    """The requests at one backend. present: of all methods, those that wait among them; whoever sends one counts it.

    It outlives connections: a place is given back by the call that held it, however that ended.
    """

    def __init__(self, at_once: int | None) -> None:
        """at_once: how many calls may be under way; None for no such limit."""
        self.present = 0
        self.limited = at_once is not None
        self._places = anyio.Semaphore(at_once or MOST, fast_acquire=True)

    async def in_turn(
        self, work: Callable[[], Awaitable[Answer]], limit_s: float, given_up: Callable[[], bool]
    ) -> Answer:
        """What a call comes to that waits for its turn, for so long at most; then the time of `work` begins.

        Cancelled while it waits, it leaves the queue. given_up: whether an attempt to connect has failed since; all who
        waited share its fate, as they would without turns.
        """
        begun = anyio.current_time()
        with anyio.move_on_after(limit_s) as waiting:
            await self._places.acquire()
        if waiting.cancelled_caught:
            return Answer(_unsent(Cause.LIMITED, begun))
        try:
            return Answer(_unsent(Cause.UNREACHABLE, begun)) if given_up() else await work()
        finally:
            self._places.release()


def _unsent(cause: Cause, begun: float) -> CallReport:
    return CallReport(cause, (anyio.current_time() - begun) * 1000)
