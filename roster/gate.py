"""What every HTTP request passes before the protocol sees it: where it is sent to, who sends it, how much it brings.

A web page can make a browser send requests to this machine. So a request must be addressed to a name that is ours
(or a page could have its own name point here), must not come from a foreign page, and brings a token where one is asked
for. Nothing of a request is ever logged but its method, its path if it is one of ours, the status and the token's name.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roster.addresses import host_of, is_loopback
from roster.errors import StoreError
from roster.mended import mended_body
from roster.replies import Reply, refusal
from roster.tokens import Token

__all__ = ["HEALTH", "PATH", "Gate", "Rules", "token_of"]

log = logging.getLogger(__name__)

PATH = "/mcp"
HEALTH = "/healthz"
BODY_LIMIT_S = 30.0
"""For so long a request may take to arrive whole."""
STOPPING = "Roster is stopping"
REMOVED = "ended before its answer: the token was removed, or sees other servers now"

_TOKEN = "roster.token"  # noqa: S105 (a key, not a secret)
_LISTEN = "subscriptions/listen"


@dataclass(frozen=True, slots=True)
class Rules:
    """Which requests are let in. hosts: names a request may be made to, in lower case, besides the address it came in
    on. origins: web pages that may make one. pages_here: so may any page of this machine. token: one is asked for.
    at_once: so many requests with one token may be open at a time, streams among them."""

    hosts: frozenset[str]
    origins: frozenset[str]
    pages_here: bool
    token: bool
    max_body_bytes: int
    at_once: int = 1_000

    def wrong_host(self, header: str | None, local: str | None) -> str | None:
        """Why a request to this `Host` is refused; None when it is not. local: the address it came in on."""
        host = host_of(header) if header else None
        if host is None:
            return "the Host header is missing or malformed"
        if host in self.hosts or (local is not None and host == local.lower()):
            return None
        return f'{host!r} is not a name of this server: add it to "hosts" in the "http" block of roster.json'

    def wrong_origin(self, header: str | None, host: str | None) -> str | None:
        """Why a request from a page of this `Origin` is refused; None when it is not. host: the `Host` header."""
        if not header or header in self.origins:
            return None
        try:
            page = urlsplit(header)
            if page.scheme in ("http", "https") and page.hostname is not None:
                own = page.netloc.lower() == (host or "").lower()
                here = page.hostname == "localhost" or is_loopback(page.hostname)
                if own or (self.pages_here and here):
                    return None
        except ValueError:
            pass
        return 'pages of this origin may not use this server: add it to "origins" in the "http" block of roster.json'


def token_of(scope: Mapping[str, Any]) -> Token | None:
    """The token a request brought; None when none was asked for and none came."""
    token = scope.get(_TOKEN)
    return token if isinstance(token, Token) else None


class Gate:
    """An ASGI application in front of another one, which only sees requests that may come in, with their whole body.

    holder: the token a secret is, or None. health: what `/healthz` answers besides "ok" to whoever may come in.
    """

    def __init__(
        self,
        app: ASGIApp,
        rules: Rules,
        holder: Callable[[str], Awaitable[Token | None]],
        health: Callable[[Token | None], dict[str, Any]],
    ) -> None:
        self._app = app
        self._rules = rules
        self._holder = holder
        self._health = health
        self._requests: dict[anyio.CancelScope, Token | None] = {}
        self._calls = 0
        self._quiet = anyio.Event()
        self._closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        reply = Reply(send)
        headers = Headers(scope=scope)
        try:
            answer = await self._look(scope, headers)
            if answer is None:
                await self._pass(scope, headers, receive, reply)
            else:
                await answer(scope, receive, reply.send)
        except ConnectionError:
            raise  # the client's affair
        except Exception as error:
            # The web server would say it with all that the error was about.
            log.warning("a request could not be served (%s)", type(error).__name__)
            raise
        finally:
            if log.isEnabledFor(logging.DEBUG):
                token, path = token_of(scope), scope["path"]
                known = path if path in (PATH, HEALTH) else "(another path)"
                log.debug("%s %s %s %s", scope["method"], known, reply.status, token.name if token else "-")

    def close(self) -> None:
        """Let nobody else in."""
        self._closed = True
        self._quiet.set()

    async def quiet(self) -> None:
        """Wait until no request that came before `close` is waiting for its answer."""
        while self._calls:
            self._quiet = anyio.Event()
            await self._quiet.wait()

    def end(self) -> None:
        """End every request that is left, such as open streams."""
        for scope in list(self._requests):
            scope.cancel()

    def tokens(self) -> set[Token]:
        """The tokens with which requests are open."""
        return {token for token in self._requests.values() if token is not None}

    def keep(self, tokens: Collection[Token]) -> None:
        """End what is open for any other token: one that has been removed, or sees other servers now."""
        for scope, token in list(self._requests.items()):
            if token is not None and token not in tokens:
                scope.cancel()

    # --------------------------------------------------------------------------------------------- looking

    async def _look(self, scope: Scope, headers: Headers) -> Response | None:
        """Why this request is refused, or what is answered to it here; None when it may come in."""
        rules, host = self._rules, headers.get("host")
        local = (scope.get("server") or (None,))[0]
        if wrong := rules.wrong_host(host, local):
            return refusal(421, wrong)
        if wrong := rules.wrong_origin(headers.get("origin"), host):
            return refusal(403, wrong)
        path = scope["path"]
        if path != HEALTH and path.rstrip("/") != PATH:
            return refusal(404, f"there is nothing here: MCP is at {PATH}")
        if path != HEALTH and self._closed:
            return refusal(503, STOPPING)
        secret = _bearer(headers.getlist("authorization"))
        try:
            token = await self._holder(secret) if secret else None
        except StoreError as error:
            log.warning("%s", error)
            return refusal(503, "tokens cannot be looked up just now: try again")
        stranger = token is None and (rules.token or secret is not None)
        if path == HEALTH:
            more = {} if stranger else self._health(token)
            return JSONResponse({"ok": not self._closed, **more}, status_code=503 if self._closed else 200)
        if stranger:
            remedy = "send one as `Authorization: Bearer …` (`roster token add NAME` makes one)"
            wrong = "this token is not known" if secret else "a token is needed"
            return refusal(401, f"{wrong}: {remedy}", {"WWW-Authenticate": "Bearer"})
        if token is not None:
            if sum(each == token for each in self._requests.values()) >= rules.at_once:
                return refusal(429, f"{rules.at_once} requests with this token are open already: end some of them")
            scope[_TOKEN] = token
            # The SDK keeps each session to the user that opened it. It is told the token's name, never the token.
            scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=token.name, scopes=[]))
        return None

    async def _body(self, headers: Headers, receive: Receive) -> Response | Receive:
        """The whole body, counted as it comes in: what a request says of its own length is only a hint."""
        limit, body = self._rules.max_body_bytes, bytearray()
        too_large = refusal(
            413,
            f'the request is larger than {limit:,} bytes: raise "max_body_bytes" in the "http" block of roster.json',
        )
        said = headers.get("content-length", "")
        if said.isdecimal() and int(said[:20]) > limit:
            return too_large
        with anyio.move_on_after(BODY_LIMIT_S) as waiting:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return refusal(400, "the request was cut short")
                body += message.get("body", b"")
                if len(body) > limit:
                    return too_large
                if not message.get("more_body", False):
                    break
        if waiting.cancelled_caught:
            return refusal(408, f"the request did not arrive within {BODY_LIMIT_S:g} s", {"Connection": "close"})
        first: list[Message] = [{"type": "http.request", "body": mended_body(bytes(body)), "more_body": False}]

        async def again() -> Message:
            return first.pop() if first else await receive()

        return again

    # --------------------------------------------------------------------------------------------- passing

    async def _pass(self, scope: Scope, headers: Headers, receive: Receive, reply: Reply) -> None:
        """Hand a request on, until it is answered, the client has gone, or it is ended from here."""
        with anyio.CancelScope() as passing:
            self._requests[passing] = token_of(scope)
            try:
                whole = await self._body(headers, receive) if scope["method"] == "POST" else receive
                if isinstance(whole, Response):
                    await whole(scope, receive, reply.send)
                else:
                    await self._answered(scope, headers, whole, reply)
            finally:
                del self._requests[passing]
        if passing.cancelled_caught:
            removed = token_of(scope) is not None and not self._closed
            await reply.finish(refusal(401, REMOVED) if removed else refusal(503, STOPPING))

    async def _answered(self, scope: Scope, headers: Headers, receive: Receive, reply: Reply) -> None:
        # A stream of news never ends by itself; nobody waits for it when Roster stops.
        waited_for = scope["method"] == "POST" and headers.get("mcp-method") != _LISTEN
        self._calls += waited_for
        try:
            await self._app(scope, receive, reply.send)
        finally:
            self._calls -= waited_for
            if not self._calls:
                self._quiet.set()


def _bearer(values: Collection[str]) -> str | None:
    """The secret in an `Authorization` header; "" for one that is not a single bearer token; None without a header."""
    if not values:
        return None
    scheme, _, secret = next(iter(values)).strip().partition(" ")
    return secret.strip() if len(values) == 1 and scheme.lower() == "bearer" else ""
