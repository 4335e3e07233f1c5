"""Orders to the model in text that should describe a tool: rules over cues, one sentence or two at a time. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from roster.review.cues import cue
from roster.review.findings import Rule, Severity
from roster.review.text import Folded

__all__ = ["Foreign", "Found", "orders_in", "orders_in_name"]

Foreign = Callable[[str], bool]
"""Whether a word is the name of another server's tool."""

HIGH, MEDIUM, LOW = Severity.HIGH, Severity.MEDIUM, Severity.LOW

_URL = r"https?://|\bhxxps?://|\b[\w.+-]+@[\w-]+\.\w|\b(?:\d{1,3}\.){3}\d{1,3}\b|\+\d[\d -]{6,}\d"
_SINK = re.compile(rf"{_URL}|\b(?:[\w-]+\.)+(?:example|com|net|org|io|dev|xyz|ru|cn|app|site|tk)\b|\bwebhook\b")
_ADDRESS = re.compile(_URL)
_IMAGE = re.compile(r"!\[[^\]\n]{0,80}\]\(\s*https?://[^\s)]{0,200}[?&=/][^)\n]{0,80}?(?:[{<\[]|\$\w)")
_CHAT_MARKUP = re.compile(
    r"<\|(?:im_start|im_end|system|user|assistant|start_header_id|eot_id|endoftext)\|?>|\[/?inst\]|<</?sys>>"
)
_CLOSER = re.compile(r"</(tool_?description|tool|description|system|function|available_tools|tools)>")
_SYSTEM_LINE = re.compile(
    r"(?:^|[\n.!?] )[(\[]system[)\]] ?\w"
    r"|(?:^|[\n.!?>]\s?)\W{0,6}(?:system|developer)"
    r"(?: (?:message|note|override|instruction|requirement))?\s?[:>]\s?\w"
)
_DIALOGUE = re.compile(
    r"(?:^|[\n.!?] ?)(?:assistant|human): ?(?:sure|ok|okay|yes|certainly|i |please|now|run|read|send|do|of course)"
)
_BLOCK = re.compile(r"<(?:important|system|critical|urgent|secret|instructions?|admin|attention|priority)[ _\w]{0,20}>")
_QUOTE = re.compile(r"\"[^\"\n]{1,200}\"|'[^'\n]{2,200}'(?!\w)")
_PASSIVE = re.compile(
    r"\b(?:is|are|be|being|been|was|were|get|gets) (?:to be )?"
    r"(?:given|passed|supplied|sent|uploaded|provided|included|attached|forwarded|placed|put|copied|appended|posted|mailed)\b"
    r"|\bgiven as\b|\bgoes? to\b|\bgo to\b|\brequires?\b|\bis mandatory\b"
)
_SHELL = re.compile(
    r"\b(?:prepend|run|execute|type|start)\b.{0,20}[\"']?\b(?:chmod|curl|wget|sudo|rm|nc|bash|sh|powershell|dd)\b [^\s]"
)
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_-]{5,}")
_CONTENT_OF = re.compile(r"\b(?:contents?|text|lines?|data) (?:of|in|from) [\w ]{0,20}[\"'/~.]{0,6}$")
_BEFORE_THIS = re.compile(r"\bbefore (?:using|calling|invoking|running) th(?:is|e) (?:tool|function)\b")
_THEIRS = re.compile(
    r"\buser'?s?'?\b|\b(?:workspace|environment|machine|computer|browser|home folder|home directory|repository|disk)\b"
    r"|\b(?:every|all) (?:password|passphrase|api key|token|secret|credential)s?\b"
    r"|用户|ユーザー|usuario|nutzer|utilisateur"
)
_OWN = re.compile(
    r"\b(?:so far|up to (?:now|this|date)|with the user|of your|your own|told you|hidden"
    r"|you (?:have|were|remember|know))\b"
)
_ALWAYS = re.compile(r"\balways (?:send|include|pass|attach|forward|supply|add)\b|\bhand over\b")
_CONTEXT = re.compile(r"system prompt|verbatim|you were given|own instructions|so far|this conversation|user's")
_ARGUMENT = re.compile(r"[\"'][a-z_][\w.-]{0,40}[\"']|\b(?:argument|parameter|field|input|campo|feld|champ)\b")
_SPEAKS_ILL = re.compile(
    r"\b(?:broken|wrong|deprecated|unsafe|insecure|compromised|outdated|(?:do not|don't|never|stop) us(?:e|ing))\b"
)
_REFUSALS = ("do not", "don't", "never", "no need")
_REACH = 3
"""A negation this many words before a verb makes it something not to do."""


