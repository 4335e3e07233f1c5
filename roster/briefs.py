"""A card as a draft shows it: what the tool is for, and its input schema in as many words as a budget allows.

Every starter of every draft is read by a model that pays by the token, so a card has a budget. Structure is never cut
to meet it: parameter names, types, required ones, enums, items, alternatives and what references point to stay at
every level of detail. What goes, in this order, are long descriptions, descriptions that say no more than the name,
those of optional parameters, and then all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roster.cards import Card, Kind
from roster.words import split_identifier, with_stems

__all__ = ["BUDGET_CHARACTERS", "brief", "shorten", "trimmed_input"]

BUDGET_CHARACTERS = 200
"""What a card's input schema may take as compact JSON before descriptions go; about 50 tokens. Measured with a BPE
tokenizer over nine real servers by `roster eval` (tokens a draft)."""
_DESCRIPTION_LIMIT = 120
_ENUM_LIMIT = 12
_DEPTH = 12
"""Levels below the top, an array or a choice being one as well; of 7,000 tools looked at none has more than nine."""
_MOST_NODES = 400
_SIZE_LIMIT = 12_000


@dataclass(frozen=True, slots=True)
class _Detail:
    """How much of a schema to show. Limits are characters of a parameter's description; 0 leaves it out."""

    required: int
    optional: int
    telling: bool = False  # leave out descriptions that say no more than the parameter's name
    bounds: bool = True  # formats, defaults, minima and maxima


_LEVELS = (
    _Detail(required=90, optional=90),
    _Detail(required=60, optional=60, telling=True),
    _Detail(required=60, optional=0, telling=True),
    _Detail(required=0, optional=0),
    _Detail(required=0, optional=0, bounds=False),
)
_BOUNDS = ("format", "default", "minimum", "maximum")


def shorten(text: str, limit: int) -> str:
    """`text` on one line, cut at a sentence or a word when longer than `limit` characters."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    head = line[:limit]
    stop = max(head.rfind(". "), head.rfind("。"))
    if stop > limit // 3:
        return head[: stop + 1]
    space = head.rfind(" ")
    return head[: space if space > limit // 2 else limit].rstrip(" ,;:") + "…"


def _says_more(description: str, name: str) -> bool:
    """Whether a description tells more than the parameter's own name: "Repository name" of `repo_name` does not."""
    known = set(with_stems(split_identifier(name)))
    words = split_identifier(description)
    new = [word for word in words if not known & set(with_stems([word])) and len(word) > 3]
    return len(new) > 1


def _resolve(node: Mapping[str, Any], root: Mapping[str, Any], seen: frozenset[str]) -> tuple[Any, frozenset[str]]:
    """`node` with a local `$ref` followed; a repeated or foreign one is left as it is."""
    ref = node.get("$ref")
    if not isinstance(ref, str) or not ref.startswith("#/") or ref in seen:
        return node, seen
    target: Any = root
    for step in ref[2:].split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, Mapping) or step not in target:
            return node, seen
        target = target[step]
    if isinstance(target, Mapping):
        return {**target, **{key: value for key, value in node.items() if key != "$ref"}}, seen | {ref}
    return target, seen


