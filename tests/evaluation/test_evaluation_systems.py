"""Systems by name, and the order each has of one draft's cards."""

from __future__ import annotations

import pytest

from roster.cards import Card, card_from_tool
from roster.errors import RosterError
from roster.evaluation.systems import Order, System, ordered, parse_system
from roster.ranking import Scored


def test_a_system_is_an_order_and_an_encoder() -> None:
    assert parse_system("hybrid") == System("hybrid", Order.HYBRID)
    assert parse_system("dense:org/model") == System("dense:org/model", Order.DENSE, "org/model")
    assert parse_system("learned") == System("learned", Order.LEARNED)
    assert parse_system("hybrid:/a:b") == System("hybrid:/a:b", Order.HYBRID, "/a:b")


@pytest.mark.parametrize("name", ["", "bm25", "lexical:x", "dense:", "Hybrid"])
def test_an_unknown_system_names_the_known_ones(name: str) -> None:
    with pytest.raises(RosterError, match="is not known: use lexical, dense, hybrid"):
        parse_system(name)


def test_each_order_has_its_own_cards_and_scores() -> None:
    """A card that shares no word is not in the lexical ranking; a blend keeps the order of its draft."""

    def card(name: str) -> Card:
        return card_from_tool("s", {"name": name})

    running = [
        (card("a"), Scored(3, 0.9, similarity=0.2, bm25=7.0)),
        (card("c"), Scored(1, 0.5, bm25=7.0)),
        (card("b"), Scored(2, 0.5, similarity=0.8)),
    ]

    def names(order: Order) -> list[tuple[str, float]]:
        return [(card.name, score) for card, score in ordered(order, running)]

    assert names(Order.HYBRID) == [("a", 0.9), ("c", 0.5), ("b", 0.5)]
    assert names(Order.LEARNED) == names(Order.HYBRID)
    assert names(Order.DENSE) == [("b", 0.8), ("a", 0.2)]
    assert names(Order.LEXICAL) == [("c", 7.0), ("a", 7.0)]
