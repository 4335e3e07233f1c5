"""Connections that are no request yet: none is held open by saying little, and they keep nobody else out."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack

import anyio
import anyio.abc
import httpx2
import pytest
from scripted_backend import DEADLINE_S, Scripted, plainly
from web_client import HEADERS, Open, Session, initialize, served

from roster import connections
from roster.connections import most_connections

HEAD = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n"


async def _ended(stream: anyio.abc.ByteStream) -> bytes:
    """What still comes, until the other side ends it."""
    said = b""
    try:
        while True:
            said += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return said


async def _answer(stream: anyio.abc.ByteStream) -> bytes:
    said = b""
    while b"\r\n\r\n" not in said:
        said += await stream.receive()
    return said


@pytest.mark.anyio
@pytest.mark.parametrize("drop", [b"", HEAD[:9].encode(), f"{HEAD}X-A: {'b' * 1000}".encode()])
async def test_a_connection_that_brings_no_request_is_given_up(
    opened: Open, calendar: Scripted, monkeypatch: pytest.MonkeyPatch, drop: bytes
) -> None:
    """One that says nothing, and one whose request never ends, however often a byte of it comes."""
    monkeypatch.setattr(connections, "HEAD_LIMIT_S", 0.2)
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(opened(calendar)) as (_, url):
            place = httpx2.URL(url)
            async with (
                await anyio.connect_tcp(place.host, place.port) as stream,
                anyio.create_task_group() as group,
            ):

                async def trickle() -> None:
                    while drop:
                        await stream.send(b"x")
                        await anyio.sleep(0.01)

                await stream.send(drop or b"")
                group.start_soon(trickle)
                assert await _ended(stream) == b""
                group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_second_request_must_arrive_in_time_as_well(
    opened: Open, calendar: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an answer, too: a head in drops, or the rest of a body whose answer has left."""
    monkeypatch.setattr(connections, "HEAD_LIMIT_S", 0.2)
    monkeypatch.setattr(connections, "KEEP_ALIVE_S", 0.2)
    first = [f"GET /healthz {HEAD[10:]}\r\n", f"{HEAD.replace('mcp', 'elsewhere')}Content-Length: 1000000\r\n\r\n"]
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(opened(calendar)) as (_, url):
            place = httpx2.URL(url)
            for request in first:
                async with (
                    await anyio.connect_tcp(place.host, place.port) as stream,
                    anyio.create_task_group() as group,
                ):

                    async def trickle(stream: anyio.abc.ByteStream) -> None:
                        while True:
                            await stream.send(b"x")
                            await anyio.sleep(0.01)

                    await stream.send(request.encode())
                    assert (await _answer(stream))[9:12] in (b"200", b"404")
                    group.start_soon(trickle, stream)
                    await _ended(stream)
                    group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_request_under_way_is_not_given_up(
    opened: Open, calendar: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream of news stays open for longer than a head may take, and so does one that waits for an answer."""
    monkeypatch.setattr(connections, "HEAD_LIMIT_S", 0.1)
    monkeypatch.setattr(connections, "KEEP_ALIVE_S", 0.1)
    with plainly(), anyio.fail_after(DEADLINE_S):
        async with served(opened(calendar)) as (_, url), httpx2.AsyncClient(timeout=DEADLINE_S) as http:
            session = Session(http, url)
            await session.open()
            async with http.stream("GET", url, headers=session.headers) as response:
                lines = response.aiter_bytes()
                with anyio.move_on_after(0.5) as waiting:
                    await anext(lines)
                assert waiting.cancelled_caught


@pytest.mark.anyio
async def test_idle_connections_keep_nobody_out(
    opened: Open, calendar: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than there may be at all: the oldest make room, a session and its stream go on, and others come
    in."""
    monkeypatch.setattr("roster.web.CONNECTIONS_A_SESSION", 4)
    with plainly(), anyio.fail_after(DEADLINE_S), ExitStack() as stack:
        async with (
            served(opened(calendar, http={"max_sessions": 4})) as (site, url),
            httpx2.AsyncClient(timeout=DEADLINE_S) as http,
        ):
            session = Session(http, url)
            await session.open()
            place = httpx2.URL(url)
            async with http.stream("GET", url, headers=session.headers) as response:
                idle = []
                for _ in range(2 * site.most_connections):
                    idle.append(stack.enter_context(socket.create_connection((place.host, place.port))))
                    await anyio.sleep(0)
                async with httpx2.AsyncClient(timeout=DEADLINE_S) as another:
                    let_in = await another.post(url, json=initialize(), headers=HEADERS)
                assert let_in.status_code == 200
                assert (await session.ask("tools/list"))["result"]
                assert not response.is_closed
            idle[0].settimeout(DEADLINE_S)
            with pytest.raises(ConnectionError):
                _until_closed(idle[0])


def _until_closed(sock: socket.socket) -> None:
    if not sock.recv(1):
        raise ConnectionError


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="limits of POSIX")
def test_there_are_never_more_connections_than_the_system_has_files_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the files it grants, so that servers can be started; as many as wanted where it sets no limit."""
    import resource

    def limit(soft: int) -> Callable[[int], tuple[int, int]]:
        return lambda _: (soft, soft)

    monkeypatch.setattr(resource, "getrlimit", limit(256))
    assert (most_connections(1000), most_connections(100)) == (128, 100)
    monkeypatch.setattr(resource, "getrlimit", limit(resource.RLIM_INFINITY))
    assert most_connections(1000) == 1000
