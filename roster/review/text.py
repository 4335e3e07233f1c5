"""Text as it is reviewed: bounded, folded so that all spellings of a word are one, shown with nothing hidden. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["BODY_LIMIT", "CONFUSABLE", "FIELD_LIMIT", "Folded", "bounded", "fold_text", "is_hidden", "visible"]

FIELD_LIMIT = 20_000
"""Characters of one field that are read: half from its beginning, half from its end."""
BODY_LIMIT = 60_000
"""The same for a skill's body and each of its files, which are documents."""
SENTENCE_LIMIT = 400
"""No rule looks at more at once, so that the work grows with the length of a text and not with its square."""

CONFUSABLE = str.maketrans("аеорсхуіјѕԁһԛԝьвкмнтгпαονρτυικε", "aeopcxyijsdhqwbbkmhtrnaovptuike")
"""Cyrillic and Greek small letters that are drawn like Latin ones."""
_LEET = {"0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t"}

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;:?]{0,40}[ -/]?[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
_WORD = re.compile(r"[^\W\d_]+")
_LEET_DIGIT = re.compile(
    r"(?<=[^\W\d_])[013457](?=[^\W\d_])"  # pr3vious
    r"|(?<![\w.])[013457](?=[^\W\d_]{3})"  # 1gnore
    r"|(?<=[^\W\d_]{3})[013457](?!\w)"  # ignor3; not rot13, not v1
)
_EMPHASIS = re.compile(r"(?<!\w)_+(?=[^\W_])|(?<=[^\W_])_+(?!\w)")
# Single letters with one mark between them: i g n o r e, i.g.n.o.r.e.
_SPACED = re.compile(r"(?<![\w.])[^\W\d_](?:[ .\-_·][^\W\d_]){4,}(?!\w)")
_SPACE = re.compile(r"\s+")
_END = re.compile(r"[.!?]+[\"')\]]*(?=\s|$)|[。！？；]|\n")
_ALIKE = {"’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "`": '"', "「": '"', "」": '"',
          "*": "", "ı": "i"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Folded:
    """A text as rules read it. at: for each of its characters, where in the source it comes from."""

    text: str
    at: tuple[int, ...]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """What a stretch of the folded text is in the source."""
        return self.at[start], self.at[max(start, end - 1)] + 1

    def sentences(self) -> Iterator[tuple[int, str]]:
        """(offset, sentence), each of at most SENTENCE_LIMIT characters."""
        at = 0
        for end in [*(match.end() for match in _END.finditer(self.text)), len(self.text)]:
            for start in range(at, end, SENTENCE_LIMIT):
                yield start, self.text[start : min(end, start + SENTENCE_LIMIT)]
            at = end


def bounded(text: str, limit: int = FIELD_LIMIT) -> str:
    """The first and the last of a text: padding in between hides nothing, padding before or after even less."""
    return text if len(text) <= limit else f"{text[: limit // 2]}\n\n{text[-limit // 2 :]}"


def is_hidden(char: str) -> bool:
    """Whether a character is drawn as nothing: format characters, tags, variation selectors, controls."""
    code = ord(char)
    if code < 0x7F:
        return code < 0x20 and char not in "\t\n\r"
    return (
        unicodedata.category(char) in ("Cf", "Cc")
        or 0xFE00 <= code <= 0xFE0F
        or 0xE0000 <= code <= 0xE0FFF
        or code in (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180E, 0x3164, 0xFFA0, 0x2800)
    )


def fold_text(source: str) -> Folded:
    """`source` without case, accents, compatibility forms, invisible characters, look-alike letters and tricks of
    spacing; lines joined to paragraphs."""
    gone = [False] * len(source)
    put: dict[int, str] = {}
    for match in _ESCAPES.finditer(source):
        gone[match.start() : match.end()] = [True] * (match.end() - match.start())
    if not source.isascii():
        for match in _WORD.finditer(source):
            word = match.group()
            if not word.isascii() and any(c.isascii() for c in word):
                put |= {
                    match.start() + i: other
                    for i, c in enumerate(word)
                    if (other := c.lower().translate(CONFUSABLE)) != c
                }
    put |= {match.start(): _LEET[match.group()] for match in _LEET_DIGIT.finditer(source)}
    for match in _EMPHASIS.finditer(source):
        gone[match.start() : match.end()] = [True] * (match.end() - match.start())
    for match in _SPACED.finditer(source):
        for i in range(match.start() + 1, match.end(), 2):
            gone[i] = True
    for match in _SPACE.finditer(source):
        after = source[match.end() : match.end() + 1]
        lines = match.group().count("\n")
        put[match.start()] = "\n" if lines > 1 or (lines and after in ("-", "*", "#", "|", "<")) else " "
        for i in range(match.start() + 1, match.end()):
            gone[i] = True
    out: list[str] = []
    at: list[int] = []
    for i, char in enumerate(source):
        if gone[i]:
            continue
        if i in put:
            form = put[i].lower()
        elif char.isascii():
            form = _ALIKE.get(char, char.lower()) if char.isprintable() else ""
        else:
            form = _folded(char)
        out.append(form)
        at += [i] * len(form)
    return Folded("".join(out), tuple(at))


def _folded(char: str) -> str:
    if char in _ALIKE:
        return _ALIKE[char]
    if is_hidden(char):
        return ""
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
    # Kana and Hangul keep their marks: without them they are other letters.
    if decomposed and ord(decomposed[0]) >= 0x1100:
        return unicodedata.normalize("NFKC", char).casefold()
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def visible(text: str, start: int = 0, end: int | None = None, room: int = 160) -> str:
    r"""An excerpt of `text` around `start` to `end`, at most about `room` characters, what is hidden as `\u{200B}`."""
    end = len(text) if end is None else end
    end = min(end, start + room)
    around = max(0, (room - (end - start)) // 2)
    first, last = max(0, start - around), min(len(text), end + around)
    shown = "".join(f"\\u{{{ord(c):04X}}}" if _unshowable(c) else " " if c in "\t\n\r" else c for c in text[first:last])
    shown = re.sub(" {2,}", " ", shown)
    if len(shown) > 2 * room:
        shown = shown[: 2 * room] + "…"
    return f"{'…' if first else ''}{shown}{'…' if last < len(text) else ''}"


def _unshowable(char: str) -> bool:
    # Private use and lone surrogates too: no two terminals agree on them, and a surrogate cannot be printed at all.
    return is_hidden(char) or unicodedata.category(char) in ("Co", "Cs", "Cn", "Zl", "Zp")
