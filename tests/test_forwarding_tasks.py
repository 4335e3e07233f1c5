"""Tasks: started by a call, asked about later, each at the backend it runs on and by the client that started it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import tool
from forwarding import connected
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.shared.exceptions import MCPError
from scripted_backend import Scripted, raw, running, until

from roster.config import Home, Mode
from roster.server import RosterServer

pytestmark = pytest.mark.anyio

CAPABILITIES = {"tools": {}, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
LINK = {"type": "resource_link", "uri": "made://1", "name": "n"}


def server_with_task(folder: Path, name: str, id_: str) -> Scripted:
    """A server whose tool `start` makes one task."""
    row = {"taskId": id_, "status": "working", "createdAt": "2026-01-01T00:00:00Z", "ttl": None, "later": None}
    answers = {
        "tasks/get": {"result": row},
        "tasks/result": {"result": {"content": [LINK], "of": name}},
        "tasks/cancel": {"result": {**row, "status": "cancelled"}},
        "tasks/list": {"result": {"tasks": [row, {**row, "taskId": "somebody else's"}]}},
        "resources/read": {"result": {"contents": [{"uri": "made://1", "text": name}]}},
    }
    tools = {"start": {"do": "result", "result": {"task": row}}}
    return Scripted(
        folder, name, capabilities=CAPABILITIES, rows=[tool("start"), tool("plain")], tools=tools, answers=answers
    )


def asked(server: Scripted) -> list[tuple[str, Any]]:
    return [(event["method"], event["params"]) for event in server.events("request")]


async def test_a_task_is_asked_about_where_it_runs(home: Home, tmp_path: Path) -> None:
    """Raw results, from the server that has the task and no other; and what a result links to can be read."""
    one, two = server_with_task(tmp_path, "one", "t1"), server_with_task(tmp_path, "two", "t2")

    async with (
        running(home, {"one": one.entry(), "two": two.entry()}) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT)) as client,
    ):
        assert client.greeting["capabilities"]["tasks"] == CAPABILITIES["tasks"]
        started = await client.request("tools/call", name="two__start", task={"ttl": 60})
        assert started["task"]["taskId"] == "t2"
        got = [await client.request(f"tasks/{what}", taskId="t2") for what in ("get", "result", "cancel")]
        listed = await client.request("tasks/list")
        read = await client.request("resources/read", uri="made://1")
    assert (got[0]["later"], got[1]["of"], got[2]["status"]) == (None, "two", "cancelled")
    assert [row["taskId"] for row in listed["tasks"]] == ["t2"]
    assert read["contents"][0]["text"] == "two"
    assert [method for method, _ in asked(one)] == ["tasks/list"]


async def test_a_task_belongs_to_the_client_that_started_it(home: Home, tmp_path: Path) -> None:
    """Nobody else can ask about it, see it in a list, or hear of its state."""
    one = server_with_task(tmp_path, "one", "t1")
    status = "notifications/tasks/status"

    async with running(home, {"one": one.entry()}) as roster:
        server = RosterServer(roster, Mode.TRANSPARENT)
        async with connected(server) as ann, connected(server) as bob:
            await ann.request("tools/call", name="one__start", task={})
            with pytest.raises(MCPError, match="Unknown task"):
                await bob.request("tasks/get", taskId="t1")
            assert (await bob.request("tasks/list"))["tasks"] == []
            one.says(announce=[{"method": status, "params": {"taskId": "t1", "later": None}}])
            assert await ann.hears(status) == {"taskId": "t1", "later": None}
    assert bob.heard(status) == []


async def test_the_progress_of_a_task_goes_on_after_its_call_was_answered(home: Home, tmp_path: Path) -> None:
    """Under the token that the client gave with the call; and of a call that became no task, nothing comes late."""
    one = server_with_task(tmp_path, "one", "t1")
    progress = "notifications/progress"

    async with (
        running(home, {"one": one.entry()}) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT)) as client,
    ):
        for name, token in (("plain", "over"), ("start", "mine")):
            await client.request("tools/call", meta={"progressToken": token}, name=f"one__{name}", task={"ttl": 60})
        sent = [call["_meta"]["progressToken"] for call in one.calls()]
        told = [
            {"progressToken": token, "progress": step, "total": 2, "message": "ü"} for step in (1, 2) for token in sent
        ]
        one.says(announce=[{"method": progress, "params": params} for params in told])
        await until(lambda: len(client.heard(progress)) == 2)
    assert len(set(sent)) == 2
    assert client.heard(progress) == [
        {"progressToken": "mine", "progress": step, "total": 2, "message": "ü"} for step in (1, 2)
    ]


async def test_tasks_are_of_the_older_era_alone(home: Home, tmp_path: Path) -> None:
    """A client of the newer one is not told of them."""
    one = server_with_task(tmp_path, "one", "t1")

    async with (
        running(home, {"one": one.entry()}) as roster,
        Client(InMemoryTransport(RosterServer(roster, Mode.TRANSPARENT).server), mode="auto") as client,
    ):
        assert client.server_capabilities.tasks is None


@pytest.mark.parametrize("mode", Mode)
async def test_where_no_tasks_are_announced_a_call_is_never_one(home: Home, tmp_path: Path, mode: Mode) -> None:
    """In five mode and in the newer era what a client says of a task is not passed on."""
    one = server_with_task(tmp_path, "one", "t1")
    name = {"name": "call", "arguments": {"tool": "one__plain"}} if mode is Mode.FIVE else {"name": "one__plain"}

    async with running(home, {"one": one.entry()}) as roster:
        server = RosterServer(roster, mode)
        if mode is Mode.FIVE:
            async with connected(server) as client:
                await client.request("tools/call", **name, task={"ttl": 60})
        else:
            async with Client(InMemoryTransport(server.server), mode="auto") as newer:
                await raw(newer, "tools/call", **name, task={"ttl": 60})
    (call,) = one.calls()
    assert "task" not in call
