"""How a command says things to a person."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.text import Text

__all__ = ["Out", "lasting", "plain", "visible", "when"]

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


def lasting(seconds: float) -> str:
    """A length of time that is still to come, rounded up."""
    for size, unit in ((3_600, "h"), (60, "min")):
        if seconds > size:
            return f"{-(-seconds // size):.0f} {unit}"
    return "1 min"


# Shown as nothing, though Unicode calls them letters, symbols or marks: fillers, and what selects a glyph's variant.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


def _selects_variant(c: str) -> bool:
    return "\ufe00" <= c <= "\ufe0f" or "\U000e0100" <= c <= "\U000e01ef"


def visible(text: str) -> str:
    """`text` with everything that a terminal would hide, obey or reorder by written out, as in `\\u202e` or `\\n`."""
    if text.isascii() and text.isprintable():
        return text
    shown = (c if c.isprintable() and c not in _BLANK and not _selects_variant(c) else _escaped(c) for c in text)
    return "".join(shown)


def _escaped(c: str) -> str:
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(c)
    code = ord(c)
    return short or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65_536 else f"\\U{code:08x}")


def plain(text: object) -> Text:
    """Text from outside, as text: a `[` is not markup, an escape sequence does nothing, and it ends some time."""
    line = "".join(c if c.isprintable() else " " for c in str(text))
    return Text(line if len(line) <= _LONGEST_SHOWN else f"{line[:_LONGEST_SHOWN]}…")
