"""A receipt: every client's bill on this machine, made from files and the database; connects only when asked to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roster.app import Roster, open_roster
from roster.cards import Kind
from roster.clients.adapters import CLIENTS, Client
from roster.clients.importing import import_servers
from roster.clients.machine import Machine
from roster.config import Config, Home, load_config, read_config
from roster.database import open_database
from roster.receipt.ledger import Bill, Case, Tool, bill, heaviest, together
from roster.receipt.loading import Way, loading_of
from roster.receipt.meter import Meter
from roster.receipt.offer import DraftCost, draft_cost, offer_of, server_of
from roster.receipt.owned import Toolset, owned_by
from roster.registry import Registry

__all__ = ["Ask", "Receipt", "make_receipt"]

Ask = Callable[[Roster], None]
"""Asks every server of an opened Roster for its tools."""

Rows = Mapping[str, Sequence[Mapping[str, Any]] | None]


@dataclass(frozen=True, slots=True)
class Receipt:
    """Every client's bill.

    offered: how many tools Roster has for all of them. home: the user's folder, so that no name that holds it is shown.
    """

    bills: tuple[Bill, ...]
    offered: int
    draft: DraftCost | None
    meter: Meter
    home: Path

    @property
    def known(self) -> bool:
        """Whether there is any figure to show."""
        return any(one.tools for one in self.bills)

    @property
    def unknown(self) -> list[str]:
        """Keys of the servers that cost something that nobody knows yet, each once."""
        keys = [use.server.key for one in self.bills for use in one.owned.uses if use.unknown and not use.stays]
        return list(dict.fromkeys(keys))

    @property
    def heaviest(self) -> list[Tool]:
        """The ten tools with the longest definitions."""
        return heaviest(self.bills)

    @property
    def totals(self) -> list[Case]:
        """All clients together: as they load definitions by themselves, and, where that differs, all loaded."""
        own, whole = together(self.bills, Way.NAMES), together(self.bills, Way.WHOLE)
        return [own, whole] if any(len(one.cases) > 1 for one in self.bills) else [whole]


def make_receipt(
    machine: Machine, home: Home, clients: Iterable[Client], project: Path, meter: Meter, ask: Ask | None = None
) -> Receipt:
    """The receipt of these clients. ask: asks the servers that never were, first. Raises ConfigError, StoreError.

    Nothing but Roster's own database is written; where there is none, only `ask` makes one.
    """
    clients = list(clients)
    # All clients' servers, whichever are shown: Roster has the servers of all of them to offer.
    done = import_servers(machine, home, CLIENTS, project)
    config = _config(home, done.text)
    rows = _rows(home, config)
    if ask is not None:
        shown = {client.id for client in clients}
        met = {found.name for found in done.found.values() if any(file.client.id in shown for file, _ in found.sources)}
        _ask(home, config, {name for name in met if rows.get(name) is None}, ask)
        rows = _rows(home, config)
    routed = {name for name, spec in config.servers.items() if not spec.disabled}
    toolset = Toolset({name: server_of(meter, name, rows.get(name)) for name in done.found}, routed)
    owned = owned_by(machine, home, clients, project, done, toolset)
    offer = offer_of(meter, config, rows)
    bills = tuple(bill(one, offer, loading_of(one.client)) for one in owned)
    draft = None
    if home.database.exists() and any(rows.values()):
        with open_roster(config, home) as roster:
            draft = draft_cost(meter, roster)
    return Receipt(bills, len(offer.transparent), draft, meter, machine.home)


def _config(home: Home, imported: str | None) -> Config:
    """roster.json as it is, or as `roster init` would make it."""
    if imported is not None:
        return read_config(imported)
    return load_config(home) if home.config.exists() else read_config("{}")


def _rows(home: Home, config: Config) -> Rows:
    """What each server has listed, in its order; None for those that never did."""
    rows: dict[str, list[Mapping[str, Any]] | None] = dict.fromkeys(config.servers)
    if not home.database.exists():
        return rows
    with closing(open_database(home.database)) as db:
        registry = Registry(db)
        for name, note in registry.servers.all().items():
            if note.listed_at is not None:
                rows[name] = []
        for entry in sorted(registry.since(-1), key=lambda entry: entry.position):
            if entry.card.kind is Kind.TOOL and not entry.removed:
                listed = rows.get(entry.card.server)
                if listed is None:
                    listed = rows[entry.card.server] = []
                listed.append(entry.card.raw)
    return rows


def _ask(home: Home, config: Config, names: set[str], ask: Ask) -> None:
    some = {name: spec for name, spec in config.servers.items() if name in names and not spec.disabled}
    if some:
        with open_roster(replace(config, servers=some), home) as roster:
            ask(roster)
