"""What is held against a tool: an outage once, a caller's own mistake never, and everything else each time."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from fakes import Clock, tool

from roster.backends import Answer, State
from roster.call import LOOK_AGAIN_S, Called, Caller
from roster.cards import Card, card_from_tool
from roster.config import ServerSpec, Transport
from roster.declared import Declared
from roster.draft import Drafted
from roster.history import History, Limits, Tally
from roster.outcomes import CallReport, Cause, Outcome, judge
from roster.recorder import OUTAGE_S, REMEMBERED, RETRY_S, CallMemory, Ended, Recorder
from roster.reindex import Writer

pytestmark = pytest.mark.anyio

NEEDS_Q = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}


class Told:
    """A backend that answers what it is told to."""

    def __init__(self, name: str, *answers: Answer, state: State = State.READY) -> None:
        self.name, self.state, self.answers = name, state, list(answers)
        self.spec = ServerSpec(transport=Transport.STDIO, command="x", failures=(Declared("jam", "x", person=True),))
        self.looked = 0
        self.gate: anyio.Event | None = None

    async def call(self, *_: Any, **__: Any) -> Answer:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if self.gate is not None:
            await self.gate.wait()
        return answer

    def look_again(self) -> None:
        self.looked += 1


def answered() -> Answer:
    return Answer(CallReport(Cause.ANSWERED, 5.0), {"content": []})


def failed(text: str, **more: Any) -> Answer:
    result = {"content": [{"type": "text", "text": text}], "isError": True, **more}
    return Answer(CallReport(Cause.TOOL_ERROR, 5.0), result)


def gone(cause: Cause = Cause.UNREACHABLE) -> Answer:
    return Answer(CallReport(cause, 5.0))


NOT_FOUND, CRASHED = failed("No issue with this number was found"), failed("Segmentation fault")


def card(id_: str = "a__x", schema: dict[str, Any] | None = None) -> Card:
    server, _, name = id_.partition("__")
    return card_from_tool(server, tool(name, inputSchema=schema or {"type": "object"}))


class Bench:
    """A caller over told backends, its database and its clock."""

    def __init__(self, writer: Writer, clock: Clock) -> None:
        self.clock, self.db = clock, writer.db
        self.backends: dict[str, Any] = {}
        self.caller = Caller(self.backends, writer, clock)

    async def call(
        self, answer: Answer | None, arguments: Any = None, which: Card | None = None, **more: Any
    ) -> Called:
        which = which or card()
        if answer is not None:
            self.backends[which.server] = Told(which.server, answer)
        return await self.caller.call(which, arguments, **more)

    def counted(self) -> list[int]:
        return [row[0] for row in self.db.execute("SELECT counted FROM outcomes ORDER BY number")]

    def column(self, name: str) -> list[Any]:
        return [row[0] for row in self.db.execute(f"SELECT {name} FROM outcomes ORDER BY number")]


@pytest.fixture
def bench(writer: Writer, clock: Clock) -> Bench:
    return Bench(writer, clock)


# ------------------------------------------------------------------------------------------------ outages


@pytest.mark.parametrize("cause", [Cause.UNREACHABLE, Cause.DISCONNECTED])
async def test_an_outage_is_one_failure_however_many_calls_run_into_it(bench: Bench, cause: Cause) -> None:
    """One a minute for each backend; other backends have outages of their own."""
    for _ in range(10):
        await bench.call(gone(cause))
        bench.clock.advance(1)
    await bench.call(gone(cause), which=card("b__x"))
    bench.clock.advance(OUTAGE_S)
    await bench.call(gone(cause), which=card("a__y"))

    assert bench.counted() == [1, *[0] * 9, 1, 1]
    assert History(bench.db).tallies().keys() == {"a__x", "a__y", "b__x"}


async def test_an_outage_does_not_hide_another_kind_of_failure(bench: Bench) -> None:
    """A backend that is back and crashes has crashed."""
    for answer in (gone(), CRASHED, gone(), CRASHED):
        await bench.call(answer)

    assert bench.counted() == [1, 1, 0, 1]


async def test_a_clock_that_goes_back_starts_a_new_window(bench: Bench) -> None:
    """Rather count one too many than none for as long as the clock was wrong."""
    await bench.call(gone())
    bench.clock.advance(-3_600)
    await bench.call(gone())

    assert bench.counted() == [1, 1]


# ------------------------------------------------------------------------------------------- soft failures


async def test_a_failure_that_other_arguments_mend_was_the_callers(bench: Bench) -> None:
    """The one before a success of the same tool; its class stays what it was."""
    await bench.call(NOT_FOUND, {"n": 1})
    await bench.call(answered(), {"n": 2})

    assert bench.counted() == [0, 1]
    assert bench.column("outcome") == ["tool_fail:other", "success"]
    assert History(bench.db).tallies() == {"a__x": Tally(1, 1, bench.clock.now)}


async def test_the_same_arguments_again_mend_nothing(bench: Bench) -> None:
    """In any order of keys: that it works now says that it did not before."""
    await bench.call(NOT_FOUND, {"n": 1, "m": 2})
    await bench.call(answered(), {"m": 2, "n": 1})

    assert bench.counted() == [1, 1]


async def test_only_the_failure_before_it_is_mended(bench: Bench) -> None:
    """Not the ones before that."""
    for n in range(3):
        await bench.call(NOT_FOUND, {"n": n})
    await bench.call(answered(), {"n": 3})
    await bench.call(answered(), {"n": 4})

    assert bench.counted() == [1, 1, 0, 1, 1]


async def test_ten_crashes_with_ten_arguments_are_ten_failures(bench: Bench) -> None:
    """A server that breaks is no caller's mistake, also when it works in the end."""
    for n in range(10):
        await bench.call(CRASHED, {"n": n})
    await bench.call(answered(), {"n": 10})

    assert bench.counted() == [1] * 11


