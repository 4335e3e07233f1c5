"""The SDK's dispatcher, and two things that a router needs of it besides.

Over streamable HTTP of the newer era a tool's schema may ask for arguments as headers, by which what stands in between
can tell calls apart; a server refuses a call without them. The SDK adds them for tools it has listed itself.

And the progress of a call that became a task goes on under the call's token when the call has been answered.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.abc
from mcp.shared.dispatcher import CallOptions, DispatchContext, OnNotify, OnNotifyIntercept, OnRequest, ProgressFnT
from mcp.shared.inbound import MCP_METHOD_HEADER, find_invalid_x_mcp_header, mcp_param_headers, x_mcp_header_map
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

__all__ = ["BackendDispatcher"]

TASKS_KEPT = 200
"""So many tasks' progress is waited for at a time; of older ones it is dropped."""


class BackendDispatcher(JSONRPCDispatcher[Any]):
    """`JSONRPCDispatcher` that sends `Mcp-Param-*` headers, and hands on progress of tasks."""

    def __init__(self, *streams: Any) -> None:
        super().__init__(*streams)
        self._headers: dict[str, Mapping[tuple[str, ...], str]] = {}
        self._tasks: OrderedDict[str, ProgressFnT] = OrderedDict()
        self._numbers = itertools.count(1)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **more: Any
    ) -> dict[str, Any]:
        """Send a request and wait for its result. Raises MCPError."""
        if method == "tools/list" and opts is not None and MCP_METHOD_HEADER in opts.get("headers", {}):
            result = await super().send_raw_request(method, params, opts, **more)
            self._learn(result.get("tools"))
            return result
        if method != "tools/call" or params is None:
            return await super().send_raw_request(method, params, opts, **more)
        opts = {**opts} if opts is not None else {}
        if declared := self._headers.get(str(params.get("name"))):
            mirrored = mcp_param_headers(declared, params.get("arguments") or {})
            opts["headers"] = {**opts.get("headers", {}), **mirrored}
        if "task" in params and (on_progress := opts.pop("on_progress", None)) is not None:
            return await self._start_task(method, params, opts, on_progress)
        return await super().send_raw_request(method, params, opts, **more)

    def _learn(self, rows: Any) -> None:
        """Note which arguments each tool on a page of the list wants as headers."""
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, Mapping) and isinstance(name := row.get("name"), str):
                schema = row.get("inputSchema")
                valid = isinstance(schema, Mapping) and find_invalid_x_mcp_header(schema) is None
                self._headers[name] = x_mcp_header_map(schema) if valid else {}

    async def _start_task(
        self, method: str, params: Mapping[str, Any], opts: CallOptions, on_progress: ProgressFnT
    ) -> dict[str, Any]:
        # The SDK knows a token for as long as its request is open. So this one is ours, from the beginning: what comes
        # just after the answer must be neither lost nor heard twice.
        token = f"task-{next(self._numbers)}"
        sent = {**params, "_meta": {**(params.get("_meta") or {}), "progressToken": token}}
        self._tasks[token] = on_progress
        if len(self._tasks) > TASKS_KEPT:
            self._tasks.popitem(last=False)
        became_one = False
        try:
            result = await super().send_raw_request(method, sent, opts)
            became_one = "task" in result
            return result
        finally:
            if not became_one:
                self._tasks.pop(token, None)

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Drive the connection until its stream ends."""

        async def noted(context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None) -> None:
            if method == "notifications/progress" and self._tasks:
                await self._report(params or {})
            await on_notify(context, method, params)

        await super().run(on_request, noted, on_notify_intercept, task_status=task_status)

    async def _report(self, params: Mapping[str, Any]) -> None:
        """Hand on the progress of a task; any other is the SDK's affair."""
        match params:
            case {"progressToken": str(token), "progress": int() | float() as progress} if token in self._tasks:
                total, message = params.get("total"), params.get("message")
                await self._tasks[token](
                    float(progress),
                    float(total) if isinstance(total, int | float) else None,
                    message if isinstance(message, str) else None,
                )
