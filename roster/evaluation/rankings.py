"""Every need through the real draft: what each system ranks, what would be shown, what it costs and how long it takes.

Lexical, dense and hybrid of one encoder are read off the same draft, so three systems cost one pass.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from roster.briefs import brief
from roster.draft import Draft
from roster.evaluation.homes import Filled, cards_of
from roster.evaluation.needsets import Need, NeedSet
from roster.evaluation.systems import Order, System, ordered
from roster.evaluation.tokens import Tokenizer, draft_json
from roster.ranking import Match

__all__ = ["RUN_DEPTH", "Ranking", "rank_needs", "ranking_of_run"]

RUN_DEPTH = 100
"""How many cards of a ranking are kept: the reciprocal rank of a card further down is nothing."""

_WARM_UP = "list the files of a folder"


@dataclass(frozen=True, slots=True)
class Ranking:
    """What a system makes of a need, as corpus ids. draft_ms: of the draft it was read off; None for a run from a file.

    drafted: what it would show: for hybrid and learned the draft's own starters, otherwise the first k. unmet: it would
    say that nothing fits.
    """

    cards: tuple[str, ...]
    scores: Sequence[float]
    drafted: tuple[str, ...]
    rated: int
    tokens: int
    draft_ms: float | None
    unmet: bool = False


def rank_needs(
    filled: Filled,
    needs: Sequence[Need],
    systems: Sequence[System],
    k: int,
    tokenizer: Tokenizer,
    on_need: Callable[[int, int], None] = lambda *_: None,
) -> dict[str, dict[str, Ranking]]:
    """System → need → ranking, one draft a need."""
    out: dict[str, dict[str, Ranking]] = {system.name: {} for system in systems}
    filled.roster.draft_now(_WARM_UP, k)  # the first draft of a process pays for what the others find done
    for done, need in enumerate(needs, 1):
        begun = time.perf_counter()
        made = filled.roster.draft_now(need.text, k)
        draft_ms = (time.perf_counter() - begun) * 1000
        for system in systems:
            out[system.name][need.id] = _ranking(filled, made, system.order, k, tokenizer, draft_ms)
        on_need(done, len(needs))
    return out


def _ranking(filled: Filled, made: Draft, order: Order, k: int, tokenizer: Tokenizer, draft_ms: float) -> Ranking:
    ranked = ordered(order, made.running)[:RUN_DEPTH]
    whole = order in (Order.HYBRID, Order.LEARNED)
    unmet = whole and made.match is Match.NONE
    if whole:
        # A need that is told nothing fits gets nothing, also when the right card was in the running.
        ranked = [] if unmet else ranked
        shown = [starter.card for starter in made.starters]
        wires, match = [starter.wire() for starter in made.starters], made.match
        rated = sum(starter.rated for starter in made.starters)
    else:
        shown = [card for card, _ in ranked[:k]]
        wires, match, rated = [brief(card) for card in shown], Match.CLEAR, 0
    return Ranking(
        cards=tuple(filled.corpus_ids[card.server, card.name] for card, _ in ranked),
        scores=array("d", (score for _, score in ranked)),
        drafted=tuple(filled.corpus_ids[card.server, card.name] for card in shown),
        rated=rated,
        tokens=tokenizer.count(draft_json(made.need, wires, match)),
        draft_ms=draft_ms,
        unmet=unmet,
    )


def ranking_of_run(
    needset: NeedSet, run: Mapping[str, Iterable[tuple[str, float]]], k: int, tokenizer: Tokenizer
) -> dict[str, Ranking]:
    """Need → ranking, of a run that somebody else made. A need that is not in it has an empty one."""
    cards = cards_of(needset)
    out = {}
    for need in needset.needs:
        ranked = list(run.get(need.id, ()))[:RUN_DEPTH]
        shown = tuple(card for card, _ in ranked[:k])
        out[need.id] = Ranking(
            cards=tuple(card for card, _ in ranked),
            scores=array("d", (score for _, score in ranked)),
            drafted=shown,
            rated=0,
            tokens=tokenizer.count(draft_json(need.text, [brief(cards[card]) for card in shown])),
            draft_ms=None,
        )
    return out
