"""Log levels: which each client asked for, and which the backends are asked for so that everyone gets theirs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, get_args

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError

from roster.backends import Backend

__all__ = ["LEVELS", "Levels", "prefixed", "wants"]

log = logging.getLogger(__name__)

LEVELS: tuple[str, ...] = get_args(types.LoggingLevel)
"""From the most to the least talkative."""
SET_LIMIT_S = 10.0


def wants(level: str | None, message_level: Any, *, unset: bool) -> bool:
    """Whether somebody who asked for `level` wants a message of `message_level`. unset: what to do if nobody asked."""
    if level not in LEVELS:
        return unset
    return message_level not in LEVELS or LEVELS.index(message_level) >= LEVELS.index(level)


def prefixed(server: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """A log message whose `logger` says which server it comes from."""
    name = params.get("logger")
    return {**params, "logger": f"{server}/{name}" if isinstance(name, str) and name else server}


class Levels:
    """The level that backends log at: the most talkative one that any client wants."""

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self._backends = backends
        self._set: str | None = None

    async def settle(self, wanted: Iterable[str | None]) -> None:
        """Tell the backends if what is wanted in all has changed."""
        chosen = min((level for level in wanted if level in LEVELS), key=LEVELS.index, default=None)
        if chosen is not None and chosen != self._set:
            await self._tell(chosen)

    async def at_least(self, level: str) -> None:
        """Have the backends log from `level` up if they log less; for one request they are not told to log less."""
        if level in LEVELS and (self._set is None or LEVELS.index(level) < LEVELS.index(self._set)):
            await self._tell(level)

    async def _tell(self, level: str) -> None:
        self._set = level
        async with anyio.create_task_group() as group:
            for backend in self._backends.values():
                group.start_soon(self.apply, backend)

    async def apply(self, backend: Backend) -> None:
        """Tell one backend; one that has no such thing is left alone."""
        link = backend.link
        if self._set is None or link is None or "logging" not in link.offers:
            return
        try:
            await link.set_level(self._set, SET_LIMIT_S)
        except (MCPError, TimeoutError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            log.info("%s: its log level could not be set (%s)", backend.name, type(error).__name__)
