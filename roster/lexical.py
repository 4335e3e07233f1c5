"""Cards by their words: BM25 over identifier-split, folded text, in the same database and transactions as the cards.

SQLite's FTS5 was chosen by measurement (`eval/lexical.py`): it ranks as well as a BM25 library (mean nDCG@5 .593 and
.597 on the train needs of eight sets), answers in a millisecond, and costs nothing at start or to keep in step between
processes.
"""

from __future__ import annotations

import sqlite3

from roster.words import tokens_of_need, with_stems

__all__ = ["FIELD_WEIGHTS", "lexical_hits"]

FIELD_WEIGHTS = {"name": 2.0, "description": 1.0, "parameters": 1.0, "server": 0.5}
"""Chosen on the train splits of eight need sets; flat around these values."""

_MAX_TOKENS = 256
_WEIGHTS = ", ".join(str(weight) for weight in FIELD_WEIGHTS.values())
_QUERY = (
    f"SELECT rowid, -bm25(words, {_WEIGHTS}) AS score FROM words WHERE words MATCH ? ORDER BY score DESC, rowid LIMIT ?"
)


def lexical_hits(db: sqlite3.Connection, need: str, k: int) -> list[tuple[int, float]]:
    """The k cards that share most with a need as (number, BM25 score > 0), best first; [] when no word is shared."""
    words = dict.fromkeys(with_stems(tokens_of_need(need)[:_MAX_TOKENS]))
    if not words:
        return []
    # Tokens are letters and digits only, so quoting them is enough to keep FTS5's own syntax out.
    match = " OR ".join(f'"{word}"' for word in words)
    return [(int(number), float(score)) for number, score in db.execute(_QUERY, (match, k))]
