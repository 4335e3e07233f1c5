"""Each scenario on a small set made by hand: what is taught, what is asked, and the arithmetic of the figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import WordEncoder

from roster.evaluation import attacks, scenarios
from roster.evaluation.homes import open_scratch
from roster.evaluation.needsets import Need, NeedSet, read_needset
from roster.evaluation.scenarios import Replay
from roster.evaluation.stage import Happened, Remembered, Stage
from roster.evaluation.streams import by_card, generator, mislabelled, right_ones, shuffled

THINGS = ("invoice", "recipe", "train", "song", "garden", "letter")
WAYS = ("find the {} of {}", "show me a {} for {}", "I want the {} from {}", "get that {} about {}")
WHENS = ("monday", "spring", "paris", "grandma", "work")
ODD = "quux {} zork {}"
"""Words that no card has."""


def folder_of(folder: Path) -> Path:
    """Six tools; twelve train and eight test needs of each, a third of them in words that no card has."""
    cards = [
        {"_id": f"card-{thing}", "server": "things", "name": f"{thing}_finder", "description": f"Finds any {thing}."}
        for thing in THINGS
    ]
    needs, splits = [], {"train": ["query-id\tcorpus-id\tscore"], "test": ["query-id\tcorpus-id\tscore"]}
    for thing in THINGS:
        texts = [way.format(thing, when) for way in WAYS for when in WHENS[:4]]
        texts += [ODD.format(thing[:3], when) for when in WHENS[:4]]
        for at, text in enumerate(texts):
            split = "test" if at % 5 in (1, 3) else "train"
            needs.append({"_id": f"{thing}-{at}", "text": text})
            splits[split].append(f"{thing}-{at}\tcard-{thing}\t1")
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", cards), ("queries", needs)):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    for split, lines in splits.items():
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join([*lines, ""]), "utf-8")
    return folder


@pytest.fixture
def sets(tmp_path: Path) -> tuple[NeedSet, NeedSet]:
    folder = folder_of(tmp_path / "things")
    return read_needset(folder, "train"), read_needset(folder, "test")


@pytest.fixture
def one(sets: tuple[NeedSet, NeedSet], tmp_path: Path) -> Iterator[Replay]:
    train, test = sets
    with open_scratch(test, Remembered(WordEncoder()), tmp_path / "cache") as filled:
        stage = Stage(filled, train.needs, 5)
        yield Replay("things", stage, train.needs, test.needs, test.needs[:20], 13, None, lambda *_: None)


# ------------------------------------------------------------------------------------------------ streams

NEEDS = [Need("1", "", {"a": 1, "b": 2}), Need("2", "", {"a": 1}), Need("3", "", {"c": 1})]


def test_every_card_that_serves_a_need_succeeds() -> None:
    assert right_ones(NEEDS) == [Happened("1", "a"), Happened("1", "b"), Happened("2", "a"), Happened("3", "c")]
    assert by_card(NEEDS) == {"a": ["1", "2"], "b": ["1"], "c": ["3"]}


def test_so_many_of_a_card_and_so_many_in_all() -> None:
    """A need is taken whole or not at all."""
    assert right_ones(NEEDS, per_card=1) == [Happened("1", "a"), Happened("1", "b"), Happened("3", "c")]
    assert right_ones(NEEDS, most=3) == [Happened("1", "a"), Happened("1", "b"), Happened("2", "a")]
    assert right_ones(NEEDS, most=1) == []


def test_noise_names_a_card_that_came_near_and_does_not_serve() -> None:
    grades, outcomes = {need.id: need for need in NEEDS}, right_ones(NEEDS) * 250

    def first(need: str) -> list[str]:
        return [] if need == "3" else ["a", "b", "x", "y"]

    noisy = mislabelled(outcomes, 0.3, grades, first, generator(13, "noise"))

    wrong = [new for old, new in zip(outcomes, noisy, strict=True) if new != old]
    assert {(o.need, o.card) for o in wrong} <= {(n, c) for n in "12" for c in "bxy"} - {("1", "b")}
    assert 0.25 < len(wrong) / 750 < 0.35
    assert mislabelled(outcomes, 0.0, grades, first, generator(13, "noise")) == outcomes
    failed = [Happened("1", "a", success=False)]
    assert mislabelled(failed, 1.0, grades, first, generator(13)) == failed


def test_chance_is_of_the_scenario_and_the_set() -> None:
    items = [str(at) for at in range(20)]

    assert shuffled(items, generator(13, "a")) == shuffled(items, generator(13, "a"))
    assert shuffled(items, generator(13, "a")) != shuffled(items, generator(13, "b"))
    assert sorted(shuffled(items, generator(1))) == sorted(items)


# ---------------------------------------------------------------------------------------------- scenarios


def test_a_difference_is_paired_and_from_the_first(one: Replay) -> None:
    scores = {
        "base": {"1": {"ndcg@5": 0.5, "hit@1": 0.0, "hit@5": 1.0}, "2": {"ndcg@5": 1.0, "hit@1": 1.0, "hit@5": 1.0}},
        "more": {"1": {"ndcg@5": 0.75, "hit@1": 0.0, "hit@5": 1.0}, "2": {"ndcg@5": 1.25, "hit@1": 1.0, "hit@5": 1.0}},
    }

    found, means = one.compared(scores)

    assert found["base"]["ndcg@5"]["mean"] == 0.75
    assert "difference" not in found["base"]["ndcg@5"]
    assert found["more"]["ndcg@5"]["difference"] == {"mean": 0.25, "low": 0.25, "high": 0.25}
    assert means.shape == (10_000, 2)


def test_learning_is_compared_with_no_outcome(one: Replay) -> None:
    """Against no outcome on the same needs, with the weights it chose; the published method beside it."""
    found, means = scenarios.harm(one)

    systems = found["systems"]
    assert list(systems) == ["base", "learned", "learned, 30 % noise", "single centroid", "single centroid, 30 % noise"]
    assert (found["needs"], found["outcomes"], found["moved"]) == (len(one.test), len(one.train), len(THINGS))
    assert systems["learned"]["ndcg@5"]["difference"]["mean"] >= 0
    assert set(found["weights"]["learned"]) == {"near", "share", "slow", "adapter", "gain"}
    assert means.shape == (10_000, 5)


def test_the_curve_takes_so_many_of_each_card(one: Replay) -> None:
    found = scenarios.curve(one)

    assert [step["per_card"] for step in found["steps"]] == [1, 2, 4, 8, None]
    assert [step["outcomes"] for step in found["steps"]] == [6, 12, 24, 48, len(one.train)]
    assert [step["moved"] for step in found["steps"]] == [0, 0, 6, 6, 6]
    assert found["steps"][0]["systems"]["single centroid"]["ndcg@5"]["difference"]["mean"] == 0
    assert found["needs"] == 20


def test_no_more_outcomes_than_were_asked_for(one: Replay) -> None:
    few = replace(one, most=7)

    assert scenarios.harm(few)[0]["outcomes"] == 7
    assert [step["outcomes"] for step in scenarios.curve(few)["steps"]] == [6, 7, 7, 7, 7]


def test_noise_begins_with_none(one: Replay) -> None:
    found = scenarios.noise(one)

    assert [each["share"] for each in found["shares"]] == [0.0, 0.1, 0.3]
    clean, _, noisy = (each["systems"]["learned"]["ndcg@5"]["mean"] for each in found["shares"])
    assert clean >= noisy
    assert set(found["shares"][0]["systems"]) == {"learned", "single centroid"}


def test_only_what_came_first_and_was_wrong_fails(one: Replay) -> None:
    stage = one.stage
    wrong = [need for need in one.train if stage.rank([need])[need.id][0] not in need.grades]

    found = scenarios.failures(one)

    assert found["outcomes"] == len(wrong) > 0
    assert list(found["systems"]) == ["base", "learned"]


def test_boilerplate_is_in_front_of_every_need(one: Replay) -> None:
    found = scenarios.boilerplate(one)

    encoder = one.stage.encoder
    assert isinstance(encoder, Remembered)
    assert found["outcomes"] == len(one.train)
    for need in (one.train[0], one.few[0]):
        assert scenarios.BOILERPLATE + need.text in encoder._needs
    assert list(found["systems"]) == ["base", "learned", "single centroid"]


def test_what_drifts_loses_its_evidence_and_the_rest_keeps_it(one: Replay) -> None:
    found = scenarios.drift(one)

    assert (found["changed"]["cards"], found["changed"]["evidence"]) == (3, 0)
    assert (found["kept"]["cards"], found["kept"]["evidence"]) == (3, 3)
    assert found["changed"]["needs"] + found["kept"]["needs"] == 20
    kept = found["kept"]
    assert kept["after"]["learned"]["ndcg@5"]["mean"] >= kept["after"]["base"]["ndcg@5"]["mean"]


# ------------------------------------------------------------------------------------------------ attacks


def test_one_card_stands_above_another() -> None:
    """One that is not there stands below every one that is."""
    assert attacks.above(["a", "b"], "a", "b")
    assert not attacks.above(["a", "b"], "b", "a")
    assert attacks.above(["a"], "a", "b")
    assert not attacks.above(["b"], "a", "b")
    assert not attacks.above([], "a", "b")


def test_a_card_is_displaced_where_it_led_before() -> None:
    """Four needs: it keeps its place, it is passed, it never led, and it is passed and leaves the first two."""
    before = {"1": ("r", "w"), "2": ("r", "x", "w"), "3": ("w", "r"), "4": ("r", "x")}
    after = {"1": ("r", "w"), "2": ("w", "r"), "3": ("w", "r"), "4": ("w", "x", "r")}

    found = attacks.displaced(before, after, "r", "w", 2)

    assert found == {"needs": 4, "led": 3, "displaced": 2, "shown": 4, "left": 1}


def test_counts_of_several_sets_are_shared_out_of_their_sum() -> None:
    """Two sets of 4 and 6 needs; of five displaced ones one is left after the right outcomes."""

    def counts(needs: int, displaced: int) -> dict[str, int]:
        return {"families": 1, "needs": needs, "led": needs, "displaced": displaced, "shown": needs, "left": 0}

    found = [
        attacks._poisoned({4: [counts(4, 2)]}, [counts(4, 1)]),
        attacks._poisoned({4: [counts(6, 3)], 8: [counts(6, 6)]}, [counts(6, 0)]),
    ]
    pooled = attacks.pooled_poison([{}, *({"families": 1, "attackers": {"near": f, "far": f}} for f in found)])

    four, eight = pooled["near"]["wrong"]
    assert (four["wrong"], four["families"], four["displaced"], four["displaced_share"]) == (4, 2, 5, 0.5)
    assert (eight["wrong"], eight["displaced_share"], eight["left_share"]) == (8, 1.0, 0.0)
    assert (pooled["near"]["recovered"]["displaced"], pooled["near"]["recovered"]["restored_share"]) == (1, 0.8)
    assert attacks.pooled_poison([{}, {"families": 0, "attackers": {}}]) == {}


def test_poison_is_a_matter_of_families_with_needs_enough(one: Replay) -> None:
    found = attacks.poison(one)

    assert found["families"] == len(THINGS)
    for counts in found["attackers"].values():
        assert [each["wrong"] for each in counts["wrong"]][:3] == [1, 2, 4]
        for each in counts["wrong"]:
            assert each["displaced"] <= each["led"] <= each["needs"]
            assert each["displaced_share"] == pytest.approx(each["displaced"] / each["needs"], abs=1e-6)
        assert counts["recovered"]["displaced"] <= counts["wrong"][2]["displaced"]


def test_without_families_there_is_no_poison(one: Replay) -> None:
    few = replace(one, train=one.train[:4])

    assert attacks.poison(few) == {"families": 0, "attackers": {}}
    assert attacks.modes(replace(one, train=())) == {"pairs": 0}


def test_a_card_learns_the_needs_of_another(one: Replay) -> None:
    """Both families' needs are asked for the one card that served them."""
    found = attacks.modes(one)

    assert found["pairs"] == 3
    other = found["other"]["systems"]
    assert other["learned"]["ndcg@5"] > other["base"]["ndcg@5"]
    assert found["own"]["needs"] == found["other"]["needs"] == len(one.test) // 2


def test_the_reliable_one_of_two_equal_cards_stands_above(one: Replay, sets: Any, tmp_path: Path) -> None:
    """And one that only failed is never above one that works."""
    cards = attacks.to_double(one)
    twice = attacks.doubled(sets[1], cards)
    with open_scratch(twice, Remembered(WordEncoder()), tmp_path / "cache") as filled:
        stage = Stage(filled, sets[0].needs, 5)
        pair = [stage.entries()[id_].card for id_ in ("card-song", "duplicate of card-song")]
        found = attacks.duplicates(one, stage, cards)

    assert sorted(cards) == sorted(f"card-{thing}" for thing in THINGS)
    assert [(card.server, card.name) for card in pair] == [("things", "song_finder"), ("things_", "song_finder")]
    assert found["runs"] == len(THINGS)
    assert found["runs_won"] >= found["runs"] - found["runs_reversed_by_chance"]
    assert found["failing"] == {"failed": 51, "worked_of_the_other": 3, "needs": found["needs"], "above": 0}
