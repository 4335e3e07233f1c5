"""Drift on file: events with both definitions, servers that change as a whole, what a person accepted, older homes."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from fakes import HOUR, Clock, tool

from roster.cards import FORMULA, SKILLS, Kind, card_from_tool, dense_text, raw_json, text_hash
from roster.config import Home
from roster.contracts import Severity
from roster.database import MIGRATIONS, open_database
from roster.driftlog import Batch, State
from roster.dwell import DWELL_S, Reason
from roster.errors import UnknownCardError
from roster.history import History, NeedRow, OutcomeRow
from roster.origins import EventKind
from roster.outcomes import Outcome
from roster.registry import Registry
from roster.sighting import Sighting
from roster.uptime import Uptime

ADD, LIST, DROP = tool("add", "Add an event"), tool("list", "List events"), tool("drop", "Drop an event")
ADD2 = tool("add", "Add an event, and mail everybody")
READS = {"annotations": {"readOnlyHint": True}}


def sight(registry: Registry, clock: Clock, *rows: dict[str, Any], server: str = "cal", **more: Any) -> Sighting:
    return registry.sight(server, rows, clock.now, **{"uptime": Uptime(clock.now, "boot"), **more})


def many(count: int, words: str = "", **more: Any) -> list[dict[str, Any]]:
    return [tool(f"t{n}", f"Does thing {n} {words}".strip(), **more) for n in range(count)]


def states(registry: Registry, card: str | None = None) -> list[tuple[str, State]]:
    return [(event.card, event.state) for event in registry.log.events(card)]


# -------------------------------------------------------------------------------------------- events


def test_an_event_has_both_definitions_and_says_how_it_stands(registry: Registry, clock: Clock) -> None:
    """Held, superseded by the next one, cleared by the dwell, by a person; newest first."""
    sight(registry, clock, ADD, LIST)
    clock.advance(HOUR)
    sight(registry, clock, ADD2, LIST | READS)
    (newest, other) = registry.log.events()
    assert (other.card, other.kind, other.severity, other.state) == (
        "cal__add", EventKind.CHANGED, Severity.TEXT, State.HELD)  # fmt: skip
    assert (other.before, other.after, other.at, other.server) == (ADD, ADD2, clock.now, "cal")
    assert newest.card == "cal__list"

    clock.advance(HOUR)
    sight(registry, clock, ADD, LIST | READS)
    assert states(registry, "cal__add") == [("cal__add", State.HELD), ("cal__add", State.SUPERSEDED)]
    registry.unquarantine("cal__list", clock.now)
    clock.advance(DWELL_S)
    sight(registry, clock, ADD, LIST | READS)
    assert states(registry) == [
        ("cal__add", State.DWELL), ("cal__list", State.PERSON), ("cal__add", State.SUPERSEDED)]  # fmt: skip


def test_with_quarantine_off_an_event_is_not_called_held(registry: Registry, clock: Clock) -> None:
    """It is there to be read."""
    sight(registry, clock, ADD)
    sight(registry, clock, ADD2, quarantine=False)

    assert states(registry) == [("cal__add", State.FREE)]


def test_an_older_event_gets_its_severity_from_its_definitions(
    registry: Registry, clock: Clock, db: sqlite3.Connection
) -> None:
    """Both are on file since the first Roster."""
    sight(registry, clock, ADD | READS)
    sight(registry, clock, ADD)
    db.execute("UPDATE drift SET severity = NULL")

    assert [event.severity for event in registry.log.events()] == [Severity.SAFETY]


# ------------------------------------------------------------------------------- servers as a whole


def test_an_upgrade_is_one_event_with_both_versions(registry: Registry, clock: Clock) -> None:
    """Its members are found by its number; a flip toward danger stands beside it."""
    sight(registry, clock, *many(10, **READS), version="box 1.0")
    after = [*many(9, "better", **READS), tool("t9", "Does thing 9")]
    seen = sight(registry, clock, *after, version="box 2.0")
    members = registry.log.events(batch=1)
    (alone,) = [event for event in registry.log.events() if event.batch is None]

    assert seen.batch == Batch(1, clock.now, "cal", 10, 10, "box 1.0", "box 2.0")
    assert registry.log.batches() == [seen.batch]
    assert seen.batch.told() == "cal changed 10 of 10 definitions at once, from box 1.0 to box 2.0"
    assert (len(members), alone.card, alone.severity) == (9, "cal__t9", Severity.SAFETY)
    assert len(registry.log.batch_of_held()) == 9
    assert len(seen.told()) == 2  # two lines of the log, not ten


def test_most_of_a_server_without_a_new_version_says_so(registry: Registry, clock: Clock) -> None:
    """That is the more suspicious of the two."""
    for rows in (many(12), many(12, "better")):
        seen = sight(registry, clock, *rows, version="box 1.0")

    assert seen.batch is not None
    assert seen.batch.told() == "cal changed 12 of 12 definitions at once, without a new version"
    assert {reason for h in registry.holds.all() for reason in [h.reason]} == {Reason.DRIFT}


def test_the_cards_of_an_upgrade_clear_themselves_one_by_one(registry: Registry, clock: Clock) -> None:
    """One that changes again starts anew, the others do not wait for it."""
    sight(registry, clock, *many(4))
    sight(registry, clock, *many(4, "better"))
    clock.advance(DWELL_S)
    seen = sight(registry, clock, *many(3, "better"), tool("t3", "again"))

    assert seen.cleared == ("cal__t0", "cal__t1", "cal__t2")
    assert [held.id for held in registry.holds.all()] == ["cal__t3"]


def test_a_server_renamed_in_the_config_is_told_and_keeps_its_holds(registry: Registry, clock: Clock) -> None:
    """Same contracts, old name configured no more. What was held stays held; what changed on the way is drift."""
    rows = [LIST, DROP, tool("move", "Move an event")]
    sight(registry, clock, ADD, *rows)
    sight(registry, clock, ADD2, *rows)
    seen = sight(registry, clock, ADD2, LIST, {**DROP, "title": "x"}, rows[2], server="agenda", configured=["agenda"])

    assert seen.batch is not None
    assert seen.batch.told() == "the server cal is called agenda now, with 2 of 4 definitions changed"
    assert seen.changed == ("agenda__drop",)
    assert seen.held == ("agenda__add", "agenda__drop")
    assert ("cal__add", "agenda__add") in seen.renamed
    (drop,) = registry.log.events("agenda__drop")
    assert (drop.was, drop.before, drop.after) == ("cal__drop", DROP, {**DROP, "title": "x"})


@pytest.mark.parametrize("configured", [["cal", "agenda"], None])
def test_two_servers_with_one_contract_are_two_servers(
    registry: Registry, clock: Clock, configured: Sequence[str] | None
) -> None:
    """Two accounts of one service: neither is the other one renamed."""
    sight(registry, clock, ADD, LIST)
    seen = sight(registry, clock, ADD, LIST, server="agenda", configured=configured)

    assert (seen.batch, seen.renamed, len(seen.added)) == (None, (), 2)


def test_a_home_of_thousands_of_cards_survives_a_new_formula(
    registry: Registry, clock: Clock, db: sqlite3.Connection
) -> None:
    """3,811 cards: nothing is quarantined, nothing reported, what a person accepted stays accepted."""
    rows = many(3_811)
    sight(registry, clock, *rows)
    registry.accept("cal__t7", clock.now)
    db.execute("UPDATE accepted SET fingerprint = 'old 7'")
    db.execute("UPDATE cards SET formula = ?, fingerprint = 'old ' || substr(name, 2)", (FORMULA - 1,))
    seen = sight(registry, clock, *rows, review=lambda card: True)

    assert (seen, seen.told()) == (Sighting(3_811), [])
    assert (registry.log.events(), registry.log.batches(), registry.holds.all()) == ([], [], [])
    now = card_from_tool("cal", rows[7]).fingerprint
    assert ("cal__t7", now) in set(db.execute("SELECT card, fingerprint FROM accepted"))


# --------------------------------------------------------------------------- what a person decides


def test_a_new_card_that_a_review_finds_fault_with_is_held(registry: Registry, clock: Clock) -> None:
    """Until a person looked; no dwell ends it, and what was accepted is never held again."""
    seen = sight(registry, clock, ADD, LIST, review=lambda card: card.name == "add")
    assert (seen.added, seen.held) == (("cal__add", "cal__list"), ("cal__add",))
    (event,) = registry.log.events()
    assert (event.kind, event.before, event.after, event.state) == (EventKind.FOUND, {}, ADD, State.HELD)

    clock.advance(100 * DWELL_S)
    assert sight(registry, clock, ADD, LIST, review=lambda card: True).cleared == ()
    (held,) = registry.holds.all()
    assert (held.id, held.reason, held.waits_s) == ("cal__add", Reason.REVIEW, None)
    assert registry.unquarantine("cal__add", clock.now)
    sight(registry, clock, ADD2, LIST, review=lambda card: True)
    assert registry.held("cal__add") is Reason.REVIEW
    sight(registry, clock, ADD, LIST, review=lambda card: True)
    assert registry.held("cal__add") is None


def test_a_card_can_be_held_and_accepted_by_hand(registry: Registry, clock: Clock) -> None:
    """Not for less than it is held for, and not what a person accepted."""
    sight(registry, clock, ADD)
    assert registry.hold("cal__add", Reason.DRIFT, clock.now)
    assert registry.hold("cal__add", Reason.REVIEW, clock.now)
    assert not registry.hold("cal__add", Reason.SAFETY, clock.now)
    assert registry.held("cal__add") is Reason.REVIEW
    assert len(registry.log.events()) == 1
    assert registry.accept("cal__add", clock.now)
    assert not registry.accept("cal__add", clock.now)
    assert not registry.hold("cal__add", Reason.REVIEW, clock.now)
    assert (registry.held("cal__add"), states(registry)) == (None, [("cal__add", State.PERSON)])
    for ask in (registry.accept, registry.fingerprint, lambda id_, *_: registry.hold(id_, Reason.DRIFT, 0.0)):
        with pytest.raises(UnknownCardError, match="'cal__none'"):
            ask("cal__none", *([clock.now] if ask == registry.accept else []))


def test_what_changed_since_a_person_looked_is_not_let_in(registry: Registry, clock: Clock) -> None:
    """The look was at another definition."""
    sight(registry, clock, ADD)
    sight(registry, clock, ADD2)
    looked_at = registry.fingerprint("cal__add")
    sight(registry, clock, ADD2 | {"title": "third"})

    assert not registry.unquarantine("cal__add", clock.now, looked_at)
    assert registry.held("cal__add") is Reason.DRIFT
    assert registry.unquarantine("cal__add", clock.now, registry.fingerprint("cal__add"))


def test_skills_drift_like_tools(registry: Registry, clock: Clock) -> None:
    """By body and files; a renamed one is known again."""
    skill = {"name": "pdf", "description": "Read PDFs", "body": "Use it.", "files": {"a.py": "1"}}
    sight(registry, clock, skill, server=SKILLS, kind=Kind.SKILL)
    seen = sight(registry, clock, {**skill, "files": {"a.py": "2"}}, server=SKILLS, kind=Kind.SKILL)
    assert seen.held == ("skill__pdf",)
    assert [change.where for change in registry.log.events()[0].changes()] == ["files.a.py"]
    renamed = {**skill, "name": "pdfs", "files": {"a.py": "2"}}
    assert sight(registry, clock, renamed, server=SKILLS, kind=Kind.SKILL).held == ("skill__pdfs",)


# ------------------------------------------------------------------------------------ what was learned


def test_drift_leaves_no_evidence_of_the_old_definition(
    registry: Registry, clock: Clock, db: sqlite3.Connection
) -> None:
    """Needs that led to the card go, and its place in the running of others; outcomes stay, other cards' needs too."""
    sight(registry, clock, ADD, LIST)
    history = History(db)
    vector = np.ones(4, np.float32) / 2

    def happened(name: str, row: dict[str, Any]) -> None:
        need = history.keep_need(NeedRow("e", vector, ((1, 0.5), (2, 0.25))), clock.now)
        history.record(OutcomeRow(f"cal__{name}", card_from_tool("cal", row).fingerprint, Outcome.SUCCESS, None, 1.0,
                                  clock.now, drafted=True, need=need))  # fmt: skip

    happened("add", ADD)
    happened("list", LIST)
    registry.vectors.keep("e", [text_hash(dense_text(card_from_tool("cal", row))) for row in (ADD, LIST)],
                          np.stack([vector, vector]))  # fmt: skip
    sight(registry, clock, ADD2, LIST)

    assert db.execute("SELECT card, need FROM outcomes ORDER BY number").fetchall() == [
        ("cal__add", None), ("cal__list", 2)]  # fmt: skip
    assert [number for (number,) in db.execute("SELECT number FROM needs")] == [2]
    assert [card for card, _ in history.running_of([2])[2]] == [2]
    assert registry.vectors.of("e").keys() == {text_hash(dense_text(card_from_tool("cal", LIST)))}


