"""Clients and backends of different protocol eras: a question finds its way in each of the four pairings."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import mcp_types as types
import pytest
from fakes import tool
from forwarding import connected
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.shared.exceptions import MCPError
from scripted_backend import MODERN_KEYS, Scripted, raw, running, until

from roster.config import Home, Mode
from roster.forwarding import Client as Connected
from roster.forwarding import Voice, bridge
from roster.server import RosterServer

pytestmark = pytest.mark.anyio

FORM = {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
ASKS = [{"method": "elicitation/create", "params": FORM}, {"method": "roots/list"}]
QUESTION = {
    "resultType": "input_required",
    "inputRequests": {"a": {"method": "elicitation/create", "params": FORM}, "b": {"method": "roots/list"}},
    "requestState": "opaque ü",
}
CAN = {"elicitation": {}, "roots": {}}


def older(folder: Path) -> Scripted:
    """A backend of the older era that asks during the call."""
    tools = {"ask": {"do": "ask", "asks": ASKS}}
    return Scripted(folder, "box", rows=[tool("ask"), tool("echo")], tools=tools)


def newer(folder: Path) -> Scripted:
    """A backend of the newer era that answers a call with a question."""
    tools = {"ask": {"do": "input", "result": QUESTION}}
    return Scripted(folder, "box", modern=True, rows=[tool("ask")], tools=tools)


def newer_client(server: RosterServer, **callbacks: Any) -> Client:
    return Client(InMemoryTransport(server.server), mode="auto", **callbacks)


async def elicited(_: Any, __: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def roots(_: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///x")])


async def test_an_older_backend_asks_a_newer_client(home: Home, tmp_path: Path) -> None:
    """Its questions are sent as answers to the call, one after the other, while the call is held at the backend."""
    box = older(tmp_path)

    async with (
        running(home, {"box": box.entry()}) as roster,
        newer_client(
            RosterServer(roster, Mode.TRANSPARENT), elicitation_callback=elicited, list_roots_callback=roots
        ) as client,
    ):
        assert client.protocol_version == "2026-07-28"
        result = await client.call_tool("box__ask", {})
    assert isinstance(result.content[0], types.TextContent)
    assert json.loads(result.content[0].text) == [
        {"result": {"action": "accept", "content": {"name": "Ada"}}},
        {"result": {"roots": [{"uri": "file:///x"}]}},
    ]
    assert len(box.calls()) == 1


async def test_what_is_reported_while_the_client_is_away_to_answer_reaches_it(home: Home, tmp_path: Path) -> None:
    """Between a question and the request that brings its answer there is no request to report with. It waits there,
    and arrives in order."""
    tools = {"ask": {"do": "ask", "asks": ASKS, "meanwhile": 3}}
    box = Scripted(tmp_path, "box", rows=[tool("ask")], tools=tools)
    heard: list[float] = []

    async def away(context: Any, params: Any) -> types.ElicitResult:
        await until(lambda: box.events("meanwhile"))
        await anyio.sleep(0.05)
        return await elicited(context, params)

    async def progress(done: float, _: float | None, __: str | None) -> None:
        heard.append(done)

    async with (
        running(home, {"box": box.entry()}) as roster,
        newer_client(
            RosterServer(roster, Mode.TRANSPARENT), elicitation_callback=away, list_roots_callback=roots
        ) as client,
    ):
        await client.call_tool("box__ask", {}, progress_callback=progress)
        await until(lambda: len(heard) == 6)
    assert heard == [0, 1, 2, 0, 1, 2]


async def test_what_is_said_while_a_client_that_is_back_catches_up_keeps_its_place() -> None:
    """What waited for it goes out first, however slowly it reads."""
    heard: list[float] = []
    reads = anyio.Event()

    async def report(progress: float, *_: Any) -> None:
        await reads.wait()
        heard.append(progress)

    ctx: Any = SimpleNamespace(session=SimpleNamespace(report_progress=report), params={"_meta": {"progressToken": 1}})
    voice = Voice(Connected(), ctx)
    voice.leave()
    for step in range(3):
        await voice.on_progress(step, None, None)

    async with anyio.create_task_group() as group:
        group.start_soon(voice.back, ctx)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(voice.on_progress, 3, None, None)
        await anyio.wait_all_tasks_blocked()
        reads.set()
    await voice.on_progress(4, None, None)
    assert heard == [0, 1, 2, 3, 4]


async def test_a_newer_client_that_declares_nothing_is_not_asked(home: Home, tmp_path: Path) -> None:
    """The backend hears why, and its own answer to that is the result."""
    box = older(tmp_path)

    async with (
        running(home, {"box": box.entry()}) as roster,
        newer_client(RosterServer(roster, Mode.TRANSPARENT)) as client,
    ):
        result = await client.call_tool("box__ask", {})
    assert isinstance(result.content[0], types.TextContent)
    errors = [answer["error"] for answer in json.loads(result.content[0].text)]
    assert [error["code"] for error in errors] == [-32601, -32601]
    assert "does not support elicitation" in errors[0]["message"]


async def test_a_question_nobody_comes_back_for_ends_in_an_error(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backend is told in the end; coming back after that, or with a made-up state, is an error too."""
    monkeypatch.setattr(bridge, "HELD_S", 0.1)
    box = older(tmp_path)

    async with (
        running(home, {"box": box.entry()}) as roster,
        newer_client(
            RosterServer(roster, Mode.TRANSPARENT), elicitation_callback=elicited, list_roots_callback=roots
        ) as client,
    ):
        declared = {types.CLIENT_CAPABILITIES_META_KEY: CAN}
        asked = await raw(client, "tools/call", name="box__ask", arguments={})
        assert "inputRequests" not in asked  # the helper declares nothing
        session: Any = client.session
        request = types.CallToolRequest(params=types.CallToolRequestParams(name="box__ask", _meta=declared))
        first = await session.send_request(request, types.InputRequiredResult)
        assert next(iter(first.input_requests.values())).method == "elicitation/create"
        with pytest.raises(MCPError, match="over"):
            await session.send_request(
                types.CallToolRequest(params=types.CallToolRequestParams(name="box__ask", request_state="roster-x")),
                types.CallToolResult,
            )
        await until(lambda: len(box.events("answered")) >= 3)
    assert "did not come back" in box.events("answered")[2]["answer"]["error"]["message"]


