"""One server as a client spells it → as roster.json spells it. Pure.

What a client does that Roster cannot (asking for an input, a secret store, a built-in extension) makes a server
`Unroutable`, with the reason; the others keep every key, and references to variables stay references.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from roster.clients.adapters import Dialect

__all__ = ["Routable", "Unroutable", "anchored", "from_client"]

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Routable:
    """A server as roster.json would have it. notes: what a person should know about it, without values."""

    entry: Entry
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unroutable:
    """A server that stays with its client, and why."""

    reason: str


class _CannotRouteError(Exception):
    """The reason why an entry is unroutable."""


# -------------------------------------------------------------------------------------------- from a client

_CLIENT_ONLY = re.compile(
    r"\$\{(workspaceFolder[^}]*|workspaceRoot[^}]*|file[A-Za-z]*|relativeFile[^}]*|"
    r"selectedText|lineNumber|extensionInstallFolder[^}]*|pathSeparator|/|execPath|defaultBuildTask)\}"
)
# `${word:…}` of whichever client: Roster would not start a server with one. `${env:X}` and `${X:-y}` are its own.
_FOREIGN = re.compile(r"\$\{((?!env:)[A-Za-z]+:(?!-)[^}]*)\}")
_CONTINUE_SECRET = re.compile(r"\$\{\{\s*([^}]*?)\s*\}\}")
_OPENCODE_ENV = re.compile(r"\{env:([^}]+)\}")
_OPENCODE_FILE = re.compile(r"\{file:[^}]*\}")
_PERCENT = re.compile(r"%([A-Za-z_][A-Za-z0-9_]*)%")
_URL_KEYS = ("url", "httpUrl", "serverUrl", "uri")
_TYPE_KEYS = ("type", "transport", "transportType")
_STREAMABLE = frozenset("http streamable-http streamablehttp streamable_http remote".split())


def from_client(dialect: Dialect, value: Any, *, windows: bool = False) -> Routable | Unroutable:
    """One server of a client's file, as roster.json would spell it."""
    if not isinstance(value, Mapping):
        return Unroutable("it is no object")
    try:
        entry, notes = _READERS.get(dialect, _plain)(dict(value))
        entry = _checked(_common(entry), windows)
    except _CannotRouteError as reason:
        return Unroutable(str(reason))
    if entry.get("oauth") or entry.get("auth"):
        notes.append("it signs in through the client (OAuth), which Roster may not be able to do")
    elif entry.get("url") and not entry.get("headers"):
        notes.append("no credentials are in it: if it wants a sign-in, keep it in the client (--keep)")
    return Routable(entry, tuple(notes))


def _plain(value: Entry) -> tuple[Entry, list[str]]:
    return value, []


def _common(entry: Entry) -> Entry:
    """The same with one name for what clients name differently, the common keys first, unknown ones kept."""
    url = next((entry[key] for key in _URL_KEYS if entry.get(key)), None)
    kind = next((entry[key] for key in _TYPE_KEYS if isinstance(entry.get(key), str)), None)
    disabled = entry.get("disabled") is True or entry.get("enabled") is False
    out: Entry = {}
    if entry.get("command"):
        out["command"] = entry["command"]
        if args := entry.get("args"):
            out["args"] = [_text(arg) for arg in args] if isinstance(args, list) else args
    elif url is not None:
        if kind is not None:
            out["type"] = "http" if kind.lower() in _STREAMABLE else kind.lower()
        out["url"] = url
    if entry.get("cwd"):
        out["cwd"] = entry["cwd"]
    for key in ("env", "headers"):
        if isinstance(values := entry.get(key), Mapping):
            values = {name: _text(item) for name, item in values.items() if item is not None}
        if values:
            out[key] = values
    known = {"command", "args", "env", "cwd", "headers", "disabled", "enabled", *_URL_KEYS, *_TYPE_KEYS}
    out |= {key: item for key, item in entry.items() if key not in known and item is not None}
    if disabled:
        out["disabled"] = True
    return out


