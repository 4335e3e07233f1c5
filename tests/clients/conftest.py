"""A machine of a test's own: a user's home, a project, a home for Roster, and the commands over them."""

from __future__ import annotations

from pathlib import Path

import pytest
from client_machine import Clients

from roster.clients.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    for name in ("user", "project"):
        (tmp_path / name).mkdir()
    environ = {"ROSTER_HOME": str(tmp_path / "home"), "PATH": ""}
    return Machine(tmp_path / "user", environ, "linux", tmp_path / "project", "/opt/roster/bin/python")


@pytest.fixture
def clients(machine: Machine) -> Clients:
    return Clients(machine)
