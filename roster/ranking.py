"""From scores to an order. Pure: numbers in, numbers out; ties broken by card number, so never by chance."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

__all__ = ["DENSE_WEIGHT", "LEXICAL_HALF", "MATCH_WORDS", "Scored", "blend", "match_strength", "rank"]

DENSE_WEIGHT = 0.75
"""Share of meaning in the blend; the rest is words. Score fusion by per-need min-max beat reciprocal rank fusion on all
eight sets it was measured on. This and `LEXICAL_HALF` were chosen together on train needs, on a wide plateau."""
LEXICAL_HALF = 10.0
"""The BM25 score that counts half: a need whose words are hardly found lets meaning decide, one that is found word for
word lets its words decide. Plain min-max would stretch one shared common word to full marks."""
MATCH_WORDS = 0.15
"""What sharing words adds to a match's strength, at most; chosen with the embedded model's floor on train needs."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One card in the running: what each stage said of it. None: that stage did not know the card."""

    number: int
    score: float
    similarity: float | None = None
    bm25: float | None = None
    dense: float | None = None
    lexical: float | None = None
    named: bool = False


def _scaled(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.0


def blend(
    similarities: Mapping[int, float],
    floor: float,
    scores: Mapping[int, float],
    *,
    named: Collection[int] = (),
    weight: float = DENSE_WEIGHT,
) -> list[Scored]:
    """Every card that any stage found, with its blended score in [0, 1], plus 1 for a card the need names.

    similarities: cosine by card number; floor: the lowest similarity in the whole corpus for this need.
    scores: BM25 by card number; a card that is not in it shares no word with the need and has 0.
    A card without a vector yet is judged by its words alone, against the best of them.
    """
    top = max(similarities.values(), default=0.0)
    best = max(scores.values(), default=0.0)
    out = []
    for number in {*similarities, *scores, *named}:
        similarity, bm25 = similarities.get(number), scores.get(number)
        found = bm25 if bm25 is not None and best > 0 else 0.0
        if similarity is None:
            dense, lexical = None, (found / best if best > 0 else 0.0)
            score = lexical
        else:
            dense, lexical = _scaled(similarity, floor, top), found / (best + LEXICAL_HALF)
            score = weight * dense + (1 - weight) * lexical
        is_named = number in named
        out.append(Scored(number, score + is_named, similarity, bm25, dense, lexical, is_named))
    return out


def match_strength(similarity: float, bm25: float) -> float:
    """How well the best card of a draft fits its need: its cosine, and up to `MATCH_WORDS` more for shared words.

    Unlike a score this is absolute: every need has a card with score 1, also one that nothing serves.
    """
    return similarity + MATCH_WORDS * bm25 / (bm25 + LEXICAL_HALF)


def rank(candidates: Iterable[Scored], k: int) -> list[Scored]:
    """The k best, highest score first; equal scores in order of card number."""
    return sorted(candidates, key=lambda scored: (-scored.score, scored.number))[:k]
