"""Outcomes on file: appended, counted without the caller's own mistakes, and without a word of what was said."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest
from fakes import Clock
from hypothesis import given, settings
from hypothesis import strategies as st

from roster.config import Home
from roster.database import atomic, migrate
from roster.failures import PLATFORM, Failure, FailureKind
from roster.history import History, Kept, Limits, NeedRow, Offers, OutcomeRow, Tally
from roster.outcomes import Outcome
from roster.ratings import Ending
from roster.recorder import TRIMMED_AT_ONCE
from roster.vectors import unit_rows
from roster.weights import Weights


@pytest.fixture
def history(db: sqlite3.Connection) -> History:
    return History(db)


TABLES = ("outcomes", "needs", "suggestions")
DAY = 86_400.0


def record(
    history: History, card: str, outcome: Outcome, at: float, failure: Failure | None = None, need: int | None = None
) -> int:
    return history.record(OutcomeRow(card, "print", outcome, failure, 12.5, at, drafted=True, need=need))


def test_no_history_is_no_tally(history: History) -> None:
    """A card nobody called is not in it."""
    assert history.tallies() == {}


def test_calls_and_successes_are_counted_by_card(history: History, clock: Clock) -> None:
    """With the time of the last call that counts."""
    record(history, "a", Outcome.SUCCESS, clock.now)
    record(history, "b", Outcome.TIMEOUT, clock.now)
    record(history, "a", Outcome.INTERNAL, clock.advance(5))
    record(history, "a", Outcome.SUCCESS, clock.now - 3)

    assert history.tallies() == {"a": Tally(3, 2, clock.now), "b": Tally(1, 0, clock.now - 5)}


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.SUCCESS])
def test_only_the_callers_own_mistakes_are_not_counted(history: History, clock: Clock, outcome: Outcome) -> None:
    """`tool_fail:schema` is never held against a tool; every other failure is."""
    record(history, "a", outcome, clock.now)

    expected = {} if outcome is Outcome.SCHEMA else {"a": Tally(1, 0, clock.now)}
    assert history.tallies() == expected


def test_an_outcome_is_stored_as_it_was(history: History, db: sqlite3.Connection, clock: Clock) -> None:
    """Ids, class, kind, the three flags, latency, and whether a draft led to it."""
    history.record(OutcomeRow("a", "p1", Outcome.TIMEOUT, PLATFORM[FailureKind.TIMEOUT], 7.5, clock.now, drafted=False))
    history.record(OutcomeRow("a", "p2", Outcome.SUCCESS, None, 1.0, clock.now, drafted=True, rule="answered"))
    stored = db.execute("SELECT * FROM outcomes ORDER BY number").fetchall()

    assert stored == [
        (1, clock.now, "a", "p1", "tool_fail:timeout", "timeout", 1, 1, 0, 7.5, 0, None, 0, None, None, 1),
        (2, clock.now, "a", "p2", "success", None, None, None, None, 1.0, 1, None, None, "answered", None, 1),
    ]


def test_history_has_no_place_for_words(history: History, db: sqlite3.Connection) -> None:
    """No column for a need, arguments, a result or an error's text: what is not stored cannot leak."""
    columns = {table: {row[1] for row in db.execute(f"PRAGMA table_info({table})")} for table in TABLES}

    assert columns == {
        "outcomes": set(
            "number at card fingerprint outcome failure retryable partial person declared latency_ms drafted rule "
            "fault counted need".split()
        ),
        "needs": set("number at encoder vector running".split()),
        "suggestions": set("number at failed suggested compatible taken_at".split()),
    }


def test_a_need_is_kept_as_numbers(history: History, clock: Clock) -> None:
    """Its vector, to half precision, and what was in the running; events say which outcomes tell of it."""
    vector = unit_rows(np.arange(1, 9, dtype=np.float32)[None])[0]
    need = history.keep_need(NeedRow("e1", vector, [(7, 0.75), (2, 0.5)]), clock.now)
    other = history.keep_need(NeedRow("e2", vector, []), clock.now)
    record(history, "a", Outcome.SUCCESS, clock.now, need=need)
    record(history, "b", Outcome.TIMEOUT, clock.now, need=need)
    record(history, "b", Outcome.SCHEMA, clock.now, need=need)
    record(history, "c", Outcome.SUCCESS, clock.now, need=other)
    record(history, "d", Outcome.SUCCESS, clock.now)

    assert np.allclose(history.vectors_of([need, other, 99], "e1")[need], vector, atol=1e-3)
    assert history.vectors_of([need, other, 99], "e1").keys() == {need}
    assert history.running_of([need, other]) == {need: [(7, 0.75), (2, 0.5)], other: []}
    events = history.events()
    assert [(each.card, each.success, each.need) for each in events] == [
        ("a", True, need),
        ("b", False, need),
        ("c", True, other),
        ("d", True, None),
    ]
    assert history.events(after=events[0].number) == events[1:]
    assert history.newest() == (5, 0)


