"""Real clients through init, sync and eject: does each one find Roster, and is its file what it was afterwards?

    python eval/clients.py [--bin FOLDER] [--out FILE]

For each command line that is installed (on PATH, or in FOLDER): a home of its own in a temporary folder, two demo
servers put into it by the client itself, its own list of servers before, between and after. A client that is not
installed is skipped. Nothing of the user's is read or written; nothing is asked of a model.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roster.clients.adapters import CLIENTS
from roster.clients.dialects import is_roster
from roster.clients.files import decoded
from roster.clients.finding import path_of
from roster.clients.formats import Spot, servers
from roster.clients.machine import Machine

REPOSITORY = Path(__file__).parents[1]
SECRET = "zqsecret7x1"
TIMEOUT_S = 120


@dataclass(frozen=True)
class Tool:
    """A client's command line. add: puts a server into its file; list: says which there are, and connects if it can."""

    client: str
    program: str
    add: tuple[str, ...]
    list: tuple[str, ...]
    connects: bool


TOOLS = (
    Tool("claude-code", "claude", ("mcp", "add", "-s", "user", "NAME", "-e", "KEY=VALUE", "--", "COMMAND"),
         ("mcp", "list"), connects=True),
    Tool("codex", "codex", ("mcp", "add", "NAME", "--env", "KEY=VALUE", "--", "COMMAND"),
         ("mcp", "list"), connects=False),
    Tool("gemini", "gemini", ("mcp", "add", "-s", "user", "-e", "KEY=VALUE", "NAME", "COMMAND"),
         ("mcp", "list"), connects=True),
    Tool("opencode", "opencode", (), ("mcp", "list"), connects=True),
    Tool("copilot", "copilot", ("mcp", "add", "NAME", "--env", "KEY=VALUE", "--", "COMMAND"),
         ("mcp", "list"), connects=False),
)  # fmt: skip


def run(words: list[str], environ: Mapping[str, str], cwd: Path) -> str:
    """What a command says, without colours and secrets."""
    done = subprocess.run(words, capture_output=True, text=True, env=environ, cwd=cwd, timeout=TIMEOUT_S, check=False)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.stdout + done.stderr)
    if Path(words[0]).name.startswith("python"):
        assert SECRET not in text, "a secret was shown"
        assert done.returncode == 0, text
    return text.replace(SECRET, "***")


def demo(name: str) -> list[str]:
    """The command of a small server that comes with Roster."""
    return [sys.executable, "-m", f"roster.demo.{name}"]


def put_in(tool: Tool, program: str, path: Path, environ: Mapping[str, str], project: Path) -> None:
    """Two servers, by the client's own command; by hand for one whose command asks questions."""
    for name in ("clock", "units"):
        if not tool.add:
            data = (
                json.loads(path.read_text("utf-8")) if path.exists() else {"$schema": "https://opencode.ai/config.json"}
            )
            entry = {"type": "local", "command": demo(name), "environment": {"KEY": SECRET}, "enabled": True}
            data.setdefault("mcp", {})[name] = entry
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(data, indent=2) + "\n", "utf-8")
            continue
        words: list[str] = []
        for word in tool.add:
            words += demo(name) if word == "COMMAND" else [word.replace("NAME", name).replace("VALUE", SECRET)]
        if tool.client == "gemini":
            words = [*words[: -len(demo(name)) + 1], "--", *words[-len(demo(name)) + 1 :]]
        run([program, *words], environ, project)


def try_out(tool: Tool, program: str, folder: Path) -> dict[str, Any]:
    """One client from its own servers over Roster and back."""
    home, project = folder / "home", folder / "project"
    home.mkdir(parents=True)
    project.mkdir()
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "TMPDIR", "SYSTEMROOT")}
    environ = {**kept, "HOME": str(home), "USERPROFILE": str(home), "PYTHONPATH": str(REPOSITORY), "NO_COLOR": "1",
               "GEMINI_CLI_TRUST_WORKSPACE": "true"}  # fmt: skip
    machine = Machine(home, environ, sys.platform, project, sys.executable)
    client = next(client for client in CLIENTS if client.id == tool.client)
    place = client.places[0]
    path = path_of(machine, place, project)
    assert path is not None

    def here() -> dict[str, Any]:
        return dict(servers(decoded(path.read_bytes()), Spot(place.format, place.keys)))

    version = run([program, "--version"], environ, project).strip().splitlines()[0]
    put_in(tool, program, path, environ, project)
    seen = {"before": run([program, *tool.list], environ, project)}
    before, first = path.read_bytes(), here()
    roster = [sys.executable, "-m", "roster"]
    run([*roster, "init"], environ, project)
    run([*roster, "sync", "--yes"], environ, project)
    between = here()
    seen["with roster"] = run([program, *tool.list], environ, project)
    rewritten = here() != between
    run([*roster, "eject"], environ, project)
    after, same_bytes = here(), path.read_bytes() == before
    seen["after"] = run([program, *tool.list], environ, project)
    listed = re.search(r"^.*\broster\b.*$", seen["with roster"], re.MULTILINE)
    return {
        "client": tool.client,
        "version": version,
        "file": path.relative_to(home).as_posix(),
        "servers": sorted(first),
        "synced": sorted(between),
        "only_roster": len(between) == 1 and all(is_roster(value) for value in between.values()),
        "says": listed.group().replace(str(folder), "…").strip() if listed else None,
        "connects": bool(listed and re.search(r"connected|✓|✔", seen["with roster"], re.IGNORECASE))
        if tool.connects
        else None,
        "rewritten_by_client": rewritten,
        "servers_back": after == first,
        "same_bytes": same_bytes,
        "lists_them_again": all(name in seen["after"] for name in first),
    }


def main() -> None:
    """Print what was seen of each client that is here, and which were not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, help="a folder to look for the command lines in, before PATH")
    parser.add_argument("--out", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    looked_in = os.pathsep.join([str(options.bin)] * bool(options.bin) + [os.environ.get("PATH", "")])
    seen, missing = [], []
    for tool in TOOLS:
        program = shutil.which(tool.program, path=looked_in)
        if program is None:
            missing.append(tool.program)
            continue
        with tempfile.TemporaryDirectory(prefix="roster-client-") as folder:
            seen.append(try_out(tool, str(Path(program).absolute()), Path(folder)))
            print(json.dumps(seen[-1], ensure_ascii=False, indent=1))
    print(f"not installed, skipped: {', '.join(missing) or 'none'}", file=sys.stderr)
    if options.out is not None:
        options.out.write_text(
            json.dumps({"clients": seen, "skipped": missing}, indent=1, ensure_ascii=False) + "\n", "utf-8"
        )


if __name__ == "__main__":
    main()
