"""Real clients, straight at a server and through Roster, where their programs are at hand.

The file names them, all of them optional:

    {"inspector": "…/mcp-inspector", "claude": "…/claude", "python": {"SDK 1.30": "…/bin/python", "fastmcp 4": "…"}}

Each entry of `python` is an interpreter with `mcp` or `fastmcp` installed; `client_script.py` runs in it.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parent / "client_script.py"
LIMIT_S = 60.0


def tried(scratch: Path, file: Path, index: Path | None) -> list[dict[str, Any]]:
    """A row for each thing each client did: what came of it straight and through Roster."""
    if index is None:
        return []
    named = json.loads(file.read_text("utf-8"))
    straight = ["node", str(index), "stdio"]
    home = scratch / "clients"
    home.mkdir()
    entry = {"command": straight[0], "args": straight[1:]}
    (home / "roster.json").write_text(json.dumps({"mcpServers": {"everything": entry}}), "utf-8")
    # One word, so that no client takes what belongs to Roster for an option of its own.
    through = [str(_starter(scratch / "through", home))]
    rows: list[dict[str, Any]] = []
    for client, look in _looks(named):
        before, after = look(straight, ""), look(through, "everything__")
        rows += [
            {"client": client, "did": did, "straight": before[did], "through": after.get(did, "–")} for did in before
        ]
    if "claude" in named:
        rows.append({"client": "Claude Code", **_claude(named["claude"], scratch, straight, through)})
    return rows


def _starter(path: Path, home: Path) -> Path:
    """A program that serves this home."""
    lines = [f"export ROSTER_HOME={shlex.quote(str(home))}"]
    if "PYTHONPATH" in os.environ:
        lines.append(f"export PYTHONPATH={shlex.quote(os.environ['PYTHONPATH'])}")
    lines.append(f"exec {shlex.quote(sys.executable)} -m roster serve --transparent")
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]), "utf-8")
    path.chmod(0o700)
    return path


Looked = Callable[[list[str], str], dict[str, str]]


def _looks(named: Mapping[str, Any]) -> Iterator[tuple[str, Looked]]:
    if "inspector" in named:
        yield "MCP Inspector CLI", lambda *how: _inspector(named["inspector"], *how)
    for client, interpreter in named.get("python", {}).items():
        yield client, lambda *how, program=interpreter: _python(program, *how)


def _run(command: list[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    return done.stdout


def _inspector(program: str, server: list[str], prefix: str) -> dict[str, str]:
    """Lists and one call with the inspector's command line."""

    def ask(*words: str) -> dict[str, Any]:
        try:
            return dict(json.loads(_run([program, "--cli", *server, *words], {})))
        except ValueError:
            return {}

    called = ask("--method", "tools/call", "--tool-name", f"{prefix}echo", "--tool-arg", "message=hello")
    return {
        "tools/list": _count(ask("--method", "tools/list").get("tools")),
        "resources/list": _count(ask("--method", "resources/list").get("resources")),
        "prompts/list": _count(ask("--method", "prompts/list").get("prompts")),
        "tools/call": (called.get("content") or [{}])[0].get("text", "nothing"),
    }


def _python(program: str, server: list[str], prefix: str) -> dict[str, str]:
    """What `client_script.py` did in that interpreter."""
    said = _run([program, str(SCRIPT), json.dumps([server, prefix])], {"PYTHONPATH": ""})
    try:
        return dict(json.loads(said))
    except ValueError:
        return {"all": "failed"}


def _claude(program: str, scratch: Path, straight: list[str], through: list[str]) -> dict[str, str]:
    """Whether `claude mcp list`, which makes a handshake, says that it is connected."""
    states = {}
    for name, server in (("straight", straight), ("through", through)):
        own = {"HOME": str(scratch / f"claude-{name}")}
        Path(own["HOME"]).mkdir()
        _run([program, "mcp", "add", "-s", "user", "it", "--", *server], own)
        said = _run([program, "mcp", "list"], own)
        states[name] = "connected" if "Connected" in said else "not connected"
    return {"did": "mcp list", **states}


def _count(rows: Any) -> str:
    return str(len(rows)) if isinstance(rows, list) else "none"
