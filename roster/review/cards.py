"""A card, field by field, under every rule. Pure: no model, no network, no disk."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from roster.cards import Card, Kind
from roster.review.findings import MESSAGES, Finding, Rule, Severity
from roster.review.hidden import hidden_in, spelled_in_tags
from roster.review.orders import Foreign, Found, orders_in, orders_in_name
from roster.review.scripts import commands_in
from roster.review.text import BODY_LIMIT, FIELD_LIMIT, bounded, fold_text, visible
from roster.words import split_identifier

__all__ = ["Known", "known", "review"]

MOST_FINDINGS = 20
_SHORTEST = 6
_PLAIN = 40
"""Characters up to which one ASCII word is a name, a type or a format and no sentence."""
_MOST_FIELDS, _DEPTH = 3_000, 24
_CLOSE = 400
"""Characters within which one finding makes another more serious."""
_READ = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "body")
_NAMES = ("properties", "$defs", "definitions", "patternProperties")
_SERIOUS = frozenset(
    {Rule.CONCEALS, Rule.SKIPS_APPROVAL, Rule.DEMANDS_SECRETS, Rule.SENDS_OUT, Rule.OTHER_TOOLS, Rule.OBEYS_OUTPUT,
     Rule.RUNS_FIRST, Rule.STANDING_ORDER, Rule.OVERRIDES, Rule.FAKE_MARKUP, Rule.WANTS_CONTEXT, Rule.PERSISTS}
)  # fmt: skip
_HIDING = frozenset({Rule.ZERO_WIDTH, Rule.BIDI, Rule.CONTROLS, Rule.MIXED_SCRIPT, Rule.PADDING})
_BLOB = re.compile(r"[A-Za-z0-9+/_-]{40,}={0,2}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){20,}")
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2}[\w.-]{0,2}){6,}")
_ROT = re.compile(r"rot-?_?\s?13", re.IGNORECASE)
_CODE = re.compile(r"\.(?:md|markdown|txt|rst|html?)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Known:
    """Whose tools there are, so that an order about another server's tool is known as one.

    owners: tool name, folded, to the servers that have a tool of that name. Names of one word are words, and left out.
    """

    owners: Mapping[str, frozenset[str]]

    def foreign(self, server: str) -> Callable[[str], bool]:
        """Whether a word is the name of a tool that only other servers have."""
        return lambda word: server not in self.owners.get(word, (server,))


def known(cards: Iterable[Card]) -> Known:
    """What `review` needs to know of all the cards."""
    owners: dict[str, set[str]] = {}
    for card in cards:
        if card.kind is Kind.TOOL and len(card.name) >= _SHORTEST and len(split_identifier(card.name)) > 1:
            owners.setdefault(fold_text(card.name).text, set()).add(card.server)
    return Known({name: frozenset(servers) for name, servers in owners.items()})


@dataclass(frozen=True, slots=True)
class _Field:
    where: str
    text: str
    name: bool = False
    """A tool's or parameter's name."""
    parameter: bool = False
    """It describes an argument."""
    document: bool = False
    """A skill's body or file."""
    code: bool = False


def review(card: Card, names: Known, files: Mapping[str, str] | None = None) -> list[Finding]:
    """What a person should look at in a card, most serious first, at most MOST_FINDINGS; [] for nearly every card.

    files: path to text of a skill's other files, where the caller has read them. Each field is read up to a limit,
    half from its beginning and half from its end. Nothing is executed, and no finding proves an intention.
    """
    foreign = names.foreign(card.server)
    found: dict[tuple[Rule, str], Finding] = {}
    for field in _fields(card, files or {}):
        for finding in _review_field(field, card.kind, foreign):
            key = (finding.rule, finding.where)
            if key not in found or finding.severity.rank < found[key].severity.rank:
                found[key] = finding
    return sorted(found.values(), key=lambda finding: finding.severity.rank)[:MOST_FINDINGS]


# ---------------------------------------------------------------------------------------------- fields


def _fields(card: Card, files: Mapping[str, str]) -> Iterator[_Field]:
    """Every text of a card that a model may read: names, descriptions, defaults, enums, whatever the schema nests."""
    skill = card.kind is Kind.SKILL
    left = _MOST_FIELDS
    for key in _READ:
        for field in _walk(card.raw.get(key), key, 0):
            left -= 1
            if left < 0:
                return
            yield field
    if skill:
        for path, text in sorted(files.items()):
            code = not _CODE.search(path)
            yield _Field(f"files/{path}", text, document=True, code=code)


