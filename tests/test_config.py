"""`roster.json`: every mistake is named with its remedy, costs only its own entry, and never tells a secret."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roster.config import (
    Config,
    Home,
    Mode,
    Problem,
    ServerSpec,
    Settings,
    Transport,
    child_environment,
    expand,
    find_home,
    load_config,
    open_home,
    read_config,
)
from roster.errors import ConfigError, VariableError

GOOD = {"command": "good", "args": ["-x"]}


def read(entry: Any = None, **top: Any) -> Config:
    """A config with a good server before and after the entry in question."""
    servers = {"first": GOOD, **({} if entry is None else {"odd": entry}), "last": GOOD}
    return read_config(json.dumps({"mcpServers": servers, **top}))


# -------------------------------------------------------------------------------------------- servers


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("npx", r"expected an object such as"),
        (None, r"expected an object such as"),
        ({}, r'neither "command" nor "url".*name the program'),
        ({"args": ["x"], "type": "stdio"}, r'"command" is missing: name the program'),
        ({"command": "", "type": "stdio"}, r'"command" is missing'),
        ({"type": "sse"}, r'neither "command" nor "url"'),
        ({"url": "http://x", "type": "carrier-pigeon"}, r"'carrier-pigeon' is not known: use stdio, http or sse"),
        ({"command": ["npx"]}, r"command: .*string"),
        ({"command": "x", "args": "-y"}, "args: must be an array of strings"),
        ({"command": "x", "args": [1]}, r"args\.0: .*string"),
        ({"command": "x", "env": ["A=1"]}, r"env: .*dictionary"),
        ({"command": "x", "env": {"A": ["1"]}}, r"env\.A: .*string"),
        ({"command": "x", "cwd": 1}, r"cwd: .*string"),
        ({"url": 5}, r"url: .*string"),
        ({"url": "http://x", "headers": {"A": 1}}, r"headers\.A: .*string"),
        ({"command": "x", "call_timeout_s": 0}, r"call_timeout_s: .*greater than 0"),
        ({"command": "x", "start_timeout_s": 10**6}, r"start_timeout_s: .*86400"),
        ({"command": "x", "start_timeout_s": "soon"}, r"start_timeout_s: .*number"),
    ],
)
def test_a_server_that_cannot_be_used_is_named_and_costs_no_other(entry: Any, says: str) -> None:
    """One problem, under the server's name, saying what is wrong; the servers around it stay."""
    config = read_config(json.dumps({"mcpServers": {"first": GOOD, "odd": entry, "last": GOOD}}))

    assert list(config.servers) == ["first", "last"]
    (problem,) = config.problems
    assert problem.server == "odd"
    assert re.search(says, problem.message), problem.message
    assert str(problem) == f"odd: {problem.message}"
    assert config.problems_of("odd") == [problem.message]
    assert config.problems_of("first") == []


@pytest.mark.parametrize(
    ("key", "meant"),
    [("comand", "command"), ("arg", "args"), ("enviroment", None), ("header", "headers"), ("zzz", None)],
)
def test_an_unknown_key_of_a_server_is_reported_and_ignored(key: str, meant: str | None) -> None:
    """With the nearest known key, if there is one; the server is used all the same."""
    config = read({"command": "x", "url": "", key: 1})
    (message,) = config.problems_of("odd")

    assert list(config.servers) == ["first", "odd", "last"]
    assert repr(key) in message
    assert message.endswith(f"(did you mean {meant!r}?)" if meant else "ignored")


@pytest.mark.parametrize("key", ["autoApprove", "timeout", "alwaysAllow", "description", "disabledTools"])
def test_another_programs_key_is_nobodys_mistake(key: str) -> None:
    """A block pasted from any client reads without a word."""
    assert read({"command": "x", key: ["anything"]}).problems == []


@pytest.mark.parametrize("key", ["url", "httpUrl", "serverUrl", "uri"])
@pytest.mark.parametrize(
    ("more", "transport", "guessed"),
    [
        ({}, Transport.HTTP, True),
        ({"type": "http"}, Transport.HTTP, False),
        ({"transport": "streamable-http"}, Transport.HTTP, False),
        ({"transportType": "streamableHttp"}, Transport.HTTP, False),
        ({"type": "streamable_http"}, Transport.HTTP, False),
        ({"type": "remote"}, Transport.HTTP, False),
        ({"transport": "SSE"}, Transport.SSE, False),
        ({"type": None, "transportType": "sse"}, Transport.SSE, False),
    ],
)
def test_every_dialect_of_an_address_is_read(key: str, more: Any, transport: Transport, guessed: bool) -> None:
    """Each client calls the address and the transport differently; a transport that is not named is a guess."""
    config = read({key: "http://x/mcp", "headers": {"A": "b"}, **more})
    spec = config.servers["odd"]

    assert config.problems == []
    assert (spec.url, spec.transport, spec.guessed, spec.headers) == ("http://x/mcp", transport, guessed, {"A": "b"})


