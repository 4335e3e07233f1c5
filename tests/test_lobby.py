"""How serving on stdin and stdout ends where it cannot go on: no Roster can be opened, or the client has gone."""

from __future__ import annotations

import json
import time
from contextlib import suppress

from fakes import python

from roster.config import Home

END_S = 60
PARAMS = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": PARAMS}
SERVE = """
import sys
from roster.cli import main

sys.argv = ["roster", "serve"]
main()
"""
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
    asked = [
        INITIALIZE,
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


def test_a_client_that_reads_no_more_ends_the_process(home: Home) -> None:
    """Although it goes on asking: nothing is carried out that nobody can be told of."""
    home.config.write_text('{"mcpServers": {}}', encoding="utf-8")
    process = python(SERVE, environ={"ROSTER_HOME": str(home.folder)})
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(INITIALIZE) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.stdout.close()
        with suppress(BrokenPipeError):
            for n in range(2, 100):
                process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": n, "method": "tools/list"}) + "\n")
                process.stdin.flush()
                if process.poll() is not None:
                    break
                time.sleep(0.1)
        assert process.wait(END_S) == 0
    finally:
        process.kill()
        with suppress(BrokenPipeError):
            process.stdin.close()  # type: ignore[union-attr]
        process.wait()
        process.stderr.close()  # type: ignore[union-attr]
