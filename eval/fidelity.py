"""How faithful Roster is: what a client gets straight from a server against what it gets through Roster.

    python eval/fidelity.py [--everything INDEX_JS] [--clients FILE] [--json] [--write docs/fidelity.md]

Each feature is looked at straight over stdio, HTTP or SSE, and then through a `roster serve` of its own in transparent
and five mode, with a client of the older protocol era (2025-11-25) and of the newer one (2026-07-28). What comes back
is compared as canonical JSON (RFC 8785), after names have been put back to the server's own.

The servers: one of odd things, and one of the newer era alone over HTTP, which are part of this project; and, where
`--everything` (or EVERYTHING_SERVER) names the `dist/index.js` of npm's @modelcontextprotocol/server-everything, that
one over each transport. `--clients` names a JSON file of real clients that are to be tried as well; see
`faithful/clients.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import rfc8785
from faithful import clients, everything, newer, odd, report
from faithful.wire import Side, connected, free_port, listening, roster, roster_http, straight

PARTS = Path(__file__).resolve().parent / "faithful"
FEATURE_LIMIT_S = 90.0
FAILED = '"failed: '
Feature = Callable[[Side], Awaitable[Any]]


@dataclass(frozen=True)
class Column:
    """A way through Roster. http: the client is connected over HTTP, and not by a pipe."""

    mode: str
    newer: bool
    http: bool = False

    def __str__(self) -> str:
        return f"{self.mode}, {'2026-07-28' if self.newer else '2025-11-25'}{', HTTP' if self.http else ''}"


COLUMNS = tuple(Column(mode, newer) for mode in ("transparent", "five") for newer in (False, True))
OVER_HTTP = tuple(Column(mode, newer=True, http=True) for mode in ("transparent", "five"))


@dataclass(frozen=True)
class Seen:
    """What one side showed of one thing: a row of the table, and the value in canonical JSON."""

    row: str
    value: bytes
    shown: str


async def look(side: Side, feature: Feature) -> list[Seen]:
    """What a side shows of a feature: one row, or one for each thing it is about."""
    title = (feature.__doc__ or feature.__name__).strip()
    try:
        with anyio.fail_after(FEATURE_LIMIT_S):
            found = await feature(side)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what this side shows
        found = f"{FAILED[1:]}{type(error).__name__}: {error}"
    rows = (
        {title.format(name): value for name, value in found.items()}
        if "{}" in title and isinstance(found, dict)
        else {title: found}
    )
    return [Seen(row, rfc8785.dumps(value), json.dumps(value, ensure_ascii=False)[:300]) for row, value in rows.items()]


async def compared(
    scratch: Path,
    server: str,
    entry: Mapping[str, Any],
    features: tuple[Feature, ...],
    columns: tuple[Column, ...] = COLUMNS,
    *,
    newer: bool = False,
) -> list[dict[str, Any]]:
    """A row for each thing looked at: its name, and for each column "full", "by design" or how it differs.

    newer: the era of the client that is connected straight.
    """
    async with connected(straight(entry), newer=newer) as side:
        base = {seen.row: seen for feature in features for seen in await look(side, feature)}
    rows: list[dict[str, Any]] = [{"row": row, "straight": seen.shown, "columns": {}} for row, seen in base.items()]
    features_of = {seen: feature for feature in features for seen in base if _belongs(seen, feature)}
    for number, column in enumerate(columns):
        home = scratch / f"home-{number}"
        await _warmed(home, server, entry)
        with _served(column, home, server, entry) as transport:
            five = column.mode == "five"
            async with connected(transport, server=server, five=five, newer=column.newer) as side:
                for feature in features:
                    if side.five and report.not_in_five(feature.__name__):
                        continue
                    for seen in await look(side, feature):
                        _note(rows, str(column), base.get(seen.row), seen)
        for row in rows:
            left_out = {"is": "by design", "why": report.not_in_five(features_of[row["row"]].__name__)}
            row["columns"].setdefault(str(column), left_out)
        _progress(f"  {column}")
    return rows


def _belongs(row: str, feature: Feature) -> bool:
    before, braces, after = (feature.__doc__ or feature.__name__).strip().partition("{}")
    return row.startswith(before) and row.endswith(after) if braces else row == before


@contextlib.contextmanager
def _served(column: Column, home: Path, server: str, entry: Mapping[str, Any]) -> Iterator[Any]:
    """The transport to a Roster of its own."""
    if column.http:
        with roster_http(home, server, entry, column.mode) as url:
            yield straight({"url": url})
    else:
        yield roster(home, server, entry, column.mode)


def _note(rows: list[dict[str, Any]], column: str, base: Seen | None, seen: Seen) -> None:
    for row in rows:
        if row["row"] == seen.row and base is not None:
            if base.shown.startswith(FAILED):
                row["columns"][column] = {"is": "differs", "why": "", "through": "there was nothing to compare with"}
            elif base.value == seen.value:
                row["columns"][column] = {"is": "full"}
            else:
                kind, why = report.explained(seen.row, column)
                row["columns"][column] = {"is": kind, "why": why, "through": seen.shown}


async def _warmed(home: Path, server: str, entry: Mapping[str, Any]) -> None:
    """Have a home know its server from an earlier time, as it does from the second start on."""
    async with connected(roster(home, server, entry, "transparent"), server=server) as side:
        await side.request("tools/list")


def _progress(words: str) -> None:
    if sys.stderr.isatty():
        print(words, file=sys.stderr)


@contextlib.contextmanager
def everything_servers(index: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """The reference server over each transport, as entries of `mcpServers`."""
    stdio = {"command": "node", "args": [str(index), "stdio"]}
    http, sse = free_port(), free_port()
    with (
        listening(["node", str(index), "streamableHttp"], http),
        listening(["node", str(index), "sse"], sse),
    ):
        yield {
            "stdio": stdio,
            "HTTP": {"type": "http", "url": f"http://127.0.0.1:{http}/mcp"},
            "SSE": {"type": "sse", "url": f"http://127.0.0.1:{sse}/sse"},
        }


async def measure(scratch: Path, index: Path | None, transports: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Every table: its title, and its rows."""
    tables: dict[str, list[dict[str, Any]]] = {}
    rows: list[dict[str, Any]] = []
    for kind, features in odd.KINDS.items():
        _progress(f"odd: {kind}")
        entry = {"command": sys.executable, "args": [str(PARTS / "odd_server.py"), kind]}
        rows += await compared(scratch / f"odd-{kind}", "odd", entry, features)
    tables["A server of odd things, over stdio"] = rows
    _progress("newer")
    port = free_port()
    with listening([sys.executable, str(PARTS / "newer_server.py")], port):
        entry = {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
        ways = (*COLUMNS, *OVER_HTTP)
        rows = await compared(scratch / "newer", "newer", entry, newer.FEATURES, ways, newer=True)
    tables["A server of 2026-07-28 alone, over HTTP"] = rows
    if index is not None:
        with everything_servers(index) as servers:
            for transport in transports:
                _progress(f"everything: {transport}")
                entry = servers[transport]
                found = await compared(scratch / f"everything-{transport}", "everything", entry, everything.FEATURES)
                tables[f"The reference server `everything`, over {transport}"] = found
    return tables


def main() -> int:
    """Measure, print, write. Exit 1 when something differs that nothing explains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--everything", type=Path, default=os.environ.get("EVERYTHING_SERVER"))
    parser.add_argument("--transports", nargs="+", default=["stdio", "HTTP", "SSE"], choices=["stdio", "HTTP", "SSE"])
    parser.add_argument("--clients", type=Path, help="real clients to try, as JSON")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, with what differs")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the tables as Markdown")
    args = parser.parse_args()
    index = Path(args.everything) if args.everything else None
    if index is not None and not index.is_file():
        parser.error(f"{index} is not there: name the dist/index.js of @modelcontextprotocol/server-everything")
    with tempfile.TemporaryDirectory(prefix="roster-fidelity-") as scratch:
        tables = anyio.run(measure, Path(scratch), index, args.transports)
        tried = clients.tried(Path(scratch), args.clients, index) if args.clients else []
    found = {"tables": tables, "clients": tried, "counts": report.counts(tables)}
    text = report.markdown(tables, tried)
    if args.write:
        args.write.parent.mkdir(parents=True, exist_ok=True)
        args.write.write_text(text, "utf-8")
    print(json.dumps(found, ensure_ascii=False, indent=1) if args.json else text)
    return 1 if found["counts"].get("differs") else 0


if __name__ == "__main__":
    sys.exit(main())
