"""From scores to an order. Pure: numbers in, numbers out; ties broken by card number, so never by chance."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from roster.evidence import Evidence
from roster.weights import Weights, boost

__all__ = [
    "ALIKE",
    "DENSE_WEIGHT",
    "LEXICAL_HALF",
    "MATCH_WORDS",
    "PASSAGE_COST",
    "Match",
    "Scored",
    "blend",
    "dense_weight",
    "match_of",
    "match_strength",
    "rank",
    "scaled",
    "spread",
    "steps_share",
    "with_learning",
]

DENSE_WEIGHT = 0.75
"""Share of meaning in the blend; the rest is words. Score fusion by per-need min-max beat reciprocal rank fusion on all
eight sets it was measured on. This and `LEXICAL_HALF` were chosen together on train needs, on a wide plateau."""
LEXICAL_HALF = 10.0
"""The BM25 score that counts half: a need whose words are hardly found lets meaning decide, one that is found word for
word lets its words decide. Plain min-max would stretch one shared common word to full marks."""
ALIKE = 0.3
"""Cosines that lie closer together than this are not stretched to the whole scale: of the few cards of a small home the
last may be hardly worse than the first. With a hundred cards or more the scale is always longer."""
LONG_NEED = (20, 60)
"""Words of a need between which words gain `LONG_GAIN` on meaning: one vector holds a long need less and less well."""
LONG_GAIN = 0.2
STEPS_SHARE = 0.6
"""Share of the steps in what meaning says of a need of several. With `LONG_NEED` chosen on train needs joined to needs
of two to four steps (mean nDCG@5 .586 without, .652 with), at no loss for train needs as they are (.732, .738)."""
STEPS_FROM = (12, 24)
"""Words of a need between which its steps gain that share: a short need is one step, however it is punctuated."""
COVERED = 0.2
"""What a card loses at most for steps that better cards of the draft are for: two-step needs want a card for each (join
needs as above: .652 without, .677 with; single needs the same)."""
STEP_SHARPNESS = 10.0
"""Inverse temperature of which step a card is for."""
PASSAGE_COST = 0.125
"""What a passage of a skill's body is nearer by than its description before it counts. The best of two dozen rows is
near by chance: without a cost skills crowd tools out. On train needs (nDCG@5), the needs of skills / those of tools
beside them: .463 / .605 without passages; .841 / .574 at 0.1, .811 / .585 at 0.125, .777 / .586 at 0.15."""
MATCH_WORDS = 0.15
"""What sharing words adds to a match's strength, at most; chosen with the embedded model's floor on train needs."""
MATCH_DOUBT = 0.1
"""How far above its floor a match is still in doubt. The floor cuts no right train need (0 of 924); up to here, one in
230 is told to doubt, as are nine of ten nonsense ones."""


class Match(StrEnum):
    """How well the best card in the running fits its need."""

    CLEAR = "clear"
    WEAK = "weak"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Scored:
    """One card in the running: what each stage said of it. None: that stage did not know the card."""

    number: int
    score: float
    similarity: float | None = None
    bm25: float | None = None
    dense: float | None = None
    lexical: float | None = None
    step: float | None = None
    named: bool = False
    covered: float = 0.0
    base: float = 0.0
    learned: Evidence | None = None
    boost: float = 0.0
    adapted: float = 0.0
    rating: float = 0.0


def scaled(value: float, low: float, high: float) -> float:
    """Where `value` lies between the two, 0 to 1; 0 when they are one."""
    return (value - low) / (high - low) if high > low else 0.0


def dense_weight(words: int, unread: float = 0.0) -> float:
    """The share of meaning in the blend, for a need of so many words worth looking up.

    unread: the share of the need, 0 to 1, that the encoder has no token for. From half of it on words decide alone.
    """
    weight = DENSE_WEIGHT - LONG_GAIN * min(1.0, max(0.0, scaled(words, *LONG_NEED)))
    return weight * (1 - min(1.0, 2 * unread))


def steps_share(words: int) -> float:
    """The share of single steps in what meaning says, for a need of so many words."""
    return STEPS_SHARE * min(1.0, max(0.0, scaled(words, *STEPS_FROM)))


def blend(
    similarities: Mapping[int, float],
    floor: float,
    scores: Mapping[int, float],
    *,
    named: Collection[int] = (),
    weight: float = DENSE_WEIGHT,
    steps: Mapping[int, Sequence[float]] | None = None,
    share: float = 0.0,
) -> list[Scored]:
    """Every card that any stage found, with its blended score in [0, 1], plus 1 for a card the need names.

    similarities: cosine by card number; floor: the lowest similarity in the whole corpus for this need.
    scores: BM25 by card number; a card that is not in it shares no word with the need and has 0.
    A card without a vector yet is judged by its words alone, against the best of them.
    weight: the share of meaning. steps: by card number, how near the card is to each single step, in [0, 1];
    `share` of what meaning says comes from the nearest one.
    """
    top = max(similarities.values(), default=0.0)
    best = max(scores.values(), default=0.0)
    out = []
    for number in {*similarities, *scores, *named}:
        similarity, bm25 = similarities.get(number), scores.get(number)
        found = bm25 if bm25 is not None and best > 0 else 0.0
        if similarity is None:
            dense, lexical, step = None, (found / best if best > 0 else 0.0), None
            score = lexical
        else:
            dense, lexical = 1 - (top - similarity) / max(top - floor, ALIKE), found / (best + LEXICAL_HALF)
            step = max(steps[number]) if steps and number in steps else None
            meaning = dense if step is None else (1 - share) * dense + share * step
            score = weight * meaning + (1 - weight) * lexical
        is_named = number in named
        total = score + is_named
        out.append(Scored(number, total, similarity, bm25, dense, lexical, step, is_named, base=total))
    return out


def match_strength(similarity: float, bm25: float) -> float:
    """How well the best card of a draft fits its need: its cosine, and up to `MATCH_WORDS` more for shared words.

    Unlike a score this is absolute: every need has a card with score 1, also one that nothing serves.
    """
    return similarity + MATCH_WORDS * bm25 / (bm25 + LEXICAL_HALF)


def with_learning(
    candidates: Iterable[Scored],
    learned: Mapping[int, Evidence],
    weights: Weights,
    ratings: Mapping[int, float],
    adapted: Mapping[int, float],
) -> list[Scored]:
    """The candidates with what past outcomes add: evidence for this need, how much nearer it is to the card as this
    home means it, and the card's record as a whole."""
    out = []
    for scored in candidates:
        found, record = learned.get(scored.number), ratings.get(scored.number, 0.0)
        moved = weights.adapter * adapted.get(scored.number, 0.0)
        if found is None and not record and not moved:
            out.append(scored)
            continue
        gain = boost(scored.base, found, weights) if found is not None else 0.0
        out.append(
            # Not `replace`: that is half of what learning would cost a draft.
            Scored(
                scored.number,
                scored.base + gain + moved + record,
                scored.similarity,
                scored.bm25,
                scored.dense,
                scored.lexical,
                scored.step,
                scored.named,
                scored.covered,
                scored.base,
                found,
                gain,
                moved,
                record,
            )
        )
    return out


