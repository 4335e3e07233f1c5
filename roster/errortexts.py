"""What a failure's words say: the class they stand for and the rule that says so. Pure.

Text is the last thing to believe, and it is only ever asked about a call that has failed. Bounded: the first and the
last 2,000 characters are read. What is quoted, and what a text merely names (paths, addresses, identifiers), is what
the failure is about and does not count. The wordings are in `errorwordings.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from roster.errorlikeness import likeness
from roster.outcomes import Clue, Outcome, class_of_status
from roster.waits import ends_of

__all__ = ["decided", "prepared", "read", "read_code"]

LONGEST_WORD = 60

_CLASSES = {outcome.value.rpartition(":")[2]: outcome for outcome in Outcome}
_SURE, _STRONG, _NUMBER, _HINT = 9, 6, 5, 4
"""Weights: of a wording that says who must act, of one that names a cause, of a number, of the best hint."""
_OUTVOTED, _SPEAKS = 0.55, 6
"""The share that likeness must have to overrule a wording that is not sure, and the words a text must have for that."""


# ---------------------------------------------------------------------------------------- the wordings


@dataclass(frozen=True, slots=True)
class _Rule:
    clue: Clue
    weight: int
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class _Table:
    """The wordings, compiled, and what numbers stand for."""

    english: tuple[_Rule, ...]
    near: tuple[_Rule, ...]
    far: tuple[_Rule, ...]
    neutral: re.Pattern[str]
    numbers: Mapping[str, Mapping[str, Outcome]]


@cache
def _table() -> _Table:
    """Read and compiled at the first failure: whoever only succeeds never pays for it."""
    data = tomllib.loads(Path(__file__).with_name("errorwordings.toml").read_text("utf-8"))
    lists = {name: "".join(words.split()) for name, words in data["lists"].items()}

    def rules(rows: list[dict[str, Any]], compiled: Any) -> tuple[_Rule, ...]:
        return tuple(
            _Rule(
                Clue(_CLASSES[row["class"]], row["name"], row.get("kind", ""), row.get("formal", False)),
                row["weight"],
                compiled(row["wordings"]),
            )
            for row in rows
        )

    def worded(wordings: str) -> re.Pattern[str]:
        return re.compile("|".join("".join(_slot(word, lists) for word in line.split()) for line in _lines(wordings)))

    def written(wordings: str) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(word).replace("…", r"[^。\n]{0,10}") for word in wordings.split()))

    return _Table(
        rules(data["english"], worded),
        rules(data["near"], worded),
        rules(data["far"], written),
        worded(data["neutral"]["wordings"]),
        {
            name: {str(number): _CLASSES[class_] for class_, numbers in data[name].items() for number in numbers}
            for name in ("errno", "winerror", "curl", "sqlstate")
        },
    )


def _lines(wordings: str) -> Iterator[str]:
    """One wording a line; one that is indented deeper goes on with the line before it."""
    whole = ""
    for line in filter(str.strip, wordings.splitlines()):
        if line.startswith(" " * 8):
            whole += line.strip() if whole.endswith("|") else f" {line.strip()}"
        else:
            if whole:
                yield whole
            whole = line.strip()
    yield whole


def _slot(word: str, lists: Mapping[str, str]) -> str:
    """One word of a wording as a regular expression over ` word word . word `."""
    optional = word.endswith("?")
    word = word.removesuffix("?")
    match word:
        case "~":
            return rf"(?: (?![.:] )\S+){{0,{2 if optional else 6}}}?"
        case "^":
            return r"(?:^|(?<= \.)|(?<= :))"
        case "$":
            return r"(?= \. |\s*$)"
    while "{" in word:
        word = re.sub(r"\{(\w+)\}", lambda found: lists[found[1]], word)
    choices = sorted(word.split("|"), key=len, reverse=True)
    each = (" ".join(map(_part, choice.split("_"))) for choice in choices)
    return rf"(?: (?:{'|'.join(each)})(?= )){'?' if optional else ''}"


def _part(part: str) -> str:
    return r"(?:§|\S*\d\S*)" if part == "§" else re.escape(part).replace(r"\*", r"\S*")


# ------------------------------------------------------------------------------- from text to plain words

_QUOTE_KEPT = r"(?!\w*(?:Error|Exception|Timeout|Refused)\(|[45]\d\d [A-Z]|jsonrpc\b)"
"""What is quoted but no literal: an exception as Python writes it, an HTTP status with its reason, our own protocol."""
_QUOTED = re.compile(
    rf'"{_QUOTE_KEPT}(?:[^"\\\n]|\\.){{0,400}}"|(?<!\w)\'{_QUOTE_KEPT}(?:[^\'\n\\]|\\.|\'(?=\w)){{0,400}}\'(?!\w)'
    r"|`(?!jsonrpc\b)[^`\n]{0,400}`|“[^”]{0,400}”|„[^“”\"]{0,400}[“”\"]|«[^»]{0,400}»|»[^«\n]{0,400}«|‘[^’\n]{0,400}’"
    r"|「[^」]{0,400}」|『[^』]{0,400}』|《[^》\n]{0,400}》"
)
_TAG = re.compile(r"<(?:script|style)\b.{0,2000}?</(?:script|style)>|</?[a-zA-Z!][^<>]{0,300}>", re.DOTALL)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s\"'<>)\]]+|\bwww\.[^\s\"'<>)]+", re.IGNORECASE)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}\b")
_HOST = re.compile(
    r"(?<![\w.-])(?:[a-z0-9-]{1,63}\.){1,8}(?:com|org|net|io|dev|ai|app|co|uk|de|fr|eu|local|internal|example|test|"
    r"invalid|gov|edu|us|cn|jp|cloud)\b(?::\d+)?|\blocalhost(?::\d+)?\b"
)
_PATH = re.compile(r"(?<![\w.])(?:[A-Za-z]:\\[^\s\"'<>|,;]+|(?:~|\.{1,2})?/[\w.@%+=-][^\s\"'<>|,;:)\]]*)")
_FILE = re.compile(
    r"(?<![\w.-])[\w-]{1,100}(?:\.[\w-]{1,30}){0,6}\.(?:csv|json|ya?ml|txt|md|py|js|ts|tsx?|jsx?|go|rs|java|rb|php|xml|"
    r"html?|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|zip|gz|tar|log|db|sqlite3?|toml|ini|cfg|conf|env|lock|sql|sh|exe|"
    r"dll|so|parquet|mp[34]|wav)\b(?:::\S{1,200})?",
    re.IGNORECASE,
)
_EXTENSION = re.compile(r"(?<![\w.])\.[a-z][a-z0-9]{1,4}\b")
_PINNED = re.compile(r"(?<![\w.-])[\w.-]{1,100}(?:==|>=|<=|~=|@)v?\d[\w.*-]*")
_HASH = re.compile(
    r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b(?=[a-f]{0,64}\d)[0-9a-f]{12,64}\b", re.IGNORECASE
)
_NAMED = re.compile(
    r"\b((?i:id|at|path|name|named|called|role|user|table|column|index|bucket|policy|branch|relation|constraint|function|"
    r"database|topic|queue|field|parameter|argument|property|struct|key))\s+"
    r"(?=\S{0,200}?(?:[a-z][A-Z]|[_\d-]|\w[.:]\w))(?!not_|is_)[\w.:-]*\w"
)
"""A name that follows what it names and does not look like a plain word."""
_SAID = re.compile(
    r"(?<!raise )(?<!throw )(?<!new )\b(?!Key)([A-Z]\w{0,60}(?:Error|Exception|Timeout))\((?:\d+, ?)?"
    r"(?:\"([^\"\n]{1,400})\"|'([^'\n]{1,400})')(?=\))"
)
"""What an exception says, as Python writes it: a message, not a literal."""
_MORE = re.compile(r"(?<=\d) ?>=? ?(?=\d)")
_DURATION = re.compile(r"\b(\d+(?:\.\d+)?)(ms|s|secs?|mins?|m|h)\b")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_TOKEN = re.compile(r"-\d+\b|\d+(?:[.,:]\d+)+|[^\W_]+(?:/[^\W_]+)?|§|[.!?;\n()]|[:=]|—|–")
_CONTRACTIONS = {
    "cant": "cannot", "couldnt": "could not", "doesnt": "does not", "isnt": "is not", "arent": "are not",
    "wasnt": "was not", "werent": "were not", "wont": "will not", "dont": "do not", "didnt": "did not",
    "hasnt": "has not", "havent": "have not", "youre": "you are", "shouldnt": "should not", "mustnt": "must not",
    "wouldnt": "would not", "ive": "i have", "youve": "you have", "weve": "we have", "theres": "there is",
}  # fmt: skip
_COUNTS = {"three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9", "ten": "10",
           "twelve": "12", "twenty": "20", "thirty": "30", "sixty": "60", "hundred": "100"}  # fmt: skip
_SPELT = {**_CONTRACTIONS, **_COUNTS}
_ADVICE = re.compile(
    r"(?:if|please|check|make sure|ensure|verify|see|for more|learn|visit|read|hint|tip|note|try|consider|you can|"
    r"you may|contact|refer|to fix|to resolve|documentation|docs|more info|did you forget|perhaps|maybe|context|"
    r"for further|are you sure|help|go to|suggestion|possible causes?|this (?:may|can|could|might|usually|probably|"
    r"often)|it (?:may|might|could)|often|usually)\b"
)


def _without_advice(text: str) -> str:
    """A text without the sentences that only advise; the first sentence always stays."""
    first, *rest = re.split(r"(?<=[.!?])\s+|\n+", text)
    return "\n".join([first, *(sentence for sentence in rest if not _ADVICE.match(sentence.strip().lower()))])


def _plain(text: str, *, quoted: bool) -> str:
    """A text as plain words, one space apart and at both ends; sentences end in ` . `."""
    text = _URL.sub(" § ", _TAG.sub(" . ", text))
    text = _MORE.sub(" greater than ", _SAID.sub(r"\1: \2\3 ", text))
    if not quoted:
        text = _QUOTED.sub(" § ", text)
    text = _DURATION.sub(r"\1 \2", text)
    for pattern in (_EMAIL, _HOST, _PATH, _FILE, _EXTENSION, _PINNED, _HASH):
        text = pattern.sub(" § ", text)
    text = _NAMED.sub(r"\1 §", text)
    words: list[str] = []
    for word in _TOKEN.findall(_HUMP.sub(" ", text.replace("\u2019", "'").replace("'", ""))):
        if word in ".!?;\n()—–":
            if words and words[-1] != ".":
                words.append(".")
        else:
            folded = word.casefold()
            words.append(_SPELT.get(folded, folded) if len(word) <= LONGEST_WORD else "§")
    plain = f" {' '.join(words)} "
    for apart, together in (("can not", "cannot"), ("time out", "timeout"), ("un authorized", "unauthorized")):
        plain = plain.replace(f" {apart} ", f" {together} ")
    return plain


# -------------------------------------------------------------------------------- JSON inside of a text

_KEYS = (
    "message|msg|error|errors|errorMessages|error_message|errorMessage|error_description|error_msg|detail|details|title|"
    "description|reason|code|status|statusCode|status_code|errorCode|error_code|type|__type|name|category|cause|"
    "error_type|errorType|failure|fault|faultstring|exception|info|error_summary|userMessage|http_status|httpStatus|"
    "statusText|errmsg|err|errorId|subcode"
)
_PAIR = re.compile(
    rf"""["']({_KEYS})["']\s*:\s*"""
    r"""(?:"((?:[^"\\]|\\.)*)"?|'((?:[^'\\]|\\.)*)'?|(-?\d+(?:\.\d+)?)|\[\s*"((?:[^"\\]|\\.)*)")"""
)
_NUMBERED = frozenset("code status statusCode status_code errorCode error_code http_status httpStatus".split())
_ESCAPES = {"n": "\n", "t": " ", "r": " "}


