"""How a command says things to a person."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.text import Text

__all__ = ["Out", "plain", "when"]

Out = Callable[[Any], None] | None
"""Where a command puts its one JSON document; None: it prints for a person."""

_LONGEST_SHOWN = 300


def when(at: float | None) -> str:
    """A time, seconds since the epoch, as how long ago that was."""
    if at is None:
        return "never"
    ago = max(0.0, time.time() - at)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if ago >= size:
            return f"{ago / size:.0f} {unit} ago"
    return "just now"


def plain(text: object) -> Text:
    """Text from outside, as text: a `[` is not markup, an escape sequence does nothing, and it ends some time."""
    line = "".join(c if c.isprintable() else " " for c in str(text))
    return Text(line if len(line) <= _LONGEST_SHOWN else f"{line[:_LONGEST_SHOWN]}…")
