"""What past needs say of a card: values worked by hand, and the laws that keep learning from doing harm."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roster.evidence import (
    APART,
    FAILING,
    FEW,
    HALF_LIFE_S,
    MODES,
    NOBODY,
    RATING,
    RATING_CALLS,
    RATING_START,
    ROWS,
    SHARPNESS,
    Evidence,
    Lessons,
    Taught,
    mean_of,
    rating,
)
from roster.ratings import Standing
from roster.vectors import unit_rows
from roster.weights import ENOUGH, FIRST_WEIGHTS, MANY, Sample, Weights, boost, earn

DIM = 8
ZERO = np.zeros(DIM, np.float32)


def need(*weights: float) -> np.ndarray:
    """A unit need along the first axes."""
    return unit_rows(np.array([[*weights, *[0.0] * (DIM - len(weights))]], np.float32))[0]


def taught(card: int, number: int, vector: np.ndarray, success: bool = True, at: float = 0.0) -> Taught:
    return Taught(card, number, vector, success, at)


def lessons(*given_: Taught) -> Lessons:
    """Over needs whose mean is nothing."""
    made = Lessons(ZERO)
    for lesson in given_:
        made.add(lesson)
    return made


# ------------------------------------------------------------------------------------------ evidence


def test_one_success_is_worked_by_hand() -> None:
    """Nearness cos · n/(n + 3); share e / (e + nobody) with e = exp(14 (cos - 1)); nothing failed."""
    known = lessons(taught(1, 1, need(1.0)))
    asked = need(0.8, 0.6)
    found = known.about(asked, [1, 2])[1]

    kernel = math.exp(SHARPNESS * (0.8 - 1))
    assert found.near == pytest.approx(0.8 / (1 + FEW), abs=1e-3)
    assert found.share == pytest.approx(kernel / (kernel + NOBODY), abs=1e-3)
    assert (found.well, found.failing, found.successes) == pytest.approx((1.0, 0.0, 1.0))
    assert known.about(asked, [2]) == {}


def test_evidence_from_far_away_counts_nothing() -> None:
    """A need at right angles is no reason for anything, however often it was served."""
    known = lessons(*(taught(1, number, need(1.0)) for number in range(30)))
    found = known.about(need(0.0, 1.0), [1])[1]

    assert (found.near, found.share, found.failing) == pytest.approx((0, 0, 0), abs=1e-3)


def test_a_card_that_served_half_of_the_needs_around_has_half_the_share() -> None:
    """The share is among the cards asked about, each need counting by how near it is."""
    known = lessons(*(taught(card, card * 10 + turn, need(1.0)) for card in (1, 2) for turn in range(20)))
    found = known.about(need(1.0), [1, 2])

    assert found[1].share == found[2].share == pytest.approx(20 / (40 + NOBODY), rel=1e-2)


def test_two_kinds_of_need_make_two_modes() -> None:
    """So that a second use does not pull the first one below what it was."""
    first, second = need(1.0), need(0.0, 1.0)
    known = lessons(*(taught(1, turn, first if turn < 8 else second) for turn in range(16)))
    single = lessons(*(taught(1, turn, first) for turn in range(8)))

    assert len(known.modes(1)) == 2
    assert known.about(first, [1])[1].near == pytest.approx(single.about(first, [1])[1].near, abs=1e-3)
    assert known.about(second, [1])[1].near == pytest.approx(8 / (8 + FEW), abs=1e-3)


def test_modes_and_needs_of_a_card_are_bounded() -> None:
    """Whatever a busy card is used for; the newest needs stay."""
    rng = np.random.default_rng(1)
    rows = unit_rows(rng.normal(size=(200, DIM)).astype(np.float32))
    known = lessons(*(taught(1, number, row) for number, row in enumerate(rows)))

    assert len(known.modes(1)) == MODES
    assert known.about(rows[-1], [1])[1].successes == ROWS
    assert np.allclose(np.linalg.norm(known.modes(1), axis=1), 1)


def test_what_all_needs_have_in_common_says_nothing() -> None:
    """Boilerplate in front of every need makes all of them alike; without their mean they are not."""
    common = 3 * need(0.0, 0.0, 1.0)
    needs = unit_rows(np.stack([common + need(1.0), common + need(0.0, 1.0), common - need(1.0), common - need(0, 1)]))
    raw, centred = Lessons(ZERO), Lessons(mean_of(needs, ZERO) * 54 / 4)  # without what stands in for missing needs
    for known in (raw, centred):
        known.add(taught(1, 1, needs[0]))

    assert needs[0] @ needs[2] > 0.7
    assert raw.about(needs[2], [1])[1].near > 0.15
    assert centred.about(needs[2], [1])[1].near == 0.0
    assert centred.about(needs[0], [1])[1].near == pytest.approx(1 / (1 + FEW), abs=1e-3)


def test_a_few_needs_are_not_their_own_mean() -> None:
    """The cards' mean stands in for fifty needs, so that the first ones are not centred away."""
    only = need(1.0)
    assert np.allclose(mean_of(only[None], need(0.0, 1.0)), (only + 50 * need(0.0, 1.0)) / 51)


