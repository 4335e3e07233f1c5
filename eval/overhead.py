"""Roster beside what people would use instead: the same backend directly, a minimal SDK proxy, and the fastmcp proxy.

    python eval/overhead.py [--rounds 7] [--calls 200] [--official DIR] [--fastmcp PYTHON] [--out FILE]

All in one run, in turn within each round, so that the ratios mean something on a busy machine:

- spawn to `initialize`: a do-nothing SDK server, Roster with three servers, and Roster with one hung and three slow
  (3 s) servers more. `--official`: a folder of npm packages with the everything, filesystem and memory servers; without
  it three small ones of our own.
- a call at 1 kB and 64 kB: what Roster adds to the direct call of the same turn, over what the minimal proxy adds (one
  low-level server, one client session: `minimal_proxy` below). Five mode is measured after its first draft, as it is
  used.
- `tools/list` of 2,000 tools, five mode's with as many, the first draft of a warm home in processor seconds, what 1,000
  calls leave in memory, and the processor's share while nothing is asked.

fastmcp's proxy is measured beside them where the extra `bench` is installed, or where `--fastmcp` names another Python
that has it. Reads /proc, so Linux only.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from speed import HERE as BACKEND
from speed import Pipe, percentile

HERE = Path(__file__).resolve()
OFFICIAL = {
    "everything": ["server-everything/dist/index.js"],
    "filesystem": ["server-filesystem/dist/index.js", "."],
    "memory": ["server-memory/dist/index.js"],
}
SIZES = (1_000, 64_000)
IDLE_S = 20.0
FASTMCP = "import sys; from fastmcp.server import create_proxy; create_proxy({c!r}).run(show_banner=False)"


# ---------------------------------------------------------------------------------- what Roster is measured beside


def do_nothing() -> None:
    """An SDK server without a tool."""
    import anyio
    from mcp.server.lowlevel.server import Server
    from mcp.server.stdio import stdio_server

    async def run() -> None:
        server: Server[Any] = Server("nothing")
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(run)


def minimal_proxy(command: list[str]) -> None:
    """One low-level server before one client session: the least that a proxy made of the SDK can be."""
    import anyio
    import mcp_types as types
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.server.lowlevel.server import Server
    from mcp.server.stdio import stdio_server

    async def run() -> None:
        async with (
            stdio_client(StdioServerParameters(command=command[0], args=command[1:])) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()

            async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
                return await session.list_tools()

            async def call_tool(_: Any, params: types.CallToolRequestParams) -> Any:
                request = types.CallToolRequest(params=params)
                return await session.send_request(request, types.CallToolResult)

            server: Server[Any] = Server("proxy", on_list_tools=list_tools, on_call_tool=call_tool)
            async with stdio_server() as (in_, out):
                await server.run(in_, out, server.create_initialization_options())

    anyio.run(run)


# --------------------------------------------------------------------------------------------------- the homes


def rows(count: int) -> list[dict[str, Any]]:
    """So many tools of an ordinary size."""
    schema = {"type": "object", "properties": {"text": {"type": "string", "description": "What to echo"}}}
    return [
        {"name": f"echo_{n}", "description": f"Echo the text of channel {n} as it came", "inputSchema": schema}
        for n in range(count)
    ]


def backend(folder: Path, name: str, count: int, *flags: str) -> dict[str, Any]:
    """A `mcpServers` entry of a backend that lists so many tools."""
    corpus = folder / f"{name}.json"
    corpus.write_text(json.dumps(rows(count)), "utf-8")
    return {"command": sys.executable, "args": [str(BACKEND), "--as-backend", str(corpus), *flags]}


def three(folder: Path, official: Path | None) -> dict[str, Any]:
    """Three servers: the official ones, or three of our own."""
    if official is None:
        return {name: backend(folder, name, 12) for name in OFFICIAL}
    packages = official / "node_modules" / "@modelcontextprotocol"
    return {
        name: {"command": "node", "args": [str(packages / script), *more], "cwd": str(folder)}
        for name, (script, *more) in OFFICIAL.items()
    }


def home(folder: Path, name: str, servers: dict[str, Any], mode: str) -> dict[str, str]:
    """The environment of a home with these servers that has been indexed once."""
    path = folder / name
    path.mkdir()
    (path / "roster.json").write_text(json.dumps({"mode": mode, "mcpServers": servers}), "utf-8")
    env = {**os.environ, "ROSTER_HOME": str(path)}
    subprocess.run([sys.executable, "-m", "roster", "reindex", "--json"], env=env, check=True, capture_output=True)
    return env


def roster(env: dict[str, str]) -> Pipe:
    """A serving Roster."""
    return Pipe([sys.executable, "-m", "roster", "serve"], env)


# ------------------------------------------------------------------------------------------------- measurements


def shaken(make: Callable[[], Pipe]) -> tuple[float, float]:
    """Spawn to the answer of `initialize`: milliseconds, and processor milliseconds of the process."""
    begun = time.perf_counter()
    pipe = make()
    pipe.hello()
    wall, cpu = (time.perf_counter() - begun) * 1000, pipe.cpu_s() * 1000
    pipe.close()
    return wall, cpu


def starts(folder: Path, official: Path | None, rounds: int) -> dict[str, Any]:
    """Spawn to `initialize` of all three, and the ratios."""
    servers = three(folder, official)
    sick = {f"slow{n}": backend(folder, f"slow{n}", 1, "--slow", "3") for n in range(3)}
    sick["hung"] = backend(folder, "hung", 1, "--hang")
    alone, beside = home(folder, "three", servers, "five"), home(folder, "sick", servers | sick, "five")
    makers: dict[str, Callable[[], Pipe]] = {
        "nothing": lambda: Pipe([sys.executable, str(HERE), "--as-nothing"]),
        "roster": lambda: roster(alone),
        "roster_beside_sick": lambda: roster(beside),
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
    for _ in range(rounds):
        for name, make in makers.items():
            taken[name].append(shaken(make))

    def ratio(one: str, other: str, which: int) -> float:
        pairs = zip(taken[one], taken[other], strict=True)
        return round(statistics.median(a[which] / b[which] for a, b in pairs), 3)

    firsts = []
    for _ in range(rounds):
        pipe = roster(alone)
        pipe.hello()
        pipe.call("draft", {"need": "echo the text of a channel"})
        firsts.append(pipe.cpu_s())
        pipe.close()
    return {
        "wall_ms": {name: round(statistics.median(wall for wall, _ in values), 1) for name, values in taken.items()},
        "cpu_ms": {name: round(statistics.median(cpu for _, cpu in values), 1) for name, values in taken.items()},
        "roster_over_nothing": {"wall": ratio("roster", "nothing", 0), "cpu": ratio("roster", "nothing", 1)},
        "sick_over_alone": {
            "wall": ratio("roster_beside_sick", "roster", 0),
            "cpu": ratio("roster_beside_sick", "roster", 1),
        },
        "first_draft_cpu_s": round(statistics.median(firsts), 2),
    }


def calls(folder: Path, count: int, fastmcp: str | None) -> dict[str, Any]:
    """The same call straight, through the minimal proxy, through Roster in both modes, and through fastmcp's proxy."""
    entry = backend(folder, "echo", 12)
    command = [entry["command"], *entry["args"]]
    pipes = {
        "direct": (Pipe(command), "echo_0"),
        "minimal_proxy": (Pipe([sys.executable, str(HERE), "--as-proxy", *command]), "echo_0"),
        "roster_transparent": (roster(home(folder, "transparent", {"echo": entry}, "transparent")), "echo__echo_0"),
        "roster_five": (roster(home(folder, "five", {"echo": entry}, "five")), ""),
    }
    if fastmcp:
        code = FASTMCP.format(c={"mcpServers": {"echo": entry}})
        pipes["fastmcp_proxy"] = (Pipe([fastmcp, "-c", code]), "echo_0")
    for pipe, _ in pipes.values():
        pipe.hello()
    pipes["roster_five"][0].call("draft", {"need": "echo the text of a channel"})
    out: dict[str, Any] = {}
    try:
        for size in SIZES:
            took: dict[str, list[float]] = {name: [] for name in pipes}
            for turn in range(count + 10):
                for name, (pipe, tool) in pipes.items():
                    if name == "fastmcp_proxy" and turn >= 30:
                        continue
                    args = {"text": "x" * size}
                    asked = (tool, args) if tool else ("call", {"tool": "echo__echo_0", "args": args})
                    ms = pipe.call(*asked)[1]
                    if turn >= 10:
                        took[name].append(ms)
            out[f"{size}_bytes"] = _added(took)
        out["memory"] = {name: _grown(*pipes[name]) for name in ("minimal_proxy", "roster_transparent", "roster_five")}
        out["idle"] = {name: _idle(pipes[name][0]) for name in ("minimal_proxy", "roster_transparent", "roster_five")}
    finally:
        for pipe, _ in pipes.values():
            pipe.close()
    return out