def _pairs(text: str, depth: int = 3) -> Iterator[tuple[str, str]]:
    """The telling keys and values of JSON, or of something like it, also where it is written inside of a string."""
    for found in _PAIR.finditer(text):
        key, *values = found.groups()
        inner = re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), next(filter(None, values), ""))
        begin = re.search(r"[{\[]", inner)
        if depth and begin and _PAIR.search(inner):
            yield key, inner[: begin.start()]
            yield from _pairs(inner, depth - 1)
        else:
            yield key, inner


def _from_json(text: str) -> str:
    """A text with what looks like JSON in it replaced by what its telling keys say."""
    begin = min((at for mark in ("{", "[{", "[\n") if (at := text.find(mark)) >= 0), default=-1)
    pairs = list(_pairs(text[begin:])) if begin >= 0 else []
    if not pairs:
        return text
    said = [text[:begin]]
    for key, value in pairs:
        if key in _NUMBERED and value.isdigit():
            said.append(f"HTTP {value}" if len(value) == 3 else f"code {value}")
        elif key not in ("type", "name") or not re.search(r"[/: ]", value):  # else an address or a title
            said.append(value.rpartition("#")[2] if key == "__type" else value)
    return "\n".join(part for part in said if part.strip())


# --------------------------------------------------------------------------------- traces and attempts