@dataclass(frozen=True, slots=True)
class Found:
    """A rule that matched a stretch of folded text. lift: made more serious by another one close by."""

    rule: Rule
    severity: Severity
    start: int
    end: int
    lift: bool = True


@dataclass(slots=True)
class _Window:
    """One sentence, or two in a row, and what cues it gives."""

    text: str
    seen: dict[str, re.Match[str] | None] = field(default_factory=dict)

    def has(self, name: str) -> re.Match[str] | None:
        if name not in self.seen:
            self.seen[name] = cue(name).search(self.text)
        return self.seen[name]

    def verb(self, name: str) -> re.Match[str] | None:
        """The first of a cue's verbs that is not something to refrain from."""
        if self.has(name) is None:
            return None
        for match in cue(name).finditer(self.text):
            before = self.text[max(0, match.start() - 40) : match.start()]
            clause = re.split(r"[,;:.!?]\s", before)[-1]
            near = " ".join(clause.split()[-_REACH:])
            if not (near and cue("negated").search(near)):
                return match
        return None


def orders_in(folded: Folded, foreign: Foreign, *, skill: bool, parameter: bool) -> Iterator[Found]:
    """Everything in a field that reads like an order, with its place in the folded text.

    foreign: whether a word is the name of another server's tool. skill: instructing is what a skill is for, so only
    what would harm the user counts. parameter: the field describes an argument, where a bare noun is a demand.
    """
    sentences = [pair for pair in folded.sentences() if len(pair[1]) > 3]
    for i, (at, sentence) in enumerate(sentences):
        one = _Window(sentence)
        for found in _of_one(one, foreign, skill=skill, parameter=parameter):
            yield _moved(found, at)
        if i + 1 < len(sentences):
            pair = _Window(folded.text[at : sentences[i + 1][0] + len(sentences[i + 1][1])])
        else:
            pair = one
        for found in _of_two(pair, one, skill=skill):
            yield _moved(found, at)
    for match in _CHAT_MARKUP.finditer(folded.text):
        yield Found(Rule.FAKE_MARKUP, MEDIUM if skill else HIGH, *match.span())
    for match in _CLOSER.finditer(folded.text):
        # Closing what was never opened: the rest is to be read as if it stood outside of the description.
        if f"<{match.group(1)}" not in folded.text[: match.start()] and not skill:
            yield Found(Rule.FAKE_MARKUP, HIGH, *match.span())
    for match in _IMAGE.finditer(folded.text):
        yield Found(Rule.IMAGE_LEAK, MEDIUM if skill else HIGH, *match.span())
    if not skill:
        for match in (*_SYSTEM_LINE.finditer(folded.text), *_DIALOGUE.finditer(folded.text)):
            yield Found(Rule.FAKE_MARKUP, MEDIUM, *match.span())
    for match in _BLOCK.finditer(folded.text):
        yield Found(Rule.FAKE_MARKUP, LOW, *match.span())


def _moved(found: Found, by: int) -> Found:
    return Found(found.rule, found.severity, found.start + by, found.end + by, found.lift)


def _cited(window: _Window, match: re.Match[str]) -> bool:
    """Whether a phrase stands in quotes in a sentence about such phrases: what a guard finds is no order."""
    quoted = any(q.start() <= match.start() and match.start() < q.end() for q in _QUOTE.finditer(window.text))
    return quoted and window.has("cite") is not None


