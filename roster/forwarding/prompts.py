"""Prompts of all backends, named `server__prompt` like tools, and found by a table, never by taking a name apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roster.backends import Backend
from roster.cards import listed_name
from roster.forwarding.clients import Client, Voice
from roster.forwarding.listings import PROMPTS, Listings
from roster.forwarding.refusals import no_prompt, result_of

__all__ = ["Prompts"]


class Prompts:
    """The prompts of a pool."""

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self.listed = Listings(backends, PROMPTS)
        self._backends = backends

    async def list_all(self, client: Client) -> list[dict[str, Any]]:
        """All prompts there are now; of those that a server lists twice under a name, the first."""
        rows: dict[str, dict[str, Any]] = {}
        for server, listed in (await self.listed.read(client)).items():
            for row in listed:
                public = listed_name(server, row["name"])
                rows.setdefault(public, {**row, "name": public})
        return list(rows.values())

    async def find(self, public: str, client: Client) -> tuple[str, str]:
        """Server and own name of a prompt. Raises MCPError."""
        found = self._find(public, client)
        if found is None:
            # It may be new, or nobody has asked for the list yet.
            await self.listed.read(client)
            found = self._find(public, client)
        if found is None:
            raise no_prompt(public)
        return found

    def _find(self, public: str, client: Client) -> tuple[str, str] | None:
        for server, rows in self.listed.known(client).items():
            for row in rows:
                if listed_name(server, row["name"]) == public:
                    return server, row["name"]
        return None

    async def get(self, voice: Voice, public: str) -> tuple[str, dict[str, Any]]:
        """The server of a prompt, and its raw result. Raises MCPError."""
        server, name = await self.find(public, voice.client)
        params = voice.params(name=name)
        answer = await self._backends[server].request("prompts/get", params, on_progress=voice.on_progress)
        return server, result_of(server, answer)
