"""Init reads every client's servers into roster.json, once each, and costs nobody anything."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from client_machine import Clients
from client_samples import SECRETS, STAYS, client_of, layouts, plain_layout, servers_of, user_place

from roster import jsonc
from roster.clients.adapters import CLIENTS, Client, Place, Scope
from roster.clients.finding import path_of
from roster.clients.machine import Machine
from roster.config import load_config
from roster.errors import ConfigError

IDS = [client.id for client in CLIENTS]


def own(clients: Clients) -> dict[str, Any]:
    """The servers of roster.json."""
    return dict(jsonc.loads(clients.home.config.read_text("utf-8"))["mcpServers"])


def put(clients: Clients, client: str, **servers: Any) -> None:
    place = user_place(client_of(client))
    value: Any = servers
    for key in reversed(place.keys):
        value = {key: value}
    clients.put(client, json.dumps(value).encode())


@pytest.mark.parametrize("client", IDS)
def test_every_clients_servers_are_read(clients: Clients, client: str) -> None:
    """Into a config that loads without a problem; what stays is named; the client's file is not touched."""
    path = clients.put(client, plain_layout(client_of(client)))
    said = clients.init()

    assert said["written"]
    assert {left["name"] for left in said["left_alone"]} == STAYS.get(client, set())
    config = load_config(clients.home)
    assert {"files"} <= config.servers.keys() == {server["name"] for server in said["servers"]}
    assert [problem for problem in config.problems if "not known" not in str(problem)] == []
    assert path.read_bytes() == plain_layout(client_of(client))


@pytest.mark.parametrize("layout", [name for name, _ in layouts(client_of("cursor"))])
def test_the_layout_of_a_file_does_not_matter(clients: Clients, layout: str) -> None:
    """The same servers from every one."""
    clients.put("cursor", dict(layouts(client_of("cursor")))[layout])
    clients.init()

    servers = servers_of(client_of("cursor"))
    assert own(clients).keys() == servers.keys()
    assert own(clients)["files"] == servers["files"]


def test_all_clients_at_once_give_each_server_once(clients: Clients) -> None:
    """Sixteen clients with the same servers: one entry with many sources, no secret printed, and all the way back."""
    paths = {client.id: clients.put(client.id, plain_layout(client)) for client in CLIENTS}
    said = clients.init()

    files = next(server for server in said["servers"] if server["name"] == "files")
    spelled_alike = {source["client"] for source in files["from"]}
    assert spelled_alike >= set(IDS) - {"goose", "continue"}
    assert [word for word in SECRETS if word in json.dumps(said)] == []
    assert "env.FILES_KEY" in files["values"]
    assert clients.sync()[1]["written"] == len(CLIENTS)
    clients.eject()
    assert {id_: path.read_bytes() for id_, path in paths.items()} == {
        client.id: plain_layout(client) for client in CLIENTS
    }


def test_a_second_run_changes_nothing(clients: Clients) -> None:
    """To the byte, comments and order included."""
    clients.home.folder.mkdir()
    clients.home.config.write_text(
        '{\n  // mine\n  "mode": "five",\n  "mcpServers": {"x": {"command": "x"}, /* y */},\n}\n'
    )
    put(clients, "cursor", a={"command": "a"})
    assert clients.init()["added"] == 1
    first = clients.home.config.read_bytes()
    assert first.startswith(b'{\n  // mine\n  "mode": "five",\n  "mcpServers": {"x": {"command": "x"}, ')
    assert clients.init()["added"] == 0
    assert clients.home.config.read_bytes() == first
    assert list(own(clients)) == ["x", "a"]


def test_a_dry_run_writes_nothing(clients: Clients) -> None:
    """Not even a folder."""
    put(clients, "cursor", a={"command": "a"})
    said = clients.init(dry_run=True)

    assert (said["added"], said["written"]) == (1, False)
    assert not clients.home.folder.exists()


