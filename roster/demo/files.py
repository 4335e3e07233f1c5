"""A file server over one folder: `python -m roster.demo.files ROOT`. Paths are relative to ROOT."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from roster import __version__
from roster.demo.contents import image_of, text_of
from roster.demo.folder import Folder, in_words, open_folder
from roster.demo.serving import ADDS, READS, REPLACES, SETS, path_argument

__all__ = ["build_server", "main"]

MAX_LISTED = 500

FilePath = Annotated[str, Field(description="Path of the file, relative to the root folder")]
FolderPath = Annotated[str, Field(description="Path of the folder, relative to the root; '.' is the root itself")]
Source = Annotated[str, Field(description="Path it has now")]
Destination = Annotated[str, Field(description="Path it should have; nothing may be there yet")]
Glob = Annotated[str, Field(description="Glob such as '*.md' (any depth) or 'reports/**/*.csv'", min_length=1)]


@dataclass(frozen=True)
class Entry:
    """One file or folder."""

    path: str
    kind: Literal["file", "folder"]
    size_bytes: int
    modified: str


@dataclass(frozen=True)
class Entries:
    """Files and folders in name order; `more` says that the list was cut."""

    entries: list[Entry]
    more: bool


@dataclass(frozen=True)
class Line:
    """One line that holds the words looked for."""

    path: str
    line: int
    text: str


@dataclass(frozen=True)
class Lines:
    """Lines found; `more` says that the list was cut."""

    lines: list[Line]
    more: bool


@dataclass(frozen=True, slots=True)
class Files:
    """The tools: each method is one, and its docstring is what the client reads."""

    folder: Folder

    def list_folder(self, path: FolderPath = ".") -> Entries:
        """List what a folder contains: names, sizes and dates of its files and subfolders."""
        place = self.folder.target(path)
        with in_words(path):
            return self._entries(sorted(place.iterdir()))

    def read_text(
        self,
        path: FilePath,
        first_line: Annotated[int, Field(description="Line to begin at, counting from 1", ge=1)] = 1,
        max_lines: Annotated[int | None, Field(description="How many lines to return; all when left out", ge=1)] = None,
    ) -> str:
        """Read a text file, whole or a range of its lines."""
        text = text_of(self.folder.target(path), path)
        if first_line == 1 and max_lines is None:
            return text
        lines = text.splitlines(keepends=True)[first_line - 1 :]
        return "".join(lines[:max_lines])

    def read_image(self, path: FilePath) -> Image:
        """Show a picture file (PNG, JPEG, GIF or WebP) as an image."""
        return image_of(self.folder.target(path), path)

    def write_text(
        self, path: FilePath, text: Annotated[str, Field(description="The whole new content of the file")]
    ) -> Entry:
        """Save text to a file, replacing whatever the file held before."""
        target = self._housed(self.folder.target(path))
        with in_words(path):
            target.write_text(text, encoding="utf-8", newline="")
            return self._entry(target)

    def append_text(
        self, path: FilePath, text: Annotated[str, Field(description="Text to add; begin a new line yourself")]
    ) -> Entry:
        """Add text to the end of a file, making the file when there is none."""
        target = self._housed(self.folder.target(path))
        with in_words(path):
            with target.open("a", encoding="utf-8", newline="") as file:
                file.write(text)
            return self._entry(target)

    def make_folder(self, path: FolderPath) -> Entry:
        """Create a folder, with any parent folders it still lacks."""
        target = self.folder.target(path)
        with in_words(path):
            target.mkdir(parents=True, exist_ok=True)
            return self._entry(target)

    def move(self, source: Source, destination: Destination) -> Entry:
        """Move or rename a file or folder."""
        old, new = self.folder.entry(source), self._free(destination)
        with in_words(f"{source} to {destination}"):
            old.rename(new)
            return self._entry(new)

    def copy(self, source: Source, destination: Destination) -> Entry:
        """Duplicate a file under another name or in another folder."""
        old, new = self.folder.target(source), self._free(destination)
        with in_words(f"{source} to {destination}"):
            shutil.copy2(old, new)
            return self._entry(new)

    def delete_file(self, path: FilePath) -> str:
        """Delete one file for good; folders are refused."""
        target = self.folder.entry(path)
        if target.is_dir() and not target.is_symlink():
            raise ToolError(f"{path!r} is a folder; this tool deletes single files only")
        with in_words(path):
            target.unlink()
        return f"Deleted {self.folder.name(target)}"

    def find_files(self, pattern: Glob) -> Entries:
        """Find files and folders whose name fits a pattern, at any depth."""
        return self._entries(self.folder.matching(pattern))

    def search_text(
        self,
        text: Annotated[str, Field(description="Words to look for, taken literally", min_length=1)],
        pattern: Glob = "*",
        match_case: Annotated[bool, Field(description="Tell capital and small letters apart")] = False,
        max_lines: Annotated[int, Field(description="Most lines to return", ge=1, le=MAX_LISTED)] = 100,
    ) -> Lines:
        """Search inside text files for words and return the lines that contain them."""
        found: list[Line] = []
        for line in self._lines_with(text, pattern, match_case):
            if len(found) == max_lines:
                return Lines(found, more=True)
            found.append(line)
        return Lines(found, more=False)

    def file_info(self, path: FilePath) -> Entry:
        """Tell the size, kind and last change of a file or folder without reading it."""
        target = self.folder.target(path)
        with in_words(path):
            return self._entry(target)

    def _entry(self, path: Path) -> Entry:
        stat = path.lstat()
        kind: Literal["file", "folder"] = "folder" if path.is_dir() else "file"
        modified = datetime.fromtimestamp(stat.st_mtime, UTC).isoformat(timespec="seconds")
        return Entry(self.folder.name(path), kind, 0 if kind == "folder" else stat.st_size, modified)

    def _entries(self, paths: list[Path]) -> Entries:
        return Entries([self._entry(path) for path in paths[:MAX_LISTED]], more=len(paths) > MAX_LISTED)

    def _free(self, path: str) -> Path:
        place = self.folder.entry(path)
        if place.exists() or place.is_symlink():
            raise ToolError(f"{path!r} is taken; choose another destination or delete it first")
        return self._housed(place)

    def _housed(self, path: Path) -> Path:
        if not path.parent.is_dir():
            raise ToolError(f"There is no folder {self.folder.name(path.parent)!r} yet; make_folder creates it")
        return path

    def _lines_with(self, text: str, pattern: str, match_case: bool) -> Iterator[Line]:
        wanted = text if match_case else text.casefold()
        for path in self.folder.matching(pattern):
            name = self.folder.name(path)
            try:
                lines = text_of(path, name).splitlines() if path.is_file() else []
            except ToolError:  # too large, or not text
                continue
            for number, line in enumerate(lines, start=1):
                if wanted in (line if match_case else line.casefold()):
                    yield Line(name, number, line.strip()[:400])


def build_server(root: Path) -> MCPServer:
    """A server for the files under `root`. Raises NotADirectoryError when there is no such folder."""
    files = Files(open_folder(root))
    server = MCPServer(
        "files",
        instructions="Read, write and search the files of one folder.",
        version=__version__,
        log_level="WARNING",
    )
    for tool in (files.list_folder, files.read_image, files.find_files, files.search_text, files.file_info):
        server.add_tool(tool, annotations=READS)
    server.add_tool(files.read_text, annotations=READS, structured_output=False)  # the text once, not twice
    server.add_tool(files.append_text, annotations=ADDS)
    server.add_tool(files.copy, annotations=ADDS)
    server.add_tool(files.move, annotations=ADDS)
    server.add_tool(files.make_folder, annotations=SETS)
    server.add_tool(files.write_text, annotations=REPLACES)
    server.add_tool(files.delete_file, annotations=REPLACES, structured_output=False)
    return server


def main() -> None:
    """Serve ROOT over stdio."""
    try:
        server = build_server(path_argument("files", "ROOT"))
    except NotADirectoryError as problem:
        sys.exit(str(problem))
    server.run()


if __name__ == "__main__":
    main()
