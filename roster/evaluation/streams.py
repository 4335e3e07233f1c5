"""Streams of outcomes: which card was called for which need, and how it went. Pure: needs and numbers in, lists out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from zlib import crc32

import numpy as np

from roster.evaluation.needsets import Need
from roster.evaluation.stage import Happened

__all__ = ["by_card", "generator", "mislabelled", "right_ones", "shuffled"]


def generator(seed: int, *names: str) -> np.random.Generator:
    """Chance of its own for what is named, whatever else is run."""
    return np.random.default_rng([seed, *(crc32(name.encode()) for name in names)])


def shuffled(items: Sequence[str], rng: np.random.Generator) -> list[str]:
    """The items in an order by chance."""
    return [items[at] for at in rng.permutation(len(items))]


def by_card(needs: Sequence[Need]) -> dict[str, list[str]]:
    """Card → the needs it serves, in their order."""
    out: dict[str, list[str]] = {}
    for need in needs:
        for card in need.grades:
            out.setdefault(card, []).append(need.id)
    return out


def right_ones(needs: Sequence[Need], per_card: int | None = None, most: int | None = None) -> list[Happened]:
    """A success of every card that serves a need, need by need.

    per_card: no more than so many of each card. most: no more than so many in all, whole needs only.
    """
    counts: dict[str, int] = {}
    out: list[Happened] = []
    for need in needs:
        taken = [card for card in need.grades if per_card is None or counts.get(card, 0) < per_card]
        if most is not None and len(out) + len(taken) > most:
            break
        for card in taken:
            counts[card] = counts.get(card, 0) + 1
            out.append(Happened(need.id, card))
    return out


def mislabelled(
    outcomes: Sequence[Happened],
    share: float,
    grades: Mapping[str, Need],
    first: Callable[[str], Sequence[str]],
    rng: np.random.Generator,
) -> list[Happened]:
    """The same stream, where about this share of successes is told of a card that only came near.

    first: need → the cards that came first without learning; one of them that does not serve is named instead.
    """
    out = []
    for outcome in outcomes:
        wrong = outcome.success and rng.random() < share
        others = [card for card in first(outcome.need) if card not in grades[outcome.need].grades] if wrong else []
        out.append(Happened(outcome.need, others[int(rng.integers(len(others)))]) if others else outcome)
    return out