def _text(value: Any) -> Any:
    """A number or a truth value as the text that a program is given; anything else as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _checked(entry: Entry, windows: bool) -> Entry:
    """The entry with the last client forms translated. Raises _CannotRouteError for what only a client can do."""
    command, url = entry.get("command"), entry.get("url")
    if command is not None and not isinstance(command, str):
        raise _CannotRouteError("its command is no text")
    if url is not None and not isinstance(url, str):
        raise _CannotRouteError("its url is no text")
    if not command and not url:
        raise _CannotRouteError("it names neither a command nor a url")
    if (kind := entry.get("type")) and kind not in ("http", "sse"):
        raise _CannotRouteError(f"its type {str(kind)[:40]!r} is neither stdio, http nor sse")
    if not isinstance(entry.get("args", []), list) or not all(isinstance(arg, str) for arg in entry.get("args", [])):
        raise _CannotRouteError("its args are no list of texts")
    for key in ("env", "headers"):
        if not isinstance(entry.get(key, {}), Mapping):
            raise _CannotRouteError(f"its {key} is no map")
        if any(isinstance(item, list | Mapping) for item in entry.get(key, {}).values()):
            raise _CannotRouteError(f"a value in its {key} is no text")
    if entry.get("envFile"):
        raise _CannotRouteError("it takes its environment from an envFile: put the values into env")
    for where, text in _texts(entry):
        if match := _CLIENT_ONLY.search(text) or _FOREIGN.search(text):
            kind = match[1].partition(":")[0]
            raise _CannotRouteError(
                f"{where} holds ${{{kind}{':…' if ':' in match[1] else ''}}}, which only the client can fill in"
            )
    home = "${USERPROFILE}" if windows else "${HOME}"
    return _mapped(entry, lambda text: text.replace("${userHome}", home))


def _texts(entry: Entry) -> list[tuple[str, str]]:
    """Every text that references are looked for in, and where it stands."""
    found = [(key, entry[key]) for key in ("command", "url", "cwd") if isinstance(entry.get(key), str)]
    args = entry.get("args")
    found += [("args", arg) for arg in (args if isinstance(args, list) else []) if isinstance(arg, str)]
    for key in ("env", "headers"):
        found += [(f"{key}.{name}", item) for name, item in _map(entry.get(key)).items() if isinstance(item, str)]
    return found


def _mapped(entry: Entry, change: Callable[[str], str]) -> Entry:
    """The entry with each of its texts changed."""
    out = dict(entry)
    for key in ("command", "url", "cwd"):
        if isinstance(out.get(key), str):
            out[key] = change(out[key])
    if isinstance(out.get("args"), list):
        out["args"] = [change(arg) if isinstance(arg, str) else arg for arg in out["args"]]
    for key in ("env", "headers"):
        if isinstance(out.get(key), Mapping):
            out[key] = {name: change(item) if isinstance(item, str) else item for name, item in out[key].items()}
    return out


def _map(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _seconds(entry: Entry, key: str, ours: str, per_second: float = 1.0) -> None:
    """A time limit under Roster's name for it, in seconds; the client's own key stays."""
    limit = entry.get(key)
    if isinstance(limit, int | float) and not isinstance(limit, bool) and 0 < limit / per_second <= 86_400:
        entry[ours] = limit / per_second


def _codex(value: Entry) -> tuple[Entry, list[str]]:
    env, headers = _map(value.get("env")), _map(value.pop("http_headers", None))
    forwarded = value.pop("env_vars", None) or []
    for one in forwarded if isinstance(forwarded, list) else []:
        name = one.get("name") if isinstance(one, Mapping) else one
        if not isinstance(name, str):
            raise _CannotRouteError("its env_vars are no list of names")
        env.setdefault(name, f"${{{name}}}")
    if isinstance(token := value.pop("bearer_token_env_var", None), str):
        headers["Authorization"] = f"Bearer ${{{token}}}"
    for header, name in _map(value.pop("env_http_headers", None)).items():
        headers[header] = f"${{{name}}}"
    _seconds(value, "startup_timeout_sec", "start_timeout_s")
    _seconds(value, "tool_timeout_sec", "call_timeout_s")
    return {**value, "env": env, "headers": headers}, []


def _openclaw(value: Entry) -> tuple[Entry, list[str]]:
    _seconds(value, "timeout", "call_timeout_s")
    if value.get("url") and not any(value.get(key) for key in _TYPE_KEYS):
        value["type"] = "sse"
    return value, []


def _gemini(value: Entry) -> tuple[Entry, list[str]]:
    _seconds(value, "timeout", "call_timeout_s", per_second=1000)
    if not any(value.get(key) for key in _TYPE_KEYS) and not value.get("command"):
        if value.get("httpUrl"):
            value = {**value, "type": "http", "url": value["httpUrl"]}
        elif value.get("url"):
            value["type"] = "sse"
    value["env"] = {
        key: _PERCENT.sub(r"${\1}", item) if isinstance(item, str) else item
        for key, item in _map(value.get("env")).items()
    }
    return value, []


def _zed(value: Entry) -> tuple[Entry, list[str]]:
    command = value.get("command")
    if isinstance(command, Mapping):
        value = {**value, **{"args": [], **command}, "command": command.get("path")}
        value.pop("path", None)
    if not value.get("command") and not value.get("url"):
        raise _CannotRouteError("it comes with an extension of Zed")
    value.pop("source", None)
    return value, []


def _continue(value: Entry) -> tuple[Entry, list[str]]:
    headers = _map(_map(value.get("requestOptions")).get("headers"))
    for _, text in _texts(value) + _texts({"headers": headers}):
        if match := _CONTINUE_SECRET.search(text):
            raise _CannotRouteError(f"only Continue can look up {match[1][:60]}")
    if headers:
        value["headers"] = {**headers, **_map(value.get("headers"))}
    value.pop("name", None)
    return value, []


def _goose(value: Entry) -> tuple[Entry, list[str]]:
    kind = str(value.get("type", ""))
    if kind not in ("stdio", "sse", "streamable_http"):
        raise _CannotRouteError(f"it is an extension of Goose's own kind {kind[:40]!r}")
    notes = []
    env = _map(value.pop("envs", None))
    stored = value.pop("env_keys", None)
    for name in stored if isinstance(stored, list) else []:
        if isinstance(name, str) and name not in env:
            env[name] = f"${{{name}}}"
            notes.append(f"Goose keeps {name} in its own store: set it where Roster starts")
    _seconds(value, "timeout", "call_timeout_s")
    value |= {"command": value.pop("cmd", None), "env": env}
    for key in ("name", "bundled", "display_name"):
        value.pop(key, None)
    return value, notes


def _opencode(value: Entry) -> tuple[Entry, list[str]]:
    command = value.get("command")
    if value.get("type") not in ("local", "remote"):
        raise _CannotRouteError("it says neither local nor remote: it only changes an entry from elsewhere")
    if value["type"] == "local":
        if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
            raise _CannotRouteError("its command is no list of words")
        value |= {"command": command[0], "args": command[1:]}
    value["env"] = _map(value.pop("environment", None))
    if any(_OPENCODE_FILE.search(text) for _, text in _texts(value)):
        raise _CannotRouteError("it reads a value from a file with {file:…}, which only OpenCode does")
    return _mapped(value, lambda text: _OPENCODE_ENV.sub(r"${\1}", text)), []


def _vscode(value: Entry) -> tuple[Entry, list[str]]:
    value.pop("gallery", None)
    return value, []


_READERS: dict[Dialect, Callable[[Entry], tuple[Entry, list[str]]]] = {
    Dialect.CODEX: _codex,
    Dialect.OPENCLAW: _openclaw,
    Dialect.GEMINI: _gemini,
    Dialect.ZED: _zed,
    Dialect.CONTINUE: _continue,
    Dialect.GOOSE: _goose,
    Dialect.OPENCODE: _opencode,
    Dialect.VSCODE: _vscode,
}


def anchored(entry: Entry, project: PurePath, exists: Callable[[str], bool]) -> Entry:
    """The entry with the project as its directory, if something in it only means anything there.

    exists: whether a path relative to the project is there.
    """
    if "cwd" in entry or "command" not in entry:
        return entry

    def relative(word: str) -> bool:
        if word in (".", "..") or word.startswith(("./", "../", ".\\", "..\\")):
            return True
        return ("/" in word or PurePath(word).suffix in (".py", ".js", ".mjs", ".cjs", ".ts", ".sh")) and (
            not PurePath(word).is_absolute() and not word.startswith("-") and "://" not in word and exists(word)
        )

    words = [entry["command"], *entry.get("args", [])]
    return {**entry, "cwd": str(project)} if any(relative(word) for word in words) else entry
