"""Need sets × scenarios → one document of figures. What `roster eval replay` runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from roster.encoder import open_encoder
from roster.evaluation import attacks, scenarios
from roster.evaluation.bootstrap import CONFIDENCE, RESAMPLES, Floats, interval
from roster.evaluation.comparison import Progress, check_names, checkout_commit, versions_of
from roster.evaluation.homes import open_filled, open_scratch
from roster.evaluation.needsets import Need, NeedSet, read_needset
from roster.evaluation.scenarios import Replay
from roster.evaluation.stage import ALPHA, BETA, ENOUGH, ROUNDS, Remembered, Stage
from roster.evaluation.streams import generator, shuffled
from roster.evaluation.teaching import TEACHING

__all__ = ["SCENARIOS", "Lesson", "ReplayPlan", "read_lesson", "replay"]

FORMAT = 1

_ALONE: Mapping[str, Callable[[Replay], dict[str, Any]]] = {
    "curve": scenarios.curve,
    "noise": scenarios.noise,
    "failures": scenarios.failures,
    "poison": attacks.poison,
    "modes": attacks.modes,
    "boilerplate": scenarios.boilerplate,
    "drift": scenarios.drift,  # changes cards, so it is the last one of a home
}
SCENARIOS: Mapping[str, str] = {
    "harm": "all test needs after all outcomes, clean and with 30 % noise, against no outcome",
    "curve": "the learning curve by outcomes a card: 1, 2, 4, 8, all",
    "noise": "all outcomes, 10 and 30 % of them told of a wrong card",
    "failures": "what came first and was wrong fails; nothing succeeds",
    "poison": "wrong successes on the needs of one card, then right ones",
    "modes": "one card serves the needs of two",
    "duplicates": "a tool that works six times in ten beside an equal one that nearly always does",
    "boilerplate": "the same sentence in front of every need",
    "drift": "half of the cards change after the outcomes",
}


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What to replay. limit: test needs a set at most, but for `harm`; most: outcomes at most."""

    scenarios: Sequence[str]
    k: int
    seed: int
    cache: Path
    limit: int | None = None
    most: int | None = None
    model: str | None = None
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Lesson:
    """A need set's two splits: what is taught, and what is asked afterwards."""

    train: NeedSet
    test: NeedSet


def read_lesson(folder: Path) -> Lesson:
    """Both splits of a folder. Raises NeedSetError."""
    return Lesson(read_needset(folder, TEACHING), read_needset(folder))


def replay(lessons: Sequence[Lesson], plan: ReplayPlan, progress: Progress) -> dict[str, Any]:
    """The figures of every set under every scenario of the plan. Raises RosterError; nothing is half reported."""
    check_names([lesson.test for lesson in lessons])
    opened = open_encoder(plan.model, plan.threads)
    encoder = Remembered(opened)
    sets: dict[str, Any] = {}
    resampled: list[Floats] = []
    for lesson in lessons:
        found, means = _one_set(lesson, encoder, plan, progress)
        sets[lesson.test.name] = found
        resampled += means
    return {
        "format": FORMAT,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "k": plan.k,
        "seed": plan.seed,
        "limit": plan.limit,
        "outcomes": plan.most,
        "resamples": RESAMPLES,
        "confidence": CONFIDENCE,
        "scenarios": [name for name in SCENARIOS if name in plan.scenarios],
        "encoder": {"name": opened.name, "fingerprint": opened.fingerprint},
        "single_centroid": {"alpha": ALPHA, "beta": BETA, "rounds": ROUNDS, "positives": ENOUGH},
        "commit": checkout_commit(),
        "versions": versions_of({plan.model: opened}),
        "mean": _mean([found["harm"] for found in sets.values()], resampled, plan.k) if resampled else None,
        "pooled": {"poison": attacks.pooled_poison([found.get("poison", {}) for found in sets.values()])},
        "sets": sets,
    }


def _one_set(
    lesson: Lesson, encoder: Remembered, plan: ReplayPlan, progress: Progress
) -> tuple[dict[str, Any], list[Floats]]:
    begun = time.perf_counter()
    name = lesson.test.name
    on_card = partial(progress, f"{name}: embedding, {encoder.name}")
    found: dict[str, Any] = {
        "digests": {needset.split: needset.digest for needset in (lesson.train, lesson.test)},
        "cards": len(lesson.test.cards),
        "needs": {needset.split: len(needset.needs) for needset in (lesson.train, lesson.test)},
    }
    means: list[Floats] = []
    with open_filled(lesson.test, encoder, plan.cache, on_card):
        pass  # the vectors are kept there; outcomes never are
    with open_scratch(lesson.test, encoder, plan.cache) as filled:
        stage = Stage(filled, lesson.train.needs, plan.k)
        test = lesson.test.needs
        one = Replay(name, stage, lesson.train.needs, test, _few(test, plan, name), plan.seed, plan.most, progress)
        if "harm" in plan.scenarios:
            found["harm"], resampled = scenarios.harm(one)
            means.append(resampled)
        for scenario, run in _ALONE.items():
            if scenario in plan.scenarios:
                found[scenario] = run(one)
        doubled = attacks.to_double(one) if "duplicates" in plan.scenarios else []
    if "duplicates" in plan.scenarios:
        with open_scratch(attacks.doubled(lesson.test, doubled), encoder, plan.cache) as filled:
            found["duplicates"] = attacks.duplicates(one, Stage(filled, lesson.train.needs, plan.k), doubled)
    found["seconds"] = round(time.perf_counter() - begun, 2)
    return found, means


def _few(needs: Sequence[Need], plan: ReplayPlan, name: str) -> list[Need]:
    """At most `limit` of the needs, by chance, in their own order."""
    if plan.limit is None or len(needs) <= plan.limit:
        return list(needs)
    chosen = set(shuffled([need.id for need in needs], generator(plan.seed, name, "limit"))[: plan.limit])
    return [need for need in needs if need.id in chosen]


def _mean(found: Sequence[Mapping[str, Any]], resampled: Sequence[Floats], k: int) -> dict[str, Any]:
    """System → the main measure's mean over the sets, each counting the same, with interval and paired difference."""
    main, means = f"ndcg@{k}", np.mean(resampled, axis=0)
    names = list(found[0]["systems"])
    point = [float(np.mean([each["systems"][name][main]["mean"] for each in found])) for name in names]
    out: dict[str, Any] = {}
    for place, name in enumerate(names):
        cell: dict[str, Any] = interval(point[place], means[:, place]).wire()
        if place:
            cell["difference"] = interval(point[place] - point[0], means[:, place] - means[:, 0]).wire()
        out[name] = {main: cell}
    return out
