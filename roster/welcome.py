"""What a client is told when it connects: who is behind this server, and in five mode its two tools."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from mcp.server.lowlevel.server import Server

from roster import __version__
from roster.config import Config, Mode

__all__ = ["DEFAULT_K", "MAX_K", "five_tools", "instructions", "new_server"]

DEFAULT_K = 5
MAX_K = 10
"""How many tools a draft shows: unless asked otherwise, and at most."""

_SERVERS_NAMED = 24
LifespanT = TypeVar("LifespanT")


def summary(config: Config, servers: Collection[str] | None = None) -> str:
    """What is behind this Roster, in one line that stays the same for as long as the config does."""
    seen = config.servers.keys() if servers is None else config.servers.keys() & servers
    names = sorted(name for name in seen if not config.servers[name].disabled)
    if not names:
        return "no servers yet"
    more = f" and {len(names) - _SERVERS_NAMED} more" if len(names) > _SERVERS_NAMED else ""
    return f"{', '.join(names[:_SERVERS_NAMED])}{more}"


def five_tools(config: Config, servers: Collection[str] | None = None) -> list[dict[str, Any]]:
    """The two tools of five mode. They depend on the config alone, so a client never sees them change."""
    return [
        {
            "name": "draft",
            "title": "Find the right tools",
            "description": (
                f"Find the best tools for your next step. Behind this: {summary(config, servers)}. Say in one sentence "
                "what you need to do; you get up to k matching tools with their inputs. Draft again for each new kind "
                "of step."
            ),
            "inputSchema": {
                "type": "object",
                "properties": {
                    "need": {"type": "string", "minLength": 1, "description": "What to do next, in plain words"},
                    "k": {"type": "integer", "minimum": 1, "maximum": MAX_K, "default": DEFAULT_K},
                },
                "required": ["need"],
            },
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
        },
        {
            "name": "call",
            "title": "Use a tool",
            "description": (
                "Use a tool by its id from a draft. args must fit the `input` shown for it. Pass the draft_id along."
            ),
            "inputSchema": {
                "type": "object",
                "properties": {
                    "tool": {"type": "string", "description": "The id of a starter"},
                    "args": {"type": "object", "description": "The tool's own arguments"},
                    "draft_id": {"type": "string"},
                },
                "required": ["tool"],
            },
        },
    ]


def instructions(config: Config, mode: Mode, servers: Collection[str] | None = None) -> str:
    """What a client's model should know of this server."""
    if mode is Mode.TRANSPARENT:
        return f"Tools of several servers, named server__tool. Servers: {summary(config, servers)}."
    return (
        f"One way to every tool of: {summary(config, servers)}. For each step, `draft` the need in plain words, then "
        "`call` one of the starters by id. If none fits, draft again in other words."
    )


def new_server(
    config: Config, mode: Mode, lifespan: Callable[[Server[LifespanT]], AbstractAsyncContextManager[LifespanT]]
) -> Server[LifespanT]:
    """The protocol's side of a Roster, which answers the handshake and nothing else yet."""
    return Server(
        "roster", version=__version__, title="Roster", instructions=instructions(config, mode), lifespan=lifespan
    )
