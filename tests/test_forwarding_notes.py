"""What backends announce, what Roster announces, and log levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from fakes import tool
from forwarding import FULL, LEVEL_KEY, connected
from mcp import Client
from mcp.client._memory import InMemoryTransport
from scripted_backend import Scripted, raw, running, until

from roster.config import Home, Mode
from roster.forwarding.logs import prefixed, wants
from roster.offers import announced
from roster.server import RosterServer

pytestmark = pytest.mark.anyio

MESSAGE = "notifications/message"
SAID = {"level": "info", "logger": "core", "data": {"x": [None, "ü"]}, "_meta": {"a/b": None}, "new": 1}


def teller(folder: Path, *notes: dict[str, Any], name: str = "box", **more: Any) -> Scripted:
    """A server whose tool `tell` sends these notifications."""
    tools = {"tell": {"do": "tell", "notes": list(notes)}}
    answers = {"logging/setLevel": {"result": {}}}
    return Scripted(folder, name, capabilities=FULL, rows=[tool("tell")], tools=tools, answers=answers, **more)


def levels(server: Scripted) -> list[str]:
    return [event["params"]["level"] for event in server.events("request") if event["method"] == "logging/setLevel"]


@pytest.mark.parametrize("mode", [Mode.TRANSPARENT, Mode.FIVE])
async def test_a_log_message_arrives_with_the_servers_name(home: Home, tmp_path: Path, mode: Mode) -> None:
    """In front of its own logger's; everything else as it came. In both modes."""
    bare = {"level": "error", "data": "x"}
    box = teller(tmp_path, {"method": MESSAGE, "params": SAID}, {"method": MESSAGE, "params": bare})
    call = {"name": "call", "arguments": {"tool": "box__tell"}} if mode is Mode.FIVE else {"name": "box__tell"}

    async with running(home, {"box": box.entry()}) as roster, connected(RosterServer(roster, mode)) as client:
        await client.request("tools/call", **call)
        await until(lambda: len(client.heard(MESSAGE)) == 2)
    assert client.heard(MESSAGE) == [{**SAID, "logger": "box/core"}, {**bare, "logger": "box"}]


async def test_what_is_said_during_a_call_is_heard_by_its_caller_alone(home: Home, tmp_path: Path) -> None:
    """Outside of calls everybody hears it. Notifications that no version knows too."""
    odd = {"method": "notifications/example.org/odd", "params": {"x": [None]}}
    box = teller(tmp_path, odd)

    async with running(home, {"box": box.entry()}) as roster:
        server = RosterServer(roster, Mode.TRANSPARENT)
        async with connected(server) as ann, connected(server) as bob:
            await bob.request("tools/call", name="box__tell")
            assert await bob.hears(odd["method"]) == odd["params"]
            assert ann.heard(odd["method"]) == []
            box.says(announce=[{"method": MESSAGE, "params": SAID}])
            await ann.hears(MESSAGE)
            await bob.hears(MESSAGE)


async def test_backends_log_at_the_level_of_the_most_curious_client(home: Home, tmp_path: Path) -> None:
    """Each client hears from its own level up; a server without logs is not bothered, a new process is told again."""
    notes = [{"method": MESSAGE, "params": {"level": level, "data": level}} for level in ("debug", "info", "error")]
    box = teller(tmp_path, *notes)
    box.says(rows=[tool("tell"), tool("die")], tools={**box._said["tools"], "die": {"do": "exit"}})
    deaf = Scripted(tmp_path, "deaf", rows=[tool("t")])

    async with running(home, {"box": box.entry(), "deaf": deaf.entry()}) as roster:
        server = RosterServer(roster, Mode.TRANSPARENT)
        async with connected(server) as ann, connected(server) as bob:
            await ann.request("logging/setLevel", level="error")
            await bob.request("logging/setLevel", level="info")
            await ann.request("logging/setLevel", level="warning")
            assert levels(box) == ["error", "info"]
            await ann.request("tools/call", name="box__tell")
            await bob.request("tools/call", name="box__tell")
            await until(lambda: len(bob.heard(MESSAGE)) == 2 and len(ann.heard(MESSAGE)) == 1)
            await ann.request("tools/call", name="box__die")
            await until(lambda: levels(box) == ["error", "info", "info"])
    assert [params["data"] for params in bob.heard(MESSAGE)] == ["info", "error"]
    assert [params["data"] for params in ann.heard(MESSAGE)] == ["error"]
    assert deaf.events("request") == []


async def test_a_request_of_the_newer_era_says_itself_which_logs_it_wants(home: Home, tmp_path: Path) -> None:
    """Without that it hears none; with it, its own, and an older backend is set to that level for it."""
    notes = [{"method": MESSAGE, "params": {"level": level, "data": level}} for level in ("debug", "error")]
    box = teller(tmp_path, *notes)
    heard: list[Any] = []

    async def hear(message: Any) -> None:
        if isinstance(message, types.LoggingMessageNotification):
            heard.append((message.params.logger, message.params.data))

    async with (
        running(home, {"box": box.entry()}) as roster,
        Client(
            InMemoryTransport(RosterServer(roster, Mode.TRANSPARENT).server), mode="auto", message_handler=hear
        ) as client,
    ):
        assert client.protocol_version == "2026-07-28"
        await raw(client, "tools/call", name="box__tell")
        await raw(client, "tools/call", meta={LEVEL_KEY: "info"}, name="box__tell")
        await until(lambda: heard)
    assert heard == [("box", "error")]
    assert levels(box) == ["info"]
    assert all(LEVEL_KEY not in (call.get("_meta") or {}) for call in box.calls())


