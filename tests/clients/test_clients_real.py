"""The script that takes real clients through it all; the clients themselves are not part of the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_clients_that_are_not_installed_are_skipped_by_name(tmp_path: Path) -> None:
    """Where no client is installed, the script says so and is done."""
    out = tmp_path / "seen.json"
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "eval" / "clients.py"), "--out", str(out)],
        capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "skipped: claude, codex, gemini, opencode, copilot" in done.stderr
    assert json.loads(out.read_text("utf-8"))["clients"] == []
