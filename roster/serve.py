"""`roster serve`: one process, one client, until its stdin closes or it is told to stop."""

from __future__ import annotations

import logging
import os
import signal
import sys

import anyio

from roster.app import open_roster
from roster.config import Mode, find_home, load_config
from roster.server import RosterServer

__all__ = ["serve_stdio"]

log = logging.getLogger(__name__)

STOP_LIMIT_S = 10.0


def serve_stdio(*, five: bool = False, transparent: bool = False) -> None:
    """Serve stdin and stdout. Raises ConfigError, StoreError before the first byte; a bad server entry only warns."""
    home = find_home()
    config = load_config(home)
    for problem in config.problems:
        log.warning("%s: %s", home.config.name, problem)
    mode = Mode.FIVE if five else Mode.TRANSPARENT if transparent else config.settings.mode
    if mode is Mode.TRANSPARENT and config.settings.quarantine == "call":
        log.warning('"quarantine": "call" refuses calls in five mode only: transparent mode lists and calls every tool')
    with open_roster(config, home) as roster:
        anyio.run(_serve, RosterServer(roster, mode))


async def _serve(server: RosterServer) -> None:
    async with anyio.create_task_group() as group:
        if sys.platform != "win32":
            group.start_soon(_stop_on_signal, server)
        await server.serve_stdio()
        group.cancel_scope.cancel()


async def _stop_on_signal(server: RosterServer) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            with anyio.move_on_after(STOP_LIMIT_S):
                await server.roster.pool.close()
            # A thread waits in read(0) for the client's next line, and nothing can interrupt that: not a
            # cancellation, not the end of the interpreter. The children are gone and every write is committed.
            os._exit(0)
