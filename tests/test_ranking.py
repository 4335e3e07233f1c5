"""From scores to an order: values worked by hand, and the laws any ranking keeps."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roster.ranking import DENSE_WEIGHT, LEXICAL_HALF, Scored, blend, dense_weight, rank, spread, steps_share

_SCORES = st.dictionaries(st.integers(0, 9), st.floats(0, 50, allow_subnormal=False), max_size=8)
_SIMILARITIES = st.dictionaries(st.integers(0, 9), st.floats(-1, 1, allow_subnormal=False), max_size=8)


def blended(*args: object, **more: object) -> dict[int, Scored]:
    return {scored.number: scored for scored in blend(*args, **more)}  # type: ignore[arg-type]


def test_the_blend_is_worked_by_hand() -> None:
    """w × (similarity - floor) / (best - floor) + (1 - w) × BM25 / (best BM25 + h), with w = 0.75 and h = 10.

    Card 1: similarity 0.8 (1.0 after scaling), BM25 2 of 10. Card 2: 0.5 (0.5), no word. Card 3: 0.2 (0), BM25 10.
    """
    assert (DENSE_WEIGHT, LEXICAL_HALF) == (0.75, 10.0)
    scored = blended({1: 0.8, 2: 0.5, 3: 0.2}, 0.2, {1: 2.0, 3: 10.0})

    assert {n: s.score for n, s in scored.items()} == pytest.approx({1: 0.75 + 0.025, 2: 0.375, 3: 0.125})
    assert [s.number for s in rank(scored.values(), 5)] == [1, 2, 3]
    one = scored[1]
    assert (one.similarity, one.bm25, one.named) == (pytest.approx(0.8), 2.0, False)
    assert (one.dense, one.lexical) == pytest.approx((1.0, 0.1))
    assert (scored[2].bm25, scored[2].lexical) == (None, 0.0)


def test_one_shared_common_word_decides_little() -> None:
    """The best BM25 of a need counts by its size: 2.5 of a possible 10 more gives a fifth of the words' share."""
    weak = blended({1: 0.9, 2: 0.1}, 0.1, {2: 2.5})[2]
    strong = blended({1: 0.9, 2: 0.1}, 0.1, {2: 30.0})[2]

    assert (weak.lexical, strong.lexical) == pytest.approx((0.2, 0.75))


def test_another_weight_is_used_as_given() -> None:
    """0: words alone. 1: meaning alone."""
    words = blended({1: 0.9, 2: 0.1}, 0.1, {2: 10.0}, weight=0)
    assert {n: s.score for n, s in words.items()} == {1: 0.0, 2: 0.5}
    assert {n: s.score for n, s in blended({1: 0.9, 2: 0.1}, 0.1, {2: 3.0}, weight=1).items()} == {1: 1.0, 2: 0.0}


def test_a_card_without_a_vector_is_judged_by_its_words() -> None:
    """Its score is its words', unweighted, so that a new card is not at the back until it is embedded."""
    scored = blended({1: 0.9, 2: 0.3}, 0.1, {3: 4.0, 2: 2.0})

    assert scored[3].score == 1.0
    assert (scored[3].similarity, scored[3].dense) == (None, None)
    assert scored[2].score == pytest.approx(0.75 * 0.25 + 0.25 * 2 / 14)


def test_a_named_card_goes_before_every_other() -> None:
    """Naming adds 1 to a score of at most 1; a named card that nothing found is in the running too."""
    scored = blended({1: 0.9, 2: 0.1}, 0.1, {1: 5.0}, named={2, 4})

    assert {n: s.score for n, s in scored.items()} == pytest.approx({1: 0.75 + 0.25 / 3, 2: 1.0, 4: 1.0})
    assert [n for n, s in scored.items() if s.named] == [2, 4]


@pytest.mark.parametrize(
    ("similarities", "floor", "scores", "expected"),
    [
        ({}, 0.0, {}, {}),
        ({1: 0.5}, 0.5, {}, {1: 0.75}),  # the only card is best and worst at once
        ({1: 0.5, 2: 0.5}, 0.5, {2: 10.0}, {1: 0.75, 2: 0.875}),
        ({1: 0.56, 2: 0.53}, 0.53, {}, {1: 0.75, 2: 0.675}),  # alike, and not stretched apart
        ({}, 0.0, {1: 3.0}, {1: 1.0}),  # no encoder
        ({1: -0.2, 2: -0.6}, -0.6, {}, {1: 0.75, 2: 0.0}),
        ({1: 0.5}, 0.1, {1: 0.0}, {1: 0.75}),
    ],
)
def test_degenerate_scales_give_numbers(similarities: dict[int, float], floor: float, scores: dict[int, float],
                                        expected: dict[int, float]) -> None:  # fmt: skip
    """Nothing is divided by zero, and below zero is fine."""
    assert {n: s.score for n, s in blended(similarities, floor, scores).items()} == pytest.approx(expected)


