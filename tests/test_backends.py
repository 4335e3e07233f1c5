"""Backends over real connections: child processes that follow a script, and HTTP servers on a port of the loopback."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from asgi import listening
from fakes import tool
from mcp.server.lowlevel.server import Server
from mcp.server.sse import SseServerTransport
from scripted_backend import SECRET_ENVIRONMENT, Scripted, alive, running, until
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

from roster.app import Roster
from roster.backends import ErrorKind, State, backend, transports
from roster.config import Home
from roster.outcomes import Cause

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost backend is tried again after hundredths of a second."""
    monkeypatch.setattr(backend, "BACKOFF_S", (0.03, 0.1))
    monkeypatch.setattr(backend, "RELIST_PAUSE_S", 0.01)


def names(roster: Roster, server: str) -> list[str]:
    """The tools of one server that are on file and there, in its own order."""
    roster.catalogue.refresh()
    return [entry.card.name for entry in roster.catalogue.living() if entry.card.server == server]


def row_of(roster: Roster, id_: str) -> Mapping[str, Any]:
    """The listing row of a card on file."""
    roster.catalogue.refresh()
    found = roster.catalogue.find(id_)
    assert found is not None
    return found.card.raw


def text(answer: backend.Answer) -> dict[str, Any]:
    """What an echo says it was asked."""
    assert answer.result is not None, answer
    return dict(json.loads(answer.result["content"][0]["text"]))


# ------------------------------------------------------------------------------------------------ listing


BAD = {**tool("bad"), "inputSchema": {"type": "array"}}
METHOD_NOT_FOUND = {"code": -32601, "message": "Method not found"}


@pytest.mark.parametrize(
    ("script", "listed", "rejected", "asked"),
    [
        ({"pages": [[tool("a"), tool("b")], [tool("c")], [], [tool("d")]]}, "a b c d", "", 4),
        ({"pages": [[tool("a")], [tool("b")]], "repeat_cursor": True}, "a b", "", 2),
        ({"rows": [tool("a"), BAD, tool("b")]}, "a b", "bad", 1),
        ({"rows": [tool("a"), "no row", {"description": "nameless"}, tool("b")]}, "a b", "(row 1)|(row 2)", 1),
        ({"rows": [tool("same", "first"), tool("same", "second"), tool("b")]}, "same b", "same", 1),
        ({"list_error": METHOD_NOT_FOUND}, "", "", 1),
    ],
    ids=["several pages", "a cursor that comes back", "a bad row", "no rows at all", "a name twice", "no tools/list"],
)
@pytest.mark.report(
    "NousResearch/hermes-agent#101669",
    "anomalyco/opencode#49464",
    "Factory-AI/factory#7",
    "vercel/ai#19240",
    "knowsuchagency/mcp2cli#64",
    "AltimateAI/altimate-code#986",
    "open-webui/open-webui#29912",
)
async def test_what_can_be_read_of_a_listing_is_used_and_the_rest_is_named(
    home: Home,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    script: dict[str, Any],
    listed: str,
    rejected: str,
    asked: int,
) -> None:
    """All pages, each once; a row no client could read costs itself alone, and is named in the log and the status."""
    server = Scripted(tmp_path, "box", **script)

    async with running(home, {"box": server.entry()}) as roster:
        assert names(roster, "box") == listed.split()
        note = roster.writer.registry.servers.all()["box"]
        assert (roster.pool["box"].state, roster.pool["box"].error) == (State.READY, None)
        assert (note.tools, "|".join(note.rejected)) == (len(listed.split()), rejected)
        if "same" in listed:
            assert row_of(roster, "box__same")["description"] == "first"
    assert len(server.events("list")) == asked
    assert [name for name in rejected.split("|") if repr(name) not in caplog.text] == ([] if rejected else [""])


