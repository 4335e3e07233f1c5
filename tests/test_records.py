"""Records as a person asks for them: ratings, scorecards, the history; and how much of a call each level records."""

from __future__ import annotations

import io
import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import Clock, Run, WordEncoder, tool
from scripted_backend import Scripted, running, until

from roster import app, cli
from roster.app import Roster, open_roster
from roster.config import Home, Level, read_config
from roster.draft import Drafted
from roster.failures import PLATFORM, FailureKind
from roster.history import History, NeedRow, OutcomeRow
from roster.lexical import lexical_hits
from roster.outcomes import Outcome
from roster.ratings import wilson_lower
from roster.registry import Registry

pytestmark = pytest.mark.anyio

DAY = 86_400.0
MINE = {"calendar": {"command": "x"}, "files": {"command": "x"}}


@pytest.fixture
def history(home: Home, db: sqlite3.Connection, registry: Registry, clock: Clock) -> History:
    """Of three cards on file: one that mostly works, one that always did, twice, and one that only fails."""
    home.config.write_text(json.dumps({"mcpServers": MINE}), encoding="utf-8")
    registry.sight("calendar", [tool("add_event"), tool("list_events")], clock.now)
    registry.sight("files", [tool("find_files"), tool("read_text")], clock.now)
    history = History(db)
    timeout, wrong = PLATFORM[FailureKind.TIMEOUT], PLATFORM[FailureKind.INVALID_INPUT]
    for n in range(20):
        put(history, registry, "calendar__add_event", clock.advance(1), latency_ms=10.0 * (n + 1))
    for _ in range(5):
        put(history, registry, "calendar__add_event", clock.advance(1), Outcome.TIMEOUT, timeout, latency_ms=9e3)
    put(history, registry, "calendar__add_event", clock.advance(1), Outcome.SCHEMA, wrong)
    for _ in range(2):
        put(history, registry, "files__find_files", clock.advance(1), latency_ms=5.0)
    put(history, registry, "files__read_text", clock.advance(1), Outcome.TIMEOUT, timeout)
    return history


def put(
    history: History,
    registry: Registry,
    id_: str,
    at: float,
    outcome: Outcome = Outcome.SUCCESS,
    failure: Any = None,
    latency_ms: float = 1.0,
) -> int:
    """One more outcome of a card on file, under the contract it has now."""
    entry = registry.find(id_)
    assert entry is not None
    return history.record(OutcomeRow(id_, entry.card.fingerprint, outcome, failure, latency_ms, at, drafted=False))


# -------------------------------------------------------------------------------------------- ratings


def test_ratings_are_ordered_by_what_can_be_relied_on(run: Run, history: History, clock: Clock) -> None:
    """By the lower bound, so that 20 of 25 is before 2 of 2, then the most recent; with latencies of the successes.

    A caller's mistake is shown, and counts for nothing.
    """
    often, twice, never = run("ratings", "--json").json()["ratings"]

    assert often == {
        "card": "calendar__add_event",
        "server": "calendar",
        "calls": 25,
        "successes": 20,
        "uncounted": 1,
        "rate": 0.8,
        "wilson": round(wilson_lower(20, 25), 6),
        "p50_ms": 100.0,
        "p95_ms": 190.0,
        "last_at": clock.now - 3,
        "classes": {"success": 20, "tool_fail:timeout": 5, "tool_fail:schema": 1},
        "failures": {"timeout": 5},
        "excused": {"invalid_input": 1},
    }
    assert (twice["card"], twice["rate"], twice["p95_ms"]) == ("files__find_files", 1.0, 5.0)
    assert (never["card"], never["rate"], never["wilson"], never["p50_ms"]) == ("files__read_text", 0.0, 0.0, None)


def test_cards_that_are_as_good_are_ordered_by_their_last_call(
    run: Run, history: History, registry: Registry, clock: Clock
) -> None:
    """The more recent first; without any call that counts a card is among the last."""
    put(history, registry, "calendar__list_events", clock.advance(9), Outcome.SCHEMA)
    ids = [row["card"] for row in run("ratings", "--json").json()["ratings"]]
    assert ids == ["calendar__add_event", "files__find_files", "calendar__list_events", "files__read_text"]


def test_ratings_can_be_of_one_server(run: Run, history: History) -> None:
    """By the table of cards, not by the look of an id; a name nobody has is an error that names the nearest."""
    assert [row["card"] for row in run("ratings", "--server", "calendar", "--json").json()["ratings"]] == [
        "calendar__add_event"
    ]
    unknown = run("ratings", "--server", "calender")
    assert (unknown.status, unknown.out) == (1, "")
    assert "no server has the name 'calender': did you mean 'calendar'?" in unknown.err


