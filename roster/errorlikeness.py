"""What a failure text is like, where no wording is sure: the class that its words occur in most. Pure.

A table of one weight for each word and class, made by `eval/errors/train.py` from labelled texts (logistic regression).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from roster.outcomes import Outcome

__all__ = ["SURE", "features", "likeness"]

SURE = 0.35
"""The share of the likelihood that the best of seven classes must have."""
LEAST_KNOWN = 3
"""Words of a text that must be in the table for it to be like anything."""
_STEM = 5


def features(words: str) -> frozenset[str]:
    """The words of a prepared text, numbers being alike, and the beginnings of the longer ones."""
    each = {"0" if word.isdigit() else word for word in words.split()}
    return frozenset(each | {f"{word[:_STEM]}*" for word in each if len(word) > _STEM})


@cache
def _table() -> dict[str, Any]:
    return dict(json.loads(Path(__file__).with_name("errorlikeness.json").read_text("utf-8")))


def likeness(words: str, table: Mapping[str, Any] | None = None) -> tuple[Outcome | None, float]:
    """The class that texts with these words belong to, None when it is not sure, and its share of the likelihood."""
    table = table or _table()
    there = [word for word in features(words) if word in table["words"]]
    if sum(word.isalpha() for word in there) < LEAST_KNOWN:
        return None, 0.0
    known = [table["words"][word] for word in there]
    length = math.sqrt(len(known))
    scores = [
        bias + sum(column) / length for bias, column in zip(table["biases"], zip(*known, strict=True), strict=True)
    ]
    top = max(scores)
    share = 1 / sum(math.exp((score - top) / table["scale"]) for score in scores)
    return (Outcome(table["classes"][scores.index(top)]) if share >= SURE else None), share