async def test_a_page_that_fails_takes_no_known_tool_away(home: Home, tmp_path: Path) -> None:
    """Half a listing adds and changes, but what is not in it was not removed."""
    server = Scripted(tmp_path, "half", pages=[[tool("a")], [tool("b")]])

    async with running(home, {"half": server.entry()}) as roster:
        server.says(pages=[[tool("c")], [tool("b")]], list_error={"code": -32603, "message": "no"}, list_error_page=1)
        await until(lambda: "c" in names(roster, "half"))

        assert sorted(names(roster, "half")) == ["a", "b", "c"]
        assert roster.pool["half"].state is State.READY


@pytest.mark.parametrize("schema", [{}, {"properties": {"x": {"type": "string"}}}, None, "absent"])
@pytest.mark.report("mastra-ai/mastra#23731")
async def test_an_input_schema_without_a_type_is_mended(home: Home, tmp_path: Path, schema: Any) -> None:
    """What strict clients refuse and can only mean an object becomes one; nothing else of it changes."""
    row = {"name": "lax", "description": "d", **({} if schema == "absent" else {"inputSchema": schema})}
    server = Scripted(tmp_path, "lax", rows=[row])

    async with running(home, {"lax": server.entry()}) as roster:
        kept = schema if isinstance(schema, dict) else {}
        assert row_of(roster, "lax__lax") == {**row, "inputSchema": {"type": "object", **kept}}


@pytest.mark.parametrize(
    ("broken", "without"),
    [
        ({"outputSchema": {"type": "array"}}, "outputSchema"),
        ({"outputSchema": {"$ref": "#/$defs/x"}}, "outputSchema"),
        ({"execution": {"taskSupport": "sometimes"}}, "execution"),
        ({"icons": [{"later": 1}], "annotations": 7}, "icons annotations"),
    ],
)
@pytest.mark.report("sandialabs/atlas-ui-3#727")
async def test_an_optional_key_that_breaks_the_protocol_costs_itself_alone(
    home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: dict[str, Any], without: str
) -> None:
    """The tool is listed without it and can be called; what was left out is named in the log."""
    row = tool("odd", "d", title="T")
    server = Scripted(tmp_path, "box", rows=[{**row, **broken}])

    async with running(home, {"box": server.entry()}) as roster:
        assert row_of(roster, "box__odd") == row
        assert (await roster.pool["box"].call("odd", {})).result is not None
        assert roster.writer.registry.servers.all()["box"].rejected == ()
    assert [key for key in without.split() if f"{key} was left out" not in caplog.text] == []


async def test_an_input_schema_of_object_or_null_is_one_of_object(home: Home, tmp_path: Path) -> None:
    """Arguments are never anything else."""
    server = Scripted(tmp_path, "box", rows=[{**tool("lax"), "inputSchema": {"type": ["null", "object"], "x": 1}}])

    async with running(home, {"box": server.entry()}) as roster:
        assert row_of(roster, "box__lax")["inputSchema"] == {"type": "object", "x": 1}


@pytest.mark.report("open-webui/computer#87")
async def test_a_row_keeps_every_key_it_came_with(home: Home, tmp_path: Path) -> None:
    """Keys that no protocol version knows are kept to the letter, at any depth."""
    row = tool(
        "plain",
        "words",
        title="Plain",
        annotations={"readOnlyHint": True, "futureHint": [1]},
        outputSchema={"type": "object", "x-check": {"y": None}},
        icons=[{"src": "data:,", "theme": "dark", "later": 1}],
        execution={"taskSupport": "optional"},
        _meta={"org.example/kept": {"deep": [None, "ü"]}},
        somethingNew={"a": 1},
    )
    server = Scripted(tmp_path, "keys", rows=[row])

    async with running(home, {"keys": server.entry()}) as roster:
        assert row_of(roster, "keys__plain") == row


@pytest.mark.report("IBM/mcp-context-forge#1910")
async def test_a_changed_list_is_read_again(home: Home, tmp_path: Path) -> None:
    """After `list_changed` new tools are on file and missing ones are gone, without a new connection."""
    server = Scripted(tmp_path, "moving", rows=[tool("stays"), tool("goes")])

    async with running(home, {"moving": server.entry()}) as roster:
        server.says(rows=[tool("stays"), tool("comes")])
        await until(lambda: names(roster, "moving") == ["stays", "comes"])
    assert len(server.pids()) == 1


