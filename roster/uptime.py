"""How long this machine has been up: a clock that setting the time of day does not move."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Uptime", "uptime"]

_PROCESS = uuid.uuid4().hex
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Uptime:
    """Seconds by a steady clock. Two of them can be subtracted when they are of one `run`: a boot, or a process."""

    seconds: float
    run: str


def uptime() -> Uptime:
    """The steady clock now: of the boot where the system names it (sleep included), else of this process."""
    try:
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
        return Uptime(time.clock_gettime(time.CLOCK_BOOTTIME), boot)
    except (OSError, ValueError, AttributeError):
        return Uptime(time.monotonic(), _PROCESS)
