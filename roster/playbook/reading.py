"""Skill folders → the rows that cards are made of: each once, by real path, by content, by precedence."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roster.cards import Kind, fingerprint
from roster.config import Config
from roster.playbook.folders import (
    Contents,
    Flaw,
    Hashes,
    Stamp,
    contents,
    find_skill_file,
    stamp_of,
    walk,
    within,
)
from roster.playbook.frontmatter import LONGEST_DESCRIPTION, flaws_of_name, split
from roster.playbook.roots import Root, Scope, roots_of, user_folder

__all__ = ["Listed", "Playbook", "Reading", "Skill", "open_playbook", "read_skill", "sound"]

LARGEST_SKILL_FILE = 512 * 1024
"""Bytes of a SKILL.md that are read: twenty times what the specification recommends."""
MOST_SKILLS = 2_000
MOST_STAMPED = 20_000
"""Paths that are looked at for changes between readings; what changes beyond them is noticed an hour later."""
_NAME_KEPT = 200
_HASHES_KEPT = 50_000


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill as it is on disk. row: what its card is made of. folder: a real path."""

    row: dict[str, Any]
    folder: Path
    file: Path
    contents: Contents
    flaws: list[Flaw]

    @property
    def name(self) -> str:
        """The name it goes by."""
        return str(self.row["name"])

    @property
    def fingerprint(self) -> str:
        """Of all that a caller relies on."""
        return fingerprint(Kind.SKILL, self.row, self.row["files"])


@dataclass(frozen=True, slots=True)
class Listed:
    """One server's part of a reading. present: names on file that could not be looked at, so are not gone."""

    rows: list[dict[str, Any]]
    present: list[str]
    complete: bool


@dataclass(slots=True)
class Reading:
    """All skills below some roots, best in precedence first, and what a person may want to mend.

    unread: roots and folders that could not be read. cut: there was more than the bounds allow.
    """

    skills: list[tuple[Root, Skill]] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)
    unread: set[Path] = field(default_factory=set)
    cut: bool = False

    def listed(self, server: str, on_file: Iterable[Mapping[str, Any]]) -> Listed:
        """What is to be put on file for one server. on_file: the rows of its living cards.

        A skill whose root cannot be read stays as it is on file, and no other of its name takes its place.
        """
        present = [str(row["name"]) for row in on_file if self._unreadable(row)]
        kept = set(present)
        rows = [skill.row for root, skill in self.skills if root.server == server and skill.name not in kept]
        return Listed(rows, present, not self.cut)

    def _unreadable(self, row: Mapping[str, Any]) -> bool:
        places = [Path(str(row[key])) for key in ("root", "folder") if row.get(key)]
        return any(within(place, self.unread) for place in places)


def read_skill(folder: Path, root: Root, known: Hashes | None = None) -> Skill:
    """The skill in a folder, a real path. Raises OSError when there is no SKILL.md in it that can be read."""
    file = find_skill_file(folder)
    if file is None:
        raise FileNotFoundError(f"{folder} has no SKILL.md")
    if not within(file.resolve(strict=True), (folder,)):
        raise PermissionError(f"{file} is a link out of its folder")
    with file.open("rb") as stream:
        data = stream.read(LARGEST_SKILL_FILE + 1)
    flaws: list[str] = []
    found = contents(folder, file.name, known)
    hashes = dict(found.hashes)
    if len(data) > LARGEST_SKILL_FILE:
        flaws.append(f"larger than {LARGEST_SKILL_FILE // 1024} kB: only its beginning is read")
        hashes[file.name] = _sha256(file)
        data = data[:LARGEST_SKILL_FILE]
    text = data.decode("utf-8", "replace")
    if "\ufffd" in text and "\ufffd".encode() not in data:
        flaws.append("it is not UTF-8: save it as UTF-8")
    front = split(text)
    flaws += front.flaws
    name = _name(front.values.get("name"), folder.name, flaws)
    description = _description(front.values, front.body, flaws)
    rest = {key: value for key, value in front.values.items() if key not in ("name", "description")}
    row: dict[str, Any] = {"name": name, "description": description, "body": front.body, "files": hashes}
    if rest:
        row["annotations"] = rest
    row = {**sound(row), "folder": str(folder), "root": str(root.path)}
    return Skill(row, folder, file, found, [*(Flaw(str(file), flaw) for flaw in flaws), *found.flaws])


def sound(value: Any) -> Any:
    """`value` with half characters written out, wherever they come from: an escape, or a file's name that is no UTF-8.

    Nothing that stores, encodes or sends text takes them.
    """
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case Mapping():
            return {sound(key): sound(item) for key, item in value.items()}
        case list() | tuple():
            return [sound(item) for item in value]
        case _:
            return value


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _name(value: Any, folder: str, flaws: list[str]) -> str:
    name = " ".join(value.split()) if isinstance(value, str) else "" if value is None else str(value)
    if not name:
        flaws.append(f"it has no name: that of its folder, {folder!r}, is used")
        name = folder
    flaws += flaws_of_name(name, folder)
    return name[:_NAME_KEPT]


