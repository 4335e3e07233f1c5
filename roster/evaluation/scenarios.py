"""Scenarios: each a stream of outcomes that a need set is taught, and what becomes of its test needs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from roster.evaluation.bootstrap import Floats, interval, resampled_means
from roster.evaluation.comparison import Progress
from roster.evaluation.needsets import Need
from roster.evaluation.stage import Happened, Scores, Stage
from roster.evaluation.streams import by_card, generator, mislabelled, right_ones, shuffled
from roster.learning import Learner

__all__ = [
    "BACKGROUND",
    "PER_CARD",
    "Replay",
    "boilerplate",
    "curve",
    "drift",
    "failures",
    "harm",
    "noise",
]

PER_CARD = (1, 2, 4, 8)
NOISE = (0.1, 0.3)
BACKGROUND = 2_500
"""Outcomes of everyday use, where a scenario is about something else."""
BOILERPLATE = "In my production subscription, using the available tools, please do the following: "
ADDITION = "Changed in version 2: takes the same arguments and answers in another format."


@dataclass(frozen=True, slots=True)
class Replay:
    """One need set about to be taught. test: every test need; few: those that most scenarios look at.

    most: outcomes at most, in all; None: as many as there are.
    """

    name: str
    stage: Stage
    train: Sequence[Need]
    test: Sequence[Need]
    few: Sequence[Need]
    seed: int
    most: int | None
    progress: Progress

    def rng(self, scenario: str) -> np.random.Generator:
        """Chance of this set and scenario."""
        return generator(self.seed, self.name, scenario)

    def told(self, what: str) -> Any:
        """Progress under a label of this set."""
        return partial(self.progress, f"{self.name}: {what}")

    def everyday(self, most: int | None = None) -> list[Happened]:
        """The right outcomes of all train needs, in the order they came; at most so many, and then by chance."""
        caps = [cap for cap in (most, self.most) if cap is not None]
        return right_ones(self.drawn(self.train) if caps else self.train, most=min(caps, default=None))

    def drawn(self, needs: Sequence[Need]) -> list[Need]:
        """The needs in an order of chance. A set's own order may go card by card, and its beginning is no sample."""
        return [needs[at] for at in self.rng("drawn").permutation(len(needs)).tolist()]

    @property
    def measures(self) -> tuple[str, ...]:
        """Reported ones, the main one first."""
        return (f"ndcg@{self.stage.k}", "hit@1", f"hit@{self.stage.k}")

    def compared(self, scores: Mapping[str, Scores]) -> tuple[dict[str, Any], Floats]:
        """System → measure → mean and interval, with the paired difference from the first; and the resampled means.

        Resampled: (resamples, systems) of the main measure.
        """
        names = list(scores)
        needs = list(scores[names[0]])
        values = np.array([[scores[s][need][m] for s in names for m in self.measures] for need in needs])
        means, point = resampled_means(values, self.seed, self.name), values.mean(axis=0)
        wide = len(self.measures)
        out: dict[str, Any] = {}
        for place, name in enumerate(names):
            out[name] = {}
            for offset, measure in enumerate(self.measures):
                column = place * wide + offset
                cell: dict[str, Any] = interval(point[column], means[:, column]).wire()
                if place:
                    apart = means[:, column] - means[:, offset]
                    cell["difference"] = interval(point[column] - point[offset], apart).wire()
                out[name][measure] = cell
        return out, means[:, ::wide]


def _weights(learner: Learner) -> dict[str, Any]:
    found = learner.figures()
    return {**found["weights"], "gain": found["gain"]}


