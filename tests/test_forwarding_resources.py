"""Resources of several servers through one Roster: listed, read, followed, and never of the wrong server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import tool
from forwarding import FULL, connected, contents, listed, page
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.shared.exceptions import MCPError
from scripted_backend import Scripted, raw, running, until

from roster.config import Home, Mode
from roster.forwarding.uris import matching, merged, qualified, unqualified
from roster.server import RosterServer

pytestmark = pytest.mark.anyio


def server_of(roster: Any, mode: Mode = Mode.TRANSPARENT) -> RosterServer:
    return RosterServer(roster, mode)


@pytest.fixture(params=["legacy", "auto"])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_every_row_of_every_server_is_listed_as_it_came(home: Home, tmp_path: Path, era: str) -> None:
    """All pages, servers in the order of the config, every key of a row, known or not."""
    odd = page(
        "b:1", annotations={"priority": 0.5, "later": None}, _meta={"a/b": [None]}, size=3, somethingNew={"x": 1}
    )
    zoo = Scripted(tmp_path, "zoo", capabilities=FULL, answers=listed("z:2", "z:1", templates=["z:{id}"]))
    ark = Scripted(tmp_path, "ark", capabilities=FULL, answers={"resources/list": {"result": {"resources": [odd]}}})
    bare = Scripted(tmp_path, "bare", rows=[tool("t")])

    async with running(home, {one.name: one.entry() for one in (zoo, ark, bare)}) as roster:
        transport = InMemoryTransport(server_of(roster).server)
        async with Client(transport, mode=era) as client:
            got = await raw(client, "resources/list")
            templates = await raw(client, "resources/templates/list")
    assert got["resources"] == [page("z:2"), page("z:1"), odd]
    assert templates["resourceTemplates"] == [{"uriTemplate": "z:{id}", "name": "z:{id}"}]
    assert [event["method"] for event in bare.events("request")] == []


async def test_a_resource_is_read_from_the_server_that_lists_it(home: Home, tmp_path: Path, era: str) -> None:
    """The raw contents, and the request's own `_meta`, whoever else has resources too."""
    answer = {"contents": [{"uri": "b:1", "blob": "aGk=", "later": None}], "_meta": {"x/y": 1}, "more": [None]}
    one = Scripted(tmp_path, "one", capabilities=FULL, answers=listed("a:1"))
    answers = {**listed("b:1"), "resources/read b:1": {"result": answer}}
    two = Scripted(tmp_path, "two", capabilities=FULL, answers=answers)

    async with (
        running(home, {"one": one.entry(), "two": two.entry()}) as roster,
        Client(InMemoryTransport(server_of(roster).server), mode=era) as client,
    ):
        got = await raw(client, "resources/read", meta={"mine/key": 7}, uri="b:1")
    assert got["contents"] == answer["contents"]
    assert (got["more"], got["_meta"]["x/y"]) == ([None], 1)
    (read,) = [event["params"] for event in two.events("request") if event["method"] == "resources/read"]
    assert read == {"uri": "b:1", "_meta": {"mine/key": 7}}


async def test_two_servers_with_the_same_uri_can_both_be_read(home: Home, tmp_path: Path) -> None:
    """The first in the config keeps the URI; the other one's names its server, in the list and in what is read."""
    servers = [
        Scripted(tmp_path, name, capabilities=FULL, answers=listed("x://same", **{"x://same": f"of {name}"}))
        for name in ("Second Höme", "first")
    ]
    async with (
        running(home, {one.name: one.entry() for one in reversed(servers)}) as roster,
        connected(server_of(roster)) as client,
    ):
        uris = [row["uri"] for row in (await client.request("resources/list"))["resources"]]
        got = [(await client.request("resources/read", uri=uri))["contents"][0] for uri in uris]
    assert uris[0] == "x://same"
    assert uris[1].startswith("roster+second-h-me-")
    assert [row["text"] for row in got] == ["of first", "of Second Höme"]
    assert [row["uri"] for row in got] == uris


async def test_a_uri_that_a_template_makes_is_read_from_its_server(home: Home, tmp_path: Path) -> None:
    """The most literal template first; a server that says not found is not the last one asked."""
    missing = {"resources/read": {"error": {"code": -32602, "message": "no"}}}
    wide = Scripted(tmp_path, "wide", capabilities=FULL, answers={**missing, **listed(templates=["x://{+any}"])})
    answers = {**listed(templates=["x://notes/{id}"]), "resources/read x://notes/7": contents("x://notes/7", "seven")}
    narrow = Scripted(tmp_path, "narrow", capabilities=FULL, answers={**answers, "resources/read x://other": None})

    async with (
        running(home, {"wide": wide.entry(), "narrow": narrow.entry()}) as roster,
        connected(server_of(roster)) as client,
    ):
        got = await client.request("resources/read", uri="x://notes/7")
        assert [event for event in wide.events("request") if event["method"] == "resources/read"] == []
        with pytest.raises(MCPError):
            await client.request("resources/read", uri="x://other")
    assert got["contents"][0]["text"] == "seven"
    assert [event["params"]["uri"] for event in wide.events("request") if "uri" in event["params"]] == ["x://other"]


