"""What holds a card, and how the time is counted after which it may clear itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from roster.uptime import Uptime

__all__ = ["DWELL_S", "UNSURE_S", "Hold", "Moment", "Reason"]

DWELL_S = 24 * 3600.0
"""How long a changed definition must have stayed the same before it clears itself."""
UNSURE_S = 8 * 3600.0
"""What one gap between two sightings counts at most where only the time of day vouches for it.

A clock that was set forward looks like time that passed. Within one boot the uptime tells them apart, and the gap
counts in full; across a reboot nothing does. At eight hours no single step of the clock clears anything: it takes three
gaps, so three sightings more, and who opens a client once a day on a machine that is off at night waits three days."""


class Reason(StrEnum):
    """What holds a card, in rising order. All but `drift` wait for a person."""

    DRIFT = "drift"
    SAFETY = "safety"
    REVIEW = "review"

    def or_worse(self, other: Reason | None) -> Reason:
        """The graver of the two."""
        order = list(Reason)
        return self if other is None else max(self, other, key=order.index)


@dataclass(frozen=True, slots=True)
class Moment:
    """When something was seen: seconds since the epoch, and by a steady clock where there is one."""

    at: float
    uptime: Uptime | None = None

    def since(self, before: Moment) -> float:
        """Seconds that may be counted as passed since `before`: never negative, never what a set clock made up."""
        step = max(0.0, self.at - before.at)
        one, other = self.uptime, before.uptime
        if one is not None and other is not None and one.run == other.run:
            return min(step, max(0.0, one.seconds - other.seconds))
        return min(step, UNSURE_S)


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a card is held, since when, and how long (`stable_s`) its definition was seen unchanged, last at `seen`."""

    reason: Reason
    at: float
    seen: Moment
    stable_s: float = 0.0

    def seen_again(self, now: Moment) -> Hold:
        """The hold after one more sighting of the same definition."""
        return replace(self, stable_s=self.stable_s + now.since(self.seen), seen=now)

    @property
    def waits_s(self) -> float | None:
        """How much stable time it still takes; None: a person must look."""
        return max(0.0, DWELL_S - self.stable_s) if self.reason is Reason.DRIFT else None
