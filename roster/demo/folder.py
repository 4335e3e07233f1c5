"""One root folder, and the refusal of every path that leads out of it.

The check comes before the use, so it protects against a wrong path, not against another process that swaps
a folder for a link in between.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from mcp.server.mcpserver.exceptions import ToolError

__all__ = ["Folder", "in_words", "open_folder"]

MAX_SCANNED = 50_000


@dataclass(frozen=True, slots=True)
class Folder:
    """Turns a caller's words into paths under `root`, which has no links left in it."""

    root: Path

    def target(self, path: str) -> Path:
        """What `path` leads to once every link is followed. Raises ToolError when that is outside the root."""
        try:
            found = self._spelled(path).resolve()
        except (OSError, RuntimeError, ValueError) as problem:  # a loop of links, a NUL byte, a name too long
            raise ToolError(f"{path!r} is not a usable path: {problem}") from problem
        if not found.is_relative_to(self.root):
            raise ToolError(f"{path!r} is outside the folder this server works in; use a path relative to its root")
        return found

    def entry(self, path: str) -> Path:
        """The name `path` itself, where `target` would follow it if it is a link. The root itself is refused."""
        if self.target(path) == self.root:
            raise ToolError(f"{path!r} is the root folder itself; name something inside it")
        spelled = self._spelled(path)
        return self.target(str(spelled.parent)) / spelled.name

    def name(self, path: Path) -> str:
        """`path` as the caller should spell it: relative to the root, with forward slashes."""
        return path.relative_to(self.root).as_posix()

    def matching(self, pattern: str) -> list[Path]:
        """Everything under the root that fits the glob, in name order; links that lead outside are left out.

        A pattern without a slash is looked for at every depth.
        """
        try:
            found = self.root.glob(pattern) if "/" in pattern else self.root.rglob(pattern)
            seen = sorted(islice(found, MAX_SCANNED))
        except (ValueError, NotImplementedError) as problem:
            raise ToolError(f"{pattern!r} is not a usable pattern: {problem}") from problem
        return [path for path in seen if self._holds(path)]

    def _spelled(self, path: str) -> Path:
        return Path(os.path.normpath(self.root / path))

    def _holds(self, path: Path) -> bool:
        try:
            return ".." not in path.parts and path != self.root and path.resolve().is_relative_to(self.root)
        except (OSError, RuntimeError):
            return False


def open_folder(root: Path) -> Folder:
    """The folder at `root`. Raises NotADirectoryError when there is none."""
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is not a folder; make it first")
    return Folder(root.resolve())


@contextmanager
def in_words(path: str) -> Iterator[None]:
    """Inside, a refusal by the operating system becomes a tool error that names the path."""
    try:
        yield
    except OSError as problem:
        raise ToolError(f"{path!r}: {problem.strerror or problem}") from problem
