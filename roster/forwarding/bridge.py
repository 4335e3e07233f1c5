"""Between the eras. In the newer one nobody asks a client anything: a server answers a request with `input_required`,
and the client sends it once more with the answers. In the older one a server asks while the request waits.

So a backend of the older era that asks a client of the newer one has its question sent as such an answer, while its
call is held; and where a newer backend answers a client of the older era like that, the client is asked and the request
sent once more. Between two of the newer era it all passes untouched.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
import mcp_types as types
from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError

from roster.forwarding.clients import Client, Voice

__all__ = ["HOLDING", "Bridge", "input_required"]

log = logging.getLogger(__name__)

HOLDING = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The requests that may be answered with a question."""
HELD_S = 600.0
"""How long a client may take to come back with an answer."""
MAX_HELD = 100
_STATE = "roster-"


def input_required(result: Mapping[str, Any]) -> bool:
    """Whether a result is a question."""
    return result.get("resultType") == "input_required"


@dataclass(slots=True, eq=False)
class _Question:
    method: str
    params: Mapping[str, Any]
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: dict[str, Any] | None = None


class Held:
    """One request of a client of the newer era, carried out in a task of its own that outlives it."""

    def __init__(self, voice: Voice) -> None:
        self.voice = voice
        self.scope = anyio.CancelScope()
        self._questions: dict[str, _Question] = {}
        self._asked = anyio.Event()
        self._done = False
        self._result: HandlerResult = None
        self._error: Exception | None = None

    async def carry_out(self, work: Callable[[], Awaitable[HandlerResult]]) -> None:
        """Do the work; what came of it is there for `outcome`."""
        with self.scope:
            try:
                self._result = await work()
            except Exception as error:  # noqa: BLE001 - it is raised where the request is answered
                self._error = error
        self._done = True
        self._asked.set()

    async def question(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The client's answer, sent with the request when it comes once more. Raises MCPError when it does not."""
        question = _Question(method, params)
        key = f"{method}-{len(self._questions)}-{secrets.token_hex(4)}"
        self._questions[key] = question
        self._asked.set()
        try:
            with anyio.move_on_after(HELD_S):
                await question.answered.wait()
        finally:
            self._questions.pop(key, None)
        if question.answer is None:
            raise MCPError(types.INTERNAL_ERROR, f"{method}: the client did not come back with an answer")
        return question.answer

    def answer(self, responses: Any) -> None:
        """Take the answers of a request that came once more; what it leaves out stays open."""
        for key, answer in responses.items() if isinstance(responses, Mapping) else ():
            question = self._questions.get(key)
            if question is not None and isinstance(answer, Mapping):
                question.answer = dict(answer)
                question.answered.set()

    async def outcome(self) -> HandlerResult | None:
        """The result, or None when there are questions first. Raises what the work raised."""
        while not self._done and not self.open():
            self._asked = anyio.Event()
            await self._asked.wait()
        if not self._done:
            return None
        if self._error is not None:
            raise self._error
        return self._result

    def open(self) -> dict[str, dict[str, Any]]:
        """The questions that have no answer yet, as the client is sent them."""
        return {
            key: {"method": question.method, "params": dict(question.params)}
            for key, question in self._questions.items()
            if not question.answered.is_set()
        }


class Bridge:
    """The held requests of all clients, by the state that a client sends back."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}

    async def run(
        self,
        voice: Voice,
        group: anyio.abc.TaskGroup,
        work: Callable[[], Awaitable[HandlerResult]],
        stamp: Mapping[str, Any],
    ) -> HandlerResult:
        """The result of a request of the newer era, or the questions that come first.

        group: of a life longer than the request's. stamp: the `_meta` of an answer of ours. Raises MCPError.
        """
        params = voice.ctx.params or {}
        state = params.get("requestState")
        held = self._resumed(state, voice) if isinstance(state, str) and state.startswith(_STATE) else None
        again = held is not None
        if held is None:
            held = voice.held = Held(voice)
            group.start_soon(held.carry_out, work)
        try:
            if again:
                await held.voice.back(voice.ctx)
                held.answer(params.get("inputResponses"))
            result = await held.outcome()
        except anyio.get_cancelled_exc_class():
            held.scope.cancel()
            raise
        if result is not None or not (questions := held.open()):
            return result
        state = f"{_STATE}{secrets.token_urlsafe(16)}"
        self._held[state] = held
        if len(self._held) > MAX_HELD:
            self._held.pop(next(iter(self._held))).scope.cancel()
        held.voice.leave()
        return {
            "resultType": "input_required",
            "inputRequests": questions,
            "requestState": state,
            "_meta": dict(stamp),
        }

    def _resumed(self, state: str, voice: Voice) -> Held:
        held = self._held.get(state)
        if held is None or held.voice.client is not voice.client:
            raise MCPError(types.INVALID_PARAMS, "The request that this one continues is over: send it anew")
        del self._held[state]
        return held

    def forget(self, client: Client) -> None:
        """A client has gone; what is held for it is ended."""
        for state, held in list(self._held.items()):
            if held.voice.client is client:
                del self._held[state]
                held.scope.cancel()