async def test_a_uri_nobody_has_is_an_error_that_names_it(home: Home, tmp_path: Path, era: str) -> None:
    """With each era's own code, and without asking servers that have nothing to do with it."""
    one = Scripted(tmp_path, "one", capabilities=FULL, answers=listed("a:1"))
    two = Scripted(tmp_path, "two", capabilities=FULL, answers=listed("b:1"))

    async with (
        running(home, {"one": one.entry(), "two": two.entry()}) as roster,
        Client(InMemoryTransport(server_of(roster).server), mode=era) as client,
    ):
        with pytest.raises(MCPError, match="not found") as caught:
            await raw(client, "resources/read", uri="c:1")
    assert (caught.value.code, caught.value.data) == (-32002 if era == "legacy" else -32602, {"uri": "c:1"})
    assert [event for event in one.events("request") if event["method"] == "resources/read"] == []


async def test_a_client_that_may_not_see_a_server_has_none_of_its_resources(home: Home, tmp_path: Path) -> None:
    """Not in the list, not by URI, plain or naming the server, and no news of it; nor prompts."""
    open_ = Scripted(tmp_path, "open", capabilities=FULL, answers=listed("a:1"))
    shut = Scripted(tmp_path, "shut", capabilities=FULL, answers=listed("b:1", templates=["b:{x}"]))
    changed = "notifications/resources/list_changed"

    async with running(home, {"open": open_.entry(), "shut": shut.entry()}) as roster:
        server = server_of(roster)
        async with connected(server) as all_, connected(server) as some:
            await until(lambda: all(one.ready for one in server.forwarder._clients))
            server.forwarder._clients[-1].servers = frozenset({"open"})
            assert [row["uri"] for row in (await some.request("resources/list"))["resources"]] == ["a:1"]
            assert (await some.request("resources/templates/list"))["resourceTemplates"] == []
            assert (await all_.request("resources/read", uri="b:1"))["contents"]
            for uri in ("b:1", "roster+shut:b:1"):
                # The only server it sees is asked, as it would be without Roster.
                with pytest.raises(MCPError):
                    await some.request("resources/read", uri=uri)
            shut.says(announce=[{"method": changed}])
            await all_.hears(changed)
    assert some.heard(changed) == []
    assert [event["params"]["uri"] for event in shut.events("request") if "uri" in event["params"]] == ["b:1"]


async def test_the_only_server_with_resources_answers_for_every_uri(home: Home, tmp_path: Path) -> None:
    """Listed or not, with a template or none: it is asked, and its own error is the answer."""
    error = {"code": -32050, "message": "grün", "data": {"a": [None]}}
    one = Scripted(tmp_path, "one", capabilities=FULL, answers={"resources/read": {"error": error}, **listed()})

    async with (
        running(home, {"one": one.entry(), "two": Scripted(tmp_path, "two").entry()}) as roster,
        connected(server_of(roster)) as client,
    ):
        with pytest.raises(MCPError) as caught:
            await client.request("resources/read", uri="hidden:1")
    assert (caught.value.code, caught.value.message, caught.value.data) == tuple(error.values())


@pytest.mark.parametrize("mode", [Mode.TRANSPARENT, Mode.FIVE])
async def test_a_link_in_a_result_is_read_from_the_server_that_gave_it(home: Home, tmp_path: Path, mode: Mode) -> None:
    """Also where another server lists the same URI, and in five mode, where nothing is listed."""
    link = {"type": "resource_link", "uri": "x://same", "name": "n"}
    other = Scripted(tmp_path, "other", capabilities=FULL, answers=listed("x://same", **{"x://same": "of other"}))
    giver = Scripted(
        tmp_path,
        "giver",
        capabilities=FULL,
        rows=[tool("give")],
        tools={"give": {"do": "result", "result": {"content": [link]}}},
        answers={"resources/read x://same": contents("x://same", "of giver"), **listed()},
    )
    call = (
        {"name": "giver__give"} if mode is Mode.TRANSPARENT else {"name": "call", "arguments": {"tool": "giver__give"}}
    )

    async with (
        running(home, {"other": other.entry(), "giver": giver.entry()}) as roster,
        connected(server_of(roster, mode)) as client,
    ):
        before = await client.request("resources/read", uri="x://same")
        assert (await client.request("tools/call", **call))["content"] == [link]
        after = await client.request("resources/read", uri="x://same")
        rows = (await client.request("resources/list"))["resources"]
        relisted = await client.request("resources/read", uri="x://same")
    assert [got["contents"][0]["text"] for got in (before, after)] == ["of other", "of giver"]
    if mode is Mode.TRANSPARENT:
        assert [row["uri"] for row in rows] == ["x://same"]
        assert relisted == before
    else:
        assert rows == []


