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
    """One answer to `tools/list`, all pages: rows that can be used, and the names of those that cannot, with reasons.

    mended: what had to be left out of rows that are used.
    """

    rows: list[dict[str, Any]]
    rejected: dict[str, str] = field(default_factory=dict)
    complete: bool = True
    mended: dict[str, str] = field(default_factory=dict)

    @property
    def repeatable(self) -> frozenset[str]:
        """The tools of which their server says that a second call does no more than the first."""
        hints = {row["name"]: row.get("annotations") or {} for row in self.rows}
        return frozenset(
            name
            for name, says in hints.items()
            if says.get("readOnlyHint") is True or says.get("idempotentHint") is True
        )


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
    """A `tools/list` row that every client can read, and what had to be done for that; or None and the reason.

    A strict client that meets one bad row loses the whole list. So what can only mean one thing is mended, and an
    optional key that breaks the protocol's shape is left out rather than the tool.
    """
    if not isinstance(row, dict) or not isinstance(row.get("name"), str) or not row["name"]:
        return None, "it has no name"
    row, said = _with_object_schema(_finite(row)), []
    while True:
        try:
            methods.validate_server_result("tools/list", LISTING_VERSION, {"tools": [row]})
        except ValidationError as error:
            where = [str(part) for part in error.errors(include_input=False)[0]["loc"][2:]]
            if not where or where[0] in ("name", "inputSchema") or where[0] not in row:
                return None, f"{'.'.join(where) or 'the row'} is not valid"
            row = {key: value for key, value in row.items() if key != where[0]}
            said.append(f"{where[0]} was left out: {'.'.join(where)} is not valid")
        else:
            return row, "; ".join(said)


def _with_object_schema(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose input schema says "object", where it says nothing or that among others.

    Common in the wild, refused by strict clients, and arguments are never anything else.
    """
    schema = row.get("inputSchema")
    if schema is None:
        return {**row, "inputSchema": {"type": "object"}}
    if not isinstance(schema, dict):
        return row
    kind = schema.get("type")
    if "type" not in schema:
        return {**row, "inputSchema": {"type": "object", **schema}}
    return {**row, "inputSchema": {**schema, "type": "object"}} if isinstance(kind, list) and "object" in kind else row


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
    mended: dict[str, str] = {}
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
            if reason:
                mended[name] = reason
    return Listing(rows, rejected, found.complete, mended)