async def test_a_retry_comes_soon_and_from_the_same_connection_for_the_same_tool(bench: Bench) -> None:
    """Anything else is a call of its own."""
    mine, other = CallMemory(), CallMemory()
    await bench.call(NOT_FOUND, {"n": 1}, memory=mine)
    await bench.call(answered(), {"n": 2}, memory=other)
    await bench.call(answered(), {"n": 2}, which=card("a__y"), memory=mine)
    bench.clock.advance(RETRY_S + 1)
    await bench.call(answered(), {"n": 2}, memory=mine)

    assert bench.counted() == [1, 1, 1, 1]


async def test_a_call_that_was_under_way_already_is_no_retry(bench: Bench) -> None:
    """Two calls at once, of which one fails and the other then succeeds, have nothing to do with each other."""
    slow = Told("a", answered())
    slow.gate = anyio.Event()
    bench.backends["a"] = slow
    async with anyio.create_task_group() as group:
        group.start_soon(bench.call, None, {"n": 2})
        await anyio.lowlevel.checkpoint()
        await bench.call(NOT_FOUND, {"n": 1})
        slow.gate.set()

    assert sorted(bench.counted()) == [1, 1]


async def test_a_success_is_never_taken_back(bench: Bench) -> None:
    """Whatever comes after it."""
    for answer in (answered(), NOT_FOUND, answered(), CRASHED):
        await bench.call(answer, {"n": bench.clock.advance(1)})

    assert bench.counted() == [1, 0, 1, 1]


async def test_arguments_are_remembered_as_a_hash_nobody_can_undo(bench: Bench) -> None:
    """Salted for each connection, in memory alone, and not for ever."""
    one, other = CallMemory(), CallMemory()
    arguments = {"secret": "canary", "odd": "\ud800"}

    assert one.hashed(arguments) == one.hashed(dict(reversed(arguments.items())))
    assert one.hashed(arguments) != other.hashed(arguments)
    assert one.hashed(None) == one.hashed({})
    for n in range(REMEMBERED + 10):
        await bench.call(NOT_FOUND, arguments, which=card(f"a__t{n}"), memory=one)
    assert len(one.tried) == REMEMBERED
    assert "canary" not in repr(one)


# ---------------------------------------------------------------------------------------- whose fault it was


async def test_arguments_that_break_the_schema_are_the_callers_mistake(bench: Bench) -> None:
    """Checked before the tool is blamed: whatever it made of them, by result or by error code."""
    strict = card(schema=NEEDS_Q)
    await bench.call(CRASHED, {"q": 7}, which=strict)
    await bench.call(Answer(CallReport(Cause.RPC_ERROR, 1.0, -32602)), {}, which=strict)

    assert bench.column("outcome") == ["tool_fail:schema"] * 2
    assert bench.column("fault") == ["caller"] * 2
    assert bench.counted() == [0, 0]


