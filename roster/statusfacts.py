"""What `roster status` counts and looks up beside what is on file: the day's calls, where in roster.json to look."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from roster.app import Roster
from roster.config import Config, Problem
from roster.errors import RosterError
from roster.history import History

__all__ = ["Today", "calls_today", "problem_lines", "together"]

_QUOTED_KEY = re.compile(r"(?:the key |^)'?([A-Za-z_][\w.-]*)'?(?: is not known|[:.])")


@dataclass(frozen=True, slots=True)
class Today:
    """The calls since midnight, local time. latencies_ms: of those that worked."""

    calls: int = 0
    failed: int = 0
    latencies_ms: tuple[float, ...] = ()

    def wire(self) -> dict[str, Any]:
        """As JSON: counts, and the median latency of the successes; None without any."""
        p50 = round(statistics.median(self.latencies_ms), 1) if self.latencies_ms else None
        return {"calls": self.calls, "failed": self.failed, "p50_ms": p50}


def calls_today(roster: Roster, now: float) -> dict[str, Today]:
    """Server → the calls of its cards since midnight."""
    day = time.localtime(now)
    midnight = time.mktime((day.tm_year, day.tm_mon, day.tm_mday, 0, 0, 0, 0, 0, -1))
    servers = roster.writer.registry.servers_by_id()
    calls: dict[str, list[tuple[bool, float]]] = {}
    for card, success, latency_ms in History(roster.writer.db).calls_since(midnight):
        calls.setdefault(servers.get(card, ""), []).append((success, latency_ms))
    return {
        server: Today(
            len(ended), sum(not success for success, _ in ended), tuple(ms for success, ms in ended if success)
        )
        for server, ended in calls.items()
    }


def together(parts: Iterable[Today]) -> Today:
    """The calls of all of them."""
    every = list(parts)
    latencies = tuple(ms for each in every for ms in each.latencies_ms)
    return Today(sum(each.calls for each in every), sum(each.failed for each in every), latencies)


def problem_lines(config: Config) -> list[int | None]:
    """For each problem of a config the line of roster.json it is about, from 1; None where that cannot be told."""
    if not config.problems or config.path is None:
        return [None] * len(config.problems)
    from roster.clients.spans import parse

    try:
        text = config.path.read_text(encoding="utf-8")
        root = parse(text).root
    except (OSError, UnicodeDecodeError, RosterError):
        return [None] * len(config.problems)
    return [_line_of(text, root, problem) for problem in config.problems]


def _line_of(text: str, root: Any, problem: Problem) -> int | None:
    """The line of the key a problem names, or else of its server."""
    from roster.clients.spans import members_of

    named = _QUOTED_KEY.search(problem.message)
    way = ["mcpServers", problem.server] if problem.server else []
    found, node = [], root
    for key in [*way, *([named[1].split(".")[0]] if named else [])]:
        member = next((member for name, member in members_of(node) if name == key), None)
        if member is None:
            break
        found.append(member)
        node = member.value
    if not found or len(found) < len(way):
        return None
    return text.count("\n", 0, found[-1].start) + 1
