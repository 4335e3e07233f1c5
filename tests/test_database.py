"""`roster.db`: from any older schema to this one, whole or not at all, for its owner only, with others beside it."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import python

from roster import database
from roster.config import Home
from roster.database import MIGRATIONS, atomic, generation, next_generation, open_database
from roster.errors import StoreError, StoreTooNewError

Connect = Callable[[], sqlite3.Connection]
HISTORY = ("outcomes", "suggestions")


def schema(db: sqlite3.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")]


def version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def test_a_new_database_is_complete_and_safe_to_share(db: sqlite3.Connection) -> None:
    """Every migration ran; WAL, a busy timeout, no implicit transactions, generation 0."""
    pragmas = {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "busy_timeout")}

    assert version(db) == len(MIGRATIONS)
    assert pragmas == {"journal_mode": "wal", "busy_timeout": 10_000}
    assert db.isolation_level is None
    assert generation(db) == 0


@pytest.mark.parametrize("done", range(len(MIGRATIONS) + 1))
def test_a_database_of_any_older_schema_is_brought_up_to_date(home: Home, db: sqlite3.Connection, done: int) -> None:
    """From every prefix of the migrations the same schema comes out, and what was stored stays."""
    path = home.folder / "old.db"
    old = sqlite3.connect(path, isolation_level=None)
    for statement in MIGRATIONS[:done]:
        old.execute(statement)
    if done >= 2:
        old.execute("UPDATE meta SET value = 7")
    old.execute(f"PRAGMA user_version = {done}")
    old.close()

    new = open_database(path)
    assert schema(new) == schema(db)
    assert version(new) == len(MIGRATIONS)
    assert generation(new) == (7 if done >= 2 else 0)
    new.close()


def test_outcomes_and_suggestions_keep_their_rows_when_their_tables_are_made_anew(home: Home) -> None:
    """Every column of every row, the links to needs, and the numbers, which go on from there."""
    before = next(n for n, statement in enumerate(MIGRATIONS) if "TABLE outcomes_2" in statement)
    old = sqlite3.connect(home.database, isolation_level=None)
    for statement in MIGRATIONS[:before]:
        old.execute(statement)
    old.execute(f"PRAGMA user_version = {before}")
    old.execute("INSERT INTO needs VALUES (5, 1.0, 'e', x'00', x'')")
    columns = {table: [row[1] for row in old.execute(f"PRAGMA table_info({table})")] for table in HISTORY}
    rows: dict[str, list[tuple[object, ...]]] = {
        "outcomes": [(7, 1.5, "a", "p", "success", "f", 1, 0, 1, 2.5, 1, 5, 0, "r", "tool", 0)],
        "suggestions": [(9, 1.5, "a", "b", None, 2.5), (11, 1.5, "a", "c", 1, None)],
    }
    for table, stored in rows.items():
        old.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(stored[0]))})", stored)
    old.close()

    db = open_database(home.database)
    assert {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in rows} == rows
    assert {table: [row[1] for row in db.execute(f"PRAGMA table_info({table})")] for table in HISTORY} == columns
    for table, stored in rows.items():
        db.execute(f"DELETE FROM {table}")
        values = ("?, " * len(stored[0])).removesuffix(", ")
        db.execute(f"INSERT INTO {table} VALUES ({values})", (None, *stored[0][1:]))
    assert [db.execute(f"SELECT number FROM {table}").fetchall() for table in rows] == [[(8,)], [(12,)]]
    db.execute("DELETE FROM needs")
    assert db.execute("SELECT need FROM outcomes").fetchone() == (None,)
    db.close()


def test_a_migration_that_fails_leaves_the_database_as_it_was(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole or not at all: after the fault is mended, the next start does it all."""
    known = database.MIGRATIONS
    monkeypatch.setattr(database, "MIGRATIONS", (*known, "CREATE TABLE more (x)", "CREATE TABLE more (x)"))
    with pytest.raises(StoreError, match="already exists"):
        open_database(home.database)
    left = sqlite3.connect(home.database)
    assert (version(left), schema(left)) == (0, [])
    left.close()

    monkeypatch.setattr(database, "MIGRATIONS", known)
    db = open_database(home.database)
    assert version(db) == len(known)
    db.close()


def test_a_database_of_a_newer_roster_is_left_alone(home: Home, db: sqlite3.Connection) -> None:
    """The error names both schemas and the remedy, and nothing is written."""
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 3}")

    with pytest.raises(StoreTooNewError, match=rf"schema {len(MIGRATIONS) + 3}.*knows {len(MIGRATIONS)}: upgrade"):
        open_database(home.database)
    assert version(db) == len(MIGRATIONS) + 3


