"""Requests under way at a backend, and on whose behalf: who is to be asked when the backend asks back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

import anyio

__all__ = ["Flight", "Flights", "Requester", "requester"]


class Requester(Protocol):
    """Whoever sent the request that is being carried out."""

    @property
    def client(self) -> object:
        """The client connection it came over; the same object for all of its requests."""

    @property
    def modern(self) -> bool:
        """Whether it came in the newer era, whose results say more of themselves."""


requester: ContextVar[Requester | None] = ContextVar("roster_requester", default=None)
"""On whose behalf this task works.

A remote transport posts a message in the context of whoever sent it, and what comes back on that stream arrives in the
same context, so there a question is known by this to belong to one request. A child process has one pipe for all.
"""


@dataclass(slots=True, eq=False)
class Flight:
    """One request under way: whose it is, and its time, which stands still while somebody is being asked."""

    requester: Requester | None
    scope: anyio.CancelScope
    limit_s: float

    def restart(self) -> None:
        """Give it its whole time again: there was a sign of life."""
        self.scope.deadline = anyio.current_time() + self.limit_s


class Flights:
    """What is under way at one backend, oldest first."""

    def __init__(self) -> None:
        self._flights: list[Flight] = []
        self._questions = 0

    def __len__(self) -> int:
        """How many."""
        return len(self._flights)

    @contextmanager
    def one_more(self, limit_s: float) -> Iterator[Flight]:
        """A flight for as long as the context lasts. Its scope is cancelled when it hears nothing for `limit_s`."""
        deadline = anyio.current_time() + limit_s if not self._questions else float("inf")
        with anyio.CancelScope(deadline=deadline) as scope:
            flight = Flight(requester.get(), scope, limit_s)
            self._flights.append(flight)
            try:
                yield flight
            finally:
                self._flights.remove(flight)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """No flight runs out of time while a question is open: a backend that waits for a person is not hung."""
        self._questions += 1
        for flight in self._flights:
            flight.scope.deadline = float("inf")
        try:
            yield
        finally:
            self._questions -= 1
            if not self._questions:
                for flight in self._flights:
                    flight.restart()

    def restart(self, flight: Flight) -> None:
        """A sign of life of one flight."""
        if not self._questions:
            flight.restart()

    def requesters(self) -> list[Requester]:
        """On whose behalf something is under way, the latest last; once for each client."""
        latest: dict[int, Requester] = {}
        for flight in self._flights:
            if flight.requester is not None:
                latest.pop(id(flight.requester.client), None)
                latest[id(flight.requester.client)] = flight.requester
        return list(latest.values())
