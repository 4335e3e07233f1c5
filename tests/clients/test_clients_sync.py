"""Sync and eject over real-shaped files of every client: what goes in comes out again, to the byte."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from client_machine import Clients
from client_samples import (
    SECRETS,
    STAYS,
    client_of,
    layouts,
    named_layouts,
    plain_layout,
    user_place,
)

from roster.clients.adapters import CLIENTS
from roster.clients.files import decoded
from roster.clients.formats import Spot, servers
from roster.clients.ourselves import is_roster

IDS = [client.id for client in CLIENTS]


def servers_in(client: str, data: bytes) -> dict[str, object]:
    place = user_place(client_of(client))
    return dict(servers(decoded(data), Spot(place.format, place.keys)))


@pytest.mark.parametrize(("client", "layout"), named_layouts())
@pytest.mark.report("microsoft/vscode#281583")
def test_sync_then_eject_gives_the_same_bytes(clients: Clients, client: str, layout: str) -> None:
    """In every layout: the routed servers are replaced by one entry for Roster, and come back to the byte."""
    before = dict(layouts(client_of(client)))[layout]
    path = clients.put(client, before)
    clients.init()
    status, said = clients.sync()

    assert (status, said["written"], said["refused"]) == (0, 1, 0), said["files"]
    after = servers_in(client, path.read_bytes())
    assert sum(is_roster(value) for value in after.values()) == 1
    off = {"off"} if client == "codex" and "inline" not in layout else set()
    assert set(after) - STAYS.get(client, set()) - off == {"roster"}
    assert clients.eject()[0] == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("client", IDS)
def test_a_second_sync_changes_nothing(clients: Clients, client: str) -> None:
    """Idempotent, as is a second import: same bytes, nothing to write, no second backup."""
    path = clients.put(client, plain_layout(client_of(client)))
    clients.init()
    config = clients.home.config.read_bytes()
    clients.sync()
    after, kept = path.read_bytes(), sorted((clients.home.folder / "backups").iterdir())

    assert clients.sync()[1]["written"] == 0
    assert clients.init()["written"] is False
    assert (path.read_bytes(), clients.home.config.read_bytes()) == (after, config)
    assert sorted((clients.home.folder / "backups").iterdir()) == kept


@pytest.mark.parametrize("client", IDS)
@pytest.mark.report("CherryHQ/cherry-studio#18648", "prokube/pk-opencode-webui#457")
def test_a_dry_run_writes_nothing_and_shows_no_secret(clients: Clients, client: str) -> None:
    """The plan and its diff name what would go and come; values are hidden wherever they stand."""
    before = plain_layout(client_of(client))
    path = clients.put(client, before)
    clients.init()
    made = sorted(clients.home.folder.rglob("*"))
    status, said = clients.sync(dry_run=True)

    assert (status, said["written"]) == (0, 0)
    assert said["files"][0]["state"] == "planned"
    assert '+"roster"' in said["files"][0]["diff"]
    assert '-"files"' in said["files"][0]["diff"]
    assert [word for word in SECRETS if word in json.dumps(said)] == []
    assert path.read_bytes() == before
    assert sorted(clients.home.folder.rglob("*")) == made


@pytest.mark.report("microsoft/vscode#281583")
def test_openclaws_json5_is_edited_in_its_own_place(clients: Clients) -> None:
    """`mcp.servers`, unquoted keys, single quotes, comments; no key is made that its strict schema does not know."""
    before = (
        "// state\n{\n  gateway: { port: 0x4A3F, },\n  mcp: {\n    servers: {\n"
        "      // reads\n      files: { command: 'npx', args: ['files'], },\n    },\n  },\n}\n"
    )
    path = clients.put("openclaw", before.encode())
    clients.init()
    assert clients.sync()[0] == 0

    after = path.read_text("utf-8")
    assert "mcpServers" not in after
    assert after.startswith(before[: before.index("      files")])
    assert after.endswith("    },\n  },\n}\n")
    assert [is_roster(value) for value in servers_in("openclaw", path.read_bytes()).values()] == [True]
    clients.eject()
    assert path.read_text("utf-8") == before


@pytest.mark.report(
    "mcp-router/mcp-router#61",
    "smithery-ai/sdk#23",
    "smithery-ai/mcp-obsidian#8",
    "cline/cline#2698",
    "laravel/boost#107",
)
def test_only_whole_lines_of_the_servers_change(clients: Clients) -> None:
    """Every line outside of the servers' own is in the file afterwards, comments first of all."""
    before = dict(layouts(client_of("cursor")))["comments"].decode()
    path = clients.put("cursor", before.encode())
    clients.init()
    clients.sync()
    after = path.read_text("utf-8")

    start, end = before.index('"mcpServers"'), before.index('"z"')
    assert after.startswith(before[:start])
    assert after.endswith(before[end:])


