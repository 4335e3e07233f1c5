"""The table server answers SQL over CSV files and lets nobody change them."""

from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from roster.demo.tables import build_server

pytestmark = pytest.mark.anyio

ORDERS = """id,customer,amount,code,note
1,Ada,10.5,007,
2,Grace,20,010,"late, again"
3,Ada,4.5,,gift
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "orders.csv").write_text(ORDERS)
    (tmp_path / "customers.csv").write_text("\ufeffname;city\nAda;London\nGrace;Arlington\n", encoding="utf-8")
    (tmp_path / "readme.txt").write_text("not a table")
    return tmp_path


@pytest.fixture
def tables(folder: Path) -> MCPServer:
    return build_server(folder)


async def test_tables_are_listed_with_columns_and_types(tables: MCPServer, ask: Any) -> None:
    """Types come from the values; digits with a leading zero are a code and stay text."""
    listed = await ask(tables, "list_tables")

    assert [(sheet["table"], sheet["rows"], sheet["problem"]) for sheet in listed] == [
        ("customers", 2, None),
        ("orders", 3, None),
    ]
    assert listed[0]["columns"] == {"name": "TEXT", "city": "TEXT"}
    assert listed[1]["columns"] == {
        "id": "INTEGER",
        "customer": "TEXT",
        "amount": "REAL",
        "code": "TEXT",
        "note": "TEXT",
    }


async def test_a_table_is_described_by_its_first_rows(tables: MCPServer, ask: Any, refusal: Any) -> None:
    """Empty cells are null; the file's name works too; an unknown table gives the known ones."""
    described = await ask(tables, "describe_table", table="Orders.csv")

    assert described["rows"] == 3
    assert described["first_rows"][1] == [2, "Grace", 20.0, "010", "late, again"]
    assert described["first_rows"][2] == [3, "Ada", 4.5, None, "gift"]
    assert "customers, orders" in await refusal(tables, "describe_table", table="invoices")


async def test_a_select_joins_and_adds_up(tables: MCPServer, ask: Any) -> None:
    """The whole of SQLite's SELECT is there, common table expressions and functions too."""
    sql = """
        WITH totals AS (SELECT customer, sum(amount) AS total FROM orders GROUP BY customer)
        SELECT city, round(total, 1) AS total FROM totals JOIN customers ON name = customer ORDER BY total DESC
    """

    assert await ask(tables, "query_table", sql=sql) == {
        "columns": ["city", "total"],
        "rows": [["Arlington", 20.0], ["London", 15.0]],
        "more": False,
    }


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM orders",
        "UPDATE orders SET amount = 0",
        "INSERT INTO orders VALUES (9, 'Eve', 1, '', '') RETURNING *",
        "DROP TABLE orders",
        "CREATE TABLE mine (x)",
        "CREATE TEMP TABLE mine AS SELECT * FROM orders",
        "WITH x AS (SELECT 1) DELETE FROM orders",
        "EXPLAIN DELETE FROM orders",
        "ATTACH DATABASE 'other.db' AS other",
        "VACUUM INTO 'copy.db'",
        "PRAGMA writable_schema = ON",
        "SELECT * FROM pragma_database_list",
        "BEGIN",
        "SELECT load_extension('evil')",
        "SELECT 1; DELETE FROM orders",
        "-- nothing",
        "SELEC 1",
    ],
)
async def test_only_select_is_answered(tables: MCPServer, folder: Path, ask: Any, refusal: Any, sql: str) -> None:
    """Everything else is refused in words, and the rows stay as they were."""
    assert "crash" not in (reason := await refusal(tables, "query_table", sql=sql))
    assert reason.startswith("Error executing tool query_table: ")

    assert (await ask(tables, "query_table", sql="SELECT sum(amount) FROM orders"))["rows"] == [[35.0]]
    assert (folder / "orders.csv").read_text() == ORDERS
    assert sorted(path.name for path in folder.iterdir()) == ["customers.csv", "orders.csv", "readme.txt"]


