"""Roster over HTTP, through real sockets: both eras, every version, and an end that clients understand."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import httpx2
import pytest
from fakes import tool
from scripted_backend import DEADLINE_S, Scripted, plainly, until
from web_client import (
    NEED,
    Open,
    Session,
    alone,
    answer_in,
    client_at,
    ids,
    opened_by_hand,
    outcomes,
    served,
)

from roster.config import Mode


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
