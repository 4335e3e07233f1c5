"""Roster's own entry in a client's file: what it looks like in each dialect, and how it is known there. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from roster.addresses import is_loopback
from roster.clients.adapters import Dialect

__all__ = ["is_roster", "to_client"]

Entry = dict[str, Any]

_URL_KEYS = ("url", "httpUrl", "serverUrl", "uri")
_SERVES = re.compile(r"(?:^|[\s/\\\"'])roster(?:\.exe|\.cmd)?[\"']?\s+serve(?:\s|[\"']|$)", re.IGNORECASE)


def is_roster(value: Any, name: str = "") -> bool:
    """Whether an entry, in any dialect, runs `roster serve`: directly, as a module, or through another program.

    name: what it is called; one that says roster and leads to an address on this machine is taken for Roster as well.
    """
    if not isinstance(value, Mapping):
        return False
    url = next((value[key] for key in _URL_KEYS if isinstance(value.get(key), str)), "")
    if name.lower().startswith("roster") and _is_here(url):
        return True
    command: Any = value.get("command", value.get("cmd"))
    args = value.get("args")
    if isinstance(command, Mapping):
        command, args = command.get("path"), command.get("args")
    words = command if isinstance(command, list) else [command]
    words = [*words, *(args if isinstance(args, list) else [])]
    return _SERVES.search(" ".join(word for word in words if isinstance(word, str))) is not None


def _is_here(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return host == "localhost" or is_loopback(host)


def to_client(dialect: Dialect, command: list[str], env: Mapping[str, str], variables: list[str]) -> Entry:
    """The entry that has a client start Roster.

    env: literal values it needs. variables: names that routed servers refer to, for clients that withhold them.
    """
    program, *args = command
    plain: Entry = {"command": program, "args": args}
    literal = dict(env)
    match dialect:
        case Dialect.CLAUDE_CODE | Dialect.VSCODE:
            entry = {"type": "stdio", **plain, "env": literal}
        case Dialect.ZED:
            entry = {"source": "custom", **plain, "env": literal}
        case Dialect.COPILOT:
            entry = {"type": "local", **plain, "env": literal, "tools": ["*"]}
        case Dialect.CODEX:
            entry = {**plain, "env_vars": variables, "env": literal}
        case Dialect.GEMINI:
            entry = {**plain, "env": {**literal, **{name: f"${name}" for name in variables}}}
        case Dialect.OPENCODE:
            entry = {"type": "local", "command": command, "enabled": True, "environment": literal}
        case Dialect.GOOSE:
            return {
                "enabled": True,
                "type": "stdio",
                "name": "roster",
                "description": "One MCP server in front of all others",
                "cmd": program,
                "args": args,
                "envs": literal,
                "env_keys": variables,
                "timeout": 300,
            }
        case _:
            entry = {**plain, "env": literal}
    return {key: value for key, value in entry.items() if key not in ("env", "environment", "env_vars") or value}
