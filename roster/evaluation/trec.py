"""Runs and qrels as TREC writes them, so that other tools can score ours and `roster eval` can score theirs.

A run line is `need Q0 card rank score tag`, a qrels line `need 0 card grade`. As in trec_eval a run is ordered by its
scores; of equal ones the order in the file decides. What we write has no equal ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from roster.errors import NeedSetError
from roster.evaluation.needsets import NeedSet
from roster.evaluation.rankings import Ranking

__all__ = ["file_stem", "read_run", "write_qrels", "write_run"]

_STEP = 1e-5
"""Scores are written at least this far apart: trec_eval reads them in single precision and breaks ties by card id."""


def file_stem(name: str) -> str:
    """A system's name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-")


def write_run(path: Path, rankings: Mapping[str, Ranking], tag: str) -> None:
    """Write a run, best card first, scores strictly falling. Raises NeedSetError for an id with a space."""
    with path.open("w", encoding="utf-8", newline="\n") as out:
        for need, ranking in rankings.items():
            below = math.inf
            for rank, (card, score) in enumerate(zip(ranking.cards, ranking.scores, strict=True), 1):
                below = min(score, below - _STEP)
                out.write(f"{_field(need)} Q0 {_field(card)} {rank} {below:.6f} {file_stem(tag)}\n")


def write_qrels(path: Path, needset: NeedSet) -> None:
    """Write the positive grades of a split. Raises NeedSetError for an id that the format cannot hold."""
    with path.open("w", encoding="utf-8", newline="\n") as out:
        for need in needset.needs:
            for card, grade in need.grades.items():
                out.write(f"{_field(need.id)} 0 {_field(card)} {grade}\n")


def _field(id_: str) -> str:
    if not id_ or re.search(r"\s", id_):
        raise NeedSetError(f"the id {id_!r} has a space, which a TREC file cannot hold: give it another `_id`")
    return id_


def read_run(path: Path, needset: NeedSet) -> dict[str, list[tuple[str, float]]]:
    """Need → (card, score), best first. Needs of other splits are passed over.

    Raises NeedSetError naming file and line.
    """
    cards, known = needset.card_ids(), {need.id for need in needset.needs}
    run: dict[str, dict[str, float]] = {}
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise NeedSetError(f"{path}: cannot be read ({error}): name a run in TREC format") from None
    for number, line in enumerate(text.split("\n"), 1):
        columns = line.split()
        if not columns:
            continue
        where = f"{path}, line {number}"
        if len(columns) != 6:
            raise NeedSetError(f"{where}: {len(columns)} columns: a run line is `need Q0 card rank score tag`")
        need, _, card, _, written, _ = columns
        try:
            score = float(written)
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise NeedSetError(f"{where}: the score is {written!r}: write a number")
        if need not in known:
            continue
        if card not in cards:
            raise NeedSetError(f"{where}: card {card!r} is not in {needset.name}: is it the run of another need set?")
        if card in run.setdefault(need, {}):
            raise NeedSetError(f"{where}: need {need!r} has card {card!r} twice: keep one of the lines")
        run[need][card] = score
    if not run:
        raise NeedSetError(
            f"{path}: none of its needs is in the {needset.split} split of {needset.name}: name the run of this set"
        )
    return {need: sorted(scores.items(), key=lambda pair: -pair[1]) for need, scores in run.items()}
