"""A call of a remote server is carried out once, whatever is answered, cut off or forgotten on the way."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute
from asgi import listening
from fakes import tool
from remote_backend import Remote, Reply, error_of, event, events, over_http, result_of, words
from scripted_backend import running, until
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from roster.backends import backend, exchange, link
from roster.config import Home
from roster.failures import failure_of
from roster.outcomes import Cause, Outcome, classify

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost backend is tried again after hundredths of a second."""
    monkeypatch.setattr(backend, "BACKOFF_S", (0.03, 0.1))


@pytest.fixture
def remote() -> Remote:
    """A remote server with a tool that reads, and one of which nothing is known."""
    return Remote(tool("write"), tool("read", annotations={"readOnlyHint": True}))


# --------------------------------------------------------------------------- carried out, and then no plain answer


def cut_off(_: Any) -> Response:
    """An answer whose end never comes."""

    def body() -> Iterator[bytes]:
        yield b'{"jsonrpc": "2.0", '
        raise OSError("cut off")

    return StreamingResponse(body(), media_type="application/json")


AFTERWARDS: dict[str, tuple[Reply, Cause]] = {
    "404 without a word": (lambda _: Response(status_code=404), Cause.RPC_ERROR),
    "404 about the session": (
        lambda id_: JSONResponse(error_of(id_, -32600, "Session not found"), 404),
        Cause.RPC_ERROR,
    ),
    "404 with a code of its own": (lambda id_: JSONResponse(error_of(id_, -32001, "No session"), 404), Cause.RPC_ERROR),
    "400 about the session": (lambda id_: JSONResponse(error_of(id_, -32000, "No session ID"), 400), Cause.RPC_ERROR),
    "words about a session": (
        lambda id_: JSONResponse(error_of(id_, -32600, "Browser session closed")),
        Cause.RPC_ERROR,
    ),
    "such words in a stream": (lambda id_: events(event(error_of(id_, -32600, "Session expired"))), Cause.RPC_ERROR),
    "500": (lambda _: Response(status_code=500), Cause.RPC_ERROR),
    "503, come again": (lambda _: Response(status_code=503, headers={"retry-after": "0"}), Cause.RPC_ERROR),
    "408": (lambda _: Response(status_code=408), Cause.RPC_ERROR),
    "accepted": (lambda _: Response(status_code=202), Cause.RPC_ERROR),
    "elsewhere": (lambda _: Response(status_code=302, headers={"location": "/login"}), Cause.RPC_ERROR),
    "a page": (lambda _: PlainTextResponse("Welcome!"), Cause.RPC_ERROR),
    "half a document": (lambda _: Response('{"jsonrpc":', media_type="application/json"), Cause.RPC_ERROR),
    "an answer cut off": (cut_off, Cause.DISCONNECTED),
    "a stream without an answer": (lambda _: events(event()), Cause.DISCONNECTED),
    "a stream to be gone on with": (lambda _: events("retry: 1\n" + event(number="1")), Cause.DISCONNECTED),
}


@pytest.mark.report("sparfenyuk/mcp-proxy#75", "sparfenyuk/mcp-proxy#149", "metatool-ai/metamcp#166")
@pytest.mark.parametrize("how", AFTERWARDS)
async def test_a_call_is_carried_out_once_whatever_is_answered_afterwards(home: Home, remote: Remote, how: str) -> None:
    """Nor are its arguments sent anywhere else; it fails, as one that may have been carried out, and the next one is
    answered."""
    remote.after, cause = AFTERWARDS[how]

    async with over_http(home, remote) as web:
        failed = await web.call("write", {"n": 1})
        remote.after = lambda id_: JSONResponse(result_of(id_))
        answered = await web.call("write", {"n": 2})
    assert remote.done == [{"n": 1}, {"n": 2}]
    assert (failed.report.cause, answered.report.cause) == (cause, Cause.ANSWERED)
    failure = failure_of(failed.report, {})
    assert failure is not None
    assert failure.partial


class Relay:
    """A port that hands on to another one; while `cutting`, it hangs up instead of handing an answer back."""

    def __init__(self, address: str) -> None:
        self._to = urlsplit(address)
        self.cutting = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        door = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with door, anyio.create_task_group() as group:
            group.start_soon(door.serve, self._hand_on)
            yield f"http://127.0.0.1:{door.extra(SocketAttribute.local_port)}"
            group.cancel_scope.cancel()

    async def _hand_on(self, near: ByteStream) -> None:
        far = await anyio.connect_tcp(str(self._to.hostname), int(self._to.port or 0))
        async with near, far, anyio.create_task_group() as group:

            async def pump(source: ByteStream, to: ByteStream) -> None:
                with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    while True:
                        data = await source.receive()
                        if source is far and self.cutting:
                            break
                        await to.send(data)
                group.cancel_scope.cancel()

            group.start_soon(pump, near, far)
            group.start_soon(pump, far, near)


