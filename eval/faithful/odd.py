"""What is looked at of the server of odd things: one function a feature, the same for every side.

`by_row` features come apart into a row of the table for each thing they look at.
"""

from __future__ import annotations

from typing import Any

import anyio

from faithful import odd_server
from faithful.wire import Side
from roster.cards import listed_name, public_id


def raw_names(side: Side, names: list[str]) -> dict[str, str]:
    """The server's own names by how this side calls them."""
    make = public_id if side.five else listed_name
    table = {make(side.server, name) if side.through else name: name for name in names}
    for public, name in table.items():
        side.own(public, name)
    return table


async def listed(side: Side, names: list[str]) -> list[dict[str, Any]]:
    """All pages of `tools/list`, under the server's own names."""
    table = raw_names(side, names)
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    params: dict[str, Any] = {}
    while True:
        result = await side.request("tools/list", **params)
        rows += result["tools"]
        cursor = result.get("nextCursor")
        if cursor is None or cursor in seen:
            return [{**row, "name": table.get(row["name"], row["name"])} for row in rows]
        seen.add(cursor)
        params = {"cursor": cursor}


async def shapes(side: Side) -> dict[str, Any]:
    """shape: {}"""
    rows = {row["name"]: row for row in await listed(side, list(odd_server.SHAPES))}
    return {name: rows.get(name, "left out") for name in odd_server.SHAPES}


async def names(side: Side) -> dict[str, Any]:
    """name: {}"""
    rows = await listed(side, [*odd_server.NAMES, "twice"])
    found: dict[str, Any] = {}
    for name in odd_server.NAMES:
        found[shown(name)] = next((row for row in rows if row["name"] == name), "left out")
    found["the same one twice"] = [row for row in rows if row["name"] == "twice"]
    return found


async def called(side: Side) -> dict[str, Any]:
    """call by the name {}"""
    raw_names(side, odd_server.NAMES)
    return {shown(name): await side.call(name, {"a": None}) for name in odd_server.NAMES}


async def called_shapes(side: Side) -> dict[str, Any]:
    """call of a tool of the shape {}"""
    raw_names(side, list(odd_server.SHAPES))
    return {name: await side.call(name, {"a": None}) for name in odd_server.SHAPES}


async def drafted_names(side: Side) -> dict[str, Any]:
    """found in the list, or by a draft: {}"""
    wanted = odd_server.NAMES
    if side.five:
        table = raw_names(side, wanted)
        found = {name: [table.get(id_, id_) for id_ in await side.drafted(name)] for name in wanted}
    else:
        rows = [row["name"] for row in await listed(side, wanted)]
        found = dict.fromkeys(wanted, rows)
    return {shown(name): name in found[name] for name in wanted}


def shown(name: str) -> str:
    """A name as the table shows it."""
    return f"`{name}`" if len(name) < 40 else f"of {len(name)} characters"


async def pages(side: Side) -> Any:
    """13 pages, and a cursor that comes back"""
    wanted = [f"tool_{page}" for page in range(odd_server.PAGES)]
    # Straight from the server, a client that follows its cursors meets the last page more than once.
    return list({row["name"]: row for row in await listed(side, wanted)}.values())


async def called_pages(side: Side) -> Any:
    """call of a tool of each page"""
    wanted = [f"tool_{page}" for page in range(odd_server.PAGES)]
    return [await side.call(name) for name in wanted]


async def called_many(side: Side) -> Any:
    """call of the first and the last of 5,000 tools"""
    return [await side.call(f"tool_{number}") for number in (0, odd_server.MANY - 1)]


async def called_huge(side: Side) -> Any:
    """call of a tool with a description of 2 MB"""
    return await side.call("huge")


async def many(side: Side) -> Any:
    """5,000 tools"""
    return await listed(side, [f"tool_{number}" for number in range(odd_server.MANY)])


async def huge(side: Side) -> Any:
    """a description of 2 MB"""
    return await listed(side, ["huge"])


async def results(side: Side) -> dict[str, Any]:
    """result: {}"""
    raw_names(side, list(odd_server.RESULTS))
    return {name: _without_block(side, await side.call(name)) for name in odd_server.RESULTS}


async def errors(side: Side) -> dict[str, Any]:
    """error: {}"""
    raw_names(side, list(odd_server.ERRORS))
    return {name: await side.call(name) for name in odd_server.ERRORS}