_PYTHON_TRACE = re.compile(r"^Traceback \(most recent call last\):", re.MULTILINE)
_FRAME = re.compile(r"^[ \t]+(?:at |File \"|\.\.\. \d+ more)|^at (?:async )?[\w$.<>\[\] ]{1,200}\(", re.MULTILINE)
_CAUSED = re.compile(r"^[ \t]*(?:Caused by: |\[cause\]: |--->[ \t]*)(.+)$", re.MULTILINE)
_ATTEMPT = re.compile(r"^\W{0,4}(?:attempt|try|retry)[ \t]{0,2}#?\d+\b(.*)$", re.MULTILINE | re.IGNORECASE)
_RAISED = re.compile(r"[A-Za-z_][\w.]*\b(?::|$)")
_EXCEPTION = re.compile(
    r"[A-Za-z_][\w.]*(?:Error|Exception|Timeout|Exit|Interrupt|Refused|Failed|Denied|Expired|Closed|Gone)\b"
)


def _decisive(text: str) -> str:
    """The part of a text that names the cause: of several attempts the last, of a trace its exception."""
    attempts = _ATTEMPT.findall(text)
    if len(attempts) > 1:
        return str(attempts[-1])
    if _PYTHON_TRACE.search(text):
        lines = text.splitlines()
        margins = [at for at, line in enumerate(lines) if _RAISED.match(line)]
        last = next((at for at in reversed(margins) if _EXCEPTION.match(lines[at])), margins[-1] if margins else 0)
        return "\n".join(lines[last:])
    if _FRAME.search(text):
        causes = _CAUSED.findall(text)
        kept = "\n".join(line for line in text.splitlines() if not _FRAME.match(line))
        return str(causes[-1]) if causes else kept or text
    at = max(text.rfind("aused by "), text.rfind("aused by: "))
    return text[at + 8 :] if at >= 0 else text


