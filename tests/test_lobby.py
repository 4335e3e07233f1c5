"""The handshake is answered before there is a Roster; a Roster that then cannot be opened ends the process in words."""

from __future__ import annotations

import json

from fakes import python

from roster.config import Home

END_S = 60
BROKEN = """
import sys
import roster.app
from roster.cli import main
from roster.errors import StoreError

def open_roster(*_, **__):
    raise StoreError("roster.db is damaged: move it away")

roster.app.open_roster = open_roster
sys.argv = ["roster", "serve"]
main()
"""


def test_a_roster_that_cannot_be_opened_ends_the_process_in_words(home: Home) -> None:
    """Although its client still has its end open: to wait for ever for an answer would be worse."""
    home.config.write_text('{"mcpServers": {}}', encoding="utf-8")
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}
    asked = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    process = python(BROKEN, environ={"ROSTER_HOME": str(home.folder)})
    try:
        assert process.stdin is not None
        process.stdin.write("".join(json.dumps(message) + "\n" for message in asked))
        process.stdin.flush()
        assert process.wait(END_S) == 1
        assert process.stderr is not None
        assert "roster.db is damaged: move it away" in process.stderr.read()
    finally:
        process.kill()
        process.communicate()
