"""What a client of the older era missed when its stream broke: it gets it when it comes back, and nobody else does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest
from fakes import tool
from mcp_types import JSONRPCNotification, JSONRPCResponse
from scripted_backend import DEADLINE_S, Scripted, plainly, until
from web_client import CALENDAR, Open, Session, client_at, cuttable, opened_by_hand, served

from roster import resuming
from roster.config import Mode
from roster.resuming import Events, SessionEvents
from roster.tokens import Tokens

REFUSED = "what came after this event is not kept (any more): ask again"


def slow(folder: Path, steps: int = 2) -> tuple[Scripted, Path]:
    """A server whose tool reports progress, and answers once a file is there."""
    gate = folder / "gate"
    tools = {"slow": {"do": "progress", "steps": steps, "then": str(gate)}}
    return Scripted(folder, "box", rows=[tool("slow")], tools=tools), gate


def call(token: str = "p") -> dict[str, Any]:
    params = {"name": "box__slow", "arguments": {}, "_meta": {"progressToken": token}}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


@asynccontextmanager
async def stream(
    session: Session, body: dict[str, Any] | None = None, after: str | None = None
) -> AsyncIterator[AsyncIterator[tuple[str, dict[str, Any] | None]]]:
    """The events of a response, ids and messages, as they come."""
    headers = {**session.headers, **({"Last-Event-ID": after} if after else {})}
    content = json.dumps(body).encode() if body else None
    async with session.http.stream("POST" if body else "GET", session.url, content=content, headers=headers) as got:
        assert got.status_code == 200

        async def events() -> AsyncIterator[tuple[str, dict[str, Any] | None]]:
            id_ = ""
            async for line in got.aiter_lines():
                if line.startswith("id:"):
                    id_ = line.removeprefix("id:").strip()
                elif line.startswith("data:"):
                    said = line.removeprefix("data:").strip()
                    yield id_, json.loads(said) if said else None

        yield events()


def kinds(events: list[tuple[str, dict[str, Any] | None]]) -> list[Any]:
    """What is told of each event: a step of progress, a method, or the answer."""
    said = [message for _, message in events if message is not None]
    return [m["params"]["progress"] if "method" in m else f"answer {m['id']}" for m in said]


@pytest.mark.anyio
async def test_a_call_whose_stream_broke_is_answered_when_its_client_comes_back(opened: Open, tmp_path: Path) -> None:
    """From the last event it saw: nothing twice, nothing missing, in order; what came while it was away, and what comes
    when it is back. Then that response ends."""
    box, gate = slow(tmp_path)
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(opened(box), Mode.TRANSPARENT) as (_, url), httpx2.AsyncClient(timeout=DEADLINE_S) as http:
            session = await opened_by_hand(url, http)
            await session.ask("tools/list")
            seen: list[Any] = []
            async with stream(session, call()) as events:
                async for event in events:
                    seen.append(event)
                    if len(seen) == 2:  # the empty one at the beginning, and one step
                        break
            back: list[Any] = []
            async with stream(session, after=seen[-1][0]) as events:
                async for event in events:
                    back.append(event)
                    if len(back) == 1:
                        gate.touch()
            again = [event async for event in _all(session, seen[0][0])]
    assert kinds(seen) + kinds(back) == [1, 2, "answer 7"]
    assert kinds(again) == [1, 2, "answer 7"]
    assert len({id_ for id_, _ in seen + back}) == 4
    assert len(box.calls()) == 1


async def _all(session: Session, after: str) -> AsyncIterator[Any]:
    async with stream(session, after=after) as events:
        async for event in events:
            yield event


@pytest.mark.anyio
async def test_an_sdk_client_survives_a_lost_connection(opened: Open, tmp_path: Path) -> None:
    """Its call is answered as if nothing had been: the connection was cut while it waited."""
    box, gate = slow(tmp_path)
    steps: list[float] = []

    async def on_progress(step: float, *_: Any) -> None:
        steps.append(step)

    with plainly(), anyio.fail_after(DEADLINE_S):
        async with (
            served(opened(box), Mode.TRANSPARENT) as (_, url),
            cuttable(url) as (far, cut),
            client_at(far, "legacy") as client,
        ):
            await client.list_tools()
            async with anyio.create_task_group() as group:

                async def wait() -> None:
                    reply = await client.call_tool("box__slow", {}, progress_callback=on_progress)
                    assert json.loads(reply.content[0].text)["tool"] == "slow"

                group.start_soon(wait)
                await until(lambda: len(steps) == 2)
                cut()
                gate.touch()
    assert len(box.calls()) == 1
    assert box.events("cancelled") == []


@pytest.mark.anyio
async def test_news_that_came_meanwhile_is_told_afterwards(opened: Open, calendar: Scripted) -> None:
    """A changed list, on the stream of what comes unasked; which then goes on."""
    news: list[Any] = []
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with (
            served(opened(calendar), Mode.TRANSPARENT) as (site, url),
            httpx2.AsyncClient(timeout=DEADLINE_S) as http,
        ):
            session = await opened_by_hand(url, http)
            async with anyio.create_task_group() as group:

                async def first() -> None:
                    async with stream(session) as events:
                        async for event in events:
                            news.append(event)
                            return

                group.start_soon(first)
                await until(lambda: site._sessions._open[session.headers["Mcp-Session-Id"]].streams)
                calendar.says(rows=[*CALENDAR, tool("new")])
            (own,) = site._sessions._open.values()
            calendar.says(rows=CALENDAR)
            await until(lambda: len(own.events._kept) == 2)
            async with stream(session, after=news[0][0]) as events:
                news.append(await anext(events))
                calendar.says(rows=[*CALENDAR, tool("newer")])
                news.append(await anext(events))
    assert [message["method"] for _, message in news] == ["notifications/tools/list_changed"] * 3
    assert len({id_ for id_, _ in news}) == 3


@pytest.mark.anyio
async def test_the_newest_stream_of_a_session_is_the_one_that_counts(opened: Open, calendar: Scripted) -> None:
    """A client that lost its connection is not told for minutes that it has one: the old one ends, properly."""
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with (
            served(opened(calendar), Mode.TRANSPARENT) as (site, url),
            httpx2.AsyncClient(timeout=DEADLINE_S) as http,
        ):
            session = await opened_by_hand(url, http)
            (own,) = site._sessions._open.values()
            async with stream(session) as old:
                await until(lambda: own.streams)
                async with stream(session) as new:
                    assert [event async for event in old] == []
                    calendar.says(rows=[*CALENDAR, tool("new")])
                    _, message = await anext(new)
    assert message is not None
    assert message["method"] == "notifications/tools/list_changed"


@pytest.mark.anyio
async def test_of_streams_that_are_asked_for_all_at_once_one_is_left(opened: Open, calendar: Scripted) -> None:
    """The others end; none is an error, and the session goes on."""
    ended: list[int] = []
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with (
            served(opened(calendar), Mode.TRANSPARENT) as (site, url),
            httpx2.AsyncClient(timeout=DEADLINE_S) as http,
            anyio.create_task_group() as group,
        ):
            session = await opened_by_hand(url, http)

            async def follow() -> None:
                async with http.stream("GET", url, headers=session.headers) as response:
                    await response.aread()
                ended.append(response.status_code)

            for _ in range(8):
                group.start_soon(follow)
            await until(lambda: len(ended) == 7)
            (own,) = site._sessions._open.values()
            assert len(own.streams) == own.requests == 1
            assert "tools" in (await session.ask("tools/list"))["result"]
            group.cancel_scope.cancel()
    assert set(ended) <= {200, 409}


@pytest.mark.anyio
async def test_nobody_is_sent_what_was_meant_for_another_session(opened: Open, tmp_path: Path) -> None:
    """With an id of somebody else's event: in one's own session it means one's own event or none, and the other's
    session is one that does not exist. Also for the same token; also while both have calls of the same id."""
    box, gate = slow(tmp_path)
    roster = opened(box)
    ann, bob = (Tokens(roster.writer.db).add(name, 1.0) for name in ("ann", "bob"))
    answers: list[Any] = []
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with (
            served(roster, Mode.TRANSPARENT, token=True) as (_, url),
            httpx2.AsyncClient(timeout=DEADLINE_S) as http,
        ):
            sessions = [Session(http, url, {"Authorization": f"Bearer {secret}"}) for secret in (ann, ann, bob)]
            ids = []
            for n, session in enumerate(sessions):
                await session.open()
                await session.ask("tools/list")
                async with stream(session, call(f"of {n}")) as events:
                    ids.append([await anext(events) for _ in range(2)][-1][0])
            alone = Session(http, url, {"Authorization": f"Bearer {bob}"})
            await alone.open()
            stolen = {**alone.headers, "Mcp-Session-Id": sessions[0].headers["Mcp-Session-Id"], "Last-Event-ID": ids[0]}
            answers.append(await http.get(url, headers=stolen))
            answers.append(await http.get(url, headers={**alone.headers, "Last-Event-ID": ids[0].replace("-", "9-")}))
            gate.touch()
            for n, session in enumerate(sessions):
                got = [message async for _, message in _all(session, ids[0]) if message is not None]
                said = [message["params"]["progressToken"] for message in got if "method" in message]
                assert set(said) <= {f"of {n}"}
                assert kinds([("", message) for message in got])[-1] == "answer 7"
    assert [(answer.status_code, answer.json()["error"]["message"]) for answer in answers] == [
        (404, "there is no such session (any more): open another one"),
        (400, REFUSED),
    ]


@pytest.mark.anyio
async def test_an_event_that_is_forgotten_is_said_to_be(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 400 with what to do, at once: no empty stream, and no wait. So for one that never was."""
    monkeypatch.setattr(resuming, "KEEP_S", -1.0)
    monkeypatch.setattr("roster.web.LOOK_AGAIN_S", 0.02)
    box, gate = slow(tmp_path)
    gate.touch()
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with (
            served(opened(box), Mode.TRANSPARENT) as (site, url),
            httpx2.AsyncClient(timeout=DEADLINE_S) as http,
        ):
            session = await opened_by_hand(url, http)
            await session.ask("tools/list")
            async with stream(session, call()) as events:
                seen = [event async for event in events]
            (own,) = site._sessions._open.values()
            await until(lambda: not own.events._kept)
            for id_ in (seen[1][0], "1-99", "99-1", "junk", "-", "0-0"):
                headers = {**session.headers, "Last-Event-ID": id_}
                answer = await http.get(url, headers=headers)
                assert (answer.status_code, answer.json()["error"]["message"]) == (400, REFUSED)
            assert (await session.ask("tools/list"))["result"]["tools"]