def harm(replay: Replay) -> tuple[dict[str, Any], Floats]:
    """Every test need after all outcomes, after as many with noise, and under the published method, against no outcome.

    Also gives (resamples, systems) means of the main measure, for the mean over sets.
    """
    stage, outcomes = replay.stage, replay.everyday()
    stage.look((outcome.need for outcome in outcomes), replay.told("train needs without learning"))
    noisy = mislabelled(outcomes, 0.3, stage.train, lambda need: stage.seen(need).first, replay.rng("noise 0.3"))
    scores = {"base": stage.score(replay.test, told=replay.told("test needs without learning"))}
    began = time.perf_counter()
    learner = stage.taught(outcomes)
    took = time.perf_counter() - began
    scores["learned"] = stage.score(replay.test, learner, replay.told("test needs after all outcomes"))
    clean = _weights(learner)
    learner = stage.taught(noisy)
    scores["learned, 30 % noise"] = stage.score(replay.test, learner, replay.told("test needs after 30 % noise"))
    with stage.centroids(outcomes) as moved:
        scores["single centroid"] = stage.score(replay.test, told=replay.told("test needs, single centroid"))
    with stage.centroids(noisy):
        scores["single centroid, 30 % noise"] = stage.score(
            replay.test, told=replay.told("test needs, single centroid, 30 % noise")
        )
    systems, means = replay.compared(scores)
    return {
        "needs": len(replay.test),
        "outcomes": len(outcomes),
        "settle_s": round(took, 2),
        "moved": moved,
        "weights": {"learned": clean, "learned, 30 % noise": _weights(learner)},
        "systems": systems,
    }, means


def curve(replay: Replay) -> dict[str, Any]:
    """The learning curve by outcomes a card, beside the published method."""
    stage, rng = replay.stage, replay.rng("curve")
    order = [stage.train[need] for need in shuffled([need.id for need in replay.train], rng)]
    scores = {"base": stage.score(replay.few, told=replay.told("curve, no outcome"))}
    steps: list[dict[str, Any]] = []
    for count in (*PER_CARD, None):
        label = "all" if count is None else str(count)
        outcomes = right_ones(order, count, replay.most)
        learner = stage.taught(outcomes)
        scores[f"learned {label}"] = stage.score(replay.few, learner, replay.told(f"curve, outcomes a card: {label}"))
        with stage.centroids(outcomes) as moved:
            scores[f"single centroid {label}"] = stage.score(replay.few)
        steps.append({"per_card": count, "outcomes": len(outcomes), "moved": moved, "weights": _weights(learner)})
    systems, _ = replay.compared(scores)
    for step, count in zip(steps, (*PER_CARD, None), strict=True):
        label = "all" if count is None else str(count)
        step["systems"] = {name: systems[f"{name} {label}"] for name in ("learned", "single centroid")}
    return {"needs": len(replay.few), "base": systems["base"], "steps": steps}


def noise(replay: Replay) -> dict[str, Any]:
    """All outcomes, a growing share of them told of a card that only came near."""
    stage, outcomes = replay.stage, replay.everyday()
    scores = {"base": stage.score(replay.few, told=replay.told("noise, no outcome"))}
    weights = {}
    for share in (0.0, *NOISE):
        rng = replay.rng(f"noise {share:g}")
        told = mislabelled(outcomes, share, stage.train, lambda need: stage.seen(need).first, rng)
        learner = stage.taught(told)
        scores[f"{share:g}"] = stage.score(replay.few, learner, replay.told(f"noise, {share:.0%}"))
        weights[f"{share:g}"] = _weights(learner)
        with stage.centroids(told):
            scores[f"single centroid {share:g}"] = stage.score(replay.few)
    systems, _ = replay.compared(scores)
    shares = [
        {
            "share": share,
            "weights": weights[f"{share:g}"],
            "systems": {"learned": systems[f"{share:g}"], "single centroid": systems[f"single centroid {share:g}"]},
        }
        for share in (0.0, *NOISE)
    ]
    return {"needs": len(replay.few), "outcomes": len(outcomes), "base": systems["base"], "shares": shares}


