"""Results leave as the backends sent them, past the SDK's types.

The SDK sieves what a handler returns down to the keys it knows. So a handler puts the raw result into a box and returns
a stub; `raw_answers`, a middleware, swaps the one for the other once the SDK has done its checks. A call that
`is_plain_call` needs none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, TypeGuard

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from pydantic import BaseModel

__all__ = ["CALL_KEYS", "answer_raw", "as_dict", "is_plain_call", "raw_answers"]

CALL_KEYS = frozenset({"name", "arguments", "_meta"})
"""What a call of a tool says as a rule."""

_STUBS: Mapping[str, BaseModel] = {
    "tools/list": types.ListToolsResult(tools=[]),
    "tools/call": types.CallToolResult(content=[]),
    "resources/list": types.ListResourcesResult(resources=[]),
    "resources/templates/list": types.ListResourceTemplatesResult(resource_templates=[]),
    "resources/read": types.ReadResourceResult(contents=[]),
    "prompts/list": types.ListPromptsResult(prompts=[]),
    "prompts/get": types.GetPromptResult(messages=[]),
    "completion/complete": types.CompleteResult(completion=types.Completion(values=[])),
}
# What of a shaped stub is only there because the SDK asks for it.
_STUB_KEYS = frozenset("tools content isError resources resourceTemplates contents prompts messages completion".split())

_box: ContextVar[dict[str, Any] | None] = ContextVar("roster_raw_answer", default=None)


def answer_raw(method: str, answer: Mapping[str, Any]) -> Any:
    """Have `answer` sent as the result of the request being handled; return what this returns."""
    box = _box.get()
    if box is not None:
        box["answer"] = dict(answer)
    return _STUBS.get(method, types.EmptyResult())


async def raw_answers(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Middleware: let the SDK check and shape the stub, then answer with what the handler put in the box."""
    box: dict[str, Any] = {}
    token = _box.set(box)
    try:
        shaped = await call_next(ctx)
    finally:
        _box.reset(token)
    if "answer" not in box:
        return shaped
    # What the newer era adds to every result (resultType, the server's stamp) is in the shaped stub.
    envelope = {key: value for key, value in as_dict(shaped).items() if key not in _STUB_KEYS}
    answer = box["answer"]
    stamp = envelope.pop("_meta", None)
    if stamp and isinstance(answer.get("_meta", {}), dict):
        answer = {**answer, "_meta": {**stamp, **answer.get("_meta", {})}}
    return {**envelope, **answer}


def as_dict(result: HandlerResult) -> dict[str, Any]:
    """A handler's result as it goes out."""
    if isinstance(result, dict):
        return result
    return result.model_dump(by_alias=True, mode="json", exclude_none=True) if result is not None else {}


def is_plain_call(params: Mapping[str, Any] | None) -> TypeGuard[Mapping[str, Any]]:
    """Whether the params of a call say nothing but the usual, each in its right type."""
    if params is None or not params.keys() <= CALL_KEYS:
        return False
    meta = params.get("_meta", {})
    token = meta.get("progressToken", 0) if isinstance(meta, dict) else None
    return (
        isinstance(params.get("name"), str)
        and isinstance(params.get("arguments", {}), dict)
        and isinstance(token, str | int)
        and not isinstance(token, bool)
    )
