"""Files as people have them: for each client three servers or so, in every layout a config file is found in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from roster.clients.adapters import CLIENTS, Client, Format, Place, Scope
from roster.clients.finding import path_of
from roster.clients.machine import Machine

SECRETS = ["zqenvsecret7x1", "zqheadersecret7x1", "zqargsecret7x1", "zquser7x1", "zqquery7x1", "zqbystander7x1"]
ENV, HEADER, ARGUMENT, USER, QUERY, BYSTANDER = SECRETS
ARGS = ["-y", "@acme/files", "--token", ARGUMENT, "/home/me/docs"]
URL = f"https://{USER}:pw@api.example.com/mcp?key={QUERY}"
HEADERS = {"Authorization": f"Bearer {HEADER}"}

PLAIN = {
    "files": {"command": "npx", "args": ARGS, "env": {"FILES_KEY": ENV}, "alwaysAllow": ["read"], "timeout": 60},
    "web": {"url": URL, "headers": HEADERS},
    "naïve ✓": {"command": "uvx", "args": ["naïve"]},
}
SERVERS: dict[str, dict[str, Any]] = {
    "claude-code": {**PLAIN, "web": {"type": "http", **PLAIN["web"]}},
    "claude-desktop": {name: PLAIN[name] for name in ("files", "naïve ✓")},
    "vscode": {
        "files": {"type": "stdio", **PLAIN["files"]},
        "web": {"type": "http", **PLAIN["web"]},
        "asks": {"command": "asks", "args": ["${input:key}"]},
    },
    "openclaw": {**PLAIN, "web": {**PLAIN["web"], "transport": "streamable-http"}},
    "windsurf": {**PLAIN, "web": {"serverUrl": URL, "headers": HEADERS}},
    "zed": {
        "files": {"source": "custom", **PLAIN["files"]},
        "web": PLAIN["web"],
        "comes-along": {"source": "extension", "settings": {"key": BYSTANDER}},
    },
    "gemini": {**PLAIN, "web": {"httpUrl": URL, "headers": HEADERS}, "trusting": {"command": "x", "trust": True}},
    "cline": {**PLAIN, "web": {"type": "streamableHttp", **PLAIN["web"]}},
    "opencode": {
        "files": {"type": "local", "command": ["npx", *ARGS], "environment": {"FILES_KEY": ENV}, "enabled": True},
        "web": {"type": "remote", "url": URL, "headers": HEADERS},
        "odd": {"enabled": False},
    },
    "copilot": {
        "files": {"type": "local", **PLAIN["files"], "tools": ["*"]},
        "web": {"type": "http", **PLAIN["web"], "tools": ["*"]},
    },
}
STAYS = {"vscode": {"asks"}, "vscode-insiders": {"asks"}, "zed": {"comes-along"}, "opencode": {"odd"},
         "goose": {"developer"}, "continue": {"vault"}}  # fmt: skip


def servers_of(client: Client) -> dict[str, Any]:
    """What stands in a JSON client's file, by name."""
    return SERVERS.get(client.id) or SERVERS.get(client.dialect.value) or PLAIN


def user_place(client: Client) -> Place:
    return next(place for place in client.places if place.scope is Scope.USER)


def user_path(machine: Machine, client: Client) -> Path:
    path = path_of(machine, user_place(client), machine.cwd)
    assert path is not None
    return path


# ------------------------------------------------------------------------------------------ JSON layouts


def _wrapped(keys: tuple[str, ...], servers: Any, more: dict[str, Any] | None = None) -> dict[str, Any]:
    value: Any = servers
    for key in reversed(keys):
        value = {key: value}
    return {
        "theme": "dark",
        "secretOfTheClient": BYSTANDER,
        **value,
        "z": {"empty": {}, "list": [1, [2, {"a": []}]]},
        **(more or {}),
    }


def _commented(text: str) -> str:
    lines = [f"{line} // {number}: \"quoted\" ] }} ," if line.endswith((",", "{", "[")) else line
             for number, line in enumerate(text.splitlines())]  # fmt: skip
    return "// first\n/* over\n   lines { */\n" + "\n".join(lines) + "\n// last\n"


def _trailing(text: str) -> str:
    return re.sub(r'(["\d\]}el])(\n\s*[\]}])', r"\1,\2", text)


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"in": [value]}
    return value