async def test_a_refusal_of_arguments_that_fit_makes_the_definition_suspect(bench: Bench) -> None:
    """Not held against the tool; and the list is asked for again, but not at every call."""
    strict, invalid = card(schema=NEEDS_Q), Answer(CallReport(Cause.RPC_ERROR, 1.0, -32602))
    bench.backends["a"] = told = Told("a", invalid)
    for _ in range(3):
        await bench.call(None, {"q": "x"}, which=strict)
    bench.clock.advance(LOOK_AGAIN_S)
    told.answers = [failed("Invalid arguments for tool x: 'p' is a required property")]
    called = await bench.call(None, {"q": "x"}, which=strict)

    assert called.outcome is Outcome.DRIFT_SUSPECT
    assert bench.column("outcome") == ["schema_drift_suspect"] * 4
    assert bench.counted() == [0] * 4
    assert told.looked == 2


@pytest.mark.parametrize("schema", [{"type": "object"}, {"$ref": "https://elsewhere.example.com/x"}, {"type": "strin"}])
async def test_a_refusal_is_what_it_says_where_the_schema_says_nothing(bench: Bench, schema: dict[str, Any]) -> None:
    """One that asks for nothing, and one that cannot be checked, are evidence for neither."""
    await bench.call(Answer(CallReport(Cause.RPC_ERROR, 1.0, -32602)), {"q": "x"}, which=card(schema=schema))

    assert bench.column("outcome") == ["tool_fail:schema"]
    assert bench.counted() == [0]


async def test_what_decided_is_kept_by_name(bench: Bench) -> None:
    """Code, field, wording, cause: never a word of the text."""
    for answer in (
        gone(),
        failed("x", structuredContent={"status": 429}),
        failed("Rate limit exceeded for canary"),
        Answer(CallReport(Cause.RPC_ERROR, 1.0, -32601)),
        Answer(CallReport(Cause.RPC_ERROR, 1.0, -32603, status=429)),
        failed("canary"),
        answered(),
    ):
        await bench.call(answer)

    assert bench.column("rule") == [
        "cause:unreachable", "field:429", "rate-limit", "code:-32601", "http:429", "unread", "cause:answered"
    ]  # fmt: skip


async def test_a_declared_kind_is_recorded_with_the_flags_it_was_given(bench: Bench) -> None:
    """One that was not declared is `undeclared`; neither changes the class."""
    for kind in ("jam", "out_of_paper", "timeout"):
        called = await bench.call(failed("x", _meta={"failure": {"kind": kind, "message": "Tray 2"}}))
        assert called.message == "Tray 2"

    rows = bench.db.execute("SELECT failure, person, declared, partial FROM outcomes ORDER BY number").fetchall()
    assert rows == [("jam", 1, 1, 0), ("undeclared", 0, 0, 1), ("undeclared", 0, 0, 1)]


# --------------------------------------------------------------------------------------------- suggestions


def drafted(*ids: str) -> tuple[Drafted, dict[str, Card]]:
    return Drafted(ids), {id_: card(id_) for id_ in ids}


async def test_a_suggestion_is_recorded_and_so_is_that_it_was_taken(bench: Bench) -> None:
    """Once, when the suggested card is called under the same draft; other calls of it are no answer to that."""
    bench.backends |= {"b": Told("b", answered())}
    draft, cards = drafted("a__x", "b__x")
    with_draft = {"drafted": draft, "find": cards.get, "memory": CallMemory()}
    called = await bench.call(gone(), {"n": 1}, which=cards["a__x"], draft_id="d1", **with_draft)
    assert called.instead is not None
    assert called.instead.card.id == "b__x"

    bench.clock.advance(5)
    await bench.call(None, {}, which=cards["b__x"])
    await bench.call(None, {}, which=cards["b__x"], draft_id="d2", **with_draft)
    assert bench.db.execute("SELECT taken_at FROM suggestions").fetchall() == [(None,)]
    for _ in range(2):
        bench.clock.advance(5)
        await bench.call(None, {}, which=cards["b__x"], draft_id="d1", **with_draft)

    rows = bench.db.execute("SELECT failed, suggested, compatible, taken_at FROM suggestions").fetchall()
    assert rows == [("a__x", "b__x", 1, bench.clock.now - 5)]


