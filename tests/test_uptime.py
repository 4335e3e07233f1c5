"""A clock that setting the time of day does not move, and what stands in where the system names no boot."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import python

from roster import uptime as module
from roster.uptime import uptime


def test_uptime_rises_within_one_run() -> None:
    """Two readings can be subtracted."""
    first, second = uptime(), uptime()

    assert first.run == second.run
    assert 0 <= second.seconds - first.seconds < 60


@pytest.mark.skipif(not Path("/proc/sys/kernel/random/boot_id").exists(), reason="a boot has a name on Linux")
def test_processes_of_one_boot_share_a_run() -> None:
    """So a second process can vouch for the time since the first one looked."""
    child = python("from roster.uptime import uptime; print(uptime().run)")
    out, err = child.communicate(timeout=60)

    assert (out.strip(), err) == (uptime().run, "")


def test_where_no_boot_has_a_name_a_process_is_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Readings of two processes are then not subtracted."""
    monkeypatch.setattr(module, "_BOOT_ID", tmp_path / "none")
    monkeypatch.setattr(module, "_PROCESS", "this one")

    assert uptime().run == "this one"