# --------------------------------------------------------------------------------- connections that fail


async def test_a_server_that_never_answers_times_out_and_is_tried_again(home: Home, tmp_path: Path) -> None:
    """`start_timeout_s` bounds the handshake, the reason names it, and once the server answers it is ready."""
    server = Scripted(tmp_path, "slow", rows=[tool("late")], start="hang")

    async with running(home, {"slow": server.entry(start_timeout_s=1)}) as roster:
        slow = roster.pool["slow"]
        assert (slow.state, slow.error) == (State.FAILED, ErrorKind.TIMEOUT)
        assert "1 s" in slow.reason
        assert "start_timeout_s" in slow.reason
        server.says(start=None)
        await until(lambda: names(roster, "slow") == ["late"])
        await until(lambda: slow.state is State.READY)
        assert (slow.error, slow.reason) == (None, "")
    assert len(server.pids()) >= 2


@pytest.mark.parametrize(
    ("entry", "state", "kind", "words"),
    [
        ({"start": "exit"}, State.FAILED, ErrorKind.EXITED, "box.log"),
        ({"start": "refuse"}, State.FAILED, ErrorKind.REJECTED, "answered with an error"),
        ({"command": "no-such-program"}, State.FAILED, ErrorKind.COMMAND_NOT_FOUND, "'no-such-program' was not found"),
        ({"command": __file__}, State.FAILED, ErrorKind.NOT_PERMITTED, "executable"),
        ({"cwd": "/lost/folder"}, State.MISCONFIGURED, ErrorKind.CONFIG, "'/lost/folder' is not a folder"),
    ],
    ids=["ends at once", "refuses the handshake", "not installed", "not executable", "no such folder"],
)
async def test_a_server_that_cannot_be_started_says_why_and_what_to_do(
    home: Home, tmp_path: Path, entry: dict[str, Any], state: State, kind: ErrorKind, words: str
) -> None:
    """One kind each, a reason that names what to look at, and never the server's own words, which may be secret."""
    server = Scripted(tmp_path, "box", start=entry.pop("start", None))

    async with running(home, {"box": server.entry(**entry)}) as roster:
        box = roster.pool["box"]
        await until(lambda: box.state is state)
        assert (box.error, words in box.reason) == (kind, True), box.reason
        assert "not with" not in box.reason


async def test_what_a_server_writes_on_stderr_is_kept_for_its_owner(home: Home, tmp_path: Path) -> None:
    """In a log file of its own, with the owner's rights only."""
    async with running(home, {"a b/c": Scripted(tmp_path, "gone", start="exit").entry()}):
        pass
    (written,) = home.logs.iterdir()
    assert "cannot start: no reason" in written.read_text()
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.logs.stat().st_mode) == 0o700


async def test_a_working_folder_is_named_as_it_is_written(home: Home, tmp_path: Path) -> None:
    """A reference in `cwd` is not resolved in the reason: its value may be nobody's business."""
    server = Scripted(tmp_path, "homeless")

    async with running(home, {"homeless": server.entry(cwd="/lost/${NAME}")}, {**os.environ, "NAME": "Ada"}) as roster:
        assert "/lost/${NAME}" in roster.pool["homeless"].reason
        assert "Ada" not in roster.pool["homeless"].reason


async def test_an_unset_variable_stops_its_own_server_alone(home: Home, tmp_path: Path) -> None:
    """The reason names the variable; nothing was started with a hole in its place, and the others work."""
    broken = Scripted(tmp_path, "broken", rows=[tool("never")])
    whole = Scripted(tmp_path, "whole", rows=[tool("here")])
    entries = {"broken": broken.entry(env={"TOKEN": "${NOBODY_SET_THIS}"}), "whole": whole.entry()}

    async with running(home, entries) as roster:
        assert roster.pool["broken"].state is State.MISCONFIGURED
        assert "NOBODY_SET_THIS" in roster.pool["broken"].reason
        answer = await roster.pool["whole"].call("here", {"n": 1})
        assert text(answer)["arguments"] == {"n": 1}
    assert broken.pids() == []