# ------------------------------------------------------------------------------------------------ what is kept


def note(text: str = "x") -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"data": text})


def answer(id_: int = 1, text: str = "x") -> JSONRPCResponse:
    return JSONRPCResponse(jsonrpc="2.0", id=id_, result={"said": text})


@pytest.mark.anyio
async def test_of_one_session_the_oldest_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more events than are kept, nor more bytes; a stream goes on with what is left of it."""
    monkeypatch.setattr(resuming, "MOST_EVENTS", 3)
    monkeypatch.setattr(resuming, "MOST_BYTES", 1000)
    session = SessionEvents()
    ids = [session.add("1", message, 0.0) for message in (None, *(note(str(n)) for n in range(4)), answer())]
    left = [(id_, message) async for id_, message in session.after(ids[0])]
    assert [id_ for id_, _ in left] == ids[3:]
    assert session.size_bytes == sum(
        len(message.model_dump_json(by_alias=True, exclude_unset=True)) for _, message in left
    )
    session.add("2", answer(2, "y" * 940), 0.0)
    assert session.stream_of(ids[0]) is None
    assert session.size_bytes < 1000
    too_large = session.add("3", answer(3, "y" * 1001), 0.0)
    assert (session.stream_of(too_large), session.size_bytes) == (None, 0)


@pytest.mark.anyio
async def test_of_all_sessions_the_one_that_holds_most_loses_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that floods costs another nothing; what is too old goes in any case."""
    monkeypatch.setattr(resuming, "ALL_BYTES", 2000)
    events, greedy, modest = Events(), SessionEvents(), SessionEvents()
    with events.of(modest):
        one = await events.store_event("1", answer())
    with events.of(greedy):
        for _ in range(100):
            await events.store_event("1", note("z" * 50))
    assert modest.stream_of(one) == 1
    assert 0 < modest.size_bytes + greedy.size_bytes <= 2000
    assert events._size_bytes == modest.size_bytes + greedy.size_bytes
    events.forget(greedy)
    assert events._size_bytes == modest.size_bytes
    events.tidy(anyio.current_time() + resuming.KEEP_S + 1)
    assert (modest.stream_of(one), events._size_bytes) == (None, 0)


