"""The drift policy, as a table of what was known, what is listed and when: who is held, who is cleared, who is who."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fakes import HOUR, tool

from roster.cards import FORMULA, Card, card_from_tool, raw_json
from roster.contracts import Severity
from roster.drift import News, Plan, Policy, Step, plan
from roster.dwell import DWELL_S, UNSURE_S, Hold, Moment, Reason
from roster.origins import EventKind, Known, Seen, former_server
from roster.uptime import Uptime

T0 = 1_700_000_000.0
READS = {"annotations": {"readOnlyHint": True}}


def at(hours: float, uptime_h: float | None = None, run: str = "boot") -> Moment:
    """A moment that many hours on, by a clock that is right unless the uptime says otherwise."""
    return Moment(T0 + hours * HOUR, Uptime((hours if uptime_h is None else uptime_h) * HOUR, run))


def seen(row: dict[str, Any], position: int = 0, server: str = "s") -> Seen:
    return Seen(row["name"], raw_json(row), position, lambda: card_from_tool(server, row))


def known(row: dict[str, Any], hold: Hold | None = None, *, position: int = 0, **more: Any) -> Known:
    card = card_from_tool("s", row)
    values = {"formula": FORMULA, "removed": False, "fingerprint": card.fingerprint, **more}
    return Known(
        1, card.id, card.name, raw_json(row), text_hash="", position=position, hold=hold, row=lambda: row, **values
    )


def listed(
    before: Sequence[Known], rows: Sequence[dict[str, Any]], now: Moment | None = None, policy: Policy | None = None,
    **more: Any,
) -> Plan:  # fmt: skip
    files = {old.name: old for old in before}
    listing = [seen(row, n) for n, row in enumerate(rows)]
    return plan(files, listing, now or at(1), policy or Policy(), **more)


def one(before: Sequence[Known], row: dict[str, Any], now: Moment | None = None, policy: Policy | None = None) -> Step:
    (step,) = listed(before, [row], now, policy).steps
    return step


def held(step: Step) -> Reason | None:
    return step.hold.reason if step.hold is not None else None


# ----------------------------------------------------------------------------------------------- dwell


def test_time_counts_by_the_slower_of_two_clocks() -> None:
    """Within one boot a clock that is set forward adds nothing, one that is set back nothing either."""
    assert at(30).since(at(10)) == 20 * HOUR
    assert at(1000, uptime_h=1).since(at(0)) == 1 * HOUR
    assert at(5, uptime_h=1000).since(at(0)) == 5 * HOUR
    assert at(-1000, uptime_h=2).since(at(0)) == 0
    assert at(10, uptime_h=-1).since(at(0)) == 0  # no steady clock does that


@pytest.mark.parametrize("before", [Moment(T0), at(0, run="another boot")])
def test_a_gap_that_no_steady_clock_spans_counts_for_eight_hours_at_most(before: Moment) -> None:
    """Across a reboot, a day's absence and a clock set forward by a year look alike."""
    assert at(3).since(before) == 3 * HOUR
    assert at(24).since(before) == at(9_000).since(before) == UNSURE_S
    assert at(-3).since(before) == 0


def test_a_hold_for_drift_clears_itself_and_no_other_does() -> None:
    """What it still waits for: stable time, or a person."""
    waits = {reason: Hold(reason, T0, at(0), 6 * HOUR).waits_s for reason in Reason}

    assert waits == {Reason.DRIFT: 18 * HOUR, Reason.SAFETY: None, Reason.REVIEW: None}
    assert Hold(Reason.DRIFT, T0, at(0)).seen_again(at(100)).waits_s == 0


OLD, NEW = tool("a", "Add an event"), tool("a", "Add an event, and mail everybody")
HELD = Hold(Reason.DRIFT, T0, at(0))


def sightings(moments: Sequence[Moment], hold: Hold = HELD) -> list[News]:
    """The news of each sighting of the same held definition."""
    out = []
    card = known(NEW, hold)
    for moment in moments:
        step = one([card], NEW, moment)
        out.append(step.news)
        card = replace(card, hold=step.hold)
    return out


