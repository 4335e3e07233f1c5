"""What Roster costs: processor time to `initialize` and to the first draft, memory, drafts a second, call overhead.

    python eval/speed.py [--needset DIR] [--rounds 5] [--out eval/results/speed.json]
    python eval/speed.py --in-process DIR... [--out eval/results/speed_in_process.json]
    python eval/speed.py --history [--out eval/results/speed_history.json]

Everything is a ratio or is measured in the same run: `initialize` against importing the MCP SDK alone, with and without
slow and hung backends; a call through Roster against the same call straight at its backend. Processor seconds are the
process's own, read when the answer arrives. Without `--needset` it uses the tools of the demo servers and needs of its
own; with one, its cards and test needs. With `--in-process` the cards of all the sets named are put into one home, and
it measures how fast they are indexed and how long a draft takes there, on one thread. With `--history` it fills a
history to its default limits, and measures one more record and what is read from it. Reads /proc, so Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
NEEDS = ("read the lines of a log file", "save a thought for later", "how many days until the fair", "sum a column")


# ------------------------------------------------------------------------------- a backend, as small as can be


def be_backend(corpus: str, slow_s: float, hang: bool) -> None:
    """Serve the rows of a JSON file as tools on stdin and stdout; calls echo their arguments."""
    rows = json.loads(Path(corpus).read_text("utf-8"))
    time.sleep(slow_s)
    for line in sys.stdin:
        message = json.loads(line)
        if hang or "id" not in message:
            continue
        match message["method"]:
            case "initialize":
                version = message["params"]["protocolVersion"]
                info = {"name": "bench", "version": "0"}
                result: Any = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                result = {"tools": rows}
            case _:
                echoed = json.dumps(message["params"].get("arguments"))
                result = {"content": [{"type": "text", "text": echoed}]}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


# ----------------------------------------------------------------------------------- a client, as small as can be


class Pipe:
    """A child that speaks JSON-RPC on its stdin and stdout, asked one question at a time."""

    def __init__(self, command: list[str], env: dict[str, str] | None = None) -> None:
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, text=True
        )
        self._ids = 0

    def ask(self, method: str, params: dict[str, Any]) -> tuple[Any, float]:
        """The result, and the milliseconds it took."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self._ids += 1
        begun = time.perf_counter()
        self.child.stdin.write(
            json.dumps({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params}) + "\n"
        )
        self.child.stdin.flush()
        while line := self.child.stdout.readline():
            message = json.loads(line)
            if message.get("id") == self._ids and "method" not in message:
                return message["result"], (time.perf_counter() - begun) * 1000
        raise RuntimeError(f"{method}: the server went away")

    def hello(self) -> None:
        """Shake hands."""
        info = {"name": "speed", "version": "0"}
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})
        assert self.child.stdin is not None
        self.child.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        self.child.stdin.flush()

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[Any, float]:
        """Call a tool."""
        return self.ask("tools/call", {"name": name, "arguments": arguments})

    def cpu_s(self) -> float:
        """Processor seconds this child has used, its own children not counted."""
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mb(self) -> float:
        """The most resident memory this child has had."""
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def close(self) -> None:
        """Close its stdin and wait for it."""
        assert self.child.stdin is not None
        self.child.stdin.close()
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


def import_cpu_s() -> float:
    """Processor seconds of a Python that imports the SDK's server and nothing else."""
    before = os.times()
    subprocess.run([sys.executable, "-c", "import mcp.server.lowlevel"], check=True)
    after = os.times()
    return (after.children_user + after.children_system) - (before.children_user + before.children_system)


def homes(folder: Path, rows: list[dict[str, Any]]) -> tuple[dict[str, Path], str]:
    """A home with one healthy backend, and the same with three slow ones and a hung one beside it."""
    corpus = folder / "corpus.json"
    corpus.write_text(json.dumps(rows), "utf-8")
    few = folder / "few.json"
    few.write_text(json.dumps([{"name": "wait", "inputSchema": {"type": "object"}}]), "utf-8")

    def backend(path: Path, *flags: str) -> dict[str, Any]:
        return {"command": sys.executable, "args": [str(HERE), "--as-backend", str(path), *flags]}

    alone = {"all": backend(corpus)}
    slow = {f"slow{n}": backend(few, "--slow", "3") for n in range(3)}
    out = {}
    for name, servers in {"alone": alone, "beside_sick": alone | slow | {"hung": backend(few, "--hang")}}.items():
        home = folder / name
        home.mkdir()
        (home / "roster.json").write_text(json.dumps({"mode": "five", "mcpServers": servers}), "utf-8")
        env = {**os.environ, "ROSTER_HOME": str(home)}
        subprocess.run([sys.executable, "-m", "roster", "reindex", "--json"], env=env, check=True, capture_output=True)
        out[name] = home
    return out, str(corpus)


