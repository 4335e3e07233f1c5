"""docs/tutorial.md, typed word for word in a home of its own: it says what the commands say."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
TUTORIAL = (REPOSITORY / "docs" / "tutorial.md").read_text("utf-8")
PYTHON = "/home/me/roster/.venv/bin/python"
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_KEPT = ("PATH", "SYSTEMROOT", "TMPDIR", "LANG")


def steps() -> list[tuple[str, str]]:
    """Each command of the console blocks, and the output quoted below it."""
    blocks = "".join(text for language, text in _FENCED.findall(TUTORIAL) if language == "console")
    command, *rest = re.split(r"^\$ (.+)\n", blocks, flags=re.MULTILINE)
    assert not command.strip()
    return list(zip(rest[::2], rest[1::2], strict=True))


def pattern(quoted: str) -> str:
    """`…` alone on a line is any number of lines, anywhere else the rest of one or a part of it."""
    lines = [
        r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in quoted.splitlines()
    ]
    return "".join(lines)


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    """Every command ends with 0, prints what is quoted, and at the end the client's file is what it was."""
    home, project = tmp_path / "me", tmp_path / "project"
    (home / ".cursor").mkdir(parents=True)
    project.mkdir()
    given = json.loads(next(text for language, text in _FENCED.findall(TUTORIAL) if language == "json"))
    for entry in given["mcpServers"].values():
        # Where Roster is not installed but only on PYTHONPATH, its servers need that too.
        entry |= {"command": sys.executable, "env": {"PYTHONPATH": str(REPOSITORY)}}
    file = home / ".cursor" / "mcp.json"
    file.write_text(json.dumps(given, indent=2), "utf-8")
    before = file.read_bytes()
    environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environ |= {"HOME": str(home), "USERPROFILE": str(home), "PYTHONPATH": str(REPOSITORY), "COLUMNS": "200"}
    environ |= {"PYTHONIOENCODING": "utf-8"}
    for command, quoted in steps():
        program, *words = shlex.split(command)
        assert program == "roster"
        done = subprocess.run(
            [sys.executable, "-P", "-m", "roster", *words],
            capture_output=True, encoding="utf-8", env=environ, cwd=project, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stderr)
        said = done.stdout.replace(sys.executable, PYTHON).replace(str(home), "/home/me")
        assert re.fullmatch(pattern(quoted), said), f"{command}\n{said}"
        if words == ["init"]:
            config = home / ".roster" / "roster.json"
            config.write_text(config.read_text("utf-8").replace("{", '{\n  "mode": "five",', 1), "utf-8")
    assert file.read_bytes() == before


def test_a_tutorial_that_says_something_else_would_be_noticed() -> None:
    """Left-out lines do not swallow what has to be there."""
    assert re.fullmatch(pattern("a\n…\nc\n"), "a\nb\nb\nc\n")
    assert not re.fullmatch(pattern("a\n…\nc\n"), "a\nb\n")
    assert not re.fullmatch(pattern("7 cards, …\n"), "6 cards, 0 quarantined\n")
