"""Transparent mode through the protocol, in memory and in both of its eras: every tool, and nothing added."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from fakes import tool
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.shared.exceptions import MCPError
from scripted_backend import Scripted, raw, running, until

from roster import app
from roster.app import Roster
from roster.config import Home, Mode
from roster.server import RosterServer

pytestmark = pytest.mark.anyio

STRANGE = {
    "description": "Does ü",
    "title": "T",
    "annotations": {"readOnlyHint": True, "futureHint": {"a": None}},
    "inputSchema": {"type": "object", "$defs": {"x": {"type": "null"}}, "properties": {"x": {"$ref": "#/$defs/x"}}},
    "outputSchema": {"type": "object", "x-own": [1.0, None]},
    "icons": [{"src": "data:,", "later": 1}],
    "execution": {"taskSupport": "optional"},
    "_meta": {"org.example/kept": [None]},
    "somethingNew": {"deep": {"er": None}},
}


@pytest.fixture(params=["legacy", "auto"])
def era(request: pytest.FixtureRequest) -> str:
    """How a client opens its connection: with a handshake, or with none where the server can do without."""
    return str(request.param)


def client_of(roster: Roster, era: str = "auto", **more: Any) -> Client:
    """A client of a transparent server over this Roster, JSON on the wire in both eras."""
    return Client(InMemoryTransport(RosterServer(roster, Mode.TRANSPARENT).server), mode=era, **more)


async def test_every_row_is_listed_as_it_came_but_for_its_name(home: Home, tmp_path: Path, era: str) -> None:
    """Unknown keys, nulls and nested schemas too, by server and in each server's own order."""
    rows = [{"name": "zebra", **STRANGE}, tool("ant", "x")]
    zoo, ark = Scripted(tmp_path, "zoo", rows=rows), Scripted(tmp_path, "ark", rows=[tool("ant", "y")])

    async with (
        running(home, {"zoo": zoo.entry(), "ark": ark.entry()}, settled=False) as roster,
        client_of(roster, era) as client,
    ):
        listed = (await raw(client, "tools/list"))["tools"]
    assert listed == [
        {**tool("ant", "y"), "name": "ark__ant"},
        {"name": "zoo__zebra", **STRANGE},
        {**tool("ant", "x"), "name": "zoo__ant"},
    ]
    assert list(listed[1]) == ["name", *STRANGE]


@pytest.mark.report("IBM/mcp-context-forge#4042", "IBM/mcp-context-forge#5493")
async def test_results_and_error_results_have_nothing_added(home: Home, tmp_path: Path, era: str) -> None:
    """`isError` or not: the backend's own blocks and keys, and no word of ours."""
    results = {
        "fails": {"content": [{"type": "text", "text": "no"}], "isError": True, "structuredContent": {"x": None}},
        "crashes": {"content": [{"type": "text", "text": "Segmentation fault, retry in 5 s"}], "isError": True},
        "declares": {"content": [], "isError": True, "_meta": {"failure": {"kind": "jam", "message": "x"}}},
        "odd": {"content": [{"type": "hologram", "z": 1}], "isError": False, "_meta": {"a/b": 1}, "new": None},
    }
    tools = {name: {"do": "result", "result": result} for name, result in results.items()}
    server = Scripted(tmp_path, "box", rows=[tool(name) for name in results], tools=tools)

    async with running(home, {"box": server.entry()}) as roster, client_of(roster, era) as client:
        for name, result in results.items():
            got = await raw(client, "tools/call", name=f"box__{name}", arguments={})
            got.pop("resultType", None)
            if meta := {k: v for k, v in got.pop("_meta", {}).items() if not k.startswith("io.modelcontext")}:
                got["_meta"] = meta
            assert got == result


@pytest.mark.report("DataRecce/recce#1504")
async def test_a_protocol_error_of_a_backend_arrives_as_one(home: Home, tmp_path: Path, era: str) -> None:
    """Code, message and data as the backend sent them."""
    error = {"code": -32050, "message": "grün", "data": {"why": [None, 1]}}
    server = Scripted(tmp_path, "box", rows=[tool("t")], tools={"t": {"do": "error", "error": error}})

    async with running(home, {"box": server.entry()}) as roster, client_of(roster, era) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("box__t", {})
    assert (caught.value.code, caught.value.message, caught.value.data) == tuple(error.values())


async def test_a_backend_that_dies_in_a_call_is_an_error_result_in_words(home: Home, tmp_path: Path, era: str) -> None:
    """It never answered, so there is no error of its own to pass on; the words name the server, and nothing else."""
    server = Scripted(tmp_path, "box", rows=[tool("t")], tools={"t": {"do": "exit"}})

    async with running(home, {"box": server.entry()}) as roster, client_of(roster, era) as client:
        reply = await client.call_tool("box__t", {})
    assert reply.is_error
    (block,) = reply.content
    assert isinstance(block, types.TextContent)
    assert block.text.startswith("box gave no answer to t")


async def test_an_unknown_tool_is_a_protocol_error(home: Home, tmp_path: Path, era: str) -> None:
    """-32602 with the name, as a server of one's own would say it."""
    server = Scripted(tmp_path, "box", rows=[tool("t")])

    async with running(home, {"box": server.entry()}) as roster, client_of(roster, era) as client:
        for name in ("box__u", "t", "draft"):
            with pytest.raises(MCPError, match=name) as caught:
                await client.call_tool(name, {})
            assert caught.value.code == -32602