@pytest.mark.parametrize("more", [{}, {"type": "stdio"}, {"type": "local"}, {"url": "http://x"}])
def test_a_command_is_started(more: Any) -> None:
    """A command needs no type, and goes before an address when both stand there."""
    spec = read({"command": "npx", "args": ["-y", "x"], "cwd": "/tmp", **more}).servers["odd"]

    assert (spec.transport, spec.command, spec.args, spec.cwd) == (Transport.STDIO, "npx", ("-y", "x"), "/tmp")


@pytest.mark.parametrize(
    ("more", "disabled"),
    [({"disabled": True}, True), ({"enabled": False}, True), ({"disabled": False}, False), ({"enabled": True}, False)],
)
def test_a_disabled_server_is_kept_as_such(more: Any, disabled: bool) -> None:
    """Both spellings are known; the entry is still checked."""
    config = read({"command": "x", **more})

    assert config.servers["odd"].disabled is disabled
    assert config.problems == []
    assert read({"command": 1, **more}).problems


def test_numbers_and_flags_in_an_environment_become_text() -> None:
    """A child can only be given text: `8080` and `true`, as the file has them."""
    env = {"PORT": 8080, "RATIO": 0.5, "ON": True, "OFF": False, "TEXT": "01"}

    assert read({"command": "x", "env": env}).servers["odd"].env == {
        "PORT": "8080", "RATIO": "0.5", "ON": "true", "OFF": "false", "TEXT": "01",
    }  # fmt: skip


@pytest.mark.report("PrefectHQ/fastmcp#604")
def test_timeouts_have_defaults_and_can_be_set() -> None:
    """30 s to start, 300 s for a call, by server."""
    config = read({"command": "x", "call_timeout_s": 5})
    timeouts = [(spec.start_timeout_s, spec.call_timeout_s) for spec in config.servers.values()]

    assert timeouts == [(30, 300), (30, 5), (30, 300)]


def test_references_stay_references_and_servers_keep_their_order() -> None:
    """Nothing is resolved before a server is started."""
    config = read({"command": "$HOME/x", "args": ["${A}"], "env": {"K": "${env:B}"}, "url": "${C:-d}"})

    assert list(config.servers) == ["first", "odd", "last"]
    spec = config.servers["odd"]
    assert (spec.command, spec.args, spec.env, spec.url) == ("$HOME/x", ("${A}",), {"K": "${env:B}"}, "${C:-d}")


# ------------------------------------------------------------------------------------------ the whole


def test_settings_are_read_and_have_defaults() -> None:
    """An empty object is a config; every setting can be given."""
    assert read_config("{}") == Config(Settings(), {})
    given_ = {"mode": "five", "model": "m", "threads": 2, "quarantine": "off", "skills": ["a"], "$schema": "x"}
    config = read(**given_)

    assert config.settings == Settings(mode=Mode.FIVE, model="m", threads=2, quarantine="off", skills=("a",))
    assert config.problems == []
    assert config.with_model("other").settings == config.settings.model_copy(update={"model": "other"})
    assert config.with_model("other").servers == config.servers


@pytest.mark.parametrize(
    ("top", "says"),
    [
        ({"mode": "fife"}, r"mode: .*'transparent' or 'five'; using the default"),
        ({"mode": None}, r"mode: .*using the default"),
        ({"model": ""}, r"model: .*at least 1"),
        ({"threads": 0}, r"threads: .*greater than or equal to 1"),
        ({"threads": "two"}, r"threads: .*integer"),
        ({"quarantine": "yes"}, r"quarantine: .*'off'"),
        ({"learning": "some"}, r"learning: .*'off', 'ratings' or 'full'"),
        ({"learning": False}, r"learning: .*'off', 'ratings' or 'full'"),
        ({"history_days": 0}, r"history_days: .*greater than 0"),
        ({"history_outcomes": 0}, r"history_outcomes: .*greater than or equal to 1"),
        ({"history_needs": "many"}, r"history_needs: .*integer"),
        ({"history_outcome": 5}, r"'history_outcome' is not known.*'history_outcomes'"),
        ({"skills": "folder"}, r"skills: must be an array of strings"),
        ({"skills": [1]}, r"skills\.0: .*string"),
        ({"mod": "five"}, r"the key 'mod' is not known.*did you mean 'mod"),
        ({"mcpServer": {}}, r"did you mean 'mcpServers'"),
        ({"nothing_like_it": 1}, r"the key 'nothing_like_it' is not known and was ignored$"),
    ],
)
def test_a_bad_setting_falls_back_and_is_reported(top: Any, says: str) -> None:
    """One problem of the file as a whole; the default is used, and every server and other setting stays."""
    config = read_config(json.dumps({"threads": 3, "mcpServers": {"first": GOOD}, **top}))
    (problem,) = config.problems

    assert problem.server == ""
    assert re.search(says, str(problem)), problem
    assert list(config.servers) == ["first"]
    assert config.settings == Settings(threads=1 if "threads" in top else 3)


