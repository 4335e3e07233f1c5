"""`roster.db`: opened, migrated, written to in short transactions. SQLite is the truth; the index is a cache."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from roster.errors import StoreError, StoreTooNewError

__all__ = [
    "MIGRATIONS",
    "atomic",
    "generation",
    "is_busy",
    "next_generation",
    "open_database",
    "patience",
]

BUSY_TIMEOUT_MS = 10_000

# Appended to, never edited: a home of any older schema runs the rest of them.
MIGRATIONS = (
    # Every change that a draft can see gives its rows the next generation, so that each process can ask for
    # "what changed since I looked" and pay for that alone.
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "INSERT INTO meta VALUES ('generation', 0)",
    """CREATE TABLE cards (
        number INTEGER PRIMARY KEY,         -- the FAISS id and the full-text rowid; never used twice
        id TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL,
        server TEXT NOT NULL,
        name TEXT NOT NULL,
        position INTEGER NOT NULL,          -- place in the backend's own listing
        raw TEXT NOT NULL,                  -- the listing row, verbatim
        fingerprint TEXT NOT NULL,
        formula INTEGER NOT NULL,
        text_hash TEXT NOT NULL,
        first_seen REAL NOT NULL,           -- seconds since the epoch, as every time in this file
        last_seen REAL NOT NULL,
        sightings INTEGER NOT NULL,
        removed_at REAL,                    -- a tombstone: the row stays, so that coming back changed is drift
        quarantined_at REAL,
        generation INTEGER NOT NULL,
        UNIQUE (kind, server, name)
    )""",
    "CREATE INDEX cards_by_generation ON cards (generation)",
    "CREATE INDEX cards_by_text ON cards (text_hash)",
    """CREATE TABLE contracts (
        card TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        formula INTEGER NOT NULL,
        raw TEXT NOT NULL,
        first_seen REAL NOT NULL,
        last_seen REAL NOT NULL,
        PRIMARY KEY (card, fingerprint)
    ) WITHOUT ROWID""",
    """CREATE TABLE drift (
        number INTEGER PRIMARY KEY,
        card TEXT NOT NULL,
        at REAL NOT NULL,
        old TEXT NOT NULL,
        new TEXT NOT NULL,
        cleared_at REAL,
        cleared_by TEXT
    )""",
    """CREATE TABLE vectors (
        encoder TEXT NOT NULL,
        text_hash TEXT NOT NULL,
        vector BLOB NOT NULL,               -- float32, little-endian, unit length
        PRIMARY KEY (encoder, text_hash)
    ) WITHOUT ROWID""",
    """CREATE TABLE servers (
        name TEXT PRIMARY KEY,
        state TEXT NOT NULL,
        tools INTEGER,
        rejected TEXT,                      -- names of listing rows that could not be used, as JSON
        protocol TEXT,
        version TEXT,
        connect_ms REAL,
        listed_at REAL,
        error_kind TEXT,
        error_at REAL,
        reason TEXT                         -- our own words about the error, never the server's
    ) WITHOUT ROWID""",
    """CREATE TABLE outcomes (
        number INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        card TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        outcome TEXT NOT NULL,
        failure TEXT,
        retryable INTEGER,
        partial INTEGER,
        person INTEGER,
        latency_ms REAL NOT NULL,
        drafted INTEGER NOT NULL            -- 1 when the call named a draft this card was in
    )""",
    "CREATE INDEX outcomes_by_card ON outcomes (card, at)",
    "CREATE VIRTUAL TABLE words USING fts5(name, description, parameters, server, tokenize = 'unicode61')",
    # Learning keeps the vector of a need that led to a call, and what was in the running for it; never its words.
    """CREATE TABLE needs (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL,
        encoder TEXT NOT NULL,
        vector BLOB NOT NULL,               -- float16, little-endian, unit length
        running BLOB NOT NULL               -- (card number uint32, score float32) pairs, little-endian, best first
    )""",
    "ALTER TABLE outcomes ADD COLUMN need INTEGER REFERENCES needs (number) ON DELETE SET NULL",
    "ALTER TABLE outcomes ADD COLUMN declared INTEGER",
    "ALTER TABLE outcomes ADD COLUMN rule TEXT",  # what decided the class, by its name
    "ALTER TABLE outcomes ADD COLUMN fault TEXT",  # caller, tool or backend
    "ALTER TABLE outcomes ADD COLUMN counted INTEGER NOT NULL DEFAULT 1",  # 0: not held against the tool
    "CREATE INDEX outcomes_by_need ON outcomes (need)",
    """CREATE TABLE suggestions (
        number INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        failed TEXT NOT NULL,
        suggested TEXT NOT NULL,
        compatible INTEGER,                 -- NULL: its schema cannot be checked
        taken_at REAL
    )""",
    """CREATE TABLE learning (
        encoder TEXT PRIMARY KEY,
        near REAL NOT NULL,                 -- what evidence counts, as this home's own past needs chose it
        share REAL NOT NULL,
        slow INTEGER NOT NULL,
        gain REAL NOT NULL,
        outcomes INTEGER NOT NULL,
        at REAL NOT NULL
    ) WITHOUT ROWID""",
    # The two tables once more, with numbers that are never used again: who remembers one of them must not find
    # another row behind it after the history was cleared.
    """CREATE TABLE outcomes_2 (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL,
        card TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        outcome TEXT NOT NULL,
        failure TEXT,
        retryable INTEGER,
        partial INTEGER,
        person INTEGER,
        latency_ms REAL NOT NULL,
        drafted INTEGER NOT NULL,           -- 1 when the call named a draft this card was in
        need INTEGER REFERENCES needs (number) ON DELETE SET NULL,
        declared INTEGER,
        rule TEXT,                          -- what decided the class, by its name
        fault TEXT,                         -- caller, tool or backend
        counted INTEGER NOT NULL DEFAULT 1  -- 0: not held against the tool
    )""",
    "INSERT INTO outcomes_2 SELECT number, at, card, fingerprint, outcome, failure, retryable, partial, person, "
    "latency_ms, drafted, need, declared, rule, fault, counted FROM outcomes",
    "DROP TABLE outcomes",
    "ALTER TABLE outcomes_2 RENAME TO outcomes",
    "CREATE INDEX outcomes_by_card ON outcomes (card, at, outcome, counted)",  # all that tallies read
    "CREATE INDEX outcomes_by_need ON outcomes (need)",
    "CREATE INDEX outcomes_by_age ON outcomes (at)",
    """CREATE TABLE suggestions_2 (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL,
        failed TEXT NOT NULL,
        suggested TEXT NOT NULL,
        compatible INTEGER,                 -- NULL: its schema cannot be checked
        taken_at REAL
    )""",
    "INSERT INTO suggestions_2 SELECT number, at, failed, suggested, compatible, taken_at FROM suggestions",
    "DROP TABLE suggestions",
    "ALTER TABLE suggestions_2 RENAME TO suggestions",
    "CREATE INDEX suggestions_by_age ON suggestions (at)",
    "ALTER TABLE learning ADD COLUMN adapter REAL NOT NULL DEFAULT 0",
    # What holds a card (`quarantined_at` is when), and how long its definition was seen unchanged since.
    "ALTER TABLE cards ADD COLUMN held_reason TEXT",
    "ALTER TABLE cards ADD COLUMN stable_s REAL",
    "ALTER TABLE cards ADD COLUMN stable_at REAL",  # the last sighting that counted, by the time of day ...
    "ALTER TABLE cards ADD COLUMN stable_uptime REAL",  # ... and by the steady clock of one boot
    "ALTER TABLE cards ADD COLUMN stable_run TEXT",
    "UPDATE cards SET held_reason = 'drift', stable_s = max(0.0, last_seen - quarantined_at), stable_at = last_seen "
    "WHERE quarantined_at IS NOT NULL",
    """CREATE TABLE accepted (
        card TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (card, fingerprint)
    ) WITHOUT ROWID""",
    "INSERT OR IGNORE INTO accepted SELECT card, new, cleared_at FROM drift WHERE cleared_by = 'person'",
    """CREATE TABLE batches (                 -- what happened to a server as a whole
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL,
        server TEXT NOT NULL,
        cards INTEGER NOT NULL,             -- that changed
        of INTEGER NOT NULL,                -- that there were
        old_version TEXT,
        new_version TEXT,
        was TEXT                            -- the name it had, when that is what changed
    )""",
    "ALTER TABLE drift ADD COLUMN kind TEXT NOT NULL DEFAULT 'changed'",
    "ALTER TABLE drift ADD COLUMN severity TEXT",  # NULL: of a time before it was kept
    "ALTER TABLE drift ADD COLUMN was TEXT",  # the card whose definition the old one is, if another
    "ALTER TABLE drift ADD COLUMN batch INTEGER REFERENCES batches (number)",
    "CREATE INDEX drift_by_card ON drift (card)",
    "CREATE INDEX drift_by_batch ON drift (batch)",
    """CREATE TABLE listings (                -- what program a server's last listing came from
        server TEXT PRIMARY KEY,
        version TEXT NOT NULL,
        at REAL NOT NULL
    ) WITHOUT ROWID""",
    "INSERT INTO listings SELECT name, version, listed_at FROM servers "
    "WHERE version IS NOT NULL AND listed_at IS NOT NULL",
    """CREATE TABLE findings (                -- what a review found; the texts themselves are in the cards
        -- The key's columns come first: older SQLites' integrity_check takes the others for NULL otherwise.
        card TEXT NOT NULL,
        rule TEXT NOT NULL,
        place TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        severity TEXT NOT NULL,
        PRIMARY KEY (card, rule, place)
    ) WITHOUT ROWID""",
    """CREATE TABLE tokens (
        name TEXT PRIMARY KEY,
        hash TEXT NOT NULL UNIQUE,          -- SHA-256 (hex) of a bearer token; the token itself is nowhere
        servers TEXT,                       -- the only servers it sees, as JSON; NULL: all
        created_at REAL NOT NULL
    ) WITHOUT ROWID""",
    "ALTER TABLE servers ADD COLUMN offers TEXT",  # what it has besides tools: words of ours, space between
)


@contextmanager
def atomic(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """A transaction that takes the write lock at once: whole, or not at all."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        # After a full disk SQLite has often rolled back by itself, and says so if it is asked again.
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextmanager
def patience(db: sqlite3.Connection, wait_ms: int) -> Iterator[None]:
    """For as long as the context lasts, statements wait this long for another process's lock."""
    (before,) = db.execute("PRAGMA busy_timeout").fetchone()
    db.execute(f"PRAGMA busy_timeout = {wait_ms:d}")
    try:
        yield
    finally:
        db.execute(f"PRAGMA busy_timeout = {before:d}")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process, or another connection of this one, holds the lock."""
    # Extended codes keep the plain one in their lowest byte; an error of Python's own has none.
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def migrate(db: sqlite3.Connection) -> None:
    """Bring the schema up to date, whole or not at all. Raises StoreTooNewError."""
    (done,) = db.execute("PRAGMA user_version").fetchone()
    if done == len(MIGRATIONS):
        return
    with atomic(db):
        # Read again inside the lock: of two processes that start together, the second finds it done.
        (done,) = db.execute("PRAGMA user_version").fetchone()
        if done > len(MIGRATIONS):
            raise StoreTooNewError(done, len(MIGRATIONS))
        for statement in MIGRATIONS[done:]:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _make_private(path: Path) -> None:
    """Make the file before SQLite does, so that there is no moment with a wider mode; the WAL files inherit it.

    Only where there is none: closing *any* descriptor of a file drops every POSIX lock this process holds on it, also
    those that keep other processes from deleting the log under a connection that is already open here.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _use_wal(db: sqlite3.Connection) -> None:
    """Switch to the write-ahead log. SQLite does not wait for this one by itself, so processes that start together
    on a new home would fail each other."""
    limit = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > limit:
                raise
            time.sleep(0.02)
        else:
            return


