"""Need sets × systems → one document of figures, and one record a need. What `roster eval` runs."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import roster
from roster.encoder import Encoder, open_encoder
from roster.errors import NeedSetError
from roster.evaluation.bootstrap import CONFIDENCE, RESAMPLES, Floats, interval, resampled_means
from roster.evaluation.homes import open_filled
from roster.evaluation.measures import first_place, measure_names, score_needs
from roster.evaluation.needsets import Need, NeedSet
from roster.evaluation.rankings import RUN_DEPTH, Ranking, rank_needs, ranking_of_run
from roster.evaluation.systems import Order, System
from roster.evaluation.teaching import open_taught, teaching_needs
from roster.evaluation.tokens import Tokenizer, open_tokenizer
from roster.evaluation.trec import read_run

__all__ = ["Evaluation", "Plan", "Progress", "check_names", "checkout_commit", "evaluate", "versions_of"]

FORMAT = 1
GROUPS = ("style", "lang")

Rankings = dict[str, dict[str, Ranking]]
Record = dict[str, Any]


Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and of how much."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to evaluate. runs: system name → pattern of a TREC run file, `{set}` standing for the set's name."""

    systems: Sequence[System]
    k: int
    seed: int
    cache: Path
    runs: Mapping[str, str]
    threads: int = 1

    @property
    def names(self) -> list[str]:
        """Every system, the baseline first."""
        return [*(system.name for system in self.systems), *self.runs]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """figures: the document `--json` prints. records: set → need → what every system made of it."""

    figures: dict[str, Any]
    records: dict[str, dict[str, Record]]

    def document(self) -> dict[str, Any]:
        """Figures and records as one."""
        return {**self.figures, "results": self.records}


def evaluate(
    needsets: Sequence[NeedSet],
    plan: Plan,
    progress: Progress,
    on_rankings: Callable[[NeedSet, Rankings], None] = lambda *_: None,
) -> Evaluation:
    """Figures and per-need records of every set under every system.

    on_rankings: given each set's rankings, which are not kept. Raises RosterError; nothing is half reported.
    """
    check_names(needsets)
    tokenizer = open_tokenizer()
    encoders: dict[str | None, Encoder] = {}
    for model in dict.fromkeys(s.model for s in plan.systems if s.order is not Order.LEXICAL):
        encoders[model] = open_encoder(model, plan.threads)
    # Read before the first need is ranked, so that a broken file costs no minutes.
    runs = {
        (needset.name, name): read_run(Path(pattern.replace("{set}", needset.name)), needset)
        for needset in needsets
        for name, pattern in plan.runs.items()
    }
    teaching = {}
    if any(system.order is Order.LEARNED for system in plan.systems):
        teaching = {needset.name: teaching_needs(needset) for needset in needsets}
    sets: dict[str, Any] = {}
    records: dict[str, dict[str, Record]] = {}
    resampled: list[Floats] = []
    for needset in needsets:
        begun = time.perf_counter()
        rankings, embedding = _rank(needset, teaching.get(needset.name, ()), plan, encoders, tokenizer, progress)
        for name in plan.runs:
            rankings[name] = ranking_of_run(needset, runs[needset.name, name], plan.k, tokenizer)
        on_rankings(needset, rankings)
        scores = {
            name: score_needs(
                {need: ranking.cards for need, ranking in rankings[name].items()},
                {need.id: need.grades for need in needset.needs},
                plan.k,
            )
            for name in plan.names
        }
        means = resampled_means(_matrix(needset, scores, plan), plan.seed, needset.name)
        resampled.append(means)
        records[needset.name] = {need.id: _record(need, rankings, scores, plan) for need in needset.needs}
        sets[needset.name] = {
            "digest": needset.digest,
            "cards": len(needset.cards),
            "needs": len(needset.needs),
            "skipped": needset.skipped,
            **embedding,
            "seconds": round(time.perf_counter() - begun, 2),
            "systems": _figures(needset, rankings, scores, means, encoders, plan),
            "groups": _groups(needset, scores, plan),
        }
    overall = np.mean(resampled, axis=0)
    point = np.mean([_points(sets[needset.name], plan) for needset in needsets], axis=0)
    figures = {
        "format": FORMAT,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "k": plan.k,
        "split": needsets[0].split,
        "seed": plan.seed,
        "resamples": RESAMPLES,
        "confidence": CONFIDENCE,
        "run_depth": RUN_DEPTH,
        "systems": plan.names,
        "baseline": plan.names[0],
        "measures": measure_names(plan.k),
        "tokenizer": tokenizer.name,
        "commit": checkout_commit(),
        "versions": versions_of(encoders),
        "mean": {name: {"measures": m} for name, m in _intervals(point, overall, plan).items()},
        "sets": sets,
    }
    return Evaluation(figures, records)