def test_old_outcomes_count_less() -> None:
    """Half after half a year, in everything."""
    old = Lessons(ZERO, now=HALF_LIFE_S)
    old.add(taught(1, 1, need(1.0), at=0.0))
    found = old.about(need(1.0), [1])[1]

    assert found.successes == pytest.approx(0.5)
    assert found.near == pytest.approx(0.5 / (0.5 + FEW), abs=1e-3)
    assert found.share == pytest.approx(0.5 / (0.5 + NOBODY), abs=1e-3)


def test_failures_near_a_need_count_though_the_card_served_others() -> None:
    """Its modes are far away then, and its failures are not."""
    known = lessons(taught(1, 1, need(1.0)), *(taught(1, n, need(0.0, 1.0), success=False) for n in range(2, 9)))
    found = known.about(need(0.0, 1.0), [1])[1]

    assert found.near == 0
    assert found.failing == pytest.approx(7 / (7 + NOBODY), abs=1e-3)


def test_a_need_can_be_left_out() -> None:
    """As if it had never been: in the modes, the kernel and the counts."""
    rows = [need(1.0), need(0.9, 0.1), need(0.8, 0.3), need(0.0, 1.0)]
    all_ = lessons(*(taught(1, number, row) for number, row in enumerate(rows)), taught(2, 3, rows[3]))
    without = lessons(*(taught(1, number, row) for number, row in enumerate(rows) if number != 3))
    asked = need(0.7, 0.7)
    got, wanted = all_.about(asked, [1, 2], without=3), without.about(asked, [1])

    assert got[1].near == pytest.approx(wanted[1].near, abs=2e-3)
    assert got[1].share == pytest.approx(wanted[1].share, abs=2e-3)
    assert (got[1].successes, got[2].successes, got[2].near, got[2].share) == (3, 0, 0, 0)
    assert all_.about(asked, [1])[1].successes == 4


def test_one_need_counts_once_and_as_it_went_last() -> None:
    """A loop of calls for one need is not many needs, and what failed in the end did not work."""
    loop = lessons(*(taught(1, 7, need(1.0)) for _ in range(40)))
    once = lessons(taught(1, 7, need(1.0)))
    turned = lessons(taught(1, 7, need(1.0)), taught(1, 8, need(0.9, 0.1)), taught(1, 7, need(1.0), success=False))
    asked = need(0.9, 0.2)

    assert loop.about(asked, [1]) == once.about(asked, [1])
    found = turned.about(asked, [1])[1]
    assert found.successes == 1
    assert found.failing > 0.3
    gone = lessons(taught(1, 7, need(1.0)), taught(1, 7, need(1.0), success=False))
    assert gone.about(asked, [1])[1].near == 0
    assert len(gone.modes(1)) == 0


def test_an_outcome_from_the_future_weighs_as_one_of_today() -> None:
    """Written under a wrong clock; nothing overflows, and it does not outvote the rest."""
    far = 600 * 365 * 86_400.0
    early = lessons(taught(1, 1, need(1.0), at=far), taught(2, 2, need(1.0)))
    found = early.about(need(1.0), [1, 2])

    assert found[1] == found[2]


