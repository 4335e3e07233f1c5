"""A card: one capability as Roster knows it, its id, its fingerprint and the texts searched."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import rfc8785

from roster.words import split_identifier, tokens, with_stems

__all__ = [
    "BODY_LIMIT",
    "CARD_TEXT_VERSION",
    "FORMULA",
    "ID_LIMIT",
    "LISTED_LIMIT",
    "SKILLS",
    "Card",
    "Kind",
    "LexicalText",
    "canonical",
    "card_from_row",
    "card_from_skill",
    "card_from_tool",
    "dense_text",
    "fingerprint",
    "lexical_text",
    "listed_name",
    "parameter_names",
    "public_id",
    "raw_json",
    "skill_id",
    "text_hash",
]

FORMULA = 1
"""Version of the fingerprint formula. A new one re-baselines every card silently; it is never drift."""
CARD_TEXT_VERSION = 1
"""Version of `dense_text`; part of the index manifest."""
ID_LIMIT = 60
LISTED_LIMIT = ID_LIMIT - len("mcp__roster__")
"""Names we *list* as tools leave room for the prefix that Claude Code and others put in front of them."""

TEXT_LIMIT = 20_000
"""Characters of one field that are searched; a description of megabytes costs no more than this."""

BODY_LIMIT = 60_000
"""Characters of a skill's instructions that are searched: three times what the specification recommends."""

SKILLS = "skill"
"""The server name of skill cards: they have none of their own. A project's skills have `skill:` and a hash."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_LOOKS_HASHED = re.compile(r"-[0-9a-f]{10}$")


class Kind(StrEnum):
    """What calling a card does: a tool acts, a skill instructs."""

    TOOL = "tool"
    SKILL = "skill"


@dataclass(frozen=True, slots=True)
class Card:
    """One capability. Looked up by `id`; `raw` is the backend's own listing row, every key kept."""

    id: str
    kind: Kind
    server: str
    name: str
    title: str
    description: str
    input_schema: Mapping[str, Any] | None
    annotations: Mapping[str, Any]
    fingerprint: str
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def listed(self) -> str:
        """The tool name transparent mode lists this card under: its id, or a shorter form of it."""
        return listed_name(self.server, self.name)

    @property
    def said_server(self) -> str:
        """The server's name as texts have it: all skills have the same."""
        return SKILLS if self.kind is Kind.SKILL else self.server

    @property
    def offered(self) -> bool:
        """Whether drafts may show it at all: a skill's author can leave it to people to ask for it."""
        front = self.raw.get("annotations") if self.kind is Kind.SKILL else None
        return not (isinstance(front, Mapping) and front.get("disable-model-invocation") is True)


@dataclass(frozen=True, slots=True)
class LexicalText:
    """A card as the full-text index stores it: space-separated tokens by field."""

    name: str
    description: str
    parameters: str
    server: str


# ---------------------------------------------------------------------------------------------- names


