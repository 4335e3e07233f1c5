"""What Roster announces to a client: what its servers have, and of servers never seen, what they may have."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from roster.config import Mode

__all__ = ["announced"]


def announced(mode: Mode, offers: Iterable[Collection[str] | None], *, tasks: bool = True) -> dict[str, Any]:
    """The `capabilities` of a handshake.

    offers: for each server what it has besides tools, None if it never was connected. In five mode resources are
    announced so that links in results can be read, and only if some server is known to have them: a client may spend
    tools of its own on a server with resources. tasks: whether the era has them.
    """
    known = list(offers)
    unseen = mode is Mode.TRANSPARENT and None in known

    def some(offer: str) -> bool:
        return unseen or any(offer in one for one in known if one is not None)

    capabilities: dict[str, Any] = {"tools": {"listChanged": mode is Mode.TRANSPARENT}}
    if some("resources"):
        capabilities["resources"] = {"subscribe": some("subscribe"), "listChanged": mode is Mode.TRANSPARENT}
    if mode is Mode.TRANSPARENT and some("prompts"):
        capabilities["prompts"] = {"listChanged": True}
    if mode is Mode.TRANSPARENT and some("completions"):
        capabilities["completions"] = {}
    if some("logging"):
        capabilities["logging"] = {}
    if tasks and mode is Mode.TRANSPARENT and any("tasks" in one for one in known if one is not None):
        # Only where it is known: a client calls a tool that can be a task in another way.
        capabilities["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    return capabilities
