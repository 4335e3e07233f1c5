"""JSON-RPC lines over pipes: whole, in order, and nobody waits who need not."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage

from roster.wires import AHEAD_BYTES, LineReader, LineWriter, can_wire

pytestmark = pytest.mark.anyio


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The reading and the writing end of a pipe; whichever a test has closed stays closed."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


def note(n: int, **params: Any) -> SessionMessage:
    return SessionMessage(types.JSONRPCNotification(jsonrpc="2.0", method=f"n/{n}", params=params or None))


def line(n: int, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": f"n/{n}", **({"params": params} if params else {})}).encode() + b"\n"


def number(item: SessionMessage | Exception) -> int:
    assert isinstance(item, SessionMessage)
    assert isinstance(item.message, types.JSONRPCNotification)
    return int(item.message.method.removeprefix("n/"))


async def read(reader: LineReader) -> list[int]:
    return [number(item) async for item in reader]


# ------------------------------------------------------------------------------------------------ reading


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 1000])
async def test_lines_arrive_in_order_however_they_were_cut(pipe: tuple[int, int], pieces: int) -> None:
    """Several in one piece, and one in several; the last needs no line end."""
    whole = b"".join(line(n, text="x" * n) for n in range(50)).removesuffix(b"\n")
    size = -(-len(whole) // pieces)
    reader = LineReader(pipe[0])
    got: list[int] = []

    async def take() -> None:
        got.extend(await read(reader))

    async with anyio.create_task_group() as group:
        group.start_soon(take)
        for begin in range(0, len(whole), size):
            os.write(pipe[1], whole[begin : begin + size])
            await anyio.lowlevel.checkpoint()
        os.close(pipe[1])
    assert got == list(range(50))


async def test_a_line_that_is_no_message_is_an_error_and_the_next_is_read(pipe: tuple[int, int]) -> None:
    """Junk on the wire costs itself. Empty lines cost nothing; bytes that are no text are replaced."""
    bad = line(3, text="x").replace(b'"x"', b'"\xff"')
    os.write(pipe[1], line(1) + b"hello, world\n\n  \r\n" + line(2) + bad)
    os.close(pipe[1])
    first, junk, second, third = [item async for item in LineReader(pipe[0])]
    assert (number(first), number(second), number(third)) == (1, 2, 3)
    assert isinstance(junk, ValueError)
    assert third.message.params == {"text": "\ufffd"}  # type: ignore[union-attr]


async def test_a_flood_is_the_senders_to_hold(pipe: tuple[int, int]) -> None:
    """What nobody takes up is not read without end; once it is taken up, the rest comes."""
    os.set_blocking(pipe[1], False)
    reader = LineReader(pipe[0])
    sent = line(1, text="x" * 4_000)  # a pipe takes so much whole or not at all
    count, full = 0, 0
    while full < 20:
        try:
            assert os.write(pipe[1], sent) == len(sent)
            count += 1
            full = 0
        except BlockingIOError:
            full += 1
            await anyio.lowlevel.checkpoint()
        assert count * len(sent) < 4 * AHEAD_BYTES
    os.close(pipe[1])
    assert len(await read(reader)) == count


async def test_what_a_closed_reader_discards_keeps_its_writer_going(pipe: tuple[int, int]) -> None:
    """A server that is being ended may still be writing; it must be able to finish and go."""
    reader = LineReader(pipe[0])
    reader.discard()
    with pytest.raises(anyio.ClosedResourceError):
        await reader.receive()
    os.set_blocking(pipe[1], False)
    writer = LineWriter(pipe[1])
    with anyio.fail_after(10):
        for n in range(100):
            await writer.send(note(n, text="x" * 50_000))
    reader.close()


async def test_whoever_waits_for_a_line_can_be_cancelled(pipe: tuple[int, int]) -> None:
    """And the line that comes later is not lost."""
    reader = LineReader(pipe[0])
    with anyio.move_on_after(0):
        await reader.receive()
    os.write(pipe[1], line(1))
    assert number(await reader.receive()) == 1
    reader.close()


# ------------------------------------------------------------------------------------------------ writing


async def test_messages_leave_whole_and_in_order_through_a_full_pipe(pipe: tuple[int, int]) -> None:
    """Many tasks write far more than the pipe holds, small and large; what arrives is every message, in the order in
    which it was sent."""
    os.set_blocking(pipe[1], False)
    writer, reader = LineWriter(pipe[1]), LineReader(pipe[0])
    got: list[int] = []

    async def take() -> None:
        async for item in reader:
            got.append(number(item))
            if len(got) == 40:
                return

    async with anyio.create_task_group() as group:
        for n in range(40):
            group.start_soon(writer.send, note(n, text="x" * (200_000 if n % 3 else 10)))
        group.start_soon(take)
    assert got == list(range(40))
    reader.close()


async def test_a_message_whose_sender_was_cancelled_still_arrives_whole(pipe: tuple[int, int]) -> None:
    """Half of one would spoil every message after it."""
    os.set_blocking(pipe[1], False)
    writer, reader = LineWriter(pipe[1]), LineReader(pipe[0])
    with anyio.move_on_after(0) as scope:
        await writer.send(note(1, text="x" * 1_000_000))
    assert scope.cancelled_caught
    async with anyio.create_task_group() as group:
        group.start_soon(writer.send, note(2))
        assert [number(await reader.receive()), number(await reader.receive())] == [1, 2]
    reader.close()


async def test_what_nobody_reads_does_not_pile_up(pipe: tuple[int, int]) -> None:
    """Whoever gives up waiting for a reader that does not read takes its message along, once enough of them wait."""
    os.set_blocking(pipe[1], False)
    writer = LineWriter(pipe[1])
    for n in range(100):
        with anyio.move_on_after(0):
            await writer.send(note(n, text="x" * 100_000))
    reader = LineReader(pipe[0])
    got: list[int] = []

    async def take() -> None:
        async for item in reader:
            got.append(number(item))
            if got[-1] == 100:
                return

    async with anyio.create_task_group() as group:
        group.start_soon(writer.send, note(100))
        group.start_soon(take)
    assert got == [*range(len(got) - 1), 100]
    assert AHEAD_BYTES / 100_000 <= len(got) < 30
    reader.close()


async def test_a_reader_that_has_gone_is_an_error_to_whoever_sends(pipe: tuple[int, int]) -> None:
    """Also to those who were waiting for it to read."""
    os.set_blocking(pipe[1], False)
    writer = LineWriter(pipe[1])
    failed: list[int] = []

    async def send(n: int) -> None:
        try:
            await writer.send(note(n, text="x" * 500_000))
        except anyio.BrokenResourceError:
            failed.append(n)

    async with anyio.create_task_group() as group:
        group.start_soon(send, 1)
        group.start_soon(send, 2)
        await anyio.lowlevel.checkpoint()
        os.close(pipe[0])
    assert sorted(failed) == [1, 2]
    with pytest.raises(anyio.BrokenResourceError):
        await writer.send(note(3))
    await writer.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await writer.send(note(4))


async def test_a_descriptor_is_left_as_it_was(pipe: tuple[int, int]) -> None:
    """Others may use the same pipe after us, and expect to wait."""
    writer, reader = LineWriter(pipe[1]), LineReader(pipe[0])
    assert os.get_blocking(pipe[1]) is False
    await writer.send(note(1))
    await writer.leave()
    assert os.get_blocking(pipe[1]) is True
    assert number(await reader.receive()) == 1
    reader.close()


def test_only_pipes_and_sockets_are_waited_for(pipe: tuple[int, int]) -> None:
    """The event loop cannot wait for a file, nor for a descriptor that is none."""
    one, other = socket.socketpair()
    with one, other, open(os.devnull) as nothing:
        assert can_wire(*pipe, one.fileno())
        assert not can_wire(pipe[0], nothing.fileno())
    assert not can_wire(10_000)