@pytest.mark.report("docker/mcp-gateway#316", "docker/mcp-gateway#368")
async def test_a_tool_may_be_called_before_anything_was_listed(home: Home, tmp_path: Path, era: str) -> None:
    """On the very first start too: the call waits for its server's first listing, as it would for the server."""
    server = Scripted(tmp_path, "box", rows=[tool("t")])

    async with running(home, {"box": server.entry()}, settled=False) as roster, client_of(roster, era) as client:
        assert not (await client.call_tool("box__t", {})).is_error


@pytest.mark.report("docker/mcp-gateway#11", "MervinPraison/PraisonAI#2711")
async def test_equal_tool_names_of_two_servers_are_both_callable(home: Home, tmp_path: Path, era: str) -> None:
    """Also those that would read the same once joined: `a` with `b__c`, and `a__b` with `c`."""
    servers = [
        Scripted(tmp_path, "a", rows=[tool("same"), tool("b__c")]),
        Scripted(tmp_path, "a__b", rows=[tool("same"), tool("c")]),
    ]

    async with (
        running(home, {server.name: server.entry() for server in servers}) as roster,
        client_of(roster, era) as client,
    ):
        listed = [one.name for one in (await client.list_tools()).tools]
        for name in listed:
            await client.call_tool(name, {"as": name})
    assert len(set(listed)) == 4
    called = [(server.name, call["name"]) for server in servers for call in server.calls()]
    assert called == [("a", "same"), ("a", "b__c"), ("a__b", "same"), ("a__b", "c")]


@pytest.mark.report("sparfenyuk/mcp-proxy#45", "google-gemini/gemini-cli", "peakflo/20x#533")
async def test_long_and_foreign_names_fit_every_client_and_still_lead_home(
    home: Home, tmp_path: Path, era: str
) -> None:
    """Listed names keep to `[A-Za-z0-9_-]` and leave room for a client's prefix; the backend hears its own name."""
    names = ["x" * 200, "x" * 199 + "y", "日本語", "日本人", "with space", "with/space", "a.b", "naïve", "-", "🎉"]
    server = Scripted(tmp_path, "s", rows=[tool(name) for name in names])

    async with running(home, {"Mein Server ü": server.entry()}) as roster, client_of(roster, era) as client:
        listed = [one.name for one in (await client.list_tools()).tools]
        for name in listed:
            await client.call_tool(name, {})
    assert len(set(listed)) == len(names)
    assert [name for name in listed if not re.fullmatch(r"[A-Za-z0-9_-]+", f"mcp__roster__{name}")] == []
    assert max(len(f"mcp__roster__{name}") for name in listed) <= 60
    assert [call["name"] for call in server.calls()] == names


async def test_a_changed_definition_is_listed_and_called_as_it_is_now(home: Home, tmp_path: Path) -> None:
    """Quarantine keeps a card out of drafts only; here the client decides."""
    server = Scripted(tmp_path, "box", rows=[tool("t", "old")])

    async with running(home, {"box": server.entry()}) as roster, client_of(roster) as client:
        server.says(rows=[tool("t", "new")])
        await until(lambda: roster.writer.registry.held("box__t"))
        (listed,) = (await raw(client, "tools/list"))["tools"]
        reply = await client.call_tool("box__t", {})
    assert listed["description"] == "new"
    assert not reply.is_error


@pytest.mark.report("PrefectHQ/fastmcp#4161", "envoyproxy/ai-gateway#1619")
async def test_a_legacy_client_is_notified_of_a_changed_list(home: Home, tmp_path: Path) -> None:
    """One that asked for the list before hears of it, and then sees the new one."""
    server = Scripted(tmp_path, "box", rows=[tool("old")])
    heard: list[Any] = []

    async def hear(message: Any) -> None:
        heard.append(message)

    async with (
        running(home, {"box": server.entry()}) as roster,
        client_of(roster, "legacy", message_handler=hear) as client,
    ):
        await client.list_tools()
        server.says(rows=[tool("old"), tool("new")])
        await until(lambda: any(isinstance(one, types.ToolListChangedNotification) for one in heard))
        assert [one.name for one in (await client.list_tools()).tools] == ["box__old", "box__new"]


@pytest.mark.report("PrefectHQ/fastmcp#4161")
async def test_a_listening_client_is_told_of_a_changed_list(home: Home, tmp_path: Path) -> None:
    """In the newer era a client subscribes; the event comes on its stream."""
    server = Scripted(tmp_path, "box", rows=[tool("old")])

    async with running(home, {"box": server.entry()}) as roster, client_of(roster, cache=None) as client:
        async with client.listen(tools_list_changed=True) as events:
            server.says(rows=[tool("new")])
            async for event in events:
                assert type(event).__name__ == "ToolsListChanged"
                break
        assert [one.name for one in (await client.list_tools()).tools] == ["box__new"]


@pytest.mark.report("metatool-ai/metamcp#140", "metatool-ai/metamcp#350")
async def test_a_hung_server_does_not_keep_the_list_waiting_for_long(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first listing is waited for briefly; what comes later is announced."""
    monkeypatch.setattr(app, "PATIENCE_S", 0.3)
    gate = tmp_path / "gate"
    quick = Scripted(tmp_path, "quick", rows=[tool("t")])
    slow = Scripted(tmp_path, "slow", rows=[tool("t")], start_when=gate)
    changed = anyio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    async with running(home, {"quick": quick.entry(), "slow": slow.entry()}, settled=False) as roster:
        await roster.pool["quick"].settled()
        async with client_of(roster, "legacy", message_handler=hear) as client:
            assert [one.name for one in (await client.list_tools()).tools] == ["quick__t"]
            gate.touch()
            await changed.wait()
            assert [one.name for one in (await client.list_tools()).tools] == ["quick__t", "slow__t"]
