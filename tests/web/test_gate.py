"""Who may come in over HTTP, how much each may bring, and what a token sees."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx2
import pytest
from fakes import tool
from mcp.shared.exceptions import MCPError
from scripted_backend import DEADLINE_S, Scripted, plainly, until
from web_client import (
    CALENDAR,
    HEADERS,
    NEED,
    Open,
    Session,
    client_at,
    ids,
    initialize,
    opened_by_hand,
    raw_request,
    served,
)

from roster import web
from roster.config import Mode
from roster.gate import Rules
from roster.tokens import Tokens


def two(tmp_path: Path) -> tuple[Scripted, Scripted]:
    """Two servers with tools that fit the same need; the first one's always fails with a reason to try another."""
    fails = {"do": "result", "result": {"isError": True, "content": [{"type": "text", "text": "internal error: 500"}]}}
    tasks = Scripted(tmp_path, "tasks", rows=[tool("add_event", "Add an event to the task list")])
    return Scripted(tmp_path, "calendar", rows=CALENDAR, tools={"add_event": fails}), tasks


@pytest.mark.anyio
async def test_a_token_sees_its_own_servers_and_no_trace_of_others(opened: Open, tmp_path: Path, era: str) -> None:
    """In what it is told, in drafts, in errors, in what is suggested instead, in what has worked: nothing of others.
    A call by id to one of theirs is one to an id nobody has."""
    calendar, tasks = two(tmp_path)
    roster = opened(calendar, tasks)
    tokens = Tokens(roster.writer.db)
    all_, one = tokens.add("all", 1.0), tokens.add("one", 1.0, ["calendar"])
    said: list[str] = []

    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(roster, token=True) as (_, url):
            async with client_at(url, era, all_) as client:
                assert "tasks__add_event" in ids(await client.call_tool("draft", {"need": NEED}))
                await client.call_tool("call", {"tool": "tasks__add_event"})
                draft_id = (await client.call_tool("draft", {"need": NEED})).structured_content["draft_id"]
                failed = await client.call_tool("call", {"tool": "calendar__add_event", "draft_id": draft_id})
                assert "suggested_alternate" in failed.content[-1].text
            async with client_at(url, era, one) as client:
                said += [client.instructions, str(await client.list_tools())]
                for need in (NEED, "add an event to the task list", "qqq", "tasks__add_event"):
                    made = await client.call_tool("draft", {"need": need, "k": 10})
                    assert all(id_.startswith("calendar__") for id_ in ids(made))
                    said.append(str({**made.structured_content, "need": ""}))
                made = await client.call_tool("draft", {"need": NEED})
                draft_id = made.structured_content["draft_id"]
                failed = await client.call_tool("call", {"tool": "calendar__add_event", "draft_id": draft_id})
                said.append(str(failed.content))
                before = len(tasks.calls())
                for id_ in ("tasks__add_event", "tasks__add_even"):
                    reply = await client.call_tool("call", {"tool": id_})
                    said.append(reply.content[0].text.replace(id_, ""))
                assert len(tasks.calls()) == before
    assert reply.is_error
    assert said[-2].startswith("no tool has the id ''")
    assert [words for words in said if "tasks" in words] == []


@pytest.mark.anyio
async def test_a_token_lists_and_calls_its_own_servers_alone_in_transparent_mode(
    opened: Open, tmp_path: Path, era: str
) -> None:
    """The list is the shorter one, and a tool of another server is one that does not exist."""
    calendar, tasks = two(tmp_path)
    roster = opened(calendar, tasks)
    secret = Tokens(roster.writer.db).add("one", 1.0, ["tasks"])
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(roster, Mode.TRANSPARENT, token=True) as (_, url), client_at(url, era, secret) as client:
            listed = [each.name for each in (await client.list_tools()).tools]
            with pytest.raises(MCPError, match="Unknown tool: calendar__add_event") as caught:
                await client.call_tool("calendar__add_event", {})
            assert "calendar" not in client.instructions
    assert listed == ["tasks__add_event"]
    assert caught.value.code == -32602
    assert calendar.calls() == []


