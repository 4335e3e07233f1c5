"""What a backend asks of the client: the right client is asked, what it says comes back, and a refusal is clear."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from asgi import listening
from fakes import tool
from forwarding import connected
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from scripted_backend import Scripted, running, until

from roster.config import Home, Mode
from roster.forwarding.asking import incapable
from roster.server import RosterServer

pytestmark = pytest.mark.anyio

FORM = {
    "mode": "form",
    "message": "Who?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string", "later": [None]}}},
    "newKey": {"x": None},
}
SAMPLE = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "hi", "z": None}}],
    "maxTokens": 5,
    "_meta": {"a/b": None},
}
ACCEPTED = {"action": "accept", "content": {"name": "Ada"}, "later": [None]}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "ho"}, "model": "m", "later": {"x": None}}
ROOTS = {"roots": [{"uri": "file:///x", "name": "x", "later": None}], "more": 1}


def asker(folder: Path, *asks: dict[str, Any], name: str = "box", **more: Any) -> Scripted:
    """A server whose tool `ask` sends these requests and answers with what came back."""
    return Scripted(folder, name, rows=[tool("ask")], tools={"ask": {"do": "ask", "asks": list(asks)}}, **more)


def question(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"method": method, **({"params": params} if params is not None else {})}


def answers_in(result: dict[str, Any]) -> list[dict[str, Any]]:
    """What the tool `ask` says it was answered."""
    return list(json.loads(result["content"][0]["text"]))


@pytest.mark.parametrize("mode", [Mode.TRANSPARENT, Mode.FIVE])
async def test_a_question_during_a_call_reaches_the_caller_to_the_letter(
    home: Home, tmp_path: Path, mode: Mode
) -> None:
    """Elicitation, sampling and roots, with every key both ways, in both modes."""
    asks = [question("elicitation/create", FORM), question("sampling/createMessage", SAMPLE), question("roots/list")]
    box = asker(tmp_path, *asks)
    answers = {"elicitation/create": ACCEPTED, "sampling/createMessage": SAMPLED, "roots/list": ROOTS}
    five = {"name": "call", "arguments": {"tool": "box__ask"}}

    async with (
        running(home, {"box": box.entry()}) as roster,
        connected(RosterServer(roster, mode), answers, elicitation={}, sampling={}, roots={}) as client,
    ):
        result = await client.request("tools/call", **(five if mode is Mode.FIVE else {"name": "box__ask"}))
    assert client.asked == [("elicitation/create", FORM), ("sampling/createMessage", SAMPLE), ("roots/list", {})]
    assert answers_in(result) == [{"result": answer} for answer in (ACCEPTED, SAMPLED, ROOTS)]


@pytest.mark.parametrize(
    ("ask", "capabilities", "reason"),
    [
        (question("elicitation/create", FORM), {}, "does not support elicitation"),
        (question("elicitation/create", {**FORM, "mode": "url", "url": "https://x", "elicitationId": "e"}),
         {"elicitation": {}}, "by URL"),
        (question("sampling/createMessage", SAMPLE), {"elicitation": {}}, "does not support sampling"),
        (question("sampling/createMessage", {**SAMPLE, "tools": []}), {"sampling": {}}, "tools in sampling"),
        (question("roots/list"), {}, "no roots"),
    ],
)  # fmt: skip
async def test_a_client_that_cannot_is_not_asked_and_the_backend_is_told(
    home: Home, tmp_path: Path, ask: dict[str, Any], capabilities: dict[str, Any], reason: str
) -> None:
    """-32601 with the reason, at once: an error, never silence."""
    box = asker(tmp_path, ask)

    async with (
        running(home, {"box": box.entry()}) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT), {}, **capabilities) as client,
    ):
        (answer,) = answers_in(await client.request("tools/call", name="box__ask"))
    assert answer["error"]["code"] == -32601
    assert reason in answer["error"]["message"]
    assert client.asked == []


async def test_a_clients_own_error_reaches_the_backend(home: Home, tmp_path: Path) -> None:
    """Code, message and data."""
    box = asker(tmp_path, question("sampling/createMessage", SAMPLE))
    no = {"sampling/createMessage": MCPError(-1, "User said nein", {"x": [None]})}

    async with (
        running(home, {"box": box.entry()}) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT), no, sampling={}) as client,
    ):
        (answer,) = answers_in(await client.request("tools/call", name="box__ask"))
    assert answer == {"error": {"code": -1, "message": "User said nein", "data": {"x": [None]}}}


async def test_of_two_clients_the_one_that_called_is_asked(home: Home, tmp_path: Path) -> None:
    """The other one hears nothing of it."""
    box = asker(tmp_path, question("elicitation/create", FORM))

    async with running(home, {"box": box.entry()}) as roster:
        server = RosterServer(roster, Mode.TRANSPARENT)
        answers = {"elicitation/create": ACCEPTED}
        async with (
            connected(server, answers, elicitation={}) as ann,
            connected(server, answers, elicitation={}) as bob,
        ):
            await bob.request("tools/call", name="box__ask")
    assert (len(ann.asked), len(bob.asked)) == (0, 1)


async def test_a_question_that_may_belong_to_either_of_two_clients_is_refused(home: Home, tmp_path: Path) -> None:
    """A pipe does not say which of two calls a question is about; the wrong person is never asked."""
    gate = tmp_path / "gate"
    tools = {"ask": {"do": "ask", "asks": [question("elicitation/create", FORM)]}, "wait": {"do": "gate", "file": gate}}
    box = Scripted(tmp_path, "box", rows=[tool("ask"), tool("wait")], tools=tools)

    async with running(home, {"box": box.entry()}) as roster:
        server = RosterServer(roster, Mode.TRANSPARENT)
        async with (
            connected(server, elicitation={}) as ann,
            connected(server, elicitation={}) as bob,
            anyio.create_task_group() as group,
        ):
            group.start_soon(lambda: ann.request("tools/call", name="box__wait"))
            await until(lambda: box.calls("wait"))
            (answer,) = answers_in(await bob.request("tools/call", name="box__ask"))
            gate.touch()
    assert "2 clients" in answer["error"]["message"]
    assert ann.asked == bob.asked == []


async def test_outside_of_calls_the_only_client_is_asked(home: Home, tmp_path: Path) -> None:
    """Also one that comes after the question: servers ask for roots right after their handshake."""
    box = Scripted(tmp_path, "box", rows=[tool("t")], asks=[question("roots/list")])

    async with (
        running(home, {"box": box.entry()}, settled=False) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT), {"roots/list": ROOTS}, roots={}),
    ):
        await until(lambda: box.events("answered"))
    assert [event["answer"] for event in box.events("answered")] == [{"result": ROOTS}]


async def test_outside_of_calls_nobody_is_chosen_among_several(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is there, or two are: the reason says which."""
    monkeypatch.setattr("roster.forwarding.asking.CLIENT_WAIT_S", 0.05)
    gate = tmp_path / "gate"
    gate.touch()
    box = Scripted(tmp_path, "box", asks=[question("roots/list")], tools={}, rows=[tool("die")])
    box.says(tools={"die": {"do": "exit"}})

    async with running(home, {"box": box.entry()}, settled=False) as roster:
        server = RosterServer(roster, Mode.TRANSPARENT)
        await until(lambda: box.events("answered"))
        async with connected(server, roots={}) as ann, connected(server, roots={}) as bob:
            await ann.request("tools/call", name="box__die")
            await until(lambda: len(box.events("answered")) == 2)
    alone, two = (event["answer"]["error"]["message"] for event in box.events("answered"))
    assert "no client is connected" in alone
    assert "2 clients" in two
    assert ann.asked == bob.asked == []


