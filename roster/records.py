"""What the commands about records do: ratings, one card's scorecard, and the history they are made of."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from roster.app import open_roster
from roster.config import Home, find_home, load_config
from roster.errors import RosterError, UnknownCardError
from roster.history import History, Offers
from roster.ratings import Record, record_of
from roster.registry import Contract, Entry
from roster.terminal import Out, plain, when

__all__ = ["clear_history", "history", "ratings", "scorecard"]


def _nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    close = difflib.get_close_matches(name[:80], list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else otherwise


# -------------------------------------------------------------------------------------------- ratings


def ratings(*, server: str | None, out: Out) -> None:
    """Print the record of every card that was called, the most dependable first."""
    home = find_home()
    config = load_config(home)
    with open_roster(config, home) as roster:
        kept = History(roster.writer.db)
        servers = roster.writer.registry.servers_by_id()
        known = {*config.servers, *servers.values()}
        if server is not None and server not in known:
            raise RosterError(
                f"no server has the name {server!r}: {_nearest(server, known, '`roster status` names them')}"
            )
        endings = kept.endings()
    records = {id_: record_of(ended) for id_, ended in endings.items() if server in (None, servers.get(id_))}
    ordered = sorted(records.items(), key=lambda pair: (-pair[1].wilson, -(pair[1].last_at or 0.0), pair[0]))
    if out is not None:
        out({"ratings": [{"card": id_, "server": servers.get(id_), **_json(record)} for id_, record in ordered]})
        return
    if not ordered:
        print("No call is on record yet.")
        return
    table = _table("card")
    for id_, record in ordered:
        table.add_row(plain(id_), *_cells(record))
    Console().print(table)


def _json(record: Record) -> dict[str, Any]:
    rate = None if record.rate is None else round(record.rate, 6)
    counts = {"calls": record.calls, "successes": record.successes, "uncounted": record.uncounted}
    latency = {"p50_ms": record.p50_ms, "p95_ms": record.p95_ms}
    kinds = {"classes": record.classes, "failures": record.failures, "excused": record.excused}
    return {**counts, "rate": rate, "wilson": round(record.wilson, 6), **latency, "last_at": record.last_at, **kinds}


def _table(*first: str) -> Table:
    table = Table()
    for heading in first:
        table.add_column(heading, overflow="fold")
    for heading in ("calls", "success", "at least", "p50", "p95", "last"):
        table.add_column(heading, justify="right")
    table.add_column("failures")
    return table


def _cells(record: Record) -> list[Any]:
    rate = "–" if record.rate is None else f"{record.rate:.0%}"
    bound = f"{record.wilson:.0%}" if record.calls else "–"
    latency = ["–" if ms is None else f"{ms:,.0f} ms" for ms in (record.p50_ms, record.p95_ms)]
    excused = f"not counted: {_counted(record.excused)}" if record.excused else ""
    failures = "; ".join(part for part in (_counted(record.failures), excused) if part)
    return [str(record.calls), rate, bound, *latency, when(record.last_at), plain(failures)]


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items())


# ------------------------------------------------------------------------------------------ scorecard


def scorecard(id_: str, *, out: Out) -> None:
    """Print one card's record, in all and under each definition it has had. Raises UnknownCardError."""
    home = find_home()
    with open_roster(load_config(home), home) as roster:
        registry, kept = roster.writer.registry, History(roster.writer.db)
        entry = registry.find(id_)
        if entry is None:
            hint = _nearest(id_, registry.servers_by_id(), "`roster ratings` lists what was called")
            raise UnknownCardError(f"no card has the id {id_[:80]!r}: {hint}")
        contracts = registry.contracts(id_)
        ended = kept.endings(id_).get(id_, [])
        after_failure, as_alternate = kept.offers(id_)
    total = record_of(ended)
    versions = {
        contract.fingerprint: record_of(ending for ending in ended if ending.fingerprint == contract.fingerprint)
        for contract in contracts
    }
    if out is not None:
        out(
            {
                "card": id_,
                "server": entry.card.server,
                "state": _state(entry),
                "total": _json(total),
                "versions": [{**asdict(contract), **_json(versions[contract.fingerprint])} for contract in contracts],
                "suggestions": {"after_failure": asdict(after_failure), "as_alternate": asdict(as_alternate)},
            }
        )
        return
    _print_scorecard(entry, total, [(contract, versions[contract.fingerprint]) for contract in contracts])
    print(f"suggested after another card failed: {_offers(as_alternate)}")
    print(f"suggestions after it failed: {_offers(after_failure)}")


