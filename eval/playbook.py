"""What to search of a skill: its description, the head of its body, whole sections, or passages of a few lines.

    python eval/playbook.py [--split train] [--out eval/results/playbook.json]

Ranks the needs of `eval/needsets/playbook` and those of `eval/needsets/servers` over the cards of both, skills beside
tools as in a real home, and prints nDCG@5 of each way to search with the paired 95 % interval of its difference from
the first. The blend is the one of a draft, steps of long needs aside.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roster.cards import Card, Kind, LexicalText, card_from_skill, dense_text, lexical_text
from roster.encoder import Encoder, open_encoder
from roster.evaluation import NeedSet, read_needset
from roster.evaluation.bootstrap import Interval, interval, resampled_means
from roster.evaluation.comparison import checkout_commit
from roster.evaluation.homes import cards_of
from roster.evaluation.measures import score_needs
from roster.evaluation.needsets import Need
from roster.lexical import lexical_hits
from roster.passages import lines_of, passages_of
from roster.ranking import PASSAGE_COST, blend, dense_weight, rank
from roster.vectors import Vectors
from roster.words import length_of

K = 5
HERE = Path(__file__).parent / "needsets"
SECTION_WORDS = 110


def bare(card: Card) -> Card:
    """The card as if its skill had no body."""
    return card if card.kind is Kind.TOOL else card_from_skill({**card.raw, "body": ""}, "unused")


def head(card: Card) -> list[str]:
    """The description with the beginning of the body behind it, as much as the encoder reads."""
    words = [word for _, line in lines_of(card) for word in line]
    return [" ".join([dense_text(card), *words[:250]])]


def passages(words: int) -> Callable[[Card], list[str]]:
    """The description, and a row for every so many words of the body."""
    return lambda card: [dense_text(card), *passages_of(card, words)]


@dataclass(frozen=True)
class Way:
    """One way to search. dense: the texts of a card's vectors; the best counts, all but the first less their cost."""

    dense: Callable[[Card], list[str]]
    body_words: bool = False
    cost: float = PASSAGE_COST


WAYS = {
    "description": Way(lambda card: [dense_text(card)]),
    "+ head": Way(head),
    "+ words of the body": Way(lambda card: [dense_text(card)], body_words=True),
    "+ head, words": Way(head, body_words=True),
    "+ sections": Way(passages(SECTION_WORDS)),
    "+ sections, words": Way(passages(SECTION_WORDS), body_words=True),
    "+ passages": Way(passages(30)),
    "+ passages, words, no cost": Way(passages(30), body_words=True, cost=0.0),
    "+ passages, words": Way(passages(30), body_words=True),
    "+ lines, words": Way(passages(12), body_words=True),
}


def full_text(texts: Sequence[LexicalText]) -> sqlite3.Connection:
    """Roster's own full-text index, in memory."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE words USING fts5(name, description, parameters, server, tokenize = 'unicode61')")
    rows = [(n, t.name, t.description, t.parameters, t.server) for n, t in enumerate(texts)]
    db.executemany("INSERT INTO words (rowid, name, description, parameters, server) VALUES (?, ?, ?, ?, ?)", rows)
    return db


def scores(way: Way, cards: dict[str, Card], needs: Sequence[Need], vectors: Vectors, encoder: Encoder) -> list[float]:
    """nDCG@5 of each need, in their order."""
    ids, every = list(cards), list(cards.values())
    texts = [way.dense(card) for card in every]
    owner = np.repeat(np.arange(len(every)), [len(rows) for rows in texts])
    cost = np.concatenate([[0.0] + [way.cost] * (len(rows) - 1) for rows in texts])
    rows = encoder.encode_cards([text for group in texts for text in group])
    db = full_text([lexical_text(card if way.body_words else bare(card)) for card in every])
    ranked = {}
    for place, (need, vector) in enumerate(zip(needs, vectors, strict=True)):
        best = np.full(len(every), -2.0)
        np.maximum.at(best, owner, rows @ vector - cost)
        similarities = dict(enumerate(best.tolist()))
        weight = dense_weight(length_of(need.text), encoder.unread(need.text))
        blended = blend(similarities, float(best.min()), dict(lexical_hits(db, need.text, 200)), weight=weight)
        ranked[str(place)] = [ids[scored.number] for scored in rank(blended, K)]
    graded = score_needs(ranked, {str(place): need.grades for place, need in enumerate(needs)}, K)
    return [graded[str(place)][f"ndcg@{K}"] for place in range(len(needs))]


def difference(own: np.ndarray, first: np.ndarray) -> Interval:
    """The mean difference with its paired interval."""
    gap = own - first
    return interval(float(gap.mean()), resampled_means(gap[:, None], 1, "playbook")[:, 0])


def measure(skills: NeedSet, tools: NeedSet, encoder: Encoder) -> dict[str, Any]:
    """Way → nDCG@5 of skill needs, by style, and of tool needs, with the differences from the first way."""
    cards = {**cards_of(skills), **cards_of(tools)}
    needs = [*skills.needs, *tools.needs]
    vectors = encoder.encode_needs([need.text for need in needs])
    groups = {
        "skills": np.array([place < len(skills.needs) for place in range(len(needs))]),
        "of a description": np.array([need.style == "description" for need in needs]),
        "of a body": np.array([need.style == "body" for need in needs]),
        "tools": np.array([place >= len(skills.needs) for place in range(len(needs))]),
    }
    out: dict[str, Any] = {}
    first: np.ndarray | None = None
    for name, way in WAYS.items():
        own = np.array(scores(way, cards, needs, vectors, encoder))
        first = own if first is None else first
        rows = sum(len(way.dense(card)) for card in cards.values() if card.kind is Kind.SKILL)
        out[name] = {"rows of skills": rows} | {
            group: {"ndcg@5": round(float(own[chosen].mean()), 4)} | difference(own[chosen], first[chosen]).wire()
            for group, chosen in groups.items()
        }
        shown = (f"{group} {found['ndcg@5']:.3f} ({found['mean']:+.3f} [{found['low']:+.3f}, {found['high']:+.3f}])"
                 for group, found in out[name].items() if isinstance(found, dict))  # fmt: skip
        print(f"{name}, {rows} rows: {'; '.join(shown)}", flush=True)
    return out


def main() -> int:
    """Measure every way, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", default="test", help="choices are made on train needs")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    skills, tools = (read_needset(HERE / name, args.split) for name in ("playbook", "servers"))
    found = measure(skills, tools, open_encoder(None))
    if args.out:
        made = {"split": args.split, "commit": checkout_commit(), "needs": [len(skills.needs), len(tools.needs)]}
        args.out.write_text(json.dumps({**made, "ways": found}, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
