"""Outcomes on file: appended, counted without the caller's own mistakes, and without a word of what was said."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest
from fakes import Clock

from roster.failures import PLATFORM, Failure, FailureKind
from roster.history import History, NeedRow, OutcomeRow, Tally
from roster.outcomes import Outcome
from roster.vectors import unit_rows


@pytest.fixture
def history(db: sqlite3.Connection) -> History:
    return History(db)


TABLES = ("outcomes", "needs", "suggestions")


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


def test_clearing_forgets_everything(history: History, clock: Clock) -> None:
    """And says how much that was. Numbers are not used again, so that nobody takes a new need for an old one."""
    need = history.keep_need(NeedRow("e", np.ones(2, np.float32), []), clock.now)
    record(history, "a", Outcome.SUCCESS, clock.now, need=need)
    history.suggest("a", "b", None, clock.now)

    assert history.clear() == {"outcomes": 1, "needs": 1, "suggestions": 1, "learning": 0}
    assert (history.tallies(), history.events()) == ({}, [])
    assert history.keep_need(NeedRow("e", np.ones(2, np.float32), []), clock.now) > need
