"""What a receipt calls servers and tools: by number, so that it can be shown around, or by name when asked to."""

from __future__ import annotations

import re
from pathlib import Path

from roster.clients.redact import shown
from roster.receipt.ledger import Server, Tool
from roster.receipt.receipt import Receipt

__all__ = ["Labels"]

_PATHLIKE = re.compile(r"^(?:[A-Za-z]:)?[\\/~]|\\|://")
_LONGEST = 40


class Labels:
    """Labels of one receipt's servers and tools. Servers are numbered from the heaviest on."""

    def __init__(self, receipt: Receipt, *, named: bool) -> None:
        self._named = named
        self._home = receipt.home
        self._servers: dict[str, Server] = {}
        for one in receipt.bills:
            for use in one.owned.uses:
                kept = self._servers.setdefault(use.server.key, use.server)
                if use.server.count.tokens > kept.count.tokens:
                    self._servers[use.server.key] = use.server
        order = sorted(self._servers.values(), key=lambda server: (server.tools is None, -server.count.tokens))
        self._numbers = {server.key: number for number, server in enumerate(order, 1)}

    def server(self, key: str) -> str:
        """What to call the server with this key."""
        number = f"server {self._numbers[key]}"
        return _safe(self._servers[key].name, self._home) or number if self._named else number

    def tool(self, tool: Tool) -> str:
        """What to call a tool, with its server."""
        name = _safe(tool.name, self._home) if self._named else ""
        return f"{self.server(tool.server)}: {name or f'tool {tool.place}'}"


def _safe(name: str, home: Path) -> str:
    """A name as it may be shown; "" for one that is, or holds, a path or an address."""
    if _PATHLIKE.search(name) or str(home) in name:
        return ""
    hidden = str(shown({"name": name})["name"])
    return hidden if len(hidden) <= _LONGEST else f"{hidden[: _LONGEST - 3]}..."
