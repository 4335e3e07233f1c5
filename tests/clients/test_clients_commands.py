"""`roster init`, `sync` and `eject` as a person runs them: exit statuses, questions, and what is on the screen."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from client_samples import SECRETS, client_of, plain_layout
from fakes import Ran, Run

from roster.clients.adapters import CLIENTS
from roster.config import Home


@pytest.fixture
def cursor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cursor's file in the home that the process sees."""
    for name in ("APPDATA", "XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    path = tmp_path / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_bytes(plain_layout(client_of("cursor")))
    return path


def quiet(ran: Ran) -> Ran:
    """The same, once it is known to hold no secret."""
    assert [word for word in SECRETS if word in ran.out + ran.err] == []
    return ran


def test_from_init_over_sync_to_eject(run: Run, cursor: Path, home: Home) -> None:
    """What each step says, and that the file is what it was in the end. No secret at any step."""
    before = cursor.read_bytes()
    ran = quiet(run("init"))
    assert ran.status == 0
    assert f"read Cursor: {cursor}" in ran.out
    assert "+ files (Cursor): added; values in it: args, env.FILES_KEY" in ran.out
    assert "`roster sync --dry-run`" in ran.out

    ran = quiet(run("sync", "--dry-run"))
    assert ran.status == 0
    assert f"--- {cursor}" in ran.out
    assert '+"roster": {' in ran.out
    assert "1 file would be written. Nothing was." in ran.out
    assert cursor.read_bytes() == before

    ran = quiet(run("sync", "--yes"))
    assert (ran.status, f"Cursor: wrote {cursor}" in ran.out) == (0, True)
    assert "Nothing to change" in quiet(run("sync", "--yes")).out
    ran = quiet(run("eject"))
    assert (ran.status, "is as it was, to the byte" in ran.out) == (0, True)
    assert cursor.read_bytes() == before
    assert "Nothing to do" in run("eject").out


def test_sync_asks_before_it_writes(run: Run, cursor: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal it is misused; a no changes nothing; a yes writes."""
    before = cursor.read_bytes()
    run("init")
    assert run("sync").status == 2
    assert "--yes" in run("sync").err

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert run("sync").status == 1
    assert cursor.read_bytes() == before
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert run("sync").status == 0
    assert cursor.read_bytes() != before


def test_misuse_is_status_2_with_the_remedy(run: Run, cursor: Path, home: Home) -> None:
    """An unknown client is answered with the nearest one, a missing roster.json with `roster init`."""
    ran = run("init", "--client", "curser")
    assert (ran.status, "did you mean 'cursor'" in ran.err) == (2, True)
    assert run("eject", "--client", "nobody's").status == 2
    ran = run("sync", "--yes")
    assert (ran.status, "roster init" in ran.err) == (2, True)


def test_what_could_not_be_done_is_status_1(run: Run, cursor: Path, home: Home) -> None:
    """A file that is refused is said in one line; JSON says the same, and nothing else is on stdout."""
    run("init")
    cursor.write_text("{", encoding="utf-8")
    ran = run("sync", "--yes")
    assert ran.status == 1
    assert f"Cursor: {cursor} is left as it is: line 1, column 2" in ran.out
    said = run("sync", "--yes", "--json")
    assert (said.status, json.loads(said.out)["refused"]) == (1, 1)


def test_the_documents_of_a_whole_run(run: Run, cursor: Path, home: Home) -> None:
    """The keys of each JSON document are a contract."""
    first = quiet(run("init", "--json")).json()
    assert first.keys() == {
        "config", "written", "added", "present", "left", "unreadable", "files", "servers", "left_alone",
        "unreadable_files", "skill_roots", "notes",
    }  # fmt: skip
    second = quiet(run("sync", "--json", "--yes")).json()
    assert second.keys() == {"dry_run", "written", "refused", "files", "warnings"}
    assert second["files"][0].keys() == {
        "client", "path", "state", "removed", "added", "kept", "notes", "reason", "diff",
    }  # fmt: skip
    third = quiet(run("eject", "--json")).json()
    assert third["files"] == [
        {
            "client": "cursor",
            "path": str(cursor),
            "state": "bytes",
            "put_back": second["files"][0]["removed"],
            "reason": "",
        }
    ]


def test_the_screen_holds_no_secret_of_any_client(run: Run, cursor: Path, home: Home, tmp_path: Path) -> None:
    """All sixteen at once, in words and in JSON, done and undone."""
    from roster.clients.finding import path_of
    from roster.clients.machine import this_machine

    machine = this_machine()
    for client in CLIENTS:
        path = path_of(machine, client.places[0], machine.cwd)
        assert path is not None
        assert path.is_relative_to(tmp_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(plain_layout(client))
    for words in (["init"], ["sync", "--dry-run"], ["sync", "--dry-run", "--json"], ["sync", "--yes"], ["eject"]):
        assert quiet(run(*words)).status == 0
    kept = json.loads((home.folder / "backups" / "journal.json").read_text("utf-8"))
    assert {change["state"] for change in kept["changes"]} == {"undone"}
