"""Sessions over HTTP: each ends with the token that opened it, and none that was left behind keeps others out."""

from __future__ import annotations

import gc
import weakref
from contextlib import AsyncExitStack, suppress
from typing import Any

import anyio
import httpx2
import pytest
from fakes import tool
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from scripted_backend import DEADLINE_S, Scripted, plainly, until
from web_client import Open, Session, alone, answer_in, client_at, initialize, opened_by_hand, served

from roster.config import Mode
from roster.tokens import Tokens

LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


def known(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture
def _looked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roster.web.LOOK_AGAIN_S", 0.02)


@pytest.mark.anyio
@pytest.mark.usefixtures("_looked_often")
async def test_a_session_ends_with_its_token(opened: Open, calendar: Scripted) -> None:
    """Its call is taken back at the server, its drafts go, and nothing is told it any more; others go on."""
    calendar.says(tools={"add_event": {"do": "hang"}})
    roster = opened(calendar)
    tokens = Tokens(roster.writer.db)
    ann, bob = (tokens.add(name, 1.0) for name in ("ann", "bob"))
    call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "calendar__add_event"}}
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with (
            served(roster, Mode.TRANSPARENT, token=True) as (site, url),
            httpx2.AsyncClient(timeout=DEADLINE_S) as http,
            anyio.create_task_group() as group,
        ):
            lasting = len(site.server._connections)
            sessions = [Session(http, url, known(secret)) for secret in (ann, bob)]
            for session in sessions:
                await session.open()
                await session.ask("tools/list")
            group.start_soon(sessions[0].post, call)
            await until(calendar.calls)
            tokens.remove("ann")
            await until(lambda: calendar.events("cancelled"))
            await until(lambda: len(site.server._connections) == lasting + 1)
            after = [await session.post(LIST) for session in sessions]
    assert [answer.status_code for answer in after] == [401, 200]


@pytest.mark.anyio
@pytest.mark.usefixtures("_looked_often")
async def test_what_a_client_without_a_session_has_open_ends_with_its_token(opened: Open, calendar: Scripted) -> None:
    """Its subscription, and its call at the server as well; those of another token go on."""
    calendar.says(tools={"add_event": {"do": "hang"}})
    roster = opened(calendar)
    tokens = Tokens(roster.writer.db)
    secrets = {name: tokens.add(name, 1.0) for name in ("ann", "bob")}
    listening: list[str] = []
    ended: list[str] = []
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(roster, Mode.TRANSPARENT, token=True) as (_, url), anyio.create_task_group() as group:

            async def listen(who: str) -> None:
                async with client_at(url, secret=secrets[who]) as client:
                    with suppress(SubscriptionLost):
                        async with client.listen(tools_list_changed=True) as stream:
                            listening.append(who)
                            async for _ in stream:
                                pass
                ended.append(f"subscription of {who}")

            async def call(who: str) -> None:
                async with client_at(url, secret=secrets[who]) as client:
                    with pytest.raises(MCPError, match="the token was removed"):
                        await client.call_tool("calendar__add_event", {})
                ended.append(f"call of {who}")

            for who in secrets:
                group.start_soon(listen, who)
                group.start_soon(call, who)
            await until(lambda: len(listening) == len(calendar.calls()) == 2)
            tokens.remove("ann")
            await until(lambda: len(ended) == 2 and calendar.events("cancelled"))
            assert sorted(ended) == ["call of ann", "subscription of ann"]
            assert len(calendar.events("cancelled")) == 1
            group.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.usefixtures("_looked_often")
