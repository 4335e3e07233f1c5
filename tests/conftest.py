"""What most tests need: a home of their own, a database in it, a fake encoder and clock, and the command line."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from fakes import Clock, Ran, Run, WordEncoder

from roster import app, cli, statuspage
from roster.catalogue import Catalogue
from roster.config import Home, open_home
from roster.database import open_database
from roster.registry import Registry
from roster.reindex import Writer

# The same examples every time and no deadline: a busy machine or a lucky draw must not fail somebody else's change.
hypothesis.settings.register_profile("roster", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("roster")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _nobodys_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test, and no process it starts, sees the home of whoever runs the tests."""
    monkeypatch.setenv("ROSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty home, the one ROSTER_HOME names."""
    return open_home(Home(tmp_path / "home"))


@pytest.fixture
def connect(home: Home) -> Iterator[Callable[[], sqlite3.Connection]]:
    """Open one more connection to this home's database, as another process would; all are closed in the end."""
    opened: list[sqlite3.Connection] = []

    def one_more() -> sqlite3.Connection:
        opened.append(open_database(home.database))
        return opened[-1]

    yield one_more
    for db in opened:
        db.close()


@pytest.fixture
def db(connect: Callable[[], sqlite3.Connection]) -> sqlite3.Connection:
    """The connection that writes."""
    return connect()


@pytest.fixture
def registry(db: sqlite3.Connection) -> Registry:
    return Registry(db)


@pytest.fixture
def writer(db: sqlite3.Connection) -> Writer:
    return Writer(db)


@pytest.fixture
def catalogue(connect: Callable[[], sqlite3.Connection]) -> Catalogue:
    """The cards of the servers `calendar` and `files`, read over a connection of its own; no encoder attached."""
    return Catalogue(connect(), ["calendar", "files"])


@pytest.fixture
def encoder() -> WordEncoder:
    return WordEncoder()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process, with an encoder that hashes words."""
    for module in (app, statuspage):
        monkeypatch.setattr(module, "open_encoder", lambda *_: WordEncoder())
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(cli, "_log_to_stderr", lambda verbose: None)

    def ran(*words: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["roster", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        code = ended.value.code
        return Ran(code if isinstance(code, int) else int(code is not None), out, err)

    return ran
