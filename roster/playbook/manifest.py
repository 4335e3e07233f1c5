"""What a call of a skill returns: its instructions, then what lies beside them, small texts included."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roster.playbook.folders import find_skill_file, within
from roster.playbook.reading import Playbook, Skill, read_skill, sound

__all__ = ["blocks_of", "reread"]

EMBEDDED_BYTES = 16_000
"""A textual file of up to this size is part of the answer."""
ALL_EMBEDDED_BYTES = 64_000
MOST_LINKS = 100
"""Files that are linked one by one; what is beyond is in the folder, which the manifest names."""
MOST_NAMED = 200
_TEXTUAL = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".py": "text/x-python",
    ".sh": "text/x-shellscript",
    ".js": "text/javascript",
    ".ts": "text/typescript",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".toml": "application/toml",
    ".csv": "text/csv",
    ".txt": "text/plain",
}
"""The same on every machine, whatever its own table of types says."""


def reread(playbook: Playbook, raw: Mapping[str, Any]) -> Skill:
    """The skill of a card's row as it is on disk now.

    Raises OSError when its folder cannot be read, is gone, or is below none of the roots any more.
    """
    folder = Path(str(raw.get("folder", "")))
    real = folder.resolve(strict=True)
    root = playbook.allows(real)
    if root is None or real != folder:
        # Once a link was put in its place, it leads to what nobody has looked at.
        raise PermissionError(f"{folder} is below none of the skill folders of this Roster any more")
    if find_skill_file(real) is None:
        raise FileNotFoundError(f"{folder} has no SKILL.md any more")
    return read_skill(real, root)


def blocks_of(skill: Skill, notes: list[str]) -> list[dict[str, Any]]:
    """MCP content blocks: notes if there are any, the instructions, the manifest, then resources and links.

    notes: what the caller should know before it follows them. A file that cannot be read at this moment is linked.
    """
    blocks = [_text("\n".join(notes))] if notes else []
    blocks.append(_text(skill.row["body"] or f"(The skill {skill.name} has no instructions.)"))
    sizes = skill.contents.sizes
    embedded: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = []
    lines: list[str] = []
    left = ALL_EMBEDDED_BYTES
    for path, size in sizes.items():
        file = skill.folder / path
        text = _small_text(file, skill.folder, size, left)
        if text is not None:
            left -= size
            embedded.append({"type": "resource", "resource": {"uri": file.as_uri(), "mimeType": _type(file, True)}})
            embedded[-1]["resource"]["text"] = text
        elif len(links) < MOST_LINKS:
            links.append({"type": "resource_link", "uri": file.as_uri(), "name": path, "mimeType": _type(file, False),
                          "size": size})  # fmt: skip
        if len(lines) < MOST_NAMED:
            lines.append(f"- {path} ({_size(size)}{', below' if text is not None else ''})")
    if sizes:
        more = [f"- and {len(sizes) - MOST_NAMED} more"] if len(sizes) > MOST_NAMED else []
        blocks.append(_text("\n".join([f"Files of this skill, in {skill.folder}:", *lines, *more])))
    answer: list[dict[str, Any]] = sound([*blocks, *embedded, *links])
    return answer


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _size(size: int) -> str:
    return f"{size} bytes" if size < 1_000 else f"{size / 1_000:.0f} kB"


def _type(file: Path, textual: bool) -> str:
    known = _TEXTUAL.get(file.suffix.lower()) or mimetypes.guess_type(file.name)[0]
    return known or ("text/plain" if textual else "application/octet-stream")


def _small_text(file: Path, folder: Path, size: int, left: int) -> str | None:
    """The text of a file that is small, text, still within the folder, and not hidden; None for any other."""
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    if hidden or size > min(EMBEDDED_BYTES, left):  # a .env beside a skill is nobody's reading matter
        return None
    try:
        if not within(file.resolve(strict=True), (folder,)):
            return None
        with file.open("rb") as stream:
            data = stream.read(EMBEDDED_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, RuntimeError, UnicodeDecodeError):
        return None
    return text if len(data) <= EMBEDDED_BYTES and "\0" not in text else None
