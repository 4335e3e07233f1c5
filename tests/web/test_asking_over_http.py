"""HTTP at both ends, two clients at once: questions, progress and cancellation find the call they belong to."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import mcp_types as types
import pytest
from asgi import listening
from mcp import Client
from mcp.server.lowlevel.server import Server
from mcp.shared.message import ServerMessageMetadata
from scripted_backend import DEADLINE_S, plainly, until
from web_client import Open, client_at, served

from roster.config import Mode

WAYS = [Mode.TRANSPARENT, Mode.FIVE]


class Asker:
    """A server over HTTP with one tool, which asks its client three things once two calls are there."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.cancelled: list[str] = []
        self.both = anyio.Event()
        self.app = Server("asker", on_list_tools=self._list, on_call_tool=self._call).streamable_http_app()

    async def _list(self, _: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[types.Tool(name=name, description=f"{name} somebody", input_schema={"type": "object"})
                   for name in ("ask", "hang")]
        )  # fmt: skip

    async def _call(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        who = (params.arguments or {})["who"]
        self.calls.append(who)
        if params.name == "hang":
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                self.cancelled.append(who)
                raise
        if len(self.calls) == 2:
            self.both.set()
        await self.both.wait()
        elicit = types.ElicitRequestFormParams(message=who, requested_schema={"type": "object", "properties": {}})
        sample = types.CreateMessageRequestParams(
            messages=[types.SamplingMessage(role="user", content=types.TextContent(type="text", text=who))],
            max_tokens=9,
        )
        said = []
        for step, (request, result) in enumerate(
            [
                (types.ElicitRequest(params=elicit), types.ElicitResult),
                (types.CreateMessageRequest(params=sample), types.CreateMessageResult),
                (types.ListRootsRequest(), types.ListRootsResult),
            ]
        ):
            answer = await ctx.session.send_request(
                request, result, metadata=ServerMessageMetadata(related_request_id=ctx.request_id)
            )
            said.append(answer.model_dump(mode="json", exclude_none=True))
            await ctx.session.report_progress(step + 1, 3, who)
        return types.CallToolResult(content=[types.TextContent(type="text", text=json.dumps(said))])


def answering(who: str, asked: list[str]) -> dict[str, Any]:
    """The callbacks of a client that notes what it is asked, and says its name."""

    async def elicit(_: Any, params: Any) -> types.ElicitResult:
        asked.append(f"{who}: {params.message}")
        return types.ElicitResult(action="accept", content={"name": who})

    async def sample(_: Any, params: Any) -> types.CreateMessageResult:
        asked.append(f"{who}: {params.messages[0].content.text}")
        return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text=who), model="m")

    async def roots(_: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=f"file:///{who}")])

    return {"elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": roots}


def calling(client: Client, mode: Mode) -> Callable[..., Any]:
    """How a tool is called in a mode."""

    async def call(name: str, who: str, **more: Any) -> types.CallToolResult:
        if mode is Mode.FIVE:
            return await client.call_tool("call", {"tool": f"box__{name}", "args": {"who": who}}, **more)
        return await client.call_tool(f"box__{name}", {"who": who}, **more)

    return call


@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
@pytest.mark.parametrize("mode", WAYS)
async def test_two_clients_are_each_asked_about_their_own_call(opened: Open, mode: Mode, era: str) -> None:
    """Elicitation, sampling and roots, both calls under way at once: each server's question reaches the client whose
    call it is about, the answer comes back to that call, and so does its progress."""
    asker, asked = Asker(), list[str]()
    heard: dict[str, list[tuple[float, str | None]]] = {"ann": [], "bob": []}
    results: dict[str, Any] = {}
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with listening(asker.app) as address:
            roster = opened(more={"box": {"type": "http", "url": f"{address}/mcp"}})
            async with served(roster, mode) as (_, url), anyio.create_task_group() as group:

                async def use(who: str) -> None:
                    async def on_progress(step: float, _: float | None, message: str | None) -> None:
                        heard[who].append((step, message))

                    async with client_at(url, era, **answering(who, asked)) as client:
                        await client.list_tools()
                        reply = await calling(client, mode)("ask", who, progress_callback=on_progress)
                        results[who] = json.loads(reply.content[0].text)

                group.start_soon(use, "ann")
                group.start_soon(use, "bob")
    assert sorted(asked) == ["ann: ann", "ann: ann", "bob: bob", "bob: bob"]
    for who, (elicited, sampled, roots) in results.items():
        assert elicited["content"] == {"name": who}
        assert sampled["content"]["text"] == who
        assert [root["uri"] for root in roots["roots"]] == [f"file:///{who}"]
    assert results.keys() == heard.keys()
    if era == "legacy":
        assert {who: sorted(steps) for who, steps in heard.items()} == {
            who: [(1, who), (2, who), (3, who)] for who in ("ann", "bob")
        }
    assert all(message == who for who, steps in heard.items() for _, message in steps)


@pytest.mark.anyio
@pytest.mark.parametrize("mode", WAYS)
async def test_only_the_call_that_is_given_up_is_cancelled(opened: Open, mode: Mode, era: str) -> None:
    """By a notification in the older era, by closing the connection in the newer one; another client's call goes on."""
    asker = Asker()
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with listening(asker.app) as address:
            roster = opened(more={"box": {"type": "http", "url": f"{address}/mcp"}})
            async with (
                served(roster, mode) as (_, url),
                client_at(url, era) as ann,
                client_at(url, era) as bob,
                anyio.create_task_group() as group,
            ):
                for client in (ann, bob):
                    await client.list_tools()
                group.start_soon(calling(bob, mode), "hang", "bob")
                async with anyio.create_task_group() as stopping:
                    stopping.start_soon(calling(ann, mode), "hang", "ann")
                    await until(lambda: sorted(asker.calls) == ["ann", "bob"])
                    stopping.cancel_scope.cancel()
                await until(lambda: asker.cancelled)
                assert asker.cancelled == ["ann"]
                assert [tool.name for tool in (await ann.list_tools()).tools]
                assert asker.cancelled == ["ann"]
                group.cancel_scope.cancel()
