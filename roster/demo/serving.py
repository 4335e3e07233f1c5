"""What the demo servers share: the hints they give about a tool, and the way they read their one argument.

What a tool returns is a frozen dataclass without slots: the SDK (2.3) takes a slot for a default value and then
publishes no output schema.
"""

import sys
from pathlib import Path

from mcp_types import ToolAnnotations

__all__ = ["ADDS", "READS", "REPLACES", "SETS", "path_argument"]


def _hints(*, read_only: bool, destructive: bool, idempotent: bool) -> ToolAnnotations:
    return ToolAnnotations(
        read_only_hint=read_only, destructive_hint=destructive, idempotent_hint=idempotent, open_world_hint=False
    )


READS = _hints(read_only=True, destructive=False, idempotent=True)
"""Changes nothing."""
ADDS = _hints(read_only=False, destructive=False, idempotent=False)
"""Leaves what was there; a second call adds a second time, or is refused."""
SETS = _hints(read_only=False, destructive=False, idempotent=True)
"""Leaves what was there; a second call changes nothing more."""
REPLACES = _hints(read_only=False, destructive=True, idempotent=True)
"""What was there before may be gone; a second call changes nothing more."""


def path_argument(server: str, word: str) -> Path:
    """The one path on the command line of `python -m roster.demo.SERVER WORD`; exits with status 2 without it."""
    match sys.argv[1:]:
        case [path] if not path.startswith("-"):
            return Path(path)
        case _:
            print(f"usage: python -m roster.demo.{server} {word}", file=sys.stderr)
            raise SystemExit(2)
