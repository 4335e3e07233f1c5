"""The MCP clients Roster knows, as one table: their files, the shape of what is in them, and how sure we are.

A client is added by a row here, and by a dialect only if it spells a server in a way that no other one does.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from roster.clients.yamlfile import LIST
from roster.errors import ConfigError

__all__ = ["CLIENTS", "Client", "Confidence", "Dialect", "Format", "Place", "Scope", "chosen"]


class Scope(StrEnum):
    """Where an entry counts: for the user, for the user in one project, or for everybody who has the project."""

    USER = "user"
    LOCAL = "local"
    PROJECT = "project"


class Format(StrEnum):
    """What the file is written in."""

    JSON = "json"
    TOML = "toml"
    YAML = "yaml"


class Dialect(StrEnum):
    """How a client spells one server; see `dialects`."""

    PLAIN = "plain"
    CLAUDE_CODE = "claude-code"
    VSCODE = "vscode"
    CODEX = "codex"
    OPENCLAW = "openclaw"
    ZED = "zed"
    GEMINI = "gemini"
    CONTINUE = "continue"
    GOOSE = "goose"
    OPENCODE = "opencode"
    COPILOT = "copilot"


class Confidence(StrEnum):
    """How a row was checked: against the client itself, its documentation, or another tool's table."""

    VERIFIED = "verified"
    DOCUMENTED = "documented"
    REPORTED = "reported"


@dataclass(frozen=True, slots=True)
class Place:
    """One file a client reads servers from.

    paths: templates (see `Machine.place`) by `sys.platform`, or under "" for every system. Of several the first one
    that is there is meant; one that begins with a variable is the only one where that variable is set.
    keys: the way to the servers inside the file; `<project>` stands for the project's absolute path.
    live: the client writes it while it runs. lock: what to add to its name for the folder the client locks it with.
    """

    scope: Scope
    paths: dict[str, tuple[str, ...]]
    keys: tuple[str, ...]
    format: Format = Format.JSON
    live: bool = False
    lock: str = ""

    @property
    def many(self) -> bool:
        """Whether the client makes one list of several files here."""
        return any("*" in path for path in self.paths.get("", ()))


@dataclass(frozen=True, slots=True)
class Client:
    """An MCP client. gui: it is started from a menu, with a short PATH. skills: its skill folders.

    withholds: its servers get only a few variables of its environment, and an entry cannot ask for more.
    """

    id: str
    title: str
    dialect: Dialect
    places: tuple[Place, ...]
    confidence: Confidence
    gui: bool = False
    withholds: bool = False
    skills: tuple[str, ...] = ()
    notes: str = ""


def _user(
    *paths: str, keys: Sequence[str] = ("mcpServers",), live: bool = False, **by_platform: tuple[str, ...]
) -> Place:
    return Place(Scope.USER, {"": paths, **by_platform}, tuple(keys), live=live)


def _project(*paths: str, keys: Sequence[str] = ("mcpServers",)) -> Place:
    return Place(Scope.PROJECT, {"": paths}, tuple(keys))


_CLAUDE_STATE = ("$CLAUDE_CONFIG_DIR/.claude.json", "~/.claude.json")
_CODEX = ("mcp_servers",)