async def test_a_backend_is_subscribed_to_once_and_only_subscribers_hear(home: Home, tmp_path: Path) -> None:
    """Two clients follow one resource: one request to the backend, an update for each, and the last one out ends it."""
    one = Scripted(
        tmp_path,
        "one",
        capabilities=FULL,
        answers={
            "resources/subscribe": {"result": {}},
            "resources/unsubscribe": {"result": {}},
            **listed("x://a", "x://b"),
        },
    )
    updated = "notifications/resources/updated"
    announce = [
        {"method": updated, "params": {"uri": uri, "reason": "new"}} for uri in ("x://b", "x://a/part", "x://a")
    ]

    def sent(kind: str) -> list[Any]:
        return [event["params"]["uri"] for event in one.events("request") if event["method"] == f"resources/{kind}"]

    async with running(home, {"one": one.entry()}) as roster:
        server = server_of(roster)
        async with connected(server) as ann, connected(server) as bob:
            async with connected(server) as cid:
                await ann.request("resources/subscribe", uri="x://a")
                await cid.request("resources/subscribe", uri="x://a")
                assert sent("subscribe") == ["x://a"]
                one.says(announce=announce)
                await until(lambda: len(ann.heard(updated)) == 2 and len(cid.heard(updated)) == 2)
                await ann.request("resources/unsubscribe", uri="x://a")
                assert sent("unsubscribe") == []
            await until(lambda: sent("unsubscribe") == ["x://a"])
    assert {params["uri"] for params in ann.heard(updated)} == {"x://a", "x://a/part"}
    assert {params["reason"] for params in ann.heard(updated)} == {"new"}
    assert bob.heard(updated) == []


async def test_a_subscription_survives_the_backends_restart(home: Home, tmp_path: Path) -> None:
    """The new process is subscribed to as well; the client notices nothing."""
    answers = {"resources/subscribe": {"result": {}}, **listed("x://a")}
    one = Scripted(
        tmp_path, "one", capabilities=FULL, rows=[tool("die")], tools={"die": {"do": "exit"}}, answers=answers
    )

    async with running(home, {"one": one.entry()}) as roster, connected(server_of(roster)) as client:
        await client.request("resources/subscribe", uri="x://a")
        await client.request("tools/call", name="one__die")
        subscribed = [1, 1]
        await until(
            lambda: [1 for event in one.events("request") if event["method"] == "resources/subscribe"] == subscribed
        )
    assert len(set(one.pids())) == 2


async def test_a_stream_of_the_newer_era_hears_of_its_resources(home: Home, tmp_path: Path) -> None:
    """`subscriptions/listen` subscribes at the backend for as long as the stream is open."""
    answers = {
        "resources/subscribe": {"result": {}},
        "resources/unsubscribe": {"result": {}},
        **listed("x://a"),
    }
    one = Scripted(tmp_path, "one", capabilities=FULL, answers=answers)

    def sent() -> list[str]:
        return [event["method"] for event in one.events("request") if "subscribe" in event["method"]]

    async with (
        running(home, {"one": one.entry()}) as roster,
        Client(InMemoryTransport(server_of(roster).server), mode="auto", cache=None) as client,
    ):
        async with client.listen(resource_subscriptions=["x://a"]) as events:
            one.says(announce=[{"method": "notifications/resources/updated", "params": {"uri": "x://a"}}])
            async for event in events:
                assert (type(event).__name__, getattr(event, "uri", "")) == ("ResourceUpdated", "x://a")
                break
        await until(lambda: sent() == ["resources/subscribe", "resources/unsubscribe"])


