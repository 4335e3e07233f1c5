"""Each client's own spelling of a server, as roster.json spells it; and what stays with its client, with the reason."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any

import pytest

from roster.clients.adapters import CLIENTS, Dialect
from roster.clients.dialects import Routable, Unroutable, anchored, from_client, is_roster, to_client
from roster.clients.identity import covers, differing, references
from roster.clients.redact import HIDDEN, literal_secrets, shown
from roster.config import read_config

D = Dialect


@pytest.mark.parametrize(
    ("dialect", "theirs", "ours"),
    [
        (D.PLAIN, {"command": "a", "args": [], "env": {}}, {"command": "a"}),
        (D.PLAIN, {"command": "a", "disabled": True, "x": 1}, {"command": "a", "x": 1, "disabled": True}),
        (D.PLAIN, {"serverUrl": "https://w", "enabled": False}, {"url": "https://w", "disabled": True}),
        (D.PLAIN, {"type": "streamableHttp", "url": "https://c"}, {"type": "http", "url": "https://c"}),
        (D.PLAIN, {"command": "a", "env": {"K": "${env:K}"}}, {"command": "a", "env": {"K": "${env:K}"}}),
        (D.PLAIN, {"command": "a", "args": ["${userHome}/x"]}, {"command": "a", "args": ["${HOME}/x"]}),
        (D.CLAUDE_CODE, {"type": "sse", "url": "https://s"}, {"type": "sse", "url": "https://s"}),
        (D.CLAUDE_CODE, {"type": "stdio", "command": "a", "args": ["${X:-y}"]}, {"command": "a", "args": ["${X:-y}"]}),
        (D.VSCODE, {"type": "http", "url": "https://v", "gallery": "g"}, {"type": "http", "url": "https://v"}),
        (
            D.CODEX,
            {"command": "a", "env": {"A": "1"}, "env_vars": ["B", {"name": "C"}], "startup_timeout_sec": 20},
            {
                "command": "a",
                "env": {"A": "1", "B": "${B}", "C": "${C}"},
                "startup_timeout_sec": 20,
                "start_timeout_s": 20,
            },
        ),
        (
            D.CODEX,
            {
                "url": "https://c",
                "bearer_token_env_var": "T",
                "http_headers": {"X": "1"},
                "env_http_headers": {"Y": "V"},
            },
            {"url": "https://c", "headers": {"X": "1", "Authorization": "Bearer ${T}", "Y": "${V}"}},
        ),
        (D.OPENCLAW, {"url": "https://o"}, {"type": "sse", "url": "https://o"}),
        (D.OPENCLAW, {"url": "https://o", "transport": "streamable-http"}, {"type": "http", "url": "https://o"}),
        (D.OPENCLAW, {"command": "a", "timeout": 9}, {"command": "a", "timeout": 9, "call_timeout_s": 9}),
        (D.GEMINI, {"httpUrl": "https://g"}, {"type": "http", "url": "https://g"}),
        (D.GEMINI, {"url": "https://g"}, {"type": "sse", "url": "https://g"}),
        (D.GEMINI, {"command": "a", "timeout": 9000}, {"command": "a", "timeout": 9000, "call_timeout_s": 9}),
        (D.GEMINI, {"command": "a", "env": {"K": "%K%", "L": "$L"}}, {"command": "a", "env": {"K": "${K}", "L": "$L"}}),
        (D.ZED, {"source": "custom", "command": "a", "args": ["b"]}, {"command": "a", "args": ["b"]}),
        (
            D.ZED,
            {"command": {"path": "a", "args": ["b"], "env": {"K": "1"}}, "settings": {}},
            {"command": "a", "args": ["b"], "env": {"K": "1"}, "settings": {}},
        ),
        (
            D.CONTINUE,
            {"name": "n", "type": "streamable-http", "url": "https://c", "requestOptions": {"headers": {"A": "1"}}},
            {"type": "http", "url": "https://c", "headers": {"A": "1"}, "requestOptions": {"headers": {"A": "1"}}},
        ),
        (
            D.GOOSE,
            {"type": "stdio", "cmd": "a", "args": ["b"], "envs": {"A": "1"}, "env_keys": ["B"], "enabled": True},
            {"command": "a", "args": ["b"], "env": {"A": "1", "B": "${B}"}},
        ),
        (D.GOOSE, {"type": "streamable_http", "uri": "https://g"}, {"type": "http", "url": "https://g"}),
        (
            D.OPENCODE,
            {"type": "local", "command": ["a", "b"], "environment": {"K": "{env:K}"}},
            {"command": "a", "args": ["b"], "env": {"K": "${K}"}},
        ),
        (D.OPENCODE, {"type": "remote", "url": "https://o"}, {"type": "http", "url": "https://o"}),
        (D.COPILOT, {"type": "local", "command": "a", "tools": ["*"]}, {"command": "a", "tools": ["*"]}),
    ],
)
def test_a_server_is_read_as_its_client_means_it(
    dialect: Dialect, theirs: dict[str, Any], ours: dict[str, Any]
) -> None:
    """References stay references, unknown keys stay, limits are in seconds, and roster.json accepts the result."""
    read = from_client(dialect, theirs)

    assert isinstance(read, Routable)
    assert read.entry == ours
    config = read_config(json.dumps({"mcpServers": {"s": read.entry}}))
    assert "s" in config.servers


@pytest.mark.parametrize(
    ("dialect", "theirs", "reason"),
    [
        (D.VSCODE, {"command": "a", "env": {"K": "${input:key}"}}, r"env.K holds \$\{input:…\}"),
        (D.VSCODE, {"command": "${workspaceFolder}/a"}, r"command holds \$\{workspaceFolder\}"),
        (D.VSCODE, {"command": "a", "envFile": ".env"}, "envFile"),
        (D.GOOSE, {"type": "builtin", "name": "developer"}, "Goose's own kind 'builtin'"),
        (D.GOOSE, {"type": "platform"}, "Goose's own kind"),
        (D.CONTINUE, {"command": "a", "env": {"K": "${{ secrets.KEY }}"}}, "secrets.KEY"),
        (D.CONTINUE, {"url": "https://x", "requestOptions": {"headers": {"A": "${{ secrets.B }}"}}}, "secrets.B"),
        (D.OPENCODE, {"enabled": False}, "neither local nor remote"),
        (D.OPENCODE, {"type": "local", "command": "a b"}, "no list of words"),
        (D.OPENCODE, {"type": "local", "command": ["a"], "environment": {"K": "{file:~/k}"}}, "from a file"),
        (D.ZED, {"source": "extension", "settings": {}}, "extension of Zed"),
        (D.PLAIN, {}, "neither a command nor a url"),
        (D.PLAIN, {"command": ["a"]}, "command is no text"),
        (D.PLAIN, {"command": "a", "args": "b"}, "args are no list"),
        (D.PLAIN, {"command": "a", "env": ["K=1"]}, "env is no map"),
        (D.PLAIN, {"command": "a", "env": {"K": {}}}, "in its env is no text"),
        (D.PLAIN, {"type": "ws", "url": "wss://x"}, "neither stdio, http nor sse"),
        (D.PLAIN, "npx a", "no object"),
        (D.CODEX, {"command": "a", "env_vars": [1]}, "no list of names"),
    ],
)
def test_what_only_its_client_can_run_stays_with_the_reason(dialect: Dialect, theirs: Any, reason: str) -> None:
    """One entry never costs the others, and no value is in the reason."""
    read = from_client(dialect, theirs)

    assert isinstance(read, Unroutable)
    assert re.search(reason, read.reason)


def test_a_sign_in_through_the_client_is_said() -> None:
    """It can be imported, but may need the client to sign in."""
    oauth = from_client(D.CLAUDE_CODE, {"type": "http", "url": "https://x", "oauth": {"clientId": "c"}})
    bare = from_client(D.PLAIN, {"url": "https://x"})

    assert isinstance(oauth, Routable)
    assert isinstance(bare, Routable)
    assert "OAuth" in oauth.notes[0]
    assert "--keep" in bare.notes[0]


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "roster", "args": ["serve"]},
        {"command": "/x/y/roster", "args": ["serve", "--five"]},
        {"command": "C:\\x\\roster.exe", "args": ["serve"]},
        {"command": "python", "args": ["-P", "-m", "roster", "serve"]},
        {"command": "uvx", "args": ["--from", "roster-mcp", "roster", "serve"]},
        {"command": "sh", "args": ["-c", "exec /x/roster serve"]},
        {"cmd": "roster", "args": ["serve"]},
        {"command": ["/x/roster", "serve"]},
        {"command": {"path": "roster", "args": ["serve"]}},
        *(to_client(client.dialect, ["/x/roster", "serve"], {"A": "b"}, ["V"]) for client in CLIENTS),
    ],
)
def test_roster_itself_is_known_in_every_spelling(entry: dict[str, Any]) -> None:
    """So that it is never imported into itself, nor added twice."""
    assert is_roster(entry)


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "duty-roster", "args": ["serve"]},
        {"command": "roster", "args": ["status"]},
        {"command": "npx", "args": ["roster-server"]},
        {"command": "roster", "args": ["served"]},
        {"url": "https://roster/serve"},
        {"command": None},
        "roster serve",
        None,
    ],
)
def test_what_only_sounds_like_it_is_not(entry: Any) -> None:
    """Another program of that name is another program."""
    assert not is_roster(entry)


def test_a_projects_server_gets_the_project_as_its_directory_if_it_needs_one() -> None:
    """A relative path means nothing elsewhere; a package's name with a slash in it is no path."""
    project = PurePosixPath("/p")

    def where(*words: str, **more: str) -> str | None:
        entry = {"command": words[0], "args": list(words[1:]), **more}
        return anchored(entry, project, lambda word: word == "src/a.py").get("cwd")

    assert where("./run.sh") == "/p"
    assert where("node", "../x.js") == "/p"
    assert where("python", "src/a.py") == "/p"
    assert where("npx", "-y", "@acme/files") is None
    assert where("x", "https://a/b", "/abs/a.py", "--a=b/c") is None
    assert where("./run.sh", cwd="/else") == "/else"


