"""Outcomes are written down after their answers: in order, all of them, and without holding anybody up for long."""

from __future__ import annotations

import sqlite3
import threading
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from roster.scribe import BACKLOG, Scribe

pytestmark = pytest.mark.anyio


class Told:
    """A recorder that notes what it was given. held: as long as it is set, another process has the database."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.held = False
        self.free = threading.Event()

    def record_now(self, ended: Any) -> bool:
        if not self.held:
            self.written.append(ended)
        return not self.held

    def record(self, ended: Any) -> None:
        self.free.wait(20)
        self.written.append(ended)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def scribe(told: Told) -> Scribe:
    return Scribe(told)  # type: ignore[arg-type]


async def running(scribe: Scribe, group: anyio.abc.TaskGroup) -> None:
    group.start_soon(scribe.run)
    await anyio.lowlevel.checkpoint()


async def test_whoever_calls_has_the_answer_first(told: Told, scribe: Scribe) -> None:
    """Recording returns at once and is done in the next moment, in the order of the calls."""
    async with anyio.create_task_group() as group:
        await running(scribe, group)
        for n in range(5):
            await scribe.record(n)  # type: ignore[arg-type]
        assert told.written == []
        await scribe.finish()
        assert told.written == [0, 1, 2, 3, 4]
        group.cancel_scope.cancel()


async def test_without_anybody_to_do_it_later_it_is_done_before(told: Told, scribe: Scribe) -> None:
    """As on the command line, where nothing runs beside a call."""
    await scribe.record(1)  # type: ignore[arg-type]
    assert told.written == [1]


async def test_another_process_at_the_database_holds_up_no_call(told: Told, scribe: Scribe) -> None:
    """Its outcome is written once the database is free, and those that came later after it."""
    told.held = True
    async with anyio.create_task_group() as group:
        await running(scribe, group)
        with anyio.fail_after(5):
            for n in range(3):
                await scribe.record(n)  # type: ignore[arg-type]
            await anyio.lowlevel.checkpoint()
            assert told.written == []
            told.free.set()
            await scribe.finish()
        assert told.written == [0, 1, 2]
        group.cancel_scope.cancel()


async def test_what_waits_does_not_grow_without_end(told: Told, scribe: Scribe) -> None:
    """Beyond a limit a call waits for the database itself, for a fifth of a second and no more."""
    told.held = True
    async with anyio.create_task_group() as group:
        await running(scribe, group)
        for n in range(BACKLOG):
            await scribe.record(n)  # type: ignore[arg-type]
        with anyio.move_on_after(0.05) as scope:
            await scribe.record("one more")  # type: ignore[arg-type]
        assert scope.cancelled_caught
        told.held = False
        told.free.set()
        await scribe.finish()
        assert set(range(BACKLOG)) <= set(told.written)
        group.cancel_scope.cancel()


async def test_who_ends_it_waits_for_what_is_being_written(told: Told, scribe: Scribe) -> None:
    """A process that ended before the thread has done it would lose the record."""
    told.held = True
    async with anyio.create_task_group() as group:
        await running(scribe, group)
        await scribe.record(1)  # type: ignore[arg-type]
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
        threading.Timer(0.1, told.free.set).start()
    assert told.written == [1]


async def test_at_the_end_what_is_left_is_written(told: Told, scribe: Scribe) -> None:
    """Also what ended a moment before."""
    async with anyio.create_task_group() as group:
        await running(scribe, group)
        await scribe.record(1)  # type: ignore[arg-type]
        group.cancel_scope.cancel()
    await scribe.finish()
    assert told.written == [1]


async def test_an_error_that_nobody_foresaw_ends_nothing(told: Told, scribe: Scribe) -> None:
    """A record may be lost; those after it are not, nor is anything a client waits for."""

    def fails(_: Any) -> bool:
        told.record_now = Told.record_now.__get__(told)  # type: ignore[method-assign]
        raise sqlite3.InterfaceError("no such thing")

    told.record_now = fails  # type: ignore[method-assign]
    async with anyio.create_task_group() as group:
        await running(scribe, group)
        first, second = SimpleNamespace(card=SimpleNamespace(id="a__x")), SimpleNamespace()
        await scribe.record(first)  # type: ignore[arg-type]
        await scribe.record(second)  # type: ignore[arg-type]
        await scribe.finish()
        assert told.written == [second]
        group.cancel_scope.cancel()
