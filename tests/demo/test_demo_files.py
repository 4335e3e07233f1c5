"""The file server keeps to its folder and does what its tools say."""

import base64
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer
from mcp.types import ImageContent

from roster.demo.files import build_server

pytestmark = pytest.mark.anyio

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
ESCAPES = ["../secret.txt", "sub/../../secret.txt", "link.txt", "way_out/secret.txt"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with two files and a subfolder, beside a secret that links inside lead to."""
    (tmp_path / "secret.txt").write_text("the secret word")
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("one\ntwo\nthree\n")
    (root / "sub" / "b.md").write_text("Two birds\n")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "way_out").symlink_to(tmp_path, target_is_directory=True)
    return root


@pytest.fixture
def files(root: Path) -> MCPServer:
    return build_server(root)


def paths(reply: Any) -> list[str]:
    return [entry["path"] for entry in reply["entries"]]


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize("tool", ["read_text", "read_image", "file_info", "list_folder", "make_folder", "delete_file"])
async def test_a_path_that_leads_outside_is_refused(files: MCPServer, refusal: Any, tool: str, path: str) -> None:
    """Neither `..` nor a link inside the folder reaches a file beside it, and the reason says so."""
    assert "outside the folder" in await refusal(files, tool, path=path)


async def test_an_absolute_path_outside_is_refused(files: MCPServer, root: Path, refusal: Any) -> None:
    """An absolute path is no way round, not even to a sibling whose name begins the same."""
    assert "outside the folder" in await refusal(files, "read_text", path=str(root.parent / "secret.txt"))
    assert "outside the folder" in await refusal(files, "make_folder", path=f"{root}2")


async def test_nothing_is_written_outside(files: MCPServer, root: Path, refusal: Any) -> None:
    """Writing, appending, moving and copying to an escape leave the secret as it was."""
    for path in ESCAPES:
        await refusal(files, "write_text", path=path, text="changed")
        await refusal(files, "append_text", path=path, text="changed")
        await refusal(files, "move", source="a.txt", destination=path)
        await refusal(files, "copy", source="a.txt", destination=path)
        await refusal(files, "move", source=path, destination="stolen.txt")
        await refusal(files, "copy", source=path, destination="stolen.txt")

    assert (root.parent / "secret.txt").read_text() == "the secret word"
    assert (root / "a.txt").exists()
    assert not (root / "stolen.txt").exists()


async def test_searches_do_not_follow_links_outside(files: MCPServer, ask: Any) -> None:
    """Neither names nor text beyond the root turn up, however the pattern is written."""
    for pattern in ("*.txt", "*/*.txt", "**/*", "../*.txt", "way_out/*"):
        assert not [path for path in paths(await ask(files, "find_files", pattern=pattern)) if "secret" in path]
    assert await ask(files, "search_text", text="secret word") == {"lines": [], "more": False}


async def test_a_folder_lists_names_kinds_and_sizes(files: MCPServer, root: Path, ask: Any) -> None:
    """Entries come in name order, with paths as the other tools take them."""
    (root / "link.txt").unlink()
    (root / "way_out").unlink()

    reply = await ask(files, "list_folder")

    assert [(entry["path"], entry["kind"], entry["size_bytes"]) for entry in reply["entries"]] == [
        ("a.txt", "file", 14),
        ("sub", "folder", 0),
    ]
    assert paths(await ask(files, "list_folder", path="sub")) == ["sub/b.md"]


async def test_text_is_read_whole_or_by_lines(files: MCPServer, ask: Any) -> None:
    """Lines count from 1."""
    assert await ask(files, "read_text", path="a.txt") == "one\ntwo\nthree\n"
    assert await ask(files, "read_text", path="a.txt", first_line=2, max_lines=1) == "two\n"


async def test_text_that_is_not_text_is_refused(files: MCPServer, root: Path, refusal: Any) -> None:
    """A picture read as text gives a pointer to the tool that can."""
    (root / "dot.png").write_bytes(PNG)

    assert "read_image" in await refusal(files, "read_text", path="dot.png")


async def test_a_picture_comes_back_as_an_image(files: MCPServer, root: Path, refusal: Any) -> None:
    """The block carries the bytes and the type its content shows, whatever the file is called."""
    (root / "dot.dat").write_bytes(PNG)

    async with Client(files) as client:
        reply = await client.call_tool("read_image", {"path": "dot.dat"})

    (block,) = reply.content
    assert isinstance(block, ImageContent)
    assert block.mime_type == "image/png"
    assert base64.b64decode(block.data) == PNG
    assert "not a PNG" in await refusal(files, "read_image", path="a.txt")


async def test_text_is_written_then_appended(files: MCPServer, root: Path, ask: Any) -> None:
    """Writing replaces, appending adds, and line ends stay as given."""
    await ask(files, "write_text", path="new.txt", text="first\r\n")
    entry = await ask(files, "append_text", path="new.txt", text="é\n")

    assert (root / "new.txt").read_bytes() == b"first\r\n\xc3\xa9\n"
    assert entry["size_bytes"] == 10


async def test_a_missing_folder_is_named_with_its_remedy(files: MCPServer, ask: Any, refusal: Any) -> None:
    """Writing below a folder that is not there points to make_folder, which makes parents too."""
    assert "make_folder" in await refusal(files, "write_text", path="x/y/z.txt", text="")
    await ask(files, "make_folder", path="x/y")
    assert (await ask(files, "write_text", path="x/y/z.txt", text=""))["path"] == "x/y/z.txt"


async def test_moving_and_copying_never_replace(files: MCPServer, root: Path, ask: Any, refusal: Any) -> None:
    """A destination that exists is refused; a free one gets the file."""
    assert "is taken" in await refusal(files, "move", source="a.txt", destination="sub/b.md")
    assert "is taken" in await refusal(files, "copy", source="a.txt", destination="sub/b.md")
    await ask(files, "copy", source="a.txt", destination="sub/c.txt")
    await ask(files, "move", source="sub", destination="moved")

    assert (root / "a.txt").read_text() == (root / "moved" / "c.txt").read_text()
    assert not (root / "sub").exists()


async def test_a_link_is_deleted_and_not_what_it_leads_to(files: MCPServer, root: Path, ask: Any) -> None:
    """Deleting a link inside the folder leaves the file it points to."""
    (root / "again.txt").symlink_to(root / "a.txt")

    await ask(files, "delete_file", path="again.txt")

    assert not (root / "again.txt").is_symlink()
    assert (root / "a.txt").exists()


async def test_folders_and_the_root_are_not_deleted(files: MCPServer, refusal: Any) -> None:
    """delete_file means one file."""
    assert "is a folder" in await refusal(files, "delete_file", path="sub")
    assert "root folder itself" in await refusal(files, "delete_file", path=".")
    assert "No such file" in await refusal(files, "delete_file", path="nothing.txt")


async def test_files_are_found_by_pattern_at_any_depth(files: MCPServer, ask: Any, refusal: Any) -> None:
    """A bare pattern looks everywhere; one with slashes is taken from the root; a broken one is a clear error."""
    assert paths(await ask(files, "find_files", pattern="*.md")) == ["sub/b.md"]
    assert paths(await ask(files, "find_files", pattern="sub/*")) == ["sub/b.md"]
    assert "not a usable pattern" in await refusal(files, "find_files", pattern="/etc/*")


async def test_text_is_found_with_its_line(files: MCPServer, ask: Any) -> None:
    """Case is ignored unless asked for, and a cut list says so."""
    assert (await ask(files, "search_text", text="two"))["lines"] == [
        {"path": "a.txt", "line": 2, "text": "two"},
        {"path": "sub/b.md", "line": 1, "text": "Two birds"},
    ]
    assert len((await ask(files, "search_text", text="two", match_case=True))["lines"]) == 1
    assert (await ask(files, "search_text", text="two", max_lines=1))["more"] is True
    assert (await ask(files, "search_text", text="two", pattern="*.md"))["lines"][0]["path"] == "sub/b.md"


async def test_file_info_tells_kind_and_size(files: MCPServer, ask: Any, refusal: Any) -> None:
    """A missing file is an error in the system's words, without the path of the root."""
    info = await ask(files, "file_info", path="./sub/../a.txt")
    reason = await refusal(files, "file_info", path="nothing.txt")

    assert (info["path"], info["kind"], info["size_bytes"]) == ("a.txt", "file", 14)
    assert "'nothing.txt': No such file" in reason


async def test_unusable_paths_are_refused_in_words(files: MCPServer, root: Path, refusal: Any) -> None:
    """A NUL byte or a loop of links is an answer, not a crash."""
    (root / "loop").symlink_to(root / "loop")

    assert "not a usable path" in await refusal(files, "read_text", path="a\0b")
    assert "'loop" in await refusal(files, "read_text", path="loop")


def test_a_root_that_is_no_folder_is_refused(root: Path) -> None:
    """The server does not start on a file."""
    with pytest.raises(NotADirectoryError, match="make it first"):
        build_server(root / "a.txt")
