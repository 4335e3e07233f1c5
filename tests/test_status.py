"""`roster status`: the day's calls, the line to look at, and what a check says of servers that do not answer."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from fakes import Run, tool
from scripted_backend import Scripted

from roster import statuspage
from roster.app import open_roster
from roster.backends import ErrorKind
from roster.config import Home, ServerSpec, Transport, load_config, read_config
from roster.errors import RosterError
from roster.history import History, OutcomeRow
from roster.outcomes import Outcome
from roster.statuscheck import notes_of
from roster.statusfacts import calls_today, problem_lines

SECRET = "sk-canary-4711"


@pytest.fixture
def calendar(home: Home, tmp_path: Path) -> Scripted:
    server = Scripted(tmp_path, "calendar", rows=[tool("add_event")])
    write(home, {"calendar": server.entry()})
    return server


def write(home: Home, servers: dict[str, Any]) -> None:
    home.config.write_text(json.dumps({"standard_skills": False, "mcpServers": servers}, indent=1), encoding="utf-8")


@pytest.mark.report("docker/mcp-gateway#420")
def test_a_check_connects_to_every_server(home: Home, calendar: Scripted, run: Run) -> None:
    """What they list is put on file; a server that does not answer makes the command fail, and is explained."""
    assert run("status", "--check", "--json").json()["servers"]["calendar"]["check"]["ok"]
    write(
        home,
        {
            "calendar": calendar.entry(),
            "gone": {"command": "no-such-program-here"},
            "off": {"url": "x", "disabled": True},
        },
    )
    checked = run("status", "--check", "--json")
    servers = json.loads(checked.out)["servers"]

    assert checked.status == 1
    assert servers["calendar"]["check"] | {"connect_ms": 0, "notes": []} == {
        "ok": True, "state": "answered", "connect_ms": 0, "error": None, "reason": None, "notes": []
    }  # fmt: skip
    assert servers["calendar"]["tools"] == 1
    assert (servers["gone"]["check"]["ok"], servers["gone"]["check"]["error"]) == (False, "command_not_found")
    assert any(note.startswith("looked for 'no-such-program-here' in ") for note in servers["gone"]["check"]["notes"])
    assert "check" not in servers["off"]
    assert "note: gone: looked for" in run("status", "--check").out


def test_without_a_check_nothing_is_started(home: Home, calendar: Scripted, run: Run) -> None:
    """Status is for looking."""
    seen = run("status", "--json").json()

    assert calendar.pids() == []
    assert "check" not in seen["servers"]["calendar"]


@pytest.mark.report("CherryHQ/cherry-studio#18648", "prokube/pk-opencode-webui#457")
def test_no_secret_is_in_what_a_check_says(home: Home, tmp_path: Path, run: Run) -> None:
    """Not from an environment, an argument, a header or an address, whatever the server does."""
    broken = Scripted(tmp_path, "broken", start="exit")
    write(
        home,
        {
            "broken": broken.entry("--token", SECRET, env={"API_KEY": SECRET}),
            "far": {"url": f"http://user:{SECRET}@127.0.0.1:9/mcp?key={SECRET}", "headers": {"X-Key": SECRET}},
        },
    )
    for words in (("status", "--check"), ("status", "--check", "--json")):
        said = run(*words)
        assert said.status == 1
        assert SECRET not in said.out + said.err


def test_the_days_calls_are_counted_by_server(home: Home, calendar: Scripted, run: Run) -> None:
    """Since midnight; latency of those that worked."""
    run("reindex")
    with open_roster(load_config(home), home) as roster:
        roster.catalogue.refresh()
        card = roster.catalogue.living()[0].card
        history, now = History(roster.writer.db), time.time()
        yesterday = (now - 2 * 86_400, Outcome.SUCCESS, 5.0)
        worked, failed = [(now, Outcome.SUCCESS, ms) for ms in (10.0, 30.0)], (now, Outcome.TIMEOUT, 900.0)
        for at, outcome, ms in (*worked, failed, yesterday):
            history.record(OutcomeRow(card.id, card.fingerprint, outcome, None, ms, at, drafted=False))
        assert calls_today(roster, now)["calendar"].wire() == {"calls": 3, "failed": 1, "p50_ms": 20.0}
    seen = run("status", "--json").json()

    assert seen["servers"]["calendar"]["today"] == seen["today"] == {"calls": 3, "failed": 1, "p50_ms": 20.0}
    assert "3 calls, 1 failed, 20 ms" in run("status").out


def test_a_problem_is_shown_with_its_line(home: Home, run: Run) -> None:
    """Of the key it names, else of the server; comments and trailing commas count as what they are."""
    text = """{
  // which mode
  "mode": "six",
  "colour": 1,
  "mcpServers": {
    "good": {"command": "x"},
    "bad": {
      "args": ["y"],
    },
    "odd": {
      "command": "x",
      "comand": "y",
    },
  },
}
"""
    home.config.write_text(text, encoding="utf-8")
    config = load_config(home)
    lines = dict(zip((str(problem) for problem in config.problems), problem_lines(config), strict=True))

    assert {line for problem, line in lines.items() if problem.startswith("mode")} == {3}
    assert {line for problem, line in lines.items() if "'colour'" in problem} == {4}
    assert {line for problem, line in lines.items() if problem.startswith("bad")} == {7}
    assert {line for problem, line in lines.items() if problem.startswith("odd")} == {12}
    assert "problem: roster.json:12: odd: " in run("status").out
    assert problem_lines(read_config('{"colour": 1}')) == [None]


def test_a_command_that_is_elsewhere_is_named_in_full(tmp_path: Path) -> None:
    """In the places where tools are put without a PATH knowing; and one that a short PATH would not find."""
    for folder in (".local/bin", ".nvm/versions/node/v22/bin", "own/bin"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "mcp-thing").write_text("#!/bin/sh\n", encoding="utf-8")
        (tmp_path / folder / "mcp-thing").chmod(0o755)
    spec = ServerSpec(transport=Transport.STDIO, command="mcp-thing")

    missing = notes_of(spec, ErrorKind.COMMAND_NOT_FOUND, {"PATH": "/nowhere"}, tmp_path)
    assert missing[0] == "looked for 'mcp-thing' in /nowhere"
    assert missing[1:] == [
        f"it is at {tmp_path / folder / 'mcp-thing'}: name that as the command"
        for folder in (".local/bin", ".nvm/versions/node/v22/bin")
    ]
    found = notes_of(spec, None, {"PATH": str(tmp_path / "own/bin")}, tmp_path)
    assert found == [
        "clients started from a menu often have a short PATH and will not find 'mcp-thing': "
        f"name {tmp_path / 'own/bin/mcp-thing'}"
    ]
    full = ServerSpec(transport=Transport.STDIO, command="/opt/thing")
    assert notes_of(full, None, {"PATH": ""}, tmp_path) == []


def test_watching_wants_a_terminal_and_ends_politely(
    home: Home, calendar: Scripted, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C is how one leaves."""
    refused = run("status", "--watch", "1")
    assert refused.status == 1
    assert "--watch wants a terminal" in refused.err

    shown = []

    def once(*_: Any) -> bool:
        shown.append(1)
        if len(shown) == 3:
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(statuspage, "_once", once)
    monkeypatch.setattr(statuspage.Console, "is_terminal", True)
    monkeypatch.setattr(statuspage.time, "sleep", lambda _: None)
    assert statuspage.status(watch_s=1.0)
    assert len(shown) == 3
    with pytest.raises(RosterError, match="starts every server"):
        statuspage.status(watch_s=1.0, check=True)