# ------------------------------------------------------------------------------------------- numbers

_STATUS = re.compile(
    r"(?: http(?: error| status| code)*| status(?: code)*| error(?: code)*| code| returned(?: error)?|"
    r" response(?: code)*| responded with| answered(?: with)?| got(?: a)?| with|^| \.)(?: [:=])? (?:a |an )?"
    r"([45]\d\d)(?= )(?! [245]\.\d)"  # a mail server's code has another one behind it, such as 5.1.1
)
_STATUS_AND_REASON = re.compile(
    r" ([45]\d\d) (?:client error|server error|unauthorized|forbidden|not found|bad request|too many|internal|"
    r"bad gateway|error|response|service|gateway|conflict|gone|payment|unprocessable|precondition|request|method|"
    r"locked|not acceptable|unavailable|status)"
)
_NUMBERS = (
    ("errno", re.compile(r"\[Errno (-?\d+)\]|\(os error (\d+)\)")),
    ("winerror", re.compile(r"\[WinError (\d+)\]|\bSystem error (\d+)\b")),
    ("curl", re.compile(r"\bcurl: \((\d+)\)|\bcurl (\d+) ")),
    ("sqlstate", re.compile(r"\bSQLSTATE\W{0,2}([0-9A-Z]{5})\b|\b\d{4} \(([0-9A-Z]{5})\)")),
)