def test_ratings_can_be_read(run: Run, history: History) -> None:
    """A row a card: counts, rates, latencies, when, and what went wrong."""
    rows = run("ratings").out.splitlines()
    (often,) = [row for row in rows if "calendar__add_event" in row]
    for shown in ("25", "80%", "61%", "100 ms", "190 ms", "d ago", "5 timeout; not counted: 1 invalid_input"):
        assert shown in often
    assert [row for row in rows if "files__read_text" in row and " 0% " in row and "1 timeout" in row]


def test_without_a_call_there_are_no_ratings(run: Run, home: Home) -> None:
    """Which is said, and is no error."""
    home.config.write_text("{}")
    assert run("ratings", "--json").json() == {"ratings": []}
    assert run("ratings").out == "No call is on record yet.\n"


# ------------------------------------------------------------------------------------------ scorecard


def test_a_scorecard_tells_in_all_and_by_definition(
    run: Run, history: History, registry: Registry, clock: Clock
) -> None:
    """The record stays with the id when the definition changes, and is told under each; newest definition first."""
    born, last = clock.now - 29, clock.advance(DAY)
    registry.sight("calendar", [tool("add_event"), tool("list_events")], last)
    changed_at = clock.advance(DAY)
    registry.sight("calendar", [tool("add_event", "Another"), tool("list_events")], changed_at)
    put(history, registry, "calendar__add_event", clock.advance(1), latency_ms=7.0)
    history.took(history.suggest("calendar__add_event", "files__find_files", True, clock.now), clock.now)
    history.suggest("files__read_text", "calendar__add_event", None, clock.now)

    card = run("scorecard", "calendar__add_event", "--json").json()
    assert (card["card"], card["server"], card["state"]) == ("calendar__add_event", "calendar", "quarantined")
    assert (card["total"]["calls"], card["total"]["successes"], card["total"]["uncounted"]) == (26, 21, 1)
    assert card["total"]["classes"] == {"success": 21, "tool_fail:timeout": 5, "tool_fail:schema": 1}
    new, old = card["versions"]
    assert (new["current"], new["first_seen"], new["last_seen"]) == (True, changed_at, changed_at)
    assert (old["current"], old["first_seen"], old["last_seen"]) == (False, born, last)
    assert (new["calls"], new["p50_ms"], new["failures"]) == (1, 7.0, {})
    assert (old["calls"], old["p50_ms"], old["failures"]) == (25, 100.0, {"timeout": 5})
    assert new["fingerprint"] != old["fingerprint"]
    assert card["suggestions"] == {
        "after_failure": {"given": 1, "taken": 1},
        "as_alternate": {"given": 1, "taken": 0},
    }


def test_a_scorecard_can_be_read(run: Run, history: History, registry: Registry) -> None:
    """The state, a row for all and one a definition, the classes, and the suggestions."""
    history.suggest("files__read_text", "calendar__add_event", None, 1.0)
    text = run("scorecard", "calendar__add_event").out
    entry = registry.find("calendar__add_event")
    assert entry is not None
    for shown in (
        "calendar__add_event (listed)",
        f"{entry.card.fingerprint[:8]} (current)",
        "classes: 20 success, 5 tool_fail:timeout, 1 tool_fail:schema",
        "suggested after another card failed: 1, 0 of them taken",
        "suggestions after it failed: 0, 0 of them taken",
    ):
        assert shown in text
    assert sum("80%" in row for row in text.splitlines()) == 2


def test_a_card_nobody_called_has_an_empty_scorecard(run: Run, history: History, registry: Registry) -> None:
    """It is on file, so it is no error; a removed one as well."""
    registry.sight("calendar", [tool("add_event")], 1_800_000_000.0)
    card = run("scorecard", "calendar__list_events", "--json").json()
    assert (card["state"], card["total"]["calls"], card["total"]["rate"]) == ("removed", 0, None)
    assert [version["calls"] for version in card["versions"]] == [0]
    assert "calendar__list_events (removed)" in run("scorecard", "calendar__list_events").out


@pytest.mark.parametrize(
    ("id_", "said"),
    [
        ("calendar__add_events", "did you mean 'calendar__add_event'?"),
        ("nothing of the kind", "`roster ratings` lists what was called"),
    ],
)
def test_a_scorecard_of_an_unknown_card_names_the_nearest(run: Run, history: History, id_: str, said: str) -> None:
    """Status 1, the id and a way on in one line."""
    ran = run("scorecard", id_)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == f"roster: no card has the id {id_!r}: {said}\n"


# -------------------------------------------------------------------------------------------- history


