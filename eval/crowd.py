"""What a crowd of sick servers costs a healthy one behind the same Roster, and what is left when Roster ends.

    python eval/crowd.py [--rounds 4] [--seconds 5] [--every 1] [--only KIND ...] [--each] [--out FILE]

- A client calls a healthy stdio server, one call after the other with a short pause, through a Roster with this server
  alone, and through one with nine sick servers beside it (`eval/sick.py`), each of which is called every second too, by
  the same client and without waiting. In turns, each round with a Roster of its own; the figure is the ratio of the
  p99s over all rounds. A third Roster has all but the server that answers with 50 MB: such an answer is in the way of
  every other on the client's one pipe, whoever routes it. `--only` takes some of the nine, `--each` measures one after
  the other what it costs by itself.
- Processes that are left after a call was cancelled, the client has gone, and Roster was ended by SIGTERM and SIGKILL.
- Sessions at an HTTP server while Roster serves, its server forgets the session five times and five reindexes look at
  it: how many were opened, and how many are still open in the end.

Two minutes. Reads /proc, so Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sick import DEAF, KINDS
from speed import percentile

SICK = Path(__file__).with_name("sick.py")
PAUSE_S = 0.005
WARM_UP = 50
FLOOR = 1.5
LARGE = "answers_50_mb"
GONE_S = 15.0
REFRESHES = 5
_ID = re.compile(rb'"id":\s*(\d+)')


# ----------------------------------------------------------------------------------------------------- the client


class Client:
    """A serving Roster, and a client that has many requests under way on one pipe."""

    def __init__(self, env: dict[str, str]) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "roster", "serve", "--transparent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            bufsize=0,
        )
        self.answered: dict[int, bytes] = {}
        self._last = 0
        self._parts: list[bytes] = []

    def begin(self, method: str, params: dict[str, Any]) -> int:
        """Send a request; its id."""
        self._last += 1
        self._write({"id": self._last, "method": method, "params": params})
        return self._last

    def tell(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification."""
        self._write({"method": method, **({"params": params} if params else {})})

    def _write(self, message: dict[str, Any]) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def read(self, within_s: float) -> bool:
        """Take what is there, waiting for something so long at most; False when nothing came. Large answers are not
        parsed: what the client makes of them is its own affair."""
        assert self.child.stdout is not None
        if not select.select([self.child.stdout], [], [], max(0.0, within_s))[0]:
            return False
        chunk = os.read(self.child.stdout.fileno(), 1 << 20)
        if not chunk:
            raise RuntimeError("Roster went away")
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line = b"".join([*self._parts, end])
            self._parts = []
            if (found := _ID.search(line, 0, 100)) is not None:
                self.answered[int(found[1])] = line[:500]
        if rest:
            self._parts.append(rest)
        return True

    def wait(self, id_: int, within_s: float = 60.0) -> bytes:
        """The beginning of an answer. Raises TimeoutError."""
        end = time.perf_counter() + within_s
        while id_ not in self.answered:
            if not self.read(end - time.perf_counter()) and time.perf_counter() >= end:
                raise TimeoutError(f"no answer within {within_s:g} s")
        return self.answered[id_]

    def hello(self) -> None:
        """Shake hands and read the list."""
        info = {"name": "crowd", "version": "0"}
        self.wait(self.begin("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}))
        self.tell("notifications/initialized")
        self.wait(self.begin("tools/list", {}))

    def call(self, server: str) -> int:
        """Call a server's one tool, without waiting."""
        return self.begin("tools/call", {"name": f"{server}__work", "arguments": {}})

    def end(self, how: Callable[[], object]) -> None:
        """End Roster in this way."""
        how()
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def leave(self) -> None:
        """Be gone as a client is that has ended."""
        for pipe in (self.child.stdin, self.child.stdout):
            assert pipe is not None
            pipe.close()


# ------------------------------------------------------------------------------------------------------ the homes


class Home:
    """A home whose servers all carry the same mark, by which their processes are found."""

    def __init__(self, folder: Path, kinds: Sequence[str], urls: dict[str, str]) -> None:
        self.mark = uuid.uuid4().hex
        self.folder = folder
        self._env = {**os.environ, "ROSTER_HOME": str(folder)}
        folder.mkdir()
        servers = {kind: self._entry(kind) if kind not in urls else {"url": urls[kind]} for kind in kinds}
        servers.get("hangs_at_call", {})["call_timeout_s"] = 5
        servers.get("hangs_at_initialize", {})["start_timeout_s"] = 2
        (folder / "roster.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")
        self.reindex()

    def _entry(self, kind: str) -> dict[str, Any]:
        env = {"CROWD_MARK": self.mark}
        return {"command": sys.executable, "args": ["-S", "-E", str(SICK), kind, "${CROWD:-well}"], "env": env}

    def reindex(self) -> None:
        """Sight every server while it is well, so that its tool is known."""
        command = [sys.executable, "-m", "roster", "reindex", "--json"]
        subprocess.run(command, env=self._env, check=True, capture_output=True)

    def serve(self) -> Client:
        """A Roster that serves this home, whose servers are ill now, to a client that has shaken hands."""
        client = Client({**self._env, "CROWD": "ill"})
        client.hello()
        return client

    def processes(self) -> set[int]:
        """The servers that are there."""
        found = set()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self.mark.encode() in environ.read_bytes():
                    found.add(int(environ.parent.name))
            except OSError:  # it is somebody else's, or has just gone
                continue
        return found

    def deafened(self) -> int:
        """How often a server here has said that it hears nothing any more."""
        log = self.folder / "logs" / "deaf.log"
        return log.read_text("utf-8").count(DEAF) if log.exists() else 0

    def left(self) -> int:
        """How many are there once they have had the time to go."""
        return len(self.processes()) if not came_about(lambda: not self.processes()) else 0


def came_about(so: Callable[[], bool]) -> bool:
    """Whether it was so within `GONE_S`."""
    end = time.monotonic() + GONE_S
    while not so():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def web_server(kind: str) -> Iterator[str]:
    """The address of an HTTP server of this kind."""
    child = subprocess.Popen([sys.executable, str(SICK), kind, "ill"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(child.stdout.readline())}"
    finally:
        child.stdin.close()
        child.stdout.close()
        child.wait()


# -------------------------------------------------------------------------------------------------- measurements


def measured(client: Client, sick: Sequence[str], seconds: float, every_s: float) -> tuple[list[float], dict[str, int]]:
    """The milliseconds of each call of the healthy server in that time, and how many calls of each sick one ended."""
    for _ in range(WARM_UP):
        client.wait(client.call("healthy"))
    took: list[float] = []
    asked: dict[str, list[int]] = {name: [] for name in sick}
    begun = time.perf_counter()
    due = {name: begun + every_s * n / len(sick) for n, name in enumerate(sick)}
    while (now := time.perf_counter()) < begun + seconds:
        for name in sick:
            if due[name] <= now:
                asked[name].append(client.call(name))
                due[name] += every_s
        sent = time.perf_counter()
        client.wait(client.call("healthy"))
        took.append((time.perf_counter() - sent) * 1000)
        pause = time.perf_counter() + PAUSE_S
        while (rest := pause - time.perf_counter()) > 0:
            client.read(rest)
    return took, {name: sum(id_ in client.answered for id_ in ids) for name, ids in asked.items()}


def shown(took: Sequence[float]) -> dict[str, float]:
    """Percentiles of milliseconds, and the longest."""
    points = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    each = {name: round(percentile(took, point), 3) for name, point in points.items()}
    return {"calls": len(took), **each, "max": round(max(took), 1)}


Arms = dict[str, tuple[Home, Sequence[str]]]
"""By name a home, and the sick servers in it. The first is what the others are compared with."""


def compared(arms: Arms, rounds: int, seconds: float, every_s: float) -> dict[str, Any]:
    """The healthy server of each home, in turns."""
    took: dict[str, list[list[float]]] = {name: [] for name in arms}
    ended: dict[str, dict[str, int]] = {name: dict.fromkeys(sick, 0) for name, (_, sick) in arms.items()}
    for n in range(rounds):
        for name, (home, sick) in arms.items():
            say(f"round {n + 1} of {rounds}, {name}")
            client = home.serve()
            ms, answered = measured(client, sick, seconds, every_s)
            client.end(lambda client=client: client.child.send_signal(signal.SIGTERM))
            took[name].append(ms)
            ended[name] = {kind: before + answered[kind] for kind, before in ended[name].items()}
    first, *others = arms
    pooled = {name: shown([ms for part in parts for ms in part]) for name, parts in took.items()}
    return {
        "ms": pooled,
        "over_alone": {
            name: {
                **{p: round(pooled[name][p] / pooled[first][p], 3) for p in ("p50", "p95", "p99")},
                "p99_by_round": [
                    round(percentile(ms, 0.99) / percentile(alone_ms, 0.99), 3)
                    for ms, alone_ms in zip(took[name], took[first], strict=True)
                ],
            }
            for name in others
        },
        "sick_calls_ended": {name: ended[name] for name in others},
    }


def all_up(home: Home, servers: int) -> None:
    """Wait until that many servers are there: what was never there cannot be left. Raises RuntimeError."""
    if not came_about(lambda: len(home.processes()) == servers):
        raise RuntimeError(f"{len(home.processes())} of {servers} servers are there")


def left_behind(folder: Path) -> dict[str, Any]:
    """How many processes are left after each way to end; and of a server that is deaf to the end of its input."""
    kinds = ["healthy", "hangs_at_call", "hangs_at_initialize", "answers_twice"]
    home, deaf = Home(folder / "left", kinds, {}), Home(folder / "deaf", ["healthy", "deaf"], {})
    found: dict[str, Any] = {}

    client = home.serve()
    client.wait(client.call("healthy"))
    all_up(home, len(kinds))
    call = client.call("hangs_at_call")
    client.wait(client.call("healthy"))
    client.tell("notifications/cancelled", {"requestId": call, "reason": "no longer wanted"})
    client.wait(client.call("hangs_at_call") and client.call("healthy"))
    found["more_after_cancelled_call"] = max(0, len(home.processes()) - len(kinds))
    client.end(client.leave)
    found["after_client_gone"] = home.left()
    for number in (signal.SIGTERM, signal.SIGKILL):
        for name, place in (("", home), ("_deaf_server", deaf)):
            client = place.serve()
            all_up(place, 2 if place is deaf else len(kinds))
            before = place.deafened()
            client.call("deaf" if place is deaf else "hangs_at_call")
            client.wait(client.call("healthy"))
            if place is deaf and not came_about(lambda place=place, before=before: place.deafened() > before):
                raise RuntimeError("the deaf server was not called")
            client.end(lambda client=client, number=number: client.child.send_signal(number))
            found[f"after_{number.name.lower()}{name}"] = place.left()
            for pid in place.processes():
                os.kill(pid, signal.SIGKILL)
    return found


def sessions(folder: Path) -> dict[str, Any]:
    """How many sessions an HTTP server sees opened, and how many are open at the most and in the end."""

    def counts(url: str) -> dict[str, int]:
        with urllib.request.urlopen(f"{url}/counts") as answer:
            return dict(json.load(answer))

    found = {}
    for kind in ("http", "forgets"):
        with web_server(kind) as url:
            home = Home(folder / f"sessions_{kind}", [kind], {kind: f"{url}/mcp"})
            before = counts(url)
            client = home.serve()
            most = 0
            for _ in range(REFRESHES):
                for _ in range(3):
                    client.wait(client.call(kind))
                most = max(most, counts(url)["open"])
                home.reindex()
            client.end(client.leave)
            after = counts(url)
        found[kind] = {
            "opened_by_serving": after["opened"] - before["opened"] - REFRESHES,
            "opened_by_reindexes": REFRESHES,
            "forgotten_by_the_server": after["forgotten"],
            "deleted": after["deleted"] - before["deleted"],
            "open_at_most": most,
            "open_in_the_end": after["open"],
        }
    return found


def say(words: str) -> None:
    """Progress, where somebody watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--every", type=float, default=1.0, metavar="S", help="how often each sick server is called")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--each", action="store_true", help="also each sick server by itself: two minutes more")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roster-crowd-") as scratch, web_server("forgets") as url:
        folder, urls = Path(scratch), {"forgets": f"{url}/mcp"}
        alone = Home(folder / "alone", ["healthy"], {})
        small = [kind for kind in args.only if kind != LARGE]

        def beside(name: str, sick: list[str]) -> tuple[Home, list[str]]:
            return Home(folder / name, ["healthy", *sick], urls), sick

        arms: Arms = {"alone": (alone, ()), "beside_all": beside("all", args.only)}
        if small and small != args.only:
            arms["beside_all_but_50_mb"] = beside("small", small)
        found: dict[str, Any] = {
            "rounds": args.rounds,
            "seconds_a_round": args.seconds,
            "each_sick_server_called_every_s": args.every,
            "floor_p99_over_alone": FLOOR,
            "crowd": compared(arms, args.rounds, args.seconds, args.every),
        }
        if args.each:
            arms = {"alone": (alone, ())} | {kind: beside(kind, [kind]) for kind in args.only}
            found["by_itself"] = compared(arms, 2, args.seconds, args.every)
        found["processes_left"] = left_behind(folder)
        found["sessions"] = sessions(folder)
    say("")
    print(json.dumps(found, indent=1))
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
