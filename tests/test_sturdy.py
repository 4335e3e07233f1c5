"""What must not take a connection, a call, a draft or the process down with it: damage from outside, of every kind."""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from fakes import WordEncoder, python, tool
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from scripted_backend import Scripted, raw, running, until
from test_server_five import client_of, failure_in, texts
from test_serving import Serving, stored_vectors

from roster import app, cli, statuspage
from roster.app import Roster, open_roster
from roster.backends import State, backend, pool
from roster.backends.transports import STDERR_LIMIT_BYTES, ErrorKind, cut_logs, log_file
from roster.backends.wire import usable_row
from roster.briefs import brief, trimmed_input
from roster.cards import card_from_tool
from roster.config import Home, expand, load_config, open_home
from roster.dense import read_manifest
from roster.errors import VariableError
from roster.mended import mended
from roster.outcomes import Cause
from roster.ratings import wilson_lower
from roster.registry import Registry
from roster.server import NO_MATCH
from roster.servernotes import ServerNotes

pytestmark = pytest.mark.anyio

CALENDAR = [tool("add_event", "Add an event to the calendar"), tool("list_events", "List the events of a day")]
NEED = "add an event to the calendar"
HALF, REPLACED = "\ud83d", "\ufffd"
SOON_S = 5.0
BRIEF_LIMIT = 15_000

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes, pipes and folders of POSIX")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists are read again, and lost backends tried again, after hundredths of a second."""
    monkeypatch.setattr(backend, "BACKOFF_S", (0.03, 0.1))
    monkeypatch.setattr(backend, "RELIST_PAUSE_S", 0.01)


@pytest.fixture(autouse=True)
def _words(monkeypatch: pytest.MonkeyPatch, encoder: WordEncoder) -> None:
    """Whatever runs in this process embeds by hashing words."""
    for module in (app, statuspage):
        monkeypatch.setattr(module, "open_encoder", lambda *_: encoder)


@pytest.fixture
def calendar(home: Home, tmp_path: Path) -> Scripted:
    """A server that is in roster.json."""
    server = Scripted(tmp_path, "calendar", rows=CALENDAR)
    home.config.write_text(json.dumps({"mcpServers": {"calendar": server.entry()}}), encoding="utf-8")
    return server


@pytest.fixture
def serving(home: Home, calendar: Scripted) -> Iterator[Serving]:
    """`roster serve --five` as a process, over the calendar; it goes at the end, whatever became of it."""
    one = Serving(home, "--five")
    yield one
    if one.process.poll() is None:
        one.ended(one.process.kill)


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command line in this process: its exit status, what it wrote on stdout, and on stderr."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(cli, "_log_to_stderr", lambda level: None)

    def ran(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["roster", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return (int(ended.value.code or 0), *capsys.readouterr())

    return ran


def names(roster: Roster, server: str) -> list[str]:
    """The tools of one server that are on file and there, in its own order."""
    roster.catalogue.refresh()
    return [entry.card.name for entry in roster.catalogue.living() if entry.card.server == server]


def seen_by(condition: Callable[[], Any]) -> None:
    """Look until the condition holds; fails after half a minute."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


@asynccontextmanager
async def drafting(home: Home, server: Scripted) -> AsyncIterator[tuple[Roster, Any]]:
    """A Roster that keeps its index over one server, and a client of it in five mode."""
    async with running(home, {server.name: server.entry()}, indexed=True) as roster, client_of(roster) as client:
        yield roster, client


# --------------------------------------------------------------------------------- lines that are hardly JSON


def unreadable(line: str) -> ValidationError:
    """What the SDK's reader hands on for a line it cannot read."""
    with pytest.raises(ValidationError) as caught:
        types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    return caught.value


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"x\ud83d", "x\ufffd"),
        (r"\ude00x", "\ufffdx"),
        (r"\ud83d\ude00 \ud83d", "\U0001f600 \ufffd"),
        (r"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
    ],
)
def test_half_a_character_is_replaced_and_the_rest_of_the_line_is_read(written: str, read: str) -> None:
    """As text, as a key and inside lists; whole pairs beside it stay what they are."""
    line = f'{{"jsonrpc": "2.0", "id": 7, "result": {{"{written}": ["{written}", 1.5, null]}}}}'

    message = mended(unreadable(line))
    assert isinstance(message, SessionMessage)
    assert isinstance(message.message, types.JSONRPCResponse)
    assert (message.message.id, message.message.result) == (7, {read: [read, 1.5, None]})


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc": "2.0", "id": 7, "result": {"content": [',
        '{"id":7,"jsonrpc":"2.0","result":' + "[" * 100_000,
        '{"result": {"content": [}, "jsonrpc": "2.0", "id": 7}',
        '{"jsonrpc": "2.0", "id": 7, "result": "' + "x" * 10_000,
    ],
)
def test_an_answer_that_cannot_be_read_is_an_error_for_whoever_waits(line: str) -> None:
    """Its id, at either end of the line, says for whom; the words quote nothing of it."""
    message = mended(unreadable(line))

    assert isinstance(message, SessionMessage)
    assert isinstance(message.message, types.JSONRPCError)
    assert (message.message.id, message.message.error.code) == (7, types.PARSE_ERROR)
    assert message.message.error.data is None