async def test_a_newer_backend_asks_an_older_client(home: Home, tmp_path: Path) -> None:
    """Each question is put to the client, and the request is sent once more with the answers and the state."""
    box = newer(tmp_path)
    answers = {"elicitation/create": {"action": "decline", "later": None}, "roots/list": {"roots": []}}

    async with (
        running(home, {"box": box.entry()}) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT), answers, **CAN) as client,
    ):
        result = await client.request("tools/call", name="box__ask", arguments={"x": None})
    assert client.asked == [("elicitation/create", FORM), ("roots/list", {})]
    said = json.loads(result["content"][0]["text"])
    assert said["inputResponses"] == {"a": answers["elicitation/create"], "b": answers["roots/list"]}
    assert (said["requestState"], said["arguments"], len(box.calls())) == ("opaque ü", {"x": None}, 2)


async def test_what_only_the_newer_era_says_of_a_result_is_kept_from_a_client_of_the_older(
    home: Home, tmp_path: Path
) -> None:
    """Everything else of it arrives, and a client of the newer era gets it all."""
    said = {
        **MODERN_KEYS,
        "content": [],
        "later": None,
        "_meta": {"a/b": None, types.SERVER_INFO_META_KEY: {"name": "x"}},
    }
    bare = {**MODERN_KEYS, "content": [], "_meta": {types.SERVER_INFO_META_KEY: {"name": "x"}}}
    tools = {name: {"do": "result", "result": result} for name, result in (("t", said), ("bare", bare))}
    box = Scripted(tmp_path, "box", modern=True, rows=[tool("t"), tool("bare")], tools=tools)

    async with running(home, {"box": box.entry()}) as roster:
        server = RosterServer(roster, Mode.TRANSPARENT)
        async with connected(server) as client, newer_client(server) as other:
            assert await client.request("tools/call", name="box__t") == {
                "content": [], "later": None, "_meta": {"a/b": None}
            }  # fmt: skip
            assert await client.request("tools/call", name="box__bare") == {"content": []}
            assert await raw(other, "tools/call", name="box__t", arguments={}) == said


