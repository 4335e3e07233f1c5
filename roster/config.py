"""`roster.json` and where Roster keeps its files.

The file is hand-written, so one bad entry never costs the others: a server that cannot be used is kept with the
reason, an unknown key is reported with the nearest known one, and only a file that cannot be parsed stops everything.
`${VAR}` references stay references here; they are resolved when a server is started, never before.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roster import jsonc
from roster.declared import Declared, declarations
from roster.errors import ConfigError, VariableError

__all__ = [
    "Config",
    "Home",
    "HttpSettings",
    "Level",
    "Mode",
    "Problem",
    "ServerSpec",
    "Settings",
    "Transport",
    "child_environment",
    "expand",
    "find_home",
    "load_config",
    "open_home",
    "read_config",
]


class Mode(StrEnum):
    """What a client of Roster sees: every backend tool, or `draft` and `call`."""

    TRANSPARENT = "transparent"
    FIVE = "five"


class Transport(StrEnum):
    """How a backend is reached."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"


_TRANSPORT_NAMES = {
    "stdio": Transport.STDIO,
    "local": Transport.STDIO,
    "http": Transport.HTTP,
    "streamable-http": Transport.HTTP,
    "streamablehttp": Transport.HTTP,
    "streamable_http": Transport.HTTP,
    "remote": Transport.HTTP,
    "sse": Transport.SSE,
}
_URL_KEYS = ("url", "httpUrl", "serverUrl", "uri")
_TRANSPORT_KEYS = ("type", "transport", "transportType")
_OURS = ("start_timeout_s", "call_timeout_s", "max_concurrency")
# Keys other programs keep in the same block. They mean nothing here and are nobody's mistake.
_THEIRS = frozenset(
    "alwaysAllow autoApprove description disabledTools disabled_tools enabledTools enabled_tools envFile env_vars "
    "available_tools dev excludeTools gallery includeTools name oauth requestOptions sandbox scopes settings source "
    "startup_timeout_sec timeout tool_timeout_sec toolFilter tools tools_filter trust version".split()
)

Seconds = Annotated[float, Field(gt=0, le=86_400)]
Level = Literal["off", "ratings", "full"]
"""What is recorded of calls: nothing, how they ended, or also the vectors of the needs they served.

A lower level leaves what is there until it is cleared."""


class ServerSpec(BaseModel):
    """One entry of `mcpServers`: a command to start, or a URL to reach.

    start_timeout_s: for its handshake and first list. call_timeout_s: for how long a call may stay silent, and before
    that wait for its turn. max_concurrency: how many calls may be under way at it, the rest wait in order; None for as
    many as come. What is no call (resources, prompts, lists) is not counted.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    transport: Transport
    guessed: bool = False
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = Field(default_factory=dict)
    disabled: bool = False
    start_timeout_s: Seconds = 30.0
    call_timeout_s: Seconds = 300.0
    max_concurrency: int | None = Field(default=None, ge=1, le=1_000)
    failures: tuple[Declared, ...] = ()

    def missing(self, environ: Mapping[str, str]) -> str | None:
        """Why this server cannot be started in this environment: the first reference without a value."""
        try:
            for value in (self.command, *self.args, *self.env.values(), self.cwd or "", self.url):
                expand(value, environ)
            for value in self.headers.values():
                expand(value, environ)
        except VariableError as error:
            return str(error)
        return None


class HttpSettings(BaseModel):
    """The `http` block: who may come in over `roster serve --http`, and how much each of them may take.

    hosts: names besides the machine's own addresses that a request may be made to. origins: web pages that may make
    one. require_token: also on this machine alone. stop_grace_s: what calls in flight are given at the end.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    require_token: bool = False
    hosts: tuple[Annotated[str, Field(pattern=r"^[^\s/:\[\]]+$")], ...] = ()
    origins: tuple[Annotated[str, Field(pattern=r"^https?://[^\s/]+$")], ...] = ()
    max_body_bytes: int = Field(default=4 * 1024 * 1024, ge=1024, le=1024**3)
    max_sessions: int = Field(default=100, ge=1, le=10_000)
    session_idle_s: Seconds = 1800.0
    stop_grace_s: float = Field(default=5.0, ge=0, le=300)


class Settings(BaseModel):
    """The top level of `roster.json`, servers aside.

    skills: folders with skills in them, looked into before those of the user's clients and of the project at hand,
    which `standard_skills` switches off.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Mode = Mode.TRANSPARENT
    model: str | None = Field(default=None, min_length=1)
    threads: int = Field(default=1, ge=1, le=64)
    quarantine: Literal["off", "draft", "call"] = "draft"
    learning: Level = "full"
    skills: tuple[str, ...] = ()
    standard_skills: bool = True
    history_days: float = Field(default=365, gt=0, le=36_500)
    history_outcomes: int = Field(default=100_000, ge=1, le=10_000_000)
    history_needs: int = Field(default=20_000, ge=1, le=1_000_000)
    http: HttpSettings = HttpSettings()


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the config that a person should mend. `server` is empty for the file as a whole."""

    message: str
    server: str = ""

    def __str__(self) -> str:
        return f"{self.server}: {self.message}" if self.server else self.message


