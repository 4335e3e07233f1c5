"""What goes wrong in use: wrong successes, a card that serves two kinds of need, a tool that often fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from roster.evaluation.needsets import NeedSet
from roster.evaluation.scenarios import BACKGROUND, Replay, needs_by_card
from roster.evaluation.stage import Happened, Run, Stage
from roster.evaluation.streams import right_ones, shuffled
from roster.learning import Learner

__all__ = ["above", "displaced", "doubled", "duplicates", "modes", "poison", "pooled_poison", "to_double"]

FAMILIES = 25
WRONG = (1, 2, 4, 8)
"""Wrong successes on one card's needs."""
WRONG_AND_MENDED = 4
RIGHT = 4
"""Right successes that follow `WRONG_AND_MENDED` wrong ones."""
ATTACKERS = ("near", "far")
COUNTED = ("families", "needs", "led", "displaced", "shown", "left")
NEAR = 5
TEST_NEEDS = 20
"""Of a family at most, by chance: the large ones would cost the most and count no more."""
PAIRS = 25
DUPLICATES = 40
CALLS = 10
UNRELIABLE, RELIABLE = 0.6, 0.95
FAILED, WORKED = 51, 3
DUPLICATE = "duplicate of "


def above(ranked: Sequence[str], one: str, other: str) -> bool:
    """Whether one card stands above another; a card that is not there stands below every one that is."""
    return one in ranked and (other not in ranked or ranked.index(one) < ranked.index(other))


def displaced(before: Run, after: Run, right: str, wrong: str, k: int) -> dict[str, int]:
    """Of a family's needs: where the right card stood above the wrong one (`led`), where it no longer does, where it
    was among the first k, and where it no longer is."""
    led = [need for need, ranked in before.items() if above(ranked, right, wrong)]
    shown = [need for need, ranked in before.items() if right in ranked[:k]]
    return {
        "needs": len(before),
        "led": len(led),
        "displaced": sum(not above(after[need], right, wrong) for need in led),
        "shown": len(shown),
        "left": sum(right not in after[need][:k] for need in shown),
    }


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sums of counts, key by key."""
    out: dict[str, int] = {}
    for each in counts:
        for key, count in each.items():
            out[key] = out.get(key, 0) + count
    return out


def share(part: int, whole: int) -> float | None:
    """A rounded share; None of nothing."""
    return round(part / whole, 6) if whole else None


class _Everyday:
    """The outcomes of all other needs, and the weights that all of them together earned, kept for every learner."""

    def __init__(self, replay: Replay) -> None:
        self._stage = replay.stage
        needs = shuffled([need.id for need in replay.train], replay.rng("everyday"))
        order = [replay.stage.train[need] for need in needs]
        self._outcomes = right_ones(order, most=min(BACKGROUND, replay.most or BACKGROUND))
        self._earned = replay.stage.taught(self._outcomes, replay.told("everyday outcomes"))

    def without(self, needs: Iterable[str], cards: Iterable[str] = ()) -> Learner:
        """Write everything but what is told of these needs and cards, and give a learner of it."""
        gone, absent = set(needs), set(cards)
        self._stage.write([o for o in self._outcomes if o.need not in gone and o.card not in absent])
        self._stage.keep(self._earned)
        learner = self._stage.learner()
        learner.refresh()
        return learner


def poison(replay: Replay) -> dict[str, Any]:
    """Wrong successes on the needs of one card, told of a near or a far one; then right ones.

    No other outcome of these needs is known: nothing stands against the wrong ones but what the card says of itself.
    """
    stage, rng = replay.stage, replay.rng("poison")
    train, test = needs_by_card(replay)
    fit = [card for card in sorted(train) if len(train[card]) >= 2 * WRONG_AND_MENDED and len(test.get(card, ())) >= 3]
    families = shuffled(fit, rng)[:FAMILIES]
    if not families:
        return {"families": 0, "attackers": {}}
    everyday = _Everyday(replay)
    everybody = sorted(stage.entries())
    told = replay.told("poisoned families")
    counts: dict[str, dict[int, list[dict[str, int]]]] = {who: {m: [] for m in WRONG} for who in ATTACKERS}
    mended: dict[str, list[dict[str, int]]] = {who: [] for who in ATTACKERS}
    for done, card in enumerate(families, 1):
        needs = shuffled(train[card], rng)
        asked = [test[card][at] for at in rng.permutation(len(test[card]))[:TEST_NEEDS]]
        serving = {c for need in needs[:1] for c in stage.train[need].grades} | {card}
        near = [c for c in stage.seen(needs[0]).first[:NEAR] if c not in serving]
        far = [c for c in everybody if c not in {*stage.seen(needs[0]).first[:NEAR], *serving}]
        for who, pool in zip(ATTACKERS, (near, far), strict=True):
            if not pool:
                continue
            wrong = pool[int(rng.integers(len(pool)))]
            # Of the right card nothing is known; of the wrong one what it did for its own needs.
            learner = everyday.without(needs, [card])
            before = stage.rank(asked, learner)
            taken = 0
            for m in [m for m in WRONG if 2 * m <= len(needs)]:
                stage.write_more([Happened(need, wrong) for need in needs[taken:m]])
                taken = m
                counts[who][m].append(displaced(before, stage.rank(asked, learner), card, wrong, replay.stage.k))
            learner = everyday.without(needs, [card])
            stage.write_more([Happened(need, wrong) for need in needs[:WRONG_AND_MENDED]])
            stage.write_more([Happened(need, card) for need in needs[WRONG_AND_MENDED : WRONG_AND_MENDED + RIGHT]])
            mended[who].append(displaced(before, stage.rank(asked, learner), card, wrong, replay.stage.k))
        told(done, len(families))
    return {"families": len(families), "attackers": {who: _poisoned(counts[who], mended[who]) for who in ATTACKERS}}


def _poisoned(counts: Mapping[int, Sequence[Mapping[str, int]]], mended: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    by_wrong = {m: {"families": len(found), **added(found)} for m, found in counts.items() if found}
    return _with_shares(by_wrong, {"families": len(mended), **added(mended)} if mended else None)


def pooled_poison(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Attacker → the counts of all sets in one, and their shares; attackers that had nothing to attack are left out."""
    out = {}
    for who in ATTACKERS:
        there = [each["attackers"][who] for each in found if each.get("families")]
        by_wrong: dict[int, list[dict[str, int]]] = {}
        for counts in there:
            for each in counts["wrong"]:
                by_wrong.setdefault(each["wrong"], []).append({key: each[key] for key in COUNTED})
        mended = [{key: each["recovered"][key] for key in COUNTED} for each in there if each["recovered"]]
        if by_wrong:
            out[who] = _with_shares({m: added(each) for m, each in by_wrong.items()}, added(mended) or None)
    return out