def test_every_failed_card_is_read() -> None:
    """However many others have failed at something, and in whichever order they are asked about."""
    many = [taught(card, card, need(0.0, 0.0, 1.0), success=False) for card in range(2, 60)]
    known = lessons(*many, *(taught(99, 100 + n, need(1.0), success=False) for n in range(9)))

    assert known.about(need(1.0), [*range(2, 60), 99])[99].failing > 0.9


def test_a_dropped_card_is_forgotten() -> None:
    """With every learned vector; others keep theirs."""
    known = lessons(taught(1, 1, need(1.0)), taught(2, 2, need(1.0)))
    known.drop(1)
    known.drop(99)

    assert known.cards == {2}
    assert (len(known.modes(1)), len(known.modes(2))) == (0, 1)
    assert known.about(need(1.0), [1, 2]).keys() == {2}


_NEEDS = st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.booleans()), min_size=1, max_size=12)


@given(_NEEDS, st.tuples(st.floats(-1, 1), st.floats(-1, 1)), st.floats(0, 1), st.booleans())
def test_more_failures_never_raise_a_card(
    history: Sequence[tuple[float, float, bool]], asked: tuple[float, float], base: float, slow: bool
) -> None:
    """Whatever else is known, one more failure of a card leaves its boost where it is or lowers it, and raises nobody's
    above what they would have if the card did not exist."""
    rows = [(need(a, b, 1.0), won) for a, b, won in history]
    query, weights = need(*asked, 1.0), Weights(0.8, 1.2, slow)
    known = lessons(*(taught(number % 3, number, row, won) for number, (row, won) in enumerate(rows)))
    before = known.about(query, [0, 1, 2])
    for number, (row, _) in enumerate(rows):
        known.add(taught(0, 100 + number, row, success=False))
        after = known.about(query, [0, 1, 2])
        assert boost(base, after[0], weights) <= boost(base, before.get(0, Evidence()), weights) + 1e-6
        for card in before.keys() - {0}:
            assert boost(base, after[card], weights) == pytest.approx(boost(base, before[card], weights), abs=1e-5)
        before = after


@given(_NEEDS, st.tuples(st.floats(-1, 1), st.floats(-1, 1)))
def test_evidence_stays_in_its_range(history: Sequence[tuple[float, float, bool]], asked: tuple[float, float]) -> None:
    """Every part in [0, 1], shares together at most 1."""
    known = lessons(*(taught(n % 4, n, need(a, b, 0.5), won) for n, (a, b, won) in enumerate(history)))
    found = known.about(need(*asked, 0.5), range(4)).values()

    for each in found:
        assert all(0 <= value <= 1 + 1e-6 for value in (each.near, each.share, each.well, each.failing))
    assert sum(each.share for each in found) <= 1


# --------------------------------------------------------------------------------------------- boost


def test_a_boost_is_worked_by_hand() -> None:
    """(0.5 · 0.4 + 2 · 0.25) · well · √base · n²/(n² + 100) - 0.3 · failing."""
    found = Evidence(near=0.4, share=0.25, well=0.5, failing=0.5, successes=10.0)

    fast = 0.7 * 0.5 * 0.9 - FAILING * 0.5
    assert boost(0.81, found, Weights(0.5, 2.0)) == pytest.approx(fast)
    assert boost(0.81, found, Weights(0.5, 2.0, slow=True)) == pytest.approx(0.7 * 0.5 * 0.9 / 2 - FAILING * 0.5)
    assert boost(0.0, found, Weights(0.5, 2.0)) == pytest.approx(-FAILING * 0.5)
    assert boost(1.8, found, Weights(0.5, 2.0)) == pytest.approx(0.7 * 0.5 - FAILING * 0.5)  # a named card


def test_four_mislabelled_successes_weigh_little_where_many_are_the_rule() -> None:
    """Slow learning believes a seventh of what four say, and half of what ten do."""
    certain = Evidence(near=0.5, share=0.5, successes=4.0)
    assert boost(1.0, certain, Weights(1.0, 1.0, slow=True)) == pytest.approx(16 / (16 + MANY**2))
    assert APART < 1


