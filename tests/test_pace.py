"""A server that writes without end is heard in turns with everybody else, and slowly where it makes no sense."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

from roster.backends.pace import REST_S, STRAY, STRETCH_S, PacedStream

pytestmark = pytest.mark.anyio

WORD = SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="x"))
JUNK = ValueError("no message")
QUICK_S = STRETCH_S / 100
SLOW_S = 0.1


class Spoken:
    """A stream of these items, each so many seconds after the last; and the rests that were taken from it."""

    def __init__(self, items: Iterable[tuple[float, Any]]) -> None:
        self.now = 1_000.0
        self.rests: list[float] = []
        self._items = iter(items)

    async def receive(self) -> Any:
        try:
            seconds, item = next(self._items)
        except StopIteration:
            raise anyio.EndOfStream from None
        self.now += seconds
        return item

    async def sleep(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now += seconds


async def heard(*items: tuple[float, Any]) -> Spoken:
    """What was spoken, once all of it was heard, in order."""
    spoken = Spoken(items)
    paced: Any = PacedStream(spoken, lambda: spoken.now, spoken.sleep)  # type: ignore[arg-type]
    assert [item async for item in paced] == [item for _, item in items]
    return spoken


async def test_a_flood_of_what_nobody_can_read_gets_a_small_part_of_the_time() -> None:
    """It rests after each stretch, for ten times as long."""
    spoken = await heard(*[(QUICK_S, JUNK)] * 10_000)

    assert sum(spoken.rests) > 0.85 * (spoken.now - 1_000.0)
    assert REST_S in spoken.rests


async def test_stray_lines_cost_nothing() -> None:
    """As many as a banner has, at once, and then one now and then for as long as it runs."""
    spoken = await heard(*[(QUICK_S, JUNK)] * (STRAY - 1), *[(SLOW_S, JUNK), (QUICK_S, WORD)] * 1_000)

    assert set(spoken.rests) == {0}


async def test_messages_that_are_waited_for_are_handed_on_at_once() -> None:
    """Whoever waited for one has let the others have their turn."""
    assert len((await heard(*[(SLOW_S, WORD)] * 100)).rests) == 1


async def test_a_burst_of_messages_lets_others_have_their_turn() -> None:
    """After each stretch, without a rest: they are wanted."""
    spoken = await heard(*[(QUICK_S, WORD)] * 10_000)

    assert set(spoken.rests) == {0}
    assert len(spoken.rests) == pytest.approx(10_000 * QUICK_S / STRETCH_S, rel=0.1)


async def test_after_a_flood_a_server_is_heard_as_ever() -> None:
    """What it did before is not held against it."""
    flood = await heard(*[(QUICK_S, JUNK)] * 1_000)
    spoken = await heard(*[(QUICK_S, JUNK)] * 1_000, *[(QUICK_S, WORD), (SLOW_S, WORD)] * 100)

    assert spoken.rests.count(REST_S) - flood.rests.count(REST_S) <= 1
