"""Roster over HTTP, through real sockets: both eras, many clients at once, who may come in, and how it ends."""

from __future__ import annotations

import gc
import json
import signal
import socket
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import TaskGroup
from fakes import Run, WordEncoder, tool
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ToolsListChanged
from mcp_types import CallToolResult, ToolListChangedNotification
from scripted_backend import Scripted, alive, plainly, until
from test_canaries import files_of, leaks
from test_serving import DEADLINE_S, Serving, _until
from web_client import HEADERS, Session, alone, answer_in, client_at, initialize, served

from roster import app, serve, web
from roster.addresses import Address, host_of, is_loopback, listen, parse_address
from roster.app import Roster, open_roster
from roster.config import Home, Mode, read_config
from roster.errors import ConfigError, ListenError
from roster.gate import Rules
from roster.server import Connection, RosterServer
from roster.tokens import Tokens
from roster.web import Visitors

CALENDAR = [tool("add_event", "Add an event to the calendar"), tool("list_events", "List the events of a day")]
NEED = "add an event to the calendar"


@pytest.fixture(params=["legacy", "auto"])
def era(request: pytest.FixtureRequest) -> str:
    """How a client opens its connection: with a handshake and a session, or with neither."""
    return str(request.param)


@pytest.fixture(autouse=True)
def _words(monkeypatch: pytest.MonkeyPatch, encoder: WordEncoder) -> None:
    monkeypatch.setattr(app, "open_encoder", lambda *_: encoder)


@pytest.fixture
def calendar(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path, "calendar", rows=CALENDAR)


@pytest.fixture
def opened(home: Home) -> Iterator[Callable[..., Roster]]:
    """Open a Roster over these servers, not started yet, with these settings."""
    import contextlib

    with contextlib.ExitStack() as stack:

        def open_one(*servers: Scripted, **settings: Any) -> Roster:
            entries = {server.name: server.entry() for server in servers}
            config = read_config(json.dumps({"mcpServers": entries, **settings}))
            assert not config.problems
            return stack.enter_context(open_roster(config, home))

        yield open_one


def ids(reply: CallToolResult) -> list[str]:
    return [starter["id"] for starter in reply.structured_content["starters"]]


def outcomes(roster: Roster) -> list[tuple[Any, ...]]:
    return roster.writer.db.execute("SELECT card, outcome, drafted FROM outcomes ORDER BY number").fetchall()


# ------------------------------------------------------------------------------------------------ both eras


@pytest.mark.anyio
async def test_a_need_is_drafted_and_called_over_http(
    opened: Callable[..., Roster], calendar: Scripted, era: str
) -> None:
    """The same two tools as on stdio, in both eras; the call counts for its draft."""
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(roster := opened(calendar)) as (_, url), client_at(url, era) as client:
            listed = [each.name for each in (await client.list_tools()).tools]
            made = await client.call_tool("draft", {"need": NEED})
            draft_id = made.structured_content["draft_id"]
            reply = await client.call_tool("call", {"tool": ids(made)[0], "args": {"a": 1}, "draft_id": draft_id})
            assert (client.protocol_version == "2026-07-28") is (era == "auto")

    assert listed == ["draft", "call"]
    assert json.loads(reply.content[0].text) == {"tool": "add_event", "arguments": {"a": 1}}
    assert outcomes(roster) == [("calendar__add_event", "success", 1)]


@pytest.mark.anyio
async def test_a_row_and_a_result_arrive_as_they_came(opened: Callable[..., Roster], tmp_path: Path, era: str) -> None:
    """Transparent mode hands on unknown keys and blocks over HTTP, too, and says that the list can change."""
    strange = {**tool("t"), "somethingNew": {"deep": [None]}, "_meta": {"a/b": 1}}
    result = {"content": [{"type": "hologram", "z": 1}], "structuredContent": [1], "new": None}
    box = Scripted(tmp_path, "box", rows=[strange], tools={"t": {"do": "result", "result": result}})
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(opened(box), Mode.TRANSPARENT) as (_, url), httpx2.AsyncClient() as http:
            if era == "auto":
                told = (await alone(http, url, "server/discover")).json()["result"]
                listed = (await alone(http, url, "tools/list")).json()["result"]
                got = (await alone(http, url, "tools/call", name="box__t")).json()["result"]
            else:
                session = Session(http, url)
                told = answer_in(await session.open())["result"]
                listed = (await session.ask("tools/list"))["result"]
                got = (await session.ask("tools/call", name="box__t"))["result"]
    assert told["capabilities"]["tools"]["listChanged"] is True
    assert listed["tools"] == [{**strange, "name": "box__t"}]
    assert {**got, **result} == got
    assert got.keys() - result.keys() <= {"resultType", "_meta"}


