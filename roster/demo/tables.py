"""A server that answers SQL questions about CSV files and cannot change them: `python -m roster.demo.tables FOLDER`."""

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from roster import __version__
from roster.demo.serving import READS, path_argument
from roster.demo.sheets import Cell, Sheet, load_sheets, quoted

__all__ = ["build_server", "main"]

MAX_ANSWER_CHARS = 200_000
QUERY_LIMIT_S = 10.0

TableName = Annotated[str, Field(description="Table as list_tables names it: the CSV file's name without .csv")]


@dataclass(frozen=True)
class Table:
    """One table: its columns with their types, and a few rows to see what they hold."""

    table: str
    columns: dict[str, str]
    rows: int
    first_rows: list[list[Cell]]


@dataclass(frozen=True)
class Answer:
    """The rows a query gives; `more` says that the list was cut."""

    columns: list[str]
    rows: list[list[Cell]]
    more: bool


@dataclass(frozen=True)
class Summary:
    """One column in figures; `mean` is there for numbers only, and `common` holds the five commonest values."""

    filled: int
    empty: int
    distinct: int
    smallest: Cell
    largest: Cell
    mean: float | None
    common: dict[str, int]


class Tables:
    """The tools: each public method is one, and its docstring is what the client reads."""

    def __init__(self, folder: Path, query_limit_s: float = QUERY_LIMIT_S) -> None:
        self._folder = folder
        self._query_limit_s = query_limit_s
        self._lock = Lock()
        self._loaded: list[tuple[str, int, int]] | None = None
        self._db, self._sheets = load_sheets([])

    def list_tables(self) -> list[Sheet]:
        """List the spreadsheets (CSV files) that can be queried, with their columns and row counts."""
        with self._current():
            return list(self._sheets.values())

    def describe_table(self, table: TableName) -> Table:
        """Show the columns of a table, their types and its first rows."""
        with self._current() as db:
            sheet = self._sheet(table)
            answer = self._rows(db, f"SELECT * FROM {quoted(sheet.table)} LIMIT 3", 3)
            return Table(sheet.table, sheet.columns, sheet.rows, answer.rows)

    def query_table(
        self,
        sql: Annotated[str, Field(description="One SQLite SELECT statement over the tables", min_length=1)],
        max_rows: Annotated[int, Field(description="Most rows to return", ge=1, le=1000)] = 100,
    ) -> Answer:
        """Run a SELECT query over CSV data: filter, sort, join, count and add up rows; writing is refused."""
        with self._current() as db:
            return self._rows(db, sql, max_rows)

    def summarise_column(
        self, table: TableName, column: Annotated[str, Field(description="Column of that table")]
    ) -> Summary:
        """Sum up one column: how many values, the smallest, the largest, their mean and the commonest."""
        with self._current() as db:
            sheet = self._sheet(table)
            names = {name.casefold(): name for name in sheet.columns}
            if (name := names.get(column.casefold())) is None:
                raise ToolError(f"{sheet.table} has no column {column!r}; it has {', '.join(sheet.columns)}")
            mean = f"avg({quoted(name)})" if sheet.columns[name] != "TEXT" else "NULL"
            figures = "count({0}), count(*) - count({0}), count(DISTINCT {0}), min({0}), max({0})".format(quoted(name))
            (row,) = self._rows(db, f"SELECT {figures}, {mean} FROM {quoted(sheet.table)}", 1).rows
            common = self._rows(
                db,
                f"SELECT {quoted(name)}, count(*) FROM {quoted(sheet.table)} WHERE {quoted(name)} IS NOT NULL"
                " GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 5",
                5,
            ).rows
            filled, empty, distinct, smallest, largest, average = _as_any(row)
            counts = {str(value): count for value, count in map(_as_any, common)}
            return Summary(filled, empty, distinct, smallest, largest, average, counts)

    @contextmanager
    def _current(self) -> Iterator[sqlite3.Connection]:
        """The database, alone, and loaded anew when a file in the folder has changed."""
        with self._lock:
            try:
                files = sorted(path for path in self._folder.iterdir() if path.suffix.lower() == ".csv")
                marks = [(path.name, (stat := path.stat()).st_mtime_ns, stat.st_size) for path in files]
            except OSError as problem:
                raise ToolError(f"The folder of tables cannot be read: {problem}") from problem
            if marks != self._loaded:
                self._db.close()
                self._db, self._sheets = load_sheets(files)
                self._loaded = marks
            yield self._db

    def _sheet(self, table: str) -> Sheet:
        for name, sheet in self._sheets.items():
            if name.casefold() == table.removesuffix(".csv").casefold():
                if sheet.problem:
                    raise ToolError(f"{sheet.file} cannot be read: {sheet.problem}")
                return sheet
        raise ToolError(f"There is no table {table!r}; there are {', '.join(self._sheets) or 'none yet'}")

    def _rows(self, db: sqlite3.Connection, sql: str, max_rows: int) -> Answer:
        deadline = monotonic() + self._query_limit_s
        db.set_progress_handler(lambda: monotonic() > deadline, 10_000)
        rows: list[list[Cell]] = []
        chars = 0
        try:
            cursor = db.execute(sql)
            columns = [name for name, *_ in cursor.description or ()]
            for row in cursor:
                rows.append([_cell(value) for value in row])
                chars += sum(len(str(cell)) for cell in rows[-1])
                if len(rows) > max_rows or chars > MAX_ANSWER_CHARS:
                    return Answer(columns, rows[:-1], more=True)
        except (sqlite3.Error, sqlite3.Warning) as problem:
            raise ToolError(_in_words(problem, self._query_limit_s)) from problem
        if not columns:
            raise ToolError("That statement gives no rows; this server answers SELECT statements only")
        return Answer(columns, rows, more=False)


def _cell(value: Any) -> Cell:
    """What JSON can carry: an infinite number or raw bytes become text."""
    match value:
        case bytes():
            return value.hex()
        case float() if not isfinite(value):
            return str(value)
        case None | str() | int() | float():
            return value
        case _:
            return str(value)


def _as_any(row: Sequence[Cell]) -> Sequence[Any]:
    return row


def _in_words(problem: Exception, limit_s: float) -> str:
    match str(problem):
        case "not authorized" | "authorization denied":
            return "Only SELECT statements are answered here: the tables can be read, not changed"
        case "interrupted":
            return f"The query took longer than {limit_s:g} seconds; ask for less"
        case other:
            return f"SQLite refused the query: {other}"


def build_server(folder: Path, query_limit_s: float = QUERY_LIMIT_S) -> MCPServer:
    """A server for the CSV files in `folder`. Raises NotADirectoryError when there is no such folder."""
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder; make it first")
    tables = Tables(folder, query_limit_s)
    server = MCPServer(
        "tables", instructions="Answer questions about CSV files with SQL.", version=__version__, log_level="WARNING"
    )
    for tool in (tables.list_tables, tables.describe_table, tables.query_table, tables.summarise_column):
        server.add_tool(tool, annotations=READS)
    return server


def main() -> None:
    """Serve FOLDER over stdio."""
    try:
        server = build_server(path_argument("tables", "FOLDER"))
    except NotADirectoryError as problem:
        sys.exit(str(problem))
    server.run()


if __name__ == "__main__":
    main()