@pytest.mark.parametrize(
    ("answer", "offered"),
    [
        (gone(), True),
        (gone(Cause.DISCONNECTED), True),
        (gone(Cause.TIMEOUT), True),
        (failed("Read timed out"), True),
        (CRASHED, True),
        (gone(Cause.MALFORMED), False),
        (NOT_FOUND, False),
        (failed("Rate limit exceeded"), False),
        (failed("Unauthorized"), False),
        (failed("limit must be a number"), False),
        (answered(), False),
    ],
)
async def test_only_some_failures_are_worth_another_tool(bench: Bench, answer: Answer, offered: bool) -> None:
    """Transport, timeout and internal ones, of a call with a known draft."""
    bench.backends |= {"b": Told("b", answered())}
    draft, cards = drafted("a__x", "b__x")
    called = await bench.call(answer, which=cards["a__x"], drafted=draft, draft_id="d1", find=cards.get)
    without = await bench.call(answer, which=cards["a__x"], find=cards.get)

    assert (called.instead is not None) is offered
    assert without.instead is None


async def test_a_server_that_is_not_connected_is_not_offered(bench: Bench) -> None:
    """Nor one that is not there at all."""
    bench.backends |= {"b": Told("b", answered(), state=State.FAILED), "d": Told("d", answered())}
    draft, cards = drafted("a__x", "b__x", "c__x", "d__x")
    called = await bench.call(gone(), which=cards["a__x"], drafted=draft, draft_id="d1", find=cards.get)

    assert called.instead is not None
    assert called.instead.card.id == "d__x"


# ------------------------------------------------------------------------------------------------- limits


async def test_a_database_that_cannot_be_written_to_costs_only_the_record(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer goes out, nothing is half remembered, and the next outage counts."""
    bench.db.execute("PRAGMA query_only = 1")
    called = await bench.call(gone())
    bench.db.execute("PRAGMA query_only = 0")
    await bench.call(gone())

    assert called.outcome is Outcome.TRANSPORT
    assert "could not be recorded" in caplog.text
    assert bench.counted() == [1]


async def test_nothing_is_recorded_where_nothing_is_to_be_learned(writer: Writer, clock: Clock) -> None:
    """`learning: "off"`: no outcome, no suggestion; the caller is told all the same."""
    draft, cards = drafted("a__x", "b__x")
    backends: dict[str, Any] = {"a": Told("a", gone()), "b": Told("b", answered())}
    caller = Caller(backends, writer, clock, learning="off")
    called = await caller.call(cards["a__x"], None, drafted=draft, draft_id="d1", find=cards.get)

    assert called.instead is not None
    for table in ("outcomes", "suggestions", "needs"):
        assert writer.db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


async def test_recording_a_success_looks_into_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text, fields and schema are for failures; a call that worked pays for its row and nothing else."""
    for name in ("examine", "check_arguments"):
        monkeypatch.setattr(f"roster.call.{name}", None)
    called = await bench.call(answered(), {"q": 1})

    assert called.outcome is Outcome.SUCCESS
    with pytest.raises(TypeError):
        await bench.call(NOT_FOUND)


def test_an_outcome_row_takes_a_plain_connection(db: sqlite3.Connection) -> None:
    """Nothing of the above needs more than the database."""
    assert History(db).tallies() == {}


def test_recording_at_once_waits_for_nobody(writer: Writer, connect: Callable[[], sqlite3.Connection]) -> None:
    """While another process or thread writes nothing is recorded, and that is said; then it is, and just once."""
    recorder = Recorder(writer, lambda: 1.0, "full", Limits())
    card = card_from_tool("box", tool("look"))
    ended = Ended(card, judge(CallReport(Cause.ANSWERED, 1.0)), None, 1.0, {}, CallMemory())
    (patient,) = writer.db.execute("PRAGMA busy_timeout").fetchone()
    other = connect()
    other.execute("BEGIN IMMEDIATE")
    assert not recorder.record_now(ended)
    other.execute("ROLLBACK")
    with writer.lock:
        assert not recorder.record_now(ended)

    assert recorder.record_now(ended)
    assert writer.db.execute("SELECT count(*) FROM outcomes").fetchone() == (1,)
    assert writer.db.execute("PRAGMA busy_timeout").fetchone() == (patient,)