@pytest.mark.anyio
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_client_of_an_older_version_is_served_in_that_version(
    opened: Callable[..., Roster], calendar: Scripted, version: str
) -> None:
    """Every version with a handshake, in plain requests."""
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(opened(calendar)) as (_, url), httpx2.AsyncClient() as http:
            session = Session(http, url)
            result = answer_in(await session.open(version))["result"]
            rows = (await session.ask("tools/list"))["result"]["tools"]
    assert result["protocolVersion"] == version
    assert "calendar" in result["instructions"]
    assert [row["name"] for row in rows] == ["draft", "call"]


@pytest.mark.anyio
async def test_half_a_character_costs_nobody_an_answer(opened: Callable[..., Roster], calendar: Scripted) -> None:
    """A request with half of an emoji in it is read as on stdio; one that is no JSON is refused."""
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(opened(calendar)) as (_, url), httpx2.AsyncClient() as http:
            session = Session(http, url)
            await session.open()
            call = '{"jsonrpc":"2.0","id":"\\ud83d","method":"tools/call","params":{"name":"call","arguments":%s}}'
            arguments = '{"tool":"calendar__add_event","args":{"at":"\\ud83d!"}}'
            answer = answer_in(await session.post((call % arguments).encode()))
            broken = await session.post(b'{"jsonrpc":"2.0","id":"\\ud83d"')
    assert json.loads(answer["result"]["content"][0]["text"])["arguments"] == {"at": "\ufffd!"}
    assert broken.status_code == 400


# --------------------------------------------------------------------------------------- many at the same time


@pytest.mark.anyio
async def test_a_draft_id_means_nothing_in_another_session(opened: Callable[..., Roster], calendar: Scripted) -> None:
    """A call with somebody else's draft id is carried out, and counts for no draft."""
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with (
            served(roster := opened(calendar)) as (_, url),
            client_at(url, "legacy") as one,
            client_at(url, "legacy") as other,
        ):
            draft_id = (await one.call_tool("draft", {"need": NEED})).structured_content["draft_id"]
            for client in (other, one):
                await client.call_tool("call", {"tool": "calendar__add_event", "draft_id": draft_id})
    assert [drafted for *_, drafted in outcomes(roster)] == [0, 1]


@pytest.mark.anyio
async def test_clients_without_a_session_are_told_apart_by_who_they_are(
    opened: Callable[..., Roster], calendar: Scripted
) -> None:
    """In the newer era: by name and by token. The same client finds its draft again, also over another connection."""
    from mcp_types import Implementation

    cursor, claude = (Implementation(name=name, version="1") for name in ("cursor", "claude"))
    with plainly(), anyio.fail_after(DEADLINE_S):
        roster = opened(calendar)
        secret = Tokens(roster.writer.db).add("ann", 1.0)
        async with served(roster) as (_, url):
            async with client_at(url, client_info=cursor) as one:
                draft_id = (await one.call_tool("draft", {"need": NEED})).structured_content["draft_id"]
            for info, token in ((claude, None), (cursor, secret), (cursor, None)):
                async with client_at(url, secret=token, client_info=info) as client:
                    await client.call_tool("call", {"tool": "calendar__add_event", "draft_id": draft_id})
    assert [drafted for *_, drafted in outcomes(roster)] == [0, 0, 1]


def test_visitors_are_forgotten_when_idle_and_never_too_many() -> None:
    """The least recently seen goes first; one that comes in time keeps its connection."""
    visitors = Visitors(limit=2, idle_s=10)
    first = visitors.connection(("a",), 0)
    assert visitors.connection(("a",), 9) is first
    second = visitors.connection(("b",), 10)
    assert second is not first
    assert visitors.connection(("a",), 11) is first
    visitors.connection(("c",), 12)
    assert visitors.connection(("a",), 13) is first
    assert visitors.connection(("b",), 13) is not second
    assert visitors.connection(("a",), 40) is not first


