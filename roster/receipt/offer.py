"""What Roster itself puts into a context, and what its drafts cost on top."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roster.app import Roster
from roster.briefs import shorten
from roster.cards import Card, Kind, listed_name
from roster.config import Config, Mode
from roster.draft import DEFAULT_K
from roster.evaluation.tokens import draft_json
from roster.receipt.ledger import Offer, Server, Tool
from roster.receipt.meter import Count, Meter, definition

__all__ = ["DraftCost", "draft_cost", "offer_of", "server_of"]

_SAMPLE = 40
_NEED_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class DraftCost:
    """Tokens of the answer to a draft: the median, the lower and the upper quartile over `needs` sample needs."""

    count: Count
    needs: int


def tool_of(meter: Meter, server: str, place: int, row: Mapping[str, Any], name: str, prefix: str) -> Tool:
    """A row of a listing as a client loads it. prefix: what clients put before the name in a list of names."""
    # How a client writes a list of names is its own affair: the names at least, most likely with the prefix.
    least, usual = meter.text(name), meter.text(f"- {prefix}{name}\n")
    listed = Count(least.low, meter.text(f"{prefix}{name}\n").tokens, usual.high)
    return Tool(server, name, place, meter.json(definition(row, name)), listed)


def server_of(meter: Meter, name: str, rows: Sequence[Mapping[str, Any]] | None) -> Server:
    """A server with its tools counted. rows: as it listed them; None when it was never asked."""
    if rows is None:
        return Server(name, name, None)
    prefix = f"mcp__{name}__"
    tools = (tool_of(meter, name, place, row, str(row.get("name", "")), prefix) for place, row in enumerate(rows, 1))
    return Server(name, name, tuple(tools))


def offer_of(meter: Meter, config: Config, rows: Mapping[str, Sequence[Mapping[str, Any]] | None]) -> Offer:
    """What Roster with this config shows a client in each mode. rows: of each server that was ever asked."""
    # The server knows the protocol's types, and loading those takes a second that nobody else here needs.
    from roster.welcome import five_tools, instructions

    def ours(shown: Sequence[Mapping[str, Any]]) -> tuple[Tool, ...]:
        placed = enumerate(shown, 1)
        return tuple(tool_of(meter, "roster", place, row, str(row["name"]), "mcp__roster__") for place, row in placed)

    listed = [
        {**row, "name": listed_name(name, str(row["name"]))}
        for name, spec in sorted(config.servers.items())
        if not spec.disabled
        for row in rows.get(name) or ()
    ]
    return Offer(
        ours(five_tools(config)),
        ours(listed),
        meter.text(instructions(config, Mode.FIVE)),
        meter.text(instructions(config, Mode.TRANSPARENT)),
    )


def draft_cost(meter: Meter, roster: Roster) -> DraftCost | None:
    """What a draft's answer takes, over needs in the words of this home's own cards; None without any card.

    Drafted by words alone: what is on file decides what an answer takes, and no encoder has to be loaded for it.
    """
    roster.catalogue.refresh()
    cards = [entry.card for entry in roster.catalogue.living()]
    step = max(1, len(cards) // _SAMPLE)
    needs = [_need(card) for card in cards[::step][:_SAMPLE]]
    costs = []
    for need in needs:
        made = roster.draft_now(need, DEFAULT_K)
        costs.append(meter.text(draft_json(need, [starter.wire() for starter in made.starters], made.match)))
    if not costs:
        return None
    sizes = sorted(cost.tokens for cost in costs)
    low, middle, high = statistics.quantiles(sizes, n=4, method="inclusive") if len(sizes) > 1 else sizes * 3
    return DraftCost(Count(round(low), round(middle), round(high)), len(sizes))


def _need(card: Card) -> str:
    """A need that this card serves, about as long as people state one."""
    about = card.description if card.kind is Kind.TOOL or card.description else card.name
    return shorten(about or card.name, _NEED_CHARACTERS)
