"""A client in the raw, in both protocol eras, so that nothing is lost before it is compared.

In the newer era every request carries the client's version and abilities, and a question comes as an answer; `Side`
hides that difference, so that one feature can be looked at over either.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import encode_header_value, mcp_param_headers, x_mcp_header_map
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

OLDER, NEWER = "2025-11-25", "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
INFO = {"name": "fidelity", "version": "0"}
ABILITIES = {
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "sampled"},
        "model": "none",
        "stopReason": "endTurn",
    },
    "elicitation/create": {"action": "accept", "content": {"name": "Ada", "check": True}},
    "roots/list": {"roots": [{"uri": "file:///somewhere", "name": "somewhere"}]},
}
LIMIT_S = 60.0


@dataclass(eq=False)
class Side:
    """One way to a server: straight, or through Roster in a mode and an era."""

    dispatcher: Any
    server: str = ""
    five: bool = False
    newer: bool = False
    greeting: dict[str, Any] = field(default_factory=dict)
    told: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)
    _headers: dict[str, Any] = field(default_factory=dict)

    @property
    def through(self) -> bool:
        """Whether Roster is in between."""
        return bool(self.server)

    # ----------------------------------------------------------------------------------------------- names

    def own(self, public: str, name: str) -> str:
        """Remember that `public` is how this side calls `name`; gives `name`."""
        self._names[name] = public
        return name

    def public(self, name: str) -> str:
        """How this side calls a tool or prompt of the server."""
        return self._names.get(name, f"{self.server}__{name}" if self.through else name)

    # --------------------------------------------------------------------------------------------- messages

    async def request(
        self,
        method: str,
        meta: Mapping[str, Any] | None = None,
        says: Mapping[str, str] | None = None,
        **params: Any,
    ) -> dict[str, Any]:
        """The raw result; questions in it are answered. says: for the headers of arguments, instead of what is so.

        Raises MCPError.
        """
        with anyio.fail_after(LIMIT_S):
            while True:
                sent = self._params(meta, params)
                result = dict(await self.dispatcher.send_raw_request(method, sent, self._options(method, params, says)))
                if method == "tools/list":
                    self._headers |= {row["name"]: x_mcp_header_map(row.get("inputSchema")) for row in result["tools"]}
                if result.get("resultType") != "input_required":
                    return _without_envelope(result) if self.newer else result
                answers = {}
                for key, question in (result.get("inputRequests") or {}).items():
                    answers[key] = self._answer(question["method"], question.get("params") or {})
                params = {**params, "inputResponses": answers, "requestState": result.get("requestState")}

    def _params(self, meta: Mapping[str, Any] | None, params: Mapping[str, Any]) -> dict[str, Any]:
        sent = {**(meta or {}), **(self.envelope() if self.newer else {})}
        return {**params, **({"_meta": sent} if sent else {})}

    def _options(self, method: str, params: Mapping[str, Any], says: Mapping[str, str] | None) -> Any:
        """In the newer era, what a request says in HTTP headers; over a pipe there are none."""
        if not self.newer:
            return None
        headers = {"mcp-protocol-version": NEWER, "mcp-method": method}
        name = params.get("uri" if method == "resources/read" else "name")
        if isinstance(name, str):
            headers["mcp-name"] = encode_header_value(name)
            headers |= mcp_param_headers(self._headers.get(name, {}), params.get("arguments") or {})
        if says is not None:
            headers = {key: value for key, value in headers.items() if not key.startswith("Mcp-Param-")}
            headers |= {f"Mcp-Param-{key}": value for key, value in says.items()}
        return {"headers": headers}

    @staticmethod
    def envelope() -> dict[str, Any]:
        """What every request of the newer era says of the client."""
        return {
            f"{PREFIX}protocolVersion": NEWER,
            f"{PREFIX}clientInfo": INFO,
            f"{PREFIX}clientCapabilities": ABILITIES,
            f"{PREFIX}logLevel": "debug",
        }

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """A tool's raw result, or its protocol error as {"error": ...}."""
        params: dict[str, Any] = {"name": self.public(name), "arguments": dict(arguments or {})}
        if self.five:
            params = {"name": "call", "arguments": {"tool": self.public(name), "args": dict(arguments or {})}}
        return await self.attempt("tools/call", **params, **more)

    async def drafted(self, need: str) -> list[str]:
        """The ids that a draft shows, once there is something to draft from."""
        with anyio.fail_after(LIMIT_S):
            while True:
                result = await self.attempt("tools/call", name="draft", arguments={"need": need, "k": 10})
                if starters := (result.get("structuredContent") or {}).get("starters"):
                    return [starter["id"] for starter in starters]
                await anyio.sleep(0.1)

    async def attempt(self, method: str, **params: Any) -> dict[str, Any]:
        """A raw result, or the protocol error as {"error": ...}."""
        try:
            return await self.request(method, **params)
        except MCPError as error:
            found = {"code": error.code, "message": error.message, "data": error.data}
            return {"error": {key: value for key, value in found.items() if value is not None}}

    async def hears(self, method: str, count: int = 1, within_s: float = 10.0) -> list[dict[str, Any]]:
        """The params of the first notifications of a kind; fewer when no more came in time."""
        with anyio.move_on_after(within_s):
            while len(self.heard(method)) < count:
                await anyio.sleep(0.02)
        return self.heard(method)[:count]

    def heard(self, method: str) -> list[dict[str, Any]]:
        """The params of every notification of a kind so far."""
        return [params for kind, params in self.told if kind == method]

    def _answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append((method, {key: value for key, value in params.items() if key != "_meta"}))
        return ANSWERS[method]

    @asynccontextmanager
    async def listening(self, **notifications: Any) -> AsyncIterator[None]:
        """In the newer era changes are only told on a stream that the client has opened; in the older one, anyway."""
        if not self.newer:
            yield
            return
        async with anyio.create_task_group() as group:
            params = self._params({}, {"notifications": notifications})
            options = self._options("subscriptions/listen", {}, None)
            group.start_soon(self.dispatcher.send_raw_request, "subscriptions/listen", params, options)
            await self.hears("notifications/subscriptions/acknowledged")
            yield
            group.cancel_scope.cancel()

    async def on_request(self, _: Any, method: str, params: Any) -> dict[str, Any]:
        """Answers what the server asks."""
        return self._answer(method, params or {}) if method in ANSWERS else {}

    async def on_notify(self, _: Any, method: str, params: Any) -> None:
        """Notes down what the server announces."""
        self.told.append((method, dict(params or {})))


