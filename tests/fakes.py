"""Stand-ins for what would hide a test's point: an encoder that hashes words, a clock that is told the time."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import roster
from roster.vectors import Vectors, unit_rows

HOUR = 3600.0


class WordEncoder:
    """An `Encoder` whose vectors are bags of hashed words: alike texts get alike vectors, in every process the same.

    embedded: every card text it was given, in order. before: called with each batch of them before it is embedded.
    """

    name = "words"
    match_floor: float | None = None
    unknown = 0.0

    def __init__(
        self, dim: int = 256, fingerprint: str = "words", before: Callable[[Sequence[str]], object] | None = None
    ) -> None:
        self.dim = dim
        self.fingerprint = f"{fingerprint}-{dim}"
        self.embedded: list[str] = []
        self.needs: list[str] = []
        self._before = before

    def encode_needs(self, texts: Sequence[str]) -> Vectors:
        self.needs += texts
        return self._encode(texts)

    def encode_cards(self, texts: Sequence[str]) -> Vectors:
        if self._before is not None:
            self._before(texts)
        self.embedded += texts
        return self._encode(texts)

    def unread(self, text: str) -> float:
        return self.unknown

    def _encode(self, texts: Sequence[str]) -> Vectors:
        rows = np.zeros((len(texts), self.dim), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text.casefold()):
                digest = hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()
                row[int.from_bytes(digest[:4], "little") % self.dim] += 1
        return unit_rows(rows)


@dataclass
class Clock:
    """Seconds since the epoch, moved by hand. Call it for the time."""

    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> float:
        self.now += seconds
        return self.now


def tool(name: str, description: str = "", **more: Any) -> dict[str, Any]:
    """A row of a `tools/list` answer."""
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": {}}, **more}


def skill(root: Path, name: str, description: str = "What it does", body: str = "Do it.", **files: str) -> Path:
    """Write a skill's folder below a root; the folder. files: text by path, `__` in it for a slash, `_` for a dot."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    text = f"---\nname: {folder.name}\ndescription: {description}\n---\n\n{body}\n"
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    for path, content in files.items():
        file = folder / path.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return folder


def python(code: str, *arguments: str, environ: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start this Python on `code`, with `roster` and these fakes importable; stdin, stdout and stderr are pipes."""
    paths = [Path(roster.__file__).parents[1], Path(__file__).parent]
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), **(environ or {})},
    )


@dataclass(frozen=True)
class Ran:
    """What one command line came to."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        """Its one JSON document, and nothing beside it on stdout."""
        assert self.status == 0, self.err
        return json.loads(self.out)


Run = Callable[..., Ran]