def _state(entry: Entry) -> str:
    return "removed" if entry.removed else "quarantined" if entry.quarantined else "listed"


def _offers(offers: Offers) -> str:
    return f"{offers.given}, {offers.taken} of them taken"


def _print_scorecard(entry: Entry, total: Record, versions: list[tuple[Contract, Record]]) -> None:
    console = Console()
    console.print(plain(f"{entry.card.id} ({_state(entry)})"))
    table = _table("version", "first seen", "last seen")
    table.add_row("all", "", "", *_cells(total), style="bold")
    for contract, record in versions:
        now = " (current)" if contract.current else ""
        seen = (when(contract.first_seen), when(contract.last_seen))
        table.add_row(f"{contract.fingerprint[:8]}{now}", *seen, *_cells(record))
    console.print(table)
    if total.classes:
        console.print(plain(f"classes: {_counted(total.classes)}"))


# -------------------------------------------------------------------------------------------- history

# What it takes for a kind of row to be recorded.
_LEVELS = {"outcomes": ("ratings", "full"), "needs": ("full",), "suggestions": ("ratings", "full")}


def history(*, out: Out) -> None:
    """Print what is recorded, how much of it and since when, and within which limits."""
    home = find_home()
    config = load_config(home)
    with open_roster(config, home) as roster:
        stored = History(roster.writer.db)
        kept, encoders, limits = stored.kept(), stored.encoders(), roster.limits
    seen: dict[str, Any] = {
        "learning": config.settings.learning,
        "limits": asdict(limits),
        "size_bytes": _size(home),
        **{table: {**asdict(rows), "levels": _LEVELS[table]} for table, rows in kept.items()},
    }
    seen["needs"]["encoders"] = encoders
    if out is not None:
        out(seen)
        return
    console = Console()
    console.print(plain(f'learning "{seen["learning"]}", database {seen["size_bytes"] / 1e6:,.1f} MB'))
    table = Table()
    for heading in ("kind", "count", "size", "oldest", "newest", "recorded at"):
        table.add_column(heading, justify="right" if heading in ("count", "size") else "left")
    for kind, rows in kept.items():
        size = "–" if rows.size_bytes is None else f"{rows.size_bytes / 1e6:,.1f} MB"
        since = (when(rows.oldest), when(rows.newest)) if rows.count else ("", "")
        table.add_row(kind, f"{rows.count:,}", size, *since, " and ".join(f'"{level}"' for level in _LEVELS[kind]))
    console.print(table)
    console.print(
        plain(
            f"kept: {limits.days:g} days, the newest {limits.outcomes:,} outcomes and {limits.needs:,} needs; "
            "`roster history clear` forgets them"
        )
    )


def _size(home: Home) -> int:
    """Bytes of the database and its log."""
    files = (home.database, home.database.with_name(f"{home.database.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def clear_history(*, needs_only: bool, out: Out) -> None:
    """Forget the history, or only the vectors of needs; print how much that was."""
    home = find_home()
    with open_roster(load_config(home), home) as roster, roster.writer.lock:
        stored = History(roster.writer.db)
        counts = stored.clear(["needs"]) if needs_only else stored.clear()
    if out is not None:
        out(counts)
        return
    print(f"Forgotten: {_counted(counts)}.")
