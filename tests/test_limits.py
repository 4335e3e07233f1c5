"""How many calls may be at a server: never more than it takes, in order, and nobody waits for ever."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from fakes import Run, WordEncoder, tool
from forwarding import block_texts, connected, listed
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError
from scripted_backend import Scripted, running, until
from web_client import client_at, served

from roster import app
from roster.app import Roster, open_roster
from roster.backends import Answer, backend
from roster.backends.turns import Turns
from roster.config import Home, Mode, load_config, read_config
from roster.history import History
from roster.outcomes import CallReport, Cause
from roster.server import RosterServer

pytestmark = pytest.mark.anyio

ROWS = [tool("work", "Do the work"), tool("hold", "Hold the work"), tool("fatal", "End the work")]
ASK = {"do": "ask", "asks": [{"method": "elicitation/create", "params": {"mode": "form", "message": "?"}}]}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch, encoder: WordEncoder) -> None:
    """Lists are read again, and lost backends tried again, after hundredths of a second; needs are hashed words."""
    monkeypatch.setattr(backend, "BACKOFF_S", (0.03, 0.1))
    monkeypatch.setattr(backend, "RELIST_PAUSE_S", 0.01)
    monkeypatch.setattr(app, "open_encoder", lambda *_: encoder)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that lets calls of `hold` go on once it is there."""
    return tmp_path / "gate"


@pytest.fixture
def box(tmp_path: Path, gate: Path) -> Scripted:
    """A server whose `hold` takes until the gate is open."""
    return Scripted(tmp_path, "box", rows=ROWS, tools={"hold": {"do": "gate", "file": gate}, "fatal": {"do": "exit"}})


class Calls:
    """Calls of one backend, begun in order, each with its own number; what came of them, by number."""

    def __init__(self, roster: Roster, group: anyio.abc.TaskGroup, server: str = "box") -> None:
        self._backend, self._group = roster.pool[server], group
        self.answers: dict[int, Answer] = {}
        self._scopes: dict[int, anyio.CancelScope] = {}

    def begin(self, tool: str, *numbers: int) -> None:
        for n in numbers:
            self._scopes[n] = anyio.CancelScope()
            self._group.start_soon(self._one, tool, n)

    async def _one(self, tool: str, n: int) -> None:
        with self._scopes[n]:
            self.answers[n] = await self._backend.call(tool, {"n": n})

    def cancel(self, n: int) -> None:
        self._scopes[n].cancel()

    def lose(self) -> None:
        """Have the connection end."""
        assert self._backend.link is not None
        self._backend.link.close()

    def causes(self) -> dict[int, Cause]:
        return {n: answer.report.cause for n, answer in sorted(self.answers.items())}


@asynccontextmanager
async def calling(home: Home, server: Scripted, **entry: Any) -> AsyncIterator[Calls]:
    """Calls of this server through a Roster; on the way out they are waited for."""
    async with running(home, {"box": server.entry(**entry)}) as roster, anyio.create_task_group() as group:
        yield Calls(roster, group)


def number_in(answer: Answer) -> int:
    """Which call an echo answers."""
    assert answer.result is not None, answer
    return int(json.loads(answer.result["content"][0]["text"])["arguments"]["n"])


def arrived(server: Scripted) -> list[int]:
    """The numbers of the calls a server saw, in order."""
    return [params["arguments"]["n"] for params in server.calls()]


def crowd(server: Scripted) -> int:
    """How many calls were at a server at the most."""
    return max(event["inside"] for event in server.events("call"))


# --------------------------------------------------------------------------------------------------- turns


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.report("get-convex/convex-backend#561")
async def test_no_more_calls_are_at_a_server_than_it_takes(home: Home, tmp_path: Path, most: int) -> None:
    """And no fewer, counted by the server; all are answered, each with its own."""
    server = Scripted(tmp_path, "box", rows=ROWS, tools={"work": {"do": "batch", "size": most}})

    async with calling(home, server, max_concurrency=most) as calls:
        calls.begin("work", *range(30))
    assert {n: number_in(answer) for n, answer in calls.answers.items()} == {n: n for n in range(30)}
    assert crowd(server) == most