def _state() -> dict[str, Any]:
    history = [{"display": f'line {n} "x" \\ {{ // no comment', "pasted": {}} for n in range(2_400)]
    return {"history": history, "cached": {f"flag_{n}": n % 2 == 0 for n in range(2_000)}}


def json_layouts(keys: tuple[str, ...], servers: Any) -> Iterator[tuple[str, bytes]]:
    """One file's content in every layout, with a name for each."""
    value = _wrapped(keys, servers)
    pretty = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    yield "two spaces", pretty.encode()
    yield "four spaces, no final newline", json.dumps(value, indent=4).encode()
    yield "tabs", json.dumps(value, indent="\t", ensure_ascii=False).encode() + b"\n"
    yield "one line", json.dumps(value).encode()
    yield "minified", json.dumps(value, separators=(",", ":")).encode() + b"\n"
    yield "windows", pretty.replace("\n", "\r\n").encode()
    yield "byte-order mark", b"\xef\xbb\xbf" + pretty.encode()
    yield "comments", _commented(pretty).encode()
    yield "trailing commas", _trailing(pretty).encode()
    mixed = _commented(_trailing(pretty)).replace("\n", "\r\n")
    yield "all of it", b"\xef\xbb\xbf" + mixed.encode()
    yield "deep", json.dumps(_wrapped(keys, servers, {"deep": _nested(300)}), indent=1).encode()
    yield "250 kB of state", json.dumps(_wrapped(keys, servers, _state()), indent=2).encode()
    yield "huge numbers", pretty.replace('"list"', f'"n": {"9" * 6000}, "m": -1.5e+4000, "list"').encode()
    yield "escapes", json.dumps({"é\u2028😀": "\ud83d\ude00 \\u0041 \x7f", **value}, indent=2).encode()
    yield "keys twice elsewhere", pretty.replace('"theme"', '"twice": 1,\n  "twice": 2,\n  "theme"').encode()
    yield "odd spacing", pretty.replace('": ', '"  :   ').replace(",\n", " ,\n\n").encode()
    yield "no newline at all, comments", re.sub(r"\n\s*", " /* c */ ", pretty.strip()).encode()


# ------------------------------------------------------------------------------------------------- TOML

TOML = f"""\
# Codex, as I like it
model = "gpt-5"
notify = ["say", "done [mcp_servers.none]"] # not a table
secret_of_the_client = "{BYSTANDER}"
big = 9_223_372_036_854_775_807

[profiles.fast]
model = 'small'
text = \"\"\"
[mcp_servers.neither]
\"\"\"

# reads my files
[mcp_servers.files]
command = "npx"
args = [
  "-y", "@acme/files", # the package
  "--token", "{ARGUMENT}", "/home/me/docs",
]
startup_timeout_sec = 20

[mcp_servers.files.env]
FILES_KEY = "{ENV}"

# the web
[mcp_servers."we b"]
url = "{URL}"  # remark
http_headers = {{ Authorization = "Bearer {HEADER}" }}

[mcp_servers.off]
command = "off"
enabled = false

[projects."/home/me/code"]
trust_level = "trusted"
"""


def toml_layouts() -> Iterator[tuple[str, bytes]]:
    yield "plain", TOML.encode()
    yield "no final newline", TOML.rstrip().encode()
    yield "windows", TOML.replace("\n", "\r\n").encode()
    yield "byte-order mark", b"\xef\xbb\xbf" + TOML.encode()
    yield "indented", TOML.replace("[mcp", "  [mcp").replace("command", "\tcommand").encode()
    yield "tables apart", (TOML + '\n[mcp_servers.last]\ncommand = "last"\n\n\n# end\n').encode()
    yield "quoted keys", TOML.replace("[mcp_servers.files", "[ 'mcp_servers' . \"f\\u0069les\"").encode()
    yield (
        "inline server",
        TOML.replace(
            '[mcp_servers.off]\ncommand = "off"\nenabled = false',
            '[mcp_servers]\noff = { command = "npx", args = ["o"] }',
        ).encode(),
    )
    yield "dotted keys", f'mcp_servers.d.command = "npx"\nmcp_servers.d.args = ["d"]\n{TOML}'.encode()
    yield "blank lines", TOML.replace("\n[", "\n\n\n\n[").encode()
    yield "no blank lines", re.sub(r"\n\n+", "\n", TOML).encode()
    yield "comment at the end of tables", TOML.replace("\n\n#", "\n# below\n\n#").encode()
    yield "unicode", TOML.replace("fast", '"schnell é 😀"').replace("/home/me/code", "/home/mé/码").encode()
    yield "array of tables", (TOML + '\n[[hooks]]\ncommand = "x"\n[[hooks]]\ncommand = "y"\n').encode()
    yield "large", (TOML + "".join(f'\n[projects."/p/{n}"]\ntrust_level = "trusted"\n' for n in range(2_000))).encode()