# ------------------------------------------------------------------------------------------- records


def record(successes: int, calls: int) -> float:
    """The rating of a card with these calls, all of them now."""
    return rating(Standing(calls, successes, 0.0).rate(0.0, RATING_START, RATING_CALLS).rate)


def test_a_record_lowers_a_card_that_fails_and_hardly_raises_one_that_works() -> None:
    """0 of 51 costs a quarter of the scale; perfect ones gain a hundredth of it at most; unknown is neither."""
    assert record(0, 0) == pytest.approx(0, abs=1e-9)
    assert record(0, 51) == pytest.approx(RATING * (3.6 / 55 - 0.9))
    assert record(0, 51) < -0.24
    assert 0 < record(1000, 1000) < 0.0031
    assert record(9, 10) == pytest.approx(0.0, abs=1e-9)


@given(st.integers(0, 300), st.integers(0, 300))
def test_one_more_failure_never_helps_a_record(successes: int, failures: int) -> None:
    """And one more success never harms it."""
    calls = successes + failures
    assert record(successes, calls + 1) <= record(successes, calls)
    assert record(successes + 1, calls + 1) >= record(successes, calls)


def test_after_ten_calls_each_the_reliable_one_of_two_equals_is_ahead() -> None:
    """60 against 95 %: in at least 95 of 100 draws of ten calls each."""
    rng = np.random.default_rng(13)
    poor, good = rng.binomial(10, 0.6, 5_000), rng.binomial(10, 0.95, 5_000)
    ahead = [record(int(g), 10) > record(int(p), 10) for p, g in zip(poor, good, strict=True)]
    assert np.mean(ahead) >= 0.95


# ------------------------------------------------------------------------------------------- weights


def sample(right_base: float, wrong_base: float, right: Evidence, wrong: Evidence) -> Sample:
    """A need that card 1 served, with card 2 in the running."""
    return Sample({1: right_base, 2: wrong_base}, {1: right, 2: wrong}, frozenset({1}))


KNOWS = Evidence(near=0.5, share=0.8, successes=20.0)
WRONG = Evidence(near=0.5, share=0.0, successes=20.0)


def test_weights_are_earned_by_what_they_would_have_done() -> None:
    """Where the share tells the right card, it gets weight; how near a card is, which does not help, gets none."""
    helped = [sample(0.5, 0.6 + 0.01 * (n % 5), KNOWS, WRONG) for n in range(40)]
    weights, gain = earn(helped, 1)

    assert weights.share > 0
    assert weights.near == 0
    assert gain == pytest.approx(1.0)


def test_evidence_that_misleads_gets_no_weight() -> None:
    """Not even what every home begins with."""
    misled = [sample(0.6, 0.5, WRONG, KNOWS) for _ in range(40)]
    assert earn(misled, 1) == (Weights(), 0.0)


def test_too_little_to_tell_keeps_the_first_weights() -> None:
    """Fewer needs than it takes, or a difference that chance may have made."""
    helped = sample(0.5, 0.6, KNOWS, WRONG)
    same = sample(0.9, 0.1, KNOWS, WRONG)
    strong = sample(0.5, 0.9, KNOWS, WRONG)
    assert earn([helped] * (ENOUGH - 1)) == (FIRST_WEIGHTS, 0.0)
    assert earn([same] * 40)[0] == FIRST_WEIGHTS
    assert earn([*[same] * 39, strong], 1)[0] == FIRST_WEIGHTS


def test_of_equal_weights_the_cautious_ones_are_chosen() -> None:
    """Slow before fast and small before large: what is not needed is not done."""
    helped = [sample(0.5, 0.51, Evidence(near=0.5, share=0.5, successes=50.0), Evidence()) for _ in range(40)]
    strong = [sample(0.5, 0.75, Evidence(near=0.5, share=0.5, successes=50.0), Evidence()) for _ in range(40)]

    assert earn(helped, 1)[0] == FIRST_WEIGHTS  # which do it already
    assert earn(strong, 1)[0].slow