# ------------------------------------------------------------------------------------------ older homes


def test_a_home_of_an_older_schema_keeps_what_it_held(home: Home, clock: Clock) -> None:
    """Held cards stay held, for drift, with the time they have waited; what a person cleared counts as accepted."""
    before = next(n for n, statement in enumerate(MIGRATIONS) if "held_reason" in statement)
    old = sqlite3.connect(home.database, isolation_level=None)
    for statement in MIGRATIONS[:before]:
        old.execute(statement)
    old.execute(f"PRAGMA user_version = {before}")
    for number, (name, row, held_at) in enumerate([("add", ADD2, clock.now - 20 * HOUR), ("list", LIST, None)], 1):
        card = card_from_tool("cal", row)
        old.execute(
            "INSERT INTO cards VALUES (?, ?, 'tool', 'cal', ?, ?, ?, ?, ?, ?, ?, ?, 5, NULL, ?, 3)",
            (number, card.id, name, number - 1, raw_json(row), card.fingerprint,
             FORMULA, text_hash(dense_text(card)), clock.now - 90 * HOUR, clock.now, held_at),
        )  # fmt: skip
        old.execute("INSERT INTO contracts VALUES (?, ?, ?, '{}', 1, 1)", (card.id, card.fingerprint, FORMULA))
    print_ = card_from_tool("cal", LIST).fingerprint
    old.execute("INSERT INTO drift VALUES (1, 'cal__list', 5.0, 'x', ?, 6.0, 'person')", (print_,))
    old.execute("INSERT INTO drift VALUES (2, 'cal__add', 5.0, 'x', 'y', NULL, NULL)")
    old.execute("INSERT INTO servers (name, state, version, listed_at) VALUES ('cal', 'ready', 'box 1', 7.0)")
    old.close()

    db = open_database(home.database)
    registry = Registry(db)
    (held,) = registry.holds.all()
    assert (held.id, held.reason, held.at, held.waits_s) == (
        "cal__add", Reason.DRIFT, clock.now - 20 * HOUR, 4 * HOUR)  # fmt: skip
    assert states(registry) == [("cal__add", State.HELD), ("cal__list", State.PERSON)]
    assert db.execute("SELECT card, fingerprint FROM accepted").fetchall() == [("cal__list", print_)]
    clock.advance(4 * HOUR)
    assert sight(registry, clock, ADD2, LIST, version="box 1").cleared == ("cal__add",)
    db.close()
