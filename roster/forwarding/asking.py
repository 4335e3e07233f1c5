"""What a backend asks of the client: whose client is meant, whether it can answer, and a clear refusal where not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError, NoBackChannelError
from pydantic import ValidationError

from roster.backends import Backend, requester
from roster.forwarding.clients import Client, Voice

__all__ = ["Asking", "incapable"]

log = logging.getLogger(__name__)

ANSWER_LIMIT_S = 3_600.0
CLIENT_WAIT_S = 5.0
"""A server that asks for the roots right after its handshake may well be quicker than the client that started us."""


def incapable(capabilities: types.ClientCapabilities | None, method: str, params: Mapping[str, Any]) -> str | None:
    """Why a client with these capabilities cannot be asked this; None when it can."""
    has = capabilities or types.ClientCapabilities()
    if method == "roots/list" and has.roots is None:
        return "the client has no roots"
    if method == "sampling/createMessage":
        if has.sampling is None:
            return "the client does not support sampling"
        if params.get("tools") is not None and has.sampling.tools is None:
            return "the client does not support tools in sampling"
    if method == "elicitation/create":
        if has.elicitation is None:
            return "the client does not support elicitation"
        # A client that names no mode means forms; they came first.
        url, form = has.elicitation.url is not None, has.elicitation.form is not None
        if params.get("mode") == "url" and not url:
            return "the client does not support elicitation by URL"
        if params.get("mode", "form") == "form" and url and not form:
            return "the client supports elicitation by URL only"
    return None


class Asking:
    """Carries a backend's requests to the client they concern."""

    def __init__(self, clients: Callable[[], Iterable[Client]]) -> None:
        self._clients = clients
        self._arrived = anyio.Event()
        self._elicited: dict[str, Client] = {}
        self.waiting_for_roots: set[str] = set()
        """Backends that asked for roots when nobody could say; they are told when somebody can."""

    def arrived(self) -> None:
        """A client is ready."""
        self._arrived.set()
        self._arrived = anyio.Event()

    async def ask(self, backend: Backend, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The client's raw answer. Raises MCPError: the client's own, or why nobody can be asked."""
        try:
            who = await self._whose(backend, method)
            reason = incapable(who.capabilities, method, params)
            if reason is None and not who.can_be_asked:
                reason = "the client speaks a protocol version in which it cannot be asked"
            if reason is not None:
                raise MCPError(types.METHOD_NOT_FOUND, f"{method}: {reason}", {"method": method})
        except MCPError:
            if method == "roots/list":
                self.waiting_for_roots.add(backend.name)
            raise
        if isinstance(elicitation := params.get("elicitationId"), str):
            self._elicited[elicitation] = who.client
        return await self._asked(backend, who, method, params)

    async def _asked(
        self, backend: Backend, who: Client | Voice, method: str, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        meta = params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, Mapping) else None

        async def pass_on(progress: float, total: float | None, message: str | None) -> None:
            told = {"progressToken": token, "progress": progress, "total": total, "message": message}
            if backend.link is not None:
                await backend.link.notify(
                    "notifications/progress", {key: value for key, value in told.items() if value is not None}
                )

        if token is not None and isinstance(meta, Mapping):
            kept = {key: value for key, value in meta.items() if key != "progressToken"}
            params = {key: value for key, value in params.items() if key != "_meta"} | ({"_meta": kept} if kept else {})
        try:
            answer: dict[str, Any] = await who.ask(
                method, params, ANSWER_LIMIT_S, pass_on if token is not None else None
            )
        except NoBackChannelError:
            raise MCPError(types.INTERNAL_ERROR, f"{method}: the request it belongs to is over") from None
        except ValidationError:
            raise MCPError(types.INTERNAL_ERROR, f"{method}: the client's answer is not valid") from None
        return answer

    async def fulfil(self, backend: Backend, result: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answers to a backend of the newer era that wants input, as params for asking it once more; None where
        the client can be given the result itself. Raises MCPError."""
        voice = requester.get()
        if not isinstance(voice, Voice) or voice.modern:
            return None
        wanted = result.get("inputRequests")
        answers = {
            key: await self.ask(backend, str(one.get("method")), one.get("params") or {})
            for key, one in (wanted.items() if isinstance(wanted, Mapping) else ())
            if isinstance(one, Mapping)
        }
        state = result.get("requestState")
        return {"inputResponses": answers} | ({"requestState": state} if state is not None else {})

    async def _whose(self, backend: Backend, method: str) -> Client | Voice:
        """The client that a question of this backend is for. Raises MCPError when that cannot be told."""
        own = requester.get()
        if isinstance(own, Voice):
            return own
        under_way = [one for one in backend.flights.requesters() if isinstance(one, Voice)]
        if len(under_way) == 1:
            return under_way[0]
        if under_way:
            raise _refusal(
                method, f"it may belong to any of {len(under_way)} clients' calls, and nobody can tell which"
            )
        if not (ready := self._ready(backend)):
            with anyio.move_on_after(CLIENT_WAIT_S):
                while not (ready := self._ready(backend)):
                    await self._arrived.wait()
        if len(ready) == 1:
            return ready[0]
        reason = f"{len(ready)} clients are connected and it belongs to no call" if ready else "no client is connected"
        raise _refusal(method, reason)

    def _ready(self, backend: Backend) -> list[Client]:
        return [client for client in self._clients() if client.ready and client.sees(backend.name)]

    def remember(self, error: types.ErrorData, client: Client) -> None:
        """Note the pages that an error sends this client's person to."""
        data = error.data if error.code == types.URL_ELICITATION_REQUIRED else None
        pages = data.get("elicitations") if isinstance(data, Mapping) else None
        for page in pages if isinstance(pages, list) else ():
            if isinstance(page, Mapping) and isinstance(id_ := page.get("elicitationId"), str):
                self._elicited[id_] = client

    def elicited(self, elicitation: Any) -> Client | None:
        """The client that was asked this by URL; it is forgotten with that."""
        return self._elicited.pop(elicitation, None) if isinstance(elicitation, str) else None

    def forget(self, client: Client) -> None:
        """A client has gone."""
        for elicitation in [key for key, who in self._elicited.items() if who is client]:
            del self._elicited[elicitation]


def _refusal(method: str, reason: str) -> MCPError:
    return MCPError(types.METHOD_NOT_FOUND, f"{method}: {reason}", {"method": method})