@pytest.mark.anyio
async def test_progress_and_cancellation_reach_the_call_they_belong_to(
    opened: Callable[..., Roster], tmp_path: Path, era: str
) -> None:
    """Two clients with calls in flight on one backend: each hears of its own, and only the call given up is stopped."""
    gate = tmp_path / "gate"
    steps = {name: {"do": "progress", "steps": n, "then": str(gate)} for name, n in (("three", 3), ("five", 5))}
    box = Scripted(
        tmp_path, "box", rows=[tool("three"), tool("five"), tool("hang")], tools={**steps, "hang": {"do": "hang"}}
    )
    heard: dict[str, list[float]] = {"three": [], "five": []}
    replies = []

    with plainly(), anyio.fail_after(DEADLINE_S):
        async with (
            served(opened(box), Mode.TRANSPARENT) as (_, url),
            client_at(url, era) as one,
            client_at(url, era) as other,
        ):

            async def follow(client: Client, name: str) -> None:
                async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                    heard[name].append(progress)

                replies.append(await client.call_tool(f"box__{name}", {}, progress_callback=on_progress))

            await one.list_tools()
            async with anyio.create_task_group() as group:
                group.start_soon(follow, one, "three")
                group.start_soon(follow, other, "five")
                async with anyio.create_task_group() as stopping:
                    stopping.start_soon(one.call_tool, "box__hang", {})
                    await until(lambda: box.calls("hang"))
                    stopping.cancel_scope.cancel()
                await until(lambda: box.events("cancelled"))
                await until(lambda: len(heard["three"]) == 3 and len(heard["five"]) == 5)
                gate.touch()
    assert {name: sorted(steps) for name, steps in heard.items()} == {"three": [1, 2, 3], "five": [1, 2, 3, 4, 5]}
    assert [event["tool"] for event in box.events("cancelled")] == ["hang"]
    assert len(replies) == 2


async def _opened_by_hand(url: str, http: httpx2.AsyncClient) -> Session:
    session = Session(http, url)
    await session.open()
    return session


def _raw_request(session: Session, method: str, body: bytes = b"") -> bytes:
    """A request as it goes over the wire."""
    host = httpx2.URL(session.url)
    headers = {**session.headers, "Host": f"{host.host}:{host.port}", "Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body


@pytest.mark.anyio
async def test_a_client_that_does_not_read_holds_nobody_up(
    opened: Callable[..., Roster], tmp_path: Path, calendar: Scripted
) -> None:
    """One asks for results it never reads, until its connection is full; another one is answered all the while, and
    news of a changed list reach it at once."""
    large = {"content": [{"type": "text", "text": "x" * 3_000_000}]}
    box = Scripted(tmp_path, "box", rows=[tool("large")], tools={"large": {"do": "result", "result": large}})
    changed = anyio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed.set()

    with plainly(), anyio.fail_after(DEADLINE_S):
        async with (
            served(opened(calendar, box), Mode.TRANSPARENT) as (_, url),
            httpx2.AsyncClient() as http,
            client_at(url, "legacy", message_handler=hear) as other,
        ):
            slow = await _opened_by_hand(url, http)
            await slow.ask("tools/list")
            place = httpx2.URL(url)
            with (
                socket.create_connection((place.host, place.port)) as stuck,
                socket.create_connection((place.host, place.port)) as deaf,
            ):
                for sock in (stuck, deaf):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                deaf.sendall(_raw_request(slow, "GET"))
                call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "box__large"}}
                stuck.sendall(_raw_request(slow, "POST", json.dumps(call).encode()))
                await until(lambda: box.calls("large"))
                await other.list_tools()
                for _ in range(20):
                    assert not (await other.call_tool("calendar__add_event", {})).is_error
                calendar.says(rows=[*CALENDAR, tool("new")])
                await changed.wait()
                names = [each.name for each in (await other.list_tools()).tools]
    assert "calendar__new" in names


