"""Skill folders on disk, within bounds: where they are, what is in them, and whether anything changed.

No link is followed out of the roots, nothing is read without an end, and what cannot be read is said, not raised.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Contents", "Flaw", "Hashes", "Stamp", "Walk", "contents", "find_skill_file", "stamp_of", "walk", "within"]

DEEPEST = 6
"""Levels below a root at which a skill's folder may lie."""
MOST_FOLDERS = 4_000
MOST_FILES = 512
MOST_BYTES = 16 * 1024 * 1024
_CHUNK = 1024 * 1024
# Written by programs beside the skill, not by its author: they come and go by themselves.
_PASSING = frozenset((".git", ".hg", ".svn", "__pycache__", ".ds_store", "thumbs.db", ".venv", "node_modules"))

Stamp = tuple[tuple[str, int, int], ...]
"""(path, modification time in ns, size) of everything looked at; (path, -1, -1) for what is not there."""
Hashes = dict[tuple[str, int, int, int], str]
"""SHA-256 (hex) by path, modification time, size and inode: what has not changed is not read again."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something about skills that a person may want to mend. where: a skill's or root's path."""

    where: str
    message: str


@dataclass(slots=True)
class Walk:
    """What lies below one root. folders: of skills, real paths, in order. looked: every folder that was entered.

    unread: folders that are there, or should be, and could not be read. cut: there was more than the bounds allow.
    """

    folders: list[Path] = field(default_factory=list)
    looked: list[Path] = field(default_factory=list)
    unread: list[Path] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)
    cut: bool = False


@dataclass(slots=True)
class Contents:
    """The other files of a skill's folder. hashes: relative path (with /) → SHA-256 (hex). sizes: in bytes."""

    hashes: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    looked: list[Path] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)


def within(path: Path, roots: Iterable[Path]) -> bool:
    """Whether a real path is one of these or below one of them."""
    return any(path == root or root in path.parents for root in roots)


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__


def find_skill_file(folder: Path) -> Path | None:
    """The SKILL.md of a folder, also when it is written in small letters. Raises OSError."""
    names = {entry.name: entry for entry in os.scandir(folder) if entry.name.lower() == "skill.md"}
    for name in ("SKILL.md", *sorted(names)):
        if name in names and names[name].is_file():  # a pipe would keep its reader waiting for ever
            return folder / name
    return None


def walk(root: Path, real_roots: Collection[Path]) -> Walk:
    """The skill folders below a root that exists; the search does not go on below a SKILL.md.

    real_roots: real paths of every root; a link that leads to none of them is not followed.
    """
    found = Walk()
    seen: set[Path] = set()
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            real = folder.resolve(strict=True)
        except (OSError, RuntimeError):  # a loop of links
            found.flaws.append(Flaw(str(folder), "this link leads nowhere: remove it, or bring back what it led to"))
            continue
        if real in seen:
            continue
        if not within(real, real_roots):
            found.flaws.append(Flaw(str(folder), 'this link leads out of the roots: name its target under "skills"'))
            continue
        if len(seen) >= MOST_FOLDERS:
            found.cut = True
            found.flaws.append(Flaw(str(root), f"more than {MOST_FOLDERS:,} folders: the rest was not looked at"))
            break
        seen.add(real)
        try:
            skill = find_skill_file(real)
            if skill is not None:
                found.folders.append(real)
                continue
            found.looked.append(real)
            below = sorted((e.path for e in os.scandir(real) if _may_hold(e)), reverse=True)
        except OSError as error:
            found.unread.append(real)
            found.flaws.append(Flaw(str(folder), f"cannot be read ({_why(error)}): its skills stay as they are"))
            continue
        if depth < DEEPEST:
            waiting += [(Path(path), depth + 1) for path in below]
    return found


def _may_hold(entry: os.DirEntry[str]) -> bool:
    if entry.name.lower() in _PASSING:
        return False
    return entry.is_symlink() or entry.is_dir(follow_symlinks=False)


def contents(folder: Path, skill_file: str, known: Hashes | None = None) -> Contents:
    """Every file of a skill's folder but its SKILL.md, hashed; sorted by path.

    folder: a real path. skill_file: the SKILL.md's name. known: hashes of before, to which new ones are added. Of what
    is beyond the bounds, only the size counts; of a link that leads out of the folder, only where it leads to.
    """
    found = Contents()
    known = {} if known is None else known
    left = MOST_BYTES
    for path, relative in _files(folder, skill_file, found):
        if len(found.hashes) >= MOST_FILES:
            found.flaws.append(Flaw(str(folder), f"more than {MOST_FILES} files: changes of the others go unnoticed"))
            break
        try:
            real = path.resolve(strict=True)
            if not within(real, (folder,)):
                found.hashes[relative] = f"link:{path.readlink()}"
                found.flaws.append(Flaw(str(path), "a link out of the skill's folder: it is not followed"))
                continue
            info = real.stat()
            if not stat.S_ISREG(info.st_mode):
                continue  # reading from a pipe or a device would never end
            found.looked.append(path)
            found.sizes[relative] = info.st_size
            left -= info.st_size
            if left < 0:
                found.hashes[relative] = f"size:{info.st_size}"
                continue
            found.hashes[relative] = _sha256(real, info, known)
        except (OSError, RuntimeError) as error:
            why = _why(error) if isinstance(error, OSError) else "a loop of links"
            found.hashes[relative] = "unreadable"
            found.flaws.append(Flaw(str(path), f"cannot be read ({why})"))
    if left < 0:
        mb = MOST_BYTES // 1024**2
        found.flaws.append(Flaw(str(folder), f"more than {mb} MB: changes of the rest show by their size only"))
    return found


def _files(folder: Path, skill_file: str, found: Contents) -> Iterable[tuple[Path, str]]:
    """(path, relative path) of the files below a folder, in order; links to folders are given as files."""
    waiting = [(folder, 0)]
    while waiting:
        here, depth = waiting.pop(0)
        found.looked.append(here)
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            found.flaws.append(Flaw(str(here), f"cannot be read ({_why(error)})"))
            continue
        for entry in entries:
            if entry.name.lower() in _PASSING or (here == folder and entry.name == skill_file):
                continue
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                if depth < DEEPEST:
                    waiting.append((path, depth + 1))
                else:
                    found.flaws.append(Flaw(str(path), f"more than {DEEPEST} folders deep: it was not looked at"))
                continue
            yield path, path.relative_to(folder).as_posix()


def _sha256(path: Path, info: os.stat_result, known: Hashes) -> str:
    key = (str(path), info.st_mtime_ns, info.st_size, info.st_ino)
    if key not in known:
        digest = hashlib.sha256()
        left = info.st_size + _CHUNK  # a file that grows while it is read has an end as well
        with path.open("rb") as file:
            while left > 0 and (block := file.read(_CHUNK)):
                digest.update(block)
                left -= len(block)
        known[key] = digest.hexdigest()
    return known[key]


def stamp_of(paths: Iterable[str]) -> Stamp:
    """What has to be the same for a reading to be still true. Files that can be edited in place are among `paths`."""
    out = []
    for path in paths:
        try:
            info = os.stat(path)  # noqa: PTH116 - this is asked at drafts, and a Path costs more than the look
            out.append((path, info.st_mtime_ns, info.st_size))
        except OSError:
            out.append((path, -1, -1))
    return tuple(out)
