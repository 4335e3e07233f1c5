"""Eject keeps what was changed since, gets through interruptions, and needs nothing but the journal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from client_machine import Clients
from client_samples import BYSTANDER, client_of, layouts, plain_layout, user_place

from roster import jsonc
from roster.clients.adapters import CLIENTS, Format
from roster.clients.faults import ClientError
from roster.clients.files import decoded
from roster.clients.formats import Spot, edited, servers
from roster.clients.journal import open_journal

IDS = [client.id for client in CLIENTS]
JSON = [client.id for client in CLIENTS if user_place(client).format is Format.JSON]


def servers_in(client: str, data: bytes) -> list[tuple[str, Any]]:
    place = user_place(client_of(client))
    return servers(decoded(data), Spot(place.format, place.keys))


def synced(clients: Clients, client: str, layout: str = "") -> tuple[Path, bytes]:
    before = dict(layouts(client_of(client)))[layout] if layout else plain_layout(client_of(client))
    path = clients.put(client, before)
    clients.init()
    assert clients.sync()[1]["written"] == 1
    return path, before


@pytest.mark.parametrize("client", IDS)
@pytest.mark.report("mcp-router/mcp-router#61", "laravel/boost#107")
def test_what_was_changed_elsewhere_in_the_file_is_kept(clients: Clients, client: str) -> None:
    """The servers come back, and the client's own change stays."""
    path, before = synced(clients, client)
    path.write_bytes(path.read_bytes().replace(BYSTANDER.encode(), b"changed since", 1))
    status, said = clients.eject()

    assert (status, said["files"][0]["state"]) == (0, "keys")
    assert b"changed since" in path.read_bytes()
    expected = before.replace(BYSTANDER.encode(), b"changed since", 1)
    assert servers_in(client, path.read_bytes()) == servers_in(client, expected)
    assert path.read_bytes() == expected


@pytest.mark.parametrize("client", IDS)
@pytest.mark.parametrize("place", ["first", "last"])
def test_lines_that_were_added_around_stay_where_they_are(clients: Clients, client: str, place: str) -> None:
    """Above or below: the rest of the file is what it was, comments between the servers at their old places."""
    path, before = synced(clients, client)
    mark = b"//" if user_place(client_of(client)).format is Format.JSON else b"#"
    note = mark + b" written since\n"

    def noted(data: bytes) -> bytes:
        return note + data if place == "first" else data + note

    path.write_bytes(noted(path.read_bytes()))
    assert clients.eject()[1]["files"][0]["state"] == "keys"
    assert path.read_bytes() == noted(before)


@pytest.mark.parametrize("client", JSON)
@pytest.mark.parametrize("layout", ["comments", "tabs", "windows", "minified"])
def test_a_client_that_wrote_its_file_anew_keeps_its_layout(clients: Clients, client: str, layout: str) -> None:
    """Parsed and printed again, a new setting and a new server in it: both stay, the servers are back, in order."""
    path, before = synced(clients, client, layout)
    place = user_place(client_of(client))
    data = jsonc.loads(path.read_text("utf-8"))
    inner = data
    for key in place.keys:
        inner = inner[key]
    inner["added since"] = {"command": "new"}
    data["setting"] = "new"
    path.write_text(json.dumps(data, indent=4), "utf-8")
    assert clients.eject()[1]["files"][0]["state"] == "keys"

    assert jsonc.loads(path.read_text("utf-8"))["setting"] == "new"
    assert dict(servers_in(client, path.read_bytes())) == {
        **dict(servers_in(client, before)),
        "added since": {"command": "new"},
    }
    assert path.read_text("utf-8").startswith('{\n    "theme"')


@pytest.mark.parametrize("client", IDS)
def test_roster_taken_out_by_hand_is_no_trouble(clients: Clients, client: str) -> None:
    """Somebody has removed our entry already; the servers still come back."""
    path, before = synced(clients, client)
    place = user_place(client_of(client))
    text = edited(decoded(path.read_bytes()), Spot(place.format, place.keys), ["roster"], None)
    path.write_text(text, "utf-8", newline="")
    assert clients.eject()[0] == 0
    assert dict(servers_in(client, path.read_bytes())) == dict(servers_in(client, before))


