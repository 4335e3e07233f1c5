"""Where skills lie: the folders a user names, those of their clients, and those of the project at hand."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from roster.cards import SKILLS
from roster.config import Config, expand
from roster.errors import VariableError

__all__ = ["PERSONAL", "PROJECT", "Root", "Scope", "roots_of", "user_folder"]

PERSONAL = (
    ".agents/skills",  # the shared convention; Codex too
    ".claude/skills",
    ".codex/skills",
    ".gemini/skills",
    ".cursor/skills",
    ".copilot/skills",
    ".codeium/windsurf/skills",
    ".openclaw/skills",
    ".config/agents/skills",
)
"""Below the user's home folder, in order of precedence."""
PROJECT = (
    ".agents/skills",
    ".claude/skills",
    ".codex/skills",
    ".gemini/skills",
    ".cursor/skills",
    ".github/skills",
    ".windsurf/skills",
    ".openclaw/skills",
    ".amp/skills",
)
"""Below the working directory, in order of precedence."""


class Scope(StrEnum):
    """Whose skills a root holds, first in precedence first.

    What a person set up goes before what comes with a folder that they happen to stand in: a cloned repository must
    not be able to put its own skill in the place of one of theirs.
    """

    CONFIGURED = "configured"
    PERSONAL = "personal"
    PROJECT = "project"


@dataclass(frozen=True, slots=True)
class Root:
    """A folder with skill folders in it. base: what it hangs on; without that it is out of reach, not empty."""

    path: Path
    scope: Scope
    base: Path

    @property
    def server(self) -> str:
        """The server name its skills are on file under: one for the user's own, one for each project.

        Processes that serve in different folders share a database: each project's skills are a listing of their own,
        or the processes would take each other's off the file.
        """
        if self.scope is not Scope.PROJECT:
            return SKILLS
        return f"{SKILLS}:{hashlib.sha256(str(self.base).encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def user_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The user's home folder, by these variables (None: the process's own)."""
    named = (environ or {}).get("USERPROFILE" if os.name == "nt" else "HOME", "")
    return Path(named) if named else Path.home()


def roots_of(
    config: Config, user: Path, here: Path | None, environ: Mapping[str, str] | None = None
) -> tuple[list[Root], list[str]]:
    """Every root in order of precedence, each real folder once; and what is wrong with those of the config.

    user: the user's home folder. here: the working directory; None for no project.
    """
    roots: list[Root] = []
    problems = []
    beside = config.path.parent if config.path is not None else user
    for written in config.settings.skills:
        try:
            text = expand(written, os.environ if environ is None else environ)
        except VariableError as error:
            problems.append(f"skills: {error}")
            continue
        tilde = text == "~" or text.startswith(("~/", "~\\"))
        path = user / text[2:] if tilde else beside / text
        roots.append(Root(path, Scope.CONFIGURED, path))
    if config.settings.standard_skills:
        roots += [Root(user / below, Scope.PERSONAL, user) for below in PERSONAL]
        if here is not None:
            roots += [Root(here / below, Scope.PROJECT, here) for below in PROJECT]
    seen: set[str] = set()
    kept = []
    for root in roots:
        real = os.path.realpath(root.path)
        if real not in seen:
            seen.add(real)
            kept.append(root)
    return kept, problems
