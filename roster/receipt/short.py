"""The receipt in a line a client: what `roster init` ends with."""

from __future__ import annotations

from pathlib import Path

from roster.clients.adapters import CLIENTS
from roster.clients.machine import Machine
from roster.config import Home

__all__ = ["NOTHING_KNOWN", "short"]

NOTHING_KNOWN = "`roster reindex`, then `roster receipt`, says what your tools cost each client's context."


def short(machine: Machine, home: Home, project: Path | None = None) -> list[str]:
    """A line a client that has tools we know of, or one that says how to get there. Connects to nothing.

    project: the one whose servers count too; none: the directory's. Raises ConfigError, StoreError.
    """
    if not home.database.exists():
        return [NOTHING_KNOWN]  # the usual case, and it need not wait for a tokenizer
    from roster.receipt.meter import open_meter
    from roster.receipt.receipt import make_receipt
    from roster.receipt.words import short_lines

    lines = short_lines(make_receipt(machine, home, CLIENTS, project or machine.cwd, open_meter()))
    return lines or [NOTHING_KNOWN]
