"""One configured server: its owner task, which connects, lists, waits and connects again, and its calls.

A backend that is slow, missing or dead is its own affair: nothing here is ever awaited by another backend. Results are
handed on unread; a call that fails is news, so it comes back as a value.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError

from roster.backends.backoff import pause_s
from roster.backends.exchange import Answer, exchange
from roster.backends.flights import Flights
from roster.backends.link import Link, Progress, open_link
from roster.backends.pings import Pings
from roster.backends.switchboard import Switchboard
from roster.backends.transports import (
    CONNECTION_CLOSED,
    ErrorKind,
    error_kind,
    first_leaf,
    log_file,
    open_transport,
    remedy,
)
from roster.backends.turns import MOST, Turns
from roster.backends.wire import Listing, Rows, list_rows, list_tools
from roster.config import ServerSpec, Transport
from roster.errors import VariableError
from roster.outcomes import CallReport, Cause

__all__ = ["Answer", "Backend", "State"]

log = logging.getLogger(__name__)

BACKOFF_S = (1.0, 60.0)
RELIST_PAUSE_S = 0.2
HELD_S = 60.0
PLACE_WAIT_S = 3.0
OWED_PAUSE_S = 30.0
MAX_ROUNDS = 10


class State(StrEnum):
    """Where a backend stands; only `ready` has a connection."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"  # will be tried again
    MISCONFIGURED = "misconfigured"  # a person must mend the config
    STOPPED = "stopped"


ListingSink = Callable[["Backend", Listing], Awaitable[bool]]
"""Takes a listing in; False when it could not and should be told again later."""
StateSink = Callable[["Backend"], Awaitable[None]]


