"""JSON as people write config in it: comments, trailing commas and a byte-order mark are fine."""

from __future__ import annotations

import json
import re
from typing import Any

from roster.errors import ConfigError

__all__ = ["loads"]

_PIECES = re.compile(
    r'"(?:[^"\\]|\\.)*"'  # strings first, so that nothing inside one is taken for a comment
    r"|//[^\n]*"
    r"|/\*.*?\*/"
    r"|,(?=(?>\s+|//[^\n]*(?:\n|$)|/\*.*?\*/)*[}\]])",  # atomic: a comment ends at its first */, once and for all
    re.DOTALL,
)


def _blank(match: re.Match[str]) -> str:
    piece = match.group()
    # Blanks of the same length keep every line and column where the user sees it.
    return piece if piece.startswith('"') else re.sub(r"[^\n]", " ", piece)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in pairs:
        if key in out:
            raise ConfigError(f"the key {key!r} stands twice in one object: keep one of them")
        out[key] = value
    return out


def loads(text: str) -> Any:
    """The value `text` holds. Raises ConfigError naming line and column, or the key that stands twice."""
    plain = _PIECES.sub(_blank, text.removeprefix("\ufeff"))
    try:
        return json.loads(plain, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ConfigError(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ConfigError("nested too deeply to read") from None
