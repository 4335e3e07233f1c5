"""Labelled need sets, in the layout of BEIR: read once, checked line by line, or refused with the line and the remedy.

A folder holds `corpus.jsonl` (`_id`, `kind`, `server`, `name`, `description`, `inputSchema`?, `body`?),
`queries.jsonl` (`_id`, `text`, `style`?, `lang`?) and `qrels/SPLIT.tsv` (a header; query, card, grade).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from roster.errors import NeedSetError

__all__ = ["Need", "NeedSet", "read_needset"]

_HEADER = "query-id<TAB>corpus-id<TAB>score"


@dataclass(frozen=True, slots=True)
class Need:
    """A need somebody labelled. grades: card id to grade, all of them positive."""

    id: str
    text: str
    grades: Mapping[str, int]
    style: str = ""
    lang: str = ""


@dataclass(frozen=True, slots=True)
class NeedSet:
    """Cards, as rows of the corpus file, and the needs of one split that have a card at all.

    skipped: needs of the split whose every grade is 0; no measure is defined for them.
    digest: SHA-256 (hex) of the three files.
    """

    name: str
    folder: Path
    split: str
    cards: tuple[Mapping[str, Any], ...] = field(repr=False)
    needs: tuple[Need, ...] = field(repr=False)
    skipped: int
    digest: str

    def card_ids(self) -> set[str]:
        """Every `_id` of the corpus."""
        return {row["_id"] for row in self.cards}


def _broken(path: Path, line: int | None, what: str) -> NoReturn:
    raise NeedSetError(f"{path}{f', line {line}' if line else ''}: {what}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _lines(path: Path, missing: str) -> Iterator[tuple[int, str]]:
    """The lines of a file that hold something, numbered from 1. Raises NeedSetError, with `missing` as its remedy."""
    try:
        # By line feeds alone: a description may hold the other characters that str.splitlines() breaks at.
        with path.open(encoding="utf-8-sig", newline="\n") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        _broken(path, None, f"not UTF-8 ({error.reason} at byte {error.start}): save the file as UTF-8")
    except OSError as error:
        _broken(path, None, f"cannot be read ({error.strerror}): {missing}")


def _rows(path: Path, keys: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file, each with a unique `_id` and the other `keys`, all of them strings."""
    lines: dict[str, int] = {}
    for number, line in _lines(path, "a need set is a folder with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv"):
        try:
            row = json.loads(line, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            _broken(path, number, f"not JSON ({why}): each line is one JSON object")
        if not isinstance(row, dict):
            _broken(path, number, f"a JSON {type(row).__name__}: each line is one JSON object")
        for key in ("_id", *keys):
            if key not in row:
                _broken(path, number, f'the key "{key}" is missing: give {", ".join(("_id", *keys))}')
            if not isinstance(row[key], str):
                _broken(path, number, f'"{key}" is {json.dumps(row[key])[:60]}: write it as a string')
        for key in ("_id", *(key for key in keys if key != "description")):
            if not row[key].strip():
                _broken(path, number, f'"{key}" is empty: give it a value, or take the line out')
        if row["_id"] in lines:
            _broken(path, number, f'"_id" {row["_id"]!r} is that of line {lines[row["_id"]]} too: make each one unique')
        lines[row["_id"]] = number
        yield number, row
    if not lines:
        _broken(path, None, "empty: write one JSON object a line")


def _cards(path: Path) -> tuple[dict[str, Any], ...]:
    cards = []
    for number, row in _rows(path, ("server", "name", "description")):
        if row.get("kind", "tool") not in ("tool", "skill"):
            _broken(path, number, f'"kind" is {row["kind"]!r}: write "tool" or "skill"')
        if not isinstance(row.get("inputSchema"), dict | None):
            _broken(path, number, '"inputSchema" is not an object: write the JSON Schema itself, or leave the key out')
        cards.append(row)
    return tuple(cards)


def _queries(path: Path) -> dict[str, dict[str, Any]]:
    queries = {}
    for number, row in _rows(path, ("text",)):
        for key in ("style", "lang"):
            if not isinstance(row.get(key, ""), str):
                _broken(path, number, f'"{key}" is {json.dumps(row[key])[:60]}: write it as a string, or leave it out')
        queries[row["_id"]] = row
    return queries


def _qrels(path: Path, queries: Mapping[str, Any], cards: set[str]) -> dict[str, dict[str, int]]:
    """Need → card → grade, in file order, grades of 0 included."""
    others = sorted(other.stem for other in path.parent.glob("*.tsv")) if path.parent.is_dir() else []
    there = f"name one of the splits that are there: {', '.join(others)}" if others else f"start it with {_HEADER}"
    grades: dict[str, dict[str, int]] = {}
    header = True
    for number, line in _lines(path, there):
        columns = line.split("\t")
        if len(columns) != 3:
            _broken(path, number, f"{len(columns)} columns: each line has three, with tabs between: {_HEADER}")
        need, card, grade = columns
        if header:
            header = False
            if grade.strip().lstrip("+-").isdigit():
                _broken(path, number, f"the header is missing: start the file with {_HEADER}")
            continue
        if need not in queries:
            _broken(path, number, f"need {need!r} is not in queries.jsonl: add it there, or take the line out")
        if card not in cards:
            _broken(path, number, f"card {card!r} is not in corpus.jsonl: add it there, or take the line out")
        if not (grade.isascii() and grade.isdigit()):
            _broken(path, number, f"the grade is {grade!r}: write a whole number, 0 for a card that does not serve")
        if card in grades.setdefault(need, {}):
            _broken(path, number, f"need {need!r} grades card {card!r} twice: keep one of the lines")
        grades[need][card] = int(grade)
    return grades


def read_needset(folder: Path, split: str = "test") -> NeedSet:
    """The need set in a folder. Raises NeedSetError naming file, line, what is wrong there, and the remedy."""
    corpus, queries_file, qrels_file = folder / "corpus.jsonl", folder / "queries.jsonl", folder / f"qrels/{split}.tsv"
    cards = _cards(corpus)
    queries = _queries(queries_file)
    qrels = _qrels(qrels_file, queries, {row["_id"] for row in cards})
    needs = []
    for id_, by_card in qrels.items():
        row = queries[id_]
        positive = {card: grade for card, grade in by_card.items() if grade > 0}
        if positive:
            needs.append(Need(id_, row["text"], positive, row.get("style", ""), row.get("lang", "")))
    if not needs:
        _broken(qrels_file, None, "no need has a card with a grade above 0: add some, or name another split")
    digest = hashlib.sha256()
    for file in (corpus, queries_file, qrels_file):
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return NeedSet(
        folder.resolve().name, folder, split, cards, tuple(needs), len(qrels) - len(needs), digest.hexdigest()
    )
