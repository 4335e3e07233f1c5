"""The wordings of `cues.toml`, compiled: which cues a sentence gives. Pure but for reading that file once."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

__all__ = ["Cue", "cue"]

Cue = re.Pattern[str]

_ANY = "~"
_GAP = r"(?:\W+\w+){0,7}?"
_SEPARATOR = r"\W{1,4}"


@cache
def _table() -> dict[str, Cue]:
    data = tomllib.loads(Path(__file__).with_name("cues.toml").read_text("utf-8"))
    lists = {name: "".join(words.split()) for name, words in data.pop("lists").items()}
    table = {}
    for name, entry in data.items():
        lines = re.sub(r"\|\s*\n\s*", "|", entry["words"]).strip().splitlines()
        words = "|".join(_wording(line.split(), lists) for line in lines)
        written = "|".join(re.escape(word).replace("…", ".{0,10}") for word in entry.get("written", "").split())
        table[name] = re.compile(rf"(?<!\w)(?<!\w\.)(?:{words})(?!\w)" + (f"|{written}" if written else ""))
    return table


def cue(name: str) -> Cue:
    """The pattern of one table of `cues.toml`, for folded text."""
    return _table()[name]


def _wording(steps: list[str], lists: dict[str, str]) -> str:
    """One line as a pattern; what may be left out takes the space after it along."""
    out, begun = "", False
    for step in steps:
        if step == _ANY:
            out += _GAP
            continue
        for name, words in lists.items():
            step = step.replace(f"{{{name}}}", words)
        choices = f"(?:{'|'.join(_word(word.removesuffix('?')) for word in step.split('|'))})"
        if "?" in step:
            out += f"(?:{_SEPARATOR}{choices})?" if begun else f"(?:{choices}{_SEPARATOR})?"
        else:
            out += f"{_SEPARATOR}{choices}" if begun else choices
            begun = True
    return out


def _word(word: str) -> str:
    pattern = re.escape(word.strip("*")).replace("_", "[ _-]")
    return (r"\w{0,30}" if word.startswith("*") else "") + pattern + (r"\w*" if word.endswith("*") else r"(?!\w)")
