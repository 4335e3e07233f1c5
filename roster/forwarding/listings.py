"""One kind of list - resources, templates, prompts - of all backends, in the order of the config."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
from mcp_types import methods
from pydantic import ValidationError

from roster.backends import Backend, State
from roster.forwarding.clients import Client

__all__ = ["PROMPTS", "RESOURCES", "TEMPLATES", "Kind", "Listings"]

log = logging.getLogger(__name__)

LISTING_VERSION = "2025-11-25"
START_PATIENCE_S = 5.0
LIST_LIMIT_S = 10.0
"""A server that does not answer for its list is not waited for longer; what it listed before is shown."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A list method: under which key its rows come, which of their fields names them, which offer it belongs to."""

    method: str
    key: str
    field: str
    offer: str


RESOURCES = Kind("resources/list", "resources", "uri", "resources")
TEMPLATES = Kind("resources/templates/list", "resourceTemplates", "uriTemplate", "resources")
PROMPTS = Kind("prompts/list", "prompts", "name", "prompts")


class Listings:
    """The rows of every backend as they were last listed; of one that is away, from before."""

    def __init__(self, backends: Mapping[str, Backend], kind: Kind) -> None:
        self.kind = kind
        self._backends = backends
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._patient_until: float | None = None
        self.missed: set[str] = set()
        """Backends that were not there when a list was given out."""

    def __getitem__(self, server: str) -> list[dict[str, Any]]:
        return self._rows.get(server, [])

    def known(self, client: Client) -> dict[str, list[dict[str, Any]]]:
        """The rows by server that this client may see, in the order of the config."""
        return {name: self._rows[name] for name in self._backends if name in self._rows and client.sees(name)}

    def offering(self, client: Client) -> list[str]:
        """The servers that have this kind of thing, as far as it is known."""
        offer = self.kind.offer
        return [name for name, one in self._backends.items() if offer in (one.offers or ()) and client.sees(name)]

    def unread(self, client: Client) -> bool:
        """Whether a server that is there and has such a list has not been asked for it yet."""
        return any(name not in self._rows for name in self.offering(client)) or any(self._starting())

    def forget(self, server: str) -> None:
        """Its list is another one now."""
        self._rows.pop(server, None)

    def _starting(self) -> Iterator[Backend]:
        return (one for one in self._backends.values() if one.offers is None and one.state is State.STARTING)

    async def read(self, client: Client) -> dict[str, list[dict[str, Any]]]:
        """Ask every backend for its list now, all at once, and say what there is.

        Those that are starting are waited for in the first seconds after the first call; what comes later is announced.
        """
        if self._patient_until is None:
            self._patient_until = anyio.current_time() + START_PATIENCE_S
        with anyio.CancelScope(deadline=self._patient_until):
            for backend in self._starting():
                await backend.settled()
        async with anyio.create_task_group() as group:
            for name, backend in self._backends.items():
                group.start_soon(self._one, name, backend)
        return self.known(client)

    async def _one(self, name: str, backend: Backend) -> None:
        if backend.link is None:
            self.missed.add(name)
            return
        self.missed.discard(name)
        if self.kind.offer not in backend.link.offers:
            self._rows.pop(name, None)
            return
        found = None
        with anyio.move_on_after(LIST_LIMIT_S):
            found = await backend.rows(self.kind.method, self.kind.key)
        if found is not None:
            self._rows[name] = [row for one in found.rows if (row := self._usable(name, one)) is not None]
        else:
            self._rows.setdefault(name, [])  # what it listed before, if it did

    async def changed_at(self, backend: Backend) -> bool:
        """Whether a backend that is connected again has another list than the one that was given out."""
        if backend.name in self.missed:
            return self.kind.offer in (backend.offers or ())
        if backend.name not in self._rows:
            return False
        before = self._rows[backend.name]
        await self._one(backend.name, backend)
        return self._rows.get(backend.name, []) != before

    def _usable(self, server: str, row: Any) -> dict[str, Any] | None:
        """A row as it came if every client can read it: one bad row would cost a strict client the whole list."""
        if not isinstance(row, dict) or not isinstance(row.get(self.kind.field), str):
            return None
        named: dict[str, Any] = row if "name" in row else {"name": row[self.kind.field], **row}
        try:
            methods.validate_server_result(self.kind.method, LISTING_VERSION, {self.kind.key: [named]})
        except ValidationError:
            log.warning("%s: a row of its %s is not valid and is left out", server, self.kind.method)
            return None
        return named