async def test_a_database_that_cannot_be_read_for_a_while_ends_nothing(
    opened: Open, calendar: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    """What is open stays open, and is looked at again when it can be read."""
    roster = opened(calendar)
    tokens, db = Tokens(roster.writer.db), roster.writer.db
    secret = tokens.add("ann", 1.0)
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(roster, token=True) as (site, url), httpx2.AsyncClient() as http:
            session = Session(http, url, known(secret))
            await session.open()
            db.execute("ALTER TABLE tokens RENAME TO away")
            await until(lambda: "which tokens are gone" in caplog.text)
            assert len(site._sessions._open) == 1
            db.execute("ALTER TABLE away RENAME TO tokens")
            assert (await session.post(LIST)).status_code == 200
            tokens.remove("ann")
            await until(lambda: not site._sessions._open)
    assert secret not in caplog.text


@pytest.mark.anyio
@pytest.mark.usefixtures("_looked_often")
@pytest.mark.parametrize("sees", [None, ["tasks"]], ids=["rotated", "narrowed"])
async def test_a_token_of_the_same_name_is_another_one(
    opened: Open, calendar: Scripted, sees: list[str] | None
) -> None:
    """A session of the one before is none of it, from the first request on; a new one is opened as ever, and sees what
    the new token sees."""
    roster = opened(calendar, Scripted(calendar._script.parent, "tasks", rows=[tool("add_task")]))
    tokens = Tokens(roster.writer.db)
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(roster, Mode.TRANSPARENT, token=True) as (site, url), httpx2.AsyncClient() as http:
            before = Session(http, url, known(tokens.add("ann", 1.0, ["calendar"])))
            await before.open()
            tokens.remove("ann")
            after = Session(http, url, known(tokens.add("ann", 2.0, sees)))
            taken = {**before.headers, **known(after.headers["Authorization"].split()[1])}
            answers = [await http.post(url, json=LIST, headers=headers) for headers in (taken, before.headers)]
            await after.open()
            names = [row["name"] for row in (await after.ask("tools/list"))["result"]["tools"]]
            await until(lambda: len(site._sessions._open) == 1)
    assert [answer.status_code for answer in answers] == [404, 401]
    assert {name.partition("__")[0] for name in names} == set(sees or ["calendar", "tasks"])


@pytest.mark.anyio
async def test_a_session_left_behind_makes_room(
    opened: Open, calendar: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one unused for longest, when there are as many as there may be; one with an open stream is in use."""
    monkeypatch.setattr("roster.sessions.UNUSED_S", 0.0)
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with (
            served(opened(calendar, http={"max_sessions": 3})) as (site, url),
            httpx2.AsyncClient(timeout=DEADLINE_S) as http,
        ):
            first, second, third = [await opened_by_hand(url, http) for _ in range(3)]
            async with http.stream("GET", url, headers=first.headers):
                await until(lambda: any(own.streams for own in site._sessions._open.values()))
                await second.ask("tools/list")
                newcomer = await opened_by_hand(url, http)
                answers = [await session.post(LIST) for session in (first, second, third, newcomer)]
    assert [answer.status_code for answer in answers] == [200, 200, 404, 200]


@pytest.mark.anyio
async def test_whoever_has_most_sessions_makes_room_for_one_who_has_fewer(opened: Open, calendar: Scripted) -> None:
    """Even if all are in use: one token cannot keep the others out. Among equals nobody loses one that is in use."""
    roster = opened(calendar, http={"max_sessions": 3})
    tokens = Tokens(roster.writer.db)
    secrets = {name: tokens.add(name, 1.0) for name in ("ann", "bob", "carol", "dan")}
    opened_: list[int] = []
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with (
            served(roster, token=True) as (site, url),
            httpx2.AsyncClient(timeout=DEADLINE_S) as http,
            AsyncExitStack() as stack,
        ):
            for name in ("ann", "ann", "ann", "ann", "bob", "carol", "dan", "ann"):
                session = Session(http, url, known(secrets[name]))
                opened_.append((await session.open()).status_code)
                if opened_[-1] == 200:
                    await stack.enter_async_context(http.stream("GET", url, headers=session.headers))
                    await until(lambda: all(own.streams for own in site._sessions._open.values()))
            left = [own.token.name for own in site._sessions._open.values() if own.token]
    assert opened_ == [200, 200, 200, 503, 200, 200, 503, 503]
    assert sorted(left) == ["ann", "bob", "carol"]


@pytest.mark.anyio
async def test_requests_of_the_newer_era_cost_no_session_its_place(
    opened: Open, calendar: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They open none."""
    monkeypatch.setattr("roster.sessions.UNUSED_S", 0.0)
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(opened(calendar, http={"max_sessions": 1})) as (_, url), httpx2.AsyncClient() as http:
            session = await opened_by_hand(url, http)
            assert "result" in (await alone(http, url, "tools/list")).json()
            assert (await session.post(LIST)).status_code == 200


@pytest.mark.anyio
async def test_how_many_sessions_there_are_is_told_to_those_who_may_come_in(opened: Open, calendar: Scripted) -> None:
    """A stranger hears that all is well and nothing else; one that sees some servers, of those and of its own."""
    roster = opened(calendar, Scripted(calendar._script.parent, "tasks"))
    tokens = Tokens(roster.writer.db)
    all_, one = tokens.add("all", 1.0), tokens.add("one", 1.0, ["tasks"])
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(roster, token=True) as (_, url), httpx2.AsyncClient() as http:
            for secret in (all_, all_, one):
                await Session(http, url, known(secret)).open()
            health = url.replace("/mcp", "/healthz")
            told = [(await http.get(health, headers=known(secret))).json() for secret in (all_, one, "wrong")]
            told.append((await http.get(health)).json())
    assert [each.get("sessions") for each in told] == [{"open": 3, "all": 100}, {"open": 1, "all": 100}, None, None]
    assert [each.get("servers") for each in told[:2]] == [{"ready": 2, "all": 2}, {"ready": 1, "all": 1}]
    assert told[2:] == [{"ok": True}, {"ok": True}]


@pytest.mark.anyio
async def test_one_token_cannot_take_every_connection(
    opened: Open, calendar: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many requests at once as are half of what there may be; another token is served meanwhile."""
    monkeypatch.setattr("roster.web.most_connections", lambda _: 6)
    monkeypatch.setattr("roster.connections.SPARE", 1)
    roster = opened(calendar)
    ann, bob = (Tokens(roster.writer.db).add(name, 1.0) for name in ("ann", "bob"))
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with (
            served(roster, token=True) as (site, url),
            httpx2.AsyncClient(timeout=DEADLINE_S) as http,
            AsyncExitStack() as stack,
        ):
            for _ in range(3):
                session = Session(http, url, known(ann))
                await session.open()
                await stack.enter_async_context(http.stream("GET", url, headers=session.headers))
            await until(lambda: len(site.gate._requests) == 3)
            refused = await http.post(url, json=initialize(), headers=session.headers)
            let_in = await Session(http, url, known(bob)).open()
    assert (refused.status_code, let_in.status_code) == (429, 200)
    assert "3 requests with this token are open already" in refused.json()["error"]["message"]


@pytest.mark.anyio
async def test_what_opens_no_session_leaves_none(opened: Open, calendar: Scripted) -> None:
    """Neither a request that needs one and names none, nor one that is refused, nor one of another method."""
    answers: list[Any] = []
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(opened(calendar)) as (site, url), httpx2.AsyncClient() as http:
            session = Session(http, url)
            answers.append(await session.post(LIST))
            answers.append(await session.post(b"{"))
            for method in ("GET", "DELETE", "PUT"):
                answers.append(await http.request(method, url, headers=session.headers))
            named = {**session.headers, "Mcp-Session-Id": "nobodys"}
            answers.append(await http.post(url, json=initialize(), headers=named))
            assert (site._sessions._open, site._manager._server_instances) == ({}, {})
            answers.append(response := await session.open())
            assert answer_in(response)["result"]
            assert len(site._sessions._open) == 1
    assert [answer.status_code for answer in answers] == [400, 400, 400, 400, 400, 404, 200]


@pytest.mark.anyio
async def test_one_session_too_many_is_refused(opened: Open, calendar: Scripted) -> None:
    """Until another one has ended."""
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(opened(calendar, http={"max_sessions": 1})) as (_, url), httpx2.AsyncClient() as http:
            first = await opened_by_hand(url, http)
            refused = await Session(http, url).open()
            ended = await http.delete(url, headers=first.headers)
            let_in = await Session(http, url).open()
    assert (refused.status_code, ended.status_code, let_in.status_code) == (503, 200, 200)


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["idle", "ended"])
async def test_a_session_that_is_over_leaves_nothing_behind(opened: Open, calendar: Scripted, how: str) -> None:
    """One that nobody uses any more, and one that its client ended: its id is unknown, its drafts are gone."""
    settings = {"session_idle_s": 0.1} if how == "idle" else {}
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(opened(calendar, http=settings)) as (site, url), httpx2.AsyncClient() as http:
            lasting = {id(each) for each in site.server._connections}
            session = Session(http, url)
            response = await session.post(initialize())
            session.headers["Mcp-Session-Id"] = response.headers["mcp-session-id"]
            drafts = [weakref.ref(each.drafts) for each in site.server._connections if id(each) not in lasting]
            if how == "ended":
                await http.delete(url, headers=session.headers)
            await until(lambda: len(site.server._connections) == len(lasting))
            after = await session.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
            gc.collect()
            left = [draft for draft in drafts if draft() is not None]
    assert after.status_code == 404
    assert left == []