@pytest.mark.parametrize("line", ["this is no message", '{"jsonrpc": "2.0", "id": 7, "method": "ping"', "[1, 2]", ""])
def test_a_line_that_answers_nobody_stays_an_error(line: str) -> None:
    """Also a request that was cut short: nobody here waits for it."""
    error = unreadable(line)
    assert mended(error) is error


def test_an_error_that_is_about_no_line_stays_as_it_is() -> None:
    """A stream may hand on any exception."""
    error = OSError("gone")
    assert mended(error) is error


async def test_half_a_character_in_an_answer_or_a_listing_costs_nothing_else(home: Home, tmp_path: Path) -> None:
    """Both are read with the half replaced, and the call is answered like any other."""
    said = {"content": [{"type": "text", "text": f"done {HALF}!"}]}
    rows = [tool("react", f"React with {HALF} to a message"), tool("plain")]
    server = Scripted(tmp_path, "chat", rows=rows, tools={"react": {"do": "result", "result": said}})

    async with running(home, {"chat": server.entry()}) as roster:
        chat = roster.pool["chat"]
        assert names(roster, "chat") == ["react", "plain"]
        react = roster.catalogue.find("chat__react")
        with anyio.fail_after(SOON_S):
            answer = await chat.call("react", {})
            after = await chat.call("plain", {})
    assert react is not None
    assert react.card.description == f"React with {REPLACED} to a message"
    assert answer.result == {"content": [{"type": "text", "text": f"done {REPLACED}!"}]}
    assert after.report.cause is Cause.ANSWERED
    assert len(server.pids()) == 1


async def test_a_broken_answer_fails_its_own_call_at_once(home: Home, tmp_path: Path) -> None:
    """Long before the time for a call is up, and the connection goes on with the others."""
    server = Scripted(tmp_path, "box", rows=[tool("bad"), tool("good")], tools={"bad": {"do": "broken"}})

    async with running(home, {"box": server.entry(call_timeout_s=300)}) as roster:
        with anyio.fail_after(SOON_S):
            bad = await roster.pool["box"].call("bad", {})
            good = await roster.pool["box"].call("good", {})
    assert (bad.report.cause, bad.report.code) == (Cause.RPC_ERROR, types.PARSE_ERROR)
    assert good.report.cause is Cause.ANSWERED
    assert len(server.pids()) == 1


def test_a_need_with_half_a_character_is_answered(serving: Serving) -> None:
    """Clients cut emoji in two as well; over real pipes the draft comes, and says what was read."""
    serving.handshake()
    shown = serving.use("draft", need=f"{NEED} {HALF}")["structuredContent"]

    assert shown["need"] == f"{NEED} {REPLACED}"
    assert [starter["id"] for starter in shown["starters"]] == ["calendar__add_event", "calendar__list_events"]
    assert serving.ended() == 0


# ------------------------------------------------------------------------------------ backends that misbehave


