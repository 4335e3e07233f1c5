"""A server of 2026-07-28 alone, over streamable HTTP: its tool wants some of its arguments as headers, too.

    PORT=8000 python eval/faithful/newer_server.py

A call whose headers and arguments do not say the same is refused, as the protocol asks of servers.
"""

from __future__ import annotations

import json
import os
from typing import Any

import uvicorn
from mcp.shared.inbound import MCP_PARAM_HEADER_PREFIX, validate_mcp_param_headers
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

NEWER = "2026-07-28"
UNSUPPORTED_VERSION, METHOD_NOT_FOUND = -32022, -32601


def header(name: str, kind: str) -> dict[str, Any]:
    """The schema of an argument that is sent as a header, too."""
    return {"type": kind, "x-mcp-header": name}


SCHEMA = {
    "type": "object",
    "properties": {
        "region": header("Region", "string"),
        "limit": header("Limit", "integer"),
        "dry": header("Dry", "boolean"),
        "where": {"type": "object", "properties": {"city": header("City", "string")}},
        "query": {"type": "string"},
    },
}
TOOL = {"name": "find", "description": "Finds something in a region", "inputSchema": SCHEMA}


def answer(request: Request, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The `result` or `error` of one request."""
    complete = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    match method:
        case "server/discover":
            return {"result": {**complete, "supportedVersions": [NEWER], "capabilities": {"tools": {}}}}
        case "tools/list":
            return {"result": {**complete, "tools": [TOOL]}}
        case "tools/call":
            refused = validate_mcp_param_headers(SCHEMA, params.get("arguments") or {}, request.headers)
            if refused is not None:
                return {"error": {"code": refused.code, "message": refused.message}}
            prefix = MCP_PARAM_HEADER_PREFIX.lower()
            seen = {name: value for name, value in request.headers.items() if name.startswith(prefix)}
            text = json.dumps([seen, params.get("arguments")], sort_keys=True)
            return {"result": {**complete, "content": [{"type": "text", "text": text}]}}
        case "initialize":
            data = {"supported": [NEWER], "requested": params.get("protocolVersion")}
            return {"error": {"code": UNSUPPORTED_VERSION, "message": "Unsupported protocol version", "data": data}}
        case _:
            return {"error": {"code": METHOD_NOT_FOUND, "message": f"Method not found: {method}"}}


async def post(request: Request) -> Response:
    """Answer one message."""
    message = await request.json()
    if "id" not in message:
        return Response(status_code=202)
    said = answer(request, message["method"], message.get("params") or {})
    status = 400 if "error" in said else 200
    return JSONResponse({"jsonrpc": "2.0", "id": message["id"], **said}, status_code=status)


if __name__ == "__main__":
    app = Starlette(routes=[Route("/mcp", post, methods=["POST"])])
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="error")