def test_the_history_says_what_it_holds_and_within_which_limits(run: Run, home: Home, history: History) -> None:
    """Counts, times and sizes by kind, the levels that record it, and the settings."""
    need = history.keep_need(NeedRow("e1", np.ones(4, np.float32), []), 5.0)
    history.record(OutcomeRow("a", "p", Outcome.SUCCESS, None, 1.0, 6.0, drafted=True, need=need))
    home.config.write_text(json.dumps({"mcpServers": MINE, "learning": "ratings", "history_days": 30}))

    seen = run("history", "--json").json()
    assert (seen["learning"], seen["limits"]) == ("ratings", {"days": 30, "outcomes": 100_000, "needs": 20_000})
    assert (seen["outcomes"]["count"], seen["outcomes"]["oldest"]) == (30, 6.0)
    assert seen["outcomes"]["levels"] == ["ratings", "full"]
    assert (seen["needs"]["count"], seen["needs"]["newest"], seen["needs"]["encoders"]) == (1, 5.0, {"e1": 1})
    assert seen["needs"]["levels"] == ["full"]
    assert (seen["suggestions"]["count"], seen["suggestions"]["oldest"]) == (0, None)
    files = [home.database, home.database.with_name("roster.db-wal")]
    assert seen["size_bytes"] == sum(file.stat().st_size for file in files)
    text = run("history").out
    for shown in ('learning "ratings"', "outcomes", "30", "needs", '"full"', "30 days", "100,000", "history clear"):
        assert shown in text


def test_clearing_asks_first_and_forgets_then(
    run: Run, history: History, monkeypatch: pytest.MonkeyPatch, db: sqlite3.Connection
) -> None:
    """Nothing goes without a yes: not on a no, not where nobody can be asked. Cards stay, and are found as before."""
    found = lexical_hits(db, "find a file", 9)
    alone = run("history", "clear")
    assert (alone.status, "add --yes" in alone.err, history.kept()["outcomes"].count) == (2, True, 29)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for answer in ("n\n", "\n", "", "yess\n"):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        refused = run("history", "clear")
        assert (refused.status, refused.out, history.kept()["outcomes"].count) == (1, "", 29)
        assert refused.err.startswith("Forget all outcomes, needs and suggestions? [y/N] ")
    monkeypatch.setattr(sys, "stdin", Terminal("Y\n"))
    asked = run("history", "clear")
    assert (asked.status, asked.out) == (0, "Forgotten: 29 outcomes, 0 needs, 0 suggestions.\n")
    assert history.tallies() == {}
    assert found
    assert lexical_hits(db, "find a file", 9) == found


def test_needs_can_be_cleared_alone(run: Run, history: History) -> None:
    """One JSON document says how much it was; ratings stay, and another process's connection sees it."""
    need = history.keep_need(NeedRow("e1", np.ones(4, np.float32), []), 5.0)
    history.record(OutcomeRow("a", "p", Outcome.SUCCESS, None, 1.0, 6.0, drafted=True, need=need))

    before = history.newest()[1]
    cleared = run("history", "clear", "--needs", "--yes", "--json").json()
    assert cleared == {"outcomes": 0, "needs": 1, "suggestions": 0}
    assert (history.kept()["outcomes"].count, history.encoders()) == (30, {})
    assert history.newest()[1] == before + 1
    assert run("history", "clear", "-y", "--json").json() == {"outcomes": 30, "needs": 0, "suggestions": 0}


@pytest.mark.parametrize("words", [["ratings"], ["scorecard", "x"], ["history"], ["history", "clear", "--yes"]])
def test_a_config_that_cannot_be_read_is_a_misuse(run: Run, home: Home, words: list[str]) -> None:
    """Status 2 and one line that names the file."""
    home.config.write_text("{")
    ran = run(*words)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"roster: {home.config}")


def test_the_command_to_clear_explains_itself(run: Run) -> None:
    """It is no command of the first row, but it has help as they do."""
    text = run("history", "clear", "--help").out
    for shown in ("Forget what is recorded", "--needs", "--yes", "--json"):
        assert shown in text
    assert cli.app.registered_groups


# -------------------------------------------------------------------------------- what a call records


def drafted(*ids: str) -> Drafted:
    return Drafted(ids, NeedRow("words", np.ones(4, np.float32), [(1, 0.5)]))


def served(history: History) -> list[int]:
    """The numbers of the needs that outcomes are tied to, one each."""
    return [event.need for event in history.events() if event.need is not None]


async def called(roster: Roster, draft: Drafted | None) -> None:
    """Call the calendar's tool once."""
    roster.catalogue.refresh()
    entry = roster.catalogue.find("calendar__add_event")
    assert entry is not None
    assert (await roster.caller.call(entry.card, {}, drafted=draft)).outcome is Outcome.SUCCESS
    await roster.caller.scribe.finish()