async def test_an_older_client_that_cannot_answer_is_told_so(home: Home, tmp_path: Path) -> None:
    """Its call fails with the reason."""
    box = newer(tmp_path)

    async with (
        running(home, {"box": box.entry()}) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT)) as client,
    ):
        with pytest.raises(MCPError, match="does not support elicitation"):
            await client.request("tools/call", name="box__ask")


@pytest.mark.parametrize("mode", [Mode.TRANSPARENT, Mode.FIVE])
async def test_between_two_of_the_newer_era_a_question_passes_untouched(home: Home, tmp_path: Path, mode: Mode) -> None:
    """Both ways: the question with its state, and the retry with its answers."""
    box = newer(tmp_path)
    five = {"name": "call", "arguments": {"tool": "box__ask"}}
    call = five if mode is Mode.FIVE else {"name": "box__ask", "arguments": {}}

    async with running(home, {"box": box.entry()}) as roster, newer_client(RosterServer(roster, mode)) as client:
        asked = await raw(client, "tools/call", **call)
        responses = {"a": {"action": "accept", "later": [None]}, "b": {"roots": []}}
        result = await raw(client, "tools/call", **call, inputResponses=responses, requestState=asked["requestState"])
    assert {key: asked[key] for key in QUESTION} == QUESTION
    said = json.loads(result["content"][0]["text"])
    assert (said["inputResponses"], said["requestState"], said["name"]) == (responses, "opaque ü", "ask")


async def test_a_newer_client_that_cancels_ends_the_call_at_an_older_backend(home: Home, tmp_path: Path) -> None:
    """Though the call is carried out in a task of its own."""
    box = Scripted(tmp_path, "box", rows=[tool("hang")], tools={"hang": {"do": "hang"}})

    async with (
        running(home, {"box": box.entry()}) as roster,
        newer_client(RosterServer(roster, Mode.TRANSPARENT)) as client,
        anyio.create_task_group() as group,
    ):
        group.start_soon(client.call_tool, "box__hang", {})
        await until(lambda: box.calls("hang"))
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await until(lambda: box.events("cancelled"))


async def test_changes_at_a_newer_backend_are_heard_of(home: Home, tmp_path: Path) -> None:
    """There they only come on a stream that somebody opened; the tools are read again, and clients are told."""
    tools = "notifications/tools/list_changed"
    prompts = "notifications/prompts/list_changed"
    box = Scripted(tmp_path, "box", modern=True, rows=[tool("old")], capabilities={"tools": {}, "prompts": {}})

    async with (
        running(home, {"box": box.entry()}) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT)) as client,
    ):
        await until(lambda: [e for e in box.events("request") if e["method"] == "subscriptions/listen"])
        box.says(rows=[tool("new")], announce=[{"method": tools}, {"method": prompts}])
        await client.hears(tools)
        await client.hears(prompts)
        listed = await client.request("tools/list")
    assert [row["name"] for row in listed["tools"]] == ["box__new"]


async def test_a_resource_of_a_newer_backend_is_followed_over_a_stream(home: Home, tmp_path: Path) -> None:
    """An older client subscribes as ever; the stream is closed when nobody follows any more."""
    updated = "notifications/resources/updated"
    capabilities = {"tools": {}, "resources": {"subscribe": True}}
    answers = {"resources/list": {"result": {"resources": [{"uri": "x://a", "name": "a"}], **MODERN_KEYS}}}
    box = Scripted(tmp_path, "box", modern=True, capabilities=capabilities, answers=answers)

    async with (
        running(home, {"box": box.entry()}) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT)) as client,
    ):
        await client.request("resources/subscribe", uri="x://a")
        box.says(announce=[{"method": updated, "params": {"uri": "x://a"}}])
        assert (await client.hears(updated))["uri"] == "x://a"
        await client.request("resources/unsubscribe", uri="x://a")
        await until(lambda: box.events("cancelled"))
