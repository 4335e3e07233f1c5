"""A small need set on disk, and one evaluation of it that several tests look at."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from roster.evaluation import Evaluation, NeedSet, Plan, evaluate, parse_system, read_needset

CARDS = [
    {
        "_id": "mail-1",
        "kind": "tool",
        "server": "mail",
        "name": "send_message",
        "description": "Send an e-mail.\u2028Now.",
    },
    {"_id": "mail-2", "kind": "tool", "server": "mail", "name": "list_messages", "description": "List the inbox."},
    {"_id": "files-1", "kind": "tool", "server": "files", "name": "make_folder", "description": "Create a new folder."},
    {
        "_id": "files-2",
        "kind": "tool",
        "server": "files",
        "name": "make_folder",
        "description": "Bake a chocolate cake.",
    },
    {
        "_id": "weather",
        "kind": "tool",
        "server": "sky",
        "name": "forecast",
        "description": "Weather of the coming days.",
        "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
    {
        "_id": "pdf",
        "kind": "skill",
        "server": "skills",
        "name": "pdf",
        "description": "Fill in PDF forms.",
        "body": "# PDF",
    },
]
NEEDS = [
    {"_id": "1", "text": "send an e-mail", "style": "terse", "lang": "en"},
    {"_id": "2", "text": "bake a cake", "style": "terse", "lang": "en"},
    {"_id": "3", "text": "will it rain in Paris tomorrow?", "style": "verbose", "lang": "en"},
    {"_id": "4", "text": "read <b>my</b> mail & answer it", "style": "verbose"},
    {"_id": "5", "text": "play the tuba"},
]
QRELS = ["1\tmail-1\t1", "2\tfiles-2\t1", "2\tmail-1\t0", "3\tweather\t2", "4\tmail-1\t1", "4\tmail-2\t2", "5\tpdf\t0"]

WriteSet = Callable[..., Path]


def written(
    folder: Path,
    cards: Sequence[Any] = CARDS,
    needs: Sequence[Any] = NEEDS,
    qrels: Sequence[str] = QRELS,
    header: str = "query-id\tcorpus-id\tscore",
) -> Path:
    """A need set in `folder`; a row that is a string is written as it is."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", cards), ("queries", needs)):
        lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    (folder / "qrels" / "test.tsv").write_text("\n".join([header, *qrels, ""]), "utf-8")
    return folder


@pytest.fixture(scope="session")
def write_set() -> WriteSet:
    """Write a need set: `write_set(folder, cards=..., needs=..., qrels=..., header=...)`."""
    return written


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The small need set's folder."""
    return written(tmp_path / "small")


@pytest.fixture
def needset(folder: Path) -> NeedSet:
    return read_needset(folder)


@pytest.fixture(scope="session")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """The small need set, and a copy of it by another name, under all three systems of the default encoder."""
    base = tmp_path_factory.mktemp("evaluation")
    needsets = [read_needset(written(base / name)) for name in ("small", "again")]
    systems = [parse_system(name) for name in ("hybrid", "dense", "lexical")]
    return evaluate(needsets, Plan(systems, 3, 13, base / "cache", {}), lambda *_: None)
