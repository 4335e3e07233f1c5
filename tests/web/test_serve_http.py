"""`roster serve --http` as a process: what it says, whom it asks for a token, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from fakes import Run
from mcp_types import CallToolResult
from scripted_backend import Scripted, alive, plainly, until
from test_canaries import files_of, leaks
from test_serving import DEADLINE_S, Serving, _until
from web_client import HEADERS, NEED, client_at, initialize

from roster import serve, web
from roster.config import Home


def _where(serving: Serving) -> str:
    """The URL a serving process has said it listens on."""

    def said() -> list[str]:
        return [line for line in serving.errors if line.startswith("roster: serving http://127.0.0.1:")]

    _until(lambda: said() or serving.process.poll() is not None)
    return said()[0].split()[-1]


def _served(home: Home, settings: dict[str, Any], *options: str, **environ: str) -> Serving:
    home.config.write_text(json.dumps(settings), encoding="utf-8")
    return Serving(home, "--http", ":0", *options, **environ)


@pytest.mark.anyio
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(("era", "told"), [("legacy", signal.SIGTERM), ("auto", signal.SIGINT)])
async def test_the_process_ends_politely_when_told_to(
    home: Home, tmp_path: Path, calendar: Scripted, era: str, told: signal.Signals
) -> None:
    """A call that ends in time is answered as ever, one that hangs with an error that says why; sessions, streams and
    servers are closed; exit status 0, and not a word but the address."""
    gate = tmp_path / "gate"
    calendar.says(tools={"add_event": {"do": "gate", "file": str(gate)}, "list_events": {"do": "hang"}})
    settings = {"mcpServers": {"calendar": calendar.entry()}, "http": {"stop_grace_s": 3}}
    serving = _served(home, settings, "--five")
    replies: dict[str, CallToolResult] = {}
    try:
        url = await anyio.to_thread.run_sync(_where, serving)
        with plainly(), anyio.fail_after(DEADLINE_S):
            async with client_at(url, era) as client:

                async def call(name: str) -> None:
                    replies[name] = await client.call_tool("call", {"tool": f"calendar__{name}"})

                await until(lambda: calendar.events("list"))
                await client.call_tool("draft", {"need": NEED})
                async with anyio.create_task_group() as group:
                    for name in ("add_event", "list_events"):
                        group.start_soon(call, name)
                    await until(lambda: len(calendar.calls()) == 2)
                    serving.process.send_signal(told)
                    async with httpx2.AsyncClient() as http:
                        while (await http.get(url.replace("/mcp", "/healthz"))).status_code == 200:
                            await anyio.sleep(0.01)
                        refused = await http.post(url, json=initialize(), headers=HEADERS)
                    gate.touch()
    finally:
        status = serving.ended(lambda: None)
    assert refused.status_code == 503
    assert not replies["add_event"].is_error
    assert replies["list_events"].is_error
    assert replies["list_events"].content[0].text.startswith("Roster was stopped before calendar answered")
    assert status == 0
    assert serving.errors == [f"roster: serving {url}\n"]
    assert [pid for pid in calendar.pids() if alive(pid)] == []


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_second_signal_ends_the_wait(home: Home, calendar: Scripted) -> None:
    """A call in flight that is given minutes is not waited for when told to stop twice."""
    calendar.says(tools={"add_event": {"do": "hang"}})
    settings = {"mcpServers": {"calendar": calendar.entry()}, "http": {"stop_grace_s": 300}}
    serving = _served(home, settings, "--transparent")
    try:
        url = _where(serving)
        with httpx2.Client(timeout=DEADLINE_S) as http:
            opening = http.post(url, json=initialize(), headers=HEADERS)
            headers = {**HEADERS, "Mcp-Session-Id": opening.headers["mcp-session-id"]}
            http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
            http.post(url, json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers=headers)
            call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "calendar__add_event"}}
            with http.stream("POST", url, json=call, headers=headers):
                _until(calendar.calls)
                serving.process.send_signal(signal.SIGTERM)
                health = url.replace("/mcp", "/healthz")
                _until(lambda: httpx2.get(health).status_code == 503)
                assert serving.process.poll() is None
                serving.process.send_signal(signal.SIGTERM)
                assert serving.process.wait(DEADLINE_S) == 0
    finally:
        serving.ended(serving.process.kill)
    assert [pid for pid in calendar.pids() if alive(pid)] == []


@pytest.mark.report("punkpeye/mcp-remote#268")
def test_a_token_is_in_no_log_error_status_or_database(home: Home, run: Run, calendar: Scripted) -> None:
    """Said once, to whoever makes it, and never again: not by a process that says all it can, not to a client, not in
    any file. Nor is anything of a query."""
    settings = {"mcpServers": {"calendar": calendar.entry()}, "http": {"require_token": True}}
    secret = run("token", "add", "first").out.strip()
    assert secret.startswith("roster_")
    again = _served(home, settings, "--five", "--verbose")
    said: list[str] = []
    try:
        url = _where(again)
        known = {**HEADERS, "Authorization": f"Bearer {secret}"}
        with httpx2.Client(timeout=DEADLINE_S) as http:
            for query, headers, body in [
                ("", known, initialize()),
                ("?q=zqquery7x1", known, initialize()),
                (f"?token={secret}", HEADERS, initialize()),
                ("", {**HEADERS, "Authorization": f"Bearer {secret}zqwrong7x1"}, initialize()),
                ("", {**known, "Host": f"{secret}.example"}, initialize()),
                ("", {**known, "Accept": secret}, initialize()),
                ("", {**known, "Mcp-Session-Id": secret}, initialize()),
                ("", {**known, "Mcp-Session-Id": "x", "Last-Event-ID": secret}, initialize()),
                ("", {**known, "Mcp-Protocol-Version": secret}, initialize()),
                (f"/{secret}", known, initialize()),
            ]:
                response = http.post(f"{url}{query}", json=body, headers=headers)
                # What a client put into a header that is not for tokens, it is told back.
                if not {"Host", "Mcp-Protocol-Version"} & headers.keys():
                    said.append(response.text)
            said.append(http.get(url.replace("/mcp", "/healthz"), headers=known).text)
    finally:
        again.ended(again.process.terminate if sys.platform != "win32" else again.process.kill)
    for command in (("status",), ("status", "--json"), ("token", "list"), ("token", "list", "--json")):
        ran = run(*command)
        assert ran.status == 0
        said += [ran.out, ran.err]
    assert "first" in said[-2]
    words = [secret, "zqquery7x1", "zqwrong7x1"]
    assert leaks(home, "".join(again.errors), *said, words=[word.lower() for word in words]) == []
    assert [place for place, content in files_of(home).items() if secret.encode() in content] == []
    assert any("POST /mcp 200 first" in line for line in again.errors)


def test_an_address_that_others_reach_needs_a_token_and_says_what_is_missing(
    home: Home, calendar: Scripted, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal one is made at the first start and shown this once; elsewhere it would be kept in a log, so there
    it is said how to make one. That nothing is encrypted is said every time."""
    home.config.write_text(json.dumps({"mcpServers": {"calendar": calendar.entry()}}))
    asked = []

    async def serve_nobody(site: web.Web, sock: socket.socket, on_ready: Callable[[], None]) -> None:
        asked.append(site.gate._rules)
        on_ready()

    monkeypatch.setattr(web, "serve_web", serve_nobody)
    serve.serve_http(":0")
    monkeypatch.setattr(serve, "is_loopback", lambda _: False)
    for terminal in (False, True, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        serve.serve_http(":0")
    err = capsys.readouterr().err.splitlines()
    assert [(rules.token, rules.pages_here) for rules in asked] == [(False, True), *[(True, False)] * 3]
    assert [line.split(" http")[0] for line in err if "serving" in line] == ["roster: serving"] * 4
    assert len([line for line in err if "`roster token add NAME` makes one" in line]) == 1
    assert len([line for line in err if "shown this once" in line and "roster_" in line]) == 1
    assert len([line for line in err if "nothing here is encrypted" in line]) == 3


@pytest.mark.parametrize(
    ("block", "key"),
    [({"require_tokn": True}, "http.require_tokn"), ({"max_body_bytes": "x"}, "http.max_body_bytes"), ([], "http: "),
     ({"hosts": ["http://x"]}, "http.hosts"), ({"origins": ["*"]}, "http.origins")],
)  # fmt: skip
def test_a_mistake_in_who_may_come_in_lets_nobody_in(home: Home, run: Run, block: Any, key: str) -> None:
    """Where a default would stand in for other settings, it would not do for these: exit status 2, with the key."""
    home.config.write_text(json.dumps({"mcpServers": {}, "http": block}))
    ran = run("serve", "--http", ":0")
    assert ran.status == 2
    assert key in ran.err
    assert "nothing is served until that is mended" in ran.err