def _with_shares(by_wrong: Mapping[int, dict[str, int]], mended: dict[str, int] | None) -> dict[str, Any]:
    recovered: dict[str, Any] | None = None
    if mended is not None:
        lost = by_wrong.get(WRONG_AND_MENDED, {}).get("displaced", 0)
        restored = round(1 - mended["displaced"] / lost, 6) if lost else None
        counts = {"wrong": WRONG_AND_MENDED, "right": RIGHT, **mended}
        recovered = {**counts, **_shares(mended), "restored_share": restored}
    return {"wrong": [{"wrong": m, **c, **_shares(c)} for m, c in sorted(by_wrong.items())], "recovered": recovered}


def _shares(found: Mapping[str, int]) -> dict[str, float | None]:
    return {
        "displaced_share": share(found["displaced"], found["needs"]),
        "left_share": share(found["left"], found["needs"]),
    }


def modes(replay: Replay) -> dict[str, Any]:
    """One card serves the needs of two: its own kind and another's. Does it come first for both?"""
    stage, rng = replay.stage, replay.rng("modes")
    train, test = needs_by_card(replay)
    fit = [card for card in sorted(train) if len(train[card]) >= 4 and len(test.get(card, ())) >= 2]
    order = shuffled(fit, rng)
    pairs = list(zip(order[::2], order[1::2], strict=False))[:PAIRS]
    if not pairs:
        return {"pairs": 0}
    everyday = _Everyday(replay)
    told = replay.told("cards of two kinds of need")
    values: dict[tuple[str, str], list[list[float]]] = {}
    asked_of = {"own": 0, "other": 0}
    for done, (one, other) in enumerate(pairs, 1):
        taught = list(dict.fromkeys([*train[one], *train[other]]))
        outcomes = [Happened(need, one) for need in taught]
        asked = {}
        for part, card in (("own", one), ("other", other)):
            some = (test[card][at] for at in rng.permutation(len(test[card]))[:TEST_NEEDS])
            asked[part] = [replace(need, grades={one: 1}) for need in some if part == "own" or one not in need.grades]
        both = {need.id: need for needs in asked.values() for need in needs}
        learner = everyday.without(taught, [one, other])
        scores = {"base": stage.score([*both.values()])}
        stage.write_more(outcomes)
        learner.settle(always=True)
        scores["learned"] = stage.score([*both.values()], learner)
        with stage.centroids(outcomes):
            scores["single centroid"] = stage.score([*both.values()])
        for part, needs in asked.items():
            asked_of[part] += len(needs)
            for system, found in scores.items():
                values.setdefault((part, system), []).extend([found[n.id][m] for m in replay.measures] for n in needs)
        told(done, len(pairs))
    out: dict[str, Any] = {"pairs": len(pairs)}
    for part, count in asked_of.items():
        means = {system: np.mean(rows, axis=0) for (of, system), rows in values.items() if of == part and rows}
        out[part] = {
            "needs": count,
            "systems": {
                system: {m: round(float(v), 6) for m, v in zip(replay.measures, mean, strict=True)}
                for system, mean in means.items()
            },
        }
    return out


