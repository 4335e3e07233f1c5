"""How a backend is reached: a child process, streamable HTTP or SSE, each as a pair of streams; and why it is not."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread
from mcp.client.stdio import StdioServerParameters, get_default_environment, stdio_client
from mcp.shared.exceptions import MCPError

from roster.backends.child import child_streams
from roster.backends.pace import PacedStream
from roster.config import ServerSpec, Transport, child_environment, expand
from roster.errors import ConfigError, VariableError

__all__ = [
    "CONNECTION_CLOSED",
    "ErrorKind",
    "HttpRefusal",
    "cut_logs",
    "error_kind",
    "first_leaf",
    "http_refusal",
    "log_file",
    "open_transport",
    "remedy",
]

log = logging.getLogger(__name__)

STDERR_LIMIT_BYTES = 1_000_000
CONNECTION_CLOSED = -32000
MAX_REDIRECTS = 2
"""From `/mcp` to `/mcp/`, and to another name once; more is a loop, in which a call would be sent over and over."""
GOODBYE_S = 1.0
"""So long a remote server may take to end a session."""
MAX_EVENT_BYTES = 128 * 1024 * 1024
"""The largest answer that a remote server may give as an event; the SDK's own limit is what one photograph takes."""


class ErrorKind(StrEnum):
    """Why a backend has no connection, in one word that is safe to store and show."""

    COMMAND_NOT_FOUND = "command_not_found"
    NOT_PERMITTED = "not_permitted"
    EXITED = "exited"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    REJECTED = "rejected"
    PROTOCOL = "protocol"
    LOST = "lost"
    CONFIG = "config"


@dataclass(slots=True)
class HttpRefusal:
    """The HTTP answer that a request was refused with, as far as it says why; the SDK hands on neither of these."""

    status: int | None = None
    retry_after: str | None = None


_refusal: ContextVar[HttpRefusal | None] = ContextVar("roster_http_refusal", default=None)


@contextmanager
def http_refusal() -> Iterator[HttpRefusal]:
    """What the one request that is sent inside of this is refused with, if it is.

    The SDK posts a message in the context of whoever sent it, so that each call hears of its own.
    """
    refusal = HttpRefusal()
    token = _refusal.set(refusal)
    try:
        yield refusal
    finally:
        _refusal.reset(token)


async def _note_refusal(response: Any) -> None:
    refusal = _refusal.get()
    if refusal is not None and response.status_code >= 400 and response.request.method == "POST":
        refusal.status, refusal.retry_after = response.status_code, response.headers.get("retry-after")


def log_file(folder: Path, name: str) -> Path:
    """Where a server's stderr goes."""
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:80]
    if safe != name:
        safe = f"{safe}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    return folder / f"{safe}.log"


def _open_log(path: Path) -> int:
    """A descriptor that appends to a log file; to nowhere when that cannot be: a server needs no log to run."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        log.warning("%s cannot be written (%s); what the server says on stderr is lost", path, error.strerror)
        return os.open(os.devnull, os.O_WRONLY)


def cut_logs(folder: Path) -> None:
    """Empty the log files that have outgrown their limit. Their writers append, so they go on at the new end."""
    try:
        files = list(folder.glob("*.log"))
    except OSError:
        return
    for path in files:
        try:
            if path.stat().st_size > STDERR_LIMIT_BYTES:
                os.truncate(path, 0)
        except OSError:
            continue


@asynccontextmanager
async def _stdio(spec: ServerSpec, environ: Mapping[str, str], stderr: Path) -> AsyncIterator[Any]:
    """A child process as a pair of streams. What it writes on stderr goes to its log file."""
    env = child_environment(spec, environ)
    cwd = expand(spec.cwd, environ) if spec.cwd else None
    if cwd and not Path(cwd).expanduser().is_dir():
        raise ConfigError(f"cwd {spec.cwd!r} is not a folder")
    where = str(Path(cwd).expanduser()) if cwd else None
    command, args = expand(spec.command, environ), [expand(arg, environ) for arg in spec.args]
    if spec.command.startswith("~"):
        command = str(Path(command).expanduser())
    cut_logs(stderr.parent)
    with open(_open_log(stderr), "w", encoding="utf-8", errors="replace") as errlog:
        if sys.platform == "win32":
            parameters = StdioServerParameters(
                command=command, args=args, env=env, cwd=where, encoding_error_handler="replace"
            )
            async with stdio_client(parameters, errlog=errlog) as streams:
                yield streams
            return
        streams = child_streams([command, *args], get_default_environment() | env, where, errlog)
        async with streams as (read, write):
            yield PacedStream(read), write


@cache
def _trusted() -> ssl.SSLContext:
    """Whose certificates are believed, read once: it takes as long as thirty calls, and every new connection asks."""
    import httpx2

    return httpx2.create_ssl_context()


class _Session:
    """The session that a remote server has opened, as its answers say: to be ended, or it is kept for hours.

    The SDK would do so as well, but not in a task that is cancelled, and for half a minute where nobody answers.
    """

    def __init__(self) -> None:
        self._url: Any = None
        self._headers: dict[str, str] = {}

    async def note(self, response: Any) -> None:
        """Read an answer: where the session was opened, and whether it is still known there."""
        request, opened = response.request, response.headers.get("mcp-session-id")
        sent = request.headers
        if response.status_code == 404 and request.method == "POST" and "mcp-session-id" in sent:
            self._url = None
        elif opened is not None:
            self._url, self._headers["mcp-session-id"] = request.url, opened
        if (version := sent.get("mcp-protocol-version")) is not None:
            self._headers["mcp-protocol-version"] = version

    async def end(self, client: Any) -> None:
        """Tell the server; one that does not answer is not waited for, and its answer is nobody's concern."""
        if self._url is not None:
            with anyio.move_on_after(GOODBYE_S, shield=True):
                try:
                    # Not after a redirect: credentials are for the server that opened it.
                    await client.delete(self._url, headers=self._headers, follow_redirects=False)
                except Exception as error:  # noqa: BLE001 - the end of the connection, whatever it meets
                    log.debug("a session could not be ended: %s", type(error).__name__)


