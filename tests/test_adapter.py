"""`roster.adapter`: what one card's needs teach about wording helps cards that nobody has called."""

from __future__ import annotations

import numpy as np
import pytest

from roster.adapter import RIDGE, Pair, fit
from roster.vectors import Vectors, unit_rows

DIM = 24


def unit(rng: np.random.Generator, rows: int) -> Vectors:
    return unit_rows(rng.normal(size=(rows, DIM)))


def pairs_of(rows: int, weight: float = 1.0) -> list[Pair]:
    return [Pair(number, number % 5, weight) for number in range(rows)]


def away(rng: np.random.Generator, cards: Vectors) -> Vectors:
    """Needs that all miss their cards by the same habit of wording."""
    return unit_rows(cards + 0.8 * unit(np.random.default_rng(99), 1) + 0.05 * unit(rng, len(cards)))


def test_a_habit_of_wording_is_unlearned_for_cards_that_were_never_called() -> None:
    """All needs of this home lean the same way; a need for a new card is led back to it."""
    rng = np.random.default_rng(1)
    cards = unit(rng, 200)
    adapter = fit(pairs_of(200), away(rng, cards), cards)
    new = unit(rng, 20)
    needs = away(rng, new)

    before = np.einsum("nd,nd->n", needs, new)
    after = np.array([adapter(need) @ card for need, card in zip(needs, new, strict=True)])

    assert (after > before).all()
    assert np.mean(after - before) > 0.05


def test_leaving_a_need_out_is_what_fitting_without_it_gives() -> None:
    """The shortcut that weights are chosen by is exact, for a need of two cards and of another weight too."""
    rng = np.random.default_rng(2)
    needs, cards = unit(rng, 30), unit(rng, 31)
    rows = np.concatenate([needs, needs[:1]])
    pairs = [*pairs_of(30, 0.7), Pair(0, 9, 0.4)]
    whole = fit(pairs, rows, cards)

    without = fit(pairs[1:-1], rows[1:-1], cards[1:-1])

    np.testing.assert_allclose(whole(needs[0], without=0), without(needs[0]), atol=1e-4)
    assert not np.allclose(whole(needs[0]), without(needs[0]), atol=1e-4)
    np.testing.assert_array_equal(whole(needs[0], without=77), whole(needs[0]))


def test_one_lesson_moves_its_own_need_by_a_known_part_of_the_way() -> None:
    """By ridge regression one pair leads 1 / (1 + ridge) of the way to its card; a need at right angles stays."""
    need, other, card = np.eye(3, DIM, dtype=np.float32)
    adapter = fit([Pair(1, 1)], need[None], card[None])

    np.testing.assert_allclose(need @ adapter.way, (card - need) / (1 + RIDGE), atol=1e-6)
    np.testing.assert_allclose(adapter(other), other, atol=1e-6)
    assert np.linalg.norm(adapter(need)) == pytest.approx(1.0, abs=1e-5)


def test_four_wrong_lessons_among_hundreds_hardly_count() -> None:
    """The map of a home is made by what most of its outcomes say."""
    rng = np.random.default_rng(3)
    cards = unit(rng, 300)
    needs = away(rng, cards)
    wrong = cards.copy()
    wrong[:4] = unit(rng, 4)

    right, poisoned = fit(pairs_of(300), needs, cards), fit(pairs_of(300), needs, wrong)

    apart = [float(right(need) @ poisoned(need)) for need in away(rng, unit(rng, 50))]
    assert min(apart) > 0.97