def test_a_server_that_is_there_again_stays_as_it_is_now(clients: Clients) -> None:
    """What the user has put there since is theirs; the others come back around it."""
    path, before = synced(clients, "cursor")
    data = json.loads(path.read_bytes())
    data["mcpServers"]["files"] = {"command": "mine now"}
    path.write_text(json.dumps(data, indent=2), "utf-8")
    clients.eject()

    after = dict(servers_in("cursor", path.read_bytes()))
    assert after == {**dict(servers_in("cursor", before)), "files": {"command": "mine now"}}


def test_a_map_that_is_gone_is_made_again(clients: Clients) -> None:
    """The client, or somebody, has removed the whole of it."""
    path, before = synced(clients, "cursor")
    path.write_text('{"theme": "light"}', "utf-8")
    clients.eject()

    assert json.loads(path.read_bytes())["theme"] == "light"
    assert servers_in("cursor", path.read_bytes()) == servers_in("cursor", before)


def test_force_writes_the_bytes_from_before(clients: Clients) -> None:
    """Whatever was changed since, a file that is gone included; what was there is kept among the backups."""
    path, before = synced(clients, "cursor")
    path.write_bytes(b"not json at all")
    status, said = clients.eject()
    assert (status, said["files"][0]["state"]) == (1, "refused")
    assert "line 1" in said["files"][0]["reason"]

    assert clients.eject(force=True)[0] == 0
    assert path.read_bytes() == before
    kept = [one.read_bytes() for one in (clients.home.folder / "backups").glob("0*")]
    assert b"not json at all" in kept


def test_a_file_that_is_gone_stays_gone_unless_forced(clients: Clients) -> None:
    """To delete it was somebody's decision; the way back stays open."""
    path, before = synced(clients, "cursor")
    path.chmod(0o640)
    path.unlink()
    status, said = clients.eject()
    assert (status, path.exists()) == (1, False)
    assert "--force" in said["files"][0]["reason"]

    clients.eject(force=True)
    assert path.read_bytes() == before


def test_a_file_that_sync_made_keeps_what_others_put_into_it(clients: Clients) -> None:
    """Only an entry of ours goes; a file with anything else in it stays."""
    clients.put("windsurf", plain_layout(client_of("windsurf")))
    clients.init()
    path = clients.put("cursor", b"")
    path.unlink()
    clients.sync("cursor")
    data = json.loads(path.read_bytes())
    data["mcpServers"]["theirs"] = {"command": "theirs"}
    path.write_text(json.dumps(data), "utf-8")
    clients.eject()

    assert json.loads(path.read_bytes()) == {"mcpServers": {"theirs": {"command": "theirs"}}}


@pytest.mark.parametrize(
    ("client", "before"),
    [
        ("zed", '{\n  "theme": "dark" // mine\n}\n'),
        ("openclaw", "{ theme: 'dark', mcp: { other: 1 } }"),
        ("openclaw", "{ theme: 'dark' }"),
        ("codex", '# mine\ntheme = "dark"\n'),
        ("goose", "# mine\ntheme: dark\n"),
        ("continue", "theme: dark\nmodels: []\n"),
    ],
)
def test_a_key_made_for_roster_goes_with_it(clients: Clients, client: str, before: str) -> None:
    """Where there were no servers at all nothing of ours stays, though the file was changed since."""
    clients.put("windsurf", plain_layout(client_of("windsurf")))
    clients.init()
    path = clients.put(client, before.encode())
    assert clients.sync(client)[1]["written"] == 1
    path.write_bytes(path.read_bytes().replace(b"dark", b"light"))
    clients.eject(client)

    assert path.read_text("utf-8") == before.replace("dark", "light")


def test_several_syncs_are_undone_one_after_the_other(clients: Clients) -> None:
    """A server added between two syncs is there after eject, beside those from before the first one."""
    path, before = synced(clients, "cursor")
    data = json.loads(path.read_bytes())
    data["mcpServers"]["later"] = {"command": "later"}
    between = json.dumps(data, indent=2, ensure_ascii=False).encode() + b"\n"
    path.write_bytes(between)
    clients.init()
    assert clients.sync()[1]["files"][0]["removed"] == ["later"]
    clients.eject()

    assert dict(servers_in("cursor", path.read_bytes())) == {
        **dict(servers_in("cursor", before)),
        "later": {"command": "later"},
    }