# ------------------------------------------------------------------------------------------------ identity


def test_two_entries_are_one_if_they_run_the_same_with_the_same_values() -> None:
    """A reference that is not set here may be either; a value that differs is another account."""
    ours = {"command": "a", "args": ["b"], "env": {"K": "1", "L": "2"}}

    assert covers(ours, {"command": "a", "args": ["b"], "env": {"K": "1"}}, {})
    assert covers(ours, {"command": "a", "args": ["b"], "env": {"K": "${K}"}}, {})
    assert covers(ours, {"command": "a", "args": ["b"], "env": {"K": "${K}"}}, {"K": "1"})
    assert not covers(ours, {"command": "a", "args": ["b"], "env": {"K": "${K}"}}, {"K": "9"})
    assert differing(ours, {"command": "a", "args": ["b"], "env": {"K": "9", "M": "1"}}, {}) == ["env.K", "env.M"]
    assert differing(ours, {"command": "a", "args": ["c"]}, {}) is None
    assert differing(ours, {"command": "a", "args": ["b"], "cwd": "/x"}, {}) is None
    assert covers({"url": "u", "headers": {"authorization": "x"}}, {"url": "u", "headers": {"Authorization": "x"}}, {})


def test_the_variables_of_entries_are_found() -> None:
    """In every place a reference can stand; a dollar in the middle of a text is no variable."""
    entry = {"command": "${A}", "args": ["$B", "pa$s"], "env": {"x": "${env:C}"}, "headers": {"y": "Bearer ${D:-z}"}}

    assert references([entry]) == ["A", "B", "C", "D"]