def test_the_same_definition_seen_again_after_a_day_is_cleared() -> None:
    """Not a second before; and by a sighting, never by time alone."""
    assert sightings([at(23.99), at(24)]) == [News.NONE, News.CLEARED]
    assert sightings([at(24)]) == [News.CLEARED]


def test_a_clock_that_is_set_forward_clears_nothing() -> None:
    """However far and however often: an hour of uptime is an hour."""
    jumps = [at(24.0 * 365 * n, uptime_h=n / 10) for n in range(1, 40)]

    assert News.CLEARED not in sightings(jumps)


def test_who_starts_the_machine_once_a_day_is_cleared_on_the_third_day() -> None:
    """A new boot each time, so no steady clock spans the nights."""
    days = [at(24 * n, uptime_h=0.1, run=f"boot {n}") for n in range(1, 5)]

    assert sightings(days)[:3] == [News.NONE, News.NONE, News.CLEARED]


def test_time_in_which_a_card_was_not_listed_does_not_count() -> None:
    """Nobody saw that it stayed the same."""
    away = known(NEW, Hold(Reason.DRIFT, T0, at(1), HOUR), removed=True)
    step = one([away], NEW, at(100))

    assert step.news is News.ADDED
    assert step.hold is not None
    assert (step.hold.stable_s, step.hold.seen) == (HOUR, at(100))


# --------------------------------------------------------------------------------------------- one card


def test_a_first_sighting_is_no_drift() -> None:
    """Added, free, nothing to report."""
    step = one([], OLD)

    assert (step.news, step.hold, step.event, step.old) == (News.ADDED, None, None, None)


def test_what_is_as_it_was_is_not_written() -> None:
    """To the byte, in its place, of this formula: the most common case costs nothing."""
    assert one([known(OLD)], OLD) == Step(seen(OLD), known(OLD), written=False)
    assert one([known(OLD, position=4)], OLD).written
    assert one([known(OLD)], {**OLD, "icons": []}).written


def test_a_change_holds_the_card_and_is_recorded() -> None:
    """With both fingerprints and how grave it is."""
    step = one([known(OLD)], NEW)
    assert step.event is not None
    assert (step.news, held(step), step.event.kind) == (News.CHANGED, Reason.DRIFT, EventKind.CHANGED)
    assert step.event.severity is Severity.TEXT
    assert step.event.old == known(OLD).fingerprint
    assert step.event.new == known(NEW).fingerprint


def test_a_second_change_starts_the_dwell_anew() -> None:
    """Also when it was about to end."""
    step = one([known(NEW, replace(HELD, stable_s=DWELL_S - 1))], {**NEW, "title": "third"}, at(23))

    assert step.hold == Hold(Reason.DRIFT, at(23).at, at(23), 0.0)


def test_a_hint_that_flips_toward_danger_waits_for_a_person() -> None:
    """And a harmless change on top of it clears nothing: what holds a card gets no lighter."""
    step = one([known(OLD | READS)], OLD)
    assert held(step) is Reason.SAFETY
    for more in (NEW, NEW | READS):
        again = one([known(OLD, step.hold)], more)
        assert held(again) is Reason.SAFETY
    assert sightings([at(1000)], replace(HELD, reason=Reason.SAFETY)) == [News.NONE]


def test_new_words_that_are_suspicious_wait_for_a_person() -> None:
    """Whoever judges them sees both definitions."""
    asked = []

    def suspicious(old: Card, new: Card) -> bool:
        asked.append((old.raw, new.raw))
        return "mail" in new.description

    step = one([known(OLD)], NEW, policy=Policy(suspicious=suspicious))
    assert step.event is not None
    assert (held(step), step.event.severity) == (Reason.SAFETY, Severity.SAFETY)
    assert asked == [(OLD, NEW)]
    assert held(one([known(OLD)], {**OLD, "title": "x"}, policy=Policy(suspicious=suspicious))) is Reason.DRIFT


