"""Whether arguments validate against an input schema, in bounded time, or why that cannot be said. Pure.

A schema is a stranger's program: it may recurse, branch without end, name a regular expression that never comes back,
or refer to the network. So the walk through it is counted and timed, patterns are only tried where their cost can be
foreseen, nothing is ever fetched, and whatever does not fit into that is "cannot be checked", never a guess.
"""

from __future__ import annotations

import functools
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Check", "check_arguments", "says_something"]

MAX_NODES = 5_000
MAX_DEPTH = 60
MAX_CHARACTERS = 200_000
MAX_STEPS = 50_000
MAX_SECONDS = 0.25  # of processor time: a busy machine does not make a schema harder
MAX_PATTERN_COST = 200_000
LONGEST_PATTERN = 500
MOST_UNSORTED = 200
"""Items of one array that are compared pair by pair."""


@dataclass(frozen=True, slots=True)
class Check:
    """valid: None when it cannot be told, for the reason given."""

    valid: bool | None
    reason: str = ""


class _UncheckedError(Exception):
    """What stands in the way of a check; its message is the reason."""


_DIALECTS = {
    "json-schema.org/draft-04/schema": "Draft4Validator",
    "json-schema.org/draft-06/schema": "Draft6Validator",
    "json-schema.org/draft-07/schema": "Draft7Validator",
    "json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "json-schema.org/draft/2020-12/schema": "Draft202012Validator",
    "json-schema.org/schema": "Draft202012Validator",
}
_DEFAULT = "Draft202012Validator"
# In the presence of these, a pattern that was passed over may turn a verdict round.
_TURNING = frozenset(("not", "oneOf", "if"))
_SAY_NOTHING = frozenset(
    "$schema $id id $comment $defs definitions title description type default examples readOnly writeOnly".split()
)

_now = threading.local()
"""What is left of the check that this thread is at: steps, deadline, and whether a pattern was passed over."""


def says_something(schema: Any) -> bool:
    """Whether a schema asks for more than an object. One that does not accepts anything, and so proves nothing."""
    if not isinstance(schema, Mapping):
        return schema is False
    telling = {key: value for key, value in schema.items() if key not in _SAY_NOTHING}
    if telling.get("additionalProperties") in (True, {}):
        del telling["additionalProperties"]
    return any(telling.get(key) not in ({}, [], None) for key in telling)


def check_arguments(schema: Any, arguments: Mapping[str, Any] | None) -> Check:
    """Whether arguments (None: none) validate against an input schema of any dialect from draft 4 to 2020-12.

    Never longer than about `MAX_SECONDS` of processor time, and never wrong rather than silent: what cannot be told is
    None.
    """
    if schema is None or schema is True:
        return Check(True)
    try:
        return Check(_validate(schema, dict(arguments or {})))
    except _UncheckedError as why:
        return Check(None, str(why))
    except Exception as error:  # noqa: BLE001
        # A library on a stranger's input: whatever it trips over, the call it is asked about is over already.
        return Check(None, f"its schema cannot be used ({type(error).__name__})")
    finally:
        _now.__dict__.clear()


def _validate(schema: Any, arguments: dict[str, Any]) -> bool:
    import referencing.exceptions

    if not isinstance(schema, Mapping | bool):
        raise _UncheckedError("its schema is no schema")
    validator_class = _counted(_dialect(schema))
    _Measure("the arguments are").copy(arguments)
    measure = _Measure("its schema is")
    clean = measure.copy(schema)
    longest_key = max((len(key) for key in arguments), default=0)
    for pattern in measure.key_patterns:
        if _cost(pattern, max(longest_key, 100)) > MAX_PATTERN_COST:
            raise _UncheckedError("its schema has a pattern that is not safe to try")
    _now.steps, _now.deadline, _now.passed_over = MAX_STEPS, time.thread_time() + MAX_SECONDS, False
    try:
        if next(validator_class(validator_class.META_SCHEMA, registry=_registry()).iter_errors(clean), None):
            raise _UncheckedError("its schema is not valid")
        _now.passed_over = False
        fault = next(validator_class(clean, registry=_registry()).iter_errors(arguments), None)
    except referencing.exceptions.Unresolvable:
        raise _UncheckedError("its schema refers to one that is not here") from None
    except RecursionError:
        raise _UncheckedError("its schema goes round in circles") from None
    if _now.passed_over and (fault is None or measure.keywords & _TURNING):
        raise _UncheckedError("its schema has a pattern that is not safe to try")
    return fault is None


def _dialect(schema: Any) -> str:
    named = schema.get("$schema") if isinstance(schema, Mapping) else None
    if named is None:
        return _DEFAULT
    found = _DIALECTS.get(re.sub(r"^https?://|#$", "", named)) if isinstance(named, str) else None
    if found is None:
        raise _UncheckedError("its schema is in a dialect that is not known here")
    return found


def _registry() -> Any:
    """The metaschemas that the library brings along; nothing else, and nothing is retrieved."""
    from jsonschema_specifications import REGISTRY

    return REGISTRY


