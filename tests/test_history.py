"""Outcomes on file: appended, counted without the caller's own mistakes, and without a word of what was said."""

from __future__ import annotations

import sqlite3

import pytest
from fakes import Clock

from roster.failures import PLATFORM, Failure, FailureKind
from roster.history import History, Tally
from roster.outcomes import Outcome


@pytest.fixture
def history(db: sqlite3.Connection) -> History:
    return History(db)


def record(history: History, card: str, outcome: Outcome, at: float, failure: Failure | None = None) -> None:
    history.record(card, "print", outcome, failure, 12.5, at, drafted=True)


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
    history.record("a", "p1", Outcome.TIMEOUT, PLATFORM[FailureKind.TIMEOUT], 7.5, clock.now, drafted=False)
    history.record("a", "p2", Outcome.SUCCESS, None, 1.0, clock.now, drafted=True)
    stored = db.execute("SELECT * FROM outcomes ORDER BY number").fetchall()

    assert stored == [
        (1, clock.now, "a", "p1", "tool_fail:timeout", "timeout", 1, 1, 0, 7.5, 0),
        (2, clock.now, "a", "p2", "success", None, None, None, None, 1.0, 1),
    ]


def test_an_outcome_has_no_place_for_words(history: History, db: sqlite3.Connection) -> None:
    """No column for a need, arguments, a result or an error's text: what is not stored cannot leak."""
    columns = {row[1] for row in db.execute("PRAGMA table_info(outcomes)")}

    assert columns == set(
        "number at card fingerprint outcome failure retryable partial person latency_ms drafted".split()
    )