def _walk(value: Any, where: str, depth: int) -> Iterator[_Field]:
    if depth > _DEPTH:
        return
    if isinstance(value, str):
        inside = where.startswith(("inputSchema", "outputSchema"))
        yield _Field(where, value, name=where == "name", parameter=inside, document=where == "body")
    elif isinstance(value, Mapping):
        names = where.rpartition(".")[2] in _NAMES
        for key, item in value.items():
            key = str(key)
            shown = visible(key, room=60)
            if names or key.count(" ") or not key.isascii():
                yield _Field(f"{where}.{shown}", key, name=True)
            yield from _walk(item, f"{where}.{shown}", depth + 1)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _walk(item, f"{where}[{i}]", depth + 1)


# ----------------------------------------------------------------------------------------------- rules


def _review_field(field: _Field, kind: Kind, foreign: Foreign) -> Iterator[Finding]:
    if len(field.text) < 4:
        return
    limit = BODY_LIMIT if field.document else FIELD_LIMIT
    text = bounded(field.text, limit)
    if len(field.text) > limit:
        yield _finding(Rule.PARTLY_READ, Severity.LOW, field.where, text, limit // 2, limit // 2)
    found = list(_found(text, field, kind, foreign))
    hiding = any(rule in _HIDING and severity is not Severity.LOW for rule, severity, *_ in found)
    for rule, severity, start, end, lift in found:
        company = lift and rule in _SERIOUS and (
            hiding
            or any(other in _SERIOUS and other is not rule and lifts and abs(start - at) < _CLOSE
                   for other, degree, at, _, lifts in found
                   if degree is not Severity.LOW or rule is not Rule.FAKE_MARKUP)
        )  # fmt: skip
        if company:
            severity = Severity.MEDIUM if severity is Severity.LOW else Severity.HIGH
        yield _finding(rule, severity, field.where, text, start, end)


_Place = tuple[Rule, Severity, int, int, bool]


def _found(text: str, field: _Field, kind: Kind, foreign: Foreign) -> Iterator[_Place]:
    """(rule, severity, start, end, whether others nearby make it more serious), in the source."""
    for rule, severity, start, end in hidden_in(text):
        if rule is Rule.MIXED_SCRIPT and field.name:
            severity = Severity.HIGH
        yield rule, severity, start, end, False
    skill = kind is Kind.SKILL
    if field.name:
        yield from ((rule, Severity.MEDIUM, 0, len(text), True) for rule in orders_in_name(split_identifier(text)))
    if text.isascii() and len(text) < _PLAIN and " " not in text:
        return
    if not field.code:
        yield from _orders(text, foreign, skill=skill, parameter=field.parameter)
        for spelled, start, end in _decoded(text):
            if any(found.severity is not Severity.LOW for found in _spelled(spelled, foreign)):
                yield Rule.ENCODED, Severity.HIGH, start, end, False
    for rule, severity, start, end in commands_in(text, code=field.code):
        # A tool's text has no setup to explain: a command there is one for the model.
        worse = rule is Rule.PIPES_TO_SHELL and not skill
        yield rule, Severity.HIGH if worse else severity, start, end, True


def _orders(text: str, foreign: Foreign, *, skill: bool, parameter: bool) -> Iterator[_Place]:
    folded = fold_text(text)
    for found in orders_in(folded, foreign, skill=skill, parameter=parameter):
        yield found.rule, found.severity, *folded.span(found.start, found.end), found.lift


def _spelled(text: str, foreign: Foreign) -> list[Found]:
    return list(orders_in(fold_text(text), foreign, skill=False, parameter=False)) + [
        Found(rule, severity, start, end) for rule, severity, start, end in commands_in(text, code=False)
    ]


def _decoded(text: str) -> Iterator[tuple[str, int, int]]:
    """(text, start, end) of what is written in base64, hexadecimal, rot13 or invisible characters, where it is text."""
    for pattern, decode in ((_HEX, bytes.fromhex), (_BLOB, _unbase64)):
        for i, match in enumerate(pattern.finditer(text)):
            if i >= 20:
                break
            try:
                plain = decode(match.group()[:4_000]).decode("ascii")
            except (ValueError, binascii.Error):
                continue
            if plain.isprintable() or "\n" in plain:
                yield plain, *match.span()
    if percent := _PERCENT.search(text):
        yield unquote(percent.group()[:4_000]), *percent.span()
    if rot := _ROT.search(text):
        yield codecs.decode(text[rot.start() : rot.start() + 4_000], "rot13"), *rot.span()
    if not text.isascii() and (hidden := spelled_in_tags(text)):
        yield hidden, 0, min(len(text), 160)


def _unbase64(text: str) -> bytes:
    text = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(text + "=" * (-len(text) % 4))


def _finding(rule: Rule, severity: Severity, where: str, text: str, start: int, end: int) -> Finding:
    return Finding(rule, severity, where, MESSAGES[rule], visible(text, start, end))
