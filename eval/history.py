"""What a long history costs a draft: the same needs with and without it, in turns, in one process on one thread.

    python eval/history.py NEEDSET [--outcomes 100000] [--out eval/results/speed_learning.json]

The cards are the set's, its needs are drafted, and the outcomes are made up: needs near a card's own vector, nine of
ten calls a success. That says nothing of quality (`roster eval replay` does), but it is as much to read as a busy year
leaves.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from roster.database import atomic
from roster.draft import draft
from roster.encoder import open_encoder
from roster.evaluation import read_needset
from roster.evaluation.homes import Filled, open_filled
from roster.history import History, NeedRow, OutcomeRow
from roster.learning import Learner
from roster.outcomes import Outcome
from roster.vectors import unit_rows
from roster.weights import Weights

ROUNDS = 5
NEEDS = 150
RUNNING = 50


def fill(filled: Filled, encoder: str, outcomes: int, rng: np.random.Generator) -> None:
    """Made-up outcomes, each with a need of its own."""
    roster, now = filled.roster, time.time()
    dense = roster.catalogue.dense
    assert dense is not None
    entries = [entry for number, entry in sorted(roster.catalogue.draftable().items()) if number in dense]
    vectors = np.stack([dense.rows([entry.number])[0] for entry in entries])
    numbers = np.array([entry.number for entry in entries])
    history = History(roster.writer.db)
    history.clear()
    with atomic(roster.writer.db):
        for turn in range(outcomes):
            at = int(rng.integers(len(entries)))
            noise = np.asarray(rng.normal(0, 0.05, vectors.shape[1]), np.float32)
            others = rng.choice(numbers, RUNNING - 1, replace=False).tolist()
            running = [(int(numbers[at]), 0.8), *zip(others, np.linspace(0.9, 0.3, RUNNING - 1).tolist(), strict=True)]
            need = history.keep_need(NeedRow(encoder, unit_rows((vectors[at] + noise)[None])[0], running), now + turn)
            outcome = Outcome.SUCCESS if rng.random() < 0.9 else Outcome.INTERNAL
            card = entries[at].card
            history.record(OutcomeRow(card.id, card.fingerprint, outcome, None, 5.0, now, drafted=True, need=need))


def drafts_ms(filled: Filled, needs: list[str], learner: Learner | None) -> float:
    """The median draft, in milliseconds."""
    times = []
    for need in needs:
        begun = time.perf_counter()
        draft(filled.roster.catalogue, need, learner=learner)
        times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times)


def measure(folder: Path, outcomes: int, cache: Path) -> dict[str, Any]:
    """Drafts without and with the history, and what it takes to read and to settle it."""
    encoder, needset = open_encoder(None), read_needset(folder, "test")
    needs = [need.text for need in needset.needs[:NEEDS]]
    with open_filled(needset, encoder, cache) as filled:
        fill(filled, encoder.fingerprint, outcomes, np.random.default_rng(13))
        learner = Learner(filled.roster.catalogue)
        begun = time.perf_counter()
        learner.refresh()
        read_s = time.perf_counter() - begun
        begun = time.perf_counter()
        learner.settle(always=True)
        settle_s = time.perf_counter() - begun
        assert learner.weights != Weights()
        rounds = [(drafts_ms(filled, needs, None), drafts_ms(filled, needs, learner)) for _ in range(ROUNDS)]
        return {
            "cards": len(needset.cards),
            "outcomes": outcomes,
            "draft_ms_without": [round(without, 2) for without, _ in rounds],
            "draft_ms_with": [round(with_, 2) for _, with_ in rounds],
            "ratio": round(statistics.median(with_ / without for without, with_ in rounds), 3),
            "read_s": round(read_s, 2),
            "settle_s": round(settle_s, 2),
            "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }


def main() -> int:
    """Measure, print, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("needset", type=Path)
    parser.add_argument("--outcomes", type=int, default=100_000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roster-history-") as scratch:
        found = measure(args.needset, args.outcomes, Path(scratch))
    print(json.dumps(found, indent=1))
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
