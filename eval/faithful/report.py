"""What the tables say of a difference, and the tables themselves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

_LISTS = (
    "In five mode the list of tools is `draft` and `call`. That each tool behind them is found and can be called has "
    "rows of its own."
)
_NOT_LISTED = (
    "In five mode the lists of resources are empty: clients show them to the model. What a result links to can be read "
    "and followed."
)
_PROMPTS = "Five mode has no prompts, and completion is of prompts and of templates from a list."
NOT_IN_FIVE = {
    **dict.fromkeys("tools shapes names pages many huge".split(), _LISTS),
    **dict.fromkeys(("resources", "templates"), _NOT_LISTED),
    **dict.fromkeys(("prompts", "prompt", "completion"), _PROMPTS),
    "announced": "Five mode announces what can be done through `draft` and `call`.",
    "changed": "The lists of five mode never change. A tool that came later can be called; see the next row.",
    **dict.fromkeys(
        ("tasks", "task_progress"),
        "A client tells from a tool's own row whether it can be a task. In five mode it sees `call`, which stands for "
        "tools that can and tools that cannot; so tasks are not announced, and a call is never one.",
    ),
    **dict.fromkeys(
        ("instructions", "own_instructions"),
        "A client is told the instructions of one server, which is Roster: how to draft and to call.",
    ),
}
# (row, column) patterns, the first that fits: what the difference is called, and why it is there.
_EXPLAINED = (
    (
        r"^shape: input_schema",
        "",
        "mended",
        "Strict clients lose the whole list over an input schema that does not say `object`. Arguments are never "
        "anything else, so it is said for the server.",
    ),
    (
        r"^shape: ",
        "",
        "mended",
        "An optional key that breaks the protocol's shape costs strict clients the whole list. The tool is listed "
        "without that key, and the log names it.",
    ),
    (
        r"^name: the same one twice$",
        "",
        "mended",
        "A client can call only one tool by a name. The first is listed, and `roster status` names the other.",
    ),
    (r"^result: content_null$", "", "mended", "Strict clients refuse it, and it can only mean an empty list."),
    (
        r"^result: content_a_string$",
        "",
        "mended",
        "Strict clients fail in the call itself when `content` is no list; they get an error result instead.",
    ),
    (
        r"^error: ",
        "^five",
        "by contract",
        "In five mode an error of the protocol becomes an error result with the failure's kind, which a model can "
        "read. The one that sends a person to a page stays an error.",
    ),
    (
        r"^tools/call: an unknown tool$",
        "",
        "by contract",
        "Roster answers for names nobody has: in transparent mode as the protocol says, in five mode with the nearest "
        "id.",
    ),
    (
        r"instructions$",
        "",
        "by design",
        "The handshake is answered before any server is started, and of a server's own words only those of its tools "
        "are kept. The instructions a client gets are Roster's, and name the servers behind it.",
    ),
    (r"^(tasks|capabilities)", "2026", "by design", "Tasks exist in 2025-11-25 alone."),
    (
        r"^experimental capabilities",
        "",
        "by design",
        "What an experimental capability means is between one client and one server. Its messages do not say which of "
        "several servers they are for, so it is not announced.",
    ),
    (
        r"^a request of an experimental",
        "",
        "by design",
        "It does not say which of several servers it is for. The answer is the protocol's: -32601, method not found.",
    ),
    (
        r"^a notification of an experimental",
        "",
        "by design",
        "It does not say which of several servers it is for, and the protocol has no answer to a notification. From "
        "server to client they pass.",
    ),
    (
        r"^a call that .* is refused$",
        "HTTP$",
        "by design",
        "A client sends the headers that a listed tool asks for. In five mode that is `call`, which asks for none; "
        "Roster makes the server's own from the arguments.",
    ),
    (
        r"^a call that .* is refused$",
        "",
        "by design",
        "Over a pipe a client has no headers; Roster makes the server's own from the arguments.",
    ),
    (r"^ping$", "2026", "by design", "There is no ping in 2026-07-28."),
)


def not_in_five(feature: str) -> str:
    """Why a feature is not looked at in five mode; empty for one that is."""
    return NOT_IN_FIVE.get(feature, "")


def explained(row: str, column: str) -> tuple[str, str]:
    """What a difference is called, and why it is there; "differs" when nothing explains it."""
    for in_row, in_column, kind, why in _EXPLAINED:
        if re.search(in_row, row) and re.search(in_column, column):
            return kind, why
    return "differs", ""


def counts(tables: Mapping[str, list[dict[str, Any]]]) -> dict[str, int]:
    """How many cells there are of each kind."""
    return dict(Counter(cell["is"] for rows in tables.values() for row in rows for cell in row["columns"].values()))


def markdown(tables: Mapping[str, list[dict[str, Any]]], tried: list[dict[str, Any]]) -> str:
    """The tables as a page, each difference with its reason."""
    reasons: dict[str, int] = {}
    total = counts(tables)
    lines = [
        "# How faithful Roster is",
        "",
        "What a client gets through Roster, against what it gets straight from the server; made by `eval/fidelity.py`.",
        "**full**: the same JSON once names are put back to the server's own. Every other cell has its reason below.",
        "",
        f"{total.get('full', 0)} of {sum(total.values())} cells are full; "
        + ", ".join(f"{number} {kind}" for kind, number in sorted(total.items()) if kind != "full")
        + ".",
    ]
    for title, rows in tables.items():
        columns = list(rows[0]["columns"]) if rows else []
        lines += ["", f"## {title}", "", "| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
        for row in rows:
            cells = [_cell(row["columns"][column], reasons) for column in columns]
            lines.append(f"| {row['row'].replace('|', '&#124;')} | " + " | ".join(cells) + " |")
    if tried:
        lines += [
            "",
            "## Real clients",
            "",
            "| client | what was done | straight | through Roster |",
            "|---|---|---|---|",
        ]
        lines += [f"| {one['client']} | {one['did']} | {one['straight']} | {one['through']} |" for one in tried]
        lines += [
            "",
            "`everything` lists more tools to a client that can be asked; Roster always says that it can, so that its "
            "tools do not depend on who is connected. A tool that asks a client which cannot is told so.",
        ]
    lines += ["", "## Reasons", ""]
    lines += [f"{number}. {why}" for why, number in reasons.items()]
    return "\n".join(lines) + "\n"


def _cell(cell: Mapping[str, Any], reasons: dict[str, int]) -> str:
    if cell["is"] == "full":
        return "full"
    if not (why := cell.get("why")):
        return f"**{cell['is']}**"
    return f"{cell['is']} ({reasons.setdefault(why, len(reasons) + 1)})"
