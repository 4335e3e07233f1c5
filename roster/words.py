"""Identifiers and sentences as words. Pure, and Unicode throughout: no step assumes ASCII."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

import snowballstemmer

TOKENS_VERSION = 2
"""Version of `tokens` and `with_stems`; cards on file with another one are indexed anew."""

__all__ = [
    "TOKENS_VERSION",
    "fold",
    "length_of",
    "split_identifier",
    "squashed",
    "steps_of",
    "tokens",
    "tokens_of_need",
    "with_stems",
]

# Where one written word becomes two: fooBar, HTTPServer, v2.
_BOUNDARY = re.compile(
    r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])",
)
_RUN = re.compile(r"[^\W_]+")
# Scripts written without spaces: kana, Han (with extensions A and compatibility), Hangul, Thai.
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\u0e00-\u0e7f]+")

_STEMMER = snowballstemmer.stemmer("english")
_STEM_MARK = "s0"

# Words that say how a need is phrased, not what it is about. Left out of needs only, never out of cards.
_PHRASING = frozenset(
    "a an and are as at be by can could do does for from has have how i in is it its me my of on or our please so that "
    "the their them then there these this to up us was we what when where which who will with would you your".split()
)

# Where one step of a need ends and the next begins: sentences, lines, and the words that join two orders in English.
_STEP = re.compile(r"(?<=[.!?;])\s+|\n+|,?\s+(?:and then|then|after that|also|and)\s+|[。！？；]", re.IGNORECASE)
_STEP_WORDS = 3
_MOST_STEPS = 8


def fold(text: str) -> str:
    """`text` without case, accents and compatibility forms, so that `Café` and `CAFE` are one word."""
    # Folding case can give characters that decompose again, and the other way round.
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def _runs(text: str) -> list[str]:
    # Composed first: a combining accent is no letter and would cut its word in two.
    return _RUN.findall(unicodedata.normalize("NFKC", text))


def split_identifier(name: str) -> list[str]:
    """The words of an identifier, folded: `getHTTPStatus_v2` is get, http, status, v, 2."""
    return [folded for run in _runs(name) for part in _BOUNDARY.split(run) if (folded := fold(part))]


def squashed(name: str) -> str:
    """The letters and digits of a name, folded, in a row: `list_issues`, `listIssues` and `list issues` are one."""
    return "".join(fold(run) for run in _runs(name))


def steps_of(need: str) -> list[str]:
    """The steps a need is made of, at most eight, each of three words or more; [] when it is a single one."""
    steps = [step for part in _STEP.split(need) if len((step := (part or "").strip()).split()) >= _STEP_WORDS]
    return steps[:_MOST_STEPS] if len(steps) > 1 else []


def tokens(text: str) -> list[str]:
    """What the full-text index stores: folded words; for scripts without spaces, pairs of characters and each one."""
    out: list[str] = []
    for run in _runs(text):
        if run.isascii():
            out += [fold(part) for part in _BOUNDARY.split(run) if part]
            continue
        at = 0
        for match in _UNSPACED.finditer(run):
            out += split_identifier(run[at : match.start()])
            script = fold(match.group())
            # Pairs are exact, single characters forgiving: on Chinese train needs both together found 69 % of the
            # right cards in the first five, pairs alone 61 %.
            out += [script[i : i + 2] for i in range(len(script) - 1)]
            out += script
            at = match.end()
        out += split_identifier(run[at:])
    return out


@lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    return str(_STEMMER.stemWord(word))


def with_stems(words: Iterable[str]) -> list[str]:
    """Each word and, marked as one, its English stem: `files` meets `file`, and meets `files` twice as well.

    Porter 2 (Snowball). Of five ways to stem, measured on the train splits of eight need sets, only this one helped
    without costing any set more than 0.005 nDCG@5; stems alone cost sets with near-equal names.
    """
    return [form for word in words for form in (word, _STEM_MARK + _stem(word))]


def length_of(need: str) -> int:
    """How many words worth looking up a need has; where words are not spaced, pairs of characters count."""
    return sum(len(token) > 1 or token.isascii() for token in tokens_of_need(need))


def tokens_of_need(need: str) -> list[str]:
    """The distinct words of a need worth looking up, in order; phrasing words only if there is nothing else."""
    every = list(dict.fromkeys(tokens(need)))
    return [token for token in every if token not in _PHRASING] or every