@pytest.mark.report("JoakimCarlsson/ai#185", "wong2/mcp-cli#7", "cline/cline#12865")
async def test_a_server_knows_its_own_variables_and_little_else_of_ours(home: Home, tmp_path: Path) -> None:
    """References are resolved in env, args and cwd at the start; keys of our own environment stay with us."""
    server = Scripted(tmp_path, "child", rows=[])
    environ = {**os.environ, "MINE": "resolved", "OPENAI_API_KEY": "not yours", "LANG": "C.UTF-8"}
    entry = server.entry("--as=${MINE}", env={"GIVEN": "x-${MINE}", "PORT": 7, "PLAIN": "${ABSENT:-fallback}"})

    async with running(home, {"child": entry}, environ):
        (start,) = server.events("start")
    assert start["argv"] == ["--as=resolved"]
    seen = {key: start["env"].get(key) for key in ("GIVEN", "PORT", "PLAIN", "LANG", "MINE", "OPENAI_API_KEY")}
    assert seen == {
        "GIVEN": "x-resolved",
        "PORT": "7",
        "PLAIN": "fallback",
        "LANG": "C.UTF-8",
        "MINE": None,
        "OPENAI_API_KEY": None,
    }


# ------------------------------------------------------------------------------------- connections lost


@pytest.mark.report("punkpeye/mcp-proxy#14", "metatool-ai/metamcp#294")
async def test_a_server_that_dies_while_idle_is_started_again(home: Home, tmp_path: Path) -> None:
    """A kill between calls is noticed by itself, and the next call meets a living server."""
    server = Scripted(tmp_path, "mortal", rows=[tool("work")])

    async with running(home, {"mortal": server.entry()}) as roster:
        os.kill(server.pids()[0], signal.SIGKILL)
        await until(lambda: len(server.pids()) == 2 and roster.pool["mortal"].state is State.READY)
        answer = await roster.pool["mortal"].call("work", {})
    assert answer.report.cause is Cause.ANSWERED


@pytest.mark.report("IBM/mcp-context-forge#4499", "IBM/mcp-context-forge#4785")
async def test_a_server_that_dies_during_a_call_is_back_for_the_next(home: Home, tmp_path: Path) -> None:
    """The call in flight is reported lost and is never sent twice; the next one works."""
    server = Scripted(tmp_path, "frail", rows=[tool("fatal"), tool("work")], tools={"fatal": {"do": "exit"}})

    async with running(home, {"frail": server.entry()}) as roster:
        lost = await roster.pool["frail"].call("fatal", {})
        after = await roster.pool["frail"].call("work", {})
    assert lost.report.cause is Cause.DISCONNECTED
    assert (lost.result, lost.error) == (None, None)
    assert after.report.cause is Cause.ANSWERED
    assert [params["name"] for params in server.calls()] == ["fatal", "work"]


