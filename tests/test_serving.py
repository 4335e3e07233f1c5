"""`roster serve` as a client starts it: a process, its two pipes, the processes behind it, and its end."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import pytest
from fakes import python, tool
from scripted_backend import Scripted, alive

from roster.config import Home
from roster.database import open_database

REPOSITORY = Path(__file__).parents[1]
DEADLINE_S = 60.0
END_S = 60.0
CALENDAR = [tool("add_event", "Add an event to the calendar"), tool("list_events", "List the events of a day")]
NEED = "put a meeting into my calendar"


def _until(condition: Callable[[], Any]) -> None:
    """Look until the condition holds; fails after a minute."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


class Serving:
    """A serving process, and a client that speaks to it line by line."""

    def __init__(self, home: Home, *options: str, program: Sequence[str] = ("-m", "roster"), **environ: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", *program, "serve", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=REPOSITORY,
            env={**os.environ, "ROSTER_HOME": str(home.folder), **environ},
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._arrived: queue.Queue[str] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.lines), daemon=True),
            threading.Thread(target=self._read, args=(self.process.stderr, self.errors), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe: IO[str], kept: list[str]) -> None:
        for line in pipe:
            kept.append(line)
            if kept is self.lines:
                self._arrived.put(line)

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def answer(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole answer to a request."""
        id_ = f"{method} {len(self.lines)}"
        self.send(id=id_, method=method, params=params)
        while True:
            answer = json.loads(self._arrived.get(timeout=DEADLINE_S))
            if answer.get("id") == id_:
                return dict(answer)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request."""
        answer = self.answer(method, **params)
        assert "result" in answer, answer
        return dict(answer["result"])

    def handshake(self) -> dict[str, Any]:
        client = {"name": "test", "version": "0"}
        result = self.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
        self.send(method="notifications/initialized")
        return result

    def use(self, name: str, **arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", name=name, arguments=arguments)

    def drafted(self, need: str) -> list[str]:
        """The ids of a draft."""
        return [starter["id"] for starter in self.use("draft", need=need)["structuredContent"]["starters"]]

    def ended(self, how: Callable[[], object] | None = None) -> int:
        """The exit status, after stdin was closed or `how`; everything it wrote has been read then."""
        if how is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
        else:
            how()
        try:
            return self.process.wait(END_S)
        finally:
            self.process.kill()
            for reader in self._readers:
                reader.join(END_S)
            for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.fixture
def serve(home: Home) -> Iterator[Callable[..., Serving]]:
    """Start `roster serve` on this home, over these `mcpServers`; whatever is left of it goes at the end."""
    started: list[Serving] = []

    def start(entries: dict[str, Any], *options: str, mode: str | None = None, **environ: str) -> Serving:
        settings = {"mode": mode} if mode else {}
        home.config.write_text(json.dumps({"mcpServers": entries, **settings}), encoding="utf-8")
        started.append(Serving(home, *options, **environ))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.ended(one.process.kill)


@pytest.fixture
def calendar(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path, "calendar", rows=CALENDAR)


def stored_vectors(home: Home) -> list[tuple[Any, ...]]:
    with closing(open_database(home.database)) as db:
        return db.execute("SELECT * FROM vectors ORDER BY text_hash").fetchall()


# --------------------------------------------------------------------------------------------------------------


@pytest.mark.report(
    "anomalyco/opencode#48743", "anomalyco/opencode#13672", "can1357/oh-my-pi#2100", "stacklok/mecatl#1695"
)
def test_servers_that_hang_or_are_missing_delay_nothing_and_secrets_stay_inside(
    home: Home, tmp_path: Path, calendar: Scripted, serve: Callable[..., Serving]
) -> None:
    """The handshake and the list are answered, and a working server is drafted and called, beside broken ones; stdout
    carries JSON-RPC alone, and stderr neither a secret nor a word of the conversation, however much it is asked to say.
    """
    canary = "canary-77ab"
    hangs = Scripted(tmp_path, "hangs", start="hang")
    dies = Scripted(tmp_path, "dies", start="exit")
    env = {"SCRIPTED_SECRET": "${SECRET}"}
    entries = {
        "hangs": hangs.entry("${SECRET}", env=env),
        "missing": {"command": "no-such-program-of-anyone", "env": env},
        "dies": dies.entry("${SECRET}", env=env),
        "unset": {"command": "x", "args": ["${NOBODY_SET_THIS}"]},
        "calendar": calendar.entry("${SECRET}", env=env),
        "wrong": {"args": ["no command"]},
    }
    calendar.says(tools={"list_events": {"do": "junk"}})

    roster = serve(entries, "--five", "--verbose", SECRET=canary)
    info = roster.handshake()
    listed = [row["name"] for row in roster.ask("tools/list")["tools"]]
    _until(lambda: "calendar__add_event" in roster.drafted(NEED))
    for name in ("add_event", "list_events", canary):
        roster.use("call", tool=f"calendar__{name}", args={"said": canary})
    assert roster.ended() == 0

    assert info["serverInfo"]["name"] == "roster"
    assert "calendar" in info["instructions"]
    assert listed == ["draft", "call"]
    assert [line for line in roster.lines if json.loads(line).get("jsonrpc") != "2.0"] == []
    said = "".join(roster.errors)
    assert canary not in said
    assert NEED not in said
    for words in ("missing: the command 'no-such-program-of-anyone'", "NOBODY_SET_THIS", "wrong: ", "dies: it ended"):
        assert words in said


@pytest.mark.parametrize(
    ("mode", "how"),
    [
        ("--five", "stdin closed"),
        ("--transparent", "stdin closed"),
        ("--five", "SIGTERM"),
        ("--transparent", "SIGINT"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="signals and pipes of POSIX")
def test_the_process_ends_when_told_to_and_leaves_no_other_behind(
    tmp_path: Path, calendar: Scripted, serve: Callable[..., Serving], mode: str, how: str
) -> None:
    """Exit status 0, soon, with a call in flight and a server still starting; nothing is written to stderr."""
    calendar.says(tools={"add_event": {"do": "hang"}})
    hangs = Scripted(tmp_path, "hangs", start="hang")
    roster = serve({"calendar": calendar.entry(), "hangs": hangs.entry()}, mode)
    roster.handshake()
    _until(lambda: calendar.events("list") and hangs.pids())
    call = {"name": "call", "arguments": {"tool": "calendar__add_event"}}
    if mode == "--transparent":
        call = {"name": "calendar__add_event", "arguments": {}}
    _until(lambda: calendar.calls() or roster.send(id=7, method="tools/call", params=call) or calendar.calls())

    signals = {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
    status = roster.ended(None if how == "stdin closed" else lambda: roster.process.send_signal(signals[how]))

    assert (status, "".join(roster.errors)) == (0, "")
    assert [pid for pid in (*calendar.pids(), *hangs.pids()) if alive(pid)] == []


def test_a_killed_process_leaves_a_home_that_goes_on_where_it_was(
    home: Home, calendar: Scripted, serve: Callable[..., Serving]
) -> None:
    """After kill -9 the same need gives the same draft, no text is embedded again, and no server is left running."""
    first = serve({"calendar": calendar.entry()}, "--five")
    first.handshake()
    _until(lambda: first.drafted(NEED) and len(stored_vectors(home)) == 2)
    before, vectors = first.drafted(NEED), stored_vectors(home)
    first.ended(first.process.kill)
    _until(lambda: not any(map(alive, calendar.pids())))

    second = serve({"calendar": calendar.entry()}, "--five")
    second.handshake()
    after = second.drafted(NEED)
    assert second.ended() == 0
    environ = {**os.environ, "ROSTER_HOME": str(home.folder)}
    command = [sys.executable, "-m", "roster", "reindex", "--json"]
    figures = json.loads(subprocess.check_output(command, cwd=REPOSITORY, env=environ, timeout=DEADLINE_S))

    assert before[0] == "calendar__add_event"
    assert after == before
    assert stored_vectors(home) == vectors
    assert (figures["embedded"], figures["added"], figures["cards"]) == (0, 0, 2)


@pytest.mark.report("Kuadrant/mcp-gateway#463")
def test_a_restart_drafts_from_what_is_on_file_while_its_servers_hang(
    calendar: Scripted, serve: Callable[..., Serving]
) -> None:
    """What was listed last time is drafted at once; the server that is not there yet is named."""
    first = serve({"calendar": calendar.entry()}, "--five")
    first.handshake()
    before = first.drafted(NEED)
    assert first.ended() == 0
    calendar.says(start="hang")

    second = serve({"calendar": calendar.entry()}, "--five")
    second.handshake()
    shown = second.use("draft", need=NEED)["structuredContent"]
    assert second.ended() == 0
    assert [starter["id"] for starter in shown["starters"]] == before
    assert "Still starting" not in shown["usage"]  # what it can do is on file


def test_two_processes_share_one_home(home: Home, calendar: Scripted, serve: Callable[..., Serving]) -> None:
    """Started together on an empty home: both answer alike, each text has one vector, and neither complains."""
    both = [serve({"calendar": calendar.entry()}, "--five") for _ in range(2)]
    for one in both:
        one.handshake()
    for one in both:
        _until(lambda one=one: len(one.drafted(NEED)) == 2)
        one.use("call", tool="calendar__add_event")
    _until(lambda: len(stored_vectors(home)) == 2)
    first, second = (one.drafted(NEED) for one in both)
    assert [one.ended() for one in both] == [0, 0]
    assert first == second
    assert ["".join(one.errors) for one in both] == ["", ""]
    with closing(open_database(home.database)) as db:
        assert db.execute("SELECT count(*) FROM cards").fetchone() == (2,)
        assert db.execute("SELECT count(*) FROM outcomes").fetchone() == (2,)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads /proc")
@pytest.mark.report("mcp-use/mcp-use#138")
def test_serving_loads_the_small_runtime_and_never_torch(
    home: Home, calendar: Scripted, serve: Callable[..., Serving]
) -> None:
    """A process that has drafted has onnxruntime mapped, and neither torch nor anything of its kind imported."""
    roster = serve({"calendar": calendar.entry()}, "--five")
    roster.handshake()
    assert roster.drafted(NEED)
    mapped = Path(f"/proc/{roster.process.pid}/maps").read_text()
    assert roster.ended() == 0
    code = (
        "import sys\nfrom roster import cli, commands, demo, serve, server\nfrom roster.encoder import open_encoder\n"
        "open_encoder(None).encode_needs(['x'])\nprint(*{name.split('.')[0] for name in sys.modules})"
    )
    with python(code) as started:
        modules = set(started.communicate(timeout=DEADLINE_S)[0].split())

    assert "onnxruntime" in mapped
    assert "torch" not in mapped
    assert {"onnxruntime", "roster"} <= modules
    assert modules & {"torch", "transformers", "sentence_transformers"} == set()


@pytest.mark.parametrize("text", ["{not json", None], ids=["unparsable", "absent"])
def test_a_config_that_cannot_be_read_ends_the_start_with_one_clear_line(home: Home, text: str | None) -> None:
    """Exit status 2, the file's name on stderr, and not a byte on stdout, where a client would take it for protocol."""
    if text is not None:
        home.config.write_text(text)
    roster = Serving(home)

    assert roster.ended() == 2
    assert roster.lines == []
    (line,) = roster.errors
    assert line.startswith(f"roster: {home.config}")


def test_the_mode_comes_from_the_config_unless_it_is_named(calendar: Scripted, serve: Callable[..., Serving]) -> None:
    """`"mode"` decides; a flag overrides it for that process alone."""
    listed = []
    for mode, option in [(None, []), ("five", []), ("five", ["--transparent"])]:
        roster = serve({"calendar": calendar.entry()}, *option, mode=mode)
        roster.handshake()
        listed.append([row["name"] for row in roster.ask("tools/list")["tools"]])
        assert roster.ended() == 0
    every, two = ["calendar__add_event", "calendar__list_events"], ["draft", "call"]
    assert listed == [every, two, every]


def test_what_is_asked_all_at_once_is_answered_though_the_client_closes_its_end(home: Home) -> None:
    """A script that writes its questions and closes the pipe asks before anything is opened that could answer."""
    home.folder.mkdir(parents=True, exist_ok=True)
    home.config.write_text("{}", "utf-8")
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}
    asked: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": info},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    ]
    done = subprocess.run(
        [sys.executable, "-m", "roster", "serve", "--five"],
        input="".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in asked),
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "ROSTER_HOME": str(home.folder)},
        timeout=DEADLINE_S,
        check=True,
    )

    listed = json.loads(done.stdout.splitlines()[1])["result"]["tools"]
    assert [row["name"] for row in listed] == ["draft", "call"]