@pytest.mark.parametrize(("level", "outcomes", "needs"), [("off", 0, 0), ("ratings", 2, 0), ("full", 2, 1)])
async def test_a_level_decides_what_a_call_leaves_behind(
    home: Home, tmp_path: Path, level: Level, outcomes: int, needs: int
) -> None:
    """Nothing; how it ended; or that and its need, once a draft. What was there before stays at every level."""
    server = Scripted(tmp_path, "calendar", rows=[tool("add_event")])
    async with running(home, {"calendar": server.entry()}, learning=level) as roster:
        before = History(roster.writer.db)
        need = before.keep_need(NeedRow("words", np.ones(4, np.float32), []), 1.0)
        before.record(OutcomeRow("a", "p", Outcome.SUCCESS, None, 1.0, 1e12, drafted=True, need=need))
        draft = drafted("calendar__add_event")
        await called(roster, draft)
        await called(roster, draft)

        kept = before.kept()
        assert (kept["outcomes"].count - 1, kept["needs"].count - 1) == (outcomes, needs)
        assert len(served(before)) == 1 + (2 if needs else 0)


async def test_a_need_that_could_not_be_stored_is_stored_with_the_next_call(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was rolled back is nowhere remembered, so that no other need is taken for this one."""
    server = Scripted(tmp_path, "calendar", rows=[tool("add_event")])
    recorded = History.record
    async with running(home, {"calendar": server.entry()}) as roster:
        draft, other = drafted("calendar__add_event"), drafted("calendar__add_event")

        def full(self: History, row: OutcomeRow) -> int:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(History, "record", full)
        await called(roster, draft)
        assert draft.stored is None
        monkeypatch.setattr(History, "record", recorded)
        await called(roster, other)
        await called(roster, draft)

        needs = served(History(roster.writer.db))
        assert needs == [other.stored, draft.stored]
        assert len(set(needs)) == 2


async def test_calls_go_on_being_recorded_after_another_process_has_cleared(
    home: Home, tmp_path: Path, connect: Callable[[], sqlite3.Connection]
) -> None:
    """A draft from before: its call counts, without its need. A draft from after: with it."""
    server = Scripted(tmp_path, "calendar", rows=[tool("add_event")])
    async with running(home, {"calendar": server.entry()}) as roster:
        old = drafted("calendar__add_event")
        await called(roster, old)
        elsewhere = History(connect())
        elsewhere.clear()
        await called(roster, old)
        assert elsewhere.tallies()["calendar__add_event"].calls == 1
        assert served(elsewhere) == []
        await called(roster, drafted("calendar__add_event"))
        assert len(served(elsewhere)) == 1


async def test_every_call_takes_what_is_over_the_limits_along(home: Home, tmp_path: Path) -> None:
    """The history of a process that runs for long stays within its limits, and the newest is what stays."""
    server = Scripted(tmp_path, "calendar", rows=[tool("add_event")])
    async with running(home, {"calendar": server.entry()}, history_outcomes=3, history_needs=2) as roster:
        history = History(roster.writer.db)
        for n in range(8):
            await called(roster, drafted("calendar__add_event"))
            kept = history.kept()
            assert (kept["outcomes"].count, kept["needs"].count) == (min(n + 1, 3), min(n + 1, 2))
        assert [event.number for event in history.events()] == [6, 7, 8]


def old_ones(history: History, count: int) -> None:
    for n in range(count):
        history.record(OutcomeRow("a", "p", Outcome.SUCCESS, None, 1.0, 1000.0 + n, drafted=False))


def test_reindex_prunes(run: Run, home: Home, tmp_path: Path, db: sqlite3.Connection) -> None:
    """All that is over the limits at once, however much it is; its figures stay what they are."""
    server = Scripted(tmp_path, "calendar", rows=[tool("add_event")])
    home.config.write_text(json.dumps({"mcpServers": {"calendar": server.entry()}}))
    history = History(db)
    old_ones(history, app.PRUNED_AT_ONCE + 10)
    figures = run("reindex", "--json").json()
    assert history.kept()["outcomes"].count == 0
    assert figures.keys() == set("cards added changed removed embedded quarantined seconds failed".split())


async def test_serving_prunes_once_it_has_embedded(
    home: Home, tmp_path: Path, db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the background, so that a home that only ever serves is kept within its limits as well."""
    monkeypatch.setattr(app, "open_encoder", lambda *_: WordEncoder())
    server = Scripted(tmp_path, "calendar", rows=[tool("add_event")])
    history = History(db)
    old_ones(history, 10)
    async with running(home, {"calendar": server.entry()}, indexed=True):
        await until(lambda: history.kept()["outcomes"].count == 0)


def test_pruning_stops_when_the_process_does(home: Home, db: sqlite3.Connection) -> None:
    """What is left is over the limits still; the next one takes it up."""
    history = History(db)
    old_ones(history, 10)
    with open_roster(read_config("{}"), home) as roster:
        roster.stop_indexing()
        assert roster.prune_history() == 0
    with open_roster(read_config("{}"), home) as roster:
        assert roster.prune_history() == 10
