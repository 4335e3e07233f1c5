"""Errors of Roster's own, where a request cannot be passed on; and a backend's answer as a result or its own error."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from roster.backends import Answer

__all__ = ["NOT_FOUND_CODES", "no_prompt", "no_resource", "result_of"]

OLD_NOT_FOUND = -32002
NOT_FOUND_CODES = (OLD_NOT_FOUND, types.INVALID_PARAMS, types.METHOD_NOT_FOUND)
"""What servers answer for a resource they do not have."""


def no_resource(uri: str, version: str) -> MCPError:
    """Nobody has this resource; each era has its own code for that."""
    code = types.INVALID_PARAMS if version in MODERN_PROTOCOL_VERSIONS else OLD_NOT_FOUND
    return MCPError(code, "Resource not found: no server lists it or has a template for it", {"uri": uri})


def no_prompt(name: str) -> MCPError:
    """Nobody has this prompt."""
    return MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name}")


def result_of(server: str, answer: Answer) -> dict[str, Any]:
    """The backend's result. Raises its own error as it came, or says that there was no answer."""
    if answer.error is not None:
        raise MCPError(answer.error.code, answer.error.message, answer.error.data)
    if answer.result is None:
        seconds = answer.report.latency_ms / 1000
        words = f"{server} gave no answer ({answer.report.cause.value}, after {seconds:.1f} s)"
        raise MCPError(types.INTERNAL_ERROR, words)
    return answer.result
