"""Servers for `eval/crowd.py` that are ill in one way each. The standard library alone: up in some 30 ms.

    python eval/sick.py KIND STATE

STATE is "ill", or "well" for a server that works: its tool has to be known before it can be called while it is ill.
On stdin and stdout, except for "http" and "forgets", which serve streamable HTTP on a port of the loopback that they
print.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

KINDS = {
    "dies_at_call": "ends at every call",
    "dies_idle": "ends a fifth of a second after it was greeted",
    "exits_at_once": "ends as soon as it is started",
    "hangs_at_initialize": "never answers the handshake",
    "hangs_at_call": "never answers a call",
    "floods": "writes what is no message without end",
    "answers_50_mb": "answers every call with 50 MB of text",
    "answers_twice": "answers every call twice, and calls that nobody made",
    "forgets": "over HTTP: forgets its session after every third call (404)",
}
BIG = 50_000_000
IDLE_LIFE_S = 0.2
CALLS_A_SESSION = 3
DEAF = "from now on nothing is heard here, the end of the input neither"
JUNK = b"2026-01-01 00:00:00 DEBUG heartbeat, nothing to report here\n" * 64


def answer_to(message: dict[str, Any], text: str = "done") -> dict[str, Any]:
    """What a healthy server with the one tool `work` answers."""
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "sick", "version": "0"}
            result: Any = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            result = {"tools": [{"name": "work", "description": "Do it", "inputSchema": {"type": "object"}}]}
        case _:
            result = {"content": [{"type": "text", "text": text}]}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


# ------------------------------------------------------------------------------------------------- over pipes


def say(message: dict[str, Any]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _flood() -> None:
    while True:
        try:
            os.write(1, JUNK)
        except OSError:
            return


def _greeted(kind: str) -> None:
    if kind == "dies_idle":
        threading.Timer(IDLE_LIFE_S, os._exit, (1,)).start()
    if kind == "floods":
        threading.Thread(target=_flood, daemon=True).start()


def _called(kind: str, message: dict[str, Any]) -> None:
    match kind:
        case "dies_at_call":
            os._exit(1)
        case "hangs_at_call":
            return
        case "deaf":
            print(DEAF, file=sys.stderr, flush=True)
            threading.Event().wait()
        case "answers_50_mb":
            say(answer_to(message, "x" * BIG))
        case "answers_twice":
            say(answer_to(message))
            say(answer_to({**message, "id": message["id"] + 1_000_000}))
            say(answer_to(message))
        case "floods":
            # One write, so that its answer is not torn apart by the flood.
            os.write(1, b"\n" + json.dumps(answer_to(message)).encode() + b"\n")
        case _:
            say(answer_to(message))


def over_pipes(kind: str) -> None:
    """Serve stdin and stdout until the end of the input."""
    if kind == "exits_at_once":
        sys.exit(1)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        if kind == "hangs_at_initialize":
            continue
        if message["method"] == "tools/call":
            _called(kind, message)
        else:
            say(answer_to(message))
            if message["method"] == "tools/list":
                _greeted(kind)
    os._exit(0)


# --------------------------------------------------------------------------------------------------- over HTTP


class Web(BaseHTTPRequestHandler):
    """Streamable HTTP with sessions, which are counted: `GET /counts`."""

    protocol_version = "HTTP/1.1"
    forgetful: ClassVar[bool] = False
    calls_in: ClassVar[dict[str, int]] = {}
    counts: ClassVar[dict[str, int]] = {"opened": 0, "deleted": 0, "forgotten": 0}

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _reply(self, status: int, body: Any = None, **headers: str) -> None:
        data = json.dumps(body).encode() if body is not None else b""
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        """The counts; no stream of news."""
        if self.path == "/counts":
            self._reply(200, {**self.counts, "open": len(self.calls_in)})
        else:
            self._reply(405)

    def do_DELETE(self) -> None:
        """End a session."""
        known = self.calls_in.pop(self.headers.get("mcp-session-id", ""), None) is not None
        self.counts["deleted"] += known
        self._reply(200 if known else 404)

    def do_POST(self) -> None:
        """Take one message."""
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        session = self.headers.get("mcp-session-id", "")
        if message.get("method") == "initialize":
            session = uuid.uuid4().hex
            self.calls_in[session] = 0
            self.counts["opened"] += 1
            self._reply(200, answer_to(message), **{"Mcp-Session-Id": session})
        elif session not in self.calls_in:
            self._reply(404, {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}})
        elif "id" not in message:
            self._reply(202)
        else:
            self._reply(200, answer_to(message))
            self._count(session, message["method"])

    def _count(self, session: str, method: str) -> None:
        self.calls_in[session] += method == "tools/call"
        if self.forgetful and self.calls_in[session] >= CALLS_A_SESSION:
            self.calls_in.pop(session, None)
            self.counts["forgotten"] += 1


def over_http(forgetful: bool) -> None:
    """Serve a free port of the loopback, named on stdout, until stdin ends."""
    Web.forgetful = forgetful
    server = ThreadingHTTPServer(("127.0.0.1", 0), Web)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


def main() -> None:
    """Be what the command line says."""
    kind, state = sys.argv[1:3]
    if kind in ("http", "forgets"):
        over_http(kind == "forgets")
    else:
        over_pipes(kind if state == "ill" else "well")


if __name__ == "__main__":
    main()
