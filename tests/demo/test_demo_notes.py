"""The notebook server remembers, recalls and forgets, for more than one process at a time."""

import sqlite3
import stat
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.mcpserver import MCPServer

from roster.demo.notes import build_server

pytestmark = pytest.mark.anyio

MORNING = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.db"


@pytest.fixture
def notes(path: Path) -> MCPServer:
    """A notebook whose clock moves one minute at each writing."""
    minutes = iter(range(1000))
    return build_server(path, now=lambda: MORNING + timedelta(minutes=next(minutes)))


def ids(found: list[dict[str, Any]]) -> list[int]:
    return [note["id"] for note in found]


async def test_a_note_is_added_and_found_again(notes: MCPServer, ask: Any) -> None:
    """Words match in any case and order, in text and tags alike, and all must occur."""
    await ask(notes, "add_note", text="Buy Émile a birthday cake", tags=["#Family"])
    await ask(notes, "add_note", text="Renew the passport")

    assert ids(await ask(notes, "search_notes", words="cake émile")) == [1]
    assert ids(await ask(notes, "search_notes", words="family birthday")) == [1]
    assert await ask(notes, "search_notes", words="cake passport") == []


async def test_a_note_says_when_it_was_written_and_changed(notes: MCPServer, ask: Any) -> None:
    """Updating keeps number, tags and creation time."""
    await ask(notes, "add_note", text="Call Ada", tags=["work"])

    assert await ask(notes, "update_note", note_id=1, text="Call Ada on Friday") == {
        "id": 1,
        "text": "Call Ada on Friday",
        "tags": ["work"],
        "created": "2026-03-01T09:00:00+00:00",
        "updated": "2026-03-01T09:01:00+00:00",
    }


async def test_notes_are_listed_newest_first_and_by_tag(notes: MCPServer, ask: Any) -> None:
    """A tag is the same with or without its hash sign and capitals; adding one twice changes nothing."""
    for text in ("one", "two", "three"):
        await ask(notes, "add_note", text=text)
    await ask(notes, "tag_note", note_id=1, tags=["Work", "#work", " home "])
    tagged = await ask(notes, "tag_note", note_id=2, tags=["work"])

    assert tagged["tags"] == ["work"]
    assert ids(await ask(notes, "list_notes")) == [3, 2, 1]
    assert ids(await ask(notes, "list_notes", limit=2)) == [3, 2]
    assert ids(await ask(notes, "list_notes", tag="#WORK")) == [2, 1]
    assert ids(await ask(notes, "list_notes", tag="home")) == [1]


async def test_a_deleted_note_is_gone_and_its_number_is_not_used_again(notes: MCPServer, ask: Any) -> None:
    """Deleting returns the last words; tags go too."""
    await ask(notes, "add_note", text="old", tags=["work"])
    assert (await ask(notes, "delete_note", note_id=1))["text"] == "old"
    await ask(notes, "add_note", text="new")

    assert await ask(notes, "list_notes", tag="work") == []
    assert ids(await ask(notes, "list_notes")) == [2]


@pytest.mark.parametrize(
    ("tool", "more"), [("update_note", {"text": "x"}), ("delete_note", {}), ("tag_note", {"tags": ["x"]})]
)
async def test_a_number_nobody_has_is_refused(notes: MCPServer, refusal: Any, tool: str, more: dict[str, Any]) -> None:
    """The reason names the number and where numbers come from."""
    reason = await refusal(notes, tool, note_id=7, **more)

    assert "no note 7" in reason
    assert "search_notes" in reason


async def test_two_servers_share_one_file(path: Path, ask: Any) -> None:
    """What one writes, the other reads, and writing at once loses nothing."""
    servers = [build_server(path), build_server(path)]

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(partial(ask, servers[number % 2], "add_note", text=f"note {number}"))

    assert len(await ask(servers[0], "list_notes", limit=100)) == 20
    assert len(await ask(servers[1], "list_notes", limit=100)) == 20


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no owner-only mode bits")
def test_the_file_is_for_its_owner_alone(notes: MCPServer, path: Path) -> None:
    """Notes are private."""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_is_no_notebook_is_refused(path: Path) -> None:
    """Another program's file is left alone."""
    path.write_text("Dear diary, " * 100)

    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        build_server(path)
    assert path.read_text().startswith("Dear diary")
