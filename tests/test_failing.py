"""Servers that fail in every way we know of, over real pipes and sockets: what a caller is told, that no call is ever
carried out twice, and that the next one is answered."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import mcp_types as types
import pytest
from asgi import listening, sse_app
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fakes import tool
from mcp.server.lowlevel.server import Server
from remote_backend import Remote, Reply, error_of, event, result_of
from scripted_backend import Scripted, running, until
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from roster import wires
from roster.backends import Backend, ErrorKind, State, backend, exchange, link
from roster.config import Home
from roster.failures import failure_of
from roster.outcomes import Cause

pytestmark = pytest.mark.anyio

READS = {"readOnlyHint": True}
LARGE = 50_000_000


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost backend is tried again after hundredths of a second."""
    monkeypatch.setattr(backend, "BACKOFF_S", (0.03, 0.1))


@pytest.fixture
def remote() -> Remote:
    """A remote server with a tool that reads, and one of which nothing is known."""
    return Remote(tool("write"), tool("read", annotations=READS))


@asynccontextmanager
async def over_http(home: Home, remote: Remote, **entry: Any) -> AsyncIterator[Backend]:
    """It, as a backend."""
    async with listening(remote) as address, running(home, {"web": {"url": f"{address}/mcp", **entry}}) as roster:
        yield roster.pool["web"]


def words(answer: backend.Answer) -> str:
    """The text of a result."""
    assert answer.result is not None, answer
    return str(answer.result["content"][0]["text"])


# --------------------------------------------------------------------------- carried out, and then no plain answer


def events(*parts: str) -> Response:
    """A stream of these events, which ends after the last."""
    return StreamingResponse(iter(parts), media_type="text/event-stream")


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
    """A port that hands on to another one; when `cutting`, it hangs up instead of handing an answer back."""

    def __init__(self, address: str) -> None:
        self._to = urlsplit(address)
        self.cutting = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        door = await asyncio.start_server(self._hand_on, "127.0.0.1", 0)
        async with door:
            yield f"http://127.0.0.1:{door.sockets[0].getsockname()[1]}"

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection(self._to.hostname, self._to.port)
        async with anyio.create_task_group() as group:
            group.start_soon(self._pump, reader, requests, False)
            await self._pump(answers, writer, True)
            group.cancel_scope.cancel()
        for end in (writer, requests):
            end.close()
            with contextlib.suppress(OSError):
                await end.wait_closed()

    async def _pump(self, source: asyncio.StreamReader, to: asyncio.StreamWriter, back: bool) -> None:
        with contextlib.suppress(OSError):
            while (data := await source.read(65536)) and not (back and self.cutting):
                to.write(data)
                await to.drain()


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

    remote.after = lambda _: StreamingResponse(waits(), media_type="text/event-stream")

    async with over_http(home, remote, call_timeout_s=0.3) as web:
        hung = await web.call("write", {"n": 1})
        remote.after = lambda id_: JSONResponse(result_of(id_, "mine"))
        late.set()
        answered = await web.call("write", {"n": 2})
    assert remote.done == [{"n": 1}, {"n": 2}]
    assert hung.report.cause is Cause.TIMEOUT
    assert words(answered) == "mine"


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
    failure = failure_of(refused.report, {})
    assert failure is not None
    assert (failure.kind, failure.retryable, failure.partial, failure.person) == ("unavailable", True, True, False)


