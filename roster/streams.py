"""A read stream around another one: all that the SDK asks of one, so that `receive` alone is left to say."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import anyio
from mcp.shared._stream_protocols import ReadStream
from mcp.shared.message import SessionMessage

__all__ = ["StreamAround"]


class StreamAround:
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

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)