def _opens(window: _Window, match: re.Match[str]) -> bool:
    """Whether a phrase is the first of its sentence: an order, where a description would name what it describes."""
    return not window.text[: match.start()].strip(" \"'(-")


def _of_one(window: _Window, foreign: Foreign, *, skill: bool, parameter: bool) -> Iterator[Found]:
    """What one sentence gives away."""
    if match := window.has("override"):
        cited = _cited(window, match)
        yield Found(Rule.OVERRIDES, LOW if cited else HIGH, *match.span(), lift=not cited)
    if match := window.has("conceal"):
        cited = _cited(window, match)
        yield Found(Rule.CONCEALS, LOW if cited else MEDIUM, *match.span(), lift=not cited)
    if match := window.has("approval"):
        imperative = _opens(window, match) or match.group().startswith(_REFUSALS)
        ordered = window.has("must") or window.has("addressed") or (imperative and not parameter)
        if ordered and not _cited(window, match):
            yield Found(Rule.SKIPS_APPROVAL, MEDIUM, *match.span())
    if (match := window.verb("obey")) and not skill:
        yield Found(Rule.OBEYS_OUTPUT, MEDIUM, *match.span())
    if not skill:
        yield from _of_a_tool(window, foreign)
    if (match := window.has("talk")) and not _cited(window, match):
        sends, passes = window.verb("send"), window.verb("pass") or _PASSIVE.search(window.text)
        whole = window.has("all")
        if sends and _SINK.search(window.text) and (window.has("must") or window.has("all") or not skill):
            if window.has("must") or whole:
                yield Found(Rule.SENDS_OUT, HIGH if _ADDRESS.search(window.text) and whole else MEDIUM, *match.span())
        elif parameter and (whole or sends or passes) and _CONTEXT.search(window.text):
            yield Found(Rule.WANTS_CONTEXT, MEDIUM, *match.span())
        elif (sends or passes) and not skill and (whole or _OWN.search(window.text) or _ALWAYS.search(window.text)):
            yield Found(Rule.SENDS_OUT, MEDIUM, *match.span())


def _of_a_tool(window: _Window, foreign: Foreign) -> Iterator[Found]:
    """What is out of place in a tool's text and may be in place in a skill's."""
    if match := window.has("first"):
        calls = re.search(
            r"\b(?:call|invok|run|use|using|load|execut|rout|consult|come|goes|ruf|aufruf|appel|utilis|llam|usa)\w*\b|调用|使用|运行|呼び",
            window.text,
        )
        if calls and (window.has("must") or _opens(window, match)):
            yield Found(Rule.RUNS_FIRST, MEDIUM, *match.span())
    if match := window.has("standing"):
        yield Found(Rule.STANDING_ORDER, MEDIUM, *match.span())
    if match := window.has("prefer"):
        yield Found(Rule.PREFERS_ITSELF, MEDIUM, *match.span(), lift=False)
    if match := window.has("redirect"):
        yield Found(Rule.OTHER_TOOLS, MEDIUM, *match.span())
    if (
        (match := window.has("personal"))
        and window.verb("send")
        and window.has("must")
        and _ADDRESS.search(window.text)
    ):
        yield Found(Rule.SENDS_OUT, MEDIUM, *match.span())
    if match := window.has("phish"):
        yield Found(Rule.DEMANDS_SECRETS, MEDIUM, *match.span())
    if (match := _SHELL.search(window.text)) and window.has("must"):
        yield Found(Rule.SKIPS_APPROVAL, MEDIUM, *match.span())
    if match := window.has("addressed"):
        yield Found(Rule.FAKE_MARKUP, LOW, *match.span())
    for match in _IDENTIFIER.finditer(window.text):
        if foreign(match.group()) and window.has("hijack"):
            redirects = _ADDRESS.search(window.text) or window.has("conceal")
            ordered = window.has("condition") or window.has("must") or _SPEAKS_ILL.search(window.text)
            severity = HIGH if redirects else MEDIUM if ordered else LOW
            yield Found(Rule.OTHER_TOOLS, severity, *match.span())
            break