def _description(values: Mapping[str, Any], body: str, flaws: list[str]) -> str:
    """What the front matter says of the skill, or else the first paragraph of its body."""
    value = values.get("description")
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    if len(text) > LONGEST_DESCRIPTION:
        flaws.append(f"its description has {len(text):,} characters: at most {LONGEST_DESCRIPTION:,} are allowed")
    if not text:
        flaws.append("it has no description: say in a sentence what it does and when to use it")
        paragraphs = (" ".join(part.split()) for part in body.split("\n\n"))
        text = next((part for part in paragraphs if part and not part.startswith("#")), "")[:LONGEST_DESCRIPTION]
    when = values.get("when_to_use")
    return f"{text} {' '.join(when.split())}".strip() if isinstance(when, str) else text


class Playbook:
    """The skills below some roots, read again when something there has changed. Synchronous; one thread at a time."""

    def __init__(self, roots: Sequence[Root], problems: Collection[str] = ()) -> None:
        self.roots = tuple(roots)
        self.problems = tuple(problems)
        self._hashes: Hashes = {}
        self._stamp: Stamp | None = None
        self._turn = threading.Lock()

    @property
    def servers(self) -> list[str]:
        """The server names that its skills are on file under."""
        return list(dict.fromkeys(root.server for root in self.roots))

    def changed(self) -> bool:
        """Whether a reading now may come out otherwise than the last one; by modification times, without reading."""
        stamp = self._stamp
        return stamp is None or stamp_of(path for path, *_ in stamp) != stamp

    def forget(self) -> None:
        """Read everything anew next time: a file may have changed without its time and size having done so."""
        self._stamp, self._hashes = None, {}

    def allows(self, folder: Path) -> Root | None:
        """The root that a real path is below; None for one that no root is responsible for."""
        for root in self.roots:
            if within(folder, (_real(root.path),)):
                return root
        return None

    def read(self) -> Reading:
        """Every skill there is. Never raises for what is on disk: that is a flaw of it."""
        with self._turn:
            return self._read()

    def _read(self) -> Reading:
        reading = Reading(flaws=[Flaw("skills", problem) for problem in self.problems])
        if len(self._hashes) > _HASHES_KEPT:
            self._hashes.clear()
        looked: list[Path] = [root.path for root in self.roots]
        real_roots = {_real(root.path) for root in self.roots}
        by_folder: set[Path] = set()
        by_name: dict[str, Skill] = {}
        for root in self.roots:
            if (why := _out_of_reach(root)) is not None:
                reading.unread |= {root.path, _real(root.path)}
                reading.flaws.append(Flaw(str(root.path), why))
                continue
            if not root.path.is_dir():
                continue
            below = walk(root.path, real_roots)
            looked += below.looked
            reading.flaws += below.flaws
            reading.unread.update(below.unread)
            reading.cut = reading.cut or below.cut
            for folder in below.folders:
                if folder in by_folder:
                    continue
                by_folder.add(folder)
                looked.append(folder)
                try:
                    skill = read_skill(folder, root, self._hashes)
                except OSError as error:
                    why = error.strerror or str(error)
                    reading.unread.add(folder)
                    reading.flaws.append(Flaw(str(folder), f"its SKILL.md cannot be read ({why})"))
                    continue
                looked += [skill.file, *skill.contents.looked]
                self._take(root, skill, by_name, reading)
        self._stamp = stamp_of(map(str, looked[:MOST_STAMPED]))
        return reading

    def _take(self, root: Root, skill: Skill, by_name: dict[str, Skill], reading: Reading) -> None:
        first = by_name.get(skill.name)
        if first is not None:
            if first.fingerprint != skill.fingerprint:
                said = f"another skill is called {skill.name!r}, in {first.folder}, and goes before this one"
                reading.flaws.append(Flaw(str(skill.folder), said))
            return
        if len(reading.skills) >= MOST_SKILLS:
            if not reading.cut:
                reading.flaws.append(Flaw(str(root.path), f"more than {MOST_SKILLS:,} skills: the rest is left out"))
            reading.cut = True
            return
        by_name[skill.name] = skill
        reading.skills.append((root, skill))
        reading.flaws += skill.flaws


def open_playbook(config: Config, environ: Mapping[str, str] | None = None, here: Path | None = None) -> Playbook:
    """The skills of this config, unread. here: the folder whose project skills count; None: the working directory."""
    with suppress(OSError):  # a working directory that was removed has no project
        here = here or Path.cwd()
    roots, problems = roots_of(config, user_folder(environ), here, environ)
    return Playbook(roots, problems)


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def _out_of_reach(root: Root) -> str | None:
    """Why a root that should be there cannot be looked at; None for one that can, or that simply is not there."""
    try:
        there = root.path.is_dir()
        linked = root.path.is_symlink()
        based = root.base.is_dir()
    except OSError as error:
        return f"cannot be read ({error.strerror}): its skills stay as they are"
    if there or (root.scope is not Scope.CONFIGURED and based and not linked):
        return None
    if root.scope is Scope.CONFIGURED:
        return 'this folder of "skills" is not there: its skills stay as they are; mend the path, or take it out'
    return "this folder cannot be reached: its skills stay as they are"
