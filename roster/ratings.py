"""What a card's record says of it, from counts. Pure."""

from __future__ import annotations

import math

__all__ = ["wilson_lower"]


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
