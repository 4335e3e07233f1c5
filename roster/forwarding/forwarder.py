"""Everything between clients and backends that is not a tool call: who asked what, and who is to be told."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    SubscriptionBus,
)
from mcp.shared.exceptions import MCPError

from roster.backends import Backend, requester
from roster.forwarding.asking import Asking
from roster.forwarding.bridge import Bridge
from roster.forwarding.clients import Client, Voice
from roster.forwarding.logs import Levels, prefixed, wants
from roster.forwarding.prompts import Prompts
from roster.forwarding.refusals import no_resource
from roster.forwarding.resources import Resources
from roster.forwarding.subscriptions import Subscriptions
from roster.forwarding.tasks import Tasks

__all__ = ["Forwarder"]

log = logging.getLogger(__name__)

TELL_LIMIT_S = 2.0
COALESCE_S = 0.1
_CHANGED: dict[str, tuple[str, ServerEvent]] = {
    "resources": ("notifications/resources/list_changed", ResourcesListChanged()),
    "prompts": ("notifications/prompts/list_changed", PromptsListChanged()),
}


class Forwarder:
    """The `Peer` of the backends, and the memory behind the handlers."""

    def __init__(self, backends: Mapping[str, Backend], bus: SubscriptionBus, *, lists: bool) -> None:
        """lists: whether clients see the backends' lists, and so are to hear when those change."""
        self.backends = backends
        self.resources = Resources(backends)
        self.prompts = Prompts(backends)
        self.subscriptions = Subscriptions(backends)
        self.levels = Levels(backends)
        self.tasks = Tasks(backends)
        self.bridge = Bridge()
        self.asking = Asking(lambda: self._clients)
        self._lists = lists
        self._bus = bus
        self._listen = ListenHandler(bus)
        self._clients: list[Client] = []
        self._due: dict[str, set[str]] = {}

    # --------------------------------------------------------------------------------------------- clients

    def add(self, client: Client) -> None:
        """A client has connected."""
        self._clients.append(client)

    def remove(self, client: Client) -> None:
        """A client has gone; what was held for it is let go."""
        if client in self._clients:
            self._clients.remove(client)
        self.asking.forget(client)
        self.bridge.forget(client)
        self.subscriptions.release(client)

    async def ready(self, client: Client) -> None:
        """A client has finished its handshake."""
        client.ready = True
        self.asking.arrived()
        if client.capabilities is not None and client.capabilities.roots is not None:
            waiting = set(self.asking.waiting_for_roots)
            self.asking.waiting_for_roots.clear()
            await self.roots_changed(waiting)

    async def roots_changed(self, servers: Iterable[str] | None = None) -> None:
        """Tell the backends (None: all) that the client's roots are others now."""
        for name in self.backends if servers is None else servers:
            if (link := self.backends[name].link) is not None and not link.modern:
                await link.notify("notifications/roots/list_changed")

    def remember(self, server: str, result: Mapping[str, Any], client: Client) -> None:
        """Note what a result refers to that the client may come back for: resources, and a task."""
        self.resources.remember_links(server, result, client)
        self.tasks.remember(server, result, client)

    async def set_level(self, client: Client, level: str) -> None:
        """A client of the older era wants log messages from this level up."""
        client.log_level = level
        await self.levels.settle(one.log_level for one in self._clients)

    # ---------------------------------------------------------------------------------------- subscriptions

    async def subscribe(self, client: Any, voice: Voice, uri: str) -> None:
        """Have `client`, a connection or a stream, told of changes of a resource. Raises MCPError."""
        places = await self.resources.places(uri, voice.client)
        if not places:
            raise no_resource(uri, voice.ctx.protocol_version)
        await self.subscriptions.subscribe(client, uri, places[0])

    async def listen(
        self, ctx: ServerRequestContext[Any, Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """One stream of the newer era: its resources are followed for as long as it is open."""
        voice = requester.get()
        stream = object()
        try:
            if isinstance(voice, Voice):
                for uri in params.notifications.resource_subscriptions or ():
                    try:
                        await self.subscribe(stream, voice, uri)
                    except MCPError as error:
                        # The stream is honoured all the same: it may carry more than this one resource.
                        log.info("a resource cannot be followed (code %d)", error.code)
            return await self._listen(ctx, params)
        finally:
            self.subscriptions.release(stream)

    def close_streams(self) -> None:
        """End every stream of the newer era, so that its client knows that it was meant."""
        self._listen.close()

    # ----------------------------------------------------------------------------------- what backends do

    async def connected(self, backend: Backend) -> None:
        """A backend's connection is open."""
        await self.levels.apply(backend)
        await self.subscriptions.connected(backend.name)
        for listings in (self.resources.listed, self.resources.templates, self.prompts.listed):
            if await listings.changed_at(backend):
                await self._changed(backend, listings.kind.offer)

    async def asked(self, backend: Backend, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to what a backend asks of the client."""
        return await self.asking.ask(backend, method, params)

    async def fulfil(self, backend: Backend, result: Mapping[str, Any]) -> dict[str, Any] | None:
        """What a backend that wants input is to be told; None when its result is for the client as it is."""
        return await self.asking.fulfil(backend, result)

    async def noted(self, backend: Backend, method: str, params: Mapping[str, Any]) -> None:
        """Pass on what a backend announces to those whom it concerns."""
        match method:
            case "notifications/message":
                await self._log(backend, params)
            case "notifications/resources/updated" if isinstance(uri := params.get("uri"), str):
                await self._updated(backend, uri, params)
            case "notifications/resources/list_changed":
                self.resources.forget(backend.name)
                await self._changed(backend, "resources")
            case "notifications/prompts/list_changed":
                self.prompts.listed.forget(backend.name)
                await self._changed(backend, "prompts")
            case "notifications/elicitation/complete":
                client = self.asking.elicited(params.get("elicitationId"))
                if client is not None:
                    await _tell([client], method, params)
            case "notifications/tasks/status" if isinstance(id_ := params.get("taskId"), str):
                await _tell([one for one in self._clients if one.tasks[id_] == backend.name], method, params)
            case "notifications/subscriptions/acknowledged" | "notifications/resources/updated":
                pass
            case _:
                await _tell(self._concerned(backend), method, params)

    def _concerned(self, backend: Backend) -> list[Client | Voice]:
        """Whose requests this backend is working on; every client when it works on none."""
        own = requester.get()
        if isinstance(own, Voice):
            return [own]
        under_way = [one for one in backend.flights.requesters() if isinstance(one, Voice)]
        return [*under_way] or [client for client in self._clients if client.ready and client.sees(backend.name)]

    async def _log(self, backend: Backend, params: Mapping[str, Any]) -> None:
        # In the older era a client that set no level gets what the server thinks fit; in the newer one, nothing.
        curious = [
            who
            for who in self._concerned(backend)
            if wants(who.log_level, params.get("level"), unset=not (isinstance(who, Voice) and who.modern))
        ]
        await _tell(curious, "notifications/message", prefixed(backend.name, params))

    async def _updated(self, backend: Backend, uri: str, params: Mapping[str, Any]) -> None:
        meta = {key: value for key, value in params.items() if key not in ("uri", "_meta")}
        for subscriber, own in self.subscriptions.following(backend.name, uri):
            if isinstance(subscriber, Client):
                await _tell([subscriber], "notifications/resources/updated", {**meta, "uri": own})
            else:
                await self._bus.publish(ResourceUpdated(uri=own))

    async def _changed(self, backend: Backend, offer: str) -> None:
        """Tell every client that a kind of list is another one now: once for many changes at the same time."""
        if not self._lists:
            return
        if offer in self._due:
            self._due[offer].add(backend.name)
            return
        self._due[offer] = {backend.name}
        try:
            await anyio.sleep(COALESCE_S)
        finally:
            servers = self._due.pop(offer)
        method, event = _CHANGED[offer]
        await _tell([one for one in self._clients if one.ready and any(map(one.sees, servers))], method)
        await self._bus.publish(event)


async def _tell(whom: Iterable[Client | Voice], method: str, params: Mapping[str, Any] | None = None) -> None:
    """Tell each of them; one that does not read, or has gone, holds up neither the others nor the backend for long."""

    async def tell(who: Client | Voice) -> None:
        with anyio.move_on_after(TELL_LIMIT_S):
            try:
                await who.tell(method, params)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, MCPError) as error:
                log.debug("a client could not be told (%s)", type(error).__name__)

    async with anyio.create_task_group() as group:
        for who in whom:
            group.start_soon(tell, who)
