"""How long to wait, as texts and headers put it, in seconds: `1m30s`, `Retry-After: 30`, `in 2 minutes`. Pure."""

from __future__ import annotations

import re

__all__ = ["READ", "ends_of", "seconds_in", "wait_in"]

READ = 2_000
"""Characters read at either end of a text."""

_UNITS = {
    "ms": 0.001, "millisecond": 0.001, "milliseconds": 0.001, "毫秒": 0.001, "ミリ秒": 0.001,
    "s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1, "秒": 1, "秒钟": 1, "sekunde": 1, "sekunden": 1,
    "seconde": 1, "secondes": 1, "segundo": 1, "segundos": 1,
    "m": 60, "min": 60, "mins": 60, "minute": 60, "minutes": 60, "分": 60, "分钟": 60, "分間": 60, "minuten": 60,
    "minuto": 60, "minutos": 60,
    "h": 3600, "hr": 3600, "hrs": 3600, "hour": 3600, "hours": 3600, "小时": 3600, "時間": 3600, "stunde": 3600,
    "stunden": 3600, "heure": 3600, "heures": 3600, "hora": 3600, "horas": 3600,
    "d": 86400, "day": 86400, "days": 86400, "天": 86400, "日": 86400, "tag": 86400, "tage": 86400, "tagen": 86400,
    "jour": 86400, "jours": 86400, "día": 86400, "días": 86400,
}  # fmt: skip
_UNIT = "|".join(sorted(_UNITS, key=len, reverse=True))
_ONE = rf"(\d{{1,9}}(?:[.,]\d{{1,9}})?|an?|one|une?|eine[rm]?)\s{{0,3}}({_UNIT})(?![a-z])"
_MORE = rf"(?:\s{{0,3}}(?:,|and|und|et|y)?\s{{0,3}}{_ONE})?"
_SPAN = re.compile(f"{_ONE}{_MORE}{_MORE}", re.IGNORECASE)
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?")
_BEFORE = re.compile(
    r"(?:re-?try[ _-]?(?:again[ _-]?)?(?:after|in|delay)|try(?:ing)? (?:(?:this|it|your request|the request) )?again "
    r"(?:in|after)|(?:come|check|ask|call|be) (?:(?:back|again|retried) ?)?(?:again )?(?:in|after)|"
    r"(?:please )?wait(?: for)?(?: at least| another)?|reset(?:s|ting)?[ _]?(?:in|after)|"
    r"(?:available|allowed|possible|permitted|unblocked|lifted)(?: again)? (?:in|after)|another (?:one|\w{1,20}) in|"
    r"next (?:\w{1,20} ){1,3}?in|again in|back in|cooldown(?: of|:)?|backoff(?: of|:)?|retryDelay|retry_delay|"
    r"(?P<loose>\bin|\bdans|\ben|\bnach|\bdentro de|\baprès))"
    r"[\"']?\s{0,3}[:=]?\s{0,3}[\"']?\s{0,3}(?:about |approximately |around |at least |etwa |environ |unos )?",
    re.IGNORECASE,
)
_HINTS = re.compile(
    r"retry|try|wait|again|resets?|available|allowed|back|cooldown|slow|another|next|nochmal|erneut|versuch|warten|"
    r"réessay|patient|essay|reintent|intent|espere|attend",
    re.IGNORECASE,
)
_AFTER = re.compile(rf"(\d{{1,9}}(?:\.\d{{1,9}})?)\s{{0,3}}({_UNIT})\s{{0,3}}(?:后|後|以后|之后|以後|待って|お待ち)")
_HEADER = re.compile(
    r"retry[ _-]?after(?:[_-]?(ms|millis\w*|seconds?))?[\"']?\s{0,3}[:=]\s{0,3}[\"']?"
    r"(\d{1,9}(?:\.\d{1,9})?)\s{0,3}([a-z]*)",
    re.IGNORECASE,
)


def ends_of(text: str) -> str:
    """The first and the last of a text, as far as texts are read here."""
    return text if len(text) <= 2 * READ else f"{text[:READ]}\n{text[-READ:]}"


def _seconds(found: re.Match[str]) -> float:
    numbers, units = found.groups()[::2], found.groups()[1::2]
    return sum(
        (float(number.replace(",", ".")) if number[0].isdigit() else 1.0) * _UNITS[unit.lower()]
        for number, unit in zip(numbers, units, strict=True)
        if number is not None
    )


def seconds_in(text: str) -> float | None:
    """A text that is a duration and nothing else, such as `1m30s`, in seconds."""
    found = _SPAN.fullmatch(text.strip())
    return _seconds(found) if found else None


def wait_in(text: str) -> float | None:
    """How many seconds a text says to wait before another try, if it gives a duration; the last one it gives."""
    text = ends_of(text)
    found: list[tuple[int, float]] = []
    for header in _HEADER.finditer(text):
        scale, number, unit = header.groups()
        factor = 0.001 if (scale or "").lower().startswith("m") else _UNITS.get(unit.lower(), 1)
        found.append((header.start(), float(number) * factor))
    found += [(after.start(), float(after[1]) * _UNITS[after[2]]) for after in _AFTER.finditer(text)]
    for before in _BEFORE.finditer(text):
        at = before.start()
        if before["loose"] and not _HINTS.search(text[max(0, at - 60) : at]):
            continue
        rest = text[before.end() : before.end() + 60]
        if clock := _CLOCK.match(rest):
            parts = [int(part) for part in clock.groups() if part is not None]
            found.append((at, float(sum(part * 60**place for place, part in enumerate(reversed(parts))))))
        elif span := _SPAN.match(rest):
            found.append((at, _seconds(span)))
    return round(max(found)[1], 3) if found else None