def open_database(path: Path) -> sqlite3.Connection:
    """The database at `path`, created for its owner only and brought up to date.

    The connection may be used from any thread, one at a time. Raises StoreError naming the file and the remedy.
    """
    try:
        _make_private(path)
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_MS / 1000)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(
            f"{path} cannot be opened ({error}): it must be a writable file in a writable folder"
        ) from None
    try:
        _use_wal(db)
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA foreign_keys = ON")
        migrate(db)
    except sqlite3.DatabaseError as error:
        db.close()
        if is_busy(error):
            raise StoreError(f"{path} is in use by another process that does not let go: try again") from None
        if "fts5" in str(error):
            raise StoreError("this Python's SQLite has no FTS5: install a Python built with it") from None
        raise StoreError(
            f"{path} cannot be used ({error}): move it away and run `roster reindex` to start anew"
        ) from None
    except BaseException:
        db.close()
        raise
    return db


def generation(db: sqlite3.Connection) -> int:
    """The number of the last change a draft can see."""
    return int(db.execute("SELECT value FROM meta WHERE key = 'generation'").fetchone()[0])


def next_generation(db: sqlite3.Connection) -> int:
    """Start a change that drafts can see; call it inside `atomic`."""
    (value,) = db.execute("UPDATE meta SET value = value + 1 WHERE key = 'generation' RETURNING value").fetchone()
    return int(value)