def failures(replay: Replay) -> dict[str, Any]:
    """Nothing ever succeeds: what came first for a train need, and was wrong, fails."""
    stage = replay.stage
    needs = [need.id for need in replay.train[: replay.most]]
    stage.look(needs, replay.told("train needs without learning"))
    outcomes = []
    for need in needs:
        seen = stage.seen(need)
        if seen.first and not seen.unmet and seen.first[0] not in stage.train[need].grades:
            outcomes.append(Happened(need, seen.first[0], success=False))
    scores = {"base": stage.score(replay.few, told=replay.told("failures, no outcome"))}
    learner = stage.taught(outcomes)
    scores["learned"] = stage.score(replay.few, learner, replay.told("failures only"))
    systems, _ = replay.compared(scores)
    return {"needs": len(replay.few), "outcomes": len(outcomes), "systems": systems}


def boilerplate(replay: Replay) -> dict[str, Any]:
    """The same sentence in front of every need, before and after."""
    train = [replace(need, text=BOILERPLATE + need.text) for need in replay.train]
    test = [replace(need, text=BOILERPLATE + need.text) for need in replay.few]
    outcomes = right_ones(replay.drawn(train), most=min(BACKGROUND, replay.most or BACKGROUND))
    stage = replay.stage.with_train(train)
    stage.look((outcome.need for outcome in outcomes), replay.told("boilerplate, train needs"))
    scores = {"base": stage.score(test, told=replay.told("boilerplate, no outcome"))}
    learner = stage.taught(outcomes)
    scores["learned"] = stage.score(test, learner, replay.told("boilerplate, after all outcomes"))
    with stage.centroids(outcomes):
        scores["single centroid"] = stage.score(test)
    systems, _ = replay.compared(scores)
    return {"needs": len(test), "outcomes": len(outcomes), "weights": _weights(learner), "systems": systems}


def drift(replay: Replay) -> dict[str, Any]:
    """After the outcomes half of the cards they tell of change: the evidence of these is gone, that of others stays.

    Leaves changed cards behind: the last scenario of a home.
    """
    stage, outcomes = replay.stage, replay.everyday(BACKGROUND)
    rated = sorted({outcome.card for outcome in outcomes})
    changed = set(shuffled(rated, replay.rng("drift"))[: len(rated) // 2])
    kept = set(rated) - changed
    of = {
        "changed": [need for need in replay.few if need.grades.keys() <= changed],
        "kept": [need for need in replay.few if need.grades.keys() <= kept],
    }
    learner = stage.taught(outcomes)
    before = {part: stage.score(needs) for part, needs in of.items()}
    learned = {part: stage.score(needs, learner, replay.told("drift, before")) for part, needs in of.items()}
    stage.change(changed, ADDITION)
    base = {part: stage.score(needs) for part, needs in of.items()}
    after = {part: stage.score(needs, learner, replay.told("drift, after")) for part, needs in of.items()}
    numbers = {part: [stage.entries()[card].number for card in cards] for part, cards in
               (("changed", changed), ("kept", kept))}  # fmt: skip
    out: dict[str, Any] = {"outcomes": len(outcomes)}
    for part, cards in numbers.items():
        known = evidence_of(learner, stage, cards)
        found: dict[str, Any] = {"cards": len(cards), "needs": len(of[part]), "evidence": known}
        if of[part]:
            found["before"] = replay.compared({"base": before[part], "learned": learned[part]})[0]
            found["after"] = replay.compared({"base": base[part], "learned": after[part]})[0]
        out[part] = found
    return out


def evidence_of(learner: Learner, stage: Stage, cards: Sequence[int]) -> int:
    """Of how many of these cards something is still known."""
    need = stage.encoder.encode_needs([next(iter(stage.train.values())).text])[0]
    return len(learner.ask(need, cards).evidence)


def needs_by_card(replay: Replay) -> tuple[dict[str, list[str]], dict[str, list[Need]]]:
    """Card → its train needs, and card → its test needs."""
    test = {need.id: need for need in replay.test}
    return by_card(replay.train), {card: [test[id_] for id_ in ids] for card, ids in by_card(replay.test).items()}