@dataclass(frozen=True, slots=True)
class Config:
    """What `roster.json` says, in file order, with everything in it that could not be used."""

    settings: Settings
    servers: dict[str, ServerSpec]
    problems: list[Problem] = field(default_factory=list)
    path: Path | None = None

    def with_model(self, model: str) -> Config:
        """The same config with another encoder."""
        return replace(self, settings=self.settings.model_copy(update={"model": model}))

    def problems_of(self, server: str) -> list[str]:
        """What is wrong with one server's entry."""
        return [problem.message for problem in self.problems if problem.server == server]

    def problems_below(self, key: str) -> list[str]:
        """What is wrong with one block of the top level, such as `http`."""
        at = tuple(f"{key}{end}" for end in (".", ":"))
        return [problem.message for problem in self.problems if not problem.server and problem.message.startswith(at)]


# ----------------------------------------------------------------------------------------------- home


@dataclass(frozen=True, slots=True)
class Home:
    """The folder everything lives in, and the files inside it."""

    folder: Path

    @property
    def config(self) -> Path:
        """The hand-written config."""
        return self.folder / "roster.json"

    @property
    def database(self) -> Path:
        """The truth: cards, vectors, outcomes."""
        return self.folder / "roster.db"

    @property
    def index(self) -> Path:
        """A cache of the database: FAISS file and manifest."""
        return self.folder / "index"

    @property
    def logs(self) -> Path:
        """What backends write on stderr."""
        return self.folder / "logs"


def find_home(environ: Mapping[str, str] | None = None) -> Home:
    """`ROSTER_HOME`, or `~/.roster`."""
    named = (os.environ if environ is None else environ).get("ROSTER_HOME", "")
    return Home(Path(named).expanduser() if named else Path.home() / ".roster")


def open_home(home: Home) -> Home:
    """`home` with its folder there, for its owner only. Raises ConfigError when it cannot be made."""
    try:
        home.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.name == "posix" and home.folder.stat().st_mode & 0o077:
            home.folder.chmod(0o700)
    except OSError as error:
        raise ConfigError(
            f"{home.folder} cannot be used as Roster's home ({error.strerror}): set ROSTER_HOME"
        ) from None
    return home


# -------------------------------------------------------------------------------------------- reading