def _added(took: dict[str, list[float]]) -> dict[str, Any]:
    """p50 and p95 of each, of what each adds to the direct call of the same turn, and that over the minimal proxy's.

    A percentile of differences within a turn, as the difference of two percentiles is mostly noise. A ratio is None
    where the minimal proxy adds nothing that can be measured.
    """
    added = {
        name: _percentiles([through - direct for through, direct in zip(values, took["direct"], strict=False)])
        for name, values in took.items()
        if name != "direct"
    }
    least = added["minimal_proxy"]
    return {
        "ms": {name: _percentiles(values) for name, values in took.items()},
        "added_ms": added,
        "added_over_minimal_proxy": {
            name: {p: round(each[p] / least[p], 2) if least[p] > 0 else None for p in each}
            for name, each in added.items()
        },
    }


def _percentiles(values: list[float]) -> dict[str, float]:
    return {"p50": round(percentile(values, 0.5), 3), "p95": round(percentile(values, 0.95), 3)}


def _resident_mb(pipe: Pipe) -> float:
    status = Path(f"/proc/{pipe.child.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def _grown(pipe: Pipe, tool: str) -> dict[str, float]:
    """Resident memory before and after a thousand calls, in MB."""
    before = _resident_mb(pipe)
    for _ in range(1_000):
        args = {"text": "x" * 1_000}
        pipe.call(*((tool, args) if tool else ("call", {"tool": "echo__echo_0", "args": args})))
    return {"before_mb": round(before, 1), "grown_mb": round(_resident_mb(pipe) - before, 2)}


def _idle(pipe: Pipe) -> float:
    """Processor time as a share of the time in which nothing is asked, in percent."""
    before = pipe.cpu_s()
    time.sleep(IDLE_S)
    return round(100 * (pipe.cpu_s() - before) / IDLE_S, 3)


def lists(folder: Path, rounds: int) -> dict[str, Any]:
    """`tools/list` in both modes, with few tools and with 2,000."""
    out: dict[str, Any] = {}
    for mode in ("transparent", "five"):
        for count in (12, 2_000):
            env = home(folder, f"{mode}{count}", {"many": backend(folder, f"many{count}", count)}, mode)
            firsts, taken = [], []
            for _ in range(rounds):
                pipe = roster(env)
                pipe.hello()
                firsts.append(pipe.ask("tools/list", {})[1])
                taken += [pipe.ask("tools/list", {})[1] for _ in range(5)]
                pipe.close()
            out[f"{mode}_{count}_tools"] = {
                "first_ms": round(statistics.median(firsts), 1),
                "then_ms": round(statistics.median(taken), 1),
            }
    return out


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--official", type=Path, metavar="DIR")
    here = sys.executable if importlib.util.find_spec("fastmcp") else None
    parser.add_argument("--fastmcp", metavar="PYTHON", default=here)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--as-nothing", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--as-proxy", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.as_nothing:
        do_nothing()
        return 0
    if args.as_proxy:
        minimal_proxy(args.as_proxy)
        return 0
    with tempfile.TemporaryDirectory(prefix="roster-overhead-") as scratch:
        folder = Path(scratch)
        found = {
            "servers": "official" if args.official else "our own",
            "start": starts(folder, args.official, args.rounds),
            "calls": calls(folder, args.calls, args.fastmcp),
            "lists": lists(folder, min(3, args.rounds)),
        }
    print(json.dumps(found, indent=1))
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