@pytest.mark.anyio
async def test_a_request_id_used_twice_is_two_streams() -> None:
    """Whoever comes back for the first gets nothing of the second, and both are forgotten in the end."""
    session = SessionEvents()
    first = session.add("1", None, 0.0)
    session.add("1", answer(text="first"), 0.0)
    second = session.add("1", None, 1.0)
    session.add("1", answer(text="second"), 1.0)
    for id_, text in ((first, "first"), (second, "second")):
        assert [message.result["said"] async for _, message in session.after(id_)] == [text]
    third = session.add("1", None, 2.0)
    session.add("1", None, 2.0)
    assert session.stream_of(third) is None
    session.forget_before(3.0)
    assert [session.stream_of(id_) for id_ in (first, second)] == [None, None]


@pytest.mark.anyio
async def test_what_comes_while_a_stream_is_resumed_comes_once_and_in_order() -> None:
    """However slowly it is taken; and a session that ends leaves nobody waiting."""
    session, taken = SessionEvents(), []
    start = session.add("1", None, 0.0)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:

            async def take() -> None:
                async for id_, _ in session.after(start):
                    await anyio.lowlevel.checkpoint()
                    taken.append(id_)

            group.start_soon(take)
            made = []
            for n in range(50):
                made.append(session.add("1", note(), 0.0))
                if n % 3 == 0:
                    await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            session.close()
    assert taken == made