# ----------------------------------------------------------------------------------------------- redaction


@pytest.mark.parametrize(
    "entry",
    [
        {"env": {"ANYTHING": "zqs"}},
        {"headers": {"X-Harmless": "zqs"}},
        {"url": "https://zqs@host/x"},
        {"url": "https://u:zqs@host/x?a=zqs#zqs"},
        {"url": "https://host/sk-zqs12345678/mcp"},
        {"command": "x", "args": ["--token", "zqs"]},
        {"command": "x", "args": ["--api-key=zqs"]},
        {"command": "x", "args": ["--header", "Authorization: Bearer zqs"]},
        {"command": "x", "args": ["-H", "zqs"]},
        {"command": "docker", "args": ["run", "-e", "TOKEN=zqs", "image"]},
        {"command": "docker", "args": ["run", "-eTOKEN=zqs"]},
        {"command": "x", "args": ["postgresql://u:zqs@db/x"]},
        {"command": "x", "args": ["--db", "postgresql://u:zqs@db/x?password=zqs"]},
        {"command": "sh", "args": ["-c", "export TOKEN=zqs; run --password zqs"]},
        {"command": "sh -c 'KEY=zqs run'"},
        {"command": "x", "args": ["sk-zqs1234567890abcdef"]},
        {"command": "x", "args": ["zqs0123456789abcdefghij"]},
        {"command": ["x", "--secret", "zqs"]},
        {"oauth": {"clientSecret": "zqs"}},
        {"requestOptions": {"headers": {"A": "zqs"}}},
        {"somethingNew": "zqs"},
        {"somethingNew": ["zqs"]},
        {"env": {"K": "${K:-zqs}"}},
        {"env": {"K": "$zqs"}},
        {"envs": {"K": "zqs"}, "cmd": "x", "args": ["--auth-token", "zqs"]},
    ],
)
def test_no_value_that_may_be_a_secret_is_shown(entry: dict[str, Any]) -> None:
    """By position: environment, headers, addresses, what follows a flag, what nobody knows the meaning of."""
    assert "zqs" not in repr(shown(entry))
    assert HIDDEN in repr(shown(entry))


def test_what_says_which_server_it_is_stays_readable() -> None:
    """Program, package, host, plain flags, names of variables and whole references."""
    entry = {
        "type": "stdio",
        "command": "/usr/local/bin/npx",
        "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/docs", "--verbose", "${TOKEN}"],
        "env": {"KEY": "${KEY}"},
        "timeout": 30,
    }
    assert shown(entry) == entry
    assert shown({"url": "https://api.example.com/mcp"}) == {"url": "https://api.example.com/mcp"}
    assert shown("text") == HIDDEN


def test_where_values_stand_is_said_by_key_name() -> None:
    """A reference is no value; a default beside one is."""
    entry = {
        "command": "x",
        "args": ["--token", "zqs"],
        "env": {"A": "zqs", "B": "${B}", "C": "${C:-zqs}"},
        "headers": {"Authorization": "Bearer ${T}", "X": "Bearer zqs"},
    }
    assert literal_secrets(entry) == ["args", "env.A", "env.C", "headers.X"]