async def test_without_a_limit_calls_do_not_wait_for_each_other(home: Home, tmp_path: Path) -> None:
    """The default: a server that answers only once all fifty are there gets all fifty."""
    server = Scripted(tmp_path, "box", rows=ROWS, tools={"work": {"do": "batch", "size": 50}})

    async with calling(home, server) as calls:
        calls.begin("work", *range(50))
    assert crowd(server) == 50
    assert {n: number_in(answer) for n, answer in calls.answers.items()} == {n: n for n in range(50)}


async def test_who_came_first_is_served_first(home: Home, box: Scripted, gate: Path) -> None:
    """In the order in which calls came; one that comes when a place is free but others wait does not push in."""
    async with calling(home, box, max_concurrency=1) as calls:
        calls.begin("hold", *range(5))
        await until(lambda: arrived(box) == [0])
        calls.begin("work", 5, 6)
        gate.touch()
        await until(lambda: 0 in calls.answers)
        calls.begin("work", 7)
    assert arrived(box) == list(range(8))


async def test_a_call_that_is_cancelled_while_it_waits_leaves_the_queue(home: Home, box: Scripted, gate: Path) -> None:
    """The server never hears of it, and those behind it move up."""
    async with calling(home, box, max_concurrency=1) as calls:
        calls.begin("hold", 0, 1, 2)
        await until(lambda: arrived(box) == [0])
        calls.cancel(1)
        gate.touch()
    assert arrived(box) == [0, 2]
    assert list(calls.answers) == [0, 2]
    assert box.events("cancelled") == []


async def test_a_call_that_is_cancelled_under_way_frees_its_place(home: Home, box: Scripted) -> None:
    """At once, though the server goes on with it."""
    async with calling(home, box, max_concurrency=1) as calls:
        calls.begin("hold", 0)
        await until(lambda: arrived(box) == [0])
        calls.begin("work", 1)
        calls.cancel(0)
    assert calls.causes() == {1: Cause.ANSWERED}


@pytest.mark.report("get-convex/convex-backend#561")
async def test_a_call_that_runs_out_of_time_frees_its_place(home: Home, box: Scripted) -> None:
    """A server that hangs holds no place for ever."""
    async with running(home, {"box": box.entry(max_concurrency=1, call_timeout_s=0.5)}) as roster:
        hung = await roster.pool["box"].call("hold", {"n": 0})
        assert hung.report.cause is Cause.TIMEOUT
        assert number_in(await roster.pool["box"].call("work", {"n": 1})) == 1


async def test_a_lost_connection_frees_every_place(home: Home, box: Scripted) -> None:
    """The calls under way are lost; those that wait are carried out by the server that comes back."""
    async with calling(home, box, max_concurrency=2) as calls:
        calls.begin("hold", 0)
        calls.begin("fatal", 1)
        calls.begin("work", 2, 3, 4)
    lost, answered = Cause.DISCONNECTED, Cause.ANSWERED
    assert calls.causes() == {0: lost, 1: lost, 2: answered, 3: answered, 4: answered}
    assert len(box.pids()) == 2


