"""Lists that backends send, all pages, each row as it came.

The SDK validates a listing as a whole and drops the keys it does not know; a router may do neither.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import methods
from pydantic import ValidationError

from roster.backends.tap import RawRequest, raw_result

__all__ = ["Listing", "Rows", "list_rows", "list_tools", "usable_row"]

LISTING_VERSION = "2025-11-25"
MAX_PAGES = 1_000
METHOD_NOT_FOUND = -32601


@dataclass(frozen=True, slots=True)
class Listing:
    """One answer to `tools/list`, all pages: rows that can be used, and the names of those that cannot."""

    rows: list[dict[str, Any]]
    rejected: dict[str, str] = field(default_factory=dict)
    complete: bool = True


def _finite(value: Any) -> Any:
    """`value` without NaN and infinities, which parsers let in and JSON has no form for."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case _:
            return value


def usable_row(row: Any) -> tuple[dict[str, Any] | None, str]:
    """A `tools/list` row that every client can read, mended where that loses nothing; or None and the reason."""
    if not isinstance(row, dict) or not isinstance(row.get("name"), str) or not row["name"]:
        return None, "it has no name"
    row = _finite(row)
    schema = row.get("inputSchema")
    if schema is None or (isinstance(schema, dict) and "type" not in schema):
        # Common in the wild, refused by strict clients, and it can only mean an object.
        row = {**row, "inputSchema": {"type": "object", **(schema or {})}}
    try:
        methods.validate_server_result("tools/list", LISTING_VERSION, {"tools": [row]})
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"][2:])
        return None, f"{where or 'the row'} is not valid"
    return row, ""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one list, all pages, unread. complete: no page after the first failed, and there was an end."""

    rows: list[Any]
    complete: bool = True


async def list_rows(session: ClientSession, method: str, key: str) -> Rows:
    """Every page of a list method. A page that fails after the first leaves it incomplete; raises MCPError before."""
    rows: list[Any] = []
    seen: set[str] = set()
    cursor: str | None = None
    for page in range(MAX_PAGES):
        request = RawRequest(method=method, params={"cursor": cursor} if cursor is not None else {})
        try:
            result = await raw_result(lambda request=request: session.send_request(request, types.EmptyResult))  # type: ignore[misc]
        except MCPError:
            if page == 0:
                raise
            return Rows(rows, complete=False)
        listed = result.get(key)
        rows += listed if isinstance(listed, list) else []
        following = result.get("nextCursor")
        if not isinstance(following, str) or following in seen:
            return Rows(rows)
        seen.add(following)
        cursor = following
    return Rows(rows, complete=False)


async def list_tools(session: ClientSession) -> Listing:
    """Every page of `tools/list`, its rows checked one by one."""
    try:
        found = await list_rows(session, "tools/list", "tools")
    except MCPError as error:
        if error.code == METHOD_NOT_FOUND:
            return Listing([])  # a server of resources or prompts only
        raise
    rows: list[dict[str, Any]] = []
    rejected: dict[str, str] = {}
    names: set[str] = set()
    for raw in found.rows:
        row, reason = usable_row(raw)
        name = str(raw.get("name", "")) if isinstance(raw, dict) else ""
        if row is None:
            rejected[name or f"(row {len(rows) + len(rejected)})"] = reason
        elif name in names:
            rejected[name] = "listed twice; the first one is used"
        else:
            names.add(name)
            rows.append(row)
    return Listing(rows, rejected, found.complete)
