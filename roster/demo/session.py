"""`roster demo`: a real five-mode session over real servers, printed step by step.

Nothing is staged: the demo writes a roster.json, starts `roster serve --five` as a client would, and prints what comes
back over the wire.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import TextContent
from rich.console import Console
from rich.text import Text

from roster.briefs import shorten
from roster.errors import RosterError

__all__ = ["run_demo"]

READY_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """One need, the tool of the draft that serves it, and the arguments for that tool."""

    need: str
    tool: str
    args: dict[str, Any]


STEPS = (
    Step("make a new folder for the build output", "files__make_folder", {"path": "build/output"}),
    Step("find every markdown file in the project", "files__find_files", {"pattern": "*.md"}),
    Step("save a note that the release is on Friday", "notes__add_note", {"text": "The release is on Friday."}),
    Step("which of these cities has the most inhabitants?", "tables__query_table",
         {"sql": "SELECT city FROM cities ORDER BY inhabitants DESC LIMIT 1"}),
    Step("what is 26 miles in kilometres", "units__convert_units",
         {"value": 26, "from_unit": "miles", "to_unit": "km"}),
    Step("when it is 9 in the morning in New York, what time is it in Tokyo?", "clock__convert_time",
         {"time": "09:00", "source_timezone": "America/New_York", "target_timezone": "Asia/Tokyo"}),
    Step("read a file that is not there", "files__read_text", {"path": "missing.txt"}),
)  # fmt: skip

FILES = {
    "project/README.md": "# Lighthouse\n\nA small project to try Roster on.\n",
    "project/docs/guide.md": "# Guide\n\nThere is not much to say yet.\n",
    "project/todo.txt": "ship the release\nwrite the guide\n",
    "tables/cities.csv": "city,country,inhabitants\nTokyo,Japan,13988129\nLisbon,Portugal,567131\n",
}


def demo_servers(folder: Path) -> dict[str, dict[str, Any]]:
    """The `mcpServers` block of the five demo servers, working in `folder`."""
    arguments = {
        "files": [str(folder / "project")],
        "notes": [str(folder / "notes.db")],
        "clock": [],
        "units": [],
        "tables": [str(folder / "tables")],
    }
    return {
        name: {"command": sys.executable, "args": ["-m", f"roster.demo.{name}", *words]}
        for name, words in arguments.items()
    }


def prepare(folder: Path) -> Path:
    """Sample files and a Roster home in `folder`; the home."""
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    home = folder / "roster-home"
    home.mkdir(mode=0o700, exist_ok=True)
    config = {"mode": "five", "mcpServers": demo_servers(folder)}
    (home / "roster.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return home


def run_demo(*, keep: Path | None, out: Callable[[Any], None] | None) -> None:
    """Run the session and print it. Raises RosterError when a need did not draft the tool it was for."""
    with tempfile.TemporaryDirectory(prefix="roster-demo-", ignore_cleanup_errors=True) as scratch:
        folder = keep.resolve() if keep else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        home = prepare(folder)
        printer = _Printer(quiet=out is not None)
        steps = anyio.run(_session, home, printer)
        if out is not None:
            out({"home": str(home), "steps": steps})
        else:
            printer.end(home, kept=keep is not None)
    strays = [step["need"] for step in steps if step["tool"] not in step["draft"]]
    if strays:
        raise RosterError(f"the tool was not in the draft for: {'; '.join(strays)}")


async def _session(home: Path, printer: _Printer) -> list[dict[str, Any]]:
    environment = {**os.environ, "ROSTER_HOME": str(home)}
    server = StdioServerParameters(command=sys.executable, args=["-m", "roster", "serve", "--five"], env=environment)
    async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
        with anyio.fail_after(READY_WITHIN_S):
            await client.initialize()
            listed = [tool.name for tool in (await client.list_tools()).tools]
            await _all_listed(client)
        printer.begin(listed)
        return [await _step(client, step, printer) for step in STEPS]


async def _all_listed(client: ClientSession) -> None:
    """Draft until every server has said what it can do and every card has its vector."""
    while True:
        drafted = (await client.call_tool("draft", {"need": "list what there is", "k": 1})).structured_content or {}
        if drafted.get("starters") and "Still" not in drafted["usage"]:
            return
        await anyio.sleep(0.1)


async def _step(client: ClientSession, step: Step, printer: _Printer) -> dict[str, Any]:
    begun = time.perf_counter()
    draft = (await client.call_tool("draft", {"need": step.need})).structured_content or {}
    drafted_ms = (time.perf_counter() - begun) * 1000
    ids = [starter["id"] for starter in draft["starters"]]
    begun = time.perf_counter()
    asked = {"tool": step.tool, "args": step.args, "draft_id": draft["draft_id"]}
    result = await client.call_tool("call", asked)
    called_ms = (time.perf_counter() - begun) * 1000
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    done = {
        "need": step.need, "draft": ids, "tool": step.tool, "args": step.args,
        "error": result.is_error, "result": texts, "draft_ms": round(drafted_ms, 1), "call_ms": round(called_ms, 1),
    }  # fmt: skip
    printer.step(done)
    return done


class _Printer:
    """Prints the session for a person; says nothing when `quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = Console(quiet=quiet, highlight=False)

    def begin(self, listed: list[str]) -> None:
        self._console.print(
            f"The client sees {len(listed)} tools: {', '.join(listed)}. Behind them: 5 servers, 29 tools.\n"
            "Needs and arguments are scripted; drafts and results are not.\n"
        )

    def step(self, done: dict[str, Any]) -> None:
        self._line("need", Text(done["need"], style="bold"))
        drafted = Text()
        for id_ in done["draft"]:
            drafted.append(id_, style="bold cyan" if id_ == done["tool"] else "").append("  ")
        self._line("draft", drafted.append(f"{done['draft_ms']:.0f} ms", style="dim"))
        self._line("call", Text(done["tool"], style="cyan").append(f" {json.dumps(done['args'])}", style="default"))
        for place, text in enumerate(done["result"]):
            shown = Text(shorten(text, 160), style="red" if done["error"] else "green")
            self._line("" if place else "result", shown)
        self._console.print()

    def _line(self, label: str, shown: Text) -> None:
        self._console.print(Text(f"{label:7}", style="dim").append_text(shown), soft_wrap=True)

    def end(self, home: Path, *, kept: bool) -> None:
        where = f" with ROSTER_HOME={home}" if kept else ""
        self._console.print(f"That was `roster serve --five`{where}. Put it into your client: see the README.")