def doubled(needset: NeedSet, cards: Sequence[str]) -> NeedSet:
    """The need set with a second one of these cards each: the same definition, on a server of its own."""
    by_id = {row["_id"]: row for row in needset.cards}
    more = [{**by_id[card], "_id": DUPLICATE + card} for card in cards]
    return replace(needset, cards=(*needset.cards, *more))


def to_double(replay: Replay) -> list[str]:
    """The cards that a reliable duplicate is put beside: some with needs to learn from and needs to ask."""
    train, test = needs_by_card(replay)
    fit = [card for card in sorted(train) if len(train[card]) >= 2 and test.get(card)]
    return shuffled(fit, replay.rng("duplicates"))[:DUPLICATES]


def duplicates(replay: Replay, stage: Stage, cards: Sequence[str]) -> dict[str, Any]:
    """Two equal cards, one that works six times in ten and one that nearly always does: which stands above?

    stage: of the set `doubled` by these cards. The one that comes first without any outcome is the unreliable one.
    """
    rng = replay.rng("outcomes of duplicates")
    train, test = needs_by_card(replay)
    told = replay.told("duplicates")
    runs, won, unlucky, asked_of, put_above, failing_above, first = 0, 0, 0, 0, 0, 0, 0
    for done, card in enumerate(cards, 1):
        asked = [test[card][at] for at in rng.permutation(len(test[card]))[:TEST_NEEDS]]
        pair = (card, DUPLICATE + card)
        base = stage.rank(asked)
        leads = sum(above(base[need.id], *pair) for need in asked)
        unreliable, reliable = pair if 2 * leads >= len(asked) else pair[::-1]
        there = [need for need in asked if {*pair} & {*base[need.id]}]
        if not there:
            continue
        needs = shuffled(train[card], rng)
        calls = [(needs[at % len(needs)], at // len(needs)) for at in range(CALLS)]
        chances = rng.random((CALLS, 2)) < (UNRELIABLE, RELIABLE)
        outcomes = []
        for (need, again), (one, other) in zip(calls, chances.tolist(), strict=True):
            outcomes.append(Happened(need, unreliable, one, 2 * again))
            outcomes.append(Happened(need, reliable, other, 2 * again + 1))
        unlucky += bool(chances[:, 0].sum() >= chances[:, 1].sum())
        ranked = stage.rank(there, stage.taught(outcomes))
        ahead = sum(above(ranked[need.id], reliable, unreliable) for need in there)
        runs, asked_of, put_above = runs + 1, asked_of + len(there), put_above + ahead
        won += 2 * ahead > len(there)
        first += sum(above(base[need.id], unreliable, reliable) for need in there)
        failed = [Happened(needs[at % len(needs)], unreliable, False, at // len(needs)) for at in range(FAILED)]
        worked = [Happened(needs[at % len(needs)], reliable, True, FAILED + at // len(needs)) for at in range(WORKED)]
        ranked = stage.rank(there, stage.taught([*failed, *worked]))
        failing_above += sum(above(ranked[need.id], unreliable, reliable) for need in there)
        told(done, len(cards))
    return {
        "runs": runs,
        "calls_each": CALLS,
        "success": {"unreliable": UNRELIABLE, "reliable": RELIABLE},
        "runs_won": won,
        "runs_won_share": share(won, runs),
        "needs": asked_of,
        "needs_won": put_above,
        "needs_won_share": share(put_above, asked_of),
        "needs_unreliable_first_before": first,
        "runs_reversed_by_chance": unlucky,
        "failing": {"failed": FAILED, "worked_of_the_other": WORKED, "needs": asked_of, "above": failing_above},
    }