def check_names(needsets: Sequence[NeedSet]) -> None:
    """Raise NeedSetError when two of the sets have one name."""
    seen: dict[str, Path] = {}
    for needset in needsets:
        if needset.name in seen:
            raise NeedSetError(
                f"{needset.folder} and {seen[needset.name]} are both named {needset.name!r}: rename one of the folders"
            )
        seen[needset.name] = needset.folder


# ------------------------------------------------------------------------------------------------ ranking


def _rank(
    needset: NeedSet,
    teaching: Sequence[Need],
    plan: Plan,
    encoders: Mapping[str | None, Encoder],
    tokenizer: Tokenizer,
    progress: Progress,
) -> tuple[Rankings, dict[str, Any]]:
    """Every named system's rankings, and how many texts had to be embedded for them."""
    rankings: Rankings = {}
    embedded, embed_s = 0, 0.0
    for model, systems in _passes(plan.systems, encoders):
        encoder = encoders.get(model)
        by = encoder.name if encoder else "words alone"
        on_card = partial(progress, f"{needset.name}: embedding, {by}")
        on_need = partial(progress, f"{needset.name}: drafting, {by}")
        untaught = [system for system in systems if system.order is not Order.LEARNED]
        taught = [system for system in systems if system.order is Order.LEARNED]
        if untaught:
            with open_filled(needset, encoder, plan.cache, on_card) as filled:
                embedded, embed_s = embedded + filled.embedded, embed_s + filled.embed_s
                rankings |= rank_needs(filled, needset.needs, untaught, plan.k, tokenizer, on_need)
        if taught and encoder is not None:
            on_lesson = partial(progress, f"{needset.name}: learning, {by}")
            on_need = partial(progress, f"{needset.name}: drafting after learning, {by}")
            with open_taught(needset, teaching, encoder, plan.cache, plan.k, on_card, on_lesson) as filled:
                embedded, embed_s = embedded + filled.embedded, embed_s + filled.embed_s
                rankings |= rank_needs(filled, needset.needs, taught, plan.k, tokenizer, on_need)
    return rankings, {"embedded": embedded, "embed_s": round(embed_s, 2)}


def _passes(
    systems: Sequence[System], encoders: Mapping[str | None, Encoder]
) -> Iterator[tuple[str | None, list[System]]]:
    """The systems by encoder, a pass each; words come along with the first encoder, or alone when there is none."""
    first = next(iter(encoders), None)
    by_model: dict[str | None, list[System]] = {}
    for system in systems:
        by_model.setdefault(first if system.order is Order.LEXICAL else system.model, []).append(system)
    yield from by_model.items()


# ------------------------------------------------------------------------------------------------ figures


def _matrix(needset: NeedSet, scores: Mapping[str, Any], plan: Plan) -> Floats:
    """(needs, systems × measures), systems outermost."""
    measures = measure_names(plan.k)
    return np.array([[scores[s][need.id][m] for s in plan.names for m in measures] for need in needset.needs])


def _points(figures: Mapping[str, Any], plan: Plan) -> Floats:
    return np.array([figures["systems"][s]["measures"][m]["mean"] for s in plan.names for m in measure_names(plan.k)])


def _intervals(point: Floats, means: Floats, plan: Plan) -> dict[str, dict[str, Any]]:
    """System → measure → its mean and interval, with the paired difference from the first system."""
    measures = measure_names(plan.k)
    out: dict[str, dict[str, Any]] = {}
    for place, name in enumerate(plan.names):
        out[name] = {}
        for offset, measure in enumerate(measures):
            column = place * len(measures) + offset
            found: dict[str, Any] = interval(point[column], means[:, column]).wire()
            if place:
                apart = interval(point[column] - point[offset], means[:, column] - means[:, offset])
                found["difference"] = apart.wire()
            out[name][measure] = found
    return out


