"""How often a draft says "nothing fits" or "perhaps nothing fits", and how often it is right to say so.

    python eval/matches.py NEEDSET... [--split test] [--json] [--out eval/results/matches.json]

Over each set's cards, through the real index and ranker: the set's own needs, those of `eval/needsets/nonsense.jsonl`,
and *foreign* ones, drawn from the other sets named (a need whose wanted card is here too is passed over). A right need
is one whose wanted card is among the first five of the running; to cut it (`none`) or to doubt it (`weak`) is an error.
So is a clear match for nonsense; for `unserved` and `foreign` needs it is one only as far as no card serves them, which
was written down for the two small sets of this project alone: four thousand cards serve nearly anything.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from roster.config import find_home, open_home
from roster.encoder import Encoder, open_encoder
from roster.evaluation import NeedSet, read_needset
from roster.evaluation.comparison import checkout_commit
from roster.evaluation.homes import Filled, open_filled
from roster.ranking import MATCH_DOUBT, MATCH_WORDS, Match

K = 5
NONSENSE = Path(__file__).parent / "needsets" / "nonsense.jsonl"


def counted(matches: Iterable[Match]) -> dict[str, int]:
    """How many there are, and of each kind."""
    found = Counter(matches)
    return {"needs": found.total(), **{match.value: found[match] for match in Match}}


def own(filled: Filled, needset: NeedSet) -> dict[str, Any]:
    """The set's own needs: the right ones, and the others. A need beyond ASCII is never judged, so always clear."""
    matches: dict[bool, list[Match]] = {True: [], False: []}
    for need in needset.needs:
        made = filled.roster.draft_now(need.text, K)
        first = {filled.corpus_ids[card.server, card.name] for card, _ in made.running[:K]}
        matches[bool(first & need.grades.keys())].append(made.match)
    right = counted(matches[True])
    return {
        "right": right | {"cut_share": share(right, "none"), "doubted_share": share(right, "weak")},
        "others": counted(matches[False]),
        "beyond_ascii": sum(not need.text.isascii() for need in needset.needs),
    }


def foreign(needset: NeedSet, others: Iterable[NeedSet], limit: int, rng: random.Random) -> list[str]:
    """Needs of the other sets, at most so many of each, none of whose wanted cards is in this set too."""
    here = {(row["server"], row["name"]) for row in needset.cards}
    out = []
    for other in others:
        wanted = {row["_id"]: (row["server"], row["name"]) for row in other.cards}
        texts = [need.text for need in other.needs if not here & {wanted[card] for card in need.grades}]
        out += rng.sample(texts, min(limit, len(texts)))
    return out


def measure(needset: NeedSet, strangers: dict[str, list[str]], encoder: Encoder, cache: Path) -> dict[str, Any]:
    """One set's figures. strangers: kind → needs that should have no clear match."""
    with open_filled(needset, encoder, cache) as filled:
        found = {"cards": len(needset.cards), "digest": needset.digest, **own(filled, needset)}
        for kind, texts in strangers.items():
            counts = counted(filled.roster.draft_now(text, K).match for text in texts)
            found[kind] = counts | {"clear_share": share(counts, "clear")}
    return found


def share(counts: dict[str, int], match: str) -> float | None:
    """The share of one kind of match; None of nothing."""
    return round(counts[match] / counts["needs"], 4) if counts["needs"] else None


def show(sets: dict[str, Any]) -> None:
    """The table, on stdout."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    kinds = ("right", "others", "nonsense", "unserved", "foreign")
    table = Table(
        caption="needs: clear, weak, none. A right need that is weak or none is an error", caption_justify="left"
    )
    for heading in ("set", "cards", *kinds):
        table.add_column(heading, justify="left" if heading == "set" else "right")
    for name, found in sets.items():
        cells = [
            f"{found[kind]['needs']}: {', '.join(str(found[kind][match.value]) for match in Match)}" for kind in kinds
        ]
        table.add_row(name, f"{found['cards']:,}", *cells)
    console.print(table)


def main() -> int:
    """Measure every set, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("needset", type=Path, nargs="+")
    parser.add_argument("--split", default="test")
    parser.add_argument("--foreign", type=int, default=50, metavar="N", help="at most N needs of each other set")
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    needsets = [read_needset(folder, args.split) for folder in args.needset]
    rows = [json.loads(line) for line in NONSENSE.read_text("utf-8").splitlines()]
    written = {
        kind: [row["text"] for row in rows if row["kind"] == kind and row["split"] == args.split]
        for kind in ("nonsense", "unserved")
    }
    encoder, cache = open_encoder(None), open_home(find_home()).folder / "eval-cache"
    sets = {}
    for needset in needsets:
        print(f"{needset.name}: {len(needset.needs)} needs", file=sys.stderr)
        rng = random.Random(f"{args.seed} {needset.name}")
        others = [other for other in needsets if other is not needset]
        strangers = {**written, "foreign": foreign(needset, others, args.foreign, rng)}
        sets[needset.name] = measure(needset, strangers, encoder, cache)
    document = {
        "split": args.split,
        "k": K,
        "seed": args.seed,
        "commit": checkout_commit(),
        "encoder": {"name": encoder.name, "fingerprint": encoder.fingerprint},
        "match_floor": encoder.match_floor,
        "match_doubt": MATCH_DOUBT,
        "match_words": MATCH_WORDS,
        "sets": sets,
    }
    if args.json:
        print(json.dumps(document, indent=1))
    else:
        show(sets)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
