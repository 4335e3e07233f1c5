"""Measure the strength below which a draft by this model may say that nothing fits, and write it to its match.json.

    python models/calibrate.py models/tuned --needset DIR [DIR ...]      # no extra is needed

Every model needs a floor of its own, as the cosines of another one mean something else; without match.json a draft
never says that nothing fits. The floor is the largest one, to two decimals, that cuts no *right* need: one with a
wanted card among the first five, drafted through the real index and ranker. From there up to `ranking.MATCH_DOUBT` a
draft says "perhaps".

A need set is a folder as for `roster eval`; its *train* needs are used, a seeded sample where there are many, so that
its test needs stay unseen. Of n right needs the weakest decides, so about one in n + 1 like them will be weaker still:
a few hundred make a floor, thirty only a guess. A model is surer of needs that it was trained on than of those to
come, so name a set that it has not seen as well. Whether the floor also stops nonsense is for `eval/matches.py` to say.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roster.config import find_home, open_home
from roster.draft import Draft
from roster.encoder import OnnxEncoder, open_onnx_encoder
from roster.errors import RosterError
from roster.evaluation import NeedSet, read_needset
from roster.evaluation.homes import open_filled
from roster.ranking import MATCH_DOUBT, Match, match_strength

K = 5
"""A need is right when a card it wants is among so many."""


@dataclass(frozen=True, slots=True)
class Strengths:
    """The strengths of a set's right needs, and how many others it has.

    wrong: no wanted card is among the first five. unjudged: the need names a card or is not ASCII, so no floor applies.
    """

    name: str
    right: tuple[float, ...]
    wrong: int
    unjudged: int


def strength_of(made: Draft) -> float:
    """The strength that `roster.draft` compares with the floor.

    At most: a nearest card that is no longer among the two hundred in the running does not count.
    """
    cosines = [scored.similarity for _, scored in made.running if scored.similarity is not None]
    words = [scored.bm25 for _, scored in made.running if scored.bm25 is not None]
    return match_strength(max(cosines, default=1.0), max(words, default=0.0))


def measured(needset: NeedSet, encoder: OnnxEncoder, cache: Path, limit: int, rng: random.Random) -> Strengths:
    """The strengths of a set's needs, of at most so many of them. The encoder's own floor is put aside."""
    needs = rng.sample(needset.needs, min(limit, len(needset.needs)))
    right: list[float] = []
    wrong = unjudged = 0
    own, encoder.match_floor = encoder.match_floor, math.inf  # all that is judged is then cut, which tells it apart
    try:
        with open_filled(needset, encoder, cache) as filled:
            for need in needs:
                made = filled.roster.draft_now(need.text, K)
                first = {filled.corpus_ids[card.server, card.name] for card, _ in made.running[:K]}
                if made.match is not Match.NONE:
                    unjudged += 1
                elif first & need.grades.keys():
                    right.append(strength_of(made))
                else:
                    wrong += 1
    finally:
        encoder.match_floor = own
    return Strengths(needset.name, tuple(right), wrong, unjudged)


def floor_under(strengths: Iterable[float]) -> float:
    """The largest floor of two decimals with none of the strengths below it. Raises ValueError of none."""
    weakest = min(strengths)
    floor = round(weakest, 2)
    return floor if floor <= weakest else round(floor - 0.01, 2)


def match_json(sets: Sequence[Strengths], split: str) -> dict[str, Any]:
    """What match.json says; the encoder reads `match_floor` alone. Raises ValueError when no need is right."""
    right = [strength for found in sets for strength in found.right]
    if not right:
        raise ValueError(f"no {split} need has a wanted card among its first {K}: there is nothing to measure with")
    names = ", ".join(found.name for found in sets)
    return {
        "match_floor": floor_under(right),
        "measured_with": f"ranking.match_strength; {len(right):,} right {split} needs of {names}",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write, say what was found; 1 for a model or a set that cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a folder that models/build.py wrote")
    parser.add_argument("--needset", type=Path, nargs="+", required=True, help="need sets, one folder each")
    parser.add_argument("--split", default="train", help="default train")
    parser.add_argument("--limit", type=int, default=300, metavar="N", help="needs of a set, at most; default 300")
    parser.add_argument("--seed", type=int, default=13, help="which ones; default 13")
    args = parser.parse_args(arguments)
    try:
        needsets = [read_needset(folder, args.split) for folder in args.needset]
        encoder = open_onnx_encoder(args.model)
        cache = open_home(find_home()).folder / "eval-cache"
        sets = []
        for needset in needsets:
            print(f"{needset.name}: {min(args.limit, len(needset.needs))} needs", file=sys.stderr)
            rng = random.Random(f"{args.seed} {needset.name}")
            sets.append(measured(needset, encoder, cache, args.limit, rng))
        said = match_json(sets, args.split)
    except (RosterError, ValueError) as error:
        print(f"calibrate.py: {error}", file=sys.stderr)
        return 1
    for found in sets:
        weakest = f", the weakest {min(found.right):.3f}" if found.right else ""
        print(f"{found.name}: {len(found.right)} right{weakest}; {found.wrong} wrong, {found.unjudged} not judged")
    file = args.model / "match.json"
    file.write_text(json.dumps(said, indent=1) + "\n", "utf-8")
    floor, needs = said["match_floor"], sum(len(found.right) for found in sets)
    print(f"floor {floor}, doubt up to {floor + MATCH_DOUBT:.2f} → {file}")
    print(f"of right needs like these about one in {needs + 1:,} is weaker")
    return 0


if __name__ == "__main__":
    sys.exit(main())