async def test_writing_is_refused_by_name(tables: MCPServer, refusal: Any) -> None:
    """The reason says what is allowed instead."""
    assert "Only SELECT" in await refusal(tables, "query_table", sql="DELETE FROM orders")


async def test_answers_are_bounded(tables: MCPServer, folder: Path, ask: Any) -> None:
    """A cut list says so, by rows or by size; exactly as many as allowed is not cut."""
    assert (await ask(tables, "query_table", sql="SELECT id FROM orders", max_rows=3))["more"] is False
    assert await ask(tables, "query_table", sql="SELECT id FROM orders", max_rows=2) == {
        "columns": ["id"],
        "rows": [[1], [2]],
        "more": True,
    }
    (folder / "wide.csv").write_text("text\n" + ("x" * 90_000 + "\n") * 5)
    wide = await ask(tables, "query_table", sql="SELECT * FROM wide")
    assert (len(wide["rows"]), wide["more"]) == (2, True)


async def test_a_query_that_never_ends_is_stopped(folder: Path, refusal: Any) -> None:
    """A deadline ends it."""
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"

    assert "took longer" in await refusal(build_server(folder, query_limit_s=0.05), "query_table", sql=endless)


async def test_values_json_cannot_carry_become_text(tables: MCPServer, ask: Any, refusal: Any) -> None:
    """Infinity and raw bytes are written out; a giant value is refused."""
    assert (await ask(tables, "query_table", sql="SELECT 9e999, x'0aff', NULL"))["rows"] == [["inf", "0aff", None]]
    assert "too big" in await refusal(tables, "query_table", sql="SELECT zeroblob(100000000)")


async def test_a_changed_file_is_read_again(tables: MCPServer, folder: Path, ask: Any) -> None:
    """New rows and new files are there at the next question."""
    await ask(tables, "list_tables")
    (folder / "orders.csv").write_text(ORDERS + "4,Ada,1,,\n")
    (folder / "Extra.CSV").write_text("a\tb\n1\t2\n")

    assert (await ask(tables, "query_table", sql="SELECT count(*), sum(b) FROM orders, extra"))["rows"] == [[4, 8]]


async def test_a_column_is_summed_up(tables: MCPServer, ask: Any, refusal: Any) -> None:
    """Figures for numbers, counts for text, and the commonest values."""
    assert await ask(tables, "summarise_column", table="orders", column="Amount") == {
        "filled": 3,
        "empty": 0,
        "distinct": 3,
        "smallest": 4.5,
        "largest": 20.0,
        "mean": pytest.approx(35 / 3),
        "common": {"4.5": 1, "10.5": 1, "20.0": 1},
    }
    customer = await ask(tables, "summarise_column", table="orders", column="customer")
    assert (customer["mean"], customer["common"]) == (None, {"Ada": 2, "Grace": 1})
    assert (await ask(tables, "summarise_column", table="orders", column="note"))["empty"] == 1
    assert "it has id, customer" in await refusal(tables, "summarise_column", table="orders", column="price")


async def test_one_bad_file_does_not_hide_the_others(tables: MCPServer, folder: Path, ask: Any, refusal: Any) -> None:
    """It is listed with its problem, and asking for it tells the same."""
    (folder / "bad.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    (folder / "empty.csv").write_text("")

    problems = {sheet["table"]: sheet["problem"] for sheet in await ask(tables, "list_tables")}

    assert "utf-8" in problems["bad"]
    assert "no column names" in problems["empty"]
    assert problems["orders"] is None
    assert "bad.csv cannot be read" in await refusal(tables, "describe_table", table="bad")


async def test_ragged_rows_and_odd_headers_are_taken_as_they_come(tables: MCPServer, folder: Path, ask: Any) -> None:
    """Short rows are filled with nulls, long ones cut, and columns of one name told apart."""
    (folder / "odd name.csv").write_text('x,X,,"say ""hi"""\n1\n1,2,3,4,5\n\n')

    described = await ask(tables, "describe_table", table="odd name")

    assert list(described["columns"]) == ["x", "X_2", "column", 'say "hi"']
    assert described["first_rows"] == [[1, None, None, None], [1, 2, 3, 4]]