def _by_status(words: str) -> Clue | None:
    found = _STATUS_AND_REASON.search(words) or _STATUS.search(words)
    outcome = class_of_status(int(found[1])) if found else None
    if found is None or outcome is None:
        return None
    kind = "unavailable" if outcome is Outcome.INTERNAL else "refused" if found[1] == "403" else ""
    return Clue(outcome, f"status-{found[1]}", kind)


def _by_number(text: str) -> Clue | None:
    """What a number of the operating system's, a database's or curl's says."""
    for name, pattern in _NUMBERS:
        if found := pattern.search(text):
            number, table = str(found[1] or found[2]), _table().numbers[name]
            lengths = (5, 3, 2) if name == "sqlstate" else (len(number),)
            outcome = next((table[number[:n]] for n in lengths if number[:n] in table), None)
            if outcome is not None:
                return Clue(outcome, name, "unavailable" if outcome is Outcome.INTERNAL and name == "curl" else "")
    return None


# --------------------------------------------------------------------------------------------- reading


def _weightiest(rules: Iterable[_Rule], words: str) -> tuple[Clue | None, int]:
    """The clue of the weightiest rule that matches, of several alike the first to, and its weight."""
    best: tuple[int, int] = (0, 0)
    clue: Clue | None = None
    for rule in rules:
        if rule.weight >= best[0] and (found := rule.pattern.search(words)):
            rank = (rule.weight, -found.start())
            if clue is None or rank > best:
                best, clue = rank, rule.clue
    return clue, best[0]


def _read_words(words: str) -> tuple[Clue | None, int]:
    words = _table().neutral.sub(" §", words)
    clue, weight = _weightiest(_table().english, words)
    if weight < _NUMBER and (status := _by_status(words)) is not None:
        return status, _NUMBER
    return clue, weight


def read(text: str) -> Clue | None:
    """What a failure's text says; None when it says nothing that is known here."""
    words, clue, weight = prepared(text)
    return clue if weight >= _SURE else decided(words, clue, weight, *likeness(words))


def decided(words: str, clue: Clue | None, weight: int, like: Outcome | None, share: float) -> Clue | None:
    """What wordings say of a text, unless they are not sure and the words as a whole are like another class."""
    if weight >= _SURE or like is None or (clue is not None and clue.formal):
        return clue
    outvoted = clue is not None and like is not clue.outcome and share >= _OUTVOTED and len(words.split()) >= _SPEAKS
    return Clue(like, "likeness") if clue is None or weight <= _HINT or outvoted else clue


def prepared(text: str) -> tuple[str, Clue | None, int]:
    """The words of a text that count, what the wordings and numbers in it say, and the weight of that."""
    raw = ends_of(text)
    traced = _FRAME.search(raw) is not None or _PYTHON_TRACE.search(raw) is not None
    text = _without_advice(_decisive(_from_json(raw)))
    plain = _plain(text, quoted=False)
    if re.fullmatch(r"\s*'[^'\n]{1,80}'\s*", raw):
        return plain, Clue(Outcome.INTERNAL, "bare-key"), _SURE  # what is left of a KeyError that is handed on as text
    clue, weight = _read_words(plain)
    if weight <= _HINT and (number := _by_number(text)) is not None:
        return plain, number, _SURE
    if traced and weight < _STRONG:
        return plain, Clue(Outcome.INTERNAL, "trace"), _SURE
    if weight <= (_HINT if text.isascii() else _STRONG):
        other = _weightiest(_table().near, plain)[0] or _weightiest(_table().far, plain)[0]
        if other is not None:
            return plain, other, _SURE
    if weight <= _HINT and len(plain.split()) < 0.6 * len((whole := _plain(raw, quoted=True)).split()):
        # Most of it is quoted: somebody else's message, handed on.
        inner, inner_weight = _read_words(whole)
        if inner_weight > weight + 2:
            return plain, inner, _SURE
    return plain, clue, weight


def read_code(code: str) -> tuple[Clue | None, int]:
    """What a code word such as `RATE_LIMITED` or `AccessDeniedException` says, and its weight."""
    return _weightiest(_table().english, _plain(code, quoted=True))