@asynccontextmanager
async def _remote(spec: ServerSpec, environ: Mapping[str, str], transport: Transport) -> AsyncIterator[Any]:
    """A remote server as a pair of streams, over streamable HTTP or SSE."""
    import httpx2

    url = expand(spec.url, environ)
    headers = {name: expand(value, environ) for name, value in spec.headers.items()}
    if transport is Transport.SSE:
        from roster.backends.sse import sse_streams

        async with sse_streams(url, headers, max(300.0, spec.call_timeout_s)) as streams:
            yield streams
        return
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx2.Timeout(30, read=max(300.0, spec.call_timeout_s))
    session = _Session()
    hooks = {"response": [_note_refusal, session.note]}
    trusted = await to_thread.run_sync(_trusted)
    async with httpx2.AsyncClient(
        headers=headers,
        timeout=timeout,
        follow_redirects=True,
        max_redirects=MAX_REDIRECTS,
        event_hooks=hooks,
        verify=trusted,
    ) as client:
        opened = streamable_http_client(
            url, http_client=client, terminate_on_close=False, max_sse_event_size=MAX_EVENT_BYTES
        )
        try:
            async with opened as streams:
                yield streams[:2]
        finally:
            await session.end(client)


def first_leaf(error: BaseException) -> BaseException:
    """The first plain exception inside nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def error_kind(error: BaseException, *, ready: bool) -> ErrorKind:
    """One safe word for why a connection could not be made, or was lost after it was `ready`."""
    match first_leaf(error):
        case VariableError() | ConfigError():
            return ErrorKind.CONFIG
        case FileNotFoundError() | NotADirectoryError():
            return ErrorKind.COMMAND_NOT_FOUND
        case PermissionError():
            return ErrorKind.NOT_PERMITTED
        case TimeoutError():
            return ErrorKind.TIMEOUT
        case MCPError() as answered if answered.code == CONNECTION_CLOSED:
            return ErrorKind.LOST if ready else ErrorKind.EXITED
        case MCPError():
            return ErrorKind.REJECTED
        case OSError():
            return ErrorKind.UNREACHABLE
        case leaf if type(leaf).__name__ == "HTTPStatusError":
            return ErrorKind.REJECTED
        case leaf if type(leaf).__module__.split(".")[0] in ("httpx2", "httpcore2"):
            return ErrorKind.TIMEOUT if "Timeout" in type(leaf).__name__ else ErrorKind.UNREACHABLE
        case _:
            return ErrorKind.PROTOCOL


def _unreachable(error: BaseException) -> str:
    """What to do about a server that no connection can be made to; each library wraps the other's reason."""
    cause: BaseException | None = error
    while cause is not None:
        match cause:
            case ssl.SSLCertVerificationError():
                return "its certificate is not trusted here: name its authority's file in SSL_CERT_FILE"
            case ssl.SSLError():
                return "no secure connection can be made: check whether the URL should begin with http://"
            case socket.gaierror():
                return "its host name is not known: check the URL and the network"
        cause = cause.__cause__ or cause.__context__
    return "its address cannot be reached: check the URL and whether the server runs"


def open_transport(spec: ServerSpec, transport: Transport, environ: Mapping[str, str], stderr: Path) -> Any:
    """A context manager that gives the (read, write) streams of one connection. References are resolved here."""
    if transport is Transport.STDIO:
        return _stdio(spec, environ, stderr)
    return _remote(spec, environ, transport)


def remedy(kind: ErrorKind, leaf: BaseException, spec: ServerSpec, environ: Mapping[str, str], log_file: Path) -> str:
    """What a person should do about it. Never the error's own words, which may quote a secret."""
    match kind:
        case ErrorKind.CONFIG:
            return str(leaf)  # our own words, naming variables but never values
        case ErrorKind.COMMAND_NOT_FOUND:
            path = environ.get("PATH", "")
            found = shutil.which(spec.command, path=path)
            where = f"in the {len(path.split(os.pathsep))} folders of PATH" if os.sep not in spec.command else "there"
            return (
                f"the command {spec.command!r} was not found {where}: install it or name its full path"
                if found is None
                else f"{spec.command!r} is there but what it needs is not: run it by hand"
            )
        case ErrorKind.NOT_PERMITTED:
            return f"{spec.command!r} may not be run: check that it is executable"
        case ErrorKind.EXITED:
            return f"it ended before it answered: see {log_file}"
        case ErrorKind.TIMEOUT:
            return f"no answer within {spec.start_timeout_s:g} s: raise start_timeout_s if it is just slow"
        case ErrorKind.UNREACHABLE:
            return _unreachable(leaf)
        case ErrorKind.REJECTED if spec.transport is Transport.STDIO:
            return f"it answered with an error, or with a message nobody can read: see {log_file}"
        case ErrorKind.REJECTED:
            return "it refused the connection: check the URL, the transport type and the credentials"
        case ErrorKind.PROTOCOL:
            return f"it does not speak MCP as expected ({type(leaf).__name__})"
        case ErrorKind.LOST:
            return "the connection was lost; it is being made again"
