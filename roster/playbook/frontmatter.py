"""The front matter of a SKILL.md: YAML as people write it, which is not always YAML.

Nothing here rejects a skill. What a strict reader would refuse is read where its meaning is clear, and said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["LONGEST_DESCRIPTION", "LONGEST_NAME", "FrontMatter", "flaws_of_name", "split"]

LONGEST_NAME, LONGEST_DESCRIPTION = 64, 1_024
"""Characters, by the specification of Agent Skills."""
LARGEST = 64 * 1024
"""Characters of front matter that are read as YAML; more of it is no description of anything."""
_MOST_NODES = 2_000
_DEEPEST = 12
_FENCE = re.compile(r"---[ \t]*$")
_END = re.compile(r"(?:---|\.\.\.)[ \t]*$")
_PAIR = re.compile(r"([A-Za-z_][\w.-]*)[ \t]*:(?:[ \t]+(.*))?$")
_GOOD_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """What stands before a SKILL.md's Markdown, the Markdown itself, and what had to be made good.

    values: plain JSON values by key, in file order; dates and the like are text.
    """

    values: Mapping[str, Any]
    body: str
    flaws: list[str] = field(default_factory=list)


def split(text: str) -> FrontMatter:
    """The front matter and body of a SKILL.md. Never raises."""
    flaws: list[str] = []
    lines = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff").split("\n")
    first = next((at for at, line in enumerate(lines) if line.strip()), len(lines))
    if first == len(lines) or not _FENCE.match(lines[first]):
        return FrontMatter({}, _body(lines), ["no front matter: begin the file with ---, name, description and ---"])
    last = next((at for at in range(first + 1, len(lines)) if _END.match(lines[at])), None)
    if last is None:
        flaws.append("the front matter has no end: close it with a line of ---")
        last = next((at for at in range(first + 1, len(lines)) if not lines[at].strip()), len(lines))
    values = _values("\n".join(lines[first + 1 : last]), flaws)
    return FrontMatter(values, _body(lines[last + 1 :]), flaws)


def _body(lines: list[str]) -> str:
    return "\n".join(lines).strip("\n")


def _values(text: str, flaws: list[str]) -> dict[str, Any]:
    if not text.strip():
        flaws.append("the front matter is empty: give name and description")
        return {}
    if len(text) > LARGEST:
        flaws.append(f"the front matter has {len(text):,} characters: only name and description are read of it")
        return _salvaged(text[:LARGEST])
    for mend, what in _WAYS:
        found, whole = _loaded(mend(text))
        if isinstance(found, Mapping):
            if what:
                flaws.append(what)
            if not whole:
                flaws.append("the front matter is nested or repeated beyond use: what is too deep was left out")
            return {str(key): value for key, value in found.items()}
    flaws.append("the front matter is not YAML: only lines such as `name: value` were read")
    return _salvaged(text)


def _loaded(text: str) -> tuple[Any, bool]:
    """The YAML value of a text as JSON, and whether all of it is there; (None, True) when it is no YAML."""
    # The first SKILL.md pays for this import; who has no skills never does.
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    reader = YAML(typ="safe", pure=True)
    reader.allow_duplicate_keys = True
    try:
        value = reader.load(text)
    except (YAMLError, ValueError, TypeError, RecursionError, AttributeError, KeyError):
        # The library's own kinds, and what its constructors let through: a date such as 2026-99-99, a tag of Python's.
        return None, True
    left = [_MOST_NODES]
    return _plain(value, left, 0), left[0] >= 0


def _plain(value: Any, left: list[int], depth: int) -> Any:
    """`value` in JSON's types, as far as `left[0]` nodes go: aliases make small files that are endless trees."""
    left[0] -= 1
    if left[0] < 0 or depth > _DEEPEST:
        left[0] = min(left[0], -1)
        return None
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case Mapping():
            return {str(key): _plain(item, left, depth + 1) for key, item in list(value.items())[:_MOST_NODES]}
        case list() | tuple() | set():
            return [_plain(item, left, depth + 1) for item in list(value)[:_MOST_NODES]]
        case bytes():
            return value.decode("utf-8", "replace")
        case _:
            return str(value)


def _untabbed(text: str) -> str:
    return text.replace("\t", "  ")


def _quoted(text: str) -> str:
    """Every plain one-line value at the top level in quotes: `description: Use when: now` says what it seems to say."""
    out = []
    for line in _untabbed(text).split("\n"):
        found = _PAIR.match(line)
        value = (found[2] or "").strip() if found else ""
        if found is None or not value or value[0] in "|>[{&*!":
            out.append(line)
            continue
        if len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]:
            value = value[1:-1]
        out.append(f"{found[1]}: {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(out)


_WAYS = (
    (str, ""),
    (_untabbed, "there are tabs in the front matter: indent with spaces"),
    (_quoted, "a value in the front matter holds a colon or a quote of its own: put the whole value in quotes"),
)


def _salvaged(text: str) -> dict[str, Any]:
    """The lines that are a key and a value, whatever the rest is; of a key that comes twice, the first."""
    out: dict[str, Any] = {}
    for line in text.split("\n"):
        found = _PAIR.match(line)
        if found and found[2] and found[1] in ("name", "description"):
            out.setdefault(found[1], found[2].strip().strip("\"'"))
    return out


def flaws_of_name(name: str, folder: str) -> list[str]:
    """What the specification has against a skill's name. folder: the name of its folder."""
    flaws = []
    if len(name) > LONGEST_NAME:
        flaws.append(f"its name has {len(name)} characters: at most {LONGEST_NAME} are allowed")
    if not _GOOD_NAME.fullmatch(name):
        flaws.append("a name is lower-case letters and digits, with single hyphens between them")
    if name != folder:
        flaws.append(f"its name is not that of its folder, {folder!r}: some clients go by one, some by the other")
    return flaws
