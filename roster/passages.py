"""What a skill's instructions say, passage by passage: texts to embed, and the one nearest to a need.

A description holds a skill's purpose, its body what it can be asked for; one vector does not hold a hundred lines. So
each few lines have a vector of their own, and the best of them speaks for the card (`ranking.PASSAGE_COST`). Measured
against description alone, a head of the body and whole sections by `eval/playbook.py`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from roster.cards import BODY_LIMIT, Card, Kind
from roster.vectors import Vectors
from roster.words import split_identifier

__all__ = ["MOST_PASSAGES", "PASSAGE_WORDS", "Passages", "lines_of", "passages_of"]

PASSAGE_WORDS = 30
"""Words of the body in a passage, more where a single line is longer; of 12, 18, 30, 45 and 110 the best bargain of
quality and rows on train needs."""
MOST_PASSAGES = 64
"""A longer body has longer passages."""
_MOST_WORDS = 240
_LONGEST = 1_200
"""Characters of a passage; the encoder reads no more of it."""
_HEADING = re.compile(r"#{1,6}[ \t]+(.*)")
_MARKS = re.compile(r"^(?:[-*+>|]|\d+[.)]|\s)+")


def passages_of(card: Card, words: int = PASSAGE_WORDS) -> list[str]:
    """The texts of a skill's passages, each once, as "name words, heading: a few lines"; [] for any other card.

    words: of a passage, twice as many and so on where a body has too many of them.
    """
    lines = lines_of(card)
    while len(found := list(_packed(lines, words))) > MOST_PASSAGES and words < _MOST_WORDS:
        words *= 2
    name = " ".join(split_identifier(card.name))
    texts = (f"{name}{f', {heading}' if heading else ''}: {' '.join(held)}"[:_LONGEST] for heading, held in found)
    return list(dict.fromkeys(texts))[:MOST_PASSAGES]


def lines_of(card: Card) -> list[tuple[str, list[str]]]:
    """(heading above it, words) of every line of a skill's body that says something; [] for any other card."""
    body = card.raw.get("body") if card.kind is Kind.SKILL else None
    if not isinstance(body, str):
        return []
    out = []
    heading, in_code = "", False
    for line in body[:BODY_LIMIT].split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            in_code = not in_code
            continue
        if not in_code and (match := _HEADING.match(line)):
            heading = match[1].strip().strip("#").strip()
            continue
        words = _MARKS.sub("", line).replace("`", "").replace("**", "").split()
        if any(any(map(str.isalnum, word)) for word in words):
            out.append((heading, words))
    return out


def _packed(lines: Sequence[tuple[str, list[str]]], size: int) -> Iterator[tuple[str, list[str]]]:
    """Lines of one heading together, up to `size` words; a paragraph in one line is cut."""
    at, held = "", list[str]()
    for heading, line in lines:
        for start in range(0, len(line), size):
            words = line[start : start + size]
            if held and (heading != at or len(held) + len(words) > size):
                yield at, held
                held = []
            at, held = heading, [*held, *words]
    if held:
        yield at, held


class Passages:
    """Unit rows of passages, by card number. Exact; a few thousand rows take less than a millisecond."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._rows: dict[int, Vectors] = {}
        self._all: tuple[Vectors, NDArray[np.intp], list[int]] | None = None

    def __contains__(self, number: int) -> bool:
        return number in self._rows

    def put(self, number: int, vectors: Vectors) -> None:
        """The passages of one card, replacing those it had. vectors: (n, dim) float32 unit rows."""
        self._rows = {**self._rows, number: vectors}
        self._all = None

    def drop(self, numbers: Sequence[int]) -> None:
        """Take cards out; numbers that are not in are ignored."""
        if any(number in self._rows for number in numbers):
            gone = set(numbers)
            self._rows = {number: rows for number, rows in self._rows.items() if number not in gone}
            self._all = None

    def nearest(self, need: Vectors) -> Mapping[int, float]:
        """Card number → cosine similarity of its nearest passage. need: (1, dim) float32, unit length."""
        held = self._all
        if held is None:
            rows = {number: vectors for number, vectors in self._rows.items() if len(vectors)}
            if not rows:
                return {}
            starts = np.cumsum([0, *(len(vectors) for vectors in rows.values())])[:-1]
            held = self._all = (np.concatenate(list(rows.values())), starts, list(rows))
        matrix, starts, numbers = held
        best = np.maximum.reduceat(matrix @ need[0], starts)
        return dict(zip(numbers, best.tolist(), strict=True))