CLIENTS: tuple[Client, ...] = (
    Client(
        "claude-code",
        "Claude Code",
        Dialect.CLAUDE_CODE,
        (
            Place(Scope.USER, {"": _CLAUDE_STATE}, ("mcpServers",), live=True, lock=".lock"),
            Place(Scope.LOCAL, {"": _CLAUDE_STATE}, ("projects", "<project>", "mcpServers"), live=True, lock=".lock"),
            _project("@project/.mcp.json"),
        ),
        Confidence.VERIFIED,
        skills=("$CLAUDE_CONFIG_DIR/skills", "~/.claude/skills", "@project/.claude/skills"),
        notes="The user's file is also its state, rewritten while it runs, under a lock that Roster takes as well.",
    ),
    Client(
        "claude-desktop",
        "Claude Desktop",
        Dialect.PLAIN,
        (
            _user(
                "@app/Claude/claude_desktop_config.json",
                linux=("@app/Claude/claude_desktop_config.json", "@app/claude/claude_desktop_config.json"),
            ),
        ),
        Confidence.REPORTED,
        gui=True,
        withholds=True,
        notes="Knows no variables in values and hands its servers only a few of its own.",
    ),
    Client(
        "cursor",
        "Cursor",
        Dialect.PLAIN,
        (_user("~/.cursor/mcp.json"), _project("@project/.cursor/mcp.json")),
        Confidence.DOCUMENTED,
        gui=True,
        skills=("~/.cursor/skills", "@project/.cursor/skills"),
    ),
    Client(
        "vscode",
        "VS Code",
        Dialect.VSCODE,
        (
            _user("@app/Code/User/mcp.json", keys=("servers",)),
            _project("@project/.vscode/mcp.json", keys=("servers",)),
        ),
        Confidence.DOCUMENTED,
        gui=True,
        skills=("~/.copilot/skills", "@project/.github/skills"),
        notes="A server with ${input:…} stays where it is: only VS Code can ask for the value.",
    ),
    Client(
        "vscode-insiders",
        "VS Code Insiders",
        Dialect.VSCODE,
        (_user("@app/Code - Insiders/User/mcp.json", keys=("servers",)),),
        Confidence.DOCUMENTED,
        gui=True,
    ),
    Client(
        "codex",
        "Codex",
        Dialect.CODEX,
        (
            Place(
                Scope.USER, {"": ("$CODEX_HOME/config.toml", "~/.codex/config.toml")}, _CODEX, Format.TOML, live=True
            ),
            Place(Scope.PROJECT, {"": ("@project/.codex/config.toml",)}, _CODEX, Format.TOML),
        ),
        Confidence.VERIFIED,
        skills=("~/.agents/skills", "~/.codex/skills", "@project/.agents/skills"),
        notes="Hands its servers only the variables named in env_vars: those that routed servers refer to are named.",
    ),
    Client(
        "openclaw",
        "OpenClaw",
        Dialect.OPENCLAW,
        (
            _user(
                "$OPENCLAW_CONFIG_PATH",
                "$OPENCLAW_STATE_DIR/openclaw.json",
                "~/.openclaw/openclaw.json",
                keys=("mcp", "servers"),
                live=True,
            ),
        ),
        Confidence.DOCUMENTED,
        skills=("~/.openclaw/skills",),
        notes="JSON5. A URL without a transport means SSE there. Its strict schema has no other place for servers.",
    ),
    Client(
        "windsurf",
        "Windsurf",
        Dialect.PLAIN,
        (_user("~/.codeium/windsurf/mcp_config.json"),),
        Confidence.REPORTED,
        gui=True,
        skills=("~/.codeium/windsurf/skills", "@project/.windsurf/skills"),
    ),
    Client(
        "zed",
        "Zed",
        Dialect.ZED,
        (
            _user("@xdg/zed/settings.json", keys=("context_servers",), live=True, win32=("@app/Zed/settings.json",)),
            _project("@project/.zed/settings.json", keys=("context_servers",)),
        ),
        Confidence.REPORTED,
        gui=True,
        notes="Servers that come with an extension stay where they are.",
    ),
    Client(
        "gemini",
        "Gemini CLI",
        Dialect.GEMINI,
        (_user("~/.gemini/settings.json", live=True), _project("@project/.gemini/settings.json")),
        Confidence.VERIFIED,
        skills=("~/.gemini/skills", "@project/.gemini/skills"),
        notes="Keeps variables that look like keys from its servers unless they are named: those needed are named.",
    ),
    Client(
        "cline",
        "Cline",
        Dialect.PLAIN,
        (
            _user("$CLINE_MCP_SETTINGS_PATH", "~/.cline/data/settings/cline_mcp_settings.json"),
            _user("@app/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
            _user("@app/Cursor/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
        ),
        Confidence.REPORTED,
        gui=True,
    ),
    Client(
        "continue",
        "Continue",
        Dialect.CONTINUE,
        (
            Place(Scope.USER, {"": ("~/.continue/config.yaml",)}, ("mcpServers", LIST), Format.YAML, live=True),
            Place(Scope.PROJECT, {"": ("@project/.continue/mcpServers/*.yaml",)}, ("mcpServers", LIST), Format.YAML),
            _project("@project/.continue/mcpServers/*.json"),
        ),
        Confidence.REPORTED,
        gui=True,
        notes="A server with ${{ secrets.… }} stays where it is: only Continue can look the value up.",
    ),
    Client(
        "goose",
        "Goose",
        Dialect.GOOSE,
        (
            Place(
                Scope.USER,
                {"": ("@xdg/goose/config.yaml",), "win32": ("@app/Block/goose/config/config.yaml",)},
                ("extensions",),
                Format.YAML,
                live=True,
            ),
        ),
        Confidence.REPORTED,
        notes="Built-in and platform extensions stay where they are.",
    ),
    Client(
        "opencode",
        "OpenCode",
        Dialect.OPENCODE,
        (
            _user("@xdg/opencode/opencode.jsonc", "@xdg/opencode/opencode.json", keys=("mcp",), live=True),
            _project("@project/opencode.jsonc", "@project/opencode.json", keys=("mcp",)),
        ),
        Confidence.VERIFIED,
    ),
    Client(
        "lmstudio",
        "LM Studio",
        Dialect.PLAIN,
        (_user("~/.lmstudio/mcp.json", "~/.cache/lm-studio/mcp.json"),),
        Confidence.REPORTED,
        gui=True,
    ),
    Client(
        "copilot",
        "GitHub Copilot CLI",
        Dialect.COPILOT,
        (_user("$COPILOT_HOME/mcp-config.json", "~/.copilot/mcp-config.json"),),
        Confidence.VERIFIED,
        skills=("~/.copilot/skills",),
        notes="Also reads the project's .mcp.json, which is Claude Code's row.",
    ),
)


def chosen(ids: Sequence[str]) -> tuple[Client, ...]:
    """The clients of these ids, in the table's order; all for none. Raises ConfigError naming the nearest id."""
    known = {client.id: client for client in CLIENTS}
    for id_ in ids:
        if id_ not in known:
            close = difflib.get_close_matches(id_, list(known), n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
            raise ConfigError(f"no client has the id {id_!r}: {hint}")
    return tuple(client for client in CLIENTS if not ids or client.id in ids)
