"""The systems that can be compared, by name: what orders the cards, and by which encoder's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from roster.cards import Card
from roster.errors import RosterError
from roster.ranking import Scored

__all__ = ["DEFAULT_SYSTEMS", "Order", "System", "ordered", "parse_system"]

DEFAULT_SYSTEMS = ("hybrid", "dense", "lexical")


class Order(StrEnum):
    """What a system sorts by: words, meaning, or the blend that a draft is made of, without outcomes or with them."""

    LEXICAL = "lexical"
    DENSE = "dense"
    HYBRID = "hybrid"
    LEARNED = "learned"


@dataclass(frozen=True, slots=True)
class System:
    """A named way to rank. model: None for the default encoder."""

    name: str
    order: Order
    model: str | None = None


def parse_system(name: str) -> System:
    """The system of this name. Raises RosterError for one that is not known."""
    order, colon, model = name.partition(":")
    if order not in list(Order) or (colon and (not model or order == Order.LEXICAL)):
        raise RosterError(
            f"system {name!r} is not known: use lexical, dense, hybrid or learned, or dense:NAME_OR_PATH, "
            "hybrid:NAME_OR_PATH and learned:NAME_OR_PATH for another encoder"
        )
    return System(name, Order(order), model or None)


def ordered(order: Order, running: Sequence[tuple[Card, Scored]]) -> list[tuple[Card, float]]:
    """The cards of one draft's running as a system has them, best first, with the score it goes by.

    One draft gives the first three orders. A card that a stage did not find is not in that stage's own ranking.
    """
    if order in (Order.HYBRID, Order.LEARNED):
        return [(card, scored.score) for card, scored in running]
    scores: list[tuple[float, int, Card]] = []
    for card, scored in running:
        match order:
            case Order.DENSE:
                score = scored.similarity
            case _:
                score = scored.bm25
        if score is not None:
            scores.append((-score, scored.number, card))
    return [(card, -score) for score, _, card in sorted(scores, key=lambda row: row[:2])]
