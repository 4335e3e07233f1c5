"""How each client brings tool definitions into its model's context, as far as it says so. Checked November 2026.

Most send every definition with every request. Some send names and load a definition when the model asks for it, and
some stop at a number of tools. Which of that a client does can depend on its version, its settings and the model, so
for those the receipt shows both ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Loading", "Way", "loading_of"]


class Way(StrEnum):
    """What of a tool is in the context before it is used: all of it, or its name."""

    WHOLE = "whole"
    NAMES = "names"


@dataclass(frozen=True, slots=True)
class Loading:
    """What a client does, and why we say so. limit: the most tools it sends; None: no limit is known."""

    way: Way
    why: str
    limit: int | None = None
    source: str = ""


_UNKNOWN = Loading(Way.WHOLE, "it is not known to defer definitions: all of them are counted")
_VSCODE = Loading(
    Way.WHOLE,
    "a request holds 128 tools at most; beyond that some are switched off or folded into groups",
    128,
    "https://code.visualstudio.com/docs/copilot/chat/chat-tools",
)

_LOADING = {
    "claude-code": Loading(
        Way.NAMES,
        "tool search is on unless it is switched off: names alone, a definition once it was searched for",
        source="https://code.claude.com/docs/en/mcp",
    ),
    "cursor": Loading(
        Way.NAMES,
        "since 2026 names alone, a definition once it was looked up; older versions send all, of 40 tools at most",
        source="https://cursor.com/blog/dynamic-context-discovery",
    ),
    "codex": Loading(
        Way.NAMES,
        "with some models tools are found by a search, with others all definitions are sent",
        source="https://github.com/openai/codex/issues/33608",
    ),
    "vscode": _VSCODE,
    "vscode-insiders": _VSCODE,
    "windsurf": Loading(
        Way.WHOLE,
        "100 tools at most; the rest is to be switched off",
        100,
        "https://docs.windsurf.com/windsurf/cascade/mcp",
    ),
}


def loading_of(client: str) -> Loading:
    """What the client with this id does."""
    return _LOADING.get(client, _UNKNOWN)