def test_what_runs_the_same_is_merged_and_what_differs_is_kept_apart(clients: Clients) -> None:
    """By program, arguments and values, not by name; a name that is taken gets its client's behind it."""
    put(clients, "cursor", gh={"command": "gh", "env": {"T": "1"}}, fs={"command": "fs"})
    put(clients, "windsurf", github={"command": "gh", "env": {"T": "${T}"}}, fs={"command": "fs", "args": ["/other"]})
    put(clients, "lmstudio", gh={"command": "gh", "env": {"T": "2"}}, fs={"command": "fs", "args": ["/third"]})
    said = clients.init()

    assert own(clients) == {
        "gh": {"command": "gh", "env": {"T": "1"}},
        "fs": {"command": "fs"},
        "fs-windsurf": {"command": "fs", "args": ["/other"]},
        "gh-lmstudio": {"command": "gh", "env": {"T": "2"}},
        "fs-lmstudio": {"command": "fs", "args": ["/third"]},
    }
    rows = {server["name"]: server for server in said["servers"]}
    assert [(source["client"], source["name"]) for source in rows["gh"]["from"]] == [
        ("cursor", "gh"),
        ("windsurf", "github"),
    ]
    assert "another env.T: kept apart" in rows["gh-lmstudio"]["notes"][0]


def test_a_server_is_disabled_only_where_every_client_has_it_so(clients: Clients) -> None:
    """Switched off in one and on in another it is on; what the user has switched off in roster.json stays off."""
    put(clients, "cursor", both={"command": "a", "disabled": True}, off={"command": "b", "disabled": True})
    put(clients, "windsurf", both={"command": "a"})
    clients.init()
    assert own(clients) == {"both": {"command": "a"}, "off": {"command": "b", "disabled": True}}

    put(clients, "windsurf", both={"command": "a"}, off={"command": "b"})
    assert clients.init()["written"] is False


def test_roster_is_never_imported_into_itself(clients: Clients) -> None:
    """Under any name."""
    put(
        clients,
        "cursor",
        roster={"command": "roster", "args": ["serve"]},
        r={"command": "uvx", "args": ["roster", "serve"]},
    )

    assert clients.init()["servers"] == []
    assert not clients.home.config.exists()


def test_a_broken_roster_json_is_left_as_it_is(clients: Clients) -> None:
    """Line and column, nothing imported, nothing lost."""
    put(clients, "cursor", a={"command": "a"})
    clients.home.folder.mkdir()
    clients.home.config.write_text('{"mcpServers": {\n')
    with pytest.raises(ConfigError, match=r"line 2, column 1.*nothing was imported"):
        clients.init()
    assert clients.home.config.read_text() == '{"mcpServers": {\n'


@pytest.mark.skipif(os.name != "posix", reason="modes as POSIX has them")
def test_roster_json_becomes_its_owners_alone_when_keys_move_in(clients: Clients) -> None:
    """And the file before it is among the backups."""
    put(clients, "cursor", a={"command": "a", "env": {"K": "zqs"}})
    clients.home.folder.mkdir()
    clients.home.config.write_text('{"mode": "five"}')
    clients.home.config.chmod(0o644)
    clients.init()

    assert clients.home.config.stat().st_mode & 0o777 == 0o600
    assert own(clients)["a"]["env"] == {"K": "zqs"}
    assert [one.read_bytes() for one in (clients.home.folder / "backups").glob("*-roster")] == [b'{"mode": "five"}']


def test_project_servers_come_with_their_directory(clients: Clients) -> None:
    """From every client's project file; a relative path keeps its meaning."""
    project = clients.machine.cwd
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"c": {"command": "./c.sh"}}}))
    (project / ".vscode").mkdir()
    (project / ".vscode" / "mcp.json").write_text('{"servers": {"v": {"type": "stdio", "command": "v"}}} // shared')
    (project / ".continue" / "mcpServers").mkdir(parents=True)
    (project / ".continue" / "mcpServers" / "k.yaml").write_text("name: x\nmcpServers:\n- name: k\n  command: k\n")
    (project / ".continue" / "mcpServers" / "j.json").write_text('{"mcpServers": {"j": {"command": "j"}}}')
    said = clients.init()

    assert own(clients) == {
        "c": {"command": "./c.sh", "cwd": str(project)},
        "v": {"command": "v"},
        "k": {"command": "k"},
        "j": {"command": "j"},
    }
    assert {source["scope"] for server in said["servers"] for source in server["from"]} == {"project"}


