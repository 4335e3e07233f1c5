"""Where backends and whoever serves the clients meet, without knowing each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from roster.backends.backend import Backend

__all__ = ["Peer", "Switchboard"]


class Peer(Protocol):
    """What stands on the other side of the backends: whoever serves the clients."""

    async def connected(self, backend: Backend) -> None:
        """A backend's connection is open. Cancelled when it ends."""

    async def asked(self, backend: Backend, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to what a backend asks of the client. Raises MCPError."""

    async def fulfil(self, backend: Backend, result: Mapping[str, Any]) -> dict[str, Any] | None:
        """What to tell a backend that answered with a question; None to hand the question on. Raises MCPError."""

    async def noted(self, backend: Backend, method: str, params: Mapping[str, Any]) -> None:
        """A backend announces something."""


@dataclass(slots=True)
class Switchboard:
    """Connects every backend of a pool with whoever serves the clients, once there is one."""

    peer: Peer | None = None