async def test_a_changed_list_that_cannot_be_read_ends_neither_call_nor_connection(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call in flight gets its answer, the old tools stay, and the list is asked for again until it is given."""
    monkeypatch.setattr(backend, "OWED_PAUSE_S", 0.02)
    gate = tmp_path / "gate"
    how = {"work": {"do": "gate", "file": gate}}
    server = Scripted(tmp_path, "moody", rows=[tool("work")], tools=how)
    answers: list[backend.Answer] = []

    async with running(home, {"moody": server.entry()}) as roster, anyio.create_task_group() as group:

        async def call() -> None:
            answers.append(await roster.pool["moody"].call("work", {}))

        group.start_soon(call)
        await until(server.calls)
        server.says(list_error={"code": -32603, "message": "no"}, list_error_page=0)
        await until(lambda: len(server.events("list")) >= 4)
        assert names(roster, "moody") == ["work"]
        assert roster.pool["moody"].state is State.READY
        gate.touch()
        await until(lambda: answers)
        server.says(rows=[tool("work"), tool("rest")], list_error_page=9)
        await until(lambda: names(roster, "moody") == ["work", "rest"])
    assert answers[0].report.cause is Cause.ANSWERED
    assert len(server.pids()) == 1


@pytest.mark.report("NousResearch/hermes-agent#38488", "IBM/mcp-context-forge#159")
async def test_a_server_is_tried_without_end_and_taken_once_it_is_mended(home: Home, tmp_path: Path) -> None:
    """However often it has failed before. Its state is what the last attempt has shown."""
    server = Scripted(tmp_path, "broken", rows=[tool("works")], start="exit")

    async with running(home, {"broken": server.entry()}) as roster:
        broken = roster.pool["broken"]
        await until(lambda: len(server.pids()) >= 10)
        await until(lambda: (broken.state, broken.error) == (State.FAILED, ErrorKind.EXITED))
        server.says(start=None)
        await until(lambda: broken.state is State.READY)
        assert (broken.error, broken.reason) == (None, "")
        assert (await broken.call("works", {})).report.cause is Cause.ANSWERED


@pytest.mark.report("metatool-ai/metamcp#324", "PrefectHQ/fastmcp#3466", "PrefectHQ/fastmcp#1583")
async def test_however_often_it_is_called_and_listed_a_server_is_opened_once(home: Home, tmp_path: Path) -> None:
    """One process and one handshake: neither a call nor a changed list is a reason to connect anew."""
    server = Scripted(tmp_path, "box", rows=[tool("one")])

    async with running(home, {"box": server.entry()}) as roster:
        box = roster.pool["box"]
        for n in range(2, 5):
            for _ in range(5):
                assert (await box.call("one", {})).report.cause is Cause.ANSWERED
            server.says(rows=[tool(f"tool_{m}") for m in range(n)])
            await until(lambda n=n: len(roster.sightings["box"]) >= n)
        assert len(server.calls()) == 15
    assert len(server.pids()) == len(server.events("handshake")) == 1


async def test_a_server_that_lists_and_dies_is_not_started_over_and_over(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call is good for one more start, not for a storm of them."""
    monkeypatch.setattr(backend, "BACKOFF_S", (3600.0, 3600.0))
    server = Scripted(tmp_path, "mayfly", rows=[tool("work")], exit_listed=True)

    async with running(home, {"mayfly": server.entry(start_timeout_s=1)}, settled=False) as roster:
        mayfly = roster.pool["mayfly"]
        await until(lambda: mayfly.state is State.FAILED)
        assert names(roster, "mayfly") == ["work"]
        answer = await mayfly.call("work", {})
        with anyio.move_on_after(1):
            await until(lambda: len(server.pids()) > 4)
    assert answer.report.cause in (Cause.UNREACHABLE, Cause.DISCONNECTED)
    assert 2 <= len(server.pids()) <= 4


@pytest.mark.report("Yeachan-Heo/gajae-code#5702", "metatool-ai/metamcp#350")
async def test_hung_servers_do_not_keep_a_good_one_from_starting(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait for an answer before it, its turn comes soon."""
    monkeypatch.setattr(backend, "PLACE_WAIT_S", 0.1)
    hung = [Scripted(tmp_path, f"hung{n}", start="hang") for n in range(pool.STARTING_AT_ONCE + 1)]
    good = Scripted(tmp_path, "good", rows=[tool("work")])

    async with running(home, {s.name: s.entry() for s in (*hung, good)}, settled=False) as roster:
        with anyio.fail_after(SOON_S):
            await roster.pool["good"].settled()
        assert names(roster, "good") == ["work"]
        assert {roster.pool[server.name].state for server in hung} == {State.STARTING}


async def test_a_log_that_grows_is_emptied_while_its_server_writes(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start and later on; the server's next words are in it, with no hole before them."""
    monkeypatch.setattr(pool, "LOG_CHECK_S", 0.02)
    log = log_file(home.logs, "box")
    home.logs.mkdir()
    log.write_bytes(b"old\n" * STDERR_LIMIT_BYTES)
    server = Scripted(tmp_path, "box", rows=[tool("t")], tools={"t": {"do": "grumble"}})

    async with running(home, {"box": server.entry()}) as roster:
        assert b"old" not in log.read_bytes()
        await roster.pool["box"].call("t", {"words": "x" * (STDERR_LIMIT_BYTES + 1)})
        await until(lambda: log.stat().st_size <= STDERR_LIMIT_BYTES)
        await roster.pool["box"].call("t", {"words": "afterwards"})
    said = log.read_bytes()
    assert said.endswith(b"afterwards\n")
    assert b"\0" not in said


def test_only_logs_that_have_outgrown_their_limit_are_emptied(tmp_path: Path) -> None:
    """Others, other files, and a folder that is not there are left alone."""
    kept = b"x" * STDERR_LIMIT_BYTES
    for name in ("full.log", "large.txt"):
        (tmp_path / name).write_bytes(kept + b"x")
    (tmp_path / "small.log").write_bytes(kept)
    (tmp_path / "folder.log").mkdir()

    with (tmp_path / "full.log").open("ab", buffering=0) as writer:
        cut_logs(tmp_path)
        writer.write(b"more")
    cut_logs(tmp_path / "absent")
    assert (tmp_path / "full.log").read_bytes() == b"more"
    assert (tmp_path / "small.log").read_bytes() == kept
    assert (tmp_path / "large.txt").read_bytes() == kept + b"x"


def test_no_two_servers_share_a_log(tmp_path: Path) -> None:
    """Names that a file cannot have, or that are too long for one, are told apart; an ordinary one is the file's."""
    names = ["a b", "a-b", "a/b", "a  b", "..", "日本", "日 本", "x" * 81, "x" * 82, "x" * 80, "lone \ud83d"]
    files = [log_file(tmp_path, name) for name in names]

    assert len(set(files)) == len(names)
    assert {file.parent for file in files} == {tmp_path}
    assert log_file(tmp_path, "a-b") == tmp_path / "a-b.log"


async def test_a_logs_folder_that_cannot_be_written_keeps_no_server_from_starting(
    home: Home, calendar: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    """What they say on stderr is lost, and a warning says so."""
    home.logs.write_text("a file is in its place")

    async with running(home, {"calendar": calendar.entry()}) as roster:
        answer = await roster.pool["calendar"].call("add_event", {})
    assert answer.report.cause is Cause.ANSWERED
    assert "cannot be written" in caplog.text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_has_no_form_for_become_null(value: float) -> None:
    """At any depth of a listing row; every other number stays."""
    schema = {"type": "object", "properties": {"n": {"type": "number", "default": value, "enum": [1.5, value, 2]}}}

    row, reason = usable_row({**tool("t"), "inputSchema": schema, "_meta": {"deep": [{"x": value}]}})
    assert (row is not None, reason) == (True, "")
    assert row is not None
    assert row["inputSchema"]["properties"]["n"] == {"type": "number", "default": None, "enum": [1.5, None, 2]}
    assert row["_meta"] == {"deep": [{"x": None}]}


async def test_a_draft_is_json_whatever_numbers_a_schema_holds(home: Home, tmp_path: Path) -> None:
    """Strict parsers refuse NaN and Infinity, and clients have strict parsers."""
    nan, infinite = float("nan"), float("inf")
    schema = {"type": "object", "properties": {"n": {"type": "number", "default": nan, "maximum": infinite}}}
    server = Scripted(tmp_path, "sums", rows=[{**tool("add", "Add numbers"), "inputSchema": schema}])

    async with drafting(home, server) as (_, client):
        (text,) = texts(await client.call_tool("draft", {"need": "add numbers"}))
    shown = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert list(shown["starters"][0]["input"]["properties"]) == ["n"]


# ------------------------------------------------------------------------------------ disks and databases


@pytest.mark.parametrize("what", ["saving", "embedding"])
async def test_an_index_that_cannot_be_kept_ends_no_serving(
    home: Home, calendar: Scripted, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A full disk, a file where a folder should be: drafts go on, also with tools that come later."""

    def full(_: Sequence[str]) -> None:
        raise OSError(28, "No space left on device")

    if what == "saving":
        home.index.write_text("a file is in its place")
    else:
        monkeypatch.setattr(app, "open_encoder", lambda *_: WordEncoder(before=full))

    async with drafting(home, calendar) as (roster, client):
        with anyio.fail_after(SOON_S):
            first = await client.call_tool("draft", {"need": NEED, "k": 1})
            calendar.says(rows=[*CALENDAR, tool("water_plants", "Water the plants")])
            await until(lambda: "water_plants" in names(roster, "calendar"))
            second = await client.call_tool("draft", {"need": "water the plants", "k": 1})
    drafted = [reply.structured_content["starters"][0]["id"] for reply in (first, second)]
    assert drafted == ["calendar__add_event", "calendar__water_plants"]


def test_reindex_says_in_one_line_that_it_cannot_write(home: Home, calendar: Scripted, command: Command) -> None:
    """Exit status 1 and no traceback; the figures, which would not be true, are not printed."""
    home.index.write_text("a file is in its place")

    status, out, err = command("reindex")
    assert (status, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith("roster: ")
    assert str(home.index) in line


async def test_a_listing_that_cannot_be_put_on_file_is_owed(
    home: Home, calendar: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection goes on and is called over; the list is read again until the database takes it."""
    monkeypatch.setattr(backend, "OWED_PAUSE_S", 0.02)
    sight, tries, mended_now = Registry.sight, [], anyio.Event()

    def locked(self: Registry, *args: Any, **more: Any) -> Any:
        tries.append(args)
        if not mended_now.is_set():
            raise sqlite3.OperationalError("database is locked")
        return sight(self, *args, **more)

    monkeypatch.setattr(Registry, "sight", locked)
    async with running(home, {"calendar": calendar.entry()}) as roster:
        await until(lambda: len(tries) >= 3)
        answer = await roster.pool["calendar"].call("add_event", {})
        mended_now.set()
        await until(lambda: names(roster, "calendar") == ["add_event", "list_events"])
        assert roster.pool["calendar"].state is State.READY
    assert answer.report.cause is Cause.ANSWERED
    assert len(calendar.pids()) == 1


async def test_a_state_that_cannot_be_noted_costs_no_connection(
    home: Home, calendar: Scripted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said in the log, and the server lists and answers."""

    def locked(*_: Any) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(ServerNotes, "note", locked)
    async with running(home, {"calendar": calendar.entry()}) as roster:
        assert names(roster, "calendar") == ["add_event", "list_events"]
        answer = await roster.pool["calendar"].call("add_event", {})
    assert answer.report.cause is Cause.ANSWERED
    assert len(calendar.pids()) == 1
    assert "the state of calendar could not be noted: disk I/O error" in caplog.text


async def test_a_database_that_somebody_holds_delays_no_answer(
    home: Home, calendar: Scripted, connect: Callable[[], sqlite3.Connection]
) -> None:
    """The call is answered at once; its outcome is recorded when the database is free again."""
    other, reader = connect(), connect()

    def recorded() -> list[tuple[Any, ...]]:
        return reader.execute("SELECT card, outcome FROM outcomes").fetchall()

    async with running(home, {"calendar": calendar.entry()}) as roster, client_of(roster) as client:
        other.execute("BEGIN IMMEDIATE")
        begun = anyio.current_time()
        reply = await client.call_tool("call", {"tool": "calendar__add_event"})
        took = anyio.current_time() - begun
        assert recorded() == []
        other.execute("ROLLBACK")
        await until(recorded)
    assert not reply.is_error
    assert took < 1.5
    assert recorded() == [("calendar__add_event", "success")]


@posix
def test_closing_stdin_ends_the_process_in_the_middle_of_embedding(
    home: Home, tmp_path: Path, db: sqlite3.Connection
) -> None:
    """It does not embed hundreds of texts for a client that has gone; what was embedded is kept."""
    words = "the quick brown fox jumps over the lazy dog and looks for a calendar in every drawer of the old house "
    rows = [tool(f"tool_{n}", f"Number {n}: {words * 10}") for n in range(400)]
    server = Scripted(tmp_path, "many", rows=rows)
    home.config.write_text(json.dumps({"mcpServers": {"many": server.entry()}}), encoding="utf-8")

    def stored() -> int:
        return int(db.execute("SELECT count(*) FROM vectors").fetchone()[0])

    one = Serving(home, "--five")
    try:
        one.handshake()
        one.ask("tools/list")
        seen_by(stored)
        begun = time.monotonic()
        status = one.ended()
        took = time.monotonic() - begun
    finally:
        if one.process.poll() is None:
            one.ended(one.process.kill)
    assert (status, "".join(one.errors)) == (0, "")
    assert 0 < stored() < len(rows)
    assert took < 8


AT_THE_LOCK = """
import sys
from pathlib import Path
from fakes import WordEncoder
from roster import app, cli
from roster.catalogue import Catalogue

take_stored, waits = Catalogue.take_stored, Path(sys.argv[1])

def noted(self):
    waits.touch()
    take_stored(self)

Catalogue.take_stored = noted
app.open_encoder = lambda *_: WordEncoder()
sys.argv = ["roster", "serve", "--five"]
cli.main()
"""


@posix
def test_closing_stdin_ends_a_process_that_waits_for_its_turn_to_embed(
    home: Home, calendar: Scripted, tmp_path: Path
) -> None:
    """Another process may hold the lock for minutes; nobody has to wait for that."""
    asked: list[dict[str, Any]] = [
        {
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "0"},
            },
        },
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    ]
    waits = tmp_path / "waits"

    with FileLock(home.folder / "embedding.lock"), python(AT_THE_LOCK, str(waits)) as process:
        try:
            assert process.stdin is not None
            process.stdin.write("".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in asked))
            process.stdin.flush()
            seen_by(waits.exists)
            process.stdin.close()
            assert process.wait(SOON_S) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("drafted", [True, False], ids=["at the next draft", "by itself"])
async def test_a_card_cleared_by_another_process_gets_its_vector(
    home: Home,
    calendar: Scripted,
    connect: Callable[[], sqlite3.Connection],
    monkeypatch: pytest.MonkeyPatch,
    drafted: bool,
) -> None:
    """`roster unquarantine` while serving: the card is found by meaning again, not by its words alone."""
    if not drafted:
        monkeypatch.setattr(app, "LOOK_AGAIN_S", 0.05)
    id_ = "calendar__add_event"
    elsewhere = Registry(connect())

    async with drafting(home, calendar) as (roster, _):
        await roster.draft(NEED, 1)
        calendar.says(rows=[tool("add_event", "Add an event to the calendar, or to another one"), CALENDAR[1]])
        await until(lambda: elsewhere.held(id_))
        assert id_ not in (await roster.draft(NEED, 5)).ranking
        elsewhere.unquarantine(id_, 0.0)
        if drafted:
            assert id_ in (await roster.draft(NEED, 5)).ranking
        entry = roster.writer.registry.find(id_)
        assert entry is not None
        assert roster.catalogue.dense is not None
        await until(lambda: roster.catalogue.dense is not None and entry.number in roster.catalogue.dense)
        made = await roster.draft(NEED, 5)
    assert made.ranking[0] == id_
    assert made.running[0][1].similarity is not None


def test_a_full_reindex_that_was_killed_is_finished_by_the_next_plain_one(
    home: Home, calendar: Scripted, command: Command
) -> None:
    """After the vectors are gone nothing looks finished: they are made again, and the index with them."""

    def embedded() -> int:
        status, out, err = command("reindex", "--json")
        assert status == 0, err
        return int(json.loads(out)["embedded"])

    assert (embedded(), embedded()) == (2, 0)
    with open_roster(load_config(home), home) as roster:
        roster.warm_up()
        roster.forget_vectors()
    assert stored_vectors(home) == []

    assert (embedded(), embedded()) == (2, 0)
    assert (read_manifest(home.index) or {})["count"] == len(stored_vectors(home)) == 2


@pytest.mark.parametrize(
    "written",
    [
        '{"encoder": 7, "count": 2}',
        '{"encoder": "x", "count": "2"}',
        '{"encoder": null, "count": null}',
        '{"encoder": ["x"], "count": [2]}',
        '{"encoder": "x"}',
        "[]",
        "null",
        "\ufeff{",
    ],
)
def test_a_manifest_of_other_types_is_none(home: Home, calendar: Scripted, command: Command, written: str) -> None:
    """Whatever somebody has made of the file, it is taken for none, and `roster status` goes on."""
    home.index.mkdir()
    (home.index / "manifest.json").write_text(written, encoding="utf-8")

    assert read_manifest(home.index) is None
    status, out, err = command("status")
    assert (status, err) == (0, "")
    assert "index: not made yet" in out


# --------------------------------------------------------------------------------------- what is shown of a card

MEGABYTE = "x" * 1_000_000

HUGE: dict[str, dict[str, Any]] = {
    "properties": {"properties": {f"p{n}": {"type": "string"} for n in range(50_000)}},
    "required": {
        "properties": {f"p{n}": {"type": "string"} for n in range(1_000)},
        "required": [f"p{n}" for n in range(1_000)],
    },
    "nested": {"properties": {"a": {"properties": {f"p{n}": {"type": "string"} for n in range(50_000)}}}},
    "enum of one": {"properties": {"a": {"enum": [MEGABYTE]}}},
    "enum of many": {"properties": {"a": {"enum": [f"{n} {'x' * 20}" for n in range(50_000)]}}},
    "default": {"properties": {"a": {"type": "string", "default": MEGABYTE}}},
    "const": {"properties": {"a": {"const": MEGABYTE}}, "required": ["a"]},
    "defaults of many": {"properties": {f"p{n}": {"default": "x" * 10_000} for n in range(100)}},
    "name": {"properties": {MEGABYTE: {"type": "string"}}, "required": [MEGABYTE]},
    "description": {"properties": {"a": {"description": MEGABYTE}}, "description": MEGABYTE},
    "alternatives": {"anyOf": [{"const": f"{n} {'x' * 20}"} for n in range(50_000)]},
    "alternatives of a property": {"properties": {"a": {"anyOf": [{"const": n} for n in range(50_000)]}}},
    "reference": {"properties": {"a": {"$ref": f"#/$defs/{MEGABYTE}"}}},
    "type": {"properties": {"a": {"type": ["string"] * 50_000}}},
    "items": {"properties": {"a": {"items": {"items": {"enum": [MEGABYTE]}}}}},
}


@pytest.mark.parametrize("huge", HUGE)
def test_a_huge_schema_makes_a_brief_of_bounded_size(huge: str) -> None:
    """Every draft is read by a model that pays by the token: an attack, or a bad generator, costs it little."""
    row = {**tool("t", MEGABYTE), "inputSchema": {"type": "object", **HUGE[huge]}}

    shown = brief(card_from_tool("box", row))
    assert len(json.dumps(shown, ensure_ascii=False)) <= BRIEF_LIMIT
    assert shown["id"] == "box__t"
    assert isinstance(shown["input"], dict)


def test_of_a_huge_schema_what_is_required_stays() -> None:
    """However many others there are before it."""
    many = {f"p{n}": {"type": "string"} for n in range(50_000)}
    schema = {"type": "object", "properties": {**many, "path": {"type": "string"}}, "required": ["path"]}

    shown = trimmed_input(schema)
    assert "path" in shown["properties"]
    assert shown["required"] == ["path"]


def test_an_ordinary_schema_loses_no_parameter() -> None:
    """Sixty parameters with choices are a lot, but tools like that exist."""
    choices = ["open", "closed", "all"]
    many = {f"parameter_number_{n}": {"type": "string", "enum": choices} for n in range(60)}
    schema = {"type": "object", "properties": many, "required": list(many)[:50]}

    assert trimmed_input(schema) == {"properties": many, "required": list(many)[:50]}


def test_nothing_in_a_listing_reaches_the_terminal_but_text(calendar: Scripted, command: Command) -> None:
    """Escape sequences, control characters and direction marks of a tool do nothing, and a long name ends some time."""
    evil = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\b\u202e"
    bad = {"name": f"bad{evil}{MEGABYTE}", "inputSchema": {"type": "array"}}
    rows = [tool("add_event", f"Add an {evil} event [red]{evil}"), bad, tool(f"odd{evil}name", f"An odd {evil} one")]
    calendar.says(rows=rows)
    assert command("reindex")[0] == 0
    assert command("unquarantine", "calendar__*", "--yes")[0] == 0  # a review would keep them from being drafted
    printed = []
    for words in (["reindex"], ["status"], ["draft", f"an event {evil}"], ["draft", f"an event {evil}", "--explain"]):
        status, out, err = command(*words)
        assert status == 0, err
        printed.append(out + err)

    assert [c for c in "".join(printed) if not c.isprintable() and c != "\n"] == []
    assert "add_event" in printed[2]
    assert "event [red]" in printed[2]
    assert "unusable tools" in printed[1]
    assert max(map(len, printed)) < 10_000


# ------------------------------------------------------------------------------------------------ draft and call


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_call_with_keys_of_its_own_is_refused_and_they_are_named(
    home: Home, calendar: Scripted, era: str
) -> None:
    """Arguments put beside `args` would be lost without a word; nothing reaches the backend."""
    async with running(home, {"calendar": calendar.entry()}) as roster, client_of(roster, era) as client:
        asked = {"tool": "calendar__add_event", "title": "Lunch", "day": "Monday", "args": {}, "draft_id": "d1"}
        reply = await client.call_tool("call", asked)
    assert "day, title" in texts(reply)[0]
    assert failure_in(reply)["kind"] == "invalid_input"
    assert calendar.calls() == []


@pytest.mark.parametrize("era", ["legacy", "auto"])
@pytest.mark.parametrize("meta", ["text", 7, [1], None])
async def test_a_result_whose_meta_is_no_object_is_handed_on(home: Home, tmp_path: Path, era: str, meta: Any) -> None:
    """It is the backend's affair, and the caller gets it as it is."""
    result = {"content": [{"type": "text", "text": "done"}], "_meta": meta}
    server = Scripted(tmp_path, "any", rows=[tool("t")], tools={"t": {"do": "result", "result": result}})

    async with running(home, {"any": server.entry()}) as roster, client_of(roster, era) as client:
        with anyio.fail_after(SOON_S):
            got = await raw(client, "tools/call", name="call", arguments={"tool": "any__t"})
    assert got["content"] == result["content"]
    assert got["_meta"] == meta


@pytest.mark.report("bagofwords1/bagofwords#361")
async def test_a_need_that_nothing_fits_is_told_so(home: Home, calendar: Scripted, encoder: WordEncoder) -> None:
    """Rated starters or none, and what to do; a need that is met, or an unmeasured model, gets its starters."""
    usages, counts = [], []

    async with drafting(home, calendar) as (_, client):
        for floor, need in [(0.3, "zxqv wvut"), (0.3, NEED), (None, "zxqv wvut")]:
            encoder.match_floor = floor
            shown = (await client.call_tool("draft", {"need": need})).structured_content
            counts.append(len(shown["starters"]))
            usages.append(shown["usage"])
        await client.call_tool("call", {"tool": shown["starters"][0]["id"], "args": {}})
        encoder.match_floor = 0.3
        shown = (await client.call_tool("draft", {"need": "zxqv wvut"})).structured_content
    assert counts == [0, 2, 2]
    assert usages[0] == NO_MATCH
    assert [NO_MATCH in usage for usage in usages] == [True, False, False]
    assert [starter["basis"] for starter in shown["starters"]] == ["rated"]
    assert shown["usage"].startswith(f"{NO_MATCH} These have worked here before: call(tool=<id>")


# ------------------------------------------------------------------------------------------- config and numbers


@pytest.mark.parametrize("text", ["${TOKEN:SECRET}", "x-${env:TOKEN:SECRET}", "${TOKEN:=SECRET}", "${TOKEN:?SECRET}"])
def test_a_reference_that_cannot_be_resolved_gives_no_secret_away(text: str) -> None:
    """What stands behind the colon may be the very value; the message is printed, logged and stored."""
    with pytest.raises(VariableError) as caught:
        expand(text, {})
    assert "SECRET" not in str(caught.value)


@posix
def test_a_home_that_others_can_read_is_closed_to_them(tmp_path: Path) -> None:
    """Made by hand with a wide mode, it is the owner's alone once Roster has opened it."""
    folder = tmp_path / "wide"
    folder.mkdir()
    folder.chmod(0o777)

    open_home(Home(folder))
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("successes", "calls", "bound"),
    [
        (0, 0, 0.0),
        (0, 10, 0.0),
        (1, 1, 0.2065),  # 1 / (1 + 1.96²)
        (10, 10, 0.7225),  # 10 / (10 + 1.96²)
        (8, 10, 0.4902),  # (0.8 + 0.19208 - 1.96 √(0.016 + 0.009604)) / 1.38416
        (90, 100, 0.8256),
        (5, 10, 0.2366),
    ],
)
def test_the_lower_bound_is_wilsons(successes: int, calls: int, bound: float) -> None:
    """Worked by hand for 95 %."""
    assert wilson_lower(successes, calls) == pytest.approx(bound, abs=5e-5)


def test_one_lucky_call_is_worth_less_than_a_long_record() -> None:
    """1 of 1 is below 90 of 100, and 9 of 10 as well."""
    assert wilson_lower(1, 1) < wilson_lower(9, 10) < wilson_lower(90, 100)


@given(st.integers(1, 10_000), st.data())
def test_more_successes_never_lower_the_bound(calls: int, data: st.DataObject) -> None:
    """And it stays between 0 and the rate itself."""
    fewer = data.draw(st.integers(0, calls - 1))
    low, high = wilson_lower(fewer, calls), wilson_lower(fewer + 1, calls)

    assert low < high
    assert 0 <= low <= fewer / calls + 1e-12


@posix
def test_encoding_leaves_nothing_in_the_users_home(tmp_path: Path) -> None:
    """Runtimes like to queue usage events there; a fresh process that encodes writes no file at all."""
    folder = tmp_path / "empty"
    folder.mkdir()
    caches = {name: str(folder / name) for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    environ = {"HOME": str(folder), "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1", **caches}

    code = "from roster.encoder import open_encoder\nprint(open_encoder(None).encode_needs(['x']).shape)"
    with python(code, environ=environ) as process:
        out, err = process.communicate(timeout=60)
    assert (out.startswith("(1, "), err) == (True, "")
    assert list(folder.rglob("*")) == []


OPEN_AND_CLOSE = """
import sys
from pathlib import Path
from roster.database import open_database
db = open_database(Path(sys.argv[1]))
print(db.execute("SELECT value FROM meta").fetchone()[0])
db.close()
"""


def test_another_process_that_comes_and_goes_takes_no_write_away(home: Home, connect: Any) -> None:
    """A process has two connections; the second's opening must not drop the first's locks, or the log is deleted."""
    first, _ = connect(), connect()
    first.execute("UPDATE meta SET value = 1")
    read = []
    for value in (1, 2):
        first.execute("UPDATE meta SET value = ?", (value,))
        with python(OPEN_AND_CLOSE, str(home.database)) as other:
            read.append(int(other.communicate(timeout=30)[0]))
    assert read == [1, 2]


async def test_a_draft_after_a_call_does_not_wait_for_who_holds_the_database(
    home: Home, calendar: Scripted, connect: Any
) -> None:
    """Reading the tallies needs no write lock."""
    async with drafting(home, calendar) as (_, client):
        await client.call_tool("draft", {"need": NEED})
        other = connect()
        other.execute("BEGIN IMMEDIATE")
        await client.call_tool("call", {"tool": "calendar__add_event"})
        begun = anyio.current_time()
        await client.call_tool("draft", {"need": NEED})
        took = anyio.current_time() - begun
        other.execute("ROLLBACK")
    assert took < 1.5


async def test_a_transparent_list_after_a_call_is_not_held_up_either(
    home: Home, calendar: Scripted, connect: Any
) -> None:
    """What was listed before is read past whoever writes."""
    async with drafting(home, calendar) as (roster, client):
        other = connect()
        other.execute("BEGIN IMMEDIATE")
        await client.call_tool("call", {"tool": "calendar__add_event"})
        begun = time.monotonic()
        await roster.first_listings()
        took = time.monotonic() - begun
        other.execute("ROLLBACK")
    assert took < 1.5


def test_requiring_fifty_thousand_parameters_takes_no_minute() -> None:
    many = {f"p{n}": {"type": "string"} for n in range(50_000)}
    begun = time.monotonic()
    trimmed_input({"type": "object", "properties": many, "required": list(many)})
    assert time.monotonic() - begun < 5


def test_a_cut_schema_is_small() -> None:
    for name in ("p", "p" * 90):
        many = {f"{name}{n}": {"enum": ["x" * 45] * 12} for n in range(100)}
        shown = trimmed_input({"type": "object", "properties": many, "required": list(many)})
        assert len(json.dumps(shown)) <= BRIEF_LIMIT


async def test_a_database_that_is_locked_while_the_encoder_loads_does_not_end_serving(
    home: Home, calendar: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is loaded at the next try; the drafts in between are made by words."""
    tries = []
    load = Roster.warm_up

    def locked_once(roster: Roster) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise sqlite3.OperationalError("database is locked")
        load(roster)

    monkeypatch.setattr(Roster, "warm_up", locked_once)
    monkeypatch.setattr(app, "LOOK_AGAIN_S", 0.05)
    monkeypatch.setattr(app, "open_encoder", lambda *_: WordEncoder())
    async with drafting(home, calendar) as (roster, client):
        with anyio.fail_after(SOON_S):
            shown = (await client.call_tool("draft", {"need": NEED})).structured_content
            while roster.catalogue.encoder is None:
                await anyio.sleep(0.01)

    assert shown["starters"]
    assert len(tries) == 2
