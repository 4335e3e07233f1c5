"""Which full-text index: SQLite's FTS5 with field weights against the bm25s library, on the same words.

    python eval/lexical.py NEEDSET... [--split train] [--out eval/results/lexical.json]

Needs the `eval` extra. Prints nDCG@5 of the words alone, the median milliseconds of a query, and how long each index
takes to build; FTS5 keeps its index between starts, bm25s builds it at each.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bm25s
import numpy as np

from roster.cards import LexicalText, lexical_text
from roster.evaluation import read_needset
from roster.evaluation.homes import cards_of
from roster.evaluation.measures import score_needs
from roster.lexical import lexical_hits
from roster.words import tokens_of_need, with_stems

K = 5


def fts5(texts: list[LexicalText]) -> Callable[[str], list[int]]:
    """Roster's own index and query, in memory."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE words USING fts5(name, description, parameters, server, tokenize = 'unicode61')")
    rows = [(n, t.name, t.description, t.parameters, t.server) for n, t in enumerate(texts)]
    db.executemany("INSERT INTO words (rowid, name, description, parameters, server) VALUES (?, ?, ?, ?, ?)", rows)
    return lambda need: [number for number, _ in lexical_hits(db, need, K)]


def library(texts: list[LexicalText]) -> Callable[[str], list[int]]:
    """bm25s (Lucene's variant, k1 1.2, b 0.75) over the same tokens in one field."""
    index = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    index.index([f"{t.name} {t.description} {t.parameters}".split() for t in texts], show_progress=False)

    def search(need: str) -> list[int]:
        words = list(dict.fromkeys(with_stems(tokens_of_need(need))))
        scores = index.get_scores(words)
        best = np.argsort(-scores, kind="stable")[:K]
        return [int(n) for n in best if scores[n] > 0]

    return search


def measure(folder: Path, split: str) -> dict[str, Any]:
    """Both indexes on one need set."""
    needset = read_needset(folder, split)
    cards = cards_of(needset)
    ids, texts = list(cards), [lexical_text(card) for card in cards.values()]
    grades = {need.id: need.grades for need in needset.needs}
    out: dict[str, Any] = {"cards": len(cards), "needs": len(grades)}
    for name, build in {"fts5": fts5, "bm25s": library}.items():
        begun = time.perf_counter()
        search = build(texts)
        built_ms = (time.perf_counter() - begun) * 1000
        ranked, milliseconds = {}, []
        for need in needset.needs:
            begun = time.perf_counter()
            found = search(need.text)
            milliseconds.append((time.perf_counter() - begun) * 1000)
            ranked[need.id] = [ids[n] for n in found]
        scores = [scored["ndcg@5"] for scored in score_needs(ranked, grades, K).values()]
        out[name] = {
            "ndcg@5": round(statistics.fmean(scores), 4),
            "query_ms_p50": round(statistics.median(milliseconds), 3),
            "build_ms": round(built_ms, 1),
        }
    return out


def main() -> int:
    """Measure every set, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("needset", type=Path, nargs="+")
    parser.add_argument("--split", default="train", help="the choice is made on train needs")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    sets = {}
    for folder in args.needset:
        sets[folder.name] = found = measure(folder, args.split)
        print(folder.name, json.dumps(found), flush=True)
    names = ("fts5", "bm25s")
    mean = {name: round(statistics.fmean(found[name]["ndcg@5"] for found in sets.values()), 4) for name in names}
    print("mean", json.dumps(mean))
    if args.out:
        args.out.write_text(json.dumps({"split": args.split, "mean": mean, "sets": sets}, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
