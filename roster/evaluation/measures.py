"""What a ranking is worth, need by need. The measures are those of ir-measures, but for the one it does not have.

`ndcg@k` has linear gain, the grade itself (Järvelin & Kekäläinen 2002): that of trec_eval, not 2^grade - 1.
`recall@k` is the share of a need's cards among the first k; `hit@k` whether any of them is there, `hit@1` whether the
first card is one; `mrr` the reciprocal rank of the first of them in the whole run; `all@k` whether every one of them is
among the first k (of more than k, any k).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from roster.errors import RosterError

__all__ = ["all_needed", "first_place", "measure_names", "score_needs"]

_AT_ONCE = 500


def measure_names(k: int) -> list[str]:
    """The measures reported for this k, the main one first."""
    return list(dict.fromkeys([f"ndcg@{k}", f"recall@{k}", "hit@1", f"hit@{k}", "mrr", f"all@{k}"]))


def all_needed(ranked: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """1.0 when every card with a positive grade is among the first k; of more than k such cards, k are enough."""
    relevant = {card for card, grade in grades.items() if grade > 0}
    return float(len(relevant.intersection(ranked[:k])) >= min(k, len(relevant)))


def first_place(ranked: Sequence[str], grades: Mapping[str, int]) -> int | None:
    """Where the first card with a positive grade is, counted from 1; None when it is nowhere."""
    return next((place for place, card in enumerate(ranked, 1) if grades.get(card, 0) > 0), None)


def score_needs(
    run: Mapping[str, Sequence[str]], qrels: Mapping[str, Mapping[str, int]], k: int
) -> dict[str, dict[str, float]]:
    """Need → measure → value, for every need of `qrels`, in its order; 0 for a need that the run does not have.

    run: need → card ids, best first, each once. Raises RosterError when ir-measures is not installed.
    """
    ir_measures = _ir_measures()
    named = {
        ir_measures.nDCG(dcg="log2") @ k: f"ndcg@{k}",
        ir_measures.R @ k: f"recall@{k}",
        ir_measures.Success @ 1: "hit@1",
        ir_measures.Success @ k: f"hit@{k}",
        ir_measures.RR: "mrr",
    }
    out = {need: dict.fromkeys(measure_names(k), 0.0) for need in qrels}
    for needs in _batched(qrels, _AT_ONCE):
        # Places for scores: ir-measures, as trec_eval, breaks ties by document id, and a ranking has none.
        places = {need: {card: -float(place) for place, card in enumerate(run.get(need, ()))} for need in needs}
        judged = {need: dict(qrels[need]) for need in needs}
        for found in ir_measures.iter_calc(list(named), judged, {n: cards for n, cards in places.items() if cards}):
            out[found.query_id][named[found.measure]] = float(found.value)
        for need in needs:
            out[need][f"all@{k}"] = all_needed(run.get(need, ()), qrels[need], k)
    return out


def _batched(items: Iterable[str], size: int) -> Iterable[list[str]]:
    rest = iter(items)
    while batch := list(itertools.islice(rest, size)):
        yield batch


def _ir_measures() -> Any:
    try:
        import ir_measures
    except ImportError as error:
        raise RosterError(f"`roster eval` needs ir-measures ({error}): pip install ir-measures") from error
    return ir_measures