@given(_SIMILARITIES, _SCORES, st.sets(st.integers(0, 9), max_size=3))
def test_scores_stay_in_their_range(similarities: dict[int, float], scores: dict[int, float], named: set[int]) -> None:
    """In [0, 1], plus 1 for a named card; every card of any stage is there once."""
    floor = min(similarities.values(), default=0.0)
    out = blend(similarities, floor, scores, named=named)

    assert sorted(s.number for s in out) == sorted({*similarities, *scores, *named})
    assert all(0 <= s.score - s.named <= 1 + 1e-9 for s in out)


@given(_SIMILARITIES, _SCORES, st.integers(0, 12), st.randoms(use_true_random=False))
def test_ranking_ignores_the_order_of_candidates(
    similarities: dict[int, float], scores: dict[int, float], k: int, rng: random.Random
) -> None:
    """Highest first, ties by card number, k at most; a larger k only adds at the end."""
    floor = min(similarities.values(), default=0.0)
    candidates = blend(similarities, floor, scores)
    ranked = rank(candidates, k)
    shuffled = rng.sample(candidates, len(candidates))

    assert ranked == rank(shuffled, k)
    assert len(ranked) == min(k, len(candidates))
    assert ranked == rank(candidates, 99)[:k]
    assert all((-a.score, a.number) < (-b.score, b.number) for a, b in pairwise(ranked))


@given(_SIMILARITIES, _SCORES, st.integers(0, 9))
def test_more_shared_words_never_lower_a_card(
    similarities: dict[int, float], scores: dict[int, float], number: int
) -> None:
    """Raising one card's BM25 cannot cost it a place."""

    def place(bm25: dict[int, float]) -> int:
        floor = min(similarities.values(), default=0.0)
        return [s.number for s in rank(blend(similarities, floor, bm25), 99)].index(number)

    assert place({**scores, number: scores.get(number, 0.0) + 1}) <= place({**scores, number: scores.get(number, 0.0)})


def test_a_card_for_a_step_that_is_taken_gives_way() -> None:
    """Two cards for the first step, one for the second: the second step's comes before the first's second best."""
    steps = {1: (1.0, 0.0), 2: (0.95, 0.0), 3: (0.0, 1.0)}
    made = blend({1: 0.9, 2: 0.88, 3: 0.8}, 0.0, {}, steps=steps, share=0.6)
    plain = [scored.number for scored in rank(made, 3)]
    spreaded = spread(made, steps, 10, 0.6)

    assert plain == [1, 2, 3]
    assert [scored.number for scored in rank(spreaded, 3)] == [1, 3, 2]
    assert {s.number: s.covered for s in spreaded} == pytest.approx({1: 0.0, 2: 0.2, 3: 0.0}, abs=1e-3)
    assert spread(made, {}, 10, 0.6) == made == spread(made, steps, 10, 0.0)


@given(_SIMILARITIES, _SCORES, st.data())
def test_spreading_keeps_the_first_and_every_card(
    similarities: dict[int, float], scores: dict[int, float], data: st.DataObject
) -> None:
    """The best card stays the best, none is lost, none gains; a named one loses nothing."""
    floor = min(similarities.values(), default=0.0)
    near = st.tuples(st.floats(0, 1), st.floats(0, 1))
    steps = {number: data.draw(near) for number in similarities}
    named = {number for number in similarities if data.draw(st.booleans())}
    before = blend(similarities, floor, scores, steps=steps, share=0.5, named=named)
    after = spread(before, steps, 5, 0.5)

    assert [scored.number for scored in after] == [scored.number for scored in before]
    assert [scored.number for scored in rank(after, 1)] == [scored.number for scored in rank(before, 1)]
    assert all(new.score <= old.score and (new.score == old.score or not old.named)
               for new, old in zip(after, before, strict=True))  # fmt: skip


@pytest.mark.parametrize(
    ("words", "unread", "weight", "share"),
    [(0, 0.0, 0.75, 0.0), (12, 0.0, 0.75, 0.0), (18, 0.0, 0.75, 0.3), (40, 0.0, 0.65, 0.6), (900, 0.0, 0.55, 0.6),
     (5, 0.25, 0.375, 0.0), (5, 0.5, 0.0, 0.0), (5, 1.0, 0.0, 0.0)],
)  # fmt: skip
def test_the_shares_follow_the_need(words: int, unread: float, weight: float, share: float) -> None:
    """Longer needs lean on words and on their steps, and what cannot be read is left to words."""
    assert (dense_weight(words, unread), steps_share(words)) == pytest.approx((weight, share))