def test_the_entry_is_by_absolute_path_and_names_a_home_of_its_own(clients: Clients) -> None:
    """Clients started from a menu get the interpreter itself; `-P` keeps a folder named roster from being taken."""
    path = clients.put("claude-desktop", plain_layout(client_of("claude-desktop")))
    clients.init()
    clients.sync()

    entry = json.loads(path.read_text("utf-8"))["mcpServers"]["roster"]
    assert [entry["command"], *entry["args"]] == ["/opt/roster/bin/python", "-P", "-m", "roster", "serve"]
    assert entry["env"] == {"ROSTER_HOME": str(clients.home.folder)}


@pytest.mark.parametrize("client", IDS)
def test_a_client_named_gets_roster_even_without_a_file(clients: Clients, client: str) -> None:
    """Its file is made, for its owner only, and is gone again after eject; without its folder it is not there."""
    clients.put("cursor", plain_layout(client_of("cursor")))
    clients.init()
    if client not in ("cursor", "claude-code"):  # the folder of Claude Code's file is the home itself
        status, said = clients.sync(client)
        assert status == 1
        assert "is not on this machine" in said["files"][0]["reason"]
    path = clients.put(client, b"")
    path.unlink()
    status, said = clients.sync(client)

    assert (status, said["written"]) == (0, 1), said
    assert [name for name, value in servers_in(client, path.read_bytes()).items() if is_roster(value)] == ["roster"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert clients.sync(client)[1]["written"] == 0
    assert clients.eject()[1]["files"][0]["state"] == "removed"
    assert not path.exists()


def test_a_client_without_routed_servers_is_left_alone_unless_named(clients: Clients) -> None:
    """A settings file that has nothing to do with Roster does not get a word about it."""
    clients.put("cursor", plain_layout(client_of("cursor")))
    path = clients.put("zed", b'{"theme": "dark"}')
    clients.init()
    clients.sync()
    assert path.read_bytes() == b'{"theme": "dark"}'

    clients.sync("zed")
    assert list(json.loads(path.read_bytes())) == ["theme", "context_servers"]
    clients.eject("zed")
    assert path.read_bytes() == b'{"theme": "dark"}'


def test_servers_that_roster_does_not_run_stay_and_are_named(clients: Clients) -> None:
    """Kept as asked, disabled, only for the client, another account, unknown: each with its reason."""
    data = {
        "servers": {
            "same": {"command": "a", "env": {"K": "1"}},
            "other account": {"command": "a", "env": {"K": "2"}},
            "kept": {"command": "k"},
            "off": {"command": "o", "disabled": True},
            "asks": {"url": "https://x", "headers": {"A": "${input:a}"}},
            "new": {"command": "n"},
        }
    }
    path = clients.put("vscode", json.dumps(data).encode())
    clients.home.folder.mkdir()
    clients.home.config.write_text(json.dumps({"mcpServers": {"x": {"command": "a", "env": {"K": "1"}},
                                                              "kept": {"command": "k"}}}))  # fmt: skip
    status, said = clients.sync(keep=("kept", "nobody"))

    assert status == 0
    reasons = {kept["name"]: kept["reason"] for kept in said["files"][0]["kept"]}
    assert said["files"][0]["removed"] == ["same"]
    assert reasons.keys() == data["servers"].keys() - {"same"}
    assert "the same with another env.K" in reasons["other account"]
    assert "only the client" in reasons["asks"]
    assert "roster init" in reasons["new"]
    every_tool, nobody = said["warnings"]
    assert every_tool.startswith("The mode is transparent")
    assert '"mode": "five"' in every_tool
    assert nobody == "--keep nobody: no client has a server of this name"
    assert next(iter(json.loads(path.read_text())["servers"])) == "roster"


def test_roster_put_there_by_hand_is_kept_as_it_is(clients: Clients) -> None:
    """Somebody's own entry, with flags of theirs, is Roster's entry: no second one, and eject leaves it."""
    mine = {"command": "/usr/local/bin/roster", "args": ["serve", "--five"]}
    before = json.dumps({"mcpServers": {"mine": mine, "a": {"command": "a"}}}).encode()
    path = clients.put("cursor", before)
    clients.init()
    clients.sync()

    assert json.loads(path.read_bytes()) == {"mcpServers": {"mine": mine}}
    clients.eject()
    assert path.read_bytes() == before


def test_another_thing_named_roster_keeps_its_name(clients: Clients) -> None:
    """A name that is taken is not overwritten."""
    other = {"command": "duty-roster", "disabled": True}
    path = clients.put("cursor", json.dumps({"mcpServers": {"roster": other, "a": {"command": "a"}}}).encode())
    clients.init()
    clients.sync()

    after = json.loads(path.read_bytes())["mcpServers"]
    assert (after["roster"], is_roster(after["roster-mcp"])) == (other, True)


def test_an_entry_of_ours_is_renewed_when_roster_moved(clients: Clients) -> None:
    """A new interpreter is written over the old entry, unless a person has changed it; eject goes all the way back."""
    before = plain_layout(client_of("cursor"))
    path = clients.put("cursor", before)
    clients.init()
    clients.sync()
    moved = Clients(
        type(clients.machine)(
            clients.machine.home, clients.machine.environ, "linux", clients.machine.cwd, "/new/python"
        )
    )
    assert moved.sync()[1]["written"] == 1
    assert json.loads(path.read_text("utf-8"))["mcpServers"]["roster"]["command"] == "/new/python"

    path.write_text(path.read_text("utf-8").replace("/new/python", "/mine/python"), "utf-8")
    assert moved.sync()[1]["written"] == 0
    path.write_text(path.read_text("utf-8").replace("/mine/python", "/new/python"), "utf-8")
    moved.eject()
    assert path.read_bytes() == before


# ------------------------------------------------------------------------------------------------- projects


def test_a_projects_shared_file_is_changed_only_when_the_project_is_named(clients: Clients) -> None:
    """It may be under version control; its servers are imported, and stay until --project says so."""
    project = clients.machine.cwd
    before = b'{"mcpServers": {"p": {"command": "./p.sh"}}}\n'
    (project / ".mcp.json").write_bytes(before)
    clients.init()
    status, said = clients.sync()
    assert (status, said["written"]) == (0, 0)
    assert "--project" in said["files"][0]["kept"][0]["reason"]

    assert clients.sync(project=project)[1]["files"][0]["removed"] == ["p"]
    clients.eject()
    assert (project / ".mcp.json").read_bytes() == before


def test_claude_codes_local_servers_go_with_the_user_ones(clients: Clients) -> None:
    """One file, two places, one entry for Roster; other projects are not touched."""
    here, there = str(clients.machine.cwd), "/somewhere/else"
    data = {
        "mcpServers": {"u": {"command": "u"}},
        "projects": {here: {"mcpServers": {"l": {"command": "l"}}}, there: {"mcpServers": {"o": {"command": "o"}}}},
    }
    before = json.dumps(data, indent=2).encode()
    path = clients.put("claude-code", before)
    said = clients.init()
    assert {server["name"] for server in said["servers"]} == {"u", "l"}
    assert "1 other project" in said["notes"][0]
    clients.sync()

    after = json.loads(path.read_bytes())
    assert list(after["mcpServers"]) == ["roster"]
    assert after["projects"] == {here: {"mcpServers": {}}, there: data["projects"][there]}  # type: ignore[index]
    clients.eject()
    assert path.read_bytes() == before


def test_a_project_that_is_the_home_is_not_counted_twice(clients: Clients) -> None:
    """In the home folder the user's file and the project's are one: it is the user's."""
    path = clients.put("cursor", plain_layout(client_of("cursor")))
    said = clients.init(project=clients.machine.home)

    assert [file["scope"] for file in said["files"] if file["path"] == str(path)] == ["user"]


# ------------------------------------------------------------------------------------------ variables


def test_variables_are_handed_on_where_a_client_withholds_them(clients: Clients) -> None:
    """Codex and Gemini name them in Roster's entry, Goose only those its own store has, Claude Desktop is told of."""
    shared = {"mcpServers": {"a": {"command": "a", "env": {"K": "${MY_TOKEN}", "L": "${env:OTHER:-x}"}}}}
    clients.put("cursor", json.dumps(shared).encode())
    for id_ in ("codex", "gemini", "goose", "claude-desktop"):
        clients.put(id_, plain_layout(client_of(id_)))
    clients.init()
    said = clients.sync()[1]

    def ours(client: str) -> dict[str, object]:
        path = next(file["path"] for file in said["files"] if file["client"] == client)
        with open(path, "rb") as file:
            return servers_in(client, file.read())["roster"]  # type: ignore[return-value]

    assert {"MY_TOKEN", "OTHER"} <= set(ours("codex")["env_vars"])  # type: ignore[call-overload]
    assert ours("gemini")["env"]["MY_TOKEN"] == "$MY_TOKEN"  # type: ignore[index]
    assert ours("goose")["env_keys"] == ["STORED_KEY"]
    notes = next(file["notes"] for file in said["files"] if file["client"] == "claude-desktop")
    assert "MY_TOKEN" in notes[0]
    assert any("MY_TOKEN is not set" in warning for warning in said["warnings"])


@pytest.mark.parametrize(
    ("python", "fleeting"),
    [
        ("/home/me/.cache/uv/archive-v0/abc/bin/python", True),
        ("/home/me/.local/pipx/.cache/5e4/bin/python", True),
        ("C:\\Users\\me\\AppData\\Local\\uv\\cache\\archive-v0\\x\\python.exe", True),
        ("/home/me/.local/share/uv/tools/roster-mcp/bin/python", False),
        ("/home/me/.local/share/pipx/venvs/roster-mcp/bin/python", False),
    ],
)
def test_a_cache_that_may_be_cleared_is_no_place_to_point_clients_at(
    clients: Clients, python: str, fleeting: bool
) -> None:
    """`uvx` and `pipx run` are for trying; what they unpack goes without a word."""
    clients.put("cursor", plain_layout(client_of("cursor")))
    clients.init()
    clients.machine = replace(clients.machine, python=python)
    warnings = clients.sync(dry_run=True)[1]["warnings"]

    assert any("uv tool install" in warning for warning in warnings) is fleeting