def public_id(server: str, name: str, limit: int = ID_LIMIT) -> str:
    """`server__name` in `[A-Za-z0-9_-]`, at most `limit` characters.

    A name that had to be changed, that could be read as another pair, or that looks like a hashed one gets a
    suffix from the hash of the raw pair, so two raw names never share an id.
    """
    joined = f"{server}__{name}"
    safe = _UNSAFE.sub("-", joined)
    ambiguous = "__" in server or server.endswith("_") or server == SKILLS or not server or not name
    if safe == joined and len(safe) <= limit and not ambiguous and not _LOOKS_HASHED.search(safe):
        return safe
    digest = hashlib.sha256(f"{server}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{safe[: limit - 11]}-{digest}"


def skill_id(name: str, server: str = SKILLS) -> str:
    """`skill__name`: a server that is called "skill" has its tools' ids hashed, so this is nobody else's.

    A project's skill, whose server is another one than `SKILLS`, has a hash in its id: projects share names.
    """
    safe = _UNSAFE.sub("-", name)
    fits = len(SKILLS) + 2 + len(name) <= ID_LIMIT and not _LOOKS_HASHED.search(name)
    if safe == name and name and fits and server == SKILLS:
        return f"{SKILLS}__{name}"
    digest = hashlib.sha256(f"{server}\0\0{name}".encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{SKILLS}__{safe[: ID_LIMIT - 11 - len(SKILLS) - 2]}-{digest}"


def listed_name(server: str, name: str) -> str:
    """`public_id`, short enough for clients that prefix it with `mcp__roster__`."""
    return public_id(server, name, LISTED_LIMIT)


# -------------------------------------------------------------------------------------------- contract


def _canonical(value: Any) -> Any:
    """`value` as RFC 8785 can write it: what JSON parsers disagree on is reduced to one form."""
    match value:
        case bool() | None:
            return value
        case int() if abs(value) > 2**53 - 1:
            # Beyond what a double holds, RFC 8785 has no form; keep every digit rather than round two bounds into one.
            return f"\0int:{value}"
        case float() if not math.isfinite(value):
            return f"\0float:{value}"  # not JSON, but parsers let it in
        case float() if value.is_integer() and abs(value) <= 2**53 - 1:
            return int(value)
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case Mapping():
            return {_canonical(str(key)): _canonical(item) for key, item in value.items()}
        case list() | tuple():
            return [_canonical(item) for item in value]
        case _:
            return value


def canonical(value: Any) -> bytes:
    """`value` in the form that is fingerprinted: two values with one form are the same to every JSON parser."""
    return rfc8785.dumps(_canonical(value))


def fingerprint(kind: Kind, contract: Mapping[str, Any], files: Mapping[str, str] | None = None) -> str:
    """SHA-256 (hex) over the RFC 8785 form of everything a caller relies on.

    contract: a tool's listing row, or a skill's front matter with its `body`. Keys outside the contract (icons,
    `_meta`, unknown ones) do not count. files: path to content hash, for a skill's folder.
    """
    parts = {
        "formula": FORMULA,
        "kind": kind.value,
        "name": contract.get("name"),
        "title": contract.get("title"),
        "description": contract.get("description"),
        "inputSchema": contract.get("inputSchema"),
        "outputSchema": contract.get("outputSchema"),
        "annotations": contract.get("annotations"),
        "execution": contract.get("execution"),
        "body": contract.get("body"),
        "files": files,
    }
    return hashlib.sha256(canonical(parts)).hexdigest()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def card_from_tool(server: str, row: Mapping[str, Any], print_: str | None = None) -> Card:
    """The card of one `tools/list` row. `print_`: its fingerprint, where already known."""
    name = str(row["name"])
    annotations = row.get("annotations")
    schema = row.get("inputSchema")
    annotations = annotations if isinstance(annotations, Mapping) else {}
    return Card(
        id=public_id(server, name),
        kind=Kind.TOOL,
        server=server,
        name=name,
        title=_text(row.get("title")) or _text(annotations.get("title")),
        description=_text(row.get("description")),
        input_schema=schema if isinstance(schema, Mapping) else None,
        annotations=annotations,
        fingerprint=print_ or fingerprint(Kind.TOOL, row),
        raw=row,
    )


def card_from_skill(row: Mapping[str, Any], print_: str | None = None, server: str = SKILLS) -> Card:
    """The card of one skill folder. `print_`: its fingerprint, where already known. server: whose skill it is.

    row: the front matter's `name` and `description`, the rest of it as `annotations`, the Markdown `body`, and `files`,
    path to SHA-256 (hex) of each other file in the folder; further keys (where the folder is) are no contract.
    """
    name = str(row["name"])
    files = row.get("files")
    return Card(
        id=skill_id(name, server),
        kind=Kind.SKILL,
        server=server,
        name=name,
        title="",
        description=_text(row.get("description")),
        input_schema=None,
        annotations={},
        fingerprint=print_ or fingerprint(Kind.SKILL, row, files if isinstance(files, Mapping) else None),
        raw=row,
    )


def card_from_row(kind: Kind, server: str, row: Mapping[str, Any], print_: str | None = None) -> Card:
    """`card_from_tool` or `card_from_skill`."""
    return card_from_skill(row, print_, server) if kind is Kind.SKILL else card_from_tool(server, row, print_)


# ------------------------------------------------------------------------------------- texts we search


def dense_text(card: Card) -> str:
    """What the encoder reads: "server words, name words: description".

    Parameter descriptions stay out on purpose: in the dense text they cost azuremcp 0.17 nDCG@5.
    """
    about = (card.description or card.title)[:TEXT_LIMIT]
    return f"{' '.join(split_identifier(card.said_server))}, {' '.join(split_identifier(card.name))}: {about}"


def text_hash(text: str) -> str:
    """SHA-256 (hex) of a card text; with the encoder's fingerprint it keys a stored vector."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def parameter_names(schema: Mapping[str, Any] | None) -> list[str]:
    """Names of the parameters of an input schema, top level only."""
    properties = (schema or {}).get("properties")
    return [str(name) for name in properties] if isinstance(properties, Mapping) else []


def lexical_text(card: Card) -> LexicalText:
    """The card's tokens by field; a name of several words is also kept whole, so that it can be typed as it is.

    A skill has no parameters; in their place are the distinct words of its body. Each once: BM25 takes a long field's
    words for less, and a body of thousands would make a skill's own name count next to nothing.
    """
    name = tokens(f"{card.name} {card.title}")
    words = split_identifier(card.name)
    if len(words) > 1:
        name.append("".join(words))
    parameters = tokens(" ".join(parameter_names(card.input_schema))[:TEXT_LIMIT])
    if card.kind is Kind.SKILL:
        parameters = list(dict.fromkeys(tokens(_text(card.raw.get("body"))[:BODY_LIMIT])))
    return LexicalText(
        name=" ".join(with_stems(name)),
        description=" ".join(with_stems(tokens(card.description[:TEXT_LIMIT]))),
        parameters=" ".join(with_stems(parameters)),
        server=" ".join(with_stems(tokens(card.said_server))),
    )


def raw_json(row: Mapping[str, Any]) -> str:
    """A listing row as it is stored: every key, ASCII only so that even lone surrogates survive SQLite."""
    return json.dumps(row, ensure_ascii=True, separators=(",", ":"))
