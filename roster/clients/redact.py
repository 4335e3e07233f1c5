"""A server's entry as it may be shown: what can hold a secret is hidden by where it stands, not by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from roster.clients.identity import is_literal

__all__ = ["HIDDEN", "literal_secrets", "shown"]

HIDDEN = "***"

_FLAG = re.compile(
    r"--?[\w-]*(?:token|key|secret|passw|pwd|auth|header|cred|cookie|session|bearer|dsn|uri|url|conn)[\w-]*",
    re.IGNORECASE,
)
_SHORT = frozenset(("-e", "-H", "-p", "-u", "-t", "-k", "--env", "--data", "-d"))
_ASSIGNED = re.compile(r"([A-Za-z_][\w.-]*)=(\S+)")
_AFTER_FLAG = re.compile(rf"({_FLAG.pattern})([ =:]+)(?!\s)(\"[^\"]*\"|'[^']*'|\S+)", re.IGNORECASE)
_BEARER = re.compile(r"\b(bearer|basic|token)\s+\S+", re.IGNORECASE)
_URL = re.compile(r"[A-Za-z][\w+.-]*://[^\s\"']+")
_DENSE = re.compile(r"(?=[^\s]*\d)(?=[^\s]*[A-Za-z])[A-Za-z0-9_+=.-]{20,}")
# Without a default, which may be the value itself; a bare one in capitals only, for "$ecret" is a password.
_REFERENCE = re.compile(r"(?:Bearer )?(?:\$\{(?:env:)?[A-Za-z_]\w*\}|\$[A-Z_][A-Z0-9_]*)", re.ASCII)
_PREFIXED = re.compile(
    r"\b(?:sk|pk|ghp|gho|ghs|github_pat|glpat|xox[abprs]|AKIA|eyJ|AIza|hf|npm)[_-]?[A-Za-z0-9_.-]{8,}"
)


def _url(text: str) -> str:
    """A URL without user, password, query and fragment."""
    try:
        parts = urlsplit(text)
        host = parts.netloc.rpartition("@")
    except ValueError:
        return HIDDEN
    netloc = f"{HIDDEN}@{host[2]}" if host[1] else host[2]
    path = "/".join(
        HIDDEN if _DENSE.fullmatch(part) or _PREFIXED.search(part) else part for part in parts.path.split("/")
    )
    return urlunsplit((parts.scheme, netloc, path, HIDDEN if parts.query else "", HIDDEN if parts.fragment else ""))


def _word(text: str) -> str:
    """One argument, or a command, with what looks like a value for somebody's eyes only hidden."""
    if _REFERENCE.fullmatch(text):
        return text
    text = _URL.sub(lambda match: _url(match.group()), text)
    text = _AFTER_FLAG.sub(lambda match: f"{match[1]}{match[2]}{HIDDEN}", text)
    text = _ASSIGNED.sub(lambda match: match.group() if HIDDEN in match[2] else f"{match[1]}={HIDDEN}", text)
    text = _BEARER.sub(lambda match: f"{match[1]} {HIDDEN}", text)
    text = _PREFIXED.sub(HIDDEN, text)
    return HIDDEN if _DENSE.fullmatch(text) and "://" not in text else text


def _args(args: list[Any]) -> list[Any]:
    out: list[Any] = []
    hide = False
    for arg in args:
        text = str(arg)
        out.append(HIDDEN if hide and not _REFERENCE.fullmatch(text) else _word(text))
        hide = text in _SHORT or _FLAG.fullmatch(text) is not None
    return out


def shown(entry: Any) -> Any:
    """An entry of any dialect for a screen: program, redacted arguments and address, and the *names* of the rest."""
    if not isinstance(entry, Mapping):
        return HIDDEN
    out: dict[str, Any] = {}
    for key, value in entry.items():
        if (
            isinstance(value, bool | int | float)
            or value is None
            or key in ("type", "transport", "name", "source", "description")
        ):
            out[key] = value if not isinstance(value, str) else _word(value)
        elif key in ("args", "command") and isinstance(value, list):
            out[key] = _args(value)
        elif key in ("command", "cmd", "cwd", "url", "httpUrl", "serverUrl", "uri") and isinstance(value, str):
            out[key] = _word(value)
        elif key in ("env_vars", "env_keys") and isinstance(value, list):
            out[key] = [name if isinstance(name, str) else HIDDEN for name in value]
        elif isinstance(value, Mapping):
            out[key] = {name: item if _is_reference(item) else HIDDEN for name, item in value.items()}
        else:
            out[key] = HIDDEN
    return out


def _is_reference(value: Any) -> bool:
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def literal_secrets(entry: Mapping[str, Any]) -> list[str]:
    """Where an entry of roster.json holds values of its own (`env.TOKEN`, `args`), by key name only."""
    plain = [
        key for key in ("command", "args", "url") if key in entry and shown({key: entry[key]}) != {key: entry[key]}
    ]
    maps = {key: entry[key] for key in ("env", "headers") if isinstance(entry.get(key), Mapping)}
    return plain + [
        f"{key}.{name}" for key, values in maps.items() for name, value in values.items() if is_literal(value)
    ]