class _Trimmer:
    """Trims one schema. Inlined references can multiply without end, so nodes are counted and the rest is left out."""

    def __init__(self, root: Mapping[str, Any], detail: _Detail) -> None:
        self._root = root
        self._detail = detail
        self._left = _MOST_NODES

    def trim(
        self, node: Any, depth: int = 0, seen: frozenset[str] = frozenset(), name: str = "", required: bool = True
    ) -> Any:
        if not isinstance(node, Mapping):
            return node
        self._left -= 1
        if self._left < 0:
            return {}
        resolved, seen = _resolve(node, self._root, seen)
        if not isinstance(resolved, Mapping):
            return resolved
        node = resolved
        out: dict[str, Any] = {key: node[key] for key in ("type", "const", "$ref") if key in node}
        if self._detail.bounds:
            out |= {key: node[key] for key in _BOUNDS if key in node and node[key] is not None}
        if depth:
            self._describe(out, node, name, required)
        values = node.get("enum")
        if isinstance(values, list):
            out["enum"] = values if len(values) <= _ENUM_LIMIT else [*values[:_ENUM_LIMIT], "…"]
        if depth >= _DEPTH:
            return out
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(node.get(key), list):
                out[key] = [self.trim(item, depth + 1, seen, name, required) for item in node[key]]
        if isinstance(node.get("properties"), Mapping):
            needed = node["required"] if isinstance(node.get("required"), list) else []
            is_needed = {name for name in needed if isinstance(name, str)}
            out["properties"] = {
                each: self.trim(item, depth + 1, seen, each, each in is_needed)
                for each, item in node["properties"].items()
            }
            if needed:
                out["required"] = needed
        for key in ("items", "additionalProperties"):
            if isinstance(node.get(key), Mapping):
                out[key] = self.trim(node[key], depth + 1, seen, name, required)
        if "properties" in out and out.get("type") == "object":
            del out["type"]  # only an object has properties
        return _without_null(out)

    def _describe(self, out: dict[str, Any], node: Mapping[str, Any], name: str, required: bool) -> None:
        description = node.get("description")
        limit = self._detail.required if required else self._detail.optional
        if not isinstance(description, str) or not description or not limit:
            return
        if self._detail.telling and not _says_more(description, name):
            return
        out["description"] = shorten(description, limit)


def _without_null(out: dict[str, Any]) -> dict[str, Any]:
    """The usual spelling of "optional", `anyOf` of one type and null, as that one type."""
    options = out.get("anyOf")
    if isinstance(options, list) and len(options) == 2 and {"type": "null"} in options:
        (kept,) = [option for option in options if option != {"type": "null"}] or [{}]
        if isinstance(kept, dict):
            rest = {key: value for key, value in out.items() if key != "anyOf"}
            return {**kept, **{key: value for key, value in rest.items() if value is not None}}
    return out


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def _cut(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that is huge even without a description: as many of its parameters as fit, required ones first."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {"type": "object"}
    needed = dict.fromkeys(name for name in schema.get("required", []) if name in properties)
    kept: dict[str, Any] = {}
    left = _SIZE_LIMIT
    for name in [*needed, *(name for name in properties if name not in needed)]:
        left -= 2 * len(name) + 8 + _size(properties[name])
        if left < 0:
            break
        kept[name] = properties[name]
    return {"properties": kept, "required": [name for name in needed if name in kept]}


def trimmed_input(schema: Mapping[str, Any] | None, budget: int = BUDGET_CHARACTERS) -> dict[str, Any]:
    """An input schema as a caller needs it, in the most detail that `budget` characters of compact JSON hold.

    The least detail is given whatever its size: structure is worth more than the budget. Only what no tool needs and
    an attack would send, tens of thousands of characters of it, is cut.
    """
    whole = schema or {"type": "object"}
    trimmed: Any = {}
    for detail in _LEVELS:
        trimmed = _Trimmer(whole, detail).trim(whole)
        if not isinstance(trimmed, dict):
            return {"type": "object"}
        if _size(trimmed) <= budget:
            break
    return _cut(trimmed) if _size(trimmed) > _SIZE_LIMIT else dict(trimmed)


def brief(card: Card) -> dict[str, Any]:
    """A card as a starter of a draft shows it (DESIGN: `id`, `kind`, `description`, and `input` or `note`)."""
    shown: dict[str, Any] = {
        "id": card.id,
        "kind": card.kind.value,
        "description": shorten(card.description or card.title or card.name, _DESCRIPTION_LIMIT),
    }
    if card.kind is Kind.TOOL:
        shown["input"] = trimmed_input(card.input_schema)
    else:
        shown["note"] = "calling this returns its instructions"
    return shown
