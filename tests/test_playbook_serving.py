"""The Playbook as a client meets it: a serving process, its two pipes, and a home with skills in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from fakes import skill, tool
from scripted_backend import Scripted
from test_serving import DEADLINE_S, REPOSITORY, Serving

from roster.config import Home

NEED = "black out a name in a pdf so that nobody can copy it"


def test_a_client_drafts_and_calls_a_skill_and_transparent_mode_has_none(home: Home, tmp_path: Path) -> None:
    """Read at the start, found by what only its instructions say, returned as blocks; gone from drafts when removed."""
    body = "# PDF forms\n\n## Redact\n\n- A black rectangle hides nothing: remove the words below it."
    folder = skill(tmp_path / ".agents/skills", "pdf-forms", "Work with PDF forms", body, notes_md="Keep the original.")
    calendar = Scripted(tmp_path, "calendar", rows=[tool("add_event", "Add an event to the calendar")])
    home.config.write_text(json.dumps({"mcpServers": {"calendar": calendar.entry()}}), encoding="utf-8")

    five = Serving(home, "--five")
    five.handshake()
    listed = [row["name"] for row in five.ask("tools/list")["tools"]]
    shown = five.use("draft", need=NEED)["structuredContent"]
    reply = five.use("call", tool=shown["starters"][0]["id"], draft_id=shown["draft_id"])
    assert five.ended() == 0
    assert "".join(five.errors) == ""

    assert listed == ["draft", "call"]
    assert shown["starters"][0]["id"] == "skill__pdf-forms"
    assert [block["type"] for block in reply["content"]] == ["text", "text", "resource"]
    assert reply["content"][0]["text"] == body
    assert reply["content"][2]["resource"] == {
        "uri": (folder / "notes.md").as_uri(),
        "mimeType": "text/markdown",
        "text": "Keep the original.",
    }

    transparent = Serving(home, "--transparent")
    transparent.handshake()
    listed = [row["name"] for row in transparent.ask("tools/list")["tools"]]
    answer = transparent.answer("tools/call", name="skill__pdf-forms", arguments={})
    assert transparent.ended() == 0
    assert listed == ["calendar__add_event"]
    assert "Unknown tool" in answer["error"]["message"]

    (folder / "SKILL.md").unlink()
    command = [sys.executable, "-m", "roster", "reindex", "--json"]
    environ = {**os.environ, "ROSTER_HOME": str(home.folder)}
    figures = json.loads(subprocess.check_output(command, cwd=REPOSITORY, env=environ, timeout=DEADLINE_S))
    assert (figures["removed"], figures["cards"]) == (1, 1)