@pytest.mark.report("lynnswap/XcodeMCPKit#210")
async def test_a_cancelled_request_is_cancelled_at_the_backend_and_frees_it(home: Home, tmp_path: Path) -> None:
    """The next call is served at once."""
    tools = {"hang": {"do": "hang"}}
    box = Scripted(tmp_path, "box", rows=[tool("hang"), tool("echo")], tools=tools)

    async with (
        running(home, {"box": box.entry()}) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT)) as client,
        anyio.create_task_group() as group,
    ):
        group.start_soon(lambda: client.request("tools/call", name="box__hang"))
        await until(lambda: box.calls("hang"))
        group.cancel_scope.cancel()
    assert box.events("cancelled") == [
        {"event": "cancelled", "pid": box.pids()[0], "tool": "hang"},
    ]


async def test_only_the_callers_own_token_hears_of_progress(home: Home, tmp_path: Path) -> None:
    """The backend never sees the client's token, and a call without one is told nothing."""
    box = Scripted(tmp_path, "box", rows=[tool("work")], tools={"work": {"do": "progress", "steps": 3}})
    progress = "notifications/progress"

    async with running(home, {"box": box.entry()}) as roster:
        server = RosterServer(roster, Mode.TRANSPARENT)
        async with connected(server) as ann, connected(server) as bob:
            await bob.request("tools/call", name="box__work")
            await ann.request("tools/call", meta={"progressToken": "mine"}, name="box__work")
            await until(lambda: len(ann.heard(progress)) == 3)
    assert {params["progressToken"] for params in ann.heard(progress)} == {"mine"}
    assert bob.heard(progress) == []
    assert "progressToken" not in (box.calls()[0].get("_meta") or {})
    assert box.calls()[1]["_meta"]["progressToken"] != "mine"


async def test_task_metadata_of_a_call_is_kept(home: Home, tmp_path: Path) -> None:
    """What the request says beside name and arguments goes along, and a result without content comes back."""
    made = {"task": {"taskId": "1", "status": "working", "later": None}}
    box = Scripted(tmp_path, "box", rows=[tool("t")], tools={"t": {"do": "result", "result": made}})

    async with (
        running(home, {"box": box.entry()}) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT)) as client,
    ):
        got = await client.request("tools/call", name="box__t", task={"ttl": 60, "later": [None]})
    assert got == made
    assert box.calls() == [{"name": "t", "task": {"ttl": 60, "later": [None]}}]


# -------------------------------------------------------------------------------------- what is announced


async def test_what_is_announced_is_what_the_servers_have(home: Home, tmp_path: Path) -> None:
    """At first anything is possible; the next time, what they had the last time, before they are connected again."""
    box = Scripted(tmp_path, "box", capabilities={"tools": {}, "prompts": {}})

    async with (
        running(home, {"box": box.entry()}, settled=False) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT)) as client,
    ):
        assert client.greeting["capabilities"].keys() >= {"resources", "prompts", "completions", "logging"}
        await roster.pool.settled()
    box.says(start="hang")
    async with (
        running(home, {"box": box.entry()}, settled=False) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT)) as client,
    ):
        assert client.greeting["capabilities"] == {"tools": {"listChanged": True}, "prompts": {"listChanged": True}}


async def test_both_eras_are_told_the_same(home: Home, tmp_path: Path) -> None:
    """The answer to `server/discover` names what that to `initialize` names."""
    box = Scripted(tmp_path, "box", capabilities={"tools": {}, "resources": {"subscribe": True}})

    async with running(home, {"box": box.entry()}) as roster:
        server = RosterServer(roster, Mode.TRANSPARENT)
        async with connected(server) as old, Client(InMemoryTransport(server.server), mode="auto") as new:
            shown = new.server_capabilities.model_dump(by_alias=True, exclude_none=True)
    assert shown == old.greeting["capabilities"]
    assert shown["resources"] == {"subscribe": True, "listChanged": True}


def test_five_mode_announces_resources_only_where_there_are_some() -> None:
    """A client may spend tools of its own on a server with resources, and five mode is there to save them."""
    assert announced(Mode.FIVE, [None, ("prompts",)]) == {"tools": {"listChanged": False}}
    resources = {"subscribe": False, "listChanged": False}
    assert announced(Mode.FIVE, [("resources",)]) == {"tools": {"listChanged": False}, "resources": resources}


def test_without_servers_there_are_only_tools() -> None:
    """Nothing is announced that can never come."""
    assert announced(Mode.TRANSPARENT, []) == {"tools": {"listChanged": True}}


def test_levels_are_ordered_and_a_message_without_one_is_not_lost() -> None:
    """From debug to emergency; a level nobody knows is shown rather than swallowed."""
    assert wants("info", "info", unset=False)
    assert not wants("error", "info", unset=True)
    assert wants("emergency", "chatty", unset=False)
    assert (wants(None, "debug", unset=True), wants(None, "debug", unset=False)) == (True, False)
    assert prefixed("s", {"logger": ""})["logger"] == "s"