class Backend:
    """One configured server, its connection and its honest state."""

    def __init__(
        self,
        name: str,
        spec: ServerSpec,
        *,
        logs: Path,
        places: anyio.CapacityLimiter,
        on_listing: ListingSink,
        on_state: StateSink,
        switchboard: Switchboard | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.spec = spec
        self.state = State.STARTING
        self.error: ErrorKind | None = None
        self.reason = ""
        self.protocol: str | None = None
        self.offers: tuple[str, ...] | None = None
        self.version: str | None = None
        self.connect_ms: float | None = None
        self.listed = False
        self.ended = anyio.Event()
        self._log_file = log_file(logs, name)
        self._places = places
        self._on_listing, self._on_state = on_listing, on_state
        self._environ = os.environ if environ is None else environ
        self._switchboard = switchboard or Switchboard()
        self._turns = Turns(spec.max_concurrency)
        self._link: Link | None = None
        self._repeatable: frozenset[str] = frozenset()
        self._pings = Pings()
        self._stop = anyio.Event()
        self._relist = False
        self._attention = anyio.Event()
        self._changed = anyio.Event()
        self._attempts = 0
        self._wanted = False
        self._owed = False

    # ------------------------------------------------------------------------------------------ owner task

    async def run(self) -> None:
        """Own the connection until stopped: connect, list, wait, and after a loss connect again, for ever."""
        failures = 0
        try:
            while not self._stop.is_set():
                begun = anyio.current_time()
                try:
                    if reason := self.spec.missing(self._environ):
                        raise VariableError(reason)
                    await self._connected()
                    raise MCPError(CONNECTION_CLOSED, "Connection closed")
                except Exception as error:  # noqa: BLE001
                    # The end of a connection's life, whatever ended it; the owner goes on to the next one.
                    if self._stop.is_set():
                        return
                    await self._failed(error)
                # One that held for a while starts afresh; one that keeps dying is asked less and less often.
                failures = 0 if anyio.current_time() - begun > HELD_S else failures + 1
                await self._pause(failures)
        finally:
            self.state = State.STOPPED
            self._announce()
            self.ended.set()

    async def _connected(self) -> None:
        """One connection, from start to loss. Returns when it ended or a stop was asked for."""
        await self._move(State.STARTING)
        # A place among those starting at once, until this one is ready or has failed: many spawns at the same
        # moment only time each other out.
        # Nor does a queue of hung servers hold up the others for long.
        with anyio.move_on_after(PLACE_WAIT_S):
            await self._places.acquire_on_behalf_of(self)
        self._wanted = False
        try:
            for transport in self._transports():
                try:
                    await self._connected_over(transport)
                except Exception as error:
                    # A bare URL may mean the older transport; anything but a plain refusal is not about that.
                    if transport is not Transport.HTTP or self.state is State.READY or not self._guessing(error):
                        raise
                else:
                    return
        finally:
            self._release()

    def _transports(self) -> tuple[Transport, ...]:
        if self.spec.transport is Transport.HTTP and self.spec.guessed:
            return (Transport.HTTP, Transport.SSE)
        return (self.spec.transport,)

    def _guessing(self, error: Exception) -> bool:
        return self.spec.guessed and error_kind(error, ready=False) in (ErrorKind.REJECTED, ErrorKind.PROTOCOL)

    def _release(self) -> None:
        if self in self._places.statistics().borrowers:
            self._places.release_on_behalf_of(self)

    async def _connected_over(self, transport: Transport) -> None:
        begun = anyio.current_time()
        with anyio.CancelScope(deadline=begun + self.spec.start_timeout_s) as scope:
            streams = open_transport(self.spec, transport, self._environ, self._log_file)
            async with open_link(streams, on_closed=self._wake, on_ask=self._ask, on_note=self._hear) as link:
                await link.handshake()
                self.protocol, self.version, self.offers = link.protocol, link.version, link.offers
                listing = await list_tools(link.session)
                self._repeatable = listing.repeatable
                scope.deadline = float("inf")
                self._release()
                self.connect_ms = (anyio.current_time() - begun) * 1000
                self._link, self.error, self.reason = link, None, ""
                await self._move(State.READY)
                try:
                    self._owed = not await self._on_listing(self, listing)
                    self.listed = True
                    self._announce()
                    async with anyio.create_task_group() as group:
                        group.start_soon(self._connect_peer)
                        group.start_soon(link.listen)
                        await self._stay(link)
                        group.cancel_scope.cancel()
                finally:
                    self._link = None
        if scope.cancelled_caught:
            raise TimeoutError(f"no answer within {self.spec.start_timeout_s:g} s")

    async def _connect_peer(self) -> None:
        if self._switchboard.peer is not None:
            try:
                await self._switchboard.peer.connected(self)
            except Exception as error:  # noqa: BLE001 - the end of a task; the connection itself is sound
                log.warning("%s: what clients want of it could not be told (%s)", self.name, type(error).__name__)

    async def _stay(self, link: Link) -> None:
        """Wait for a stop, a loss, or a changed list, which is read again after a short pause."""
        while not self._stop.is_set() and not link.closed:
            with anyio.move_on_after(OWED_PAUSE_S if self._owed else None) as waited:
                await self._attention.wait()
            self._attention = anyio.Event()
            if self._relist or waited.cancelled_caught:
                await anyio.sleep(RELIST_PAUSE_S)
                self._relist = False
                self._owed = not await self._list_again(link)

    async def _list_again(self, link: Link) -> bool:
        """Read the list once more; False when it has to be tried again later. Calls in flight are not touched."""
        try:
            with anyio.fail_after(self.spec.start_timeout_s):
                listing = await list_tools(link.session)
        except (MCPError, TimeoutError) as error:
            log.warning("%s: its changed list could not be read (%s)", self.name, type(error).__name__)
            return link.closed
        self._repeatable = listing.repeatable
        return await self._on_listing(self, listing)

    async def _hear(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "notifications/tools/list_changed":
            # The list is read before anybody is told of it.
            self._relist = True
            self._wake()
        elif self._switchboard.peer is not None:
            await self._switchboard.peer.noted(self, method, params)

    async def _ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if self._switchboard.peer is None:
            raise MCPError(types.METHOD_NOT_FOUND, f"No client is connected that could answer {method}")
        with self.flights.asking():
            return await self._switchboard.peer.asked(self, method, params)

    async def _failed(self, error: BaseException) -> None:
        ready = self.state is State.READY
        self._attempts += not ready  # losing a connection is not a failed attempt to make one
        self.error = error_kind(error, ready=ready)
        self.reason = remedy(self.error, first_leaf(error), self.spec, self._environ, self._log_file)
        await self._move(State.MISCONFIGURED if self.error is ErrorKind.CONFIG else State.FAILED)

    async def _pause(self, failures: int) -> None:
        """Wait before the next try, longer each time up to a cap; a call that needs this backend ends the wait."""
        pause = BACKOFF_S[1] if self.state is State.MISCONFIGURED else pause_s(failures, *BACKOFF_S)
        with anyio.move_on_after(pause * random.uniform(0.8, 1.2)):  # noqa: S311 (spread retries, not secrets)
            while not self._stop.is_set() and not self._wanted:
                await self._attention.wait()
                self._attention = anyio.Event()

    # --------------------------------------------------------------------------------------------- signals

    def _wake(self) -> None:
        self._attention.set()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _move(self, state: State) -> None:
        self.state = state
        self._announce()
        await self._on_state(self)

    def stop(self) -> None:
        """Ask the owner task to close its connection and end."""
        self._stop.set()
        self._wake()

    def look_again(self) -> None:
        """Ask for the list of tools once more, soon: a call came back as if it were another one now."""
        if self._live():
            self._relist = True
            self._wake()

    async def settled(self) -> None:
        """Wait until the first listing is in or the first attempt has failed."""
        while not (self.listed or self._attempts or self.state is State.STOPPED):
            await self._changed.wait()

    # ----------------------------------------------------------------------------------------------- calls

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None,
        *,
        meta: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] | None = None,
        on_progress: Progress | None = None,
    ) -> Answer:
        """Carry out one call. Cancelling this cancels it at the backend. Never raises for what a backend does.

        more: what else the request is to say beside name, arguments and `_meta`.
        """
        params: dict[str, Any] = {**(more or {}), "name": tool}
        if arguments is not None:
            params["arguments"] = dict(arguments)
        if meta:
            params["_meta"] = dict(meta)
        answer = await self.request("tools/call", params, on_progress=on_progress)
        result = answer.result
        if result is None:
            return answer
        if result.get("content", []) is None:
            # It can only mean that there is none, and strict clients refuse it.
            result = {**result, "content": []}
        if not isinstance(result.get("content", []), list):
            return Answer(replace(answer.report, cause=Cause.MALFORMED))
        failed = result.get("isError") is True
        return Answer(replace(answer.report, cause=Cause.TOOL_ERROR) if failed else answer.report, result=result)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        on_progress: Progress | None = None,
        limit_s: float | None = None,
    ) -> Answer:
        """Send one request and take its raw result, connecting first if need be. Never raises for what a backend does.

        Cancelling this cancels it at the backend. limit_s: how long it may stay silent; by default, as configured. A
        call may have to wait for its turn for as long again (`turns`).
        """
        limit_s = limit_s or self.spec.call_timeout_s
        turns = self._turns
        if turns.present >= MOST:
            return Answer(CallReport(Cause.LIMITED, 0.0))

        async def send(link: Link) -> dict[str, Any]:
            """The raw result; a backend that wants to know something first, as newer ones do, is told by a client."""
            sent = params
            for _ in range(MAX_ROUNDS):
                result = await link.request(method, sent, limit_s, on_progress)
                peer = self._switchboard.peer
                if result.get("resultType") != "input_required" or peer is None:
                    return result
                told = await peer.fulfil(self, result)
                if told is None:
                    return result
                sent = {**params, **told}
            raise MCPError(types.INTERNAL_ERROR, f"{self.name} asked for input {MAX_ROUNDS} times and gave no answer")

        turns.present += 1
        remote = self.spec.transport is not Transport.STDIO
        repeatable = method != "tools/call" or params.get("name") in self._repeatable
        work = partial(exchange, self._usable, send, remote=remote, repeatable=repeatable, pings=self._pings)
        try:
            if turns.limited and method == "tools/call":
                attempts = self._attempts
                return await turns.in_turn(work, limit_s, lambda: self._attempts > attempts and not self._live())
            return await work()
        finally:
            turns.present -= 1

    async def rows(self, method: str, key: str) -> Rows | None:
        """Every page of a list method; None when there is no connection, or it could not be had."""
        link = self._link
        if link is None or link.closed:
            return None
        try:
            with anyio.fail_after(self.spec.start_timeout_s):
                return await list_rows(link.session, method, key)
        except (MCPError, TimeoutError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            log.warning("%s: %s could not be read (%s)", self.name, method, type(error).__name__)
            return None

    @property
    def link(self) -> Link | None:
        """The open connection, if there is one."""
        return self._link if self._live() else None

    @property
    def flights(self) -> Flights:
        """What is under way here."""
        return self._link.flights if self._link is not None else Flights()

    async def _usable(self) -> Link | None:
        """The link, connecting first if need be; None when one attempt failed or took too long."""
        if self._live():
            return self._link
        asked = self._attempts
        self._wanted = True
        self._wake()
        with anyio.move_on_after(self.spec.start_timeout_s):
            while not self._live():
                if self._attempts > asked or self.state is State.STOPPED:
                    return None
                await self._changed.wait()
        return self._link if self._live() else None

    def _live(self) -> bool:
        return self._link is not None and not self._link.closed
