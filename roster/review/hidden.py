"""Characters that people do not see, and what they spell out. Pure; each writing system keeps what it needs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from roster.review.findings import Rule, Severity
from roster.review.text import CONFUSABLE

__all__ = ["hidden_in", "mixed_word", "spelled_in_tags"]

_TAGS = re.compile("[\U000e0001-\U000e007f]+")
# England, Scotland and Wales have flags made of a black flag and tags.
_FLAG = re.compile("\U0001f3f4[\U000e0061-\U000e007a\U000e0030-\U000e0039]{2,6}\U000e007f")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}")
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")
_OVERRIDE = re.compile("[\u202d\u202e]")
_ZERO = re.compile("(?<=[A-Za-z])[\u200b-\u200d\u2060-\u2064\ufeff\u180e\u034f\u3164\uffa0]+(?=[A-Za-z])")
_ZERO_RUN = re.compile("[\u200b-\u200d\u2060-\u2064\ufeff]{6,}")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
_BLANK = re.compile(r"\s{40,}")
_WORD = re.compile(r"[^\W\d_]+")


def hidden_in(text: str) -> Iterator[tuple[Rule, Severity, int, int]]:
    """(rule, severity, start, end) of hidden characters, at most one of each rule."""
    if not text.isascii():
        yield from _unicode(text)
    if control := _CONTROL.search(text):
        yield Rule.CONTROLS, Severity.MEDIUM, *control.span()
    for match in _BLANK.finditer(text):
        if (
            match.end() < len(text)
            and match.start() > 0
            and (len(match.group()) >= 400 or match.group().count("\n") >= 40)
        ):
            yield Rule.PADDING, Severity.MEDIUM, match.end(), min(len(text), match.end() + 80)
            break


def _unicode(text: str) -> Iterator[tuple[Rule, Severity, int, int]]:
    flags = {match.start() + 1 for match in _FLAG.finditer(text)}
    for match in _TAGS.finditer(text):
        if match.start() not in flags:
            yield Rule.TAGS, Severity.HIGH, *match.span()
            break
    if selectors := _SELECTORS.search(text):
        yield Rule.SELECTORS, Severity.HIGH, *selectors.span()
    if bidi := _BIDI.search(text):
        rtl = any(unicodedata.bidirectional(c) in ("R", "AL") for c in text)
        override = _OVERRIDE.search(text)
        severity = Severity.LOW if rtl and not override else Severity.MEDIUM if rtl or not override else Severity.HIGH
        yield Rule.BIDI, severity, *(override or bidi).span()
    zero = list(_ZERO.finditer(text))
    run = _ZERO_RUN.search(text)
    if zero or run:
        severity = Severity.MEDIUM if run or len(zero) > 2 else Severity.LOW
        yield Rule.ZERO_WIDTH, severity, *(run or zero[0]).span()
    for match in _WORD.finditer(text):
        if mixed_word(match.group()):
            yield Rule.MIXED_SCRIPT, Severity.LOW, *match.span()
            break


def mixed_word(word: str) -> bool:
    """Whether Latin letters stand in one word with letters that are drawn like Latin ones but are not."""
    if word.isascii():
        return False
    latin = any(c.isascii() for c in word)
    alike = [c for c in word if not c.isascii() and c.lower().translate(CONFUSABLE) != c.lower()]
    rest = [c for c in word if not c.isascii() and c not in alike]
    # μm, or a Russian word with a Latin abbreviation in it, has letters that pass for nothing.
    return latin and bool(alike) and not rest


def spelled_in_tags(text: str) -> str:
    """The ASCII text that tag characters and runs of variation selectors stand for."""
    tags = "".join(chr(ord(c) - 0xE0000) for match in _TAGS.finditer(text) for c in match.group() if ord(c) >= 0xE0020)
    selected = bytes(
        code - 0xFE00 if code <= 0xFE0F else (code - 0xE0100 + 16) & 0xFF
        for match in _SELECTORS.finditer(text)
        for code in map(ord, match.group())
    )
    return f"{tags} {selected.decode('utf-8', 'replace')}".strip()
