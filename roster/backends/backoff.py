"""How long a server that fails is left alone. Pure."""

__all__ = ["pause_s"]


def pause_s(failures: int, first_s: float, cap_s: float) -> float:
    """The wait after so many failures in a row: twice as long each time, up to a cap, and never for ever."""
    return min(cap_s, first_s * 2.0 ** min(failures - 1, 30))
