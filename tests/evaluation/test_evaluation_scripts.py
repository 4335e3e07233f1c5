"""The scripts in eval/ measure what they say, on a small set through the real index and ranker."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from roster.encoder import open_encoder
from roster.evaluation import NeedSet, read_needset
from roster.evaluation.homes import open_filled
from roster.ranking import Match, Scored
from roster.words import length_of

EVAL = Path(__file__).parents[2] / "eval"


def script(name: str) -> ModuleType:
    """A script of eval/ as a module."""
    spec = importlib.util.spec_from_file_location(f"eval_{name}", EVAL / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def matches() -> ModuleType:
    return script("matches")


@pytest.fixture(scope="module")
def steps() -> ModuleType:
    return script("steps")


def test_matches_are_counted_by_kind_of_need(matches: ModuleType, needset: NeedSet, tmp_path: Path) -> None:
    """All four needs of the set have their card among the first five and none of them is cut; a tuba is not served."""
    strangers = {"nonsense": ["play the tuba"], "foreign": []}
    found = matches.measure(needset, strangers, open_encoder(None), tmp_path / "cache")

    right = found["right"]
    assert right["needs"] == right["clear"] + right["weak"] == 4
    assert (right["none"], right["cut_share"], right["doubted_share"]) == (0, 0.0, right["weak"] / 4)
    assert found["others"]["needs"] == found["beyond_ascii"] == 0
    assert found["nonsense"] == {"needs": 1, "clear": 0, "weak": 0, "none": 1, "clear_share": 0.0}
    assert found["foreign"]["clear_share"] is None
    matches.show({"small": {**found, "unserved": matches.counted([Match.WEAK])}})


def test_a_need_is_foreign_only_where_its_card_is_not(
    matches: ModuleType, needset: NeedSet, tmp_path: Path, write_set: Any
) -> None:
    """By server and name, whatever the ids: two sets may hold the same tool."""
    cards = [
        {"_id": "a", "server": "mail", "name": "send_message", "description": "x"},
        {"_id": "b", "server": "zoo", "name": "feed", "description": "x"},
    ]
    needs = [{"_id": "1", "text": "write to them"}, {"_id": "2", "text": "feed the bears"}]
    other = read_needset(write_set(tmp_path / "other", cards=cards, needs=needs, qrels=["1\ta\t1", "2\tb\t1"]))

    assert matches.foreign(needset, [other], 50, random.Random(1)) == ["feed the bears"]
    assert matches.foreign(needset, [other], 0, random.Random(1)) == []


def test_joined_needs_want_what_their_parts_want(steps: ModuleType, needset: NeedSet) -> None:
    """Seeded; needs as they are come first, and short ones are not joined."""
    rows = [({"text": f"do thing number {n}"}, {"mail-1" if n % 2 else "pdf": 2}) for n in range(6)]
    needs = tuple(type(needset.needs[0])(str(n), row["text"], grades) for n, (row, grades) in enumerate(rows))
    made = NeedSet("made", needset.folder, "train", needset.cards, needs, 0, "")

    found = steps.joined(made, 20, random.Random(3))

    assert found == steps.joined(made, 20, random.Random(3))
    assert [count for count, _, _ in found[:6]] == [1] * 6
    for count, text, grades in found[6:]:
        parts = [n for n in range(6) if f"thing number {n}" in text]
        assert len(parts) == count > 1
        assert grades == {"mail-1" if n % 2 else "pdf": 2 for n in parts}


def test_a_card_is_blended_anew_with_and_without_each_rule(steps: ModuleType) -> None:
    """Worked by hand for a need of forty words: meaning weighs .65 by its words, steps have their share of .6."""
    card = Scored(1, 0.0, similarity=0.5, bm25=3.0, dense=0.5, lexical=0.2, step=1.0)

    found = {name: steps.blended(card, 40, 0.0, *rules) for name, rules in steps.COLUMNS.items()}

    assert found == pytest.approx({"neither": 0.425, "words": 0.395, "steps": 0.65, "both": 0.59})
    assert steps.blended(Scored(1, 0.7, bm25=3.0, lexical=0.7), 40, 0.0, True, True) == 0.7


def test_what_a_draft_keeps_of_a_card_gives_its_score(steps: ModuleType, needset: NeedSet, tmp_path: Path) -> None:
    """With both rules on, less what better cards cover, for every card of a need of three steps."""
    need = (
        "write a short message to everybody in the team, then make a new folder for the minutes of the meeting and "
        "tell me whether it will rain in Paris tomorrow or on the day after"
    )
    with open_filled(needset, open_encoder(None), tmp_path / "cache") as filled:
        made = filled.roster.draft_now(need, 5)

    scores = [steps.blended(card, length_of(need), made.unread, True, True) - card.covered for _, card in made.running]
    assert [card.step is not None for _, card in made.running] == [True] * 6
    assert scores == pytest.approx([card.score for _, card in made.running])
    assert steps.ranked(made)["draft"] == [card.number for _, card in made.running[:5]]


def test_steps_are_measured_on_a_small_set(steps: ModuleType, needset: NeedSet, tmp_path: Path) -> None:
    found = steps.measure(needset, 3, 5, open_encoder(None), tmp_path / "cache")

    assert found["1"]["needs"] == 4
    assert sum(by_steps["needs"] for by_steps in found.values()) == 7
    assert all(0 < by_steps[column] <= 1 for by_steps in found.values() for column in (*steps.COLUMNS, "draft"))


def test_two_full_text_indexes_are_compared(folder: Path) -> None:
    pytest.importorskip("bm25s")
    found = script("lexical").measure(folder, "test")

    assert (found["cards"], found["needs"]) == (6, 4)
    assert 0 < found["fts5"]["ndcg@5"] <= 1
    assert 0 < found["bm25s"]["ndcg@5"] <= 1


def test_several_sets_are_timed_as_one_home(folder: Path, tmp_path: Path, write_set: Any) -> None:
    """Every card of both is in it; the texts they share are embedded once."""
    again = write_set(tmp_path / "again")

    found = script("speed").in_process(tmp_path / "cache", [folder, again])

    assert (found["cards"], found["texts_embedded"], found["draft_ms"]["needs"]) == (12, 6, 8)
    assert set(found["draft_ms_p50_by_set"]) == {"small", "again"}
