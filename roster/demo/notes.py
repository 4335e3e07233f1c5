"""A notebook server over one SQLite file, which several processes may share: `python -m roster.demo.notes FILE`."""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from roster import __version__
from roster.demo.serving import ADDS, READS, REPLACES, SETS, path_argument

__all__ = ["build_server", "main"]

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS notes (
        id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS tags (
        note INTEGER NOT NULL REFERENCES notes(id) ON DELETE CASCADE, tag TEXT NOT NULL, PRIMARY KEY (note, tag))""",
)

Text = Annotated[str, Field(description="What the note should say", min_length=1, max_length=100_000)]
NoteId = Annotated[int, Field(description="Number of the note, as search_notes gives it", ge=1, le=10**15)]
Tags = Annotated[list[str], Field(description="Short labels to file the note under, such as 'work'")]
SomeTags = Annotated[list[str] | None, Field(description="Short labels to file the note under; none when left out")]
Limit = Annotated[int, Field(description="Most notes to return", ge=1, le=500)]


@dataclass(frozen=True)
class Note:
    """One note."""

    id: int
    text: str
    tags: list[str]
    created: str
    updated: str


@dataclass(frozen=True, slots=True)
class Notes:
    """The tools: each method is one, and its docstring is what the client reads."""

    path: Path
    now: Callable[[], datetime]

    def add_note(self, text: Text, tags: SomeTags = None) -> Note:
        """Remember something by writing it down as a new note."""
        with self._writing() as db:
            time = self._time()
            added = db.execute("INSERT INTO notes (text, created, updated) VALUES (?, ?, ?)", (text, time, time))
            note_id = added.lastrowid or 0
            _add_tags(db, note_id, tags or [])
            return _note(db, note_id)

    def search_notes(
        self,
        words: Annotated[str, Field(description="Words that must all occur in the note's text or tags", min_length=1)],
        limit: Limit = 20,
    ) -> list[Note]:
        """Recall earlier notes by the words in them, newest first."""
        wanted = words.casefold().split()
        with self._reading() as db:
            notes = (_note(db, note_id) for (note_id,) in db.execute("SELECT id FROM notes ORDER BY id DESC"))
            found = []
            for note in notes:
                haystack = " ".join([note.text, *note.tags]).casefold()
                if all(word in haystack for word in wanted):
                    found.append(note)
                if len(found) == limit:
                    break
            return found

    def list_notes(
        self,
        tag: Annotated[str | None, Field(description="Only notes under this tag; all when left out")] = None,
        limit: Limit = 20,
    ) -> list[Note]:
        """List the newest notes, all or those under one tag."""
        every = "SELECT id FROM notes ORDER BY id DESC LIMIT ?"
        tagged = "SELECT note FROM tags WHERE tag = ? ORDER BY note DESC LIMIT ?"
        with self._reading() as db:
            found = db.execute(every, (limit,)) if tag is None else db.execute(tagged, (_plain(tag), limit))
            return [_note(db, note_id) for (note_id,) in found.fetchall()]

    def update_note(self, note_id: NoteId, text: Text) -> Note:
        """Replace the text of a note; its tags stay."""
        with self._writing() as db:
            db.execute("UPDATE notes SET text = ?, updated = ? WHERE id = ?", (text, self._time(), note_id))
            return _note(db, note_id)

    def delete_note(self, note_id: NoteId) -> Note:
        """Forget a note for good and return what it said."""
        with self._writing() as db:
            gone = _note(db, note_id)
            db.execute("DELETE FROM notes WHERE id = ?", (note_id,))
            return gone

    def tag_note(self, note_id: NoteId, tags: Tags) -> Note:
        """File a note under more tags; those it has stay."""
        with self._writing() as db:
            _note(db, note_id)
            _add_tags(db, note_id, tags)
            return _note(db, note_id)

    def _time(self) -> str:
        return self.now().isoformat(timespec="seconds")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=10, isolation_level=None)) as db:
                db.execute("PRAGMA foreign_keys = ON")
                yield db
        except sqlite3.Error as problem:
            raise ToolError(f"The notes in {self.path.name} cannot be used: {problem}") from problem

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Whole or not at all; a second process waits its turn at BEGIN IMMEDIATE."""
        with self._reading() as db:
            db.execute("BEGIN IMMEDIATE")
            yield db  # an error on the way closes the connection, which rolls back
            db.execute("COMMIT")


def _note(db: sqlite3.Connection, note_id: int) -> Note:
    row = db.execute("SELECT id, text, created, updated FROM notes WHERE id = ?", (note_id,)).fetchone()
    if row is None:
        raise ToolError(f"There is no note {note_id}; list_notes and search_notes give the numbers")
    tags = db.execute("SELECT tag FROM tags WHERE note = ? ORDER BY tag", (note_id,)).fetchall()
    return Note(row[0], row[1], [tag for (tag,) in tags], row[2], row[3])


def _add_tags(db: sqlite3.Connection, note_id: int, tags: list[str]) -> None:
    rows = [(note_id, plain) for tag in tags if (plain := _plain(tag))]
    db.executemany("INSERT OR IGNORE INTO tags (note, tag) VALUES (?, ?)", rows)


def _plain(tag: str) -> str:
    return tag.strip().lstrip("#").casefold()


def _utc_now() -> datetime:
    return datetime.now(UTC)


def build_server(path: Path, now: Callable[[], datetime] = _utc_now) -> MCPServer:
    """A server for the notes in the file at `path`, made for its owner alone when there is none.

    Raises OSError when the file cannot be made and sqlite3.DatabaseError when it holds something else.
    """
    if not path.exists():
        path.touch(mode=0o600)
    with closing(sqlite3.connect(path, timeout=10)) as db:
        for statement in SCHEMA:
            db.execute(statement)
    notes = Notes(path, now)
    server = MCPServer("notes", instructions="Keep and recall short notes.", version=__version__, log_level="WARNING")
    server.add_tool(notes.add_note, annotations=ADDS)
    server.add_tool(notes.search_notes, annotations=READS)
    server.add_tool(notes.list_notes, annotations=READS)
    server.add_tool(notes.update_note, annotations=REPLACES)
    server.add_tool(notes.delete_note, annotations=REPLACES)
    server.add_tool(notes.tag_note, annotations=SETS)
    return server


def main() -> None:
    """Serve FILE over stdio."""
    try:
        server = build_server(path_argument("notes", "FILE"))
    except (OSError, sqlite3.Error) as problem:
        sys.exit(f"The notes file cannot be used: {problem}")
    server.run()


if __name__ == "__main__":
    main()