async def test_a_call_whose_connection_is_cut_is_not_sent_over_another_one(home: Home, remote: Remote) -> None:
    """Not by the HTTP client either, which may try a connection again that was idle for long."""
    async with listening(remote) as address:
        relay = Relay(address)
        async with relay.open() as there, running(home, {"web": {"url": f"{there}/mcp"}}) as roster:
            web = roster.pool["web"]
            await web.call("write", {"n": 1})
            relay.cutting = True
            lost = await web.call("write", {"n": 2})
            relay.cutting = False
            answered = await web.call("write", {"n": 3})
    assert remote.done == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert lost.report.cause is Cause.DISCONNECTED
    failure = failure_of(lost.report, {})
    assert failure is not None
    assert failure.kind == "unknown_outcome"
    assert answered.report.cause is Cause.ANSWERED


async def test_a_call_that_timed_out_is_not_sent_again(home: Home, remote: Remote) -> None:
    """However late the answer comes, it is nobody's: not that of the next call either."""
    late = anyio.Event()

    async def waits() -> AsyncIterator[str]:
        await late.wait()
        yield event(result_of(0, "late"))

    remote.after = lambda _: StreamingResponse(silence(), media_type="text/event-stream")

    async with over_http(home, remote, call_timeout_s=0.3) as web:
        hung = await web.call("write", {"n": 1})
        remote.after = lambda id_: JSONResponse(result_of(id_, "mine"))
        late.set()
        answered = await web.call("write", {"n": 2})
    assert remote.done == [{"n": 1}, {"n": 2}]
    assert hung.report.cause is Cause.TIMEOUT
    assert words(answered) == "mine"


async def silence() -> AsyncIterator[str]:
    """The events of a server that never says anything."""
    await anyio.sleep_forever()
    yield ""


# ----------------------------------------------------------------------------------------- forgotten sessions


UNKNOWN: dict[str, Reply] = {
    "404 without a word": lambda _: Response(status_code=404),
    "404 with words": lambda _: JSONResponse(error_of(None, -32600, "Session not found"), 404),
    "404 with a code of its own": lambda _: JSONResponse(error_of(None, -32001, "Session not found"), 404),
    "400 with words": lambda _: JSONResponse(error_of(None, -32000, "Bad Request: No valid session ID provided"), 400),
    "400 without a word": lambda _: PlainTextResponse("Invalid or missing session ID", 400),
    "words alone": lambda id_: JSONResponse(error_of(id_, -32600, "Session expired")),
}


@pytest.mark.report("sparfenyuk/mcp-proxy#75", "sparfenyuk/mcp-proxy#149", "metatool-ai/metamcp#166")
@pytest.mark.parametrize("how", UNKNOWN)
async def test_a_forgotten_session_is_opened_anew_however_the_server_says_so(
    home: Home, remote: Remote, how: str
) -> None:
    """What only reads is then asked once more. Anything else is not, for it may have been read: it fails as what may
    pass the next time, and does."""
    remote.unknown = UNKNOWN[how]

    async with over_http(home, remote) as web:
        remote.forgets()
        read = await web.call("read", {"n": 1})
        remote.forgets()
        refused = await web.call("write", {"n": 2})
        written = await web.call("write", {"n": 3})
    assert (read.report.cause, refused.report.cause, written.report.cause) == (
        Cause.ANSWERED,
        Cause.FORGOTTEN,
        Cause.ANSWERED,
    )
    assert remote.done == [{"n": 1}, {"n": 3}]
    assert remote.asked.count("tools/call") == 4
    assert remote.asked.count("initialize") == 3
    assert classify(refused.report) is Outcome.TRANSPORT
    failure = failure_of(refused.report, {})
    assert failure is not None
    assert (failure.kind, failure.retryable, failure.partial, failure.person) == ("unavailable", True, True, False)