async def test_changed_lists_are_announced_once_for_many_changes(home: Home, tmp_path: Path) -> None:
    """Several at the same time are one notification for the client, and the next list is read anew."""
    changed = "notifications/resources/list_changed"
    one = Scripted(tmp_path, "one", capabilities=FULL, answers=listed("a:1"))

    async with running(home, {"one": one.entry()}) as roster, connected(server_of(roster)) as client:
        assert [row["uri"] for row in (await client.request("resources/list"))["resources"]] == ["a:1"]
        one.says(answers=listed("a:2"), announce=[{"method": changed}] * 20)
        await client.hears(changed)
        assert [row["uri"] for row in (await client.request("resources/list"))["resources"]] == ["a:2"]
    assert len(client.heard(changed)) == 1


@pytest.mark.report("envoyproxy/ai-gateway#1619")
async def test_a_server_that_comes_late_is_announced(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list given out without it is another one once it is there."""
    monkeypatch.setattr("roster.forwarding.listings.START_PATIENCE_S", 0.1)
    gate = tmp_path / "gate"
    late = Scripted(tmp_path, "late", capabilities=FULL, answers=listed("a:1"), start_when=gate)

    async with (
        running(home, {"late": late.entry()}, settled=False) as roster,
        connected(server_of(roster)) as client,
    ):
        assert (await client.request("resources/list"))["resources"] == []
        gate.touch()
        await client.hears("notifications/resources/list_changed")
        assert len((await client.request("resources/list"))["resources"]) == 1


async def test_a_server_that_comes_back_with_another_list_is_announced(home: Home, tmp_path: Path) -> None:
    """One that comes back with the same list is nobody's news."""
    changed = "notifications/resources/list_changed"
    dies = {"rows": [tool("die")], "tools": {"die": {"do": "exit"}}}
    one = Scripted(tmp_path, "one", capabilities=FULL, answers=listed("a:1"), announce=[], **dies)

    async with running(home, {"one": one.entry()}) as roster, connected(server_of(roster)) as client:
        await client.request("resources/list")
        await client.request("tools/call", name="one__die")
        await until(lambda: len([event for event in one.events("request") if event["method"] == "resources/list"]) == 2)
        one.says(answers=listed("a:1", "a:2"))
        await client.request("tools/call", name="one__die")
        await client.hears(changed)
        assert len((await client.request("resources/list"))["resources"]) == 2
    assert len(client.heard(changed)) == 1


async def test_a_server_that_does_not_answer_for_its_list_holds_up_nobody(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are listed, and of that one what it listed before."""
    monkeypatch.setattr("roster.forwarding.listings.LIST_LIMIT_S", 0.2)
    hung = Scripted(tmp_path, "hung", capabilities=FULL, answers=listed("h:1"), announce=[])
    quick = Scripted(tmp_path, "quick", capabilities=FULL, answers=listed("q:1"))

    async with (
        running(home, {"hung": hung.entry(), "quick": quick.entry()}) as roster,
        connected(server_of(roster)) as client,
    ):
        await client.request("resources/list")
        hung.says(answers={"resources/list": "silence"})
        assert [row["uri"] for row in (await client.request("resources/list"))["resources"]] == ["h:1", "q:1"]


# ------------------------------------------------------------------------------------------------- URIs


def test_a_qualified_uri_leads_back_to_its_server() -> None:
    """Whatever the server is called; schemes have no case, so names that differ in case alone stay apart."""
    servers = ["files", "Files", "my files", "日本", "a.b-c", ""]
    for server in servers:
        assert unqualified(qualified(server, "x://a/{id}"), servers) == (server, "x://a/{id}")
        assert unqualified(qualified(server, "x://a").upper().replace("X://A", "x://a"), servers) == (server, "x://a")
    assert unqualified("x://a", servers) is None
    assert unqualified("roster+nobody:x://a", servers) is None
    assert len({qualified(server, "") for server in servers}) == len(servers)


def test_merging_qualifies_only_what_an_earlier_server_has() -> None:
    """A server's own repetitions stay as they came."""
    rows = {"a": [page("x:1"), page("x:1")], "b": [page("x:1"), page("x:2")]}

    assert [row["uri"] for row in merged(rows, "uri")] == ["x:1", "x:1", "roster+b:x:1", "x:2"]


@pytest.mark.parametrize(
    ("uri", "servers"),
    [("x://notes/1", ["narrow", "wide"]), ("x://other", ["wide", "narrow"]), ("y://", []), ("{broken", ["broken"])],
)
def test_the_most_literal_template_comes_first(uri: str, servers: list[str]) -> None:
    """And a template that is none is nobody's mistake but its author's."""
    rows = {"wide": ["x://{+any}"], "broken": ["{broken"], "narrow": ["x://notes/{id}", "x://{+all}"]}
    templates = {name: [{"uriTemplate": template} for template in made] for name, made in rows.items()}

    assert matching(uri, templates) == servers
