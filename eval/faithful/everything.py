"""What is looked at of the reference server "everything": one function a feature, the same for every side."""

from __future__ import annotations

import base64
from typing import Any

import anyio

from faithful.wire import Side, timeless

STATIC = "demo://resource/static/document/features.md"
MADE = "demo://resource/dynamic/text/3"
NAMES = (
    "echo get-annotated-message get-env get-resource-links get-resource-reference get-structured-content get-sum "
    "get-tiny-image gzip-file-as-resource toggle-simulated-logging toggle-subscriber-updates "
    "trigger-long-running-operation simulate-research-query get-roots-list trigger-elicitation-request "
    "trigger-sampling-request trigger-url-elicitation"
).split()


async def tools(side: Side) -> Any:
    """tools/list: every row, every key"""
    rows = (await side.request("tools/list"))["tools"]
    return [{**row, "name": side.own(row["name"], row["name"].removeprefix(f"{side.server}__"))} for row in rows]


async def found(side: Side) -> Any:
    """each tool is found: in the list, or by a draft of its name"""
    rows = [] if side.five else [row["name"] for row in (await side.request("tools/list"))["tools"]]
    known = {name: await side.drafted(name) if side.five else rows for name in NAMES}
    return {name: side.public(name) in found for name, found in known.items()}


async def text(side: Side) -> Any:
    """tools/call: text"""
    return await side.call("echo", {"message": "grün"})


async def structured(side: Side) -> Any:
    """tools/call: structured content"""
    return await side.call("get-structured-content", {"location": "New York"})


async def image(side: Side) -> Any:
    """tools/call: image"""
    return await side.call("get-tiny-image")


async def annotated(side: Side) -> Any:
    """tools/call: annotated blocks"""
    return await side.call("get-annotated-message", {"messageType": "error", "includeImage": True})


async def embedded(side: Side) -> Any:
    """tools/call: embedded resource"""
    return timeless(await side.call("get-resource-reference", {"resourceType": "Text", "resourceId": 1}))


async def links(side: Side) -> Any:
    """tools/call: resource links, and reading each"""
    result = await side.call("get-resource-links", {"count": 3})
    uris = [block["uri"] for block in result["content"] if block["type"] == "resource_link"]
    read = [await side.attempt("resources/read", uri=uri) for uri in uris]
    for row in (row for one in read for row in one.get("contents", []) if "blob" in row):
        row["blob"] = base64.b64decode(row["blob"]).decode()  # a text that says what time it is
    return timeless([result, read])


async def failing(side: Side) -> Any:
    """tools/call: isError result"""
    result = await side.call("get-sum", {"a": "x"})
    if side.five:  # five mode adds one block of its own, by contract
        result = {**result, "content": [one for one in result["content"] if "_roster" not in one.get("text", "")]}
    return result


async def progress(side: Side) -> Any:
    """progress: the caller's own token, and every report before the answer"""
    meta = {"progressToken": "mine"}
    result = await side.call("trigger-long-running-operation", {"duration": 0.4, "steps": 4}, meta=meta)
    return [side.heard("notifications/progress"), result]


async def cancellation(side: Side) -> Any:
    """cancellation: the server is free again"""
    with anyio.move_on_after(0.5):
        await side.call("trigger-long-running-operation", {"duration": 60, "steps": 1})
    with anyio.fail_after(5):
        return await side.call("echo", {"message": "free"})


async def elicitation(side: Side) -> Any:
    """elicitation: a form"""
    side.asked.clear()
    result = await side.call("trigger-elicitation-request")
    return [result, side.asked]


async def elicitation_url(side: Side) -> Any:
    """elicitation: a URL"""
    side.asked.clear()
    arguments = {"url": "https://example.org/", "message": "Go there", "elicitationId": "e1"}
    result = await side.call("trigger-url-elicitation", arguments)
    return timeless([result, side.asked])


async def sampling(side: Side) -> Any:
    """sampling"""
    side.asked.clear()
    result = await side.call("trigger-sampling-request", {"prompt": "say something", "maxTokens": 10})
    return [result, side.asked]


async def roots(side: Side) -> Any:
    """roots"""
    return await side.call("get-roots-list")


async def resources(side: Side) -> Any:
    """resources/list: every row, every key"""
    return (await side.request("resources/list"))["resources"]