@pytest.mark.parametrize("how", UNKNOWN)
async def test_after_a_silence_a_session_is_looked_for_before_a_call_is_sent(
    home: Home, remote: Remote, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """So whoever comes back after hours, or to a server started anew, notices nothing; and it is sent once."""
    monkeypatch.setattr(exchange, "QUIET_S", 0.0)
    remote.unknown = UNKNOWN[how]

    async with over_http(home, remote) as web:
        for n in range(3):
            remote.forgets()
            assert (await web.call("write", {"n": n})).report.cause is Cause.ANSWERED
    assert remote.done == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert remote.asked.count("tools/call") == 3


@pytest.mark.parametrize("said", ["no such method", "nothing", "a failure"])
async def test_a_server_that_knows_no_ping_keeps_its_session(
    home: Home, remote: Remote, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """What it makes of the question is no answer to it, and the call is sent."""
    monkeypatch.setattr(exchange, "QUIET_S", 0.0)
    monkeypatch.setattr(link, "PING_S", 0.1)

    remote.pinged = {
        "no such method": lambda id_: JSONResponse(error_of(id_, -32601, "Method not found"), 404),
        "nothing": lambda _: StreamingResponse(silence(), media_type="text/event-stream"),
        "a failure": lambda _: Response(status_code=503),
    }[said]

    async with over_http(home, remote) as web:
        assert (await web.call("write", {"n": 1})).report.cause is Cause.ANSWERED
    assert (remote.asked.count("ping"), remote.asked.count("initialize")) == (1, 1)
    assert remote.done == [{"n": 1}]


@pytest.mark.parametrize("status", [400, 404])
async def test_pings_that_fail_whatever_the_session_are_not_believed_twice(
    home: Home, remote: Remote, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """The first costs a new session, whose ping shows that it meant nothing; a server of that kind keeps what it has
    from then on. That it does not know the session any more is then believed when it says so of a call."""
    monkeypatch.setattr(exchange, "QUIET_S", 0.0)
    remote.pinged = lambda _: Response(status_code=status)

    async with over_http(home, remote) as web:
        for n in range(4):
            assert (await web.call("write", {"n": n})).report.cause is Cause.ANSWERED
        assert (remote.asked.count("initialize"), remote.asked.count("ping")) == (2, 2)
        remote.unknown = UNKNOWN["404 without a word"]
        remote.forgets()
        assert (await web.call("write", {"n": 4})).report.cause is Cause.FORGOTTEN
        assert (await web.call("write", {"n": 5})).report.cause is Cause.ANSWERED
    assert remote.done == [{"n": n} for n in (0, 1, 2, 3, 5)]


async def test_a_ping_that_is_never_answered_is_waited_for_once(
    home: Home, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After that nobody asks it again."""
    monkeypatch.setattr(exchange, "QUIET_S", 0.0)
    monkeypatch.setattr(link, "PING_S", 0.1)

    remote.pinged = lambda _: StreamingResponse(silence(), media_type="text/event-stream")
    async with over_http(home, remote) as web:
        for n in range(3):
            assert (await web.call("write", {"n": n})).report.cause is Cause.ANSWERED
    assert (remote.asked.count("ping"), remote.asked.count("initialize")) == (1, 1)


async def test_who_waits_for_an_answer_is_not_cut_off_to_look_for_a_session(
    home: Home, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a call is under way, the connection is in use and no question of its soundness is asked."""
    monkeypatch.setattr(exchange, "QUIET_S", 0.0)
    go, answers = anyio.Event(), []

    async def waits(id_: Any) -> AsyncIterator[str]:
        await go.wait()
        yield event(result_of(id_))

    plainly = remote.after
    async with over_http(home, remote) as web, anyio.create_task_group() as group:
        remote.after = lambda id_: StreamingResponse(waits(id_), media_type="text/event-stream")

        async def long() -> None:
            answers.append(await web.call("write", {"n": 1}))

        group.start_soon(long)
        await until(lambda: remote.done == [{"n": 1}])
        asked = remote.asked.count("ping")
        remote.after = plainly
        assert (await web.call("write", {"n": 2})).report.cause is Cause.ANSWERED
        assert remote.asked.count("ping") == asked
        go.set()
    assert [answer.report.cause for answer in answers] == [Cause.ANSWERED]


async def test_a_tool_that_speaks_of_sessions_costs_no_other_call_its_answer(home: Home, remote: Remote) -> None:
    """The connection is as good as it was: what the tool said is passed on, and the call beside it goes on."""
    go, answers = anyio.Event(), []

    async def waits(id_: Any) -> AsyncIterator[str]:
        await go.wait()
        yield event(result_of(id_))

    remote.after = lambda id_: StreamingResponse(waits(id_), media_type="text/event-stream")

    async with over_http(home, remote) as web, anyio.create_task_group() as group:

        async def call() -> None:
            answers.append(await web.call("write", {"n": 1}))

        group.start_soon(call)
        await until(lambda: remote.done)
        remote.after = lambda id_: JSONResponse(error_of(id_, -32600, "The browser session was closed"))
        failed = await web.call("write", {"n": 2})
        go.set()
    assert failed.error is not None
    assert failed.error.message == "The browser session was closed"
    assert [answer.report.cause for answer in answers] == [Cause.ANSWERED]
    assert remote.done == [{"n": 1}, {"n": 2}]