def test_a_softened_failure_no_longer_counts(history: History, clock: Clock) -> None:
    """Neither for ratings nor for learning; a success cannot be softened."""
    need = history.keep_need(NeedRow("e", np.ones(2, np.float32), []), clock.now)
    failed = record(history, "a", Outcome.OTHER, clock.now, need=need)
    worked = record(history, "a", Outcome.SUCCESS, clock.now, need=need)
    history.soften(failed)
    history.soften(worked)

    assert history.tallies() == {"a": Tally(1, 1, clock.now)}
    assert [each.success for each in history.events()] == [True]


def test_suggestions_are_kept_with_what_came_of_them(history: History, db: sqlite3.Connection, clock: Clock) -> None:
    """Which card failed, which was offered, whether it took the arguments, and when it was first taken."""
    number = history.suggest("a", "b", True, clock.now)
    history.suggest("a", "c", None, clock.now)
    history.took(number, clock.now + 1)
    history.took(number, clock.now + 9)

    assert db.execute("SELECT failed, suggested, compatible, taken_at FROM suggestions").fetchall() == [
        ("a", "b", 1, clock.now + 1),
        ("a", "c", None, None),
    ]


def test_endings_are_told_by_card_and_contract(history: History, clock: Clock) -> None:
    """How often each card, under each fingerprint, ended how; latencies of its successes only."""
    timeout = PLATFORM[FailureKind.TIMEOUT]
    for print_, outcome, failure, latency_ms in [
        ("p1", Outcome.SUCCESS, None, 5.0),
        ("p2", Outcome.SUCCESS, None, 7.0),
        ("p2", Outcome.TIMEOUT, timeout, 900.0),
        ("p2", Outcome.SUCCESS, None, 6.0),
    ]:
        history.record(OutcomeRow("a", print_, outcome, failure, latency_ms, clock.advance(1), drafted=False))
    record(history, "b", Outcome.SCHEMA, clock.now)

    ended = {
        "a": [
            Ending("p1", "success", None, True, 1, clock.now - 3, (5.0,)),
            Ending("p2", "success", None, True, 2, clock.now, (7.0, 6.0)),
            Ending("p2", "tool_fail:timeout", "timeout", True, 1, clock.now - 1),
        ],
        "b": [Ending("print", "tool_fail:schema", None, False, 1, clock.now)],
    }
    assert history.endings() == ended
    assert history.endings("b") == {"b": ended["b"]}
    assert history.endings("c") == {}


def test_suggestions_are_counted_both_ways(history: History, clock: Clock) -> None:
    """What was offered after a card failed, and how often the card was offered itself; and what of it was taken."""
    history.took(history.suggest("a", "b", True, clock.now), clock.now)
    history.suggest("a", "c", None, clock.now)
    history.suggest("b", "c", None, clock.now)

    assert history.offers("a") == (Offers(2, 1), Offers(0, 0))
    assert history.offers("b") == (Offers(1, 0), Offers(1, 1))
    assert history.offers("c") == (Offers(0, 0), Offers(2, 0))


def test_what_is_kept_is_told_by_kind(history: History, db: sqlite3.Connection, clock: Clock) -> None:
    """How many rows, since when, and their size where SQLite can tell; needs also by encoder."""
    vector = np.ones(2, np.float32)
    for encoder in ("e1", "e2", "e1"):
        need = history.keep_need(NeedRow(encoder, vector, []), clock.now)
        record(history, "a", Outcome.SUCCESS, clock.advance(1), need=need)

    kept = history.kept()
    assert list(kept) == list(TABLES)
    assert {table: (rows.count, rows.oldest, rows.newest) for table, rows in kept.items()} == {
        "outcomes": (3, clock.now - 2, clock.now),
        "needs": (3, clock.now - 3, clock.now - 1),
        "suggestions": (0, None, None),
    }
    assert history.encoders() == {"e1": 2, "e2": 1}

    def without_dbstat(action: int, table: str | None, *_: Any) -> int:
        return sqlite3.SQLITE_DENY if table == "dbstat" else sqlite3.SQLITE_OK

    db.set_authorizer(without_dbstat)
    assert history.kept()["suggestions"] == Kept(0, None, None, None)


# ------------------------------------------------------------------------------------------------ limits


