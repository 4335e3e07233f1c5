"""Kills sync or eject at every point of a write, in a process forked for it, and says what was found afterwards.

Run as a program: `client_crashes.py FOLDER`. One JSON document on stdout.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from client_samples import client_of, plain_layout, user_path

from roster.clients import commands, files
from roster.clients.adapters import CLIENTS
from roster.clients.eject import eject
from roster.clients.journal import open_journal
from roster.clients.machine import Machine
from roster.clients.sync import carry_out, plan_sync, routed_servers, wish_for
from roster.config import Home, load_config

IDS = ("claude-code", "codex", "goose")
Step = Callable[[str], None]


class Scene:
    """One machine with three clients, and their files' bytes before and after sync."""

    def __init__(self, folder: Path) -> None:
        user, self.home = folder / "user", Home(folder / "home")
        user.mkdir(parents=True)
        environ = {"ROSTER_HOME": str(self.home.folder), "PATH": ""}
        self.machine = Machine(user, environ, "linux", folder, "/opt/roster/bin/python")
        self.paths = [user_path(self.machine, client_of(id_)) for id_ in IDS]
        self.before = [plain_layout(client_of(id_)) for id_ in IDS]
        for path, data in zip(self.paths, self.before, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        commands.init(clients=[], project=None, dry_run=False, out=lambda said: None, machine=self.machine)

    def sync(self, step: Step = lambda name: None) -> None:
        text = self.home.config.read_text("utf-8")
        wish = wish_for(self.machine, self.home, routed_servers(load_config(self.home), text))
        plans = plan_sync(self.machine, CLIENTS, wish, open_journal(self.home))
        assert [one.problem for one in carry_out(self.machine, self.home, plans, wish, step)] == [""] * sum(
            plan.after is not None for plan in plans
        )

    def eject(self, step: Step = lambda name: None) -> list[str]:
        return [one.problem for one in eject(self.home, step=step)]

    def now(self) -> list[bytes]:
        return [path.read_bytes() for path in self.paths]

    def strays(self) -> list[str]:
        """What lies beside the clients' files that nobody put there."""
        return [path.name for one in self.paths for path in one.parent.iterdir() if "roster-tmp" in path.name]


def killed_at(number: int, act: Callable[[Step], Any]) -> tuple[bool, str]:
    """Run `act` in a process of its own, killed at its step `number`: whether it was, and the step's name."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        count = 0

        def step(name: str) -> None:
            nonlocal count
            count += 1
            if count == number:
                os.write(writes, name.encode())
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            act(step)
        finally:
            os._exit(0)
    os.close(writes)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(reads, "rb") as pipe:
        name = pipe.read().decode()
    return os.WIFSIGNALED(status), name


def main(folder: Path) -> list[dict[str, Any]]:
    """Every kill, and what was there after it, after an eject, and after a sync and an eject."""
    files._LOCK_STALE_S = 0.0  # a killed process leaves its lock behind; nobody here waits for it to go stale
    whole = Scene(folder / "whole")
    whole.sync()
    found = []
    for what in ("sync", "eject"):
        for number in range(1, 1_000):
            scene = Scene(folder / f"{what}{number}")
            after = [
                data.replace(str(folder / "whole").encode(), str(folder / f"{what}{number}").encode())
                for data in whole.now()
            ]
            if what == "eject":
                scene.sync()
            killed, name = killed_at(number, scene.sync if what == "sync" else scene.eject)
            if not killed:
                break
            states = [
                "old" if now == old else "new" if now == new else "broken"
                for now, old, new in zip(scene.now(), scene.before, after, strict=True)
            ]
            again = "eject"
            if number % 2:
                scene.sync()
                again = "sync, eject"
            problems = scene.eject()
            found.append(
                {
                    "what": what,
                    "step": name,
                    "states": states,
                    "then": again,
                    "problems": [problem for problem in problems if problem],
                    "given back": scene.now() == scene.before,
                    "strays": scene.strays(),
                    "left": len(open_journal(scene.home).changes),
                }
            )
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
