"""Roster over HTTP, through real sockets: both eras, many clients at once, and none that holds up the others."""

from __future__ import annotations

import gc
import json
import socket
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from fakes import tool
from mcp import Client
from mcp.shared.subscriptions import ToolsListChanged
from mcp_types import Implementation, ToolListChangedNotification
from scripted_backend import DEADLINE_S, Scripted, plainly, until
from web_client import (
    CALENDAR,
    NEED,
    Open,
    Session,
    alone,
    answer_in,
    client_at,
    ids,
    initialize,
    opened_by_hand,
    raw_request,
    served,
)

from roster.app import Roster
from roster.config import Mode
from roster.server import Connection, RosterServer
from roster.tokens import Tokens
from roster.web import Visitors


def outcomes(roster: Roster) -> list[tuple[Any, ...]]:
    return roster.writer.db.execute("SELECT card, outcome, drafted FROM outcomes ORDER BY number").fetchall()


# ------------------------------------------------------------------------------------------------ both eras


@pytest.mark.anyio
async def test_a_need_is_drafted_and_called_over_http(opened: Open, calendar: Scripted, era: str) -> None:
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
async def test_a_row_and_a_result_arrive_as_they_came(opened: Open, tmp_path: Path, era: str) -> None:
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
    opened: Open, calendar: Scripted, version: str
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
async def test_half_a_character_costs_nobody_an_answer(opened: Open, calendar: Scripted) -> None:
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
async def test_a_draft_id_means_nothing_in_another_session(opened: Open, calendar: Scripted) -> None:
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
async def test_clients_without_a_session_are_told_apart_by_who_they_are(opened: Open, calendar: Scripted) -> None:
    """In the newer era: by name and by token. The same client finds its draft again, also over another connection."""
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
async def test_progress_and_cancellation_reach_the_call_they_belong_to(opened: Open, tmp_path: Path, era: str) -> None:
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


@pytest.mark.anyio
async def test_a_client_that_does_not_read_holds_nobody_up(opened: Open, tmp_path: Path, calendar: Scripted) -> None:
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
            slow = await opened_by_hand(url, http)
            await slow.ask("tools/list")
            place = httpx2.URL(url)
            with (
                socket.create_connection((place.host, place.port)) as stuck,
                socket.create_connection((place.host, place.port)) as deaf,
            ):
                for sock in (stuck, deaf):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                deaf.sendall(raw_request(slow, "GET"))
                call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "box__large"}}
                stuck.sendall(raw_request(slow, "POST", json.dumps(call).encode()))
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
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
@pytest.mark.report("agentic-community/mcp-gateway-registry#1460")
async def test_a_changed_list_reaches_every_client(opened: Open, calendar: Scripted) -> None:
    """Two sessions of the older era and one subscription of the newer one."""
    heard = [anyio.Event() for _ in range(3)]

    def hearer(event: anyio.Event) -> Callable[[Any], Any]:
        async def hear(message: Any) -> None:
            if isinstance(message, ToolListChangedNotification):
                event.set()

        return hear

    async def follow(client: Client) -> None:
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
            group.start_soon(follow, third)
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
    opened: Open, calendar: Scripted, monkeypatch: pytest.MonkeyPatch
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
async def test_one_session_too_many_is_refused(opened: Open, calendar: Scripted) -> None:
    """Until another one has ended."""
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(opened(calendar, http={"max_sessions": 1})) as (_, url), httpx2.AsyncClient() as http:
            first = await opened_by_hand(url, http)
            refused = await Session(http, url).open()
            ended = await http.delete(url, headers=first.headers)
            let_in = await Session(http, url).open()
    assert (refused.status_code, ended.status_code, let_in.status_code) == (503, 200, 200)


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["idle", "ended"])
async def test_a_session_that_is_over_leaves_nothing_behind(opened: Open, calendar: Scripted, how: str) -> None:
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


@pytest.mark.anyio
async def test_streams_that_would_never_end_are_ended_properly(opened: Open, calendar: Scripted) -> None:
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
                session = await opened_by_hand(url, http)
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
    assert responses[0].status_code == 503
    assert "Roster is stopping" in responses[0].json()["error"]["message"]
