"""Tokens of a text, as a figure with the range that it may lie in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from roster.errors import RosterError
from roster.evaluation.tokens import open_tokenizer

__all__ = ["NOTHING", "SERIALISATION", "Count", "Meter", "definition", "open_meter", "total"]

ENCODINGS = ("o200k_base", "cl100k_base", "voyage3_base")
"""Encodings that can be counted with offline: the figure is the first one's, the range is that of all of them."""
SERIALISATION = "one JSON object a tool, of name, description and inputSchema; from compact to with spaces"

# Characters a token of o200k_base, in the tool definitions of five public corpora (4,756 tools): 4.2 to 4.9.
_USUAL, _DENSEST, _SPARSEST = 4.5, 4.0, 5.0


@dataclass(frozen=True, slots=True)
class Count:
    """A number of tokens, and the least and most that it may be."""

    low: int
    tokens: int
    high: int

    def __add__(self, other: Count) -> Count:
        return Count(self.low + other.low, self.tokens + other.tokens, self.high + other.high)

    def __sub__(self, other: Count) -> Count:
        """What is left, low from low and high from high: both sides are spelled in the same way."""
        ends = sorted((self.low - other.low, self.high - other.high))
        tokens = self.tokens - other.tokens
        return Count(min(ends[0], tokens), tokens, max(ends[1], tokens))


NOTHING = Count(0, 0, 0)


def total(counts: Iterable[Count]) -> Count:
    """The sum of counts."""
    return sum(counts, NOTHING)


def definition(row: Mapping[str, Any], name: str = "") -> dict[str, Any]:
    """What of a `tools/list` row goes into a model's context, under another name if one is given."""
    schema = row.get("inputSchema")
    return {
        "name": name or row.get("name", ""),
        "description": row.get("description") or "",
        "inputSchema": schema if isinstance(schema, Mapping) else {"type": "object"},
    }


@dataclass(frozen=True, slots=True)
class Meter:
    """Counts tokens. exact: with a tokenizer; otherwise it estimates from characters. name: what it counts with."""

    name: str
    exact: bool
    counters: tuple[Callable[[str], int], ...]

    def text(self, text: str) -> Count:
        """Tokens of a text as it stands."""
        return self._range(text, text)

    def json(self, value: Any) -> Count:
        """Tokens of a value as JSON: the figure of the compact spelling, the range up to the one with spaces."""
        compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
        return self._range(compact, json.dumps(value, ensure_ascii=False, default=str))

    def _range(self, text: str, wide: str) -> Count:
        if not self.exact:
            return Count(round(len(text) / _SPARSEST), round(len(text) / _USUAL), round(len(wide) / _DENSEST))
        counted = [count(text) for count in self.counters]
        return Count(min(counted), counted[0], max(*counted, *(count(wide) for count in self.counters)))


def open_meter() -> Meter:
    """The tokenizers of the extra `receipt`, or an estimate from characters where that is not installed."""
    try:
        opened = [open_tokenizer(name) for name in ENCODINGS]
    except RosterError:
        return Meter("characters (an estimate)", False, ())
    return Meter(ENCODINGS[0], True, tuple(one.count for one in opened))
