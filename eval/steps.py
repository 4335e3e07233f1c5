"""What the weights for needs of several steps are worth: train needs joined to needs of two to four steps.

    python eval/steps.py NEEDSET... [--split train] [--joined 300] [--out eval/results/steps.json]

Prints nDCG@5 by number of steps, 1 being the needs as they are: without any rule for long needs, with more weight for
words, with nearness to single steps, with both, and as drafted, where cards for steps that are covered give way. One
draft gives every column: the numbers it keeps of each card are blended anew. The joints are among the words that
`steps_of` cuts at, so the gain is an upper bound; `roster eval` on needs that people wrote is the proof.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Any

from roster.config import find_home, open_home
from roster.draft import Draft
from roster.encoder import Encoder, open_encoder
from roster.evaluation import NeedSet, read_needset
from roster.evaluation.comparison import checkout_commit
from roster.evaluation.homes import open_filled
from roster.evaluation.measures import score_needs
from roster.ranking import Scored, dense_weight, steps_share
from roster.words import length_of

K = 5
JOINTS = (". ", ", and ", " and then ", ". Then ", ". After that, ", ", then ", ". Also, ", " and ")
COLUMNS = {"neither": (False, False), "words": (True, False), "steps": (False, True), "both": (True, True)}


def blended(scored: Scored, words: int, unread: float, by_words: bool, by_steps: bool) -> float:
    """A card's score from what its draft says of it, with and without the rules for a need of so many words."""
    if scored.dense is None or scored.lexical is None:
        return scored.score + scored.covered
    weight = dense_weight(words if by_words else 0, unread)
    share = steps_share(words) if by_steps and scored.step is not None else 0.0
    meaning = (1 - share) * scored.dense + share * (scored.step or 0.0)
    return weight * meaning + (1 - weight) * scored.lexical + scored.named


def joined(needset: NeedSet, wanted: int, rng: random.Random) -> list[tuple[int, str, dict[str, int]]]:
    """(steps, need, grades): every need as it is, and `wanted` joined ones of two to four steps."""
    singles = [need for need in needset.needs if len(need.text.split()) > 3]
    out = [(1, need.text, dict(need.grades)) for need in needset.needs]
    for _ in range(wanted if len(singles) > 1 else 0):
        parts = rng.sample(singles, min(len(singles), rng.choice((2, 2, 3, 3, 4))))
        text = ""
        for part in parts:
            joint = rng.choice(JOINTS) if text else ""
            lower = joint and not joint.startswith(".")
            text += joint + (part.text[0].lower() + part.text[1:] if lower else part.text).rstrip(".?! ")
        out.append((len(parts), f"{text}.", {card: part.grades[card] for part in parts for card in part.grades}))
    return out


def ranked(made: Draft) -> dict[str, list[int]]:
    """Column → numbers of the first cards of a draft."""
    words, running = length_of(made.need), [scored for _, scored in made.running]
    orders = {c: [(-blended(s, words, made.unread, *rules), s.number) for s in running] for c, rules in COLUMNS.items()}
    orders["draft"] = [(-s.score, s.number) for s in running]
    return {column: [number for _, number in sorted(order)[:K]] for column, order in orders.items()}


def measure(needset: NeedSet, wanted: int, seed: int, encoder: Encoder, cache: Path) -> dict[str, Any]:
    """Number of steps → how many needs, and every column's mean nDCG@5; "draft" is what is really drafted."""
    needs = joined(needset, wanted, random.Random(f"{seed} {needset.name}"))
    runs: dict[str, dict[str, list[str]]] = {column: {} for column in (*COLUMNS, "draft")}
    with open_filled(needset, encoder, cache) as filled:
        for place, (_, text, _) in enumerate(needs):
            made = filled.roster.draft_now(text, K)
            ids = {scored.number: filled.corpus_ids[card.server, card.name] for card, scored in made.running}
            for column, numbers in ranked(made).items():
                runs[column][str(place)] = [ids[number] for number in numbers]
    grades = {str(place): need[2] for place, need in enumerate(needs)}
    scores = {column: score_needs(run, grades, K) for column, run in runs.items()}
    out: dict[str, Any] = {}
    for steps in sorted({need[0] for need in needs}):
        mine = [str(place) for place, need in enumerate(needs) if need[0] == steps]
        means = {c: round(sum(found[n][f"ndcg@{K}"] for n in mine) / len(mine), 4) for c, found in scores.items()}
        out[str(steps)] = {"needs": len(mine), **means}
    return out


def main() -> int:
    """Measure every set, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("needset", type=Path, nargs="+")
    parser.add_argument("--split", default="train", help="weights are chosen on train needs")
    parser.add_argument("--joined", type=int, default=300, help="joined needs a set")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    encoder, cache = open_encoder(None), open_home(find_home()).folder / "eval-cache"
    sets = {}
    for needset in (read_needset(folder, args.split) for folder in args.needset):
        sets[needset.name] = measure(needset, args.joined, args.seed, encoder, cache)
        for steps, found in sets[needset.name].items():
            print(needset.name, steps, json.dumps(found), flush=True)
    if args.out:
        made = {"split": args.split, "joined": args.joined, "seed": args.seed, "commit": checkout_commit()}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps({**made, "sets": sets}, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