def test_skill_folders_are_counted(clients: Clients) -> None:
    """Each root once, whichever client reads it."""
    for place in ("user/.claude/skills/one", "user/.agents/skills/two", "project/.cursor/skills/group/three"):
        folder = clients.machine.home.parent / place
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text("---\nname: x\n---\n")
    roots = {Path(root["path"]).parent.name: root["skills"] for root in clients.init()["skill_roots"]}

    assert roots == {".agents": 1, ".claude": 1, ".cursor": 1}


# --------------------------------------------------------------------------------------------- places


def machine_on(platform: str, **environ: str) -> Machine:
    return Machine(Path("/home/me"), environ, platform, Path("/work"), "/py")


def user_files(machine: Machine, id_: str) -> list[str]:
    places: list[Place] = [place for place in client_of(id_).places if place.scope is Scope.USER]
    return [path.as_posix() for place in places if (path := path_of(machine, place, machine.cwd)) is not None]


@pytest.mark.parametrize(
    ("platform", "environ", "client", "path"),
    [
        ("linux", {}, "claude-code", "/home/me/.claude.json"),
        ("linux", {"CLAUDE_CONFIG_DIR": "/c"}, "claude-code", "/c/.claude.json"),
        ("linux", {}, "claude-desktop", "/home/me/.config/Claude/claude_desktop_config.json"),
        ("linux", {"XDG_CONFIG_HOME": "/x"}, "claude-desktop", "/x/Claude/claude_desktop_config.json"),
        ("darwin", {}, "claude-desktop", "/home/me/Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", {"APPDATA": "/a/Roaming"}, "claude-desktop", "/a/Roaming/Claude/claude_desktop_config.json"),
        ("win32", {}, "vscode", "/home/me/AppData/Roaming/Code/User/mcp.json"),
        ("darwin", {}, "vscode-insiders", "/home/me/Library/Application Support/Code - Insiders/User/mcp.json"),
        ("linux", {"CODEX_HOME": "~/codex"}, "codex", "/home/me/codex/config.toml"),
        ("linux", {"OPENCLAW_STATE_DIR": "/s"}, "openclaw", "/s/openclaw.json"),
        ("linux", {"OPENCLAW_STATE_DIR": "/s", "OPENCLAW_CONFIG_PATH": "/o.json"}, "openclaw", "/o.json"),
        ("darwin", {}, "zed", "/home/me/.config/zed/settings.json"),
        ("win32", {"APPDATA": "/a"}, "zed", "/a/Zed/settings.json"),
        ("win32", {"APPDATA": "/a"}, "goose", "/a/Block/goose/config/config.yaml"),
        ("linux", {"COPILOT_HOME": "/cp"}, "copilot", "/cp/mcp-config.json"),
    ],
)
def test_a_file_is_looked_for_where_its_client_has_it(
    platform: str, environ: dict[str, str], client: str, path: str
) -> None:
    """By system and by the client's own variables."""
    assert user_files(machine_on(platform, **environ), client)[0] == path


def test_of_several_places_the_one_that_is_there_is_meant(clients: Clients) -> None:
    """opencode.jsonc shadows opencode.json; Claude Desktop's folder has two spellings on Linux."""
    machine = clients.machine
    folder = machine.home / ".config" / "claude"
    folder.mkdir(parents=True)
    (folder / "claude_desktop_config.json").write_text("{}")
    assert user_files(machine, "claude-desktop") == [(folder / "claude_desktop_config.json").as_posix()]
    for name in ("opencode.json", "opencode.jsonc"):
        path = machine.home / ".config" / "opencode" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
        assert user_files(machine, "opencode") == [path.as_posix()]


@pytest.mark.parametrize("client", CLIENTS, ids=IDS)
def test_every_row_of_the_table_can_be_written_about(client: Client) -> None:
    """Id, title, a user file on every system, and folders by templates that mean something."""
    assert client.id == client.id.lower()
    assert client.title
    for platform in ("linux", "darwin", "win32"):
        assert user_files(machine_on(platform, APPDATA="/a"), client.id)
    for template in client.skills:
        assert template.partition("/")[0] in ("~", "@xdg", "@app", "@project", "$CLAUDE_CONFIG_DIR")
