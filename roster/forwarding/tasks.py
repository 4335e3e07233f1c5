"""Tasks: calls that a backend answers later. Each belongs to the client that started it and to one backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from roster.backends import Backend, requester
from roster.forwarding.clients import Client, Voice
from roster.forwarding.refusals import result_of

__all__ = ["Tasks"]

RESULT_LIMIT_S = 86_400.0
"""`tasks/result` waits for the end of a task, which may take as long as it likes."""


class Tasks:
    """Passes `tasks/…` on to the backend that has the task."""

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self._backends = backends

    @staticmethod
    def remember(server: str, result: Mapping[str, Any], client: Client) -> None:
        """Note the task that a result says was started."""
        task = result.get("task")
        if isinstance(task, Mapping) and isinstance(id_ := task.get("taskId"), str):
            client.tasks.shown(id_, server)
            if isinstance(voice := requester.get(), Voice):
                voice.task = True

    async def ask(self, voice: Voice) -> tuple[str, dict[str, Any]]:
        """Server and raw result of `tasks/get`, `tasks/result` or `tasks/cancel`. Raises MCPError."""
        id_ = (voice.ctx.params or {}).get("taskId")
        server = voice.client.tasks[id_] if isinstance(id_, str) else None
        if server is None:
            raise MCPError(types.INVALID_PARAMS, "Unknown task: it was not started over this connection")
        limit_s = RESULT_LIMIT_S if voice.ctx.method == "tasks/result" else None
        answer = await self._backends[server].request(voice.ctx.method, voice.params(), limit_s=limit_s)
        return server, result_of(server, answer)

    async def list_all(self, client: Client) -> list[Any]:
        """The tasks that this client started and that are still there."""
        out = []
        for name, backend in self._backends.items():
            if client.sees(name) and "tasks" in (backend.offers or ()):
                found = await backend.rows("tasks/list", "tasks")
                rows = found.rows if found is not None else []
                out += [row for row in rows if isinstance(row, Mapping) and client.tasks[row.get("taskId", "")] == name]
        return out