@contextmanager
def in_memory() -> Iterator[History]:
    """A history that is gone afterwards: a test of many examples has no file for each."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.execute("PRAGMA foreign_keys = ON")
        migrate(db)
        yield History(db)


def stored(history: History, table: str = "outcomes", what: str = "number") -> list[Any]:
    return [value for (value,) in history._db.execute(f"SELECT {what} FROM {table} ORDER BY number")]


def pruned(history: History, limits: Limits, now: float, at_most: int = 3) -> None:
    """Trim until nothing is over the limits."""
    while history.trim(limits, now, at_most):
        pass


def test_the_newest_outcomes_within_the_age_are_kept(history: History, clock: Clock) -> None:
    """Seven outcomes, a day apart: five by number, then those of the last three days; oldest first, so many at once."""
    for number in range(7):
        record(history, f"c{number}", Outcome.SUCCESS, clock.now + number * DAY)
    now = clock.now + 6 * DAY

    assert history.trim(Limits(days=100, outcomes=5), now, at_most=1) == 1
    assert stored(history, what="card") == ["c1", "c2", "c3", "c4", "c5", "c6"]
    assert history.trim(Limits(days=100, outcomes=5), now, at_most=9) == 1
    assert history.trim(Limits(days=3, outcomes=5), now, at_most=9) == 1
    assert stored(history, what="card") == ["c3", "c4", "c5", "c6"]
    assert history.trim(Limits(days=3, outcomes=5), now, at_most=9) == 0


def test_no_more_go_at_once_than_was_asked_for(history: History, clock: Clock) -> None:
    """Of each kind, those over the number and those over the age taken together."""
    for number in range(10):
        record(history, f"c{number}", Outcome.SUCCESS, clock.now)
        history.suggest("a", f"c{number}", None, clock.now)
    limits, now = Limits(days=1, outcomes=8), clock.now + 2 * DAY

    assert history.trim(limits, now, at_most=3) == 6
    assert (
        stored(history, what="card") == stored(history, "suggestions", "suggested") == [f"c{n}" for n in range(3, 10)]
    )


def test_a_need_goes_with_the_last_outcome_that_refers_to_it(history: History, clock: Clock) -> None:
    """Two outcomes of one need: the need stays with the second. Over their own limit the oldest go, outcomes stay."""
    vector = np.ones(2, np.float32)
    needs = [history.keep_need(NeedRow("e", vector, []), clock.now) for _ in range(4)]
    for need in (needs[0], needs[0], *needs[1:]):
        record(history, "a", Outcome.SUCCESS, clock.now, need=need)

    pruned(history, Limits(outcomes=4), clock.now)
    assert stored(history, "needs") == needs
    pruned(history, Limits(outcomes=3), clock.now)
    assert stored(history, "needs") == needs[1:]
    pruned(history, Limits(needs=1), clock.now)
    assert stored(history, "needs") == needs[3:]
    assert stored(history, what="need") == [None, None, needs[3]]


def test_suggestions_keep_to_the_same_limits(history: History, clock: Clock) -> None:
    """Their age and their number."""
    for number in range(6):
        history.suggest("a", f"b{number}", None, clock.now + number * DAY)

    pruned(history, Limits(outcomes=4), clock.now)
    assert stored(history, "suggestions", "suggested") == ["b2", "b3", "b4", "b5"]
    pruned(history, Limits(days=2), clock.now + 5 * DAY)
    assert stored(history, "suggestions", "suggested") == ["b3", "b4", "b5"]


@given(
    st.lists(st.tuples(st.floats(0, 30), st.integers(0, 6)), max_size=40),
    st.builds(Limits, days=st.floats(1, 40), outcomes=st.integers(1, 40), needs=st.integers(1, 10)),
    st.integers(1, 50),
)
@settings(max_examples=60)
def test_pruning_keeps_the_newest_and_no_need_without_an_outcome(
    rows: list[tuple[float, int]], limits: Limits, at_most: int
) -> None:
    """Whatever the clock said: of the newest so many by number those that are not too old, and the newest needs."""
    with in_memory() as history:
        needs: dict[int, int] = {}
        for day, which in rows:
            if which and which not in needs:
                needs[which] = history.keep_need(NeedRow("e", np.ones(1, np.float32), []), day * DAY)
            record(history, "a", Outcome.SUCCESS, day * DAY, need=needs.get(which))
        pruned(history, limits, 30 * DAY, at_most)

        numbered = list(enumerate(rows, 1))
        kept = [(n, row) for n, row in numbered if n > len(rows) - limits.outcomes and row[0] >= 30 - limits.days]
        assert stored(history) == [number for number, _ in kept]
        referred = sorted({needs[which] for _, (_, which) in kept if which})
        left = stored(history, "needs")
        assert left == referred[len(referred) - len(left) :]
        assert len(left) <= limits.needs
        assert len(left) == len(referred) or referred[-1] - referred[-len(left) - 1] >= limits.needs
        assert {need for need in stored(history, what="need") if need is not None} == set(left)


def test_a_history_that_is_trimmed_with_every_record_never_outgrows_its_limits(history: History, clock: Clock) -> None:
    """Not by one row, at the pace a call has the time for; and lower limits are reached in time, without a pause."""

    def add(limits: Limits) -> tuple[int, int]:
        need = history.keep_need(NeedRow("e", np.ones(1, np.float32), []), clock.advance(60))
        record(history, "a", Outcome.SUCCESS, clock.now, need=need)
        history.trim(limits, clock.now, TRIMMED_AT_ONCE)
        return len(stored(history)), len(stored(history, "needs"))

    wide, narrow = Limits(outcomes=40, needs=20), Limits(outcomes=10, needs=5)
    assert [add(wide) for _ in range(80)] == [(min(n, 40), min(n, 20)) for n in range(1, 81)]
    for _ in range(30):
        last = add(narrow)
    assert last == (10, 5)


def test_no_statement_of_a_recording_reads_a_table_through(
    history: History, db: sqlite3.Connection, clock: Clock
) -> None:
    """What a call waits for costs the same with ten outcomes on file and with a hundred thousand."""
    need = history.keep_need(NeedRow("e", np.ones(1, np.float32), []), clock.now)
    record(history, "a", Outcome.SUCCESS, clock.now, need=need)
    seen: list[str] = []
    db.set_trace_callback(seen.append)
    need = history.keep_need(NeedRow("e", np.ones(1, np.float32), []), clock.now)
    record(history, "a", Outcome.SUCCESS, clock.now, need=need)
    history.trim(Limits(outcomes=1, needs=1), clock.now, TRIMMED_AT_ONCE)
    db.set_trace_callback(None)

    statements = [sql for sql in seen if not sql.startswith("--")]
    assert len(statements) >= 8
    plans = {sql: [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}")] for sql in statements}
    assert [sql for sql, plan in plans.items() if any(step.startswith("SCAN") for step in plan)] == []


def test_tallies_are_read_off_one_index(history: History, db: sqlite3.Connection) -> None:
    """Drafts ask for them, so that no row of the table itself is touched and nothing is sorted."""
    seen: list[str] = []
    db.set_trace_callback(seen.append)
    history.tallies()
    db.set_trace_callback(None)

    plans = [[row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}")] for sql in seen]
    assert plans == [["SCAN outcomes USING COVERING INDEX outcomes_by_card"]]


def test_two_may_record_while_a_third_prunes(connect: Callable[[], sqlite3.Connection], clock: Clock) -> None:
    """Over three connections at once: every outcome gets a number of its own, nobody fails, the newest remain."""
    limits = Limits(outcomes=100, needs=50)
    numbers: list[list[int]] = [[], []]
    done = threading.Event()
    wrong: list[Exception] = []

    def recording(db: sqlite3.Connection, mine: list[int]) -> None:
        history = History(db)
        for _ in range(300):
            with atomic(db):
                need = history.keep_need(NeedRow("e", np.ones(1, np.float32), []), clock.now)
                mine.append(record(history, "a", Outcome.SUCCESS, clock.now, need=need))

    def pruning(db: sqlite3.Connection) -> None:
        history = History(db)
        while not done.is_set():
            with atomic(db):
                history.trim(limits, clock.now, 20)

    def guarded(work: Callable[..., None], *arguments: Any) -> threading.Thread:
        def run() -> None:
            try:
                work(*arguments)
            except Exception as error:  # noqa: BLE001 (told by the assertion below)
                wrong.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    recorders = [guarded(recording, connect(), mine) for mine in numbers]
    pruner = guarded(pruning, connect())
    for thread in recorders:
        thread.join()
    done.set()
    pruner.join()

    assert wrong == []
    assert sorted(numbers[0] + numbers[1]) == list(range(1, 601))
    history = History(connect())
    pruned(history, limits, clock.now)
    assert stored(history) == list(range(501, 601))
    assert stored(history, "needs") == stored(history, what="need")[50:]


# ---------------------------------------------------------------------------------------------- clearing


def test_clearing_forgets_everything(history: History, clock: Clock) -> None:
    """And says how much that was. Numbers are not used again, so that nobody takes a new need for an old one."""
    need = history.keep_need(NeedRow("e", np.ones(2, np.float32), []), clock.now)
    record(history, "a", Outcome.SUCCESS, clock.now, need=need)
    history.suggest("a", "b", None, clock.now)

    number = record(history, "a", Outcome.OTHER, clock.now)
    offer = history.suggest("a", "b", None, clock.now)
    history.keep_weights("e", Weights(1.0, 0.5), 0.1, 9, clock.now)

    assert history.clear() == {"outcomes": 2, "needs": 1, "suggestions": 2}
    assert (history.tallies(), history.events(), history.weights("e")) == ({}, [], None)
    assert history.keep_need(NeedRow("e", np.ones(2, np.float32), []), clock.now) > need
    assert record(history, "b", Outcome.OTHER, clock.now) > number
    assert history.suggest("b", "c", None, clock.now) > offer
    history.soften(number)
    history.took(offer, clock.now)
    assert history.tallies() == {"b": Tally(1, 0, clock.now)}
    assert history.offers("b") == (Offers(1, 0), Offers(0, 0))


def test_the_vectors_of_needs_can_be_cleared_alone(history: History, clock: Clock) -> None:
    """Outcomes stay and count for ratings; nothing tells any more which needs they served."""
    need = history.keep_need(NeedRow("e", np.ones(2, np.float32), []), clock.now)
    record(history, "a", Outcome.SUCCESS, clock.now, need=need)
    history.suggest("a", "b", None, clock.now)
    history.keep_weights("e", Weights(1.0, 0.5), 0.1, 9, clock.now)

    assert history.clear(["needs"]) == {"outcomes": 0, "needs": 1, "suggestions": 0}
    assert (stored(history, what="need"), history.vectors_of([need], "e"), history.weights("e")) == ([None], {}, None)
    assert history.tallies() == {"a": Tally(1, 1, clock.now)}


def test_other_processes_learn_that_a_history_was_cleared(
    history: History, connect: Callable[[], sqlite3.Connection]
) -> None:
    """Each clearing, also one of needs alone, is another number; a record is not."""
    other = History(connect())
    assert other.newest() == (0, 0)
    number = record(history, "a", Outcome.SUCCESS, 1.0)
    assert other.newest() == (number, 0)
    history.clear(["needs"])
    assert other.newest() == history.newest() == (number, 1)
    history.clear()
    assert other.newest() == (0, 2)


def test_what_was_cleared_is_no_longer_in_the_file(
    home: Home, history: History, connect: Callable[[], sqlite3.Connection], clock: Clock
) -> None:
    """Neither its vectors nor its ids, in the database or its log, while another process has them open; and the file
    is as small as before."""
    other = History(connect())
    vector = unit_rows(np.random.default_rng(1).normal(size=(1, 384)).astype(np.float32))[0]
    history.clear()
    small = home.database.stat().st_size
    for _ in range(400):
        need = history.keep_need(NeedRow("e", vector, [(1, 0.5)] * 50), clock.now)
        record(history, "card_zq7", Outcome.SUCCESS, clock.now, need=need)
    assert other.tallies().keys() == {"card_zq7"}
    signs = (b"card_zq7", vector.astype("<f2").tobytes()[:64])
    files = [home.database, home.database.with_name("roster.db-wal")]
    assert any(sign in file.read_bytes() for file in files for sign in signs)

    history.clear()
    assert [sign for file in files for sign in signs if sign in file.read_bytes()] == []
    assert home.database.stat().st_size <= small
    assert other.tallies() == {}
    record(other, "b", Outcome.SUCCESS, clock.now)
    assert history.tallies().keys() == {"b"}


def test_a_history_is_cleared_also_while_its_space_cannot_be_given_back(
    history: History, connect: Callable[[], sqlite3.Connection], clock: Clock
) -> None:
    """A process that is in the middle of reading keeps the file from shrinking, not the rows from going."""
    record(history, "a", Outcome.SUCCESS, clock.now)
    reader = connect()
    reader.execute("BEGIN")
    assert History(reader).tallies()
    history._db.execute("PRAGMA busy_timeout = 20")

    assert history.clear()["outcomes"] == 1
    assert history.tallies() == {}
    reader.execute("COMMIT")
    assert History(reader).tallies() == {}


def test_an_outcome_of_a_need_that_is_gone_is_kept_without_it(history: History, clock: Clock) -> None:
    """Cleared between the draft and its second call, by whichever process: the call still counts."""
    need = history.keep_need(NeedRow("e", np.ones(2, np.float32), []), clock.now)
    history.clear()
    record(history, "a", Outcome.SUCCESS, clock.now, need=need)

    assert stored(history, what="need") == [None]
    assert history.tallies() == {"a": Tally(1, 1, clock.now)}
