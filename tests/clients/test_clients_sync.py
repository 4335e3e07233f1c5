"""Sync and eject over real-shaped files of every client: what goes in comes out again, to the byte."""

from __future__ import annotations

import json

import pytest
from client_samples import (
    SECRETS,
    STAYS,
    client_of,
    layouts,
    named_layouts,
    plain_layout,
    user_place,
)
from conftest import Clients

from roster.clients.adapters import CLIENTS
from roster.clients.dialects import is_roster
from roster.clients.files import decoded
from roster.clients.formats import Spot, servers

IDS = [client.id for client in CLIENTS]


def servers_in(client: str, data: bytes) -> dict[str, object]:
    place = user_place(client_of(client))
    return dict(servers(decoded(data), Spot(place.format, place.keys)))


@pytest.mark.parametrize(("client", "layout"), named_layouts())
def test_sync_then_eject_gives_the_same_bytes(clients: Clients, client: str, layout: str) -> None:
    """In every layout: the routed servers are replaced by one entry for Roster, and come back to the byte."""
    before = dict(layouts(client_of(client)))[layout]
    path = clients.put(client, before)
    clients.init()
    status, said = clients.sync()

    assert (status, said["written"], said["refused"]) == (0, 1, 0), said["files"]
    after = servers_in(client, path.read_bytes())
    assert sum(is_roster(value) for value in after.values()) == 1
    off = {"off"} if client == "codex" and "inline" not in layout else set()
    assert set(after) - STAYS.get(client, set()) - off == {"roster"}
    assert clients.eject()[0] == 0
    assert path.read_bytes() == before