class _Measure:
    """Copies JSON as far as it is small, noting what is in it. `$schema` is left out: below the root, it would have
    the library go on with validators of its own, which nobody counts."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._nodes, self._characters = MAX_NODES, MAX_CHARACTERS
        self.keywords: set[str] = set()
        self.key_patterns: list[str] = []

    def copy(self, value: Any, depth: int = 0) -> Any:
        self._nodes -= 1
        if depth > MAX_DEPTH:
            raise _UncheckedError(f"{self._what} nested too deeply")
        match value:
            case str():
                self._characters -= len(value)
            case Mapping():
                self._characters -= sum(len(str(key)) for key in value)
                self.keywords.update(str(key) for key in value)
                patterns = value.get("patternProperties")
                if isinstance(patterns, Mapping):
                    self.key_patterns += map(str, patterns)
        if self._nodes < 0 or self._characters < 0:
            raise _UncheckedError(f"{self._what} too large")
        match value:
            case Mapping():
                return {
                    str(key): self.copy(item, depth + 1)
                    for key, item in value.items()
                    if not (key == "$schema" and isinstance(item, str))
                }
            case list() | tuple():
                return [self.copy(item, depth + 1) for item in value]
            case _:
                return value


# ------------------------------------------------------------------------------------- counted validators


@functools.cache
def _counted(name: str) -> Any:
    """The library's validator of this name, with every keyword counted."""
    import jsonschema

    plain = getattr(jsonschema, name)
    keywords = {key: _counting(keyword) for key, keyword in plain.VALIDATORS.items()}
    if "pattern" in keywords:
        keywords["pattern"] = _counting(_pattern)
    keywords["uniqueItems"] = _counting(functools.partial(_unique_items, plain.VALIDATORS["uniqueItems"]))
    return jsonschema.validators.extend(plain, keywords)


def _counting(keyword: Callable[..., Any]) -> Callable[..., Any]:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        _now.steps -= 1
        if _now.steps < 0 or time.thread_time() > _now.deadline:
            raise _UncheckedError("its schema takes too long to check")
        yield from keyword(validator, value, instance, schema) or ()

    return counted


def _pattern(validator: Any, pattern: str, instance: Any, _: Any) -> Any:
    import jsonschema

    if not validator.is_type(instance, "string"):
        return
    try:
        safe = _cost(pattern, len(instance)) <= MAX_PATTERN_COST
        missed = safe and re.search(pattern, instance) is None
    except re.error:  # another language's regular expression
        safe = missed = False
    if not safe:
        _now.passed_over = True
    elif missed:
        yield jsonschema.ValidationError("the pattern is not matched")


def _unique_items(keyword: Callable[..., Any], validator: Any, value: Any, instance: Any, schema: Any) -> Any:
    if value and isinstance(instance, list) and len(instance) > MOST_UNSORTED:
        raise _UncheckedError("the arguments are too many to compare")
    yield from keyword(validator, value, instance, schema) or ()


# ----------------------------------------------------------------------------------------- pattern cost

_ATOM = re.compile(
    r"(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<open>\((?:\?(?:P?<(?![=!])\w+>|[:=!]|<[=!]|[aimsux]+\)?))?)"
    r"|(?P<close>\))|(?P<or>\|)|(?P<repeat>[*+?]|\{(?P<least>\d*)(?:,(?P<most>\d*))?\})|(?P<plain>.)",
    re.DOTALL,
)
_ENDLESS = 1 << 60
_ODD_SET = re.compile(r"\[|--|&&|~~|\|\|")
"""In a set, what Python means to read differently some day, and says so each time."""


def _cost(pattern: str, length: int) -> int:
    """An upper bound for the steps of searching a text of this length, or `_ENDLESS` where none is known.

    A backtracking matcher tries, for each place to begin at, every way to share the text out among the repetitions.
    A repetition inside of a repetition, or a choice inside of one, can have exponentially many ways; so can a back
    reference. Those are never tried.
    """
    if len(pattern) > LONGEST_PATTERN:
        return _ENDLESS
    cost = 1 if pattern.startswith(("^", "\\A")) and "|" not in pattern else length + 1
    varying: list[bool] = [False]  # by open group: whether it holds a repetition or a choice
    closed = False  # what a repetition that comes next would repeat
    for atom in _ATOM.finditer(pattern):
        if atom["plain"] == "[" or (atom["set"] is not None and _ODD_SET.search(atom["set"], 1)):
            return _ENDLESS
        if atom["escape"] is not None:
            if atom["escape"][1].isdigit() or atom["escape"][1] == "k":
                return _ENDLESS
            closed = False
        elif atom["open"] is not None:
            if not atom["open"].endswith(")"):  # else it only sets flags
                varying.append(False)
            closed = False
        elif atom["close"] is not None:
            if len(varying) == 1:
                return _ENDLESS
            closed = varying.pop()
            varying[-1] |= closed
        elif atom["or"] is not None:
            varying[-1] = True
            cost *= 2
            closed = False
        elif (repeat := atom["repeat"]) is not None:
            least, most = _bounds(atom, length)
            if most > 1 and closed:
                return _ENDLESS
            if least != most or repeat[0] != "{":
                varying[-1] = True
                cost *= max(2, min(most, length) - least + 1)
            closed = closed or least != most
        else:
            closed = False
        if cost > MAX_PATTERN_COST:
            return cost
    return cost if len(varying) == 1 else _ENDLESS


def _bounds(atom: re.Match[str], length: int) -> tuple[int, int]:
    match atom["repeat"]:
        case "*":
            return 0, length
        case "+":
            return 1, max(1, length)
        case "?":
            return 0, 1
    least = int(atom["least"] or 0)
    most = atom["most"]
    return least, least if most is None else int(most) if most else max(least, length)
