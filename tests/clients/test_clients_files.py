"""Files that are not to be written, and how those that are get written."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest
from client_machine import Clients
from client_samples import client_of, plain_layout

from roster.clients import files
from roster.clients.adapters import CLIENTS
from roster.clients.faults import ClientError
from roster.clients.journal import locked, open_journal
from roster.clients.sync import carry_out, plan_sync, routed_servers, wish_for
from roster.config import load_config

posix = pytest.mark.skipif(os.name != "posix", reason="modes and links as POSIX has them")
SERVER = '"a": {"command": "a", "env": {"K": "zqsecret7x1"}}'


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"mcpServers": {"a": {"command": "a"} "b": 1}}', "line 1, column 39: expected a comma"),
        (b'{\n "mcpServers": {\n', "line 3, column 1: the file ends too early"),
        (b'{"mcpServers": {"a": {"command": zqsecret7x1}}}', "line 1, column 34: expected a value"),
        (b'{"mcpServers": {"a": {"command": "zqsecret7x1\n"}}}', "line 1, column 34: a string is not closed"),
        (b'{"mcpServers": [1]}', "mcpServers must be an object"),
        (b"[]", "the file must be an object"),
        (b'{"mcpServers": {}, "mcpServers": {' + SERVER.encode() + b"}}", "'mcpServers' stands twice"),
        (b"// only a comment\n", "nothing but comments"),
        (b'{"mcpServers": {"a": "\xff"}}', "line 1: it is not UTF-8"),
        ('{"mcpServers": {}}'.encode("utf-16"), "line 1: it is not UTF-8"),
        (b'{"mcpServers": {}} x', "something stands behind the end"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_left_alone(clients: Clients, data: bytes, reason: str) -> None:
    """By line and column, without a word of what stands there; the other clients are served."""
    broken = clients.put("cursor", data)
    good = clients.put("windsurf", plain_layout(client_of("windsurf")))
    said = clients.init()
    assert reason in said["unreadable_files"][0]["reason"]
    status, synced = clients.sync()

    assert status == 1
    rows = {row["client"]: row for row in synced["files"]}
    assert (rows["cursor"]["state"], rows["windsurf"]["state"]) == ("refused", "written")
    assert reason in rows["cursor"]["reason"]
    assert "zqsecret7x1" not in json.dumps([said, synced])
    assert broken.read_bytes() == data
    clients.eject()
    assert good.read_bytes() == plain_layout(client_of("windsurf"))


@pytest.mark.parametrize(
    ("client", "data"),
    [
        ("codex", b'model = "x"\n[mcp_servers.a]\ncommand = zqsecret7x1\n'),
        ("codex", b'[mcp_servers.a]\ncommand = "zqsecret7x1"\n[mcp_servers.a]\n'),
        ("codex", b"mcp_servers = 1\n"),
        ("goose", b"extensions:\n  a: [zqsecret7x1\n"),
        ("goose", b"extensions: {}\n---\nextensions: {}\n"),
        ("goose", b"extensions:\n\ta: 1\n"),
        ("goose", b"extensions: 1\n"),
        ("goose", b"extensions: {}\nextensions: {}\n"),
        ("continue", b"mcpServers: {a: zqsecret7x1}\n"),
    ],
)
def test_so_is_one_in_toml_or_yaml(clients: Clients, client: str, data: bytes) -> None:
    """The parsers' own messages quote the lines around; ours do not."""
    path = clients.put(client, data)
    clients.put("windsurf", plain_layout(client_of("windsurf")))
    said = clients.init()
    status, synced = clients.sync()

    assert status == 1
    assert said["unreadable_files"][0]["client"] == client
    assert "zqsecret7x1" not in json.dumps([said, synced])
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("client", "data", "reason"),
    [
        ("codex", b'mcp_servers = { a = { command = "a" } }\n', "write it as tables"),
        ("goose", b"extensions: {a: {type: stdio, cmd: a}}\n", "give each lines of its own"),
        ("goose", b"extensions:\n  a: &x {type: stdio, cmd: a}\n  b: {type: builtin, is: *x}\n", "edit it by hand"),
        ("continue", b"mcpServers: [{name: a, command: a}]\n", "give each lines of its own"),
    ],
)
def test_what_cannot_be_edited_by_lines_is_left_to_its_owner(
    clients: Clients, client: str, data: bytes, reason: str
) -> None:
    """Readable, so its servers are imported; but an edit would touch more than them."""
    path = clients.put(client, data)
    assert [server["name"] for server in clients.init()["servers"]] == ["a"]
    status, said = clients.sync()

    assert (status, said["files"][0]["state"]) == (1, "refused")
    assert reason in said["files"][0]["reason"]
    assert path.read_bytes() == data