def _of_two(window: _Window, one: _Window, *, skill: bool) -> Iterator[Found]:
    """What the first sentence gives away with the help of the next one."""
    yield from _of_secrets(window, one, skill=skill)
    if (match := one.has("decode")) and one.has("act") and re.search(r"[a-z0-9+/=]{40}|rot[ -]?13", window.text):
        yield Found(Rule.ENCODED, HIGH if not skill else MEDIUM, *match.span())


def _of_secrets(window: _Window, one: _Window, *, skill: bool) -> Iterator[Found]:
    """Files that hold secrets, then secrets by kind: fetched, and handed over as an argument or sent away."""
    if skill:
        yield from _of_secrets_in_a_skill(one)
        return
    reads, sends, content = window.verb("read"), window.verb("send"), window.has("content")
    passes = window.verb("pass") or (_PASSIVE.search(window.text) and _ARGUMENT.search(window.text))
    addressed = _ADDRESS.search(window.text)
    if (place := one.has("place")) and not _cited(one, place):
        away = (sends or passes) and (addressed or _SINK.search(window.text[place.end() :]))
        if (away and (content or reads or sends)) or (passes and content and (reads or window.has("must"))):
            yield Found(Rule.DEMANDS_SECRETS, HIGH, *place.span())
            return
        hands_over = (passes or sends) and (reads or content or window.has("must")) and not window.has("cite")
        names_content = _CONTENT_OF.search(one.text[: place.start()]) and _ARGUMENT.search(window.text)
        if hands_over or names_content:
            yield Found(Rule.DEMANDS_SECRETS, MEDIUM, *place.span())
    elif (kind := one.has("kind")) and reads and _BEFORE_THIS.search(one.text):
        yield Found(Rule.DEMANDS_SECRETS, MEDIUM, *kind.span())
    elif kind and _THEIRS.search(one.text) and not _cited(one, kind):
        puts = window.verb("pass")
        if addressed and sends:
            yield Found(Rule.DEMANDS_SECRETS, HIGH, *kind.span())
        elif (puts and (reads or content or window.has("must"))) or (sends and _ARGUMENT.search(window.text)):
            yield Found(Rule.DEMANDS_SECRETS, MEDIUM, *kind.span())


def _of_secrets_in_a_skill(one: _Window) -> Iterator[Found]:
    """A skill may read what it needs to sign in; it has no business sending it away."""
    sends = one.verb("send")
    if (place := one.has("place")) and sends and _SINK.search(one.text) and not _cited(one, place):
        yield Found(Rule.DEMANDS_SECRETS, HIGH if one.has("must") else MEDIUM, *place.span())
        return
    kind = one.has("kind")
    if kind and sends and one.verb("gather") and _ADDRESS.search(one.text) and not _cited(one, kind):
        yield Found(Rule.DEMANDS_SECRETS, HIGH, *kind.span())


_NAMES: Mapping[Rule, re.Pattern[str]] = {
    Rule.DEMANDS_SECRETS: re.compile(
        r"\b(?:contents?|read|reading|from|dump|all)\b.*"
        r"\b(?:id rsa|ssh (?:private )?key|aws credentials|passwd|private key|env file|api keys|passwords)\b"
        r"|\b(?:id rsa|etc passwd|aws credentials|ssh key)\b.*\bcontents?\b"
    ),
    Rule.WANTS_CONTEXT: re.compile(
        r"\b(?:full|entire|all|whole|complete)\b.*\b(?:conversation|chat|system prompt|history)\b.*"
        r"\b(?:prompt|history|and|messages)\b"
        r"|\b(?:conversation|chat) (?:history|log)\b.*\bsystem prompt\b"
    ),
    Rule.OVERRIDES: re.compile(r"\b(?:ignore|disregard|forget)\b.*\b(?:instructions|rules|prompt)\b"),
}


def orders_in_name(words: list[str]) -> Iterator[Rule]:
    """Rules that the words of a tool's or parameter's name break: a name is read by the model like any other text."""
    name = " ".join(words)[:400]
    yield from (rule for rule, pattern in _NAMES.items() if pattern.search(name))