def test_several_bad_settings_are_all_reported() -> None:
    """A person mends the file once, not once a mistake."""
    config = read(mode=1, threads=-1, quarantine=2, modle="x")

    assert len(config.problems) == 4
    assert config.settings == Settings()


@pytest.mark.parametrize("servers", [[], "x", None, 3])
def test_servers_that_are_no_object_are_reported(servers: Any) -> None:
    """The rest of the file still counts."""
    config = read_config(json.dumps({"mcpServers": servers, "mode": "five"}))

    assert config.servers == {}
    assert config.problems == [Problem('"mcpServers" must be an object from name to server; no server was read')]
    assert config.settings.mode is Mode.FIVE


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"mcpServers": {', r"line 1, column 17"),
        (b"", r"line 1, column 1"),
        (b"[]", r'expected an object such as \{"mcpServers"'),
        (b'"text"', r"expected an object"),
        (b'{"a": 1, "a": 2}', r"'a' stands twice"),
        (b'{"mcpServers": {"s": {"command": "a", "command": "b"}}}', r"'command' stands twice"),
        (b'{"mode": "\xff"}', r"UTF-8"),
        ('{"mode": "five"}'.encode("utf-16"), r"UTF-8"),
        (None, r"is not there: `roster init` makes it"),
    ],
)
def test_a_file_that_cannot_be_read_says_which_and_what_to_do(home: Home, content: bytes | None, says: str) -> None:
    """The only mistakes that stop everything; the message starts with the file."""
    if content is not None:
        home.config.write_bytes(content)

    with pytest.raises(ConfigError, match=says) as raised:
        load_config(home)
    assert str(raised.value).startswith(str(home.config))


def test_comments_commas_and_a_byte_order_mark_are_fine(home: Home) -> None:
    """The file is written by hand, in any editor."""
    home.config.write_text('\ufeff// mine\n{"mcpServers": {"a": {"command": "x",}, /* no */},}', encoding="utf-8")

    config = load_config(home)
    assert list(config.servers) == ["a"]
    assert config.path == home.config
    assert config.problems == []


@pytest.mark.parametrize("mistake", [{"command": 7}, {"env": {"K": ["s3cret"]}}, {"type": "x"}, {"cwd": {"s3cret": 1}},
                                     {"args": {"a": "s3cret"}}, {"headers": ["s3cret"]}, {"call_timeout_s": "s3cret"},
                                     {"comand": "s3cret"}, {"env": "s3cret"}])  # fmt: skip
def test_no_problem_tells_a_secret(mistake: Any) -> None:
    """Values of `env`, `headers` and the rest of an entry are in no message, whatever is wrong with it."""
    entry = {
        "command": "x",
        "env": {"TOKEN": "s3cret"},
        "headers": {"Authorization": "Bearer s3cret"},
        "url": "http://x",
    }
    config = read(entry | mistake, model="", modle="s3cret")

    assert len(config.problems) >= 3
    assert "s3cret" not in " ".join(map(str, config.problems))


# ------------------------------------------------------------------------------------------------ home


def test_the_home_is_named_by_the_environment_or_is_a_dot_folder(tmp_path: Path) -> None:
    """`ROSTER_HOME`, with `~` understood, else `~/.roster`; an empty value is none."""
    assert find_home({"ROSTER_HOME": "/x/y"}).folder == Path("/x/y")
    assert find_home({"ROSTER_HOME": "~/y"}).folder == tmp_path / "y"
    assert find_home({"ROSTER_HOME": ""}).folder == find_home({}).folder == tmp_path / ".roster"
    home = find_home()
    assert home.folder == Path(os.environ["ROSTER_HOME"])
    files = [home.config, home.database, home.index, home.logs]
    assert files == [home.folder / name for name in ("roster.json", "roster.db", "index", "logs")]