def _without_block(side: Side, result: dict[str, Any]) -> dict[str, Any]:
    """A result without the block that five mode adds to a failed one."""
    content = result.get("content")
    if side.five and isinstance(content, list):
        return {**result, "content": [one for one in content if "_roster" not in str(one.get("text"))]}
    return result


async def resources(side: Side) -> Any:
    """resources: unknown keys, relative and foreign URIs, one twice, one without a name"""
    rows = (await side.request("resources/list"))["resources"]
    return [{key: value for key, value in row.items() if (key, value) != ("name", "odd://nameless")} for row in rows]


async def contents(side: Side) -> Any:
    """resources/read: unknown keys; the URI arrives as it was sent"""
    return [await side.attempt("resources/read", uri=uri) for uri in ("odd://ünïcode/ä b", "relative/path.txt")]


async def prompts(side: Side) -> Any:
    """prompts: foreign names, unknown keys and blocks"""
    table = {
        listed_name(side.server, row["name"]) if side.through else row["name"]: row["name"]
        for row in odd_server.PROMPTS
    }
    rows = [{**row, "name": table[row["name"]]} for row in (await side.request("prompts/list"))["prompts"]]
    return [rows, [await side.attempt("prompts/get", name=name, arguments={"a": "ü"}) for name in table]]


async def said(side: Side) -> Any:
    """notifications: a log message with unknown keys, and one that no version knows"""
    side.told.clear()
    await side.call("say")
    (message,) = await side.hears("notifications/message") or [{}]
    (vendor,) = await side.hears(odd_server.VENDOR["method"]) or [None]
    logger = message.get("logger", "").removeprefix(side.server).lstrip("/")
    return [{**message, "logger": logger}, vendor]


async def changed(side: Side) -> Any:
    """list_changed of tools and prompts, once for each"""
    side.told.clear()
    kinds = ["notifications/tools/list_changed", "notifications/prompts/list_changed"]
    async with side.listening(toolsListChanged=True, promptsListChanged=True):
        await side.call("change")
        heard = [len(await side.hears(kind, 1)) for kind in kinds]
    return [heard, "new" in [row["name"] for row in await listed(side, ["say", "change", "new"])]]


async def came(side: Side) -> Any:
    """call of a tool that was not there at the start"""
    await side.call("change")
    raw_names(side, ["new"])
    result: dict[str, Any] = {"isError": True}
    with anyio.move_on_after(10):
        while "error" in result or result.get("isError"):
            result = await side.call("new")
    return result


async def experimental(side: Side) -> Any:
    """experimental capabilities announced"""
    return side.greeting["capabilities"].get("experimental")


async def own_request(side: Side) -> Any:
    """a request of an experimental capability"""
    return await side.attempt("org.example/ask", x=[None])


async def own_notification(side: Side) -> Any:
    """a notification of an experimental capability, from client to server"""
    await side.dispatcher.notify("notifications/org.example/tell", {"x": [None]})
    return await side.call("heard")


async def own_instructions(side: Side) -> Any:
    """the server's own instructions"""
    return side.greeting.get("instructions")


async def task_progress(side: Side) -> Any:
    """tasks: progress and state after the call has been answered"""
    raw_names(side, ["slow"])
    side.told.clear()
    result = await side.call("slow", meta={"progressToken": "mine"}, task={"ttl": 60_000})
    if "task" not in result:
        return result
    told = [await side.hears(f"notifications/{kind}", count) for kind, count in (("progress", 2), ("tasks/status", 1))]
    return [result, *told]


async def metadata(side: Side) -> Any:
    """what a call carries: nulls, `_meta`, unknown keys"""
    raw_names(side, ["plain"])
    params = {"name": side.public("plain"), "arguments": {"a": None, "b": {"c": [None]}}}
    if side.five:
        params = {"name": "call", "arguments": {"tool": params["name"], "args": params["arguments"]}}
    return await side.attempt("tools/call", **params, meta={"org.example/own": {"x": None}}, later={"y": None})


KINDS: dict[str, tuple[Any, ...]] = {
    "shapes": (shapes, called_shapes),
    "names": (names, drafted_names, called, metadata),
    "pages": (pages, called_pages),
    "many": (many, called_many),
    "huge": (huge, called_huge),
    "results": (results, errors),
    "rest": (resources, contents, prompts, said, changed, came),
    "own": (experimental, own_request, own_notification, own_instructions, task_progress),
}
