"""The machine as the adapters see it: whose home, which system, which environment. Tests make one of their own."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Machine", "this_machine"]

_VARIABLE = re.compile(r"^\$([A-Z_]+)")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where to look and what to write. platform: as `sys.platform` has it; python: the interpreter Roster runs in."""

    home: Path
    environ: Mapping[str, str]
    platform: str
    cwd: Path
    python: str

    @property
    def app_config(self) -> Path:
        """Where programs with windows keep their settings on this system."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            named = self.environ.get("APPDATA")
            return Path(named) if named else self.home / "AppData" / "Roaming"
        return self.xdg_config

    @property
    def xdg_config(self) -> Path:
        """`$XDG_CONFIG_HOME`, or `~/.config`, on every system."""
        named = self.environ.get("XDG_CONFIG_HOME")
        return Path(named) if named else self.home / ".config"

    def place(self, template: str, project: Path) -> Path | None:
        """The path a template of the adapter table means here; None when a variable in it is not set.

        `~` is the home, `@app` and `@xdg` the folders above, `@project` the project, `$NAME` a variable.
        """
        head, _, rest = template.partition("/")
        roots = {"~": self.home, "@app": self.app_config, "@xdg": self.xdg_config, "@project": project}
        if head in roots:
            return roots[head] / rest
        if match := _VARIABLE.match(head):
            named = self.environ.get(match[1])
            return (self.home / named[2:] if named.startswith("~/") else Path(named)) / rest if named else None
        return Path(template)

    def roster_command(self, *, short_path: bool) -> list[str]:
        """The command that serves, by absolute path. short_path: for a client that may not find interpreters itself.

        `-P` keeps a folder named roster, in whatever directory the client starts it, from being taken for ours.
        """
        if not short_path:
            own = Path(self.python).parent
            found = shutil.which("roster", path=str(own)) or shutil.which("roster", path=self.environ.get("PATH", ""))
            if found is not None:
                return [str(Path(found).absolute()), "serve"]
        return [self.python, "-P", "-m", "roster", "serve"]


def this_machine() -> Machine:
    """The one this process runs on."""
    return Machine(Path.home(), os.environ, sys.platform, Path.cwd(), sys.executable)