async def templates(side: Side) -> Any:
    """resources/templates/list"""
    return (await side.request("resources/templates/list"))["resourceTemplates"]


async def read(side: Side) -> Any:
    """resources/read: a listed one"""
    return await side.attempt("resources/read", uri=STATIC)


async def read_made(side: Side) -> Any:
    """resources/read: one that a template makes"""
    return timeless(await side.attempt("resources/read", uri=MADE))


async def read_unknown(side: Side) -> Any:
    """resources/read: an unknown one"""
    return await side.attempt("resources/read", uri="demo://nowhere")


async def updates(side: Side) -> Any:
    """resources/subscribe, updated, unsubscribe"""
    async with side.listening(resourceSubscriptions=[STATIC]):
        answers = [{} if side.newer else await side.attempt("resources/subscribe", uri=STATIC)]
        await side.call("toggle-subscriber-updates")
        heard = await side.hears("notifications/resources/updated")
        answers.append({} if side.newer else await side.attempt("resources/unsubscribe", uri=STATIC))
    await side.call("toggle-subscriber-updates")
    return [answers, [params["uri"] for params in heard]]


async def logs(side: Side) -> Any:
    """logging: level and messages"""
    level = {} if side.newer else await side.attempt("logging/setLevel", level="debug")
    side.told.clear()
    await side.call("toggle-simulated-logging")
    # What it says is drawn by lot; that it says something, and in which form, is not.
    (message,) = await side.hears("notifications/message") or [{}]
    await side.call("toggle-simulated-logging")
    logger = message.get("logger", side.server).removeprefix(side.server).lstrip("/")
    return [level, sorted({*message} - {"logger"}), logger]


async def prompts(side: Side) -> Any:
    """prompts/list: every row, every key"""
    rows = (await side.request("prompts/list"))["prompts"]
    return [{**row, "name": side.own(row["name"], row["name"].removeprefix(f"{side.server}__"))} for row in rows]


async def prompt(side: Side) -> Any:
    """prompts/get: plain, with arguments, with a resource"""
    asked: list[tuple[str, dict[str, str]]] = [
        ("simple-prompt", {}),
        ("args-prompt", {"city": "Köln", "state": "NRW"}),
        ("resource-prompt", {"resourceType": "Text", "resourceId": "1"}),
    ]
    return timeless([await side.attempt("prompts/get", name=side.public(name), arguments=args) for name, args in asked])


async def completion(side: Side) -> Any:
    """completion: of a prompt and of a template"""
    refs = [
        ({"type": "ref/prompt", "name": side.public("completable-prompt")}, "department"),
        ({"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"}, "resourceId"),
    ]
    return [
        await side.attempt("completion/complete", ref=ref, argument={"name": name, "value": value})
        for (ref, name), value in zip(refs, ("E", "1"), strict=True)
    ]


async def tasks(side: Side) -> Any:
    """tasks: start, get, result, list"""
    started = await side.call("simulate-research-query", {"topic": "x", "ambiguous": False}, task={"ttl": 60_000})
    if "task" not in started:
        return started
    id_ = started["task"]["taskId"]
    seen = await side.attempt("tasks/get", taskId=id_)
    result = await side.attempt("tasks/result", taskId=id_)
    listed = await side.attempt("tasks/list")
    return timeless([sorted(started["task"]), sorted(seen), result, [one["taskId"] == id_ for one in listed["tasks"]]])


async def announced(side: Side) -> Any:
    """capabilities announced"""
    return side.greeting["capabilities"]


async def instructions(side: Side) -> Any:
    """the server's instructions"""
    return side.greeting.get("instructions")


async def unknown_tool(side: Side) -> Any:
    """tools/call: an unknown tool"""
    return (await side.call("no-such-tool")).get("error", {}).get("code")


async def ping(side: Side) -> Any:
    """ping"""
    return "not in this era" if side.newer else await side.attempt("ping")


FEATURES = (
    announced, instructions, ping, tools, found, text, structured, image, annotated, embedded, links, failing,
    unknown_tool, progress, cancellation, resources, templates, read, read_made, read_unknown, updates, prompts, prompt,
    completion, logs, elicitation, elicitation_url, sampling, roots, tasks,
)  # fmt: skip
