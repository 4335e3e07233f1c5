"""A server of odd things, over stdio: what real servers send, and what the protocol does not forbid or barely does.

    python eval/faithful/odd_server.py shapes|names|pages|many|huge|results|rest|own

Each kind is a server of its own, so that one that costs a client the whole list does not hide the others.
"""

from __future__ import annotations

import json
import sys
from typing import Any

OBJECT = {"type": "object", "properties": {}}
SHAPES: dict[str, dict[str, Any]] = {
    "input_schema_empty": {"inputSchema": {}},
    "input_schema_missing": {"inputSchema": None},
    "input_schema_object_or_null": {"inputSchema": {"type": ["object", "null"], "properties": {}}},
    "input_schema_any_of": {"inputSchema": {"anyOf": [{"type": "object"}, {"type": "object", "x": 1}]}},
    "input_schema_of_refs": {"inputSchema": {**OBJECT, "$defs": {"a": {"$ref": "#/$defs/a"}}}},
    "property_schema_boolean": {"inputSchema": {"type": "object", "properties": {"x": True}}},
    "additional_properties": {"inputSchema": {**OBJECT, "additionalProperties": True}},
    "required_null": {"inputSchema": {**OBJECT, "required": None}},
    "output_schema_array": {"outputSchema": {"type": "array", "items": {}}},
    "output_schema_ref": {"outputSchema": {"$ref": "#/$defs/x", "$defs": {"x": {"type": "object"}}}},
    "output_schema_null": {"outputSchema": None},
    "task_support_unknown": {"execution": {"taskSupport": "sometimes"}},
    "icon_without_src": {"icons": [{"mimeType": "image/png"}]},
    "description_null": {"description": None},
    "description_empty": {"description": ""},
    "meta_null": {"_meta": None},
    "unknown_keys": {"somethingNew": {"deep": [None, 1.5]}, "annotations": {"futureHint": {"a": None}}},
    "meta_kept": {"_meta": {"org.example/kept": {"deep": [None, "ü"]}}, "title": "T", "icons": [{"src": "data:,"}]},
}
NAMES = [
    "plain",
    "x" * 64,
    "y" * 128,
    "z" * 300,
    "日本語",
    "naïve",
    "with space",
    "with/slash",
    "a.b",
    "🎉",
    "a__b",
    "-",
]
TWICE = [{"description": "first"}, {"description": "second"}]
LONG = "ü" * 1_000_000
"""Two bytes a character: 2 MB."""
PAGES, MANY = 13, 5_000

TASK = {"taskId": "t1", "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": None}
_TEXT = {"type": "text", "text": "x"}
RESULTS: dict[str, dict[str, Any]] = {
    "unknown_block": {"content": [{"type": "hologram", "depth": [None, {"x": 1.5}]}]},
    "block_with_unknown_keys": {
        "content": [{**_TEXT, "annotations": {"later": 1}, "_meta": {"a": None}, "new": [None]}]
    },
    "text_block_without_text": {"content": [{"type": "text"}]},
    "no_content": {"structuredContent": {"a": None}},
    "content_a_string": {"content": "just text"},
    "content_null": {"content": None},
    "is_error_null": {"content": [_TEXT], "isError": None},
    "structured_array": {"content": [], "structuredContent": [1, None, "x"]},
    "structured_mismatch": {"content": [], "structuredContent": {"not": "what the schema says"}},
    "old_tool_result": {"toolResult": {"x": 1}},
    "unknown_keys": {"content": [], "_meta": {"org.example/trace": {"id": None}}, "somethingNew": {"x": None}},
    "large": {"content": [{"type": "text", "text": "x" * 1_000_000}]},
}
ERRORS: dict[str, dict[str, Any]] = {
    "own_code": {"code": -32050, "message": "grün", "data": {"why": [None, 1]}},
    "url_elicitation": {
        "code": -32042,
        "message": "first a page",
        "data": {"elicitations": [{"mode": "url", "elicitationId": "e", "url": "https://x.org", "message": "m"}]},
    },
    "internal": {"code": -32603, "message": "broken"},
    "odd_code": {"code": 7, "message": ""},
}
RESOURCES = [
    {"uri": "odd://ünïcode/ä b", "name": "n", "annotations": {"later": None}, "size": 3, "new": [None]},
    {"uri": "relative/path.txt", "name": "r", "_meta": {"a/b": None}},
    {"uri": "odd://nameless"},
    {"uri": "odd://twice", "name": "1"},
    {"uri": "odd://twice", "name": "2"},
]
CONTENTS = [{"uri": "odd://x", "text": "t", "later": None}, {"uri": "odd://y", "blob": "aGk=", "_meta": {"a": [None]}}]
PROMPTS = [
    {"name": name, "arguments": [{"name": "a", "later": None}], "new": {"x": None}} for name in ("ask", "日本", "a b")
]
LOG = {"level": "warning", "data": {"x": [None, "ü"]}, "logger": "own", "_meta": {"a": None}, "new": 1}
OWN = {"org.example/odd": {"version": 2, "later": [None]}}
"""An experimental capability, whose messages are `org.example/…`."""
INSTRUCTIONS = "Say first, then change."
VENDOR = {"method": "notifications/org.example/odd", "params": {"x": [None]}}


