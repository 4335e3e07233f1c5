"""All backends of a config, each with its owner task in one task group."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import anyio
from anyio import to_thread

from roster.backends.backend import Backend, ListingSink, StateSink
from roster.backends.switchboard import Switchboard
from roster.backends.transports import cut_logs
from roster.config import Config, Home

__all__ = ["Pool"]

log = logging.getLogger(__name__)

STARTING_AT_ONCE = 8
RESTART_PAUSE_S = 5.0
LOG_CHECK_S = 60.0


class Pool(Mapping[str, Backend]):
    """The backends by configured name; the disabled ones are not among them."""

    def __init__(
        self,
        config: Config,
        home: Home,
        *,
        on_listing: ListingSink,
        on_state: StateSink,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        places = anyio.CapacityLimiter(STARTING_AT_ONCE)
        self.switchboard = Switchboard()
        self._scope: anyio.CancelScope | None = None
        self._logs = home.logs
        self._backends = {
            name: Backend(
                name,
                spec,
                logs=home.logs,
                places=places,
                on_listing=on_listing,
                on_state=on_state,
                switchboard=self.switchboard,
                environ=environ,
            )
            for name, spec in config.servers.items()
            if not spec.disabled
        }

    def __getitem__(self, name: str) -> Backend:
        return self._backends[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._backends)

    def __len__(self) -> int:
        return len(self._backends)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Pool]:
        """Start every backend's owner task; on the way out, stop them all and wait for their children to end."""
        async with anyio.create_task_group() as group:
            self._scope = group.cancel_scope
            for backend in self._backends.values():
                group.start_soon(self._own, backend)
            group.start_soon(self._tend_logs)
            try:
                yield self
            finally:
                self._stop()

    def _stop(self) -> None:
        for backend in self._backends.values():
            backend.stop()
        # A connection that is still being made is not worth waiting for.
        if self._scope is not None:
            self._scope.cancel()

    async def close(self) -> None:
        """Stop every backend from outside `running`, and wait for their children to end."""
        self._stop()
        for backend in self._backends.values():
            await backend.ended.wait()

    async def _own(self, backend: Backend) -> None:
        while True:
            try:
                await backend.run()
            except Exception:
                # The end of a task's life: whatever this was, the other backends go on, and this one gets another.
                log.exception("the owner task of %s ended; it is started again", backend.name)
                await anyio.sleep(RESTART_PAUSE_S)
            else:
                return

    async def _tend_logs(self) -> None:
        """Keep the log files of running servers within their limit; they are written by the servers themselves."""
        while True:
            await anyio.sleep(LOG_CHECK_S)
            await to_thread.run_sync(cut_logs, self._logs)

    async def settled(self) -> None:
        """Wait until every backend has listed its tools or failed to once."""
        async with anyio.create_task_group() as group:
            for backend in self._backends.values():
                group.start_soon(backend.settled)