def test_a_name_that_stands_twice_is_imported_from_neither(clients: Clients) -> None:
    """Of two entries one would silently win; both stay, the others are routed."""
    before = b'{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}, "a": {"command": "c"}}}'
    path = clients.put("cursor", before)
    said = clients.init()
    assert [server["name"] for server in said["servers"]] == ["b"]
    assert "stands twice" in said["left_alone"][0]["reason"]
    status, _ = clients.sync()

    assert status == 0
    assert path.read_bytes().count(b'"a": {') == 2
    clients.eject()
    assert path.read_bytes() == before


def test_an_empty_state_file_is_taken_for_one_that_is_being_written(clients: Clients) -> None:
    """What a client rewrites while it runs is empty for a moment; an empty dedicated file is just empty."""
    clients.put("windsurf", plain_layout(client_of("windsurf")))
    clients.init()
    state = clients.put("claude-code", b"")
    dedicated = clients.put("cursor", b" \n")
    status, said = clients.sync("claude-code", "cursor")

    rows = {row["client"]: row for row in said["files"]}
    assert (status, rows["claude-code"]["state"], rows["cursor"]["state"]) == (1, "refused", "written")
    assert "may be writing it" in rows["claude-code"]["reason"]
    clients.eject()
    assert (state.read_bytes(), dedicated.read_bytes()) == (b"", b" \n")


# ----------------------------------------------------------------------------------------------- writing


@posix
def test_a_symbolic_link_stays_one_and_its_target_is_written(clients: Clients, tmp_path: Path) -> None:
    """People keep their settings in a folder of their own and link to them."""
    before = plain_layout(client_of("cursor"))
    target = tmp_path / "dotfiles" / "mcp.json"
    target.parent.mkdir()
    target.write_bytes(before)
    path = clients.put("cursor", b"")
    path.unlink()
    path.symlink_to(target)
    clients.init()
    assert clients.sync()[1]["written"] == 1
    assert path.is_symlink()
    assert b"roster" in target.read_bytes()

    clients.eject()
    assert path.is_symlink()
    assert target.read_bytes() == before


@posix
@pytest.mark.parametrize("mode", [0o644, 0o600, 0o640])
def test_the_mode_stays(clients: Clients, mode: int) -> None:
    """Through sync, and through eject."""
    path = clients.put("cursor", plain_layout(client_of("cursor")))
    path.chmod(mode)
    clients.init()
    clients.sync()
    assert path.stat().st_mode & 0o777 == mode
    clients.eject()
    assert path.stat().st_mode & 0o777 == mode


@posix
def test_a_read_only_file_is_left_alone(clients: Clients) -> None:
    """Whoever made it read-only meant something by it."""
    path = clients.put("cursor", plain_layout(client_of("cursor")))
    path.chmod(0o444)
    clients.init()
    status, said = clients.sync()

    assert (status, said["refused"]) == (1, 1)
    assert "read-only" in said["files"][0]["reason"]
    assert path.read_bytes() == plain_layout(client_of("cursor"))
    assert open_journal(clients.home).changes == ()


def test_a_folder_in_the_files_place_is_named(clients: Clients) -> None:
    """Neither init nor sync trips over it."""
    path = clients.put("cursor", b"")
    path.unlink()
    path.mkdir()

    assert clients.init()["unreadable_files"][0]["client"] == "cursor"


