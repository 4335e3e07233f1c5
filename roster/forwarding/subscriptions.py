"""Who wants to hear of which resource. A backend is asked once for each, however many clients want it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError

from roster.backends import Backend
from roster.forwarding.resources import Place

__all__ = ["Subscriptions"]

log = logging.getLogger(__name__)

ASK_LIMIT_S = 30.0


class Subscriptions:
    """By server and its own URI: who subscribed, and under which URI.

    A subscriber is a client of the older era, or an open stream of the newer one; here it is only told apart.
    """

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self._backends = backends
        self._held: dict[tuple[str, str], dict[Any, str]] = {}
        self._lock = anyio.Lock()  # between the first who comes and the last who goes only one may speak

    async def subscribe(self, subscriber: Any, uri: str, place: Place) -> None:
        """Have `subscriber` told of changes at `place` as changes of `uri`. Raises MCPError."""
        key = (place.server, place.uri)
        async with self._lock:
            if key not in self._held:
                await self._ask(place.server, place.uri)
            self._held.setdefault(key, {})[subscriber] = uri

    async def unsubscribe(self, subscriber: Any, uri: str) -> None:
        """Undo `subscribe`; nothing, if there was none."""
        for key, who in list(self._held.items()):
            if who.get(subscriber) == uri:
                del who[subscriber]
                await self._end(key)

    def release(self, subscriber: Any) -> None:
        """Undo every `subscribe` of a subscriber that has gone; the backends are told a moment later."""
        for key, who in list(self._held.items()):
            if who.pop(subscriber, None) is not None and not who:
                link = self._backends[key[0]].link
                if link is None:
                    del self._held[key]
                else:
                    link.later(self._end, key)

    async def _end(self, key: tuple[str, str]) -> None:
        """Tell the backend that nobody follows this any more, if that is so."""
        async with self._lock:
            if self._held.get(key) != {}:
                return
            del self._held[key]
            server, uri = key
            if (link := self._backends[server].link) is not None:
                try:
                    await link.unsubscribe(uri, ASK_LIMIT_S)
                except (MCPError, TimeoutError) as error:
                    log.info("%s: a subscription could not be ended (%s)", server, type(error).__name__)

    async def _ask(self, server: str, uri: str) -> None:
        link = self._backends[server].link
        if link is None:
            raise MCPError(types.INTERNAL_ERROR, f"{server} is not connected now; subscribe again later")
        try:
            await link.subscribe(uri, ASK_LIMIT_S)
        except TimeoutError:
            raise MCPError(types.INTERNAL_ERROR, f"{server} gave no answer to the subscription") from None

    async def connected(self, server: str) -> None:
        """Subscribe anew over a new connection: the old one took its subscriptions with it."""
        for owner, uri in [key for key in self._held if key[0] == server]:
            try:
                await self._ask(owner, uri)
            except MCPError as error:
                log.warning("%s: a resource can no longer be followed (code %d)", server, error.code)

    def following(self, server: str, uri: str) -> list[tuple[Any, str]]:
        """Who is to hear that this server's `uri` changed, and under which URI; also who follows what it is part of."""
        out: list[tuple[Any, str]] = []
        for (owner, held), who in self._held.items():
            if owner == server and (uri == held or uri.startswith(f"{held.rstrip('/')}/")):
                out += [(subscriber, own + uri[len(held) :]) for subscriber, own in who.items()]
        return out
