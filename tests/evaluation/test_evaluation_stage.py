"""A home that can be taught anything: what is written, what is kept, and what is as it was before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fakes import WordEncoder

from roster.evaluation.homes import Filled, open_filled, open_scratch
from roster.evaluation.needsets import Need, NeedSet
from roster.evaluation.stage import NOW, Happened, Remembered, Stage, pulled
from roster.history import History
from roster.weights import Weights

TRAIN = [
    Need("a", "send an e-mail to my sister", {"mail-1": 1}),
    Need("b", "answer the message of my boss", {"mail-1": 1}),
    Need("c", "which messages are in the inbox", {"mail-2": 1}),
]


@pytest.fixture
def filled(needset: NeedSet, tmp_path: Path) -> Iterator[Filled]:
    with open_scratch(needset, Remembered(WordEncoder()), tmp_path / "cache") as found:
        yield found


@pytest.fixture
def stage(filled: Filled) -> Stage:
    return Stage(filled, TRAIN, 3)


def history(filled: Filled) -> History:
    return History(filled.roster.writer.db)


def test_a_stream_is_written_as_calls_would_be(stage: Stage, filled: Filled) -> None:
    """A need once, with its vector; each outcome with the card's real id and fingerprint."""
    stage.write([Happened("a", "mail-1"), Happened("a", "mail-2", success=False), Happened("b", "mail-1")])

    events = history(filled).events()
    mail, inbox = (stage.entries()[card].card for card in ("mail-1", "mail-2"))
    assert [(e.card, e.fingerprint, e.success, e.at) for e in events] == [
        (mail.id, mail.fingerprint, True, NOW),
        (inbox.id, inbox.fingerprint, False, NOW),
        (mail.id, mail.fingerprint, True, NOW),
    ]
    one, same, other = (event.need for event in events)
    assert one == same != other
    assert len(history(filled).newest_needs(WordEncoder().fingerprint, 10, 256)) == 2
    assert filled.roster.writer.db.execute("SELECT DISTINCT drafted FROM outcomes").fetchall() == [(1,)]


def test_a_need_that_comes_again_is_another_need(stage: Stage, filled: Filled) -> None:
    stage.write([Happened("a", "mail-1"), Happened("a", "mail-1", again=1)])

    first, second = (event.need for event in history(filled).events())
    assert first != second


def test_the_next_stream_is_the_whole_history(stage: Stage, filled: Filled) -> None:
    stage.write([Happened("a", "mail-1")] * 3)
    stage.write([Happened("b", "mail-1")])
    stage.write_more([Happened("c", "mail-2")])

    assert len(history(filled).events()) == 2
    assert len(history(filled).newest_needs(WordEncoder().fingerprint, 10, 256)) == 2


def test_what_was_served_counts_and_only_with_a_learner(stage: Stage) -> None:
    """The needs are as they were drafted without learning, whatever is taught meanwhile."""
    need = Need("x", "tell my sister about the inbox", {"mail-1": 1})
    before = stage.rank([need])
    seen = stage.seen("a")

    learner = stage.taught([Happened("a", "weather"), Happened("b", "weather")])

    assert stage.rank([need]) == before
    assert stage.seen("a") == seen
    weather = stage.entries()["weather"].number
    (known,) = (s.learned for _, s in stage.draft(TRAIN[0].text, learner).running if s.number == weather)
    assert known is not None
    assert known.successes == 2
    assert all(scored.learned is None for _, scored in stage.draft(TRAIN[0].text).running)
    assert learner.figures()["outcomes"] == 2


def test_weights_are_kept_for_the_next_learner(stage: Stage, filled: Filled) -> None:
    stage.write([Happened("a", "mail-1")])
    history(filled).keep_weights(WordEncoder().fingerprint, Weights(0.4, 0.8, True), 0.1, 20, NOW)
    learner = stage.learner()
    learner.refresh()
    stage.write([])
    assert history(filled).weights(WordEncoder().fingerprint) is None

    stage.keep(learner)

    assert history(filled).weights(WordEncoder().fingerprint) == (Weights(0.4, 0.8, True), 0.1, 20)


def test_the_cache_never_holds_an_outcome(needset: NeedSet, tmp_path: Path) -> None:
    """A scratch home takes its vectors from there, and is gone afterwards."""
    encoder, cache = WordEncoder(), tmp_path / "cache"
    with open_filled(needset, encoder, cache):
        pass
    count = len(encoder.embedded)
    with open_scratch(needset, encoder, cache) as scratch:
        folder = scratch.roster.home.folder
        Stage(scratch, TRAIN, 3).write([Happened("a", "mail-1")])
        assert len(history(scratch).events()) == 1

    assert (len(encoder.embedded), scratch.embedded) == (count, 0)
    assert not folder.exists()
    with open_filled(needset, encoder, cache) as kept:
        assert history(kept).events() == []


def test_a_need_is_embedded_once() -> None:
    plain = WordEncoder()
    encoder = Remembered(plain)

    rows = encoder.encode_needs(["one", "two", "one"])
    again = encoder.encode_needs(["two"])

    assert plain.needs == ["one", "two"]
    assert np.array_equal(rows[[0, 1]], plain.encode_needs(["one", "two"]))
    assert np.array_equal(rows[0], rows[2])
    assert np.array_equal(again[0], rows[1])
    assert (encoder.fingerprint, encoder.dim) == (plain.fingerprint, plain.dim)


def test_the_published_method_pulls_and_pushes_three_times() -> None:
    """By hand: v ← unit(v + 0.3 served − 0.1 lost), thrice."""
    row, served, lost = (np.eye(3, dtype=np.float32)[at] for at in range(3))
    by_hand = np.array([1.0, 0.0, 0.0])
    for _ in range(3):
        by_hand = by_hand + np.array([0.0, 0.3, -0.1])
        by_hand /= np.linalg.norm(by_hand)

    assert pulled(row, served[None], lost[None]) == pytest.approx(by_hand, abs=1e-6)
    assert pulled(row, np.stack([row, row]), np.empty((0, 3), np.float32)) == pytest.approx(row)


def test_a_centroid_moves_from_four_needs_and_moves_back(stage: Stage) -> None:
    dense = stage.catalogue.dense
    assert dense is not None
    number = stage.entries()["mail-2"].number
    need = stage.encoder.encode_needs(["send an e-mail to my sister"])
    before = dense.similarities(need, [number])[number]
    outcomes = [Happened("a", "mail-2")] * 3

    with stage.centroids(outcomes) as moved:
        assert moved == 0
    with stage.centroids([*outcomes, Happened("b", "mail-2")]) as moved:
        assert moved == 1
        assert dense.similarities(need, [number])[number] > before + 0.1
    assert dense.similarities(need, [number])[number] == pytest.approx(before, abs=1e-6)


def test_a_changed_card_is_drafted_again_with_its_new_words(stage: Stage) -> None:
    """Its fingerprint is another one, it is not kept out of drafts, and others are as they were."""
    before = {card: entry.card.fingerprint for card, entry in stage.entries().items()}

    stage.change(["weather"], "Also tells the tides.")

    entries = stage.entries()
    assert {c for c, e in entries.items() if e.card.fingerprint != before[c]} == {"weather"}
    assert entries["weather"].card.description == "Weather of the coming days. Also tells the tides."
    assert entries["weather"].number in stage.catalogue.draftable()
    assert stage.catalogue.missing == 0