def test_a_new_home_is_its_owners_only(tmp_path: Path) -> None:
    """Made with its parents, mode 0700; opening it again is fine."""
    home = open_home(Home(tmp_path / "a" / "b"))

    assert open_home(home) == home
    if os.name == "posix":
        assert stat.S_IMODE(home.folder.stat().st_mode) == 0o700


def test_a_home_that_cannot_be_made_says_what_to_set(tmp_path: Path) -> None:
    """A file in the way gives the folder's name and the remedy."""
    (tmp_path / "file").touch()

    for folder in (tmp_path / "file", tmp_path / "file" / "home"):
        with pytest.raises(ConfigError, match=r"cannot be used as Roster's home .*set ROSTER_HOME") as raised:
            open_home(Home(folder))
        assert str(folder) in str(raised.value)


# ----------------------------------------------------------------------------------------- environment

ENVIRON = {"A": "1", "EMPTY": "", "B_2": "two"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${A}", "1"),
        ("${env:A}", "1"),
        ("$A/x$B_2", "1/xtwo"),
        ("a${A}b${B_2}", "a1btwo"),
        ("${NONE:-d e}", "d e"),
        ("${env:NONE:-d}", "d"),
        ("${A:-d}", "1"),
        ("${EMPTY:-d}", "d"),
        ("${NONE:-}", ""),
        ("${EMPTY}", ""),
        ("pa$$word$NONE", "pa$$word$NONE"),
        ("$1 ${} ${1} $ {A}", "$1 ${} ${1} $ {A}"),
        ("^x$", "^x$"),
    ],
)
@pytest.mark.report("langchain-ai/langchain-mcp-adapters#437", "sparfenyuk/mcp-proxy#193")
def test_references_are_replaced_as_a_shell_would(text: str, expected: str) -> None:
    """`${VAR}`, `${env:VAR}`, `${VAR:-default}` and `$VAR`; what is no reference stays as written."""
    assert expand(text, ENVIRON) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x${NONE}", r"NONE is not set: set it .* or write \$\{NONE:-"),
        ("${env:NONE}", r"NONE is not set"),
        ("${input:api-key}", r"\$\{input:…\} is not a reference Roster can resolve"),
        ("${workspaceFolder:x}", r"workspaceFolder"),
        ("${command:x}", r"use \$\{VAR\}"),
    ],
)
def test_a_reference_without_a_value_is_named(text: str, says: str) -> None:
    """Sending `${TOKEN}` itself to a server would only puzzle it."""
    with pytest.raises(VariableError, match=says):
        expand(text, ENVIRON)


@given(st.text(st.characters(exclude_characters="$")), st.text(), st.text())
@example("a", "${B}", "$C")
def test_a_value_is_put_in_once_and_as_it_is(around: str, value: str, other: str) -> None:
    """Text without a reference is unchanged, and a value that looks like a reference is not followed."""
    environ = {"A": value, "B": other, "C": other}

    assert expand(around, environ) == around
    assert expand(f"{around}${{A}}{around}", environ) == f"{around}{value}{around}"


@pytest.mark.parametrize("field", ["command", "args", "env", "cwd", "url", "headers"])
def test_a_server_says_which_variable_it_lacks(field: str) -> None:
    """Wherever the reference stands; with the variable set, nothing is missing."""
    value: Any = {"args": ("${NONE}",), "env": {"K": "${NONE}"}, "headers": {"K": "${NONE}"}}.get(field, "${NONE}")
    spec = ServerSpec(transport=Transport.STDIO, **{field: value})

    assert "NONE is not set" in (spec.missing(ENVIRON) or "")
    assert spec.missing({**ENVIRON, "NONE": "1"}) is None


@pytest.mark.report("cline/cline#12865")
def test_a_child_is_given_what_it_needs_and_no_key() -> None:
    """The allow-list (proxy, certificates, locale, caches) and its own `env`; nothing else of ours."""
    spec = ServerSpec(transport=Transport.STDIO, command="x", env={"TOKEN": "${SECRET}", "LANG": "C"})
    environ = {"SECRET": "s", "OPENAI_API_KEY": "k", "https_proxy": "p", "LANG": "de", "TZ": "UTC", "ROSTER_HOME": "h"}

    assert child_environment(spec, environ) == {"TOKEN": "s", "LANG": "C", "https_proxy": "p", "TZ": "UTC"}
    with pytest.raises(VariableError, match="SECRET is not set"):
        child_environment(spec, {})