async def test_all_who_wait_share_one_attempt_to_bring_a_server_back(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that stays away is started once for all of them, not once for each."""
    monkeypatch.setattr(backend, "BACKOFF_S", (3600.0, 3600.0))
    there = tmp_path / "there"
    there.touch()
    tools = {"hold": {"do": "gate", "file": tmp_path / "never"}}
    server = Scripted(tmp_path, "box", rows=ROWS, tools=tools, exit_unless=there)

    async with calling(home, server, max_concurrency=1) as calls:
        calls.begin("hold", *range(10))
        await until(lambda: arrived(server) == [0])
        there.unlink()
        calls.lose()
    assert calls.causes() == {0: Cause.DISCONNECTED} | dict.fromkeys(range(1, 10), Cause.UNREACHABLE)
    assert len(server.pids()) == 2


async def test_what_is_no_call_does_not_wait_for_calls(home: Home, box: Scripted) -> None:
    """Resources are read, and a changed list is, while the only place is taken."""
    box.says(capabilities={"tools": {"listChanged": True}, "resources": {}}, answers=listed("x://a"))

    async with (
        running(home, {"box": box.entry(max_concurrency=1)}) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT)) as client,
        anyio.create_task_group() as group,
    ):
        Calls(roster, group).begin("hold", 0)
        await until(lambda: arrived(box) == [0])
        read = await client.request("resources/read", uri="x://a")
        box.says(rows=[*ROWS, tool("new")])
        await until(lambda: len(box.events("list")) == 2)
        group.cancel_scope.cancel()
    assert read["contents"][0]["text"] == "text of x://a"


@pytest.mark.parametrize("mode", list(Mode))
async def test_a_server_that_asks_back_during_its_only_call_is_answered(home: Home, tmp_path: Path, mode: Mode) -> None:
    """The question takes no place; of who waits meanwhile nobody is asked, so it is never in doubt whose it is."""
    server = Scripted(tmp_path, "box", rows=[tool("ask"), tool("work")], tools={"ask": ASK})

    def named(name: str) -> dict[str, Any]:
        five = {"name": "call", "arguments": {"tool": f"box__{name}"}}
        return five if mode is Mode.FIVE else {"name": f"box__{name}"}

    async with running(home, {"box": server.entry(max_concurrency=1)}) as roster:
        serving = RosterServer(roster, mode)
        asked, done = anyio.Event(), anyio.Event()

        async def answer(_: Any) -> dict[str, Any]:
            asked.set()
            await done.wait()
            return {"action": "decline"}

        async with (
            connected(serving, {"elicitation/create": answer}, elicitation={}) as one,
            connected(serving, {}, elicitation={}) as other,
            anyio.create_task_group() as group,
        ):
            replies: list[dict[str, Any]] = []

            async def call(client: Any, name: str) -> None:
                replies.append(await client.request("tools/call", **named(name)))

            group.start_soon(call, one, "ask")
            await asked.wait()
            group.start_soon(call, other, "work")
            done.set()
            await until(lambda: len(replies) == 2)
    assert json.loads(replies[0]["content"][0]["text"]) == [{"result": {"action": "decline"}}]
    assert (other.asked, crowd(server)) == ([], 1)


# -------------------------------------------------------------------------------------------- too many


async def test_who_waits_longer_than_a_call_may_take_is_told_so(home: Home, tmp_path: Path) -> None:
    """The wait has the time of a call; it ends as our own limit, with nothing sent, and the call under way goes on."""
    server = Scripted(tmp_path, "box", rows=[tool("ask"), tool("work")], tools={"ask": ASK})

    async with running(home, {"box": server.entry(max_concurrency=1, call_timeout_s=0.5)}) as roster:
        waited = anyio.Event()

        async def answer(_: Any) -> dict[str, Any]:
            await waited.wait()
            return {"action": "cancel"}

        async with (
            connected(RosterServer(roster, Mode.TRANSPARENT), {"elicitation/create": answer}, elicitation={}) as client,
            anyio.create_task_group() as group,
        ):
            replies: list[dict[str, Any]] = []

            async def call() -> None:
                replies.append(await client.request("tools/call", name="box__ask"))

            group.start_soon(call)
            await until(lambda: client.asked)
            report = (await roster.pool["box"].call("work", {})).report
            waited.set()
    assert (report.cause, report.sent, report.latency_ms >= 500) == (Cause.LIMITED, False, True)
    assert not replies[0].get("isError")
    assert server.calls("work") == []


@pytest.mark.parametrize("limit", [{}, {"max_concurrency": 1}], ids=["no limit", "one at a time"])
async def test_a_full_queue_ends_a_call_at_once(
    home: Home, box: Scripted, monkeypatch: pytest.MonkeyPatch, limit: dict[str, int]
) -> None:
    """Those under way and those that wait are counted together, also where nothing is set: a server that hangs takes
    no memory without end. As soon as one goes there is room for another."""
    monkeypatch.setattr(backend, "MOST", 5)

    async with running(home, {"box": box.entry(**limit)}) as roster, anyio.create_task_group() as group:
        calls = Calls(roster, group)
        calls.begin("hold", *range(5))
        await until(lambda: arrived(box) == ([0] if limit else list(range(5))))
        refused = (await roster.pool["box"].call("work", {"n": 9})).report
        assert (refused.cause, refused.latency_ms < 100) == (Cause.LIMITED, True)
        for n in range(5):
            calls.cancel(n)
        await until(lambda: len(box.events("cancelled")) == len(arrived(box)))
        assert number_in(await roster.pool["box"].call("work", {"n": 10})) == 10
    assert 9 not in arrived(box)


async def test_too_many_is_a_failure_of_its_own_kind(
    home: Home, tmp_path: Path, box: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`limit`, and none of it has happened. It is not held against the tool, is no outage, and
    no other tool is offered for it; for one that runs out of time another is, as ever."""
    monkeypatch.setattr(backend, "MOST", 1)
    box.says(rows=[tool("hold", "Hold the work")])
    other = Scripted(tmp_path, "other", rows=[tool("hold", "Hold the work of others")])
    entries = {"box": box.entry(max_concurrency=1, call_timeout_s=0.5), "other": other.entry()}

    async with (
        running(home, entries, indexed=True) as roster,
        connected(RosterServer(roster, Mode.FIVE)) as client,
    ):
        drafted = await client.request("tools/call", name="draft", arguments={"need": "hold the work"})
        arguments = {"tool": "box__hold", "draft_id": drafted["structuredContent"]["draft_id"]}
        replies: list[dict[str, Any]] = []

        async def call() -> None:
            replies.append(await client.request("tools/call", name="call", arguments=arguments))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await until(lambda: box.calls())
            group.start_soon(call)
        row = "SELECT failure, outcome, rule, fault, counted FROM outcomes ORDER BY number"
        stored = await until(lambda: len(found := roster.writer.db.execute(row).fetchall()) == 2 and found)
    limited, late = (json.loads(block_texts(reply)[-1])["_roster"] for reply in replies)
    assert limited == {
        "failure": {
            "kind": "limit",
            "retryable": False,
            "partial": False,
            "person": False,
            "declared": False,
            "class": "tool_fail:quota",
        }
    }
    assert (late["failure"]["kind"], late["suggested_alternate"]["tool"]) == ("timeout", "other__hold")
    assert stored[0] == ("limit", "tool_fail:quota", "cause:limited", "caller", 0)
    assert stored[1][::4] == ("timeout", 1)
    assert len(box.calls()) == 1


async def test_in_transparent_mode_too_many_is_an_error_result(
    home: Home, box: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of our own, naming the server and the kind; and for what is no call an error."""
    monkeypatch.setattr(backend, "MOST", 1)
    box.says(capabilities={"tools": {}, "resources": {}}, answers=listed("x://a"))

    async with (
        running(home, {"box": box.entry()}) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT)) as client,
        anyio.create_task_group() as group,
    ):
        await client.request("resources/list")
        Calls(roster, group).begin("hold", 0)
        await until(lambda: arrived(box) == [0])
        refused = await client.request("tools/call", name="box__work")
        with pytest.raises(MCPError, match=r"box .*limit"):
            await client.request("resources/read", uri="x://a")
        group.cancel_scope.cancel()
    (words,) = block_texts(refused)
    assert refused["isError"] is True
    assert "box" in words
    assert "limit" in words
    assert box.calls("work") == []


async def test_a_rating_is_not_touched_by_our_own_limit(
    home: Home, box: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A success and forty calls that had to be refused: one of one, and all of them are on record."""
    async with running(home, {"box": box.entry()}) as roster:
        roster.catalogue.refresh()
        entry = roster.catalogue.find("box__work")
        assert entry is not None
        await roster.caller.call(entry.card, {"n": 0})
        monkeypatch.setattr(backend, "MOST", 0)
        for n in range(40):
            await roster.caller.call(entry.card, {"n": n})
        await roster.caller.scribe.finish()
        (tally,) = History(roster.writer.db).tallies().values()
        (recorded,) = roster.writer.db.execute("SELECT count(*) FROM outcomes").fetchone()
    assert (tally.calls, tally.successes, recorded) == (1, 1, 41)


async def test_two_clients_share_a_limit_but_no_answer(home: Home, tmp_path: Path) -> None:
    """Of one Roster over HTTP: the server sees one call at a time, each client its own answers."""
    server = Scripted(tmp_path, "box", rows=ROWS)
    seen: dict[str, list[dict[str, Any]]] = {"one": [], "two": []}

    config = read_config(json.dumps({"mcpServers": {"box": server.entry(max_concurrency=1)}}))

    with open_roster(config, home) as roster:
        async with served(roster, Mode.TRANSPARENT) as (_, url):

            async def ask(name: str) -> None:
                async with client_at(url) as client, anyio.create_task_group() as group:

                    async def call(n: int) -> None:
                        reply = await client.call_tool("box__work", {"of": name, "n": n})
                        seen[name].append(json.loads(reply.content[0].text)["arguments"])

                    for n in range(20):
                        group.start_soon(call, n)

            async with anyio.create_task_group() as both:
                for name in seen:
                    both.start_soon(ask, name)
    assert {name: sorted(said["n"] for said in of) for name, of in seen.items()} == {
        name: list(range(20)) for name in seen
    }
    assert {said["of"] for said in seen["one"]} == {"one"}
    assert {said["of"] for said in seen["two"]} == {"two"}
    assert (len(server.calls()), crowd(server)) == (40, 1)


# ------------------------------------------------------------------------------------------------- config


@pytest.mark.parametrize("value", [0, -1, 1_001, 1.5, "many", [1]])
def test_a_limit_that_is_none_is_named(value: Any) -> None:
    """With its key; the servers beside it stay."""
    entries = {"odd": {"command": "x", "max_concurrency": value}, "good": {"command": "x", "max_concurrency": 3}}
    config = read_config(json.dumps({"mcpServers": entries}))

    assert {name: spec.max_concurrency for name, spec in config.servers.items()} == {"good": 3}
    (problem,) = config.problems_of("odd")
    assert problem.startswith("max_concurrency: ")


def test_an_import_keeps_the_limit_of_a_server(run: Run, home: Home, tmp_path: Path) -> None:
    """`roster init` finds the same server with a client that says nothing of a limit, and leaves ours alone."""
    project = tmp_path / "project"
    client = tmp_path / ".cursor" / "mcp.json"
    for folder in (project, client.parent):
        folder.mkdir()
    home.config.write_text('{"mcpServers": {"box": {"command": "x", "max_concurrency": 2}}}\n', encoding="utf-8")
    client.write_text('{"mcpServers": {"box": {"command": "x"}, "more": {"command": "y"}}}', encoding="utf-8")
    ran = run("init", "--project", str(project))

    assert ran.status == 0, ran.err
    limits = {name: spec.max_concurrency for name, spec in load_config(home).servers.items()}
    assert limits == {"box": 2, "more": None}


# ----------------------------------------------------------------------------------------------- the law


async def _settle() -> None:
    """Let every task come as far as it can."""
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


async def _simulated(at_once: int, steps: list[tuple[str, int]]) -> None:
    """Let calls come, be cancelled and end in any order, and look at each step who is under way."""
    turns = Turns(at_once)
    came: list[int] = []
    begun: list[int] = []
    inside: dict[int, anyio.Event] = {}
    scopes: dict[int, anyio.CancelScope] = {}

    async def call(n: int) -> None:
        async def work() -> Answer:
            begun.append(n)
            inside[n] = anyio.Event()
            try:
                await inside[n].wait()
            finally:
                del inside[n]
            return Answer(CallReport(Cause.ANSWERED, 0.0))

        with scopes[n]:
            await turns.in_turn(work, 3600, lambda: False)
        del scopes[n]

    async with anyio.create_task_group() as group:
        for step, which in steps:
            if step == "come":
                came.append(len(came))
                scopes[came[-1]] = anyio.CancelScope()
                group.start_soon(call, came[-1])
            elif step == "end" and inside:
                list(inside.values())[which % len(inside)].set()
            elif step == "cancel" and scopes:
                list(scopes.values())[which % len(scopes)].cancel()
            if which % 2:  # or several things happen at the same moment
                await _settle()
                assert len(inside) == min(at_once, len(scopes))
            assert len(inside) <= at_once
        await _settle()
        assert begun == sorted(begun)
        group.cancel_scope.cancel()
    free: list[Any] = []

    async def look() -> Answer:
        free.append(1)
        await _settle()
        return Answer(CallReport(Cause.ANSWERED, 0.0))

    async with anyio.create_task_group() as group:
        for _ in range(at_once):
            group.start_soon(turns.in_turn, look, 3600, lambda: False)
    assert len(free) == at_once


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.sampled_from(["come", "come", "end", "cancel"]), st.integers(0, 9)), max_size=60),
)
def test_whatever_comes_goes_and_is_cancelled_no_place_is_lost_or_given_twice(
    at_once: int, steps: list[tuple[str, int]]
) -> None:
    """Never more than so many under way, never fewer while somebody waits, in order; in the end all places are free."""
    anyio.run(_simulated, at_once, steps)