@pytest.mark.anyio
async def test_progress_that_nobody_reads_does_not_pile_up(
    opened: Callable[..., Roster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand reports wait for a client that does not read, of however many there are; the call goes on."""
    waiting = most = 0

    async def unread(*_: Any) -> None:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        await anyio.sleep_forever()

    monkeypatch.setattr("mcp.server.session.ServerSession.report_progress", unread)
    box = Scripted(tmp_path, "box", rows=[tool("t")], tools={"t": {"do": "progress", "steps": 1500}})
    heard: list[float] = []

    async def on_progress(progress: float, *_: Any) -> None:
        heard.append(progress)

    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(opened(box), Mode.TRANSPARENT) as (_, url), client_at(url) as client:
            await client.list_tools()
            reply = await client.call_tool("box__t", {}, progress_callback=on_progress)
            await until(lambda: most == 1000)
    assert not reply.is_error
    assert (most, heard) == (1000, [])


@pytest.mark.anyio
async def test_a_changed_list_reaches_every_client(opened: Callable[..., Roster], calendar: Scripted) -> None:
    """Two sessions of the older era and one subscription of the newer one."""
    heard = [anyio.Event() for _ in range(3)]

    def hearer(event: anyio.Event) -> Callable[[Any], Any]:
        async def hear(message: Any) -> None:
            if isinstance(message, ToolListChangedNotification):
                event.set()

        return hear

    async def follow(client: Client, group: TaskGroup) -> None:
        async with client.listen(tools_list_changed=True) as stream:
            async for event in stream:
                if isinstance(event, ToolsListChanged):
                    heard[2].set()
                    return

    with plainly(), anyio.fail_after(DEADLINE_S):
        async with (
            served(opened(calendar), Mode.TRANSPARENT) as (_, url),
            client_at(url, "legacy", message_handler=hearer(heard[0])) as first,
            client_at(url, "legacy", message_handler=hearer(heard[1])) as second,
            client_at(url) as third,
            anyio.create_task_group() as group,
        ):
            for client in (first, second, third):
                await client.list_tools()
            group.start_soon(follow, third, group)
            await anyio.wait_all_tasks_blocked()
            turn = 0
            while not all(event.is_set() for event in heard):
                turn += 1
                calendar.says(rows=[*CALENDAR, tool(f"new_{turn}")])
                with anyio.move_on_after(1):
                    for event in heard:
                        await event.wait()
            names = [each.name for each in (await second.list_tools()).tools]
    assert len(names) == 3


@pytest.mark.anyio
async def test_clients_that_do_not_listen_keep_no_other_from_hearing(
    opened: Callable[..., Roster], calendar: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every one that takes the news has it while five others still have not."""
    monkeypatch.setattr("roster.server.NOTIFY_LIMIT_S", DEADLINE_S)
    told: list[int] = []
    every = anyio.Event()

    class Listening:
        async def send_tool_list_changed(self) -> None:
            told.append(1)
            if len(told) == 5:
                every.set()

    class Deaf:
        async def send_tool_list_changed(self) -> None:
            await anyio.sleep_forever()

    server = RosterServer(opened(calendar), Mode.TRANSPARENT)
    for session in (*(Deaf() for _ in range(5)), *(Listening() for _ in range(5))):
        server.add(Connection(session=session))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(server._list_changed)
            await every.wait()
            group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_one_session_too_many_is_refused(opened: Callable[..., Roster], calendar: Scripted) -> None:
    """Until another one has ended."""
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(opened(calendar, http={"max_sessions": 1})) as (_, url), httpx2.AsyncClient() as http:
            first = await _opened_by_hand(url, http)
            refused = await Session(http, url).open()
            ended = await http.delete(url, headers=first.headers)
            let_in = await Session(http, url).open()
    assert (refused.status_code, ended.status_code, let_in.status_code) == (503, 200, 200)


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["idle", "ended"])
async def test_a_session_that_is_over_leaves_nothing_behind(
    opened: Callable[..., Roster], calendar: Scripted, how: str
) -> None:
    """One that nobody uses any more, and one that its client ended: its id is unknown, its drafts are gone."""
    settings = {"session_idle_s": 0.1} if how == "idle" else {}
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(opened(calendar, http=settings)) as (site, url), httpx2.AsyncClient() as http:
            lasting = {id(each) for each in site.server._connections}
            session = Session(http, url)
            response = await session.post(initialize())
            session.headers["Mcp-Session-Id"] = response.headers["mcp-session-id"]
            drafts = [weakref.ref(each.drafts) for each in site.server._connections if id(each) not in lasting]
            if how == "ended":
                await http.delete(url, headers=session.headers)
            await until(lambda: len(site.server._connections) == len(lasting))
            after = await session.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
            gc.collect()
            left = [draft for draft in drafts if draft() is not None]
    assert after.status_code == 404
    assert left == []


# ------------------------------------------------------------------------------------------------- who may come in


def two(tmp_path: Path) -> tuple[Scripted, Scripted]:
    """Two servers with tools that fit the same need; the first one's always fails with a reason to try another."""
    fails = {"do": "result", "result": {"isError": True, "content": [{"type": "text", "text": "internal error: 500"}]}}
    tasks = Scripted(tmp_path, "tasks", rows=[tool("add_event", "Add an event to the task list")])
    return Scripted(tmp_path, "calendar", rows=CALENDAR, tools={"add_event": fails}), tasks


@pytest.mark.anyio
async def test_a_token_sees_its_own_servers_and_no_trace_of_others(
    opened: Callable[..., Roster], tmp_path: Path, era: str
) -> None:
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
    opened: Callable[..., Roster], tmp_path: Path, era: str
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


def test_cards_that_are_not_seen_take_nobodys_place_in_a_draft(opened: Callable[..., Roster], tmp_path: Path) -> None:
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
async def test_without_a_token_that_is_known_nobody_comes_in(opened: Callable[..., Roster], calendar: Scripted) -> None:
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
async def test_a_session_belongs_to_the_token_that_opened_it(opened: Callable[..., Roster], calendar: Scripted) -> None:
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
async def test_foreign_names_and_pages_are_refused_with_the_key_to_mend_it(
    opened: Callable[..., Roster], calendar: Scripted
) -> None:
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
    assert health.json().keys() == {"ok", "version", "servers"}


@pytest.mark.anyio
async def test_a_body_is_counted_while_it_comes_in(opened: Callable[..., Roster], calendar: Scripted) -> None:
    """Too much of it is refused with the limit and the key that raises it, whatever the request says of its length, and
    before the rest of it has come; as much as allowed is read."""
    roster = opened(calendar, http={"max_body_bytes": 2000})

    async def padded() -> Any:
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
    opened: Callable[..., Roster], calendar: Scripted, monkeypatch: pytest.MonkeyPatch
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
    opened: Callable[..., Roster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session is not held open by an answer that it does not take."""
    monkeypatch.setattr("roster.gate.SEND_LIMIT_S", 0.1)
    large = {"content": [{"type": "text", "text": "x" * 9_000_000}]}
    box = Scripted(tmp_path, "box", rows=[tool("large")], tools={"large": {"do": "result", "result": large}})
    roster = opened(box, http={"session_idle_s": 1.5})
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(roster, Mode.TRANSPARENT) as (site, url), httpx2.AsyncClient() as http:
            lasting = len(site.server._connections)
            session = await _opened_by_hand(url, http)
            await session.ask("tools/list")
            place = httpx2.URL(url)
            with socket.create_connection((place.host, place.port)) as stuck:
                call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "box__large"}}
                stuck.sendall(_raw_request(session, "POST", json.dumps(call).encode()))
                await until(lambda: box.calls("large"))
                await until(lambda: len(site.server._connections) == lasting)


@pytest.mark.anyio
async def test_a_fault_of_our_own_is_said_by_its_kind_alone(
    opened: Callable[..., Roster],
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


# ----------------------------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":0", ("127.0.0.1", 0)),
        ("8765", ("127.0.0.1", 8765)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("localhost:65535", ("localhost", 65535)),
        ("[::1]:80", ("::1", 80)),
        (" host.example:80 ", ("host.example", 80)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    """Without a host it is this machine alone."""
    assert parse_address(text) == Address(*address)


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", ":65536", "::1:80", "http://h:1", "h:1/mcp", "h:-1"])
def test_what_is_no_address_is_misuse(home: Home, run: Run, text: str) -> None:
    """Exit status 2, with the value and a form that would do."""
    with pytest.raises(ConfigError, match="HOST:PORT"):
        parse_address(text)
    ran = run("serve", f"--http={text}")
    assert (ran.status, ran.out) == (2, "")
    assert f"{text!r} is not an address" in ran.err


@pytest.mark.parametrize(
    ("host", "here"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("10.0.0.1", False),
     ("fe80::1%eth0", False), ("localhost", False), ("", False)],
)  # fmt: skip
def test_only_addresses_of_this_machine_alone_are_loopback(host: str, here: bool) -> None:
    """A name is none: what it stands for is looked up when it is listened on, and then it is an address."""
    assert is_loopback(host) is here


def test_a_host_header_is_read_whole() -> None:
    """Port and brackets off, in lower case; nothing for what is no host."""
    assert [host_of(text) for text in ("A.b:1", "[::1]:2", "::1", "a b", "a:b", "")] == [
        "a.b",
        "::1",
        None,
        None,
        None,
        None,
    ]


def test_a_port_that_is_taken_says_so(home: Home) -> None:
    """With the address and the remedy; a host that nobody knows, too."""
    with listen(Address("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=rf"127\.0\.0\.1:{port}.*another port, or 0 for any"):
            listen(Address("127.0.0.1", port))
    with pytest.raises(ListenError, match=r"'nobody\.invalid' is not known here"):
        listen(Address("nobody.invalid", 0))


# ------------------------------------------------------------------------------------------------ the whole process


def _where(serving: Serving) -> str:
    """The URL a serving process has said it listens on."""

    def said() -> list[str]:
        return [line for line in serving.errors if line.startswith("roster: serving http://127.0.0.1:")]

    _until(lambda: said() or serving.process.poll() is not None)
    return said()[0].split()[-1]


def _secret(serving: Serving) -> str:
    (secret,) = {word for line in serving.errors for word in line.split() if word.startswith("roster_")}
    return secret


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


@pytest.mark.anyio
async def test_streams_that_would_never_end_are_ended_properly(
    opened: Callable[..., Roster], calendar: Scripted
) -> None:
    """A subscription with its result, a session's own stream without an error, and a request that is not answered yet
    with status 503."""
    calendar.says(tools={"add_event": {"do": "hang"}})
    ended: list[str] = []
    responses: list[httpx2.Response] = []
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with (
            served(opened(calendar, http={"stop_grace_s": 0.1}), Mode.TRANSPARENT) as (site, url),
            httpx2.AsyncClient(timeout=DEADLINE_S) as http,
            client_at(url) as client,
        ):
            listening = anyio.Event()

            async def listen_on() -> None:
                async with client.listen(tools_list_changed=True) as stream:
                    listening.set()
                    async for _ in stream:
                        pass
                ended.append("subscription")

            async def stay() -> None:
                session = await _opened_by_hand(url, http)
                async with http.stream("GET", url, headers=session.headers) as response:
                    staying.set()
                    await response.aread()
                ended.append("stream")

            async def hang() -> None:
                responses.append(await alone(http, url, "tools/call", name="calendar__add_event"))

            staying = anyio.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(listen_on)
                group.start_soon(stay)
                await listening.wait()
                await staying.wait()
                site.server.stop_calls()
                await until(lambda: ended == ["subscription"])
                group.start_soon(hang)
                await until(calendar.calls)
                site.gate.end()
    assert sorted(ended) == ["stream", "subscription"]
    assert (responses[0].status_code, responses[0].json()["error"]["message"]) == (503, "Roster is stopping")


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


def test_a_token_is_in_no_log_error_status_or_database(home: Home, run: Run, calendar: Scripted) -> None:
    """Said once on stderr when it is made, and never again: not by a process that says all it can, not to a client, not
    in any file. Nor is anything of a query."""
    settings = {"mcpServers": {"calendar": calendar.entry()}, "http": {"require_token": True}}
    first = _served(home, settings, "--five")
    try:
        _where(first)
        secret = _secret(first)
    finally:
        first.ended(first.process.terminate if sys.platform != "win32" else first.process.kill)
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
    """One is made at the first start and shown this once; that nothing is encrypted is said every time."""
    home.config.write_text(json.dumps({"mcpServers": {"calendar": calendar.entry()}}))
    asked = []

    async def serve_nobody(site: web.Web, sock: socket.socket, on_ready: Callable[[], None]) -> None:
        asked.append(site.gate._rules)
        on_ready()

    monkeypatch.setattr(web, "serve_web", serve_nobody)
    serve.serve_http(":0")
    monkeypatch.setattr(serve, "is_loopback", lambda _: False)
    for _ in range(2):
        serve.serve_http(":0")
    err = capsys.readouterr().err.splitlines()
    assert [(rules.token, rules.pages_here) for rules in asked] == [(False, True), (True, False), (True, False)]
    assert [line.split(" http")[0] for line in err if "serving" in line] == ["roster: serving"] * 3
    assert len([line for line in err if "shown this once" in line and "roster_" in line]) == 1
    assert len([line for line in err if "nothing here is encrypted" in line]) == 2


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