def test_cards_that_are_not_seen_take_nobodys_place_in_a_draft(opened: Open, tmp_path: Path) -> None:
    """Hundreds of better matches on servers that a token does not see: the one on its own is found all the same."""
    roster = opened(Scripted(tmp_path, "crowd"), Scripted(tmp_path, "own"))
    crowd = [tool(f"add_event_{n}", "Add an event to the calendar") for n in range(400)]
    roster.writer.registry.sight("crowd", crowd, 1.0)
    roster.writer.registry.sight("own", [tool("jot", "Note the event"), tool("sing", "Some song")], 1.0)
    roster.warm_up()
    for embedded in (False, True):
        if embedded:
            roster._embed()
        made = roster.draft_now(NEED, 5, frozenset(["own"]))
        # What shares no word with the need is near or far by meaning alone.
        assert [starter.card.id for starter in made.starters] == ["own__jot", "own__sing"][: 1 + embedded]
        assert len(made.ranking) == 1 + embedded
    assert [scored.dense for _, scored in made.running] == [1.0, 0.0]
    assert roster.draft_now(NEED, 5, frozenset()).starters == ()


@pytest.mark.anyio
async def test_without_a_token_that_is_known_nobody_comes_in(opened: Open, calendar: Scripted) -> None:
    """None, a wrong one, one in the query, one of another kind, two at once; and one that was removed a moment ago."""
    roster = opened(calendar)
    tokens = Tokens(roster.writer.db)
    secret = tokens.add("ann", 1.0)
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(roster, token=True) as (site, url), httpx2.AsyncClient() as http:
            lasting = len(site.server._connections)
            refused = [
                await http.post(f"{url}{query}", json=initialize(), headers=[*HEADERS.items(), *more])
                for query, more in [
                    ("", []),
                    ("", [("Authorization", f"Bearer {secret}x")]),
                    (f"?token={secret}&access_token={secret}", []),
                    ("", [("Authorization", f"Basic {secret}")]),
                    ("", [("Authorization", f"Bearer {secret}")] * 2),
                    ("", [("Authorization", "Bearer")]),
                ]
            ]
            assert len(site.server._connections) == lasting
            session = Session(http, url, {"Authorization": f"bearer {secret}"})
            let_in = await session.open()
            tokens.remove("ann")
            after = await session.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
    assert [response.status_code for response in refused] == [401] * 6
    assert all("roster token add NAME" in response.json()["error"]["message"] for response in refused)
    assert [response.headers["www-authenticate"] for response in refused] == ["Bearer"] * 6
    assert (let_in.status_code, after.status_code) == (200, 401)
    assert secret not in "".join(response.text for response in (*refused, let_in, after))