def test_a_review_holds_new_cards_and_changed_ones() -> None:
    """Not those that are as they were, however suspect: they had their turn."""
    policy = Policy(review=lambda card: "mail" in card.description)
    first = one([], NEW, policy=policy)
    assert first.event is not None
    assert (first.news, held(first), first.event.kind, first.event.old) == (
        News.ADDED,
        Reason.REVIEW,
        EventKind.FOUND,
        "",
    )
    assert held(one([known(OLD)], NEW, policy=policy)) is Reason.REVIEW
    assert held(one([known(NEW)], NEW, policy=policy)) is None
    assert held(one([], OLD, policy=policy)) is None


def test_what_a_person_accepted_is_not_held_again() -> None:
    """That definition of that card; the change is on record as cleared by a person, and others are held."""
    accepted = Policy(review=lambda card: True, accepted={(known(NEW).id, known(NEW).fingerprint)})
    step = one([known(OLD)], NEW, policy=accepted)
    assert step.event is not None
    assert (step.news, step.hold, step.event.accepted) == (News.CHANGED, None, True)
    assert held(one([], NEW, policy=accepted)) is None
    assert held(one([known(NEW)], OLD, policy=accepted)) is Reason.REVIEW


def test_with_quarantine_off_changes_are_recorded_and_nothing_is_held() -> None:
    """Reviews neither."""
    off = Policy(quarantine=False, review=lambda card: True)
    changed, new = one([known(OLD | READS)], NEW, policy=off), one([], NEW, policy=off)

    assert (changed.hold, new.hold, new.event) == (None, None, None)
    assert changed.event is not None
    assert not changed.event.held


def test_another_formula_is_a_new_baseline() -> None:
    """Never drift; what was held stays held."""
    old = known(OLD, formula=FORMULA - 1, fingerprint="of another formula")
    step = one([old], NEW)
    assert (step.news, step.hold, step.event, step.written, step.baseline) == (News.NONE, None, None, True, True)
    kept = one([replace(old, hold=HELD)], OLD, at(1))
    assert kept.hold == replace(HELD, stable_s=HOUR, seen=at(1))


# ------------------------------------------------------------------------------------------ who was who


def test_a_new_name_for_a_contract_whose_name_is_gone_is_a_rename() -> None:
    """One event beside the removal, no drift, not held."""
    made = listed([known(OLD)], [{**OLD, "name": "b"}])
    (step,) = made.steps
    assert step.event is not None
    assert (step.event.kind, step.event.was, step.news, step.hold) == (EventKind.RENAMED, "s__a", News.ADDED, None)
    assert [old.name for old in made.removed] == ["a"]


def test_an_incomplete_listing_removes_and_renames_nothing() -> None:
    """What is not in it may be on the page that could not be read; nor is what is there and unusable gone."""
    for more in ({"complete": False}, {"present": ["a"]}):
        made = listed([known(OLD)], [{**OLD, "name": "b"}], **more)
        assert (made.removed, made.steps[0].event) == ([], None)


def test_a_rename_does_not_wash_a_held_card_clean() -> None:
    """Under every name its definition takes, at once or after it was gone for a while, for the same reason or worse."""
    for reason in Reason:
        for removed in (False, True):
            old = known(NEW, Hold(reason, T0, at(0), 20 * HOUR), removed=removed)
            made = listed([old], [{**NEW, "name": name} for name in ("b", "c")])
            assert [held(step) for step in made.steps] == [reason, reason]
            assert {step.hold.stable_s for step in made.steps if step.hold} == {0.0}


def test_a_copy_of_a_held_card_beside_it_is_held() -> None:
    """Also when the listing is incomplete, so that nobody knows whether the first is gone."""
    old = known(NEW, HELD)
    for made in (listed([old], [{**NEW, "name": "b"}, NEW]), listed([old], [{**NEW, "name": "b"}], complete=False)):
        step = made.steps[0]
        assert step.event is not None
        assert (held(step), step.event.kind) == (Reason.DRIFT, EventKind.COPIED)


@pytest.mark.parametrize("removed_before", [False, True])
def test_a_new_name_with_another_contract_is_drift_of_the_old_one(removed_before: bool) -> None:
    """When its description or its parameters are those of just one card that is gone: held, with both definitions."""
    old = known(OLD, HELD if removed_before else None, removed=removed_before)
    made = listed([old], [{**OLD, "name": "b", "title": "B"}])
    (step,) = made.steps
    assert step.event is not None
    assert (step.event.kind, step.event.was, step.news) == (EventKind.CHANGED, "s__a", News.CHANGED)
    assert held(step) is Reason.DRIFT
    assert step.event.old == old.fingerprint


