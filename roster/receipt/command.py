"""What `roster receipt` does: makes a receipt and shows it as a card, a JSON document or a picture."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import anyio

from roster.app import Roster
from roster.clients.adapters import chosen
from roster.clients.machine import Machine, this_machine
from roster.commands import sight_all
from roster.config import find_home
from roster.errors import RosterError
from roster.receipt.card import print_card
from roster.receipt.document import document
from roster.receipt.labels import Labels
from roster.receipt.meter import open_meter
from roster.receipt.picture import picture
from roster.receipt.receipt import make_receipt
from roster.terminal import Out

__all__ = ["receipt"]


def receipt(
    *,
    clients: Sequence[str],
    project: Path | None,
    connect: bool,
    named: bool,
    svg: Path | None,
    out: Out,
    machine: Machine | None = None,
) -> None:
    """Print what each client's context costs; write the picture where it was asked for. Raises RosterError."""
    machine = machine or this_machine()
    where = machine.cwd if project is None else machine.cwd / project
    meter = open_meter()
    made = make_receipt(machine, find_home(machine.environ), chosen(clients), where, meter, _ask if connect else None)
    labels = Labels(made, named=named)
    if svg is not None:
        _write(svg, picture(made, labels))
    if out is not None:
        out(document(made, labels))
    else:
        print_card(made, labels)


def _ask(roster: Roster) -> None:
    anyio.run(sight_all, roster)
    silent = sum(name not in roster.sightings for name in roster.pool)
    if silent:
        some = "1 server" if silent == 1 else f"{silent} servers"
        print(f"roster: {some} did not answer: `roster reindex` says why", file=sys.stderr)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RosterError(f"{path} cannot be written ({error.strerror}): name another file for --svg") from None