@pytest.mark.report("NousResearch/hermes-agent#38488")
async def test_a_call_ends_the_wait_for_the_next_try(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the pause has become, a call that needs the server has it tried at once."""
    monkeypatch.setattr(backend, "BACKOFF_S", (3600.0, 3600.0))
    there = tmp_path / "there"
    server = Scripted(tmp_path, "absent", rows=[tool("work")], exit_unless=there)

    async with running(home, {"absent": server.entry()}) as roster:
        absent = roster.pool["absent"]
        await until(lambda: absent.state is State.FAILED)
        refused = await absent.call("work", {})
        there.touch()
        answer = await absent.call("work", {})
    assert refused.report.cause is Cause.UNREACHABLE
    assert not refused.report.sent
    assert answer.report.cause is Cause.ANSWERED


@pytest.mark.report(
    "modelcontextprotocol/python-sdk#79",
    "modelcontextprotocol/python-sdk#360",
    "modelcontextprotocol/python-sdk#496",
    "HKUDS/nanobot#4211",
    "FoundationAgents/OpenManus#1100",
)
async def test_no_process_is_left_when_running_ends(home: Home, tmp_path: Path) -> None:
    """Servers that are idle, busy, still starting or deaf to the end of their input: all are gone afterwards."""
    servers = [
        Scripted(tmp_path, "idle", rows=[tool("a")]),
        Scripted(tmp_path, "busy", rows=[tool("long")], tools={"long": {"do": "hang"}}),
        Scripted(tmp_path, "starting", start="hang"),
        Scripted(tmp_path, "deaf", rows=[tool("b")], start="deaf"),
    ]

    async with running(home, {s.name: s.entry() for s in servers}, settled=False) as roster:
        await until(lambda: all(server.pids() for server in servers))
        async with anyio.create_task_group() as group:
            group.start_soon(roster.pool["busy"].call, "long", {})
            await until(lambda: servers[1].calls())
            await until(lambda: roster.pool["deaf"].state is State.READY)
            group.cancel_scope.cancel()
    assert [server.name for server in servers if any(map(alive, server.pids()))] == []


# --------------------------------------------------------------------------------------------------- calls


async def test_a_call_that_takes_too_long_is_given_up_and_cancelled(home: Home, tmp_path: Path) -> None:
    """`call_timeout_s` ends the call here and says so to the server; its connection goes on."""
    server = Scripted(tmp_path, "stuck", rows=[tool("hangs"), tool("works")], tools={"hangs": {"do": "hang"}})

    async with running(home, {"stuck": server.entry(call_timeout_s=1)}) as roster:
        stuck = roster.pool["stuck"]
        assert (await stuck.call("hangs", {})).report.cause is Cause.TIMEOUT
        await until(lambda: [event["tool"] for event in server.events("cancelled")] == ["hangs"])
        assert (await stuck.call("works", {})).report.cause is Cause.ANSWERED
    assert len(server.pids()) == 1


async def test_progress_gives_a_call_its_time_again(home: Home, tmp_path: Path) -> None:
    """A call far longer than `call_timeout_s` is not cut off while the server reports progress."""
    how = {"do": "progress", "steps": 8, "every_s": 0.2}
    server = Scripted(tmp_path, "steady", rows=[tool("long")], tools={"long": how})
    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with running(home, {"steady": server.entry(call_timeout_s=1)}) as roster:
        answer = await roster.pool["steady"].call("long", {}, on_progress=hear)
        await until(lambda: len(heard) == 8)
    assert answer.report.cause is Cause.ANSWERED
    assert answer.report.latency_ms > 1_000
    assert sorted(heard) == list(range(1, 9))


async def test_arguments_arrive_to_the_letter(home: Home, tmp_path: Path) -> None:
    """Nulls, empty values, large and small numbers, any script, any depth: nothing is dropped or rewritten."""
    server = Scripted(tmp_path, "exact", rows=[tool("t")])
    arguments = {
        "null": None, "nested": {"null": None, "list": [None, {}, [], ""]}, "large": 2**63, "small": -1e-9,
        "whole": 3.0, "yes": True, "text": "naïve 日本語 🎉 \u2028\n\t\u0000", "_meta": {"mine": 1}, "name": "x", "": 0,
    }  # fmt: skip

    async with running(home, {"exact": server.entry()}) as roster:
        answer = await roster.pool["exact"].call("t", arguments)
    assert text(answer)["arguments"] == arguments
    assert server.calls()[0] == {"name": "t", "arguments": arguments}


@pytest.mark.report("lynnswap/XcodeMCPKit#210")
async def test_cancelling_a_call_cancels_it_at_the_server(home: Home, tmp_path: Path) -> None:
    """The server is told which request is no longer wanted."""
    server = Scripted(tmp_path, "patient", rows=[tool("waits")], tools={"waits": {"do": "hang"}})

    async with running(home, {"patient": server.entry()}) as roster, anyio.create_task_group() as group:
        group.start_soon(roster.pool["patient"].call, "waits", {})
        await until(lambda: server.calls("waits"))
        group.cancel_scope.cancel()
    assert [event["tool"] for event in server.events("cancelled")] == ["waits"]


@pytest.mark.report("PrefectHQ/fastmcp#1051", "kirodotdev/KiroCrew#2228", "medmcp/medmcp#62")
async def test_fifty_calls_at_once_each_get_their_own_answer(home: Home, tmp_path: Path) -> None:
    """Calls share one connection without waiting for each other, and answers in reverse order are not crossed."""
    server = Scripted(tmp_path, "crowd", rows=[tool("work")], tools={"work": {"do": "batch", "size": 50}})
    answers: dict[int, Any] = {}

    async with running(home, {"crowd": server.entry()}) as roster:

        async def call(n: int) -> None:
            answers[n] = text(await roster.pool["crowd"].call("work", {"n": n}))["arguments"]["n"]

        async with anyio.create_task_group() as group:
            for n in range(50):
                group.start_soon(call, n)
    assert answers == {n: n for n in range(50)}
    assert len(server.pids()) == 1


async def test_a_server_that_floods_its_stdout_costs_itself_alone(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made to wait, over and over, while a healthy one beside it is not; both answer."""
    rests: list[float] = []

    class Watched(transports.PacedStream):
        def __init__(self, inner: Any) -> None:
            super().__init__(inner, sleep=self._watched)

        async def _watched(self, seconds: float) -> None:
            rests.append(seconds)
            await anyio.sleep(seconds)

    monkeypatch.setattr(transports, "PacedStream", Watched)
    flood = Scripted(tmp_path, "flood", rows=[tool("work")], start="flood")
    healthy = Scripted(tmp_path, "healthy", rows=[tool("work")])

    async with running(home, {"healthy": healthy.entry()}) as roster:
        for n in range(20):
            await roster.pool["healthy"].call("work", {"n": n})
        assert set(rests) <= {0}
    async with running(home, {"flood": flood.entry(), "healthy": healthy.entry()}) as roster:
        for name in ("healthy", "flood"):
            assert text(await roster.pool[name].call("work", {"n": 1}))["arguments"] == {"n": 1}
    assert len([seconds for seconds in rests if seconds > 0]) > 20


# ------------------------------------------------------------------------------------------------- secrets


@pytest.mark.report(
    "smart-mcp-proxy/mcpproxy-go#712",
    "smart-mcp-proxy/mcpproxy-go#1181",
    "chattermate/chattermate.chat#272",
    "punkpeye/mcp-remote#268",
)
async def test_secrets_of_the_config_are_nowhere_to_be_read(
    home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Values behind references, in env, args, headers, command and URL, are in no log, reason or database file."""
    caplog.set_level(logging.DEBUG, "roster")
    canary = "canary-5f2d"
    environ = {**os.environ, "SECRET": canary}
    hidden = {SECRET_ENVIRONMENT: "${SECRET}"}
    servers = [
        Scripted(tmp_path, "fine", rows=[tool("t")]),
        Scripted(tmp_path, "refuses", start="refuse"),
        Scripted(tmp_path, "ends", start="exit"),
        Scripted(tmp_path, "hangs", start="hang"),
    ]
    entries = {s.name: s.entry("--token=${SECRET}", env=hidden) for s in servers}
    entries["hangs"]["start_timeout_s"] = 1
    remote = {"url": f"http://127.0.0.1:{_free_port()}/${{SECRET}}", "headers": {"Authorization": "Bearer ${SECRET}"}}
    entries |= {
        "remote": {**remote, "type": "http"},
        "older": {**remote, "type": "sse"},
        "command": {"command": "/lost/${SECRET}"},
    }

    async with running(home, entries, environ) as roster:
        await roster.pool["fine"].call("t", {})
        reasons = {name: one.reason for name, one in roster.pool.items()}
        assert {name for name, reason in reasons.items() if not reason} == {"fine"}
    assert [name for name, reason in reasons.items() if canary in reason] == []
    assert canary in servers[0].events("start")[0]["env"].values()
    assert [record.getMessage() for record in caplog.records if canary in record.getMessage()] == []
    assert [file.name for file in home.folder.glob("roster.db*") if canary.encode() in file.read_bytes()] == []


# ---------------------------------------------------------------------------------------------- HTTP and SSE


def _free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


READS = {"readOnlyHint": True}


class Guard:
    """ASGI middleware that keeps the requests' headers, and may answer for the app."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.headers: list[dict[str, str]] = []
        self.ended: list[str | None] = []
        self.status: int | None = None
        self.with_headers: dict[str, str] = {}
        self.forgotten: set[str] = set()
        self.deaf_to_the_end = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            seen = {key.decode(): value.decode() for key, value in scope["headers"]}
            self.headers.append(seen)
            if scope["method"] == "DELETE":
                self.ended.append(seen.get("mcp-session-id"))
                if self.deaf_to_the_end:
                    await anyio.sleep_forever()
            status = 404 if seen.get("mcp-session-id") in self.forgotten else self.status
            if status:
                await Response(status_code=status, headers=self.with_headers)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def sessions(self) -> set[str]:
        return {seen["mcp-session-id"] for seen in self.headers if "mcp-session-id" in seen}


def _remote_server() -> Server[Any]:
    async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool.model_validate(tool("echo", annotations=READS))])

    async def called(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        said = json.dumps({"tool": params.name, "arguments": params.arguments})
        return types.CallToolResult(content=[types.TextContent(type="text", text=said)])

    return Server("remote", on_list_tools=listed, on_call_tool=called)


def _sse_app() -> Starlette:
    server, transport = _remote_server(), SseServerTransport("/messages/")

    async def connect(request: Any) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return Response()

    return Starlette(
        routes=[Route("/sse", connect, methods=["GET"]), Mount("/messages/", app=transport.handle_post_message)]
    )


async def test_a_server_over_streamable_http_lists_and_answers(home: Home) -> None:
    """A bare URL is tried as streamable HTTP first; headers are sent with their references resolved."""
    guard = Guard(_remote_server().streamable_http_app())
    environ = {**os.environ, "TOKEN": "sesame"}

    async with listening(guard) as address:
        entry = {"url": f"{address}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
        async with running(home, {"web": entry}, environ) as roster:
            assert names(roster, "web") == ["echo"]
            assert text(await roster.pool["web"].call("echo", {"a": 1})) == {"tool": "echo", "arguments": {"a": 1}}
    assert {seen.get("authorization") for seen in guard.headers} == {"Bearer sesame"}
    assert len(guard.sessions()) == 1


@pytest.mark.parametrize("named", [{"type": "sse"}, {}])
async def test_a_server_over_sse_lists_and_answers(home: Home, named: dict[str, str]) -> None:
    """The older transport works when it is named, and a bare URL falls back to it."""
    entry = {"url": "${ADDRESS}/sse", **named}

    async with listening(_sse_app()) as address, running(home, {"old": entry}, {"ADDRESS": address}) as roster:
        assert names(roster, "old") == ["echo"]
        assert text(await roster.pool["old"].call("echo", {"a": 1})) == {"tool": "echo", "arguments": {"a": 1}}
        assert roster.pool["old"].state is State.READY


@pytest.mark.parametrize(
    ("status", "headers", "wait_s"),
    [(429, {"retry-after": "7"}, 7), (503, {"retry-after": "x"}, None), (401, {}, None)],
)
async def test_a_call_that_is_refused_by_http_says_with_what(
    home: Home, status: int, headers: dict[str, str], wait_s: float | None
) -> None:
    """The status and how long to wait, for the call that was refused and for no other; the SDK keeps neither."""
    guard = Guard(_remote_server().streamable_http_app())

    async with listening(guard) as address, running(home, {"web": {"url": f"{address}/mcp"}}) as roster:
        guard.status, guard.with_headers = status, headers
        refused = (await roster.pool["web"].call("echo", None)).report
        guard.status = None
        answered = (await roster.pool["web"].call("echo", None)).report
    assert (refused.cause, refused.status, refused.retry_after_s) == (Cause.RPC_ERROR, status, wait_s)
    assert (answered.cause, answered.status, answered.retry_after_s) == (Cause.ANSWERED, None, None)


@pytest.mark.report("sparfenyuk/mcp-proxy#75", "sparfenyuk/mcp-proxy#149", "metatool-ai/metamcp#166")
async def test_a_session_the_server_has_forgotten_is_opened_anew(home: Home) -> None:
    """What only reads is asked once more, in a new session."""
    guard = Guard(_remote_server().streamable_http_app())

    async with listening(guard) as address, running(home, {"web": {"url": f"{address}/mcp"}}) as roster:
        guard.forgotten = guard.sessions()
        assert text(await roster.pool["web"].call("echo", {"a": 1}))["arguments"] == {"a": 1}
    assert len(guard.sessions()) == 2


@pytest.mark.parametrize("times", [0, 5])
async def test_every_session_is_ended_that_the_server_still_knows(home: Home, times: int) -> None:
    """One for each connection, however often it had to be opened anew; nothing is left to the server's memory."""
    guard = Guard(_remote_server().streamable_http_app())

    async with listening(guard) as address:
        async with running(home, {"web": {"url": f"{address}/mcp", "headers": {"X-Key": "sesame"}}}) as roster:
            for _ in range(times):
                guard.forgotten |= guard.sessions()
                assert (await roster.pool["web"].call("echo", {})).report.cause is Cause.ANSWERED
        assert len(guard.sessions()) == times + 1
        assert set(guard.ended) == guard.sessions() - guard.forgotten
        assert len(guard.ended) == 1
    assert {seen.get("x-key") for seen in guard.headers} == {"sesame"}


async def test_a_server_that_does_not_end_its_session_is_not_waited_for(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not beyond a moment: whoever ends Roster does not wait for others."""
    monkeypatch.setattr(transports, "GOODBYE_S", 0.1)
    guard = Guard(_remote_server().streamable_http_app())
    guard.deaf_to_the_end = True

    async with listening(guard) as address:
        async with running(home, {"web": {"url": f"{address}/mcp"}}) as roster:
            assert roster.pool["web"].state is State.READY
            begun = anyio.current_time()
        assert anyio.current_time() - begun < 5
        assert len(guard.ended) == 1


@pytest.mark.parametrize("status", [401, 500])
@pytest.mark.parametrize("named", [{"type": "http"}, {"type": "sse"}, {}])
async def test_a_remote_server_that_refuses_says_so(home: Home, status: int, named: dict[str, str]) -> None:
    """A refusal is told apart from an address where nobody is, whether or not the transport was named."""
    guard = Guard(_remote_server().streamable_http_app())
    guard.status = status

    async with listening(guard) as address, running(home, {"web": {"url": f"{address}/mcp", **named}}) as roster:
        web = roster.pool["web"]
        assert (web.state, web.error) == (State.FAILED, ErrorKind.REJECTED), web.reason
        assert "credentials" in web.reason


@pytest.mark.parametrize("named", [{"type": "http"}, {"type": "sse"}, {}])
async def test_an_address_where_nobody_listens_is_unreachable(home: Home, named: dict[str, str]) -> None:
    """The reason points at the address and at whether the server runs."""
    async with running(home, {"web": {"url": f"http://127.0.0.1:{_free_port()}/mcp", **named}}) as roster:
        web = roster.pool["web"]
        assert (web.state, web.error) == (State.FAILED, ErrorKind.UNREACHABLE)
        assert "address cannot be reached" in web.reason


@pytest.mark.report("punkpeye/mcp-proxy#14", "metatool-ai/metamcp#294")
async def test_a_remote_server_that_goes_away_is_found_again(home: Home) -> None:
    """A call meets the server that came back at the same address, whatever was noticed in between."""
    port = _free_port()
    entry = {"url": f"http://127.0.0.1:{port}/mcp", "call_timeout_s": 10}

    async with running(home, {"web": entry}, settled=False) as roster:
        async with listening(_remote_server().streamable_http_app(), port):
            await until(lambda: roster.pool["web"].state is State.READY)
        async with listening(_remote_server().streamable_http_app(), port):
            for _ in range(2):  # the first call may be the one that finds the old connection dead
                answer = await roster.pool["web"].call("echo", {"a": 1})
            assert text(answer)["arguments"] == {"a": 1}