def test_what_two_cards_could_have_been_is_new() -> None:
    """A guess would put another tool's history beside it."""
    twins = [known(tool(name, "Add an event")) for name in ("a", "b")]
    made = listed(twins, [tool("c", "Add an event", title="C")])

    assert (made.steps[0].event, made.steps[0].news, len(made.removed)) == (None, News.ADDED, 2)
    assert listed([known(OLD)], [tool("b", "Something else")]).steps[0].event is None


def test_several_renames_of_equal_contracts_are_each_told_once() -> None:
    """Two cards with one contract that become two others are two renames."""
    twins = [known(tool(name, "Add")) for name in ("a", "b")]
    made = listed(twins, [tool("c", "Add"), tool("d", "Add"), tool("e", "Add")])

    assert [step.event.was if step.event else None for step in made.steps] == ["s__a", "s__b", None]


def test_a_server_under_another_name_is_known_by_its_contracts() -> None:
    """Most of them, on both sides, and of one server only."""
    rows = [tool(name, f"Does {name}") for name in "abcd"]
    listing = [seen(row, server="t") for row in rows]
    files = {row["name"]: known(row) for row in rows}
    half = {name: files[name] for name in "ab"}

    assert former_server(listing, {"old": files}) == ("old", files)
    assert former_server(listing, {"old": half, "less": {"a": files["a"]}}) == ("old", half)
    assert former_server(listing, {"old": files, "other": files}) is None
    assert former_server(listing, {"less": {"a": files["a"]}}) is None
    assert former_server([], {"old": files}) is None


def test_what_a_server_was_held_for_it_is_held_for_under_its_new_name() -> None:
    """And what changed on the way is drift; the rest is new here, and free."""
    rows = [tool(name, f"Does {name}") for name in "abc"]
    moved = {row["name"]: known(row, HELD if row["name"] == "a" else None) for row in rows}
    listing = [rows[0], tool("b", "Does something else"), rows[2], tool("d", "Does d")]
    made = plan({}, [seen(row, server="t") for row in listing], at(1), Policy(), moved=moved)

    assert [held(step) for step in made.steps] == [Reason.DRIFT, Reason.DRIFT, None, None]
    assert [step.event.was if step.event else None for step in made.steps] == ["s__a", "s__b", None, None]
    assert [step.news for step in made.steps] == [News.ADDED, News.CHANGED, News.ADDED, News.ADDED]
    assert made.removed == []


# ------------------------------------------------------------------------------------------------- bulk


@pytest.mark.parametrize(
    ("of", "changed", "upgraded", "bulk"),
    [(6, 3, True, True), (7, 3, True, False), (2, 2, True, False), (3, 3, True, True), (3, 3, False, False),
     (9, 9, False, False), (20, 10, False, True), (21, 10, False, False)],
)  # fmt: skip
def test_most_of_a_server_at_once_is_one_event(of: int, changed: int, upgraded: bool, bulk: bool) -> None:
    """At least half of it: at least three cards of another version, or ten of the same."""
    rows = [tool(f"t{n}", f"Does {n}") for n in range(of)]
    after = [{**row, "title": "new"} if n < changed else row for n, row in enumerate(rows)]
    made = listed([known(row) for row in rows], after, upgraded=upgraded)

    assert (made.bulk, made.changed, made.there) == (bulk, changed, of)


def test_a_flip_toward_danger_is_told_by_itself_in_an_upgrade() -> None:
    """It must not drown among three hundred new descriptions."""
    rows = [tool(f"t{n}", f"Does {n}") | READS for n in range(4)]
    after = [{**row, "description": "new"} for row in rows[:3]] + [tool("t3", "Does 3")]
    made = listed([known(row) for row in rows], after, upgraded=True)

    assert made.bulk
    assert [step.sweeping for step in made.steps] == [True, True, True, False]
