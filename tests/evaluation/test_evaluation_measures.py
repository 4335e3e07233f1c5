"""Every measure, worked by hand."""

from __future__ import annotations

import math
import sys

import pytest

from roster.errors import RosterError
from roster.evaluation.measures import all_needed, first_place, measure_names, score_needs


def test_every_measure_has_the_value_worked_by_hand() -> None:
    """Grades 3 and 1, found at places 2 and 4; gain is the grade itself, not 2^grade - 1."""
    ranked = ["x", "a", "y", "b", "z"]
    gained = 3 / math.log2(3) + 1 / math.log2(5)
    ideal = 3 + 1 / math.log2(3)

    (found,) = score_needs({"n": ranked}, {"n": {"a": 3, "b": 1}}, 5).values()

    expected = {"ndcg@5": gained / ideal, "recall@5": 1.0, "hit@1": 0.0, "hit@5": 1.0, "mrr": 0.5, "all@5": 1.0}
    assert found == pytest.approx(expected)
    assert list(found) == measure_names(5)


def test_only_the_first_k_count_but_for_the_reciprocal_rank() -> None:
    """Wanted cards at places 3 and 4, k of 3."""
    (found,) = score_needs({"n": ["x", "y", "a", "b"]}, {"n": {"a": 1, "b": 1}}, 3).values()

    ndcg = 0.5 / (1 + 1 / math.log2(3))
    expected = {"ndcg@3": ndcg, "recall@3": 0.5, "hit@1": 0.0, "hit@3": 1.0, "mrr": 1 / 3, "all@3": 0.0}
    assert found == pytest.approx(expected)


def test_with_one_card_to_count_there_is_one_hit() -> None:
    """`hit@1` and `hit@k` are then the same measure, and are named once."""
    (found,) = score_needs({"n": ["x", "a"]}, {"n": {"a": 1}}, 1).values()

    assert list(found) == measure_names(1) == ["ndcg@1", "recall@1", "hit@1", "mrr", "all@1"]
    assert (found["hit@1"], found["mrr"]) == (0.0, 0.5)


def test_a_hit_is_any_wanted_card_among_the_first_k() -> None:
    """One of two will do; one place too far down is none."""
    needs = {"in": {"a": 1, "b": 2}, "out": {"a": 1}}

    found = score_needs({"in": ["x", "y", "a"], "out": ["x", "y", "z", "a"]}, needs, 3)

    assert [scores["hit@3"] for scores in found.values()] == [1.0, 0.0]


def test_a_grade_of_zero_is_no_card_at_all() -> None:
    found = score_needs({"n": ["zero", "a"]}, {"n": {"zero": 0, "a": 1}}, 5)["n"]

    assert (found["hit@1"], found["mrr"], found["recall@5"], found["all@5"]) == (0.0, 0.5, 1.0, 1.0)


def test_of_more_wanted_cards_than_k_any_k_are_enough() -> None:
    grades = {"a": 1, "b": 1, "c": 2}

    assert all_needed(["c", "a"], grades, 2) == 1.0
    assert all_needed(["c", "x", "a", "b"], grades, 2) == 0.0
    assert all_needed(["c", "x", "a", "b"], grades, 4) == 1.0


def test_the_order_given_is_the_order_scored() -> None:
    """trec_eval breaks ties by id, later ids first; nothing of that may show."""
    needs = {"up": {"a": 1}, "down": {"z": 1}}

    found = score_needs({"up": ["a", "b", "z"], "down": ["z", "b", "a"]}, needs, 3)

    assert [scores["hit@1"] for scores in found.values()] == [1.0, 1.0]


def test_a_need_without_a_ranking_scores_nothing() -> None:
    """Also when no need has one, and with more needs than are scored at once."""
    qrels = {str(number): {"a": 1} for number in range(1_203)}

    found = score_needs({"7": ["a"], "8": []}, qrels, 2)

    assert list(found) == list(qrels)
    assert found["7"] == dict.fromkeys(measure_names(2), 1.0)
    assert found["8"] == found["1202"] == dict.fromkeys(measure_names(2), 0.0)
    assert score_needs({}, {"n": {"a": 1}}, 2)["n"] == dict.fromkeys(measure_names(2), 0.0)


def test_the_first_place_is_that_of_any_wanted_card() -> None:
    assert first_place(["x", "b", "a"], {"a": 2, "b": 1, "x": 0}) == 2
    assert first_place(["x"], {"a": 2}) is None


def test_without_ir_measures_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_measures", None)

    with pytest.raises(RosterError, match=r"pip install"):
        score_needs({}, {"n": {"a": 1}}, 5)