def _nearest(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _reason(error: ValidationError) -> str:
    """A pydantic error in one line, with the key it is about but never the value, which may be a secret."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] in ("tuple_type", "list_type"):
        return f"{where}: must be an array of strings"
    return f"{where}: {first['msg']}" if where else str(first["msg"])


def _transport(entry: Mapping[str, Any]) -> Transport:
    named = next((entry[key] for key in _TRANSPORT_KEYS if entry.get(key) is not None), None)
    if named is not None:
        transport = _TRANSPORT_NAMES.get(str(named).lower())
        if transport is None:
            raise ConfigError(f"type {named!r} is not known: use stdio, http or sse")
        return transport
    return Transport.STDIO if entry.get("command") else Transport.HTTP


def _server(entry: Any) -> tuple[ServerSpec, list[str]]:
    """The spec of one `mcpServers` entry, and what in it means nothing here. Raises ConfigError."""
    if not isinstance(entry, Mapping):
        raise ConfigError('expected an object such as {"command": "npx", "args": ["-y", "some-server"]}')
    url = next((entry[key] for key in _URL_KEYS if entry.get(key)), "")
    transport = _transport(entry)
    if transport is Transport.STDIO and not entry.get("command"):
        raise ConfigError('"command" is missing: name the program to start')
    if transport is not Transport.STDIO and not url:
        near = next((hint for key in entry if (hint := _nearest(key, ["command", *_URL_KEYS]))), "")
        raise ConfigError(
            f'neither "command" nor "url" is there{near}: name the program to start or the address to reach'
        )
    disabled = entry.get("disabled") is True or entry.get("enabled") is False
    fields = {
        key: entry[key] for key in ("command", "args", "env", "cwd", "headers", *_OURS) if entry.get(key) is not None
    }
    if isinstance(fields.get("env"), Mapping):
        # Numbers and booleans are what people write for a port or a flag; a child can only be given text.
        fields["env"] = {k: _as_text(v) for k, v in fields["env"].items()}
    try:
        guessed = not any(entry.get(key) is not None for key in _TRANSPORT_KEYS)
        failures, undeclarable = declarations(entry.get("failures"))
        spec = ServerSpec(transport=transport, guessed=guessed, url=url, disabled=disabled, failures=failures, **fields)
    except ValidationError as error:
        raise ConfigError(_reason(error)) from None
    known = ["command", "args", "env", "cwd", "headers", "disabled", "enabled", "failures"]
    known += [*_OURS, *_URL_KEYS, *_TRANSPORT_KEYS]
    strange = [key for key in entry if key not in known and key not in _THEIRS]
    both = ['both "command" and "url" are there: "command" is used'] if entry.get("command") and url else []
    ignored = [f"the key {key!r} is not known and was ignored{_nearest(key, known)}" for key in strange]
    return spec, [*both, *ignored, *undeclarable]


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _settings(data: dict[str, Any]) -> tuple[Settings, list[Problem]]:
    """Settings from the top level; a bad or unknown value falls back to the default and is reported."""
    known = list(Settings.model_fields)
    values, problems = dict(data), []
    for key in list(values):
        if key not in known:
            problems.append(
                Problem(f"the key {key!r} is not known and was ignored{_nearest(key, [*known, 'mcpServers'])}")
            )
            del values[key]
    while True:
        try:
            return Settings.model_validate(values), problems
        except ValidationError as error:
            key = str(error.errors()[0]["loc"][0])
            problems.append(Problem(f"{_reason(error)}; using the default"))
            del values[key]


def read_config(text: str, path: Path | None = None) -> Config:
    """The config `text` holds. Raises ConfigError when it is not an object or cannot be parsed."""
    data = jsonc.loads(text)
    if not isinstance(data, dict):
        raise ConfigError('expected an object such as {"mcpServers": {...}}')
    data.pop("$schema", None)
    entries = data.pop("mcpServers", {})
    settings, problems = _settings(data)
    servers: dict[str, ServerSpec] = {}
    if not isinstance(entries, dict):
        problems.append(Problem('"mcpServers" must be an object from name to server; no server was read'))
        entries = {}
    for name, entry in entries.items():
        try:
            servers[name], strange = _server(entry)
        except ConfigError as error:
            problems.append(Problem(str(error), server=name))
        else:
            problems += [Problem(message, server=name) for message in strange]
    return Config(settings, servers, problems, path)


def load_config(home: Home) -> Config:
    """`roster.json` of this home. Raises ConfigError naming the file and the remedy."""
    path = home.config
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{path} is not there: `roster init` makes it from the servers of your MCP clients, "
            'or write {"mcpServers": {...}} into it yourself'
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}): it must be a readable UTF-8 file") from None
    try:
        return read_config(text, path)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


# ---------------------------------------------------------------------------------------- environment

_REFERENCE = re.compile(
    r"\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}"
    r"|\$\{(?P<foreign>[A-Za-z]+:[^}]*)\}"
    r"|\$(?P<bare>[A-Za-z_][A-Za-z0-9_]*)"
)

# What a child may know of our environment besides what the SDK already passes on (PATH, HOME, ...): the way out
# through a proxy, the certificates, the locale, where temporary files and caches go. Never the rest, which holds keys.
_PASSED_ON = frozenset(
    "ALL_PROXY HTTPS_PROXY HTTP_PROXY NO_PROXY CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE SSL_CERT_DIR "
    "SSL_CERT_FILE LANG LANGUAGE LC_ALL LC_CTYPE TZ TMPDIR TEMP TMP XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME "
    "XDG_RUNTIME_DIR NPM_CONFIG_CACHE UV_CACHE_DIR PIP_CACHE_DIR".split()
)


def expand(text: str, environ: Mapping[str, str]) -> str:
    """`text` with `${VAR}`, `${env:VAR}`, `${VAR:-default}` and `$VAR` replaced.

    A bare `$VAR` without a value stays as written (it may be part of a password or a pattern).
    Raises VariableError naming a braced variable that has neither value nor default.
    """

    def value(match: re.Match[str]) -> str:
        if foreign := match["foreign"]:
            # Only what is before the colon: behind it may stand a default that somebody meant to write.
            kind = foreign.partition(":")[0]
            raise VariableError(
                f"${{{kind}:…}} is not a reference Roster can resolve: use ${{VAR}}, or ${{VAR:-default}} with a dash"
            )
        if bare := match["bare"]:
            return environ.get(bare, match.group())
        name, default = match["name"], match["default"]
        found = environ.get(name)
        if default is not None:
            return found or default
        if found is None:
            raise VariableError(f"the variable {name} is not set: set it where Roster starts, or write ${{{name}:-…}}")
        return found

    return _REFERENCE.sub(value, text)


def child_environment(spec: ServerSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """What a stdio backend is given on top of the SDK's own defaults. Raises VariableError."""
    passed = {key: value for key, value in environ.items() if key.upper() in _PASSED_ON}
    return passed | {key: expand(value, environ) for key, value in spec.env.items()}
