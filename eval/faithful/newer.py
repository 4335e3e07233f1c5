"""What is looked at of a server of the newer era: arguments that are headers as well, on every way to it."""

from __future__ import annotations

from typing import Any

from faithful.wire import Side

ARGUMENTS: dict[str, dict[str, Any]] = {
    "a word": {"region": "west", "query": "x"},
    "what a header cannot hold": {"region": "Zürich\n"},
    "a number and a truth": {"limit": 12, "dry": True},
    "one further in": {"where": {"city": "Köln"}},
    "none given": {"query": "x", "region": None},
}


async def tools(side: Side) -> Any:
    """tools/list: the schema that asks for headers"""
    rows = (await side.request("tools/list"))["tools"]
    return [{**row, "name": row["name"].removeprefix(f"{side.server}__")} for row in rows]


async def sent(side: Side) -> dict[str, Any]:
    """headers of a call: {}"""
    if not side.five:
        await side.request("tools/list")  # a client knows from there what to send
    return {name: await side.call("find", arguments) for name, arguments in ARGUMENTS.items()}


async def refused(side: Side) -> dict[str, Any]:
    """a call that {} is refused"""
    return {
        "says something else in its headers": await side.call("find", {"region": "west"}, says={"Region": "east"}),
        "leaves its headers out": await side.call("find", {"region": "west"}, says={}),
    }


FEATURES = (tools, sent, refused)
