"""What a card's record says of it, from counts and times. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from roster.outcomes import Outcome

__all__ = [
    "HALF_LIFE_S",
    "Ending",
    "Rate",
    "Record",
    "Standing",
    "decayed",
    "percentile",
    "record_of",
    "standing_of",
    "wilson_lower",
]

HALF_LIFE_S = 30 * 86_400.0
"""After this time an outcome weighs half as much."""


def wilson_lower(successes: int, calls: int, z: float = 1.96) -> float:
    """The lower end of Wilson's score interval for a success rate, in [0, 1]; 0 without calls.

    successes: of `calls`. z: standard errors, 1.96 for 95 %. Few calls give a low bound, however well they went
    (Wilson 1927, "Probable inference, the law of succession, and statistical inference").
    """
    if calls <= 0:
        return 0.0
    rate, square = successes / calls, z * z / calls
    centre = rate + square / 2
    spread = z * math.sqrt(rate * (1 - rate) / calls + square / (4 * calls))
    return max(0.0, (centre - spread) / (1 + square))


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest of `values` that this share of them does not exceed (nearest rank); None without values.

    values: ascending. share: in (0, 1].
    """
    return values[max(0, math.ceil(share * len(values)) - 1)] if values else None


# ---------------------------------------------------------------------------------------------- with decay


@dataclass(frozen=True, slots=True)
class Rate:
    """A success rate in [0, 1], drawn towards its prior, and how many fresh outcomes what is behind it is worth."""

    rate: float
    weight: float


@dataclass(frozen=True, slots=True)
class Standing:
    """Calls and successes of one card, each as much as it still weighed at the time `at`. Keep one a card."""

    calls: float = 0.0
    successes: float = 0.0
    at: float = 0.0

    def add(self, at: float, success: bool, now: float, half_life_s: float = HALF_LIFE_S) -> Standing:
        """This and one more outcome, in any order of time. One that is dated after `now` counts as of now."""
        at = min(at, now)
        latest = max(self.at, at)
        kept, weight = _left(latest - self.at, half_life_s), _left(latest - at, half_life_s)
        return Standing(self.calls * kept + weight, self.successes * kept + weight * success, latest)

    def rate(self, now: float, prior: float, prior_weight: float, half_life_s: float = HALF_LIFE_S) -> Rate:
        """The success rate as of `now`, as if `prior_weight` fresh outcomes of the rate `prior` were among them.

        A Beta prior of that mean and weight; without outcomes, and when all of them have faded, it is all that is left.
        """
        left = _left(now - self.at, half_life_s)
        calls, successes = self.calls * left, self.successes * left
        whole = calls + prior_weight
        return Rate((successes + prior * prior_weight) / whole if whole else prior, calls)


def _left(age_s: float, half_life_s: float) -> float:
    return float(2.0 ** (-max(0.0, age_s) / half_life_s))


def standing_of(outcomes: Iterable[tuple[float, bool]], now: float, half_life_s: float = HALF_LIFE_S) -> Standing:
    """The standing that these (time, success) add up to, as of `now`; many at once are cheaper than one by one."""
    calls = successes = 0.0
    for at, success in outcomes:
        weight = 2.0 ** (-max(0.0, now - at) / half_life_s)
        calls += weight
        successes += weight * success
    return Standing(calls, successes, now)


def decayed(
    outcomes: Iterable[tuple[float, bool]], now: float, half_life_s: float, prior: float, prior_weight: float
) -> Rate:
    """The success rate of these (time, success), each worth half as much every `half_life_s`, drawn to a prior.

    prior: in [0, 1], what a card without a record is taken for. prior_weight: how many fresh outcomes that is worth.
    """
    return standing_of(outcomes, now, half_life_s).rate(now, prior, prior_weight, half_life_s)


# ------------------------------------------------------------------------------------------------ a record


@dataclass(frozen=True, slots=True)
class Ending:
    """Calls of a card, under one contract, that all ended alike.

    counted: whether that is held for or against it. latencies_ms: of successful calls, in any order.
    """

    fingerprint: str
    outcome: str
    kind: str | None
    counted: bool
    calls: int
    last_at: float
    latencies_ms: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """What came of a card's calls.

    calls, successes: those that count. uncounted: those that do not, such as a caller's own mistakes. classes: all of
    them by outcome. failures, excused: those that count, and those that do not, by failure kind. Latencies are those
    of successful calls; last_at is the last call of any kind.
    """

    calls: int = 0
    successes: int = 0
    uncounted: int = 0
    classes: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    excused: Mapping[str, int] = field(default_factory=dict)
    p50_ms: float | None = None
    p95_ms: float | None = None
    last_at: float | None = None

    @property
    def rate(self) -> float | None:
        """Successes among the calls that count; None without any."""
        return self.successes / self.calls if self.calls else None

    @property
    def wilson(self) -> float:
        """The lower bound of that rate."""
        return wilson_lower(self.successes, self.calls)


def record_of(endings: Iterable[Ending]) -> Record:
    """The record these endings add up to."""
    calls = successes = uncounted = 0
    times: list[float] = []
    classes: dict[str, int] = {}
    failures: dict[str, int] = {}
    excused: dict[str, int] = {}
    last_at: float | None = None
    for ending in endings:
        succeeded = ending.outcome == Outcome.SUCCESS.value
        classes[ending.outcome] = classes.get(ending.outcome, 0) + ending.calls
        if not succeeded:
            kinds, kind = failures if ending.counted else excused, ending.kind or ending.outcome
            kinds[kind] = kinds.get(kind, 0) + ending.calls
        if ending.counted:
            calls += ending.calls
            successes += ending.calls * succeeded
        else:
            uncounted += ending.calls
        times += ending.latencies_ms
        last_at = ending.last_at if last_at is None else max(last_at, ending.last_at)
    times.sort()
    p50, p95 = percentile(times, 0.5), percentile(times, 0.95)
    return Record(calls, successes, uncounted, _most(classes), _most(failures), _most(excused), p50, p95, last_at)


def _most(counts: Mapping[str, int]) -> dict[str, int]:
    """Most frequent first, then by name."""
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