def test_eject_needs_no_config_and_knows_when_it_is_done(clients: Clients) -> None:
    """A broken roster.json is no obstacle; a second eject has nothing to do; a home without a past neither."""
    assert clients.eject() == (0, {"dry_run": False, "files": []})
    path, before = synced(clients, "cursor")
    clients.home.config.write_text("{ broken", "utf-8")
    dry = clients.eject(dry_run=True)[1]["files"]
    assert (dry[0]["state"], path.read_bytes() == before) == ("bytes", False)
    assert clients.eject()[1]["files"] == [{**dry[0]}]
    assert path.read_bytes() == before
    assert clients.eject() == (0, {"dry_run": False, "files": []})


def test_a_file_that_its_client_wrote_back_from_memory_is_given_back_again(clients: Clients) -> None:
    """A client that was running may write what it had read before eject; the second eject undoes that too."""
    path, before = synced(clients, "claude-code")
    memory = path.read_bytes()
    clients.eject()
    path.write_bytes(memory.replace(BYSTANDER.encode(), b"written from memory"))
    assert clients.eject()[1]["files"][0]["state"] == "keys"

    assert path.read_bytes() == before.replace(BYSTANDER.encode(), b"written from memory")
    assert clients.eject()[1]["files"] == []
    clients.sync()
    assert open_journal(clients.home).undone == ()


def test_that_is_so_after_several_syncs_too(clients: Clients) -> None:
    """The servers that each of them took out are there again."""
    path, before = synced(clients, "claude-code")
    data = json.loads(path.read_bytes())
    data["mcpServers"]["later"] = {"command": "later"}
    path.write_text(json.dumps(data), "utf-8")
    clients.init()
    clients.sync()
    memory = path.read_bytes()
    clients.eject()
    path.write_bytes(memory)
    clients.eject()

    expected = {**dict(servers_in("claude-code", before)), "later": {"command": "later"}}
    assert dict(servers_in("claude-code", path.read_bytes())) == expected


def test_only_the_clients_named_are_given_back(clients: Clients) -> None:
    """The others go on with Roster."""
    clients.put("windsurf", plain_layout(client_of("windsurf")))
    path, before = clients.put("cursor", plain_layout(client_of("cursor"))), plain_layout(client_of("cursor"))
    clients.init()
    clients.sync()
    said = clients.eject("cursor")[1]

    assert [row["client"] for row in said["files"]] == ["cursor"]
    assert path.read_bytes() == before
    assert [change.client for change in open_journal(clients.home).changes] == ["windsurf"]


@pytest.mark.parametrize("fault", ["gone", "changed"])
def test_a_backup_that_is_lost_is_said(clients: Clients, fault: str) -> None:
    """Nothing is made up, and the file is left as it is."""
    path, _ = synced(clients, "cursor")
    (backup,) = (clients.home.folder / "backups").glob("*-cursor")
    backup.unlink()
    if fault == "changed":
        backup.write_bytes(b"{}")
    after = path.read_bytes()
    status, said = clients.eject()

    assert (status, path.read_bytes()) == (1, after)
    assert fault in said["files"][0]["reason"]


def test_a_journal_that_cannot_be_read_is_an_error_in_words(clients: Clients) -> None:
    """It names the folder with the files as they were."""
    synced(clients, "cursor")
    (clients.home.folder / "backups" / "journal.json").write_text("{", "utf-8")
    with pytest.raises(ClientError, match="lie beside it"):
        clients.eject()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_a_kill_at_any_point_leaves_a_whole_file_and_a_way_back(tmp_path: Path) -> None:
    """kill -9 at every write of sync and of eject: each file is the old or the new one, and eject gives it back."""
    here = Path(__file__).parent
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here.parents[1]), str(here)])}
    done = subprocess.run(
        [sys.executable, str(here / "client_crashes.py"), str(tmp_path / "scenes")],
        capture_output=True, text=True, check=False, timeout=300, env=environ,
    )  # fmt: skip
    assert done.stderr == ""
    kills = json.loads(done.stdout)

    assert len([kill for kill in kills if kill["what"] == "sync"]) > 30
    assert len([kill for kill in kills if kill["what"] == "eject"]) > 10
    assert [kill for kill in kills if "broken" in kill["states"]] == []
    assert [kill for kill in kills if kill["problems"] or not kill["given back"] or kill["left"]] == []
    assert [kill for kill in kills if kill["strays"]] == []
