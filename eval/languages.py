"""Ranking by language, through the real registry, index and ranker: the languages of needs against sets of cards.

    python eval/languages.py NEEDSET... [--model NAME] [--out eval/results/languages.json]

A need set is a BEIR folder (corpus.jsonl, queries.jsonl with `lang`, qrels/SPLIT.tsv). Prints recall@5, nDCG@5 and
hit@1 of `hybrid`, `lexical` and `dense` for each split and, since a language often has a handful of needs, for all of
them together; the JSON has the same by style. Needs the `eval` extra. A need that is told nothing fits is a miss.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from roster.evaluation import Plan, evaluate, parse_system, read_needset

K = 5
MEASURES = (f"recall@{K}", f"ndcg@{K}", "hit@1")
SYSTEMS = ("hybrid", "lexical", "dense")
ALL = "all"

Record = dict[str, Any]


def measure(folders: list[Path], splits: list[str], model: str | None, quiet: bool) -> dict[str, Any]:
    """Set → cards, and the record of every need with its split; with what made them."""
    named = {s: f"{s}:{model}" if model and s != "lexical" else s for s in SYSTEMS}
    sets: dict[str, Any] = {}
    made: dict[str, Any] = {}

    def told(label: str, done: int, total: int) -> None:
        if not quiet and done == total:
            print(f"{label}: {total}", file=sys.stderr)

    with tempfile.TemporaryDirectory(prefix="roster-languages-") as cache:
        plan = Plan([parse_system(name) for name in named.values()], K, 13, Path(cache), {})
        for split in splits:
            needsets = [read_needset(folder, split) for folder in folders]
            found = evaluate(needsets, plan, told)
            for needset in needsets:
                here = sets.setdefault(needset.name, {"cards": len(needset.cards), "records": []})
                for record in found.records[needset.name].values():
                    systems = {system: record["systems"][name] for system, name in named.items()}
                    here["records"].append({**record, "split": split, "systems": systems})
            made = {key: found.figures[key] for key in ("commit", "versions")}
            figures = next(iter(found.figures["sets"].values()))
            made["encoder"] = figures["systems"][named["hybrid"]]["encoder"]
    return {**made, "sets": sets}


def summary(records: Iterable[Record]) -> dict[str, Any]:
    """How many needs, and each system's means; of how many needs hybrid drafted nothing."""
    rows = list(records)
    return {
        "needs": len(rows),
        "nothing_drafted": sum(not row["systems"]["hybrid"]["drafted"] for row in rows),
        **{
            system: {m: round(statistics.fmean(row["systems"][system][m] for row in rows), 4) for m in MEASURES}
            for system in SYSTEMS
        },
    }


def by_language(records: list[Record], splits: list[str]) -> dict[str, Any]:
    """Language → split → summary, the language with most needs first; all of them by style, where there are several."""
    out: dict[str, Any] = {}
    languages = [record.get("lang", "?") for record in records]
    for lang in sorted(set(languages), key=lambda lang: (-languages.count(lang), lang)):
        mine = [record for record in records if record.get("lang", "?") == lang]
        out[lang] = {ALL: summary(mine)}
        for split in splits:
            if of_split := [record for record in mine if record["split"] == split]:
                out[lang][split] = summary(of_split)
        styles = sorted({record["style"] for record in mine if "style" in record})
        if len(styles) > 1:
            out[lang]["styles"] = {s: summary(r for r in mine if r.get("style") == s) for s in styles}
    return out


def show(sets: dict[str, Any], splits: list[str]) -> None:
    """The table, on stdout."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    table = Table(caption="each cell: " + ", ".join(MEASURES), caption_justify="left")
    for heading in ("cards", "need in", "split", "needs", "nothing", *SYSTEMS):
        table.add_column(heading, justify="right" if heading in ("needs", "nothing") else "left")
    for name, found in sets.items():
        table.add_section()
        for lang, by_split in found["languages"].items():
            for split in (*splits, ALL):
                if figures := by_split.get(split):
                    cells = [" ".join(f"{figures[system][m]:.2f}" for m in MEASURES) for system in SYSTEMS]
                    counted = (str(figures["needs"]), str(figures["nothing_drafted"] or ""))
                    table.add_row(name, lang, split, *counted, *cells)
    console.print(table)


def main() -> int:
    """Measure every set on every split, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("needset", type=Path, nargs="+")
    parser.add_argument("--split", nargs="+", default=["train", "test"])
    parser.add_argument("--model", help="another encoder: a folder, or a sentence-transformers name")
    parser.add_argument(
        "--missed", action="store_true", help="list the needs of which hybrid finds none in the first 5"
    )
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    document = measure(args.needset, args.split, args.model, not sys.stderr.isatty())
    missed = []
    for name, found in document["sets"].items():
        records = found.pop("records")
        found["languages"] = by_language(records, args.split)
        missed += [(name, r) for r in records if not r["systems"]["hybrid"][MEASURES[0]]]
    show(document["sets"], args.split)
    if args.missed:
        for name, record in missed:
            wanted, systems = record["wanted"], record["systems"]
            first = {system: systems[system]["rank"] for system in SYSTEMS}
            top = [card for card, _ in systems["hybrid"]["top"][:3]]
            print(
                json.dumps(
                    {"set": name, "text": record["text"], "wanted": wanted, "rank": first, "top": top},
                    ensure_ascii=False,
                )
            )
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps({"k": K, **document}, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