def _figures(
    needset: NeedSet,
    rankings: Rankings,
    scores: Mapping[str, Mapping[str, Mapping[str, float]]],
    means: Floats,
    encoders: Mapping[str | None, Encoder],
    plan: Plan,
) -> dict[str, Any]:
    point = _matrix(needset, scores, plan).mean(axis=0)
    by_system = _intervals(point, means, plan)
    systems = {system.name: system for system in plan.systems}
    out = {}
    for name in plan.names:
        made = list(rankings[name].values())
        drafted = [len(ranking.drafted) for ranking in made]
        tokens = [ranking.tokens for ranking in made]
        latencies = [ranking.draft_ms for ranking in made if ranking.draft_ms is not None]
        system = systems.get(name)
        encoder = encoders[system.model] if system and system.order is not Order.LEXICAL else None
        out[name] = {
            "encoder": {"name": encoder.name, "fingerprint": encoder.fingerprint} if encoder else None,
            "run": plan.runs.get(name),
            "measures": by_system[name],
            "drafted": {
                "mean": round(statistics.fmean(drafted), 3),
                "fewer_than_k": sum(count < plan.k for count in drafted),
                "rated": sum(ranking.rated for ranking in made),
                "unmet": sum(ranking.unmet for ranking in made),
                "unmet_share": round(statistics.fmean(ranking.unmet for ranking in made), 6),
            },
            "tokens": _percentiles(tokens, ("mean", "p50", "p95")),
            "draft_ms": _percentiles(latencies, ("p50", "p95")) if latencies else None,
        }
    return out


def _percentiles(values: Sequence[float], wanted: Sequence[str]) -> dict[str, float]:
    found = np.array(values, dtype=float)
    known = {"mean": found.mean(), "p50": np.quantile(found, 0.5), "p95": np.quantile(found, 0.95)}
    return {key: round(float(known[key]), 2) for key in wanted}


def _groups(needset: NeedSet, scores: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """By style and by language, where the needs carry them: how many needs, and every system's means."""
    out: dict[str, Any] = {}
    for key in GROUPS:
        members: dict[str, list[str]] = {}
        for need in needset.needs:
            members.setdefault(getattr(need, key) or "(none)", []).append(need.id)
        if set(members) - {"(none)"}:
            out[key] = {
                value: {
                    "needs": len(ids),
                    "systems": {
                        name: {
                            m: round(statistics.fmean(scores[name][i][m] for i in ids), 6)
                            for m in measure_names(plan.k)
                        }
                        for name in plan.names
                    },
                }
                for value, ids in sorted(members.items())
            }
    return out


def _record(need: Need, rankings: Rankings, scores: Mapping[str, Any], plan: Plan) -> Record:
    """One need's results, as `results.json` has them."""
    record: Record = {"text": need.text, "wanted": dict(need.grades)}
    record |= {key: getattr(need, key) for key in GROUPS if getattr(need, key)}
    record["systems"] = {}
    for name in plan.names:
        ranking = rankings[name][need.id]
        record["systems"][name] = {
            **{measure: round(value, 6) for measure, value in scores[name][need.id].items()},
            "rank": first_place(ranking.cards, need.grades),
            "top": [[c, round(s, 6)] for c, s in zip(ranking.cards[: plan.k], ranking.scores, strict=False)],
            "drafted": list(ranking.drafted),
            "tokens": ranking.tokens,
            "draft_ms": None if ranking.draft_ms is None else round(ranking.draft_ms, 3),
        }
    return record


# ----------------------------------------------------------------------------------------- what made them


def versions_of(encoders: Mapping[str | None, Encoder]) -> dict[str, str]:
    """The versions of what figures depend on, and the kind of machine."""
    names = ["numpy", "faiss-cpu", "onnxruntime", "tokenizers", "ir-measures", "bpe-openai"]
    if any(type(encoder).__name__ == "SentenceTransformerEncoder" for encoder in encoders.values()):
        names += ["sentence-transformers", "transformers", "torch"]
    found = {"roster": roster.__version__, "python": platform.python_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found | {"machine": f"{platform.system()} {platform.machine()}"}


def checkout_commit() -> str | None:
    """The commit of the checkout Roster runs from, with `-dirty` when it was changed since; None outside of one."""
    root = Path(roster.__file__).parents[1]
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        return None
    command = [
        git,
        "--no-optional-locks",
        "-C",
        str(root),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
        "--exclude=*",
    ]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None
