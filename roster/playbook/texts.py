"""The texts that lie beside a skill's instructions, as a review reads them: hidden files too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roster.playbook.folders import within
from roster.playbook.reading import Playbook

__all__ = ["texts_of"]

LONGEST_BYTES = 200_000
"""Read of one file; its review reads less, from both ends."""
ALL_BYTES = 2_000_000


def texts_of(playbook: Playbook, raw: Mapping[str, Any]) -> dict[str, str]:
    """Path to text of the files of a skill's row that are text; {} when its folder is not there or not allowed.

    What is no UTF-8 is decoded with replacements: a script is not to escape a reader by one odd byte.
    """
    files = raw.get("files")
    try:
        folder = Path(str(raw.get("folder", ""))).resolve(strict=True)
        if playbook.allows(folder) is None or not isinstance(files, Mapping):
            return {}
    except (OSError, RuntimeError):  # RuntimeError: a loop of links
        return {}
    out: dict[str, str] = {}
    left = ALL_BYTES
    for path in files:
        try:
            file = (folder / path).resolve(strict=True)
            if not within(file, (folder,)) or not file.is_file():
                continue
            with file.open("rb") as stream:
                data = stream.read(min(LONGEST_BYTES, left))
        except (OSError, RuntimeError):
            continue
        if b"\0" not in data:
            out[path] = data.decode("utf-8", "replace")
            left -= len(data)
    return out
