"""Read streams as the SDK asks for them, so that `receive` alone is left to say."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import anyio
from mcp.shared._stream_protocols import ReadStream
from mcp.shared.message import SessionMessage

__all__ = ["StreamAround", "Taken"]


class Taken:
    """What can be received one by one, and so in a loop too."""

    async def receive(self) -> SessionMessage | Exception:
        """The next item. Raises anyio.EndOfStream."""
        raise NotImplementedError

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class StreamAround(Taken):
    """Hands on what the inner stream gives. Whoever derives from it changes `receive`."""

    def __init__(self, inner: ReadStream[SessionMessage | Exception]) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # `last_context`, on the streams that carry it

    async def receive(self) -> SessionMessage | Exception:
        """The next item. Raises anyio.EndOfStream."""
        return await self._inner.receive()

    async def aclose(self) -> None:
        """Close the stream."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)