@pytest.mark.anyio
async def test_what_is_open_for_a_removed_token_is_ended(
    opened: Open, calendar: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream of news, and a call that is not answered yet; those of other tokens go on."""
    monkeypatch.setattr(web, "LOOK_AGAIN_S", 0.05)
    calendar.says(tools={"add_event": {"do": "hang"}})
    roster = opened(calendar)
    tokens = Tokens(roster.writer.db)
    secrets = {name: tokens.add(name, 1.0) for name in ("ann", "bob")}
    ended: list[str] = []

    async def stay(url: str, http: httpx2.AsyncClient, who: str) -> None:
        session = Session(http, url, {"Authorization": f"Bearer {secrets[who]}"})
        await session.open()
        async with http.stream("GET", url, headers=session.headers) as response:
            staying.append(who)
            await response.aread()
        ended.append(f"stream of {who}")

    async def call(url: str, http: httpx2.AsyncClient, who: str) -> None:
        session = Session(http, url, {"Authorization": f"Bearer {secrets[who]}"})
        await session.open()
        params = {"name": "call", "arguments": {"tool": "calendar__add_event"}}
        await session.post({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})
        ended.append(f"call of {who}")

    staying: list[str] = []
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with (
            served(roster, token=True) as (_, url),
            httpx2.AsyncClient(timeout=DEADLINE_S) as http,
            anyio.create_task_group() as group,
        ):
            for who in secrets:
                group.start_soon(stay, url, http, who)
            group.start_soon(call, url, http, "ann")
            await until(lambda: len(staying) == 2 and calendar.calls())
            tokens.remove("ann")
            await until(lambda: len(ended) == 2)
            assert sorted(ended) == ["call of ann", "stream of ann"]
            group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_session_belongs_to_the_token_that_opened_it(opened: Open, calendar: Scripted) -> None:
    """Its id in other hands is one nobody has. Where no token is asked for, a wrong one is refused all the same."""
    roster = opened(calendar)
    ann, bob = (Tokens(roster.writer.db).add(name, 1.0) for name in ("ann", "bob"))
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(roster) as (_, url), httpx2.AsyncClient() as http:
            session = Session(http, url, {"Authorization": f"Bearer {ann}"})
            await session.open()
            answers = []
            for header in (bob, "wrong", ann):
                session.headers["Authorization"] = f"Bearer {header}"
                answers.append((await session.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})).status_code)
            del session.headers["Authorization"]
            answers.append((await session.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})).status_code)
    assert answers == [404, 401, 200, 404]


@pytest.mark.parametrize(
    ("host", "local", "let_in"),
    [
        ("127.0.0.1:8765", "127.0.0.1", True),
        ("LOCALHOST", "127.0.0.1", True),
        ("[::1]:8765", "::1", True),
        ("192.168.1.5:8765", "192.168.1.5", True),
        ("[fe80::1]", "fe80::1", True),
        ("roster.example.com", "10.0.0.1", True),
        ("192.168.1.6:8765", "192.168.1.5", False),
        ("evil.example", "127.0.0.1", False),
        ("localhost.evil.example:80", "127.0.0.1", False),
        ("127.0.0.1.evil.example", "127.0.0.1", False),
        ("localhost@evil.example", "127.0.0.1", False),
        ("", "127.0.0.1", False),
        (None, "127.0.0.1", False),
    ],
)
def test_a_request_must_be_made_to_a_name_of_this_server(host: str | None, local: str, let_in: bool) -> None:
    """Its own addresses, the one it came in on, names from the config; never a page's own name that points here."""
    rules = Rules(frozenset({"127.0.0.1", "::1", "localhost", "roster.example.com"}), frozenset(), True, False, 1024)
    assert (rules.wrong_host(host, local) is None) is let_in


@pytest.mark.parametrize(
    ("origin", "here", "let_in"),
    [
        (None, True, True),
        ("http://localhost:6274", True, True),
        ("http://[::1]:1", True, True),
        ("http://localhost:6274", False, False),
        ("http://10.0.0.1:8765", False, True),
        ("https://app.example.com", False, True),
        ("https://app.example.com.evil.example", True, False),
        ("http://localhost.evil.example", True, False),
        ("http://[bad", True, False),
        ("null", True, False),
        ("file://localhost", True, False),
    ],
)
def test_a_page_must_be_of_this_server_this_machine_or_the_config(origin: str | None, here: bool, let_in: bool) -> None:
    """Pages of this machine only while nobody else reaches it; a program that is no page says no origin."""
    rules = Rules(frozenset(), frozenset({"https://app.example.com"}), here, False, 1024)
    assert (rules.wrong_origin(origin, "10.0.0.1:8765") is None) is let_in


@pytest.mark.anyio
async def test_foreign_names_and_pages_are_refused_with_the_key_to_mend_it(opened: Open, calendar: Scripted) -> None:
    """Also for what asks for no token. A page from the config is let in, and its browser told so."""
    page = "https://app.example.com"
    roster = opened(calendar, http={"hosts": ["Roster.example.com"], "origins": [page]})
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(roster) as (_, url), httpx2.AsyncClient() as http:

            async def post(**headers: str) -> httpx2.Response:
                return await http.post(url, json=initialize(), headers={**HEADERS, **headers})

            host, health = await post(Host="evil.example"), await http.get(url.replace("/mcp", "/healthz"))
            origin = await post(Origin="http://evil.example")
            named, paged = await post(Host="roster.example.com:1"), await post(Origin=page)
            asked = await http.options(url, headers={"Origin": page, "Access-Control-Request-Method": "POST"})
            lost = await http.get(url.replace("/mcp", "/other?secret=1"))
            slash = await http.post(f"{url}/", json=initialize(), headers=HEADERS)
    assert (host.status_code, origin.status_code) == (421, 403)
    assert '"hosts" in the "http" block' in host.json()["error"]["message"]
    assert '"origins" in the "http" block' in origin.json()["error"]["message"]
    assert (named.status_code, paged.status_code, slash.status_code) == (200, 200, 200)
    assert paged.headers["access-control-allow-origin"] == asked.headers["access-control-allow-origin"] == page
    assert "mcp-session-id" in paged.headers["access-control-expose-headers"].lower()
    assert (lost.status_code, "secret" in lost.text) == (404, False)
    assert health.json().keys() == {"ok", "version", "servers", "sessions"}


@pytest.mark.anyio
async def test_a_body_is_counted_while_it_comes_in(opened: Open, calendar: Scripted) -> None:
    """Too much of it is refused with the limit and the key that raises it, whatever the request says of its length, and
    before the rest of it has come; as much as allowed is read."""
    roster = opened(calendar, http={"max_body_bytes": 2000})

    async def padded() -> AsyncIterator[bytes]:
        body = json.dumps(initialize()).encode()
        yield body + b" " * (2000 - len(body))

    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(roster) as (_, url), httpx2.AsyncClient() as http:
            said = await http.post(url, content=b" " * 2001, headers=HEADERS)
            place = httpx2.URL(url)
            async with await anyio.connect_tcp(place.host, place.port) as stream:
                head = f"POST /mcp HTTP/1.1\r\nHost: {place.host}\r\nTransfer-Encoding: chunked\r\n\r\n"
                # The end of it never comes.
                await stream.send(head.encode() + b"3e8\r\n" + b" " * 1000 + b"\r\n3e9\r\n" + b" " * 1001 + b"\r\n")
                chunked = await stream.receive()
            just = await http.post(url, content=padded(), headers=HEADERS)
    assert (said.status_code, chunked[:13], just.status_code) == (413, b"HTTP/1.1 413 ", 200)
    assert said.json()["error"]["message"] == (
        'the request is larger than 2,000 bytes: raise "max_body_bytes" in the "http" block of roster.json'
    )


@pytest.mark.anyio
async def test_a_request_that_never_arrives_whole_is_given_up(
    opened: Open, calendar: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that stops in the middle of its request is answered so after a while."""
    monkeypatch.setattr("roster.gate.BODY_LIMIT_S", 0.1)
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(opened(calendar)) as (_, url):
            place = httpx2.URL(url)
            async with await anyio.connect_tcp(place.host, place.port) as stream:
                await stream.send(f"POST /mcp HTTP/1.1\r\nHost: {place.host}\r\nContent-Length: 5\r\n\r\nab".encode())
                answer = b""
                while b"\r\n\r\n" not in answer:
                    answer += await stream.receive()
    assert answer.startswith(b"HTTP/1.1 408 ")


@pytest.mark.anyio
async def test_a_client_that_never_reads_is_gone_after_a_while(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session is not held open by an answer that it does not take."""
    monkeypatch.setattr("roster.replies.SEND_LIMIT_S", 0.1)
    large = {"content": [{"type": "text", "text": "x" * 9_000_000}]}
    box = Scripted(tmp_path, "box", rows=[tool("large")], tools={"large": {"do": "result", "result": large}})
    roster = opened(box, http={"session_idle_s": 1.5})
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(roster, Mode.TRANSPARENT) as (site, url), httpx2.AsyncClient() as http:
            lasting = len(site.server._connections)
            session = await opened_by_hand(url, http)
            await session.ask("tools/list")
            place = httpx2.URL(url)
            with socket.create_connection((place.host, place.port)) as stuck:
                call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "box__large"}}
                stuck.sendall(raw_request(session, "POST", json.dumps(call).encode()))
                await until(lambda: box.calls("large"))
                await until(lambda: len(site.server._connections) == lasting)


@pytest.mark.anyio
async def test_a_fault_of_our_own_is_said_by_its_kind_alone(
    opened: Open,
    calendar: Scripted,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Status 500, one line, and serving goes on; a database that cannot be read is said to be that."""
    roster = opened(calendar)
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(roster) as (_, url), httpx2.AsyncClient() as http:
            headers = {**HEADERS, "Authorization": "Bearer zqsecret7x1"}
            with monkeypatch.context() as patch:
                patch.setattr(web.Tokens, "holder", lambda *_: 1 / 0)
                fault = await http.post(url, json=initialize(), headers=headers)
            roster.writer.db.execute("ALTER TABLE tokens RENAME TO gone")
            unreadable = await http.post(url, json=initialize(), headers=headers)
            healthy = await Session(http, url).open()
    assert (fault.status_code, unreadable.status_code, healthy.status_code) == (500, 503, 200)
    said = [record.getMessage() for record in caplog.records if record.name.startswith("roster")]
    assert said[0] == "a request could not be served (ZeroDivisionError)"
    assert "cannot be read" in said[1]
    assert "zqsecret7x1" not in "".join(said) + fault.text + unreadable.text
