"""Outcomes are written down once their answers have gone: what a call led to is no reason for its caller to wait."""

from __future__ import annotations

import logging
from collections import deque

import anyio
from anyio import to_thread

from roster.recorder import Ended, Recorder

__all__ = ["Scribe"]

log = logging.getLogger(__name__)

BACKLOG = 256
"""So many may wait while another process keeps the database to itself; after that, calls wait for it too."""
PATIENCE_S = 0.2
LAST_WORDS_S = 5.0


class Scribe:
    """Has a recorder write, in the order in which calls ended. While it does not `run`, before `record` returns."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._waiting: deque[Ended] = deque()
        self._running = False
        self._news = anyio.Event()
        self._pen = anyio.Lock()

    async def record(self, ended: Ended) -> None:
        """Have one call written down: soon, where somebody is there to do it."""
        if self._running and len(self._waiting) < BACKLOG:
            self._waiting.append(ended)
            self._news.set()
            return
        with anyio.move_on_after(PATIENCE_S):
            await self._write(ended)

    async def run(self) -> None:
        """Write down what comes, for as long as this runs."""
        self._running = True
        try:
            while True:
                await self._news.wait()
                self._news = anyio.Event()
                await self._catch_up()
        finally:
            self._running = False

    async def finish(self) -> None:
        """Write down what is left, and wait for what is being written."""
        with anyio.move_on_after(LAST_WORDS_S, shield=True):
            await self._catch_up()
        if self._waiting:
            log.warning("the outcomes of %d calls could not be recorded", len(self._waiting))

    async def _catch_up(self) -> None:
        async with self._pen:
            while self._waiting:
                # Who ends this in the middle of one would let the process end before a thread has written it.
                with anyio.CancelScope(shield=True):
                    await self._write(self._waiting.popleft())

    async def _write(self, ended: Ended) -> None:
        # A twentieth of a millisecond, half of what it takes to have another thread do it. But where another writes,
        # a thread waits for it, not the event loop.
        try:
            if not self._recorder.record_now(ended):
                await to_thread.run_sync(self._recorder.record, ended, abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001 - it would end every client's connection
            log.warning("an outcome of %s could not be recorded (%s)", ended.card.id, type(error).__name__)