@posix
def test_what_roster_keeps_is_for_its_owner_only(clients: Clients) -> None:
    """roster.json, the backups and the journal; and no secret is in a name or in the journal."""
    clients.put("cursor", plain_layout(client_of("cursor")))
    clients.init()
    clients.sync()

    for path in [clients.home.folder, *clients.home.folder.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
        assert "zq" not in path.name
    journal = (clients.home.folder / "backups" / "journal.json").read_text("utf-8")
    assert "zq" not in journal
    assert any(path.read_bytes() == plain_layout(client_of("cursor")) for path in clients.home.folder.rglob("0*"))


# ------------------------------------------------------------------------------------------ other writers


def plans(clients: Clients):  # type: ignore[no-untyped-def]
    config = load_config(clients.home)
    wish = wish_for(clients.machine, clients.home, routed_servers(config, clients.home.config.read_text("utf-8")))
    return plan_sync(clients.machine, CLIENTS, wish, open_journal(clients.home)), wish


def test_a_dedicated_file_that_changed_since_it_was_shown_is_not_written(clients: Clients) -> None:
    """What was agreed to was another change."""
    path = clients.put("cursor", plain_layout(client_of("cursor")))
    clients.init()
    made, wish = plans(clients)
    path.write_bytes(path.read_bytes() + b"\n")
    (outcome,) = carry_out(clients.machine, clients.home, made, wish)

    assert "changed it since" in outcome.problem
    assert path.read_bytes() == plain_layout(client_of("cursor")) + b"\n"
    assert open_journal(clients.home).changes == ()


@pytest.mark.parametrize("client", ["claude-code", "openclaw", "zed", "gemini", "codex"])
def test_a_state_file_is_planned_anew_from_what_its_client_wrote(clients: Clients, client: str) -> None:
    """Also when it writes in the very moment before the file is replaced: nothing it wrote is lost."""
    first = plain_layout(client_of(client))
    path = clients.put(client, first)
    clients.init()
    made, wish = plans(clients)
    old = b"gpt-5" if client == "codex" else b"dark"
    writes = iter([b"small", b"smaller", b"smallest"])

    def client_writes(step: str) -> None:
        if step == "flushed" and (word := next(writes, None)):
            path.write_bytes(first.replace(old, word))

    path.write_bytes(first.replace(old, b"light"))
    (outcome,) = carry_out(clients.machine, clients.home, made, wish, client_writes)

    assert outcome.problem == ""
    assert b"smallest" in path.read_bytes()
    assert b"roster" in path.read_bytes()
    clients.eject()
    assert path.read_bytes() == first.replace(old, b"smallest")


def test_a_client_that_never_stops_writing_is_given_up(clients: Clients) -> None:
    """After a few tries, with nothing of it lost and nothing left in the journal."""
    first = plain_layout(client_of("zed"))
    path = clients.put("zed", first)
    clients.init()
    made, wish = plans(clients)
    count = iter(range(100))

    def client_writes(step: str) -> None:
        if step == "flushed":
            path.write_bytes(first.replace(b"dark", f"dark {next(count)}".encode()))

    (outcome,) = carry_out(clients.machine, clients.home, made, wish, client_writes)
    assert "keeps changing it" in outcome.problem
    assert b"dark 4" in path.read_bytes()
    assert open_journal(clients.home).changes == ()


def test_the_clients_own_lock_is_waited_for_and_taken(clients: Clients, tmp_path: Path) -> None:
    """Claude Code locks its state with a folder beside it; a stale one is taken over, a held one waited for."""
    path = tmp_path / "state.json"
    lock = tmp_path / "state.json.lock"
    lock.mkdir()
    timer = threading.Timer(0.1, lock.rmdir)
    timer.start()
    with files.client_lock(path, ".lock"):
        assert lock.is_dir()
        timer.join()
    assert not lock.exists()
    lock.mkdir()
    os.utime(lock, (time.time() - 60, time.time() - 60))
    with files.client_lock(path, ".lock"):
        pass
    assert not lock.exists()


def test_two_syncs_take_turns(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one waits, and says so when the first does not finish."""
    monkeypatch.setattr("roster.clients.journal._LOCK_WAIT_S", 0.05)
    with locked(clients.home):
        failed: list[str] = []

        def second() -> None:
            try:
                with locked(clients.home):
                    pass
            except ClientError as error:
                failed.append(str(error))

        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert "at work" in failed[0]


def test_the_python_that_runs_is_the_one_written() -> None:
    """The entry names the interpreter Roster is installed in."""
    from roster.clients.machine import this_machine

    assert this_machine().roster_command(short_path=True)[0] == sys.executable