def start(home: Path) -> Pipe:
    """A serving Roster in five mode."""
    return Pipe([sys.executable, "-m", "roster", "serve", "--five"], {**os.environ, "ROSTER_HOME": str(home)})


def spread(values: list[float], digits: int = 3) -> dict[str, float]:
    """Minimum, median and maximum."""
    return {
        "min": round(min(values), digits),
        "median": round(statistics.median(values), digits),
        "max": round(max(values), digits),
    }


def measure(folder: Path, rows: list[dict[str, Any]], needs: list[str], rounds: int) -> dict[str, Any]:
    """All figures, the compared ones in turn within each round."""
    where, corpus = homes(folder, rows)
    imports, firsts, peaks = [], [], []
    hellos: dict[str, list[float]] = {name: [] for name in where}
    for _ in range(rounds):
        imports.append(import_cpu_s())
        for name, home in where.items():
            pipe = start(home)
            pipe.hello()
            hellos[name].append(pipe.cpu_s())
            if name == "alone":
                pipe.call("draft", {"need": needs[0]})
                firsts.append(pipe.cpu_s())
                peaks.append(pipe.peak_mb())
            pipe.close()
    pipe, straight = start(where["alone"]), Pipe([sys.executable, str(HERE), "--as-backend", corpus])
    pipe.hello()
    straight.hello()
    drafts = [pipe.call("draft", {"need": need})[1] for need in (needs * 100)[: max(100, len(needs))]][5:]
    raw = rows[0]["name"]
    through, direct = [], []
    tool = next(s["id"] for s in pipe.call("draft", {"need": raw})[0]["structuredContent"]["starters"])
    for size in (1_000, 64_000):
        arguments = {"text": "x" * size}
        for _ in range(100):
            through.append(pipe.call("call", {"tool": tool, "args": arguments})[1])
            direct.append(straight.call(raw, arguments)[1])
    pipe.close()
    straight.close()
    return {
        "cards": len(rows),
        "rounds": rounds,
        "import_sdk_cpu_s": spread(imports),
        "initialize_cpu_s": {name: spread(values) for name, values in hellos.items()},
        "initialize_over_import": {
            name: spread([a / b for a, b in zip(values, imports, strict=True)]) for name, values in hellos.items()
        },
        "first_draft_cpu_s": spread(firsts),
        "peak_mb_after_first_draft": spread(peaks, 1),
        "draft_ms": {"needs": len(drafts), "p50": round(statistics.median(drafts), 2)},
        "call_ms": {
            f"{size}_bytes": {
                "through": spread(through[n * 100 : n * 100 + 100]),
                "direct": spread(direct[n * 100 : n * 100 + 100]),
            }
            for n, size in enumerate((1_000, 64_000))
        },
    }


