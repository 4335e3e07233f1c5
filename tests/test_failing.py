"""Servers that fail, over real pipes and sockets: what a caller is told, and that the next call is answered."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

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
from remote_backend import Remote, event, events, result_of, words
from scripted_backend import Scripted, running, until
from starlette.responses import JSONResponse, Response

from roster import wires
from roster.backends import ErrorKind, State, backend
from roster.backends.backoff import pause_s
from roster.config import Home
from roster.outcomes import Cause

pytestmark = pytest.mark.anyio

READS = {"readOnlyHint": True}
LARGE = 50_000_000
FIRST_AND_CAP_S = backend.BACKOFF_S


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost backend is tried again after hundredths of a second."""
    monkeypatch.setattr(backend, "BACKOFF_S", (0.03, 0.1))


@pytest.fixture
def remote() -> Remote:
    """A remote server with a tool that reads, and one of which nothing is known."""
    return Remote(tool("write"), tool("read", annotations=READS))


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
        for _ in range(3):
            assert (await box.call("t", {"words": "x" * 100_000})).report.cause is Cause.ANSWERED
    assert lost.report.cause is Cause.DISCONNECTED
    assert [len(params["arguments"]["words"]) for params in server.calls()] == [400_000, *[100_000] * 3]
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
def test_tries_become_rarer_up_to_a_cap_and_never_end() -> None:
    """One second, twice as long after each failure, a minute at the most."""
    assert [pause_s(n, *FIRST_AND_CAP_S) for n in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pause_s(10**9, *FIRST_AND_CAP_S) == 60


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