def _without_envelope(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what the newer era adds to every one."""
    kept = {key: value for key, value in result.items() if key not in ("resultType", "ttlMs", "cacheScope")}
    meta = {key: value for key, value in (kept.pop("_meta", None) or {}).items() if key != f"{PREFIX}serverInfo"}
    return {**kept, **({"_meta": meta} if meta else {})}


@asynccontextmanager
async def connected(transport: Any, **kind: Any) -> AsyncIterator[Side]:
    """A side over a transport, after its handshake where there is one."""
    async with transport as streams, anyio.create_task_group() as group:
        dispatcher: Any = JSONRPCDispatcher(streams[0], streams[1])
        side = Side(dispatcher, **kind)
        await group.start(dispatcher.run, side.on_request, side.on_notify)
        if side.newer:
            side.greeting = await side.request("server/discover")
        else:
            side.greeting = await side.request(
                "initialize", protocolVersion=OLDER, capabilities=ABILITIES, clientInfo=INFO
            )
            await dispatcher.notify("notifications/initialized", None)
        yield side
        group.cancel_scope.cancel()


def straight(entry: Mapping[str, Any]) -> Any:
    """The transport to a server as `mcpServers` describes it."""
    if "url" in entry:
        return sse_client(entry["url"]) if entry.get("type") == "sse" else streamable_http_client(entry["url"])
    command, *arguments = entry["command"], *entry.get("args", [])
    return stdio_client(StdioServerParameters(command=command, args=arguments), errlog=_nowhere())


def roster(home: Path, server: str, entry: Mapping[str, Any], mode: str) -> Any:
    """The transport to a `roster serve` of its own in front of one server."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "roster.json").write_text(json.dumps({"mcpServers": {server: dict(entry)}}), "utf-8")
    environment = {**os.environ, "ROSTER_HOME": str(home)}
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "roster", "serve", f"--{mode}"], env=environment
    )
    return stdio_client(parameters, errlog=_nowhere())


@contextmanager
def roster_http(home: Path, server: str, entry: Mapping[str, Any], mode: str) -> Iterator[str]:
    """The URL of a `roster serve --http` of its own in front of one server."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "roster.json").write_text(json.dumps({"mcpServers": {server: dict(entry)}}), "utf-8")
    port = free_port()
    command = [sys.executable, "-m", "roster", "serve", f"--{mode}", "--http", f"127.0.0.1:{port}"]
    with listening(command, port, ROSTER_HOME=str(home)):
        yield f"http://127.0.0.1:{port}/mcp"


def _nowhere() -> Any:
    return open(os.devnull, "w")


def free_port() -> int:
    """A port of the loopback that nobody has now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def listening(command: list[str], port: int, **environment: str) -> Iterator[None]:
    """A server process that listens on a port."""
    environment = {**os.environ, "PORT": str(port), **environment}
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(500):
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        yield
    finally:
        child.terminate()
        child.wait(10)


_CLOCK = re.compile(r"\d{1,2}:\d{2}:\d{2}( [AP]M)?|\d{4}-\d{2}-\d{2}T[\d:.]+Z")
_TASK = re.compile(r"\b[0-9a-f]{32}\b|\b[0-9a-f-]{36}\b")


def timeless(value: Any) -> Any:
    """A value in which times of day and made-up ids are the same every time."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return json.loads(_TASK.sub("ID", _CLOCK.sub("TIME", text)))