def in_process(folder: Path, sets: list[Path], limit: int = 200) -> dict[str, Any]:
    """One home with every card of the sets: cards indexed a second, and the time of drafts for test needs of each set.

    A text that two cards share is embedded once, so the speed is per text. At most `limit` needs a set.
    """
    from roster.encoder import open_encoder
    from roster.evaluation import NeedSet, read_needset
    from roster.evaluation.homes import open_filled

    read = [read_needset(path) for path in sets]
    cards = tuple({**row, "_id": f"{found.name}/{row['_id']}"} for found in read for row in found.cards)
    merged = NeedSet("merged", folder, "test", cards, (), 0, "")
    encoder = open_encoder(None, 1)
    encoder.encode_needs(["warm up"])
    begun, begun_cpu = time.perf_counter(), time.process_time()
    with open_filled(merged, encoder, folder) as filled:
        build_s, build_cpu_s = time.perf_counter() - begun, time.process_time() - begun_cpu
        wall: dict[str, list[float]] = {}
        cpu: list[float] = []
        filled.roster.draft_now("warm up", 5)
        for found in read:
            step = max(1, len(found.needs) // limit)
            for need in found.needs[::step][:limit]:
                before, before_cpu = time.perf_counter(), time.process_time()
                filled.roster.draft_now(need.text, 5)
                cpu.append((time.process_time() - before_cpu) * 1000)
                wall.setdefault(found.name, []).append((time.perf_counter() - before) * 1000)
    every = [ms for values in wall.values() for ms in values]
    return {
        "cards": len(cards),
        "texts_embedded": filled.embedded,
        "embed_s": round(filled.embed_s, 2),
        "build_s": round(build_s, 2),
        "build_cpu_s": round(build_cpu_s, 2),
        "texts_per_s": round(filled.embedded / build_s, 1),
        "draft_ms": {"needs": len(every), "p50": round(statistics.median(every), 2), "p95": percentile(every, 0.95)},
        "draft_cpu_ms_p50": round(statistics.median(cpu), 2),
        "draft_ms_p50_by_set": {name: round(statistics.median(values), 2) for name, values in wall.items()},
        "load_average": round(os.getloadavg()[0], 2),
    }


def with_history(folder: Path, cards: int = 3800, records: int = 3000) -> dict[str, Any]:
    """What a record costs in a history at its limits, its transaction included, and what reading all of it costs."""
    import random

    import numpy as np

    from roster.database import atomic, open_database
    from roster.draft import LEARNED_FROM
    from roster.failures import PLATFORM, FailureKind
    from roster.history import History, Limits, NeedRow, OutcomeRow
    from roster.outcomes import Outcome
    from roster.ratings import record_of
    from roster.recorder import TRIMMED_AT_ONCE

    rng, limits, now = random.Random(0), Limits(), 1.7e9
    db = open_database(folder / "roster.db")
    history = History(db)
    vectors = np.random.default_rng(0).normal(size=(64, 384)).astype(np.float32)
    running = [(number, 1 / (1 + number)) for number in range(LEARNED_FROM)]
    timeout = PLATFORM[FailureKind.TIMEOUT]

    def record(n: int, with_need: bool) -> None:
        need = history.keep_need(NeedRow("e" * 64, vectors[n % 64], running), now + n) if with_need else None
        # Every card is called now and then, and a few have half of the calls.
        number = rng.randrange(cards) if n % 2 else int(rng.paretovariate(0.5)) % cards
        outcome, failure = (Outcome.SUCCESS, None) if rng.random() < 0.8 else (Outcome.TIMEOUT, timeout)
        card = f"server{number % 60}__a_tool_{number}"
        history.record(OutcomeRow(card, "f" * 64, outcome, failure, n % 500, now + n, drafted=True, need=need))

    with atomic(db):
        for n in range(limits.outcomes):
            record(n, with_need=n >= limits.outcomes - limits.needs)
    each = []
    for n in range(limits.outcomes, limits.outcomes + records):
        begun = time.perf_counter()
        with atomic(db):
            record(n, with_need=True)
            history.trim(limits, now + n, TRIMMED_AT_ONCE)
        each.append((time.perf_counter() - begun) * 1000)

    def cpu_ms(read: Any) -> float:
        spent = []
        for _ in range(7):
            begun = time.process_time()
            read()
            spent.append((time.process_time() - begun) * 1000)
        return round(statistics.median(spent), 1)

    kept = {kind: rows.count for kind, rows in history.kept().items()}
    found = {
        "kept": kept,
        "cards": len(history.tallies()),
        "record_ms": {"p50": round(statistics.median(each), 3), "p95": round(sorted(each)[int(0.95 * records)], 3)},
        "tallies_cpu_ms": cpu_ms(history.tallies),
        "events_cpu_ms": cpu_ms(history.events),
        "ratings_cpu_ms": cpu_ms(lambda: [record_of(endings) for endings in history.endings().values()]),
        "database_mb": round((folder / "roster.db").stat().st_size / 1e6, 1),
        "load_average": round(os.getloadavg()[0], 2),
    }
    db.close()
    return found


def percentile(values: list[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], 2)


def demo_rows() -> list[dict[str, Any]]:
    """The tools of the demo servers, as they list them."""
    from roster.demo.session import demo_servers

    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "project").mkdir()
        (Path(scratch) / "tables").mkdir()
        for server in demo_servers(Path(scratch)).values():
            pipe = Pipe([server["command"], *server["args"]])
            pipe.hello()
            rows += pipe.ask("tools/list", {})[0]["tools"]
            pipe.close()
    return rows


def needset_rows(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The cards of a need set as one server would list them, and its test needs."""
    from roster.evaluation import read_needset

    found = read_needset(folder)
    rows = [
        {
            "name": f"{row['server']}__{row['name']}",
            "description": row["description"],
            "inputSchema": row.get("inputSchema") or {"type": "object"},
        }
        for row in found.cards
    ]
    return rows, [need.text for need in found.needs]


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--needset", type=Path)
    parser.add_argument("--in-process", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--history", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--as-backend", help=argparse.SUPPRESS)
    parser.add_argument("--slow", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--hang", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.as_backend:
        be_backend(args.as_backend, args.slow, args.hang)
        return 0
    with tempfile.TemporaryDirectory(prefix="roster-speed-") as scratch:
        if args.history:
            found = with_history(Path(scratch))
        elif args.in_process:
            found = in_process(Path(scratch), args.in_process)
        else:
            rows, needs = needset_rows(args.needset) if args.needset else (demo_rows(), list(NEEDS))
            found = measure(Path(scratch), rows, needs, args.rounds)
    print(json.dumps(found, indent=1))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