@pytest.mark.parametrize("how", UNKNOWN)
async def test_after_a_silence_a_session_is_looked_for_before_a_call_is_sent(
    home: Home, remote: Remote, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """So whoever comes back after hours, or to a server that was started again, notices nothing; and it is sent once."""
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

    async def waits() -> AsyncIterator[str]:
        await anyio.sleep_forever()
        yield ""

    remote.pinged = {
        "no such method": lambda id_: JSONResponse(error_of(id_, -32601, "Method not found"), 404),
        "nothing": lambda _: StreamingResponse(waits(), media_type="text/event-stream"),
        "a failure": lambda _: Response(status_code=503),
    }[said]

    async with over_http(home, remote) as web:
        assert (await web.call("write", {"n": 1})).report.cause is Cause.ANSWERED
    assert (remote.asked.count("ping"), remote.asked.count("initialize")) == (1, 1)
    assert remote.done == [{"n": 1}]


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


# ------------------------------------------------------------------------------------------ the older transport


class Refusing:
    """ASGI middleware that refuses what is posted while `status` says with what."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.status: int | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refused = self.status if scope.get("method") == "POST" else None
        await (Response(status_code=refused) if refused else self._app)(scope, receive, send)


@pytest.mark.report("metatool-ai/metamcp#294", "IBM/mcp-context-forge#4785")
@pytest.mark.parametrize("status", [404, 401, 500])
async def test_a_message_that_cannot_be_posted_ends_the_connection_it_was_for(home: Home, status: int) -> None:
    """Over the older transport nothing is ever answered there; the call hears of it at once, and the next one is
    answered over another connection."""
    done: list[Any] = []

    async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool.model_validate(tool("write"))])

    async def called(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        done.append(params.arguments)
        return types.CallToolResult(content=[])

    app = Refusing(sse_app(Server("older", on_list_tools=listed, on_call_tool=called)))
    async with listening(app) as address, running(home, {"old": {"url": f"{address}/sse", "type": "sse"}}) as roster:
        old = roster.pool["old"]
        await old.call("write", {"n": 1})
        app.status = status
        with anyio.fail_after(5):
            lost = await old.call("write", {"n": 2})
            await until(lambda: old.state is State.FAILED)
            away = await old.call("write", {"n": 3})
        app.status = None
        back = await old.call("write", {"n": 4})
    assert [answer.report.cause for answer in (lost, away, back)] == [
        Cause.DISCONNECTED,
        Cause.UNREACHABLE,
        Cause.ANSWERED,
    ]
    assert done == [{"n": 1}, {"n": 4}]


# ------------------------------------------------------------------------------------------------ large answers


async def test_fifty_megabytes_arrive_whole(home: Home, tmp_path: Path, remote: Remote) -> None:
    """From a child process, as a document, and as an event."""
    child = Scripted(tmp_path, "child", rows=[tool("t")], tools={"t": {"do": "large", "size": LARGE}})

    async with (
        listening(remote) as address,
        running(home, {"child": child.entry(), "web": {"url": f"{address}/mcp"}}) as roster,
    ):
        web = roster.pool["web"]
        remote.after = lambda id_: JSONResponse(result_of(id_, "x" * LARGE))
        document = await web.call("read", {})
        remote.after = lambda id_: events(event(result_of(id_, "x" * LARGE)))
        answers = [document, await web.call("read", {}), await roster.pool["child"].call("t", {})]
    assert [words(answer).count("x") for answer in answers] == [LARGE] * 3


async def test_a_line_without_end_takes_no_memory_without_end(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that writes more than any message may be long is started anew; the call in flight is not sent again."""
    monkeypatch.setattr(wires, "MAX_LINE_BYTES", 200_000)
    server = Scripted(tmp_path, "box", rows=[tool("t")], tools={"t": {"do": "babble"}})

    async with running(home, {"box": server.entry()}) as roster:
        box = roster.pool["box"]
        with anyio.fail_after(10):
            lost = await box.call("t", {"words": "x" * 400_000})
        after = await box.call("t", {"words": "x" * 100_000})
    assert lost.report.cause is Cause.DISCONNECTED
    assert after.report.cause is Cause.ANSWERED
    assert [len(params["arguments"]["words"]) for params in server.calls()] == [400_000, 100_000]
    assert len(server.pids()) == 2


# ------------------------------------------------------------------------------------------------ answered twice


async def test_of_two_answers_to_a_call_the_first_one_counts(home: Home, tmp_path: Path, remote: Remote) -> None:
    """The second one is not taken for the answer to another call, nor for a reason to end the connection."""
    server = Scripted(tmp_path, "box", rows=[tool("twice"), tool("once")], tools={"twice": {"do": "twice"}})
    remote.after = lambda id_: events(event(result_of(id_, "first")), event(result_of(id_, "again")))

    async with (
        listening(remote) as address,
        running(home, {"box": server.entry(), "web": {"url": f"{address}/mcp"}}) as roster,
    ):
        said = [words(await roster.pool["box"].call(name, {})) for name in ("twice", "once", "twice", "once")]
        heard = [words(await roster.pool["web"].call("write", {})) for _ in range(3)]
    assert ["again" in one for one in said] == [False] * 4
    assert ["once" in one for one in said] == [False, True, False, True]
    assert heard == ["first"] * 3
    assert (len(server.pids()), remote.asked.count("initialize")) == (1, 1)


# ---------------------------------------------------------------------------------------------- never connected


def untrusted(folder: Path) -> ssl.SSLContext:
    """What a server needs for TLS, with a certificate that nobody has signed."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nobody")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "both.pem").write_bytes(plain + certificate.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "both.pem")
    return context


@pytest.mark.parametrize("named", [{"type": "http"}, {"type": "sse"}, {}], ids=["http", "sse", "bare"])
@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ("untrusted", "certificate is not trusted"),
        ("plain", "no secure connection"),
        ("nameless", "host name is not known"),
    ],
)
async def test_a_connection_that_fails_in_tls_or_dns_says_which(
    home: Home, tmp_path: Path, server: str, reason: str, named: dict[str, str]
) -> None:
    """Each has a remedy of its own. Calls fail at once and were never sent, and a server beside it is not touched."""
    good = Scripted(tmp_path, "good", rows=[tool("work")])
    hung_up = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=untrusted(tmp_path) if server == "untrusted" else None
    )
    # No resolver is asked for a name that cannot be one.
    host = "no..name" if server == "nameless" else f"127.0.0.1:{hung_up.sockets[0].getsockname()[1]}"

    async with hung_up, running(home, {"web": {"url": f"https://{host}/mcp", **named}, "good": good.entry()}) as roster:
        web = roster.pool["web"]
        with anyio.fail_after(5):
            answer = await web.call("write", {})
        assert web.error is ErrorKind.UNREACHABLE
        assert reason in web.reason
        assert (answer.report.cause, answer.report.sent) == (Cause.UNREACHABLE, False)
        assert (await roster.pool["good"].call("work", {})).report.cause is Cause.ANSWERED


# ----------------------------------------------------------------------------------------------------- coming back


@pytest.mark.report("NousResearch/hermes-agent#38488")
def test_tries_become_rarer_up_to_a_cap_and_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One second, twice as long after each failure, a minute at the most."""
    monkeypatch.setattr(backend, "BACKOFF_S", (1.0, 60.0))
    assert [backend.pause_s(n) for n in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert backend.pause_s(10**9) == 60


async def test_all_who_call_a_server_that_is_gone_share_one_attempt(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty calls at once start it once, and hear together that it did not help; later ones try again."""
    monkeypatch.setattr(backend, "BACKOFF_S", (3600.0, 3600.0))
    there = tmp_path / "there"
    server = Scripted(tmp_path, "gone", rows=[tool("work")], exit_unless=there)
    answers: list[backend.Answer] = []

    async with running(home, {"gone": server.entry()}) as roster:
        gone = roster.pool["gone"]

        async def call() -> None:
            answers.append(await gone.call("work", {}))

        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(call)
        assert len(server.pids()) == 2
        assert {answer.report.cause for answer in answers} == {Cause.UNREACHABLE}
        there.touch()
        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(call)
    assert {answer.report.cause for answer in answers[50:]} == {Cause.ANSWERED}
    assert len(server.pids()) == 3
    assert len(server.calls()) == 50
