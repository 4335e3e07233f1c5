"""Resources of all backends: listed together, read from the one they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roster.backends import Backend
from roster.forwarding.clients import Client, Links, Voice
from roster.forwarding.listings import RESOURCES, TEMPLATES, Listings
from roster.forwarding.refusals import NOT_FOUND_CODES, no_resource, result_of
from roster.forwarding.uris import matching, merged, qualified, unqualified

__all__ = ["Place", "Resources"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a URI may lead: a server, and the URI as that server knows it. sure: nobody else need be tried."""

    server: str
    uri: str
    sure: bool = False
    qualified: bool = False


class Resources:
    """The resources and resource templates of a pool."""

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self.listed = Listings(backends, RESOURCES)
        self.templates = Listings(backends, TEMPLATES)
        self._backends = backends
        self._emitted = Links()

    async def list_all(self, client: Client) -> list[dict[str, Any]]:
        """All resources there are now."""
        rows = merged(await self.listed.read(client), RESOURCES.field)
        for row in rows:
            client.links.forget(row["uri"])  # what it means in this list is what it means from now on
        return rows

    async def list_templates(self, client: Client) -> list[dict[str, Any]]:
        """All resource templates there are now."""
        return merged(await self.templates.read(client), TEMPLATES.field)

    def forget(self, server: str) -> None:
        """Its lists are others now."""
        self.listed.forget(server)
        self.templates.forget(server)

    def remember_links(self, server: str, result: Mapping[str, Any], client: Client) -> None:
        """Note the URIs that a result of this server shows, so that they can be read from it."""
        blocks = result.get("content")
        messages = result.get("messages")
        shown = list(blocks) if isinstance(blocks, list) else []
        if isinstance(messages, list):
            shown += [message.get("content") for message in messages if isinstance(message, Mapping)]
        for block in shown:
            if isinstance(block, Mapping):
                held = block.get("resource") if block.get("type") == "resource" else block
                uri = held.get("uri") if isinstance(held, Mapping) else None
                if isinstance(uri, str):
                    client.links.shown(uri, server)
                    self._emitted.shown(uri, server)

    async def places(self, uri: str, client: Client) -> list[Place]:
        """Where to look for this URI, the likeliest first.

        A qualified URI names its server. Otherwise whoever showed it to this client last; who lists it; whose template
        makes it; the only server with resources; and at last those with templates that could not be told.
        """
        named = unqualified(uri, filter(client.sees, self._backends))
        if named is not None:
            return [Place(*named, sure=True, qualified=True)]
        if (shown := client.links[uri]) and client.sees(shown):
            return [Place(shown, uri, sure=True)]
        if owner := self._lister(uri, client):
            return [Place(owner, uri, sure=True)]
        if self.listed.unread(client) or self.templates.unread(client):
            await self.listed.read(client)
            await self.templates.read(client)
            if owner := self._lister(uri, client):
                return [Place(owner, uri, sure=True)]
        if (shown := self._emitted[uri]) and client.sees(shown):
            return [Place(shown, uri, sure=True)]
        templates = self.templates.known(client)
        offering = self.listed.offering(client)
        only = offering if len(offering) == 1 else []
        servers = [*matching(uri, templates), *only, *(server for server, rows in templates.items() if rows)]
        return [Place(server, uri) for server in dict.fromkeys(servers)]

    def _lister(self, uri: str, client: Client) -> str | None:
        known = self.listed.known(client)
        exact = next((name for name, rows in known.items() if any(row["uri"] == uri for row in rows)), None)
        if exact is not None:
            return exact
        # Some clients write every URI anew before they send it, with a slash behind a bare host.
        bare = uri.rstrip("/")
        return next((name for name, rows in known.items() if any(row["uri"].rstrip("/") == bare for row in rows)), None)

    async def read(self, voice: Voice, uri: str) -> dict[str, Any]:
        """The raw result of reading `uri`. Raises MCPError: the owner's own, or that nobody has it."""
        places = await self.places(uri, voice.client)
        for place in places:
            params = voice.params(uri=place.uri)
            backend = self._backends[place.server]
            answer = await backend.request("resources/read", params, on_progress=voice.on_progress)
            last = place is places[-1]
            if answer.error is not None and answer.error.code in NOT_FOUND_CODES and not (place.sure or last):
                continue
            result = result_of(place.server, answer)
            if not place.sure:
                voice.client.links.shown(uri, place.server)
            return _requalified(result, place) if place.qualified else result
        raise no_resource(uri, voice.ctx.protocol_version)

    async def template_owner(self, template: str, client: Client) -> Place | None:
        """Where a template, or a URI, that a completion is asked for belongs."""
        named = unqualified(template, filter(client.sees, self._backends))
        if named is not None:
            return Place(*named, sure=True)
        if self.templates.unread(client):
            await self.templates.read(client)
        for server, rows in self.templates.known(client).items():
            if any(row["uriTemplate"] == template for row in rows):
                return Place(server, template, sure=True)
        places = await self.places(template, client)
        return places[0] if places else None


def _requalified(result: dict[str, Any], place: Place) -> dict[str, Any]:
    """A result whose contents say the URI they were asked for by, so that the next request finds the same server."""
    contents = result.get("contents")
    if not isinstance(contents, list):
        return result
    rows = [
        {**row, "uri": qualified(place.server, row["uri"])}
        if isinstance(row, Mapping) and isinstance(row.get("uri"), str)
        else row
        for row in contents
    ]
    return {**result, "contents": rows}
