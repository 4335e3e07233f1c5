"""Many clients over HTTP at once: nobody gets what is another's, and none holds up the others."""

from __future__ import annotations

import json
import socket
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
    client_at,
    opened_by_hand,
    outcomes,
    raw_request,
    served,
)

from roster.config import Mode
from roster.server import Connection, RosterServer
from roster.tokens import Tokens
from roster.web import Visitors


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


@pytest.mark.anyio
async def test_eight_clients_with_twenty_five_calls_each_get_their_own_answers(
    opened: Open, calendar: Scripted
) -> None:
    """All at once over one server, of both eras, each with its token. Every answer is that of the call it is for, every
    call counts for its own draft, and another client's draft is nobody's."""
    roster = opened(calendar)
    secrets = [Tokens(roster.writer.db).add(f"t{n}", 1.0) for n in range(8)]
    drafts: dict[int, str] = {}
    every = anyio.Event()

    async def use(url: str, n: int) -> None:
        async with client_at(url, "auto" if n % 2 else "legacy", secrets[n]) as client:
            drafts[n] = (await client.call_tool("draft", {"need": NEED})).structured_content["draft_id"]
            if len(drafts) == 8:
                every.set()
            await every.wait()

            async def call(i: int) -> None:
                args = {"who": n, "i": i, "text": f"{n}.{i} " * 200}
                wanted = {"tool": "calendar__add_event", "args": args, "draft_id": drafts[n]}
                reply = await client.call_tool("call", wanted)
                assert json.loads(reply.content[0].text)["arguments"] == args

            async with anyio.create_task_group() as group:
                for i in range(25):
                    group.start_soon(call, i)
            other = {"tool": "calendar__list_events", "draft_id": drafts[(n + 2) % 8]}
            assert not (await client.call_tool("call", other)).is_error

    with plainly(), anyio.fail_after(2 * DEADLINE_S):
        async with served(roster, token=True) as (_, url), anyio.create_task_group() as group:
            for n in range(8):
                group.start_soon(use, url, n)
    assert len(set(drafts.values())) == 8
    assert sorted(outcomes(roster)) == [
        *[("calendar__add_event", "success", 1)] * 200,
        *[("calendar__list_events", "success", 0)] * 8,
    ]


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
