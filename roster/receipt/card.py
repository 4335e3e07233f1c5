"""A receipt on a terminal: eighty columns, plain where nobody looks."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rich.console import Console
from rich.table import Table
from rich.text import Text

from roster.receipt.labels import Labels
from roster.receipt.ledger import Bill, Case, Use
from roster.receipt.receipt import Receipt
from roster.receipt.words import (
    case_name,
    cost_now,
    counted,
    counted_with,
    in_drafts,
    left_out,
    number,
    percent,
    ranged,
)
from roster.terminal import plain

__all__ = ["print_card"]

_WIDTH = 80
_HEADINGS = ("", "now", "transparent", "five", "saved", "drafts")


def print_card(receipt: Receipt, labels: Labels, console: Console | None = None) -> None:
    """Print every client's bill, the heaviest tools, and how all of it was counted."""
    console = console or Console()
    width = min(console.width, _WIDTH)

    def say(text: Text | str, style: str = "") -> None:
        console.print(Text(text, style) if isinstance(text, str) else text, width=width)

    if not receipt.bills:
        say("No client of this machine has MCP servers in a file that Roster knows.")
        return
    say("Tokens of context that tools take, in each client", "bold")
    for one in receipt.bills:
        console.print()
        _print_bill(receipt, one, labels, console, width)
    if len(receipt.bills) > 1 and receipt.known:
        console.print()
        say("All clients, one conversation in each", "bold")
        rows = list(zip(("as they load", "all loaded")[-len(receipt.totals) :], receipt.totals, strict=True))
        console.print(_costs(receipt, rows, receipt.bills), width=width)
    if receipt.heaviest:
        console.print()
        say("The heaviest tools", "bold")
        table = _table(2)
        for tool in receipt.heaviest:
            table.add_row(plain(labels.tool(tool)), ranged(tool.whole))
        console.print(table, width=width)
    console.print()
    for note in [*counted_with(receipt), *left_out(receipt)]:
        for line in wrap(note, width, break_on_hyphens=False):
            say(line, "dim")


def _table(columns: int) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 0, 0, 2))
    for place in range(columns):
        table.add_column(justify="right" if place else "left", no_wrap=bool(place), overflow="ellipsis")
    return table


def _print_bill(receipt: Receipt, one: Bill, labels: Labels, console: Console, width: int) -> None:
    owned = one.owned
    on = sum(use.on for use in owned.uses)
    head = Text(owned.title, style="bold cyan")
    head.append(f": {counted(on, 'server')}, {counted(one.tools, 'tool')} known", style="default")
    if owned.synced:
        head.append("; Roster is in place", style="green")
    console.print(head, width=width)
    if one.tools:
        console.print(_costs(receipt, [(case_name(case, one), case) for case in one.cases], [one]), width=width)
    if owned.uses:
        console.print(_servers(one, labels), width=width)
    for line in wrap(one.loading.why, width - 2, break_on_hyphens=False):
        console.print(Text(f"  {line}", style="dim"))


def _costs(receipt: Receipt, rows: list[tuple[str, Case]], bills: Sequence[Bill]) -> Table:
    table = _table(len(_HEADINGS))
    headings = ("", "without", *_HEADINGS[2:]) if all(one.owned.synced for one in bills) else _HEADINGS
    table.add_row(*(Text(heading, style="dim") for heading in headings))
    for name, case in rows:
        table.add_row(
            name,
            cost_now(case, least=any(bill.unknown for bill in bills)),
            number(case.transparent.tokens),
            number(case.five.tokens),
            Text(percent(case), style="green" if case.saved.tokens > 0 else "yellow"),
            in_drafts(case, receipt),
        )
    return table


def _servers(one: Bill, labels: Labels) -> Table:
    table = _table(4)
    whole = sum(use.server.count.tokens for use in one.owned.uses if use.on)
    for use in sorted(one.owned.uses, key=lambda use: -use.server.count.tokens):
        table.add_row(*_row(use, whole, labels))
    return table


def _row(use: Use, whole: int, labels: Labels) -> tuple[Text | str, ...]:
    label = plain(labels.server(use.server.key))
    if not use.on:
        return label, Text("off", style="dim"), "", ""
    if use.server.tools is None:
        why = "stays with the client" if use.stays else "no tools listed yet"
        return label, Text(f"unknown: {why}", style="yellow"), "", ""
    count = use.server.count
    share = f"{count.tokens / whole:.0%}" if whole else ""
    return label, counted(len(use.server.tools), "tool"), ranged(count), share
