"""Cards on file: what a listing brought, what drifted and until when it is held, which vectors stay."""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np
import pytest
from fakes import HOUR, Clock, WordEncoder, tool

from roster.cards import FORMULA, card_from_tool, dense_text, fingerprint, text_hash
from roster.database import generation
from roster.dwell import DWELL_S, Reason
from roster.errors import UnknownCardError
from roster.registry import Entry, Registry
from roster.servernotes import ServerNote
from roster.sighting import Sighting
from roster.uptime import Uptime

ADD, LIST, DROP = tool("add", "Add an event"), tool("list", "List events"), tool("drop", "Drop an event")
ADD2 = tool("add", "Add an event, and mail everybody")


def sight(registry: Registry, clock: Clock, *rows: dict[str, Any], server: str = "cal", **more: Any) -> Sighting:
    # The clock is right: the steady one beside it goes as far.
    return registry.sight(server, rows, clock.now, **{"uptime": Uptime(clock.now, "boot"), **more})


def entry(registry: Registry, id_: str) -> Entry:
    found = registry.find(id_)
    assert found is not None
    return found


def held(registry: Registry) -> set[str]:
    return {each.card.id for each in registry.since(-1) if each.quarantined}


def drifts(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return db.execute("SELECT card, old, new, cleared_by FROM drift ORDER BY number").fetchall()


def words(db: sqlite3.Connection, word: str) -> list[int]:
    return [row[0] for row in db.execute("SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid", (word,))]


def counts(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return db.execute("SELECT id, first_seen, last_seen, sightings FROM cards ORDER BY number").fetchall()


# ------------------------------------------------------------------------------------------- sightings


def test_a_first_listing_adds_its_cards(registry: Registry, db: sqlite3.Connection, clock: Clock) -> None:
    """In order, free to be drafted, found by their words; one new generation for all of them."""
    seen = sight(registry, clock, ADD, LIST)

    assert seen == Sighting(2, added=("cal__add", "cal__list"))
    assert seen.news
    assert [(e.card.id, e.position, e.removed, e.quarantined, e.generation) for e in registry.since(-1)] == [
        ("cal__add", 0, False, False, 1),
        ("cal__list", 1, False, False, 1),
    ]
    found = entry(registry, "cal__add")
    assert found.card == card_from_tool("cal", ADD)
    assert found.text_hash == text_hash(dense_text(found.card))
    assert words(db, "events") == [2]
    assert counts(db) == [("cal__add", clock.now, clock.now, 1), ("cal__list", clock.now, clock.now, 1)]


def test_the_same_listing_again_is_no_news(registry: Registry, db: sqlite3.Connection, clock: Clock) -> None:
    """It is counted and dated; no draft can see it, so no process is made to look."""
    first = clock.now
    sight(registry, clock, ADD, LIST)
    now = clock.advance(HOUR)
    seen = sight(registry, clock, ADD, LIST)

    assert seen == Sighting(2)
    assert not seen.news
    assert generation(db) == 1
    assert registry.since(1) == []
    assert counts(db) == [("cal__add", first, now, 2), ("cal__list", first, now, 2)]


def test_a_changed_contract_is_drift_and_holds_the_card(
    registry: Registry, db: sqlite3.Connection, clock: Clock
) -> None:
    """The new contract is what is stored and searched, both fingerprints are on record, the id and number stay."""
    sight(registry, clock, ADD, LIST)
    clock.advance(HOUR)
    seen = sight(registry, clock, ADD2, LIST)

    assert seen == Sighting(2, changed=("cal__add",), held=("cal__add",))
    assert held(registry) == {"cal__add"}
    (changed,) = registry.since(1)
    assert (changed.number, changed.card) == (1, card_from_tool("cal", ADD2))
    assert changed.text_hash == text_hash(dense_text(changed.card))
    old, new = card_from_tool("cal", ADD).fingerprint, changed.card.fingerprint
    assert drifts(db) == [("cal__add", old, new, None)]
    assert words(db, "mail") == [1]
    contracts = db.execute("SELECT fingerprint, first_seen FROM contracts WHERE card = 'cal__add' ORDER BY first_seen")
    assert contracts.fetchall() == [(old, clock.now - HOUR), (new, clock.now)]


def test_with_quarantine_off_drift_is_recorded_and_holds_nothing(
    registry: Registry, db: sqlite3.Connection, clock: Clock
) -> None:
    """The event stays visible; the card stays in drafts."""
    sight(registry, clock, ADD)

    assert sight(registry, clock, ADD2, quarantine=False).changed == ("cal__add",)
    assert held(registry) == set()
    assert len(drifts(db)) == 1


@pytest.mark.parametrize("more", [{"icons": [{"src": "data:"}]}, {"_meta": {"build": 2}}, {"unknown": [1]}])
def test_a_change_outside_the_contract_is_kept_without_drift(
    registry: Registry, db: sqlite3.Connection, clock: Clock, more: dict[str, Any]
) -> None:
    """Transparent mode shows the new row; nobody is warned, and it is there for other processes to see."""
    sight(registry, clock, ADD)
    seen = sight(registry, clock, ADD | more)

    assert seen == Sighting(1)
    assert entry(registry, "cal__add").card.raw == ADD | more
    assert (held(registry), drifts(db)) == (set(), [])
    assert [e.card.id for e in registry.since(1)] == ["cal__add"]


def test_a_new_order_moves_positions_and_nothing_else(registry: Registry, db: sqlite3.Connection, clock: Clock) -> None:
    """Listings keep the backend's own order; moving is neither drift nor news for a draft."""
    sight(registry, clock, ADD, LIST)

    assert sight(registry, clock, LIST, ADD) == Sighting(2)
    assert [(e.card.name, e.position) for e in sorted(registry.since(1), key=lambda e: e.number)] == [
        ("add", 1),
        ("list", 0),
    ]
    assert drifts(db) == []


def test_what_a_complete_listing_lacks_is_removed(registry: Registry, db: sqlite3.Connection, clock: Clock) -> None:
    """It becomes a tombstone: found by id, not by words, and no longer counted as seen."""
    first = clock.now
    sight(registry, clock, ADD, LIST)
    clock.advance(HOUR)

    assert sight(registry, clock, LIST) == Sighting(1, removed=("cal__add",))
    assert entry(registry, "cal__add").removed
    assert [e.card.id for e in registry.since(1) if e.removed] == ["cal__add"]
    assert words(db, "event") == []
    assert counts(db)[0] == ("cal__add", first, first, 1)
    assert sight(registry, clock, LIST) == Sighting(1)


def test_a_listing_of_one_server_says_nothing_of_another(registry: Registry, clock: Clock) -> None:
    """Equal names on two servers are two cards."""
    sight(registry, clock, ADD, server="cal")
    sight(registry, clock, ADD, server="files")

    assert sight(registry, clock, server="files").removed == ("files__add",)
    assert not entry(registry, "cal__add").removed


def test_an_incomplete_listing_removes_nothing(registry: Registry, clock: Clock) -> None:
    """A page that could not be read is no proof that its tools are gone; what is new in the rest still counts."""
    sight(registry, clock, ADD, LIST)

    assert sight(registry, clock, LIST, DROP, complete=False) == Sighting(2, added=("cal__drop",))
    assert not entry(registry, "cal__add").removed


def test_a_row_that_is_listed_but_unusable_is_not_removed(registry: Registry, clock: Clock) -> None:
    """A tool with a broken row today keeps the card it had yesterday."""
    sight(registry, clock, ADD, LIST, DROP)

    assert sight(registry, clock, LIST, present=["add", "never seen"]).removed == ("cal__drop",)
    assert not entry(registry, "cal__add").removed


def test_a_card_that_returns_as_it_was_is_free(registry: Registry, db: sqlite3.Connection, clock: Clock) -> None:
    """Removed and listed again with the same contract: added, under its old number, without drift."""
    sight(registry, clock, ADD, LIST)
    sight(registry, clock, LIST)
    seen = sight(registry, clock, ADD, LIST)

    assert seen == Sighting(2, added=("cal__add",))
    assert (entry(registry, "cal__add").number, entry(registry, "cal__add").removed) == (1, False)
    assert (drifts(db), held(registry)) == ([], set())
    assert words(db, "add") == [1]


def test_a_card_that_returns_with_another_contract_is_drift(registry: Registry, clock: Clock) -> None:
    """Removing a tool and adding it again is no way around quarantine."""
    sight(registry, clock, ADD, LIST)
    sight(registry, clock, LIST)

    assert sight(registry, clock, ADD2, LIST) == Sighting(2, changed=("cal__add",), held=("cal__add",))
    assert held(registry) == {"cal__add"}
    assert not entry(registry, "cal__add").removed


def test_a_held_card_that_goes_and_returns_is_still_held(registry: Registry, clock: Clock) -> None:
    """Its dwell goes on from when it changed."""
    for rows in ([ADD], [ADD2], [], [ADD2]):
        sight(registry, clock, *rows)
    assert held(registry) == {"cal__add"}

    clock.advance(DWELL_S)
    assert sight(registry, clock, ADD2).cleared == ("cal__add",)


def test_another_formula_re_baselines_without_a_word(registry: Registry, db: sqlite3.Connection, clock: Clock) -> None:
    """An upgrade of Roster quarantines nobody, even where the contract changed meanwhile."""
    sight(registry, clock, ADD, LIST)
    db.execute("UPDATE cards SET formula = ?, fingerprint = 'of another formula'", (FORMULA - 1,))

    assert sight(registry, clock, ADD2, LIST) == Sighting(2)
    assert (held(registry), drifts(db)) == (set(), [])
    assert entry(registry, "cal__add").card.fingerprint == card_from_tool("cal", ADD2).fingerprint
    assert sight(registry, clock, ADD, LIST).changed == ("cal__add",)  # from the new baseline on it counts again


def test_every_definition_a_card_has_had_is_on_file_with_its_time(registry: Registry, clock: Clock) -> None:
    """Newest first, each from its first listing to its last; one that comes back goes on where it was."""

    def told() -> list[tuple[str, float, float, bool]]:
        return [(c.fingerprint, c.first_seen, c.last_seen, c.current) for c in registry.contracts("cal__add")]

    one, two = (card_from_tool("cal", row).fingerprint for row in (ADD, ADD2))
    first = clock.now
    sight(registry, clock, ADD)
    sighted = clock.advance(HOUR)
    sight(registry, clock, ADD)
    assert told() == [(one, first, sighted, True)]
    changed = clock.advance(HOUR)
    sight(registry, clock, ADD2)
    again = clock.advance(HOUR)
    sight(registry, clock, ADD2)
    assert told() == [(two, changed, again, True), (one, first, sighted, False)]
    back = clock.advance(HOUR)
    sight(registry, clock, ADD)
    assert told() == [(one, first, back, True), (two, changed, again, False)]
    assert registry.contracts("cal__none") == []
    assert registry.servers_by_id() == {"cal__add": "cal"}


def test_a_sighting_is_whole_or_nothing(registry: Registry, db: sqlite3.Connection, clock: Clock) -> None:
    """A row that cannot be stored costs the listing, not half of it."""
    sight(registry, clock, ADD)

    with pytest.raises(KeyError):
        sight(registry, clock, ADD2, LIST, {"no": "name"})
    assert (generation(db), held(registry), len(registry.since(-1))) == (1, set(), 1)
    assert counts(db)[0][3] == 1
    assert sight(registry, clock, ADD, LIST).added == ("cal__list",)


# ---------------------------------------------------------------------------------------- quarantine


def test_a_stable_card_is_cleared_after_the_dwell_and_not_before(
    registry: Registry, db: sqlite3.Connection, clock: Clock
) -> None:
    """24 hours after the change, at a sighting of the same contract; not by time alone."""
    sight(registry, clock, ADD)
    sight(registry, clock, ADD2)
    clock.advance(24 * HOUR - 1)
    assert sight(registry, clock, ADD2) == Sighting(1)
    assert held(registry) == {"cal__add"}

    clock.advance(1)
    assert held(registry) == {"cal__add"}
    before = generation(db)
    seen = sight(registry, clock, ADD2)

    assert seen == Sighting(1, cleared=("cal__add",))
    assert seen.news
    assert (held(registry), generation(db)) == (set(), before + 1)
    assert [row[3] for row in drifts(db)] == ["dwell"]


def test_a_card_that_changes_again_dwells_anew(registry: Registry, db: sqlite3.Connection, clock: Clock) -> None:
    """Only a contract that stayed the same for 24 hours clears itself."""
    sight(registry, clock, ADD)
    sight(registry, clock, ADD2)
    clock.advance(DWELL_S)

    assert sight(registry, clock, ADD | {"title": "third"}).changed == ("cal__add",)
    clock.advance(DWELL_S - 1)
    assert sight(registry, clock, ADD | {"title": "third"}).cleared == ()
    clock.advance(1)
    assert sight(registry, clock, ADD | {"title": "third"}).cleared == ("cal__add",)
    assert [row[3] for row in drifts(db)] == ["superseded", "dwell"]


def test_a_person_clears_a_card_at_once(registry: Registry, db: sqlite3.Connection, clock: Clock) -> None:
    """True, a new generation, and who did it on record; a card that was not held stays as it is."""
    sight(registry, clock, ADD, LIST)
    sight(registry, clock, ADD2, LIST)
    before = generation(db)

    assert registry.held("cal__add") is Reason.DRIFT
    assert registry.unquarantine("cal__add", clock.now) is True
    assert registry.held("cal__add") is None
    assert generation(db) == before + 1
    assert [e.card.id for e in registry.since(before)] == ["cal__add"]
    assert [row[3] for row in drifts(db)] == ["person"]
    assert registry.unquarantine("cal__add", clock.now) is False
    assert registry.unquarantine("cal__list", clock.now) is False
    assert generation(db) == before + 1
    assert sight(registry, clock, ADD2, LIST) == Sighting(2)  # and it stays cleared


@pytest.mark.parametrize("ask", [Registry.held, lambda r, id_: r.unquarantine(id_, 0.0)])
def test_an_unknown_id_is_an_error(registry: Registry, ask: Any) -> None:
    """It names the id and where to look."""
    with pytest.raises(UnknownCardError, match=r"'cal__ad'.*roster status"):
        ask(registry, "cal__ad")
    assert registry.find("cal__ad") is None


# ------------------------------------------------------------------------------------------- vectors


def keep(registry: Registry, *rows: dict[str, Any], server: str = "cal", encoder: str = "e") -> list[str]:
    texts = [dense_text(card_from_tool(server, row)) for row in rows]
    hashes = [text_hash(text) for text in texts]
    registry.vectors.keep(encoder, hashes, WordEncoder().encode_cards(texts))
    return hashes


def test_stored_vectors_come_back_to_the_bit(registry: Registry) -> None:
    """By encoder and text; unknown ones are left out, and what is stored again takes the place of what was damaged."""
    add, listed = keep(registry, ADD, LIST)
    registry.vectors.keep("e", [add], np.zeros((1, 256), np.float32))
    assert registry.vectors.of("e", dim=256).keys() == {listed}
    keep(registry, ADD)
    (expected,) = WordEncoder().encode_cards([dense_text(card_from_tool("cal", ADD))])

    assert registry.vectors.of("e").keys() == {add, listed}
    found = registry.vectors.of("e", [add, "unknown"])
    assert list(found) == [add]
    np.testing.assert_array_equal(found[add], expected)
    assert registry.vectors.of("other") == registry.vectors.of("other", [add]) == {}


def test_one_encoders_vectors_can_be_forgotten(registry: Registry) -> None:
    """`reindex --full` embeds anew; another model's vectors stay."""
    keep(registry, ADD, encoder="e")
    keep(registry, ADD, encoder="other")
    registry.vectors.forget("e")

    assert registry.vectors.of("e") == {}
    assert len(registry.vectors.of("other")) == 1


def test_drift_drops_the_vectors_of_both_texts(registry: Registry, clock: Clock) -> None:
    """The old text's, and one that an earlier sighting of the new text left; others stay."""
    sight(registry, clock, ADD, LIST)
    *_, listed = keep(registry, ADD, ADD2, LIST)
    sight(registry, clock, ADD2, LIST)

    assert registry.vectors.of("e").keys() == {listed}


def test_drift_keeps_the_vector_of_a_text_that_another_card_has(registry: Registry, clock: Clock) -> None:
    """Only a card that is there and free counts; nothing is embedded again for it."""
    # Two names whose words are the same give the same text.
    twin = tool("ADD", "Add an event")
    sight(registry, clock, ADD, twin)
    (shared,) = set(keep(registry, ADD, twin))
    sight(registry, clock, ADD2, twin)
    assert registry.vectors.of("e").keys() == {shared}

    sight(registry, clock, ADD2, tool("ADD", "Something else"))
    assert registry.vectors.of("e").keys() == set()


def test_a_change_beside_the_text_drops_the_vector_too(registry: Registry, clock: Clock) -> None:
    """The base vector of a drifted card goes, also when only its schema changed."""
    sight(registry, clock, ADD)
    keep(registry, ADD)
    sight(registry, clock, ADD | {"inputSchema": {"type": "object", "required": ["x"]}})

    assert registry.vectors.of("e") == {}


# ------------------------------------------------------------------------------------------- servers


def test_the_last_note_of_a_server_wins_and_gaps_keep_what_was_known(registry: Registry) -> None:
    """A failed start does not forget how many tools there were; a new listing does replace the rejected names."""
    registry.servers.note(ServerNote("cal", "ready", 3, ("bad",), "2026", "1.0", 12.5, 100.0))
    registry.servers.note(ServerNote("cal", "failed", error_kind="exited", error_at=200.0, reason="it ended"))
    expected = ServerNote("cal", "failed", 3, ("bad",), "2026", "1.0", 12.5, 100.0, "exited", 200.0, "it ended")
    assert registry.servers.all() == {"cal": expected}

    registry.servers.note(ServerNote("cal", "ready", tools=4))
    registry.servers.note(ServerNote("files", "starting"))
    assert registry.servers.all()["cal"].rejected == ()
    assert registry.servers.all()["cal"].tools == 4
    assert registry.servers.all()["files"] == ServerNote("files", "starting")


def test_a_fingerprint_on_file_is_the_one_that_was_sighted(registry: Registry, clock: Clock) -> None:
    """Reading a card does not compute it anew, so a later formula does not change the past."""
    sight(registry, clock, ADD)

    assert entry(registry, "cal__add").card.fingerprint == fingerprint(card_from_tool("cal", ADD).kind, ADD)
    registry._db.execute("UPDATE cards SET fingerprint = 'on file'")
    assert entry(registry, "cal__add").card.fingerprint == "on file"


def test_words_split_in_another_way_are_indexed_anew(registry: Registry, db: sqlite3.Connection, clock: Clock) -> None:
    """Once, for the living cards only, whatever an older Roster made of them; nothing else changes."""
    sight(registry, clock, tool("add"), tool("gone"))
    sight(registry, clock, tool("add"))
    db.execute("UPDATE words SET name = 'stale', description = ''")
    before = db.execute("SELECT * FROM cards").fetchall()

    assert (registry.refresh_words(), registry.refresh_words()) == (1, 0)
    assert (words(db, "stale"), words(db, "add"), words(db, "gone")) == ([], [1], [])
    assert db.execute("SELECT * FROM cards").fetchall() == before
    db.execute("UPDATE meta SET value = 1 WHERE key = 'tokens'")
    assert registry.refresh_words() == 1
