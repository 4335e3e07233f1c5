"""Ranking quality on labelled need sets, through the real registry, index and ranker: nDCG@5 by set and system.

    python eval/quality.py NEEDSET... [--split test] [--limit N] [--model NAME] [--out eval/results/quality.json]

A need set is a BEIR folder (corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv). Systems: `lexical`, `dense`, `hybrid`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from roster.app import Roster, open_roster
from roster.config import Home, read_config
from roster.ranking import Match, Scored
from roster.reindex import embed_missing

SYSTEMS = {
    "lexical": lambda scored: scored.lexical or 0.0,
    "dense": lambda scored: scored.dense if scored.dense is not None else -1.0,
    "hybrid": lambda scored: scored.score,
}


def ndcg(ranked: list[str], grades: dict[str, float], k: int) -> float:
    """nDCG@k with linear gain (Järvelin & Kekäläinen 2002)."""
    gained = sum(grades.get(id_, 0.0) / math.log2(place + 2) for place, id_ in enumerate(ranked[:k]))
    ideal = sum(grade / math.log2(place + 2) for place, grade in enumerate(sorted(grades.values(), reverse=True)[:k]))
    return gained / ideal if ideal else 0.0


def _rows(path: Path) -> list[dict[str, Any]]:
    # By line feeds alone: a description may hold the other characters that str.splitlines() breaks at.
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def read_needset(folder: Path, split: str) -> tuple[list[dict[str, Any]], list[tuple[str, dict[str, float]]]]:
    """The cards of a need set, and its needs with their graded cards."""
    cards = _rows(folder / "corpus.jsonl")
    texts = {row["_id"]: row["text"] for row in _rows(folder / "queries.jsonl")}
    grades: dict[str, dict[str, float]] = {}
    with (folder / "qrels" / f"{split}.tsv").open(encoding="utf-8") as lines:
        next(lines)
        for line in lines:
            need, card, grade = line.rstrip("\n").split("\t")
            if float(grade) > 0:
                grades.setdefault(need, {})[card] = float(grade)
    return cards, [(texts[need], by_card) for need, by_card in grades.items()]


def fill(roster: Roster, cards: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """Put the cards on file, server by server; the corpus id of each (server, name).

    One server cannot list a name twice, but some corpora do. The second one goes to a server of its own, whose name
    differs by an underscore and so has the same words: every text that is searched stays as it was.
    """
    by_server: dict[str, dict[str, dict[str, Any]]] = {}
    ids = {}
    for row in cards:
        server = row["server"]
        while row["name"] in by_server.setdefault(server, {}):
            server += "_"
        by_server[server][row["name"]] = row
        ids[server, row["name"]] = row["_id"]
    for server, rows in by_server.items():
        keys = ("name", "title", "description", "inputSchema", "annotations")
        listing = [{key: row[key] for key in keys if row.get(key) is not None} for row in rows.values()]
        roster.writer.registry.sight(server, listing, time.time())
    return ids


def evaluate(folder: Path, split: str, limit: int, model: str | None, k: int, quiet: bool) -> dict[str, Any]:
    """Every system's mean nDCG@k and hit@1 on one need set, with the draft's latency."""
    cards, needs = read_needset(folder, split)
    needs = needs[:limit] if limit else needs
    most = max(Counter((row["server"], row["name"]) for row in cards).values())
    servers = {row["server"] + "_" * n: {"command": "never-started"} for row in cards for n in range(most)}
    config = read_config(json.dumps({"mcpServers": servers, **({"model": model} if model else {})}))
    with tempfile.TemporaryDirectory(prefix="roster-quality-") as scratch:
        home = Home(Path(scratch))
        with open_roster(config, home) as roster:
            ids = fill(roster, cards)
            roster.warm_up()
            begun = time.perf_counter()
            embedded = embed_missing(roster.catalogue, roster.writer, home)
            embed_s = time.perf_counter() - begun
            scores: dict[str, list[float]] = {name: [] for name in SYSTEMS}
            first: dict[str, list[float]] = {name: [] for name in SYSTEMS}
            milliseconds = []
            shown = track(needs, folder.name, console=Console(stderr=True), disable=quiet)
            for need, grades in shown:
                begun = time.perf_counter()
                made = roster.draft_now(need, k)
                milliseconds.append((time.perf_counter() - begun) * 1000)
                for name, key in SYSTEMS.items():

                    def order(pair: tuple[Any, Scored], key: Any = key) -> tuple[float, int]:
                        return (-key(pair[1]), pair[1].number)

                    running = () if name == "hybrid" and made.match is Match.NONE else made.running
                    ranked = [ids[(card.server, card.name)] for card, _ in sorted(running, key=order)[:k]]
                    scores[name].append(ndcg(ranked, grades, k))
                    first[name].append(float(bool(ranked) and ranked[0] in grades))
            fingerprint = roster.catalogue.encoder.fingerprint if roster.catalogue.encoder else ""
    return {
        "cards": len(cards),
        "needs": len(needs),
        "encoder": fingerprint,
        f"ndcg@{k}": {name: round(statistics.fmean(values), 4) for name, values in scores.items()},
        "hit@1": {name: round(statistics.fmean(values), 4) for name, values in first.items()},
        "draft_ms_p50": round(statistics.median(milliseconds), 2),
        "texts_embedded_per_s": round(embedded / embed_s, 1) if embedded else None,
    }


def main() -> int:
    """Evaluate every named set, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("needset", type=Path, nargs="+")
    parser.add_argument("--split", default="test")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--limit", type=int, default=0, help="at most so many needs a set (default: all)")
    parser.add_argument("--model", help="another encoder: a folder, or a sentence-transformers name")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    quiet = not sys.stderr.isatty()
    results = {}
    for folder in args.needset:
        results[folder.name] = found = evaluate(folder, args.split, args.limit, args.model, args.k, quiet)
        print(folder.name, json.dumps(found[f"ndcg@{args.k}"]), f"p50 {found['draft_ms_p50']} ms", flush=True)
    mean = {
        name: round(statistics.fmean(found[f"ndcg@{args.k}"][name] for found in results.values()), 4)
        for name in SYSTEMS
    }
    print("mean", json.dumps(mean))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        document = {"split": args.split, "k": args.k, "limit": args.limit, "mean": mean, "sets": results}
        args.out.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
