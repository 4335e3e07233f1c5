"""Prompts and completion of several servers through one Roster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import tool
from forwarding import FULL, connected, listed
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.shared.exceptions import MCPError
from scripted_backend import Scripted, raw, running

from roster.config import Home, Mode
from roster.server import RosterServer

pytestmark = pytest.mark.anyio

ODD = {
    "title": "T",
    "description": "ü",
    "arguments": [{"name": "x", "required": True, "later": None}],
    "icons": [{"src": "data:,"}],
    "_meta": {"a/b": [None]},
    "new": {"x": None},
}
GOT = {
    "description": "d",
    "messages": [{"role": "user", "content": {"type": "hologram", "z": None}, "later": 1}],
    "_meta": {"x/y": 1},
    "more": [None],
}


def prompts(*names: str, **more: Any) -> dict[str, Any]:
    """A script's answers for a server with these prompts, each of which says its name."""
    rows = [{"name": name, **more} for name in names]
    said = {
        f"prompts/get {name}": {"result": {"messages": [{"role": "user", "content": {"type": "text", "text": name}}]}}
        for name in names
    }
    return {"prompts/list": {"result": {"prompts": rows}}, **said}


def asked(server: Scripted, method: str) -> list[Any]:
    return [event["params"] for event in server.events("request") if event["method"] == method]


@pytest.fixture(params=["legacy", "auto"])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_prompts_are_listed_and_given_as_they_came_but_for_their_names(
    home: Home, tmp_path: Path, era: str
) -> None:
    """Every key of a row and of a prompt; the backend hears its own name, the arguments and the `_meta`."""
    answers = {**prompts("ask", **ODD), "prompts/get ask": {"result": GOT}}
    one = Scripted(tmp_path, "one", capabilities=FULL, answers=answers)

    async with (
        running(home, {"one": one.entry()}) as roster,
        Client(InMemoryTransport(RosterServer(roster, Mode.TRANSPARENT).server), mode=era) as client,
    ):
        rows = (await raw(client, "prompts/list"))["prompts"]
        got = await raw(client, "prompts/get", meta={"m/k": 1}, name="one__ask", arguments={"x": "ü"})
    assert rows == [{"name": "one__ask", **ODD}]
    assert {key: got[key] for key in ("description", "messages", "more")} == {
        key: GOT[key] for key in ("description", "messages", "more")
    }
    assert got["_meta"]["x/y"] == 1
    assert asked(one, "prompts/get") == [{"name": "ask", "arguments": {"x": "ü"}, "_meta": {"m/k": 1}}]


async def test_equal_and_foreign_names_all_lead_home(home: Home, tmp_path: Path) -> None:
    """`a` with `b__c` and `a__b` with `c`, long names and other scripts: a table, never splitting."""
    names = {"a": ["b__c", "same", "x" * 200, "日本"], "a__b": ["c", "same"]}
    servers = [Scripted(tmp_path, name, capabilities=FULL, answers=prompts(*own)) for name, own in names.items()]

    async with (
        running(home, {server.name: server.entry() for server in servers}) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT)) as client,
    ):
        listed = [row["name"] for row in (await client.request("prompts/list"))["prompts"]]
        got = [await client.request("prompts/get", name=name) for name in listed]
        with pytest.raises(MCPError, match="Unknown prompt: one__ask"):
            await client.request("prompts/get", name="one__ask")
    assert len(set(listed)) == 6
    assert max(map(len, listed)) <= 47
    assert [one["messages"][0]["content"]["text"] for one in got] == [*names["a"], *names["a__b"]]


async def test_a_prompt_is_found_without_asking_for_the_list_first(home: Home, tmp_path: Path) -> None:
    """A client may know the name from an earlier time."""
    one = Scripted(tmp_path, "one", capabilities=FULL, answers=prompts("ask"))

    async with (
        running(home, {"one": one.entry()}) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT)) as client,
    ):
        assert (await client.request("prompts/get", name="one__ask"))["messages"]


async def test_completion_goes_to_the_owner_of_prompt_or_template(home: Home, tmp_path: Path, era: str) -> None:
    """With the backend's own name, and every key of the answer."""
    values = {"values": ["a", "ü"], "total": 7, "hasMore": True}
    complete = {"completion/complete": {"result": {"completion": values}}}
    one = Scripted(tmp_path, "one", capabilities=FULL, answers={**prompts("ask"), **listed(), **complete})
    two = Scripted(tmp_path, "two", capabilities=FULL, answers={**listed(templates=["x://{id}"]), **complete})
    argument = {"name": "id", "value": "v"}

    async with (
        running(home, {"one": one.entry(), "two": two.entry()}) as roster,
        Client(InMemoryTransport(RosterServer(roster, Mode.TRANSPARENT).server), mode=era) as client,
    ):
        prompt, template = {"type": "ref/prompt", "name": "one__ask"}, {"type": "ref/resource", "uri": "x://{id}"}
        for ref in (prompt, template):
            context = {"arguments": {"other": "w"}}
            got = await raw(client, "completion/complete", ref=ref, argument=argument, context=context)
            assert got["completion"] == values
    assert asked(one, "completion/complete") == [
        {"ref": {**prompt, "name": "ask"}, "argument": argument, "context": context}
    ]
    assert asked(two, "completion/complete") == [{"ref": template, "argument": argument, "context": context}]


async def test_a_server_without_completion_has_nothing_to_suggest(home: Home, tmp_path: Path) -> None:
    """Roster announces completion for the others' sake; here it suggests nothing and asks nobody."""
    capabilities = {key: value for key, value in FULL.items() if key != "completions"}
    one = Scripted(tmp_path, "one", capabilities=capabilities, answers=prompts("ask"))

    async with (
        running(home, {"one": one.entry()}) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT)) as client,
    ):
        ref = {"type": "ref/prompt", "name": "one__ask"}
        got = await client.request("completion/complete", ref=ref, argument={"name": "x", "value": ""})
    assert got == {"completion": {"values": [], "total": 0, "hasMore": False}}
    assert asked(one, "completion/complete") == []


async def test_five_mode_has_no_prompts(home: Home, tmp_path: Path) -> None:
    """They are neither announced nor answered for: the client sees `draft` and `call`."""
    one = Scripted(tmp_path, "one", capabilities=FULL, answers=prompts("ask"), rows=[tool("t")])

    async with running(home, {"one": one.entry()}) as roster, connected(RosterServer(roster, Mode.FIVE)) as client:
        with pytest.raises(MCPError, match="Method not found"):
            await client.request("prompts/list")
    assert "prompts" not in client.greeting["capabilities"]