@pytest.mark.parametrize("content", [b"this is no database " * 100, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_file_that_is_no_database_is_named_with_the_remedy(home: Home, content: bytes) -> None:
    """It is not overwritten: it may be somebody's."""
    home.database.write_bytes(content)

    with pytest.raises(StoreError, match="move it away and run `roster reindex`") as raised:
        open_database(home.database)
    assert str(home.database) in str(raised.value)
    assert home.database.read_bytes() == content


def test_a_database_that_is_only_busy_is_not_called_broken(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moving it away would lose everything; the remedy is to wait."""
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 20)
    other = sqlite3.connect(home.database, isolation_level=None)
    other.execute("PRAGMA journal_mode = WAL")
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreError, match=r"(?i)^(?!.*move it away).*(busy|locked|in use)"):
            open_database(home.database)
    finally:
        other.close()


@pytest.mark.parametrize("path", ["none/roster.db", "file/roster.db", "folder"])
def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path, path: str) -> None:
    """A missing folder, a file or a folder in the way: what it must be, in one line."""
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()

    with pytest.raises(StoreError, match="must be a writable file in a writable folder") as raised:
        open_database(tmp_path / path)
    assert str(tmp_path / path) in str(raised.value)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission_is_named(tmp_path: Path) -> None:
    """The same words when it is the permissions."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)

    with pytest.raises(StoreError, match="writable folder"):
        open_database(folder / "roster.db")


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
def test_no_file_of_the_database_can_be_read_by_others(home: Home, db: sqlite3.Connection) -> None:
    """Mode 0600 whatever the umask, also for the files WAL adds."""
    with atomic(db):
        next_generation(db)
    before = os.umask(0)
    try:
        open_database(home.folder / "open.db").close()
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.folder.iterdir()}

    assert {"roster.db", "roster.db-wal", "open.db"} <= modes.keys()
    assert set(modes.values()) == {0o600}


def test_a_transaction_is_whole_or_nothing(db: sqlite3.Connection, connect: Connect) -> None:
    """What an exception cuts short is rolled back and raised on; the connection can go on."""
    other = connect()

    def cut_short() -> None:
        with atomic(db):
            next_generation(db)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cut_short()
    assert generation(db) == 0

    with atomic(db):
        assert next_generation(db) == 1
        assert generation(other) == 0  # not seen before it is committed
    assert generation(other) == 1


def test_two_writers_take_turns(db: sqlite3.Connection, connect: Connect) -> None:
    """The write lock is taken at the start, so that no transaction fails half way through."""
    other = connect()
    other.execute("PRAGMA busy_timeout = 0")

    with atomic(db):
        with pytest.raises(sqlite3.OperationalError, match="locked"), atomic(other):
            pass
        assert generation(other) == 0  # reading goes on
    with atomic(other):
        assert next_generation(other) == 1


def test_a_process_killed_in_a_transaction_leaves_nothing_of_it(home: Home, db: sqlite3.Connection) -> None:
    """A kill is a rollback, and the lock does not outlive its holder."""
    child = python(
        """
import sys
from roster.config import find_home
from roster.database import atomic, next_generation, open_database
db = open_database(find_home().database)
with atomic(db):
    next_generation(db)
    print("inside", flush=True)
    sys.stdin.read()
"""
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "inside\n"
        child.kill()

    with atomic(db):
        assert next_generation(db) == 1
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_processes_that_open_a_new_home_together_all_can(home: Home) -> None:
    """Whoever comes first makes it, the others find it made; none fails."""
    code = """
import sys
from roster.config import find_home
from roster.database import MIGRATIONS, atomic, next_generation, open_database
print("ready", flush=True)
sys.stdin.readline()
for number in range(60):
    db = open_database(find_home().folder / f"{number}.db")
    with atomic(db):
        next_generation(db)
    db.close()
print("done")
"""
    children = [python(code) for _ in range(4)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    said = [child.communicate(timeout=60) for child in children]

    assert said == [("done\n", "")] * 4
    for number in range(60):
        db = open_database(home.folder / f"{number}.db")
        assert (version(db), generation(db)) == (len(MIGRATIONS), len(children))
        db.close()


def test_an_error_that_has_already_rolled_back_is_the_one_that_is_raised(db: sqlite3.Connection) -> None:
    """A full disk ends the transaction by itself; the caller hears of the disk, and the next transaction begins."""

    def fill_the_disk() -> None:
        db.execute("UPDATE meta SET value = 7")
        db.execute("ROLLBACK")
        raise sqlite3.OperationalError("database or disk is full")

    with pytest.raises(sqlite3.OperationalError, match="disk is full"), atomic(db):
        fill_the_disk()

    with atomic(db):
        assert generation(db) == 0


def test_a_commit_that_fails_leaves_no_transaction_behind(db: sqlite3.Connection) -> None:
    """What could not be committed is rolled back, and the next transaction begins."""
    db.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
    db.execute("CREATE TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(sqlite3.IntegrityError), atomic(db):
        db.execute("INSERT INTO child VALUES (1)")

    assert not db.in_transaction
    with atomic(db):
        assert db.execute("SELECT count(*) FROM child").fetchone() == (0,)