# ------------------------------------------------------------------------------------------------- YAML

GOOSE = f"""\
# Goose
GOOSE_PROVIDER: anthropic
secret_of_the_client: "{BYSTANDER}"
extensions:
  developer:
    bundled: true
    enabled: true
    name: developer
    type: builtin
  # reads my files
  files:
    args: [-y, "@acme/files", --token, {ARGUMENT}, /home/me/docs]
    cmd: npx
    description: |
      Reads files.

      And: more
    enabled: true
    envs:
      FILES_KEY: {ENV}   # remark
    env_keys: [STORED_KEY]
    name: files
    timeout: 300
    type: stdio

  web:
    enabled: true
    headers: {{Authorization: Bearer {HEADER}}}
    type: streamable_http
    uri: "{URL}"
    envs: {{}}
    available_tools:
  # nothing more
GOOSE_MODEL: claude
"""
CONTINUE = f"""\
name: Mine
version: 1.0.0
secret_of_the_client: "{BYSTANDER}"
mcpServers:
  # reads my files
  - name: files
    command: npx
    args:
      - -y
      - "@acme/files"
      - --token
      - {ARGUMENT}
    env:
      FILES_KEY: {ENV}

  - name: web
    type: streamable-http
    url: {URL}
    requestOptions:
      headers:
        Authorization: Bearer {HEADER}
  - name: vault
    command: vault
    env: {{KEY: "${{{{ secrets.KEY }}}}"}}   # remark
models:
  - name: x
    provider: y
"""


def yaml_layouts(text: str) -> Iterator[tuple[str, bytes]]:
    yield "plain", text.encode()
    yield "no final newline", text.rstrip().encode()
    yield "windows", text.replace("\n", "\r\n").encode()
    yield "byte-order mark", b"\xef\xbb\xbf" + text.encode()
    yield "document start", f"---\n{text}".encode()
    yield "document start and end", f"%YAML 1.2\n---\n{text}...\n".encode()
    deeper = re.sub(r"^( +)", r"  \1", text, flags=re.MULTILINE)
    yield "four spaces", deeper.encode()
    yield "anchors elsewhere", f"base: &base {{a: 1}}\n{text}copy: *base\n".encode()
    yield "literal text elsewhere", f"{text}prompt: |\n  extensions:\n    files: no\n  # no comment\n".encode()
    yield "unicode", f"naïve: ✓ 😀\n{text}".encode()
    yield "comments everywhere", re.sub(r"\n(?= {0,4}[\w-]+:)", "\n\n# one more\n", text).encode()
    yield (
        "quoted keys",
        text.replace("\nextensions:", '\n"extensions":').replace("\nmcpServers:", "\n'mcpServers':").encode(),
    )
    yield "huge numbers", f"n: {'9' * 500}\nm: .inf\nd: 2001-12-14\n{text}".encode()
    yield "large", (text + "".join(f"k{n}: {{a: [1, 2], b: text}}\n" for n in range(500))).encode()
    yield "servers last", (text.replace("GOOSE_MODEL: claude\n", "").partition("models:")[0]).encode()


def layouts(client: Client) -> Iterator[tuple[str, bytes]]:
    """The client's user file in every layout."""
    place = user_place(client)
    if place.format is Format.TOML:
        yield from toml_layouts()
    elif place.format is Format.YAML:
        yield from yaml_layouts(GOOSE if client.id == "goose" else CONTINUE)
    else:
        yield from json_layouts(place.keys, servers_of(client))


def named_layouts() -> list[tuple[str, str]]:
    return [(client.id, name) for client in CLIENTS for name, _ in layouts(client)]


def client_of(id_: str) -> Client:
    return next(client for client in CLIENTS if client.id == id_)


def plain_layout(client: Client) -> bytes:
    return next(layouts(client))[1]


Edit = Callable[[bytes], bytes]
