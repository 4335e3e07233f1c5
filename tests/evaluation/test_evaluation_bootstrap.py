"""Intervals: known answers, paired draws, one seed one result."""

from __future__ import annotations

import numpy as np
import pytest

from roster.evaluation.bootstrap import interval, resampled_means


def test_a_constant_difference_has_no_width() -> None:
    """Whatever needs are drawn, all of them differ by a tenth."""
    base = np.random.default_rng(1).random(50)
    means = resampled_means(np.stack([base, base + 0.1, np.full(50, 0.3)], axis=1), 13, "set")

    apart = interval(0.1, means[:, 1] - means[:, 0])
    constant = interval(0.3, means[:, 2])

    assert (apart.low, apart.high) == (pytest.approx(0.1), pytest.approx(0.1))
    assert (constant.low, constant.high) == (0.3, 0.3)


def test_the_interval_is_that_of_the_mean() -> None:
    """400 needs, half of them hit: the standard error is 0.025, so 95 % is 0.5 ± 0.049."""
    values = np.repeat([0.0, 1.0], 200)[:, None]

    found = interval(0.5, resampled_means(values, 13, "set")[:, 0])

    assert found.low == pytest.approx(0.451, abs=0.004)
    assert found.high == pytest.approx(0.549, abs=0.004)


def test_one_seed_gives_one_result_for_each_set() -> None:
    """A set's draws do not depend on the sets beside it, and two sets do not share theirs."""
    values = np.random.default_rng(2).random((30, 2))

    once = resampled_means(values, 13, "one")

    assert once.shape == (10_000, 2)
    assert np.array_equal(once, resampled_means(values, 13, "one"))
    assert not np.array_equal(once, resampled_means(values, 14, "one"))
    assert not np.array_equal(once, resampled_means(values, 13, "two"))


def test_many_needs_are_drawn_in_parts() -> None:
    """More cells than are held at once: every resample is there and centred."""
    values = np.tile([[0.0], [1.0]], (1_500, 1))

    means = resampled_means(values, 13, "set", resamples=1_500)

    assert means.shape == (1_500, 1)
    assert abs(means.mean() - 0.5) < 0.001
    assert means.std() == pytest.approx(0.5 / np.sqrt(3_000), rel=0.1)


def test_one_need_is_enough() -> None:
    found = interval(0.25, resampled_means(np.array([[0.25]]), 13, "set")[:, 0])

    assert (found.low, found.high) == (0.25, 0.25)
