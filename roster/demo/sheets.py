"""The CSV files of a folder as tables of an in-memory SQLite database that can be read and never written."""

import csv
import re
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Cell", "Sheet", "load_sheets", "quoted"]

Cell = str | int | float | None

MAX_FILE_BYTES = 50_000_000
MAX_CELL_BYTES = 1_000_000
_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})")  # "007" stays text: it is a code, not a count
_DECIMAL = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]+)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True)
class Sheet:
    """One CSV file: its table name, column types, and why it could not be read, if so."""

    table: str
    file: str
    columns: dict[str, str]
    rows: int
    problem: str | None = None


def load_sheets(files: Iterable[Path]) -> tuple[sqlite3.Connection, dict[str, Sheet]]:
    """Every file as one table, and the sheets by table name; a file that cannot be read is a sheet with a problem.

    The connection may be used by any thread, one at a time, and refuses everything but reading.
    """
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    sheets: dict[str, Sheet] = {}
    for file in files:
        table = _unused(file.stem, sheets)
        try:
            columns, rows = _load(db, table, file)
            sheets[table] = Sheet(table, file.name, columns, rows)
        except (OSError, UnicodeDecodeError, csv.Error, ValueError, sqlite3.Error) as problem:
            sheets[table] = Sheet(table, file.name, {}, 0, str(problem))
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL_BYTES)
    db.set_authorizer(_authorize)
    return db, sheets


def quoted(name: str) -> str:
    """`name` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _authorize(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def _load(db: sqlite3.Connection, table: str, file: Path) -> tuple[dict[str, str], int]:
    if (size := file.stat().st_size) > MAX_FILE_BYTES:
        raise ValueError(f"{size:,} bytes; at most {MAX_FILE_BYTES:,} are read")
    with file.open(encoding="utf-8-sig", newline="") as lines:
        header = lines.readline()
        lines.seek(0)
        delimiter = max(",;\t", key=header.count)
        names, *rows = csv.reader(lines, delimiter=delimiter) if header.strip() else [[]]
    columns: dict[str, str] = {}
    for name in names:
        columns[_unused(name.strip() or "column", columns)] = "TEXT"
    if not columns:
        raise ValueError("the first line holds no column names")
    width = len(columns)
    cells = [[cell or None for cell in row[:width]] + [None] * (width - len(row)) for row in rows if row]
    for index, name in enumerate(columns):
        columns[name] = _type_of(row[index] for row in cells)
    typed = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
    db.execute(f"CREATE TABLE {quoted(table)} ({typed})")
    db.executemany(f"INSERT INTO {quoted(table)} VALUES ({', '.join('?' * width)})", cells)
    return columns, len(cells)


def _type_of(cells: Iterable[str | None]) -> str:
    kinds = {_kind(cell) for cell in cells if cell is not None}
    match kinds:
        case _ if kinds == {"INTEGER"}:
            return "INTEGER"
        case _ if kinds and kinds <= {"INTEGER", "REAL"}:
            return "REAL"
        case _:
            return "TEXT"


def _kind(cell: str) -> str:
    if _WHOLE.fullmatch(cell):
        return "INTEGER"
    return "REAL" if _DECIMAL.fullmatch(cell) else "TEXT"


def _unused(name: str, taken: Iterable[str]) -> str:
    """`name`, or `name_2` and so on when it is taken; SQLite tells no case apart."""
    used = {other.casefold() for other in taken}
    number, candidate = 1, name
    while candidate.casefold() in used:
        number += 1
        candidate = f"{name}_{number}"
    return candidate