async def test_a_server_that_asked_for_roots_too_early_hears_when_there_are_some(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And every server hears of it when the client's roots change."""
    monkeypatch.setattr("roster.forwarding.asking.CLIENT_WAIT_S", 0.05)
    changed = "notifications/roots/list_changed"
    box = Scripted(tmp_path, "box", asks=[question("roots/list")])
    other = Scripted(tmp_path, "other")

    def heard(server: Scripted) -> int:
        return len([event for event in server.events("notified") if event["method"] == changed])

    async with running(home, {"box": box.entry(), "other": other.entry()}, settled=False) as roster:
        server = RosterServer(roster, Mode.TRANSPARENT)
        await until(lambda: box.events("answered"))
        async with connected(server, {"roots/list": ROOTS}, roots={"listChanged": True}) as client:
            await until(lambda: heard(box) == 1)
            await client.notify(changed)
            await until(lambda: heard(box) == 2 and heard(other) == 1)


async def test_progress_of_an_answer_goes_to_the_backend_under_its_own_token(home: Home, tmp_path: Path) -> None:
    """The client hears another token than the backend's; the backend hears its own."""
    asked = {**SAMPLE, "_meta": {"progressToken": "mine", "a/b": None}}
    box = asker(tmp_path, question("sampling/createMessage", asked))
    told = anyio.Event()

    async with running(home, {"box": box.entry()}) as roster:

        async def answer(params: Any) -> dict[str, Any]:
            token = params["_meta"]["progressToken"]
            assert token != "mine"
            await client.notify("notifications/progress", progressToken=token, progress=1, total=2)
            await until(lambda: [e for e in box.events("notified") if e["method"] == "notifications/progress"])
            told.set()
            return SAMPLED

        async with connected(
            RosterServer(roster, Mode.TRANSPARENT), {"sampling/createMessage": answer}, sampling={}
        ) as client:
            await client.request("tools/call", name="box__ask")
    (progress,) = [event["params"] for event in box.events("notified") if event["method"] == "notifications/progress"]
    assert progress == {"progressToken": "mine", "progress": 1, "total": 2}
    assert told.is_set()


async def test_a_call_does_not_run_out_of_time_while_a_person_is_asked(home: Home, tmp_path: Path) -> None:
    """`call_timeout_s` is for servers that hang; one that waits for an answer does not."""
    box = asker(tmp_path, question("elicitation/create", FORM))

    async def slow(_: Any) -> dict[str, Any]:
        with pytest.raises(TimeoutError), anyio.fail_after(0.6):
            await anyio.Event().wait()
        return ACCEPTED

    async with (
        running(home, {"box": box.entry(call_timeout_s=0.3)}) as roster,
        connected(RosterServer(roster, Mode.TRANSPARENT), {"elicitation/create": slow}, elicitation={}) as client,
    ):
        result = await client.request("tools/call", name="box__ask")
    assert answers_in(result) == [{"result": ACCEPTED}]


async def test_a_backend_is_told_the_same_whoever_is_connected(home: Home, tmp_path: Path) -> None:
    """What Roster announces does not depend on a client: the tools on file must not either."""
    box = Scripted(tmp_path, "box")

    async with running(home, {"box": box.entry()}):
        pass
    (opened,) = [event["params"] for event in box.events("opened")]
    assert opened["capabilities"] == {
        "sampling": {"tools": {}, "context": {}},
        "elicitation": {"form": {}, "url": {}},
        "roots": {"listChanged": True},
    }


async def test_the_end_of_an_elicitation_by_url_is_told_to_whom_was_asked(home: Home, tmp_path: Path) -> None:
    """`notifications/elicitation/complete` goes to that client alone, also after the call."""
    done = "notifications/elicitation/complete"
    asked = {"mode": "url", "message": "m", "url": "https://example.org", "elicitationId": "e1"}
    box = asker(tmp_path, question("elicitation/create", asked))

    async with running(home, {"box": box.entry()}) as roster:
        server = RosterServer(roster, Mode.TRANSPARENT)
        answers = {"elicitation/create": {"action": "accept"}}
        async with connected(server) as ann, connected(server, answers, elicitation={"url": {}}) as bob:
            await bob.request("tools/call", name="box__ask")
            box.says(announce=[{"method": done, "params": {"elicitationId": "e1"}}])
            assert await bob.hears(done) == {"elicitationId": "e1"}
    assert ann.heard(done) == []


@pytest.mark.parametrize("mode", [Mode.TRANSPARENT, Mode.FIVE])
async def test_an_error_that_sends_a_person_to_a_page_stays_one(home: Home, tmp_path: Path, mode: Mode) -> None:
    """-32042 with its pages, also in five mode; and the client hears when the page is done with."""
    done = "notifications/elicitation/complete"
    page = {"mode": "url", "elicitationId": "e7", "url": "https://example.org", "message": "m"}
    error = {"code": -32042, "message": "first this", "data": {"elicitations": [page]}}
    box = Scripted(tmp_path, "box", rows=[tool("t")], tools={"t": {"do": "error", "error": error}})
    five = {"name": "call", "arguments": {"tool": "box__t"}}

    async with running(home, {"box": box.entry()}) as roster, connected(RosterServer(roster, mode)) as client:
        with pytest.raises(MCPError) as caught:
            await client.request("tools/call", **(five if mode is Mode.FIVE else {"name": "box__t"}))
        box.says(announce=[{"method": done, "params": {"elicitationId": "e7"}}])
        await client.hears(done)
    assert (caught.value.code, caught.value.message, caught.value.data) == tuple(error.values())


async def test_over_http_each_question_finds_its_own_call(home: Home) -> None:
    """There a question comes on the stream of the call it belongs to, so two clients at once are no riddle."""
    both = anyio.Event()
    waiting: list[str] = []

    async def call(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        who = (params.arguments or {})["who"]
        waiting.append(who)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        request = types.ElicitRequest(
            params=types.ElicitRequestFormParams(message=who, requested_schema={"type": "object", "properties": {}})
        )
        metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
        answer = await ctx.session.send_request(request, types.ElicitResult, metadata=metadata)
        return types.CallToolResult(content=[types.TextContent(type="text", text=str(answer.content))])

    async def listed(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="ask", input_schema={"type": "object"})])

    backend_ = Server("asker", on_list_tools=listed, on_call_tool=call)
    results: dict[str, str] = {}

    async with listening(backend_.streamable_http_app()) as address:
        entry = {"type": "http", "url": f"{address}/mcp"}
        async with running(home, {"box": entry}) as roster, anyio.create_task_group() as group:
            server = RosterServer(roster, Mode.TRANSPARENT)

            async def client(who: str) -> None:
                said = {"elicitation/create": {"action": "accept", "content": {"name": who}}}
                async with connected(server, said, elicitation={}) as one:
                    result = await one.request("tools/call", name="box__ask", arguments={"who": who})
                    assert [params["message"] for _, params in one.asked] == [who]
                    results[who] = result["content"][0]["text"]

            group.start_soon(client, "ann")
            group.start_soon(client, "bob")
    assert results == {who: str({"name": who}) for who in ("ann", "bob")}


def test_what_a_client_can_be_asked_depends_on_what_it_declared() -> None:
    """A client that names no mode of elicitation means forms."""
    can = types.ClientCapabilities.model_validate
    assert incapable(can({"elicitation": {}}), "elicitation/create", {"message": "x"}) is None
    assert incapable(can({"elicitation": {"url": {}}}), "elicitation/create", {"message": "x"}) is not None
    assert incapable(can({"elicitation": {"url": {}, "form": {}}}), "elicitation/create", {"mode": "form"}) is None
    assert incapable(can({"sampling": {"tools": {}}}), "sampling/createMessage", {"tools": []}) is None
    assert incapable(None, "roots/list", {}) is not None