def tool(name: str, **more: Any) -> dict[str, Any]:
    """A row of a `tools/list` answer; a key that is given as None where that means absent is left out."""
    row = {"name": name, "description": f"Does {name[:40]}", "inputSchema": OBJECT, **more}
    if "inputSchema" in more and more["inputSchema"] is None:
        del row["inputSchema"]
    return row


def rows(kind: str) -> list[list[dict[str, Any]]]:
    """The pages of `tools/list` of one kind of server."""
    match kind:
        case "shapes":
            return [[tool(name, **more) for name, more in SHAPES.items()]]
        case "names":
            return [[tool(name) for name in NAMES] + [tool("twice", **more) for more in TWICE]]
        case "pages":
            return [[tool(f"tool_{page}")] for page in range(PAGES)]
        case "many":
            return [[tool(f"tool_{number}") for number in range(MANY)]]
        case "huge":
            return [[tool("huge", description=LONG)]]
        case "results":
            schema = {"outputSchema": {"type": "object", "properties": {"a": {}}, "required": ["a"]}}
            mismatch = {"structured_mismatch": schema}
            return [[tool(name, **mismatch.get(name, {})) for name in [*RESULTS, *ERRORS]]]
        case "own":
            return [[tool("heard"), tool("slow", execution={"taskSupport": "required"})]]
        case _:
            return [[tool("say"), tool("change")]]


def main(kind: str) -> None:
    """Serve one kind on stdin and stdout."""
    pages, changed = rows(kind), False
    heard: list[str] = []

    def send(**message: Any) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    for line in sys.stdin:
        message = json.loads(line)
        method, id_, params = message.get("method"), message.get("id"), message.get("params") or {}
        name, result, error = params.get("name"), {}, None
        match method:
            case "initialize":
                capabilities: dict[str, Any] = {"tools": {"listChanged": True}}
                if kind == "rest":
                    capabilities |= {"resources": {}, "prompts": {}, "logging": {}}
                if kind == "own":
                    capabilities |= {"experimental": OWN, "tasks": {"requests": {"tools": {"call": {}}}}}
                info = {"name": "odd", "version": "0"}
                result = {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": capabilities,
                    "serverInfo": info,
                    **({"instructions": INSTRUCTIONS} if kind == "own" else {}),
                }
            case "tools/list":
                page = int(params.get("cursor") or 0)
                # The last page names itself as the next one.
                more = {"nextCursor": str(min(page + 1, len(pages) - 1))} if len(pages) > 1 else {}
                result = {"tools": pages[page] + ([tool("new")] if changed else []), **more}
            case "tools/call" if name in ERRORS:
                error = ERRORS[name]
            case "tools/call" if name == "say":
                for note in ({"method": "notifications/message", "params": LOG}, VENDOR):
                    send(**note)
                result = {"content": []}
            case "tools/call" if name == "change":
                changed = True
                send(method="notifications/tools/list_changed")
                send(method="notifications/prompts/list_changed")
                result = {"content": []}
            case "tools/call" if name == "heard":
                result = {"content": [{"type": "text", "text": json.dumps(heard)}]}
            case "tools/call" if name == "slow" and "task" not in params:
                error = {"code": -32601, "message": "slow can only be a task"}
            case "tools/call" if name == "slow":
                send(id=id_, result={"task": {**TASK, "status": "working"}})
                id_, token = None, params["_meta"]["progressToken"]
                for step in (1, 2):
                    send(method="notifications/progress", params={"progressToken": token, "progress": step, "total": 2})
                send(method="notifications/tasks/status", params={**TASK, "status": "completed"})
            case "org.example/ask":
                result = {"asked": params}
            case "notifications/org.example/tell":
                heard.append(method)
            case "tools/call" if name in RESULTS:
                result = RESULTS[name]
            case "tools/call":
                result = {"content": [{"type": "text", "text": json.dumps(params, sort_keys=True)}]}
            case "resources/list":
                result = {"resources": RESOURCES}
            case "resources/templates/list":
                result = {"resourceTemplates": []}
            case "resources/read":
                result = {"contents": CONTENTS, "asked": params["uri"], "_meta": {"a/b": None}}
            case "prompts/list":
                result = {"prompts": PROMPTS}
            case "prompts/get":
                message_ = {"role": "user", "content": {"type": "hologram", "z": None}, "later": 1}
                result = {"messages": [message_], "asked": params, "new": None}
            case "ping" | "logging/setLevel":
                pass
            case _:
                error = {"code": -32601, "message": f"Method not found: {method}"}
        if id_ is not None:
            send(id=id_, **({"error": error} if error is not None else {"result": result}))


if __name__ == "__main__":
    main(sys.argv[1])
