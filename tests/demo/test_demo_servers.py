"""What holds for every demo server: what it lists, how it hints, and that it starts as a program."""

import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.server.mcpserver import MCPServer

from roster.demo import clock, files, notes, tables, units

pytestmark = pytest.mark.anyio

TOOLS = {
    "files": "append_text copy delete_file file_info find_files list_folder make_folder move read_image read_text "
    "search_text write_text",
    "notes": "add_note delete_note list_notes search_notes tag_note update_note",
    "clock": "add_duration convert_time current_time days_between list_timezones",
    "units": "convert_units list_units",
    "tables": "describe_table list_tables query_table summarise_column",
}
UNSTRUCTURED = {"read_text", "read_image", "delete_file"}
WRITERS = {"append_text", "copy", "make_folder", "move", "add_note", "tag_note"}
DESTROYERS = {"write_text", "delete_file", "update_note", "delete_note"}


@pytest.fixture
def servers(tmp_path: Path) -> dict[str, MCPServer]:
    return {
        "files": files.build_server(tmp_path),
        "notes": notes.build_server(tmp_path / "notes.db"),
        "clock": clock.build_server(),
        "units": units.build_server(),
        "tables": tables.build_server(tmp_path),
    }


@pytest.mark.parametrize("name", TOOLS)
async def test_a_server_lists_its_tools(servers: dict[str, MCPServer], name: str) -> None:
    """Each tool has one sentence to its name, a description for every parameter, and hints that tell the truth."""
    async with Client(servers[name]) as client:
        listed = (await client.list_tools()).tools

    assert sorted(tool.name for tool in listed) == TOOLS[name].split()
    for tool in listed:
        assert tool.description
        assert tool.description.endswith(".")
        assert "\n" not in tool.description
        assert all("description" in field for field in tool.input_schema["properties"].values()), tool.name
        assert (tool.output_schema is None) == (tool.name in UNSTRUCTURED), tool.name
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is (tool.name not in WRITERS | DESTROYERS), tool.name
        assert tool.annotations.destructive_hint is (tool.name in DESTROYERS), tool.name


@pytest.mark.parametrize("name", TOOLS)
async def test_a_server_starts_as_a_program(name: str, tmp_path: Path) -> None:
    """`python -m roster.demo.NAME` speaks MCP on its standard streams."""
    arguments = {"files": [str(tmp_path)], "notes": [str(tmp_path / "notes.db")], "tables": [str(tmp_path)]}
    repository = Path(__file__).parents[2]
    program = StdioServerParameters(
        command=sys.executable, args=["-m", f"roster.demo.{name}", *arguments.get(name, [])], cwd=repository
    )

    with anyio.fail_after(30):
        async with Client(program, mode="legacy") as client:
            listed = (await client.list_tools()).tools

    assert len(listed) == len(TOOLS[name].split())


@pytest.mark.parametrize("name", ["files", "tables"])
def test_a_program_without_its_folder_says_how_to_start_it(name: str, tmp_path: Path) -> None:
    """Misuse ends with status 2 and the usage; a folder that is not there with status 1 and its name."""
    repository = Path(__file__).parents[2]
    program = [sys.executable, "-m", f"roster.demo.{name}"]

    bare = subprocess.run(program, capture_output=True, check=False, text=True, cwd=repository, timeout=30)
    lost = subprocess.run(
        [*program, str(tmp_path / "lost")], capture_output=True, check=False, text=True, cwd=repository, timeout=30
    )

    assert (bare.returncode, lost.returncode) == (2, 1)
    assert f"usage: python -m roster.demo.{name}" in bare.stderr
    assert "lost is not a folder" in lost.stderr
