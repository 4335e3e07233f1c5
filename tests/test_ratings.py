"""Records in numbers: each worked by hand once, and what must hold for all of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roster.failures import FailureKind
from roster.outcomes import Outcome
from roster.ratings import Ending, Rate, Record, Standing, decayed, percentile, record_of, wilson_lower

NOW = 1_700_000_000.0
DAY = 86_400.0

outcomes = st.lists(st.tuples(st.floats(NOW - 900 * DAY, NOW + DAY), st.booleans()), max_size=30)
priors = st.floats(0, 1)
weights = st.floats(0.01, 50)


def rate(seen: list[tuple[float, bool]], prior: float = 0.5, weight: float = 2.0) -> Rate:
    return decayed(seen, NOW, 30 * DAY, prior, weight)


# ----------------------------------------------------------------------------------------------- Wilson


def test_the_lower_bound_of_a_flawless_record_has_a_closed_form() -> None:
    """n of n: n / (n + z²), so that one call is worth 0.2065 and ten are worth 0.7225."""
    for calls in (1, 10, 1000):
        assert wilson_lower(calls, calls) == pytest.approx(calls / (calls + 1.96**2))
    assert wilson_lower(8, 10) == pytest.approx((0.8 + 0.19208 - 1.96 * math.sqrt(0.016 + 0.009604)) / 1.38416)


@given(st.integers(1, 10_000), st.data())
def test_the_lower_bound_is_one(calls: int, data: st.DataObject) -> None:
    """In [0, 1], never above the rate, higher with more successes and with more calls of the same rate."""
    successes = data.draw(st.integers(0, calls))
    bound = wilson_lower(successes, calls)
    assert 0.0 <= bound <= successes / calls
    assert wilson_lower(max(0, successes - 1), calls) <= bound
    assert wilson_lower(2 * successes, 2 * calls) >= bound - 1e-12


# ------------------------------------------------------------------------------------------ percentiles


def test_a_percentile_is_one_of_the_values() -> None:
    """Nearest rank: of 1 to 20, the tenth and the nineteenth; of one value that one; of none nothing."""
    values = [float(n) for n in range(1, 21)]
    assert (percentile(values, 0.5), percentile(values, 0.95), percentile(values, 1.0)) == (10.0, 19.0, 20.0)
    assert (percentile([7.0], 0.5), percentile([7.0], 0.95)) == (7.0, 7.0)
    assert percentile([], 0.5) is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_percentile_has_its_share_at_or_below_it(values: list[float], share: float) -> None:
    """And less than that share strictly below."""
    value = percentile(sorted(values), share)
    assert value is not None
    assert sum(each <= value for each in values) >= share * len(values) - 1e-9
    assert sum(each < value for each in values) < share * len(values) + 1e-9


# ------------------------------------------------------------------------------------------------ decay


def test_an_outcome_loses_half_its_weight_in_a_half_life() -> None:
    """1 now, ½ a half-life ago, ¼ two ago: (1 + ¼ + 0.5 × 2) / (1 + ½ + ¼ + 2) = 0.6, on a weight of 1.75."""
    seen = [(NOW, True), (NOW - 30 * DAY, False), (NOW - 60 * DAY, True)]
    assert rate(seen) == Rate(pytest.approx(0.6), pytest.approx(1.75))


def test_the_prior_is_what_is_left_without_a_record() -> None:
    """Never called, or so long ago that nothing of it is left; a prior without weight gives way to one call."""
    assert rate([], prior=0.8) == Rate(0.8, 0.0)
    assert rate([(NOW - 3000 * DAY, False)] * 9, prior=0.8).rate == pytest.approx(0.8)
    assert rate([], prior=0.8, weight=0.0) == Rate(0.8, 0.0)
    assert rate([(NOW, False)], prior=0.8, weight=0.0) == Rate(0.0, 1.0)


def test_one_failure_does_not_condemn_and_many_do() -> None:
    """With a prior of 0.9 worth three calls: one failure 0.675, ten 0.2077, and a success in between helps."""
    failures = [(NOW, False)] * 10
    assert rate(failures[:1], 0.9, 3).rate == pytest.approx(2.7 / 4)
    assert rate(failures, 0.9, 3).rate == pytest.approx(2.7 / 13)
    assert rate([*failures, (NOW, True)], 0.9, 3).rate == pytest.approx(3.7 / 14)


def test_a_clock_that_was_wrong_costs_nothing_but_that_outcome() -> None:
    """An outcome from the future counts as of now, and fades none of the others; a time long past is only old."""
    seen = [(NOW, True), (NOW + 400 * DAY, False)]
    assert rate(seen) == rate([(NOW, True), (NOW, False)])
    assert rate([*seen, (0.0, True)]).weight == pytest.approx(2.0)
    assert Standing(3.0, 1.0, NOW).rate(NOW - DAY, 0.5, 1.0) == Standing(3.0, 1.0, NOW).rate(NOW, 0.5, 1.0)


@given(outcomes, priors, weights)
def test_a_rate_is_one_and_weighs_no_more_than_its_outcomes(
    seen: list[tuple[float, bool]], prior: float, weight: float
) -> None:
    """In [0, 1]; its weight between 0 and the number of outcomes."""
    found = rate(seen, prior, weight)
    assert 0.0 <= found.rate <= 1.0
    assert 0.0 <= found.weight <= len(seen) + 1e-9


@given(outcomes, st.floats(NOW - 900 * DAY, NOW), priors, weights)
def test_a_success_never_lowers_a_rate_and_a_failure_never_raises_it(
    seen: list[tuple[float, bool]], at: float, prior: float, weight: float
) -> None:
    """Whenever it was, and whatever else there is."""
    before = rate(seen, prior, weight).rate
    assert rate([*seen, (at, True)], prior, weight).rate >= before - 1e-12
    assert rate([*seen, (at, False)], prior, weight).rate <= before + 1e-12


@given(outcomes, st.floats(NOW - 900 * DAY, NOW - DAY), priors, weights)
def test_the_fresher_a_failure_the_more_it_costs(
    seen: list[tuple[float, bool]], at: float, prior: float, weight: float
) -> None:
    """The same failure a day later never leaves a higher rate."""
    older, fresher = (rate([*seen, (when, False)], prior, weight).rate for when in (at, at + DAY))
    assert fresher <= older + 1e-12


@given(outcomes, st.randoms())
def test_the_order_of_outcomes_is_of_no_matter(seen: list[tuple[float, bool]], random: object) -> None:
    """One by one in any order, or counted out as the definition says: the same rate and weight."""
    shuffled = list(seen)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    left = [0.5 ** (max(0.0, NOW - at) / (30 * DAY)) for at, _ in seen]
    won = sum(weight for weight, (_, success) in zip(left, seen, strict=True) if success)
    one_by_one = Standing()
    for at, success in shuffled:
        one_by_one = one_by_one.add(at, success, NOW)
    for found in (rate(seen), rate(shuffled), one_by_one.rate(NOW, 0.5, 2.0)):
        assert found.weight == pytest.approx(sum(left), abs=1e-9)
        assert found.rate == pytest.approx((won + 1.0) / (sum(left) + 2.0), abs=1e-9)


@given(outcomes)
def test_a_standing_can_be_kept_and_added_to(seen: list[tuple[float, bool]]) -> None:
    """As outcomes come in, each with the clock of its moment: what is asked later is the same as from the beginning."""
    standing = Standing()
    for at, success in sorted(seen):
        standing = standing.add(at, success, now=max(at, NOW - 900 * DAY))
    later = NOW + 50 * DAY
    kept, whole = standing.rate(later, 0.5, 2.0), decayed(seen, later, 30 * DAY, 0.5, 2.0)
    assert (kept.rate, kept.weight) == (pytest.approx(whole.rate), pytest.approx(whole.weight))


# ---------------------------------------------------------------------------------------------- records


def test_a_record_adds_up_what_counts_and_shows_what_does_not() -> None:
    """Two contracts: 8 of 10 count as successes; a caller's 3 mistakes and a mended failure stand beside them."""
    endings = [
        Ending("p1", Outcome.SUCCESS, None, True, 6, NOW - 5, (30.0, 10.0, 40.0)),
        Ending("p2", Outcome.SUCCESS, None, True, 2, NOW - 9, (20.0,)),
        Ending("p1", Outcome.TIMEOUT, FailureKind.TIMEOUT, True, 1, NOW - 7),
        Ending("p2", Outcome.OTHER, FailureKind.TOOL_FAILED, True, 1, NOW - 8),
        Ending("p2", Outcome.OTHER, FailureKind.TOOL_FAILED, False, 1, NOW - 8),
        Ending("p1", Outcome.SCHEMA, FailureKind.INVALID_INPUT, False, 3, NOW - 1),
    ]
    record = record_of(endings)

    assert record == Record(
        calls=10,
        successes=8,
        uncounted=4,
        classes={"success": 8, "tool_fail:schema": 3, "tool_fail:other": 2, "tool_fail:timeout": 1},
        failures={"timeout": 1, "tool_failed": 1},
        excused={"invalid_input": 3, "tool_failed": 1},
        p50_ms=20.0,
        p95_ms=40.0,
        last_at=NOW - 1,
    )
    assert list(record.classes) == ["success", "tool_fail:schema", "tool_fail:other", "tool_fail:timeout"]
    assert (record.rate, record.wilson) == (0.8, wilson_lower(8, 10))


def test_a_record_of_nothing_has_no_rate() -> None:
    """Nor has one of a caller's mistakes alone; its lower bound is 0."""
    assert record_of([]) == Record()
    mistakes = record_of([Ending("p", Outcome.SCHEMA, None, False, 2, NOW)])
    assert (mistakes.rate, mistakes.wilson, mistakes.uncounted) == (None, 0.0, 2)
    assert mistakes.excused == {"tool_fail:schema": 2}