def spread(
    candidates: Sequence[Scored], steps: Mapping[int, Sequence[float]], first: int, share: float
) -> list[Scored]:
    """The candidates of a need of several steps, those lowered whose step is taken; `first` places are dealt that way.

    Greedy, best first: each card taken covers, in part, the steps it is for, and a card for a covered step loses up to
    `COVERED` · share / `STEPS_SHARE` of its score. The scores stay in the order the cards were taken in.
    """
    if not steps or share <= 0:
        return list(candidates)
    width = len(next(iter(steps.values())))
    near = np.array([steps.get(scored.number, (0.0,) * width) for scored in candidates])
    sharp = np.exp(STEP_SHARPNESS * near)
    owned = sharp / sharp.sum(axis=1, keepdims=True)
    # A card that is near no step, or that the need names, takes none and loses nothing.
    apart = [scored.named or scored.number not in steps for scored in candidates]
    owned[apart] = 0.0
    strength = COVERED * share / STEPS_SHARE
    scores = np.array([scored.score for scored in candidates])
    numbers = np.array([scored.number for scored in candidates])
    taken = np.zeros(width)
    fixed: dict[int, float] = {}
    for _ in range(min(first, len(candidates))):
        lost = strength * owned @ np.minimum(taken, 1.0)
        value = scores - lost
        value[list(fixed)] = -np.inf
        best = int(np.lexsort((numbers, -value))[0])
        fixed[best] = float(lost[best])
        taken += owned[best]
    lost = strength * owned @ np.minimum(taken, 1.0)
    return [
        replace(scored, score=scored.score - fixed.get(at, float(lost[at])), covered=fixed.get(at, float(lost[at])))
        for at, scored in enumerate(candidates)
    ]


def match_of(strength: float, floor: float | None) -> Match:
    """What a strength means for an encoder with this floor; always clear for one without, as nobody measured it."""
    if floor is None or strength >= floor + MATCH_DOUBT:
        return Match.CLEAR
    return Match.WEAK if strength >= floor else Match.NONE


def rank(candidates: Iterable[Scored], k: int) -> list[Scored]:
    """The k best, highest score first; equal scores in order of card number. What the need names goes before the rest,
    whatever was learned."""
    return sorted(candidates, key=lambda scored: (not scored.named, -scored.score, scored.number))[:k]
