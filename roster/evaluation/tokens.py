"""What a draft costs its reader: the tokens of the JSON that five mode would answer."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from roster.briefs import shorten
from roster.errors import RosterError
from roster.ranking import Match

__all__ = ["Tokenizer", "draft_json", "open_tokenizer"]

ENCODING = "o200k_base"
_NEED_SHOWN = 500
_DRAFT_ID = "d0a1b2c3d"
_USAGE = "call(tool=<id>, args=<per input>, draft_id)."
_NOTHING_KNOWN = "No tool is known yet; draft again in a moment."
_NO_MATCH = "No tool here fits this need: draft again in other words, or go on without."
_DOUBT = {
    Match.CLEAR: "",
    Match.WEAK: "Weak match: perhaps no tool here fits; draft again in other words, or go on without. ",
    Match.NONE: f"{_NO_MATCH} These have worked here before: ",
}


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A byte-pair encoding, by name, and how many tokens it makes of a text."""

    name: str
    count: Callable[[str], int]


def draft_json(need: str, starters: Sequence[Mapping[str, Any]], match: Match = Match.CLEAR) -> str:
    """The compact JSON that five mode answers to a need with these starters."""
    nothing = _NO_MATCH if match is Match.NONE else _NOTHING_KNOWN
    shown = {
        "need": shorten(need, _NEED_SHOWN) if len(need) > _NEED_SHOWN else need,
        "draft_id": _DRAFT_ID,
        "starters": starters,
        "usage": f"{_DOUBT[match]}{_USAGE}" if starters else nothing,
    }
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


def open_tokenizer(encoding: str = ENCODING) -> Tokenizer:
    """An encoding whose vocabulary is inside the package. Raises RosterError when that is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it reads its data by a call that is on its way out
            opened: Any = import_module("bpe_openai").get_encoding(encoding)
    except ImportError as error:
        raise RosterError(f"tokens per draft need bpe-openai ({error}): pip install bpe-openai") from error

    def count(text: str) -> int:
        # A lone surrogate has no bytes; it would go over the wire as an escape, here one "?" stands for it.
        return len(opened.encode_ordinary(text.encode("utf-8", "replace").decode()))

    return Tokenizer(f"{encoding} (bpe-openai)", count)
