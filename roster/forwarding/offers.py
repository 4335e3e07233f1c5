"""What Roster announces to a client: what its servers have, and of servers never seen, what they may have."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from roster.config import Mode

__all__ = ["announced"]


def announced(mode: Mode, offers: Iterable[Collection[str] | None]) -> dict[str, Any]:
    """The `capabilities` of a handshake.

    offers: for each server what it has besides tools, None if it never was connected. In five mode resources are
    announced so that links in results can be read, and only if some server is known to have them: a client may spend
    tools of its own on a server with resources.
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
    return capabilities
