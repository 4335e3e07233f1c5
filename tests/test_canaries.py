"""What is said is neither stored nor logged: words sent through every path, and looked for everywhere afterwards.

Each kind of word is one of its own, so that a leak tells which path it took. Two places are not searched for all of
them. `roster.json` is the user's own. `logs/` holds what servers write on stderr, in their own words: a server that
prints its arguments there has them there. Roster adds nothing to those files, and no server ever hears a need.
"""

from __future__ import annotations

import http.server
import json
import logging
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes import WordEncoder, tool
from scripted_backend import SECRET_ENVIRONMENT, Scripted, running
from test_serving import DEADLINE_S, REPOSITORY, Serving

from roster import app
from roster.config import Home
from roster.database import open_database
from roster.draft import Drafted
from roster.history import History, NeedRow

NEED, KEY, VALUE, META, RESULT, ERROR, DATA, SECRET, LITERAL, ID = WORDS = [
    f"zq{kind}7x1"
    for kind in ("need", "key", "value", "meta", "result", "error", "data", "secret", "literal", "identifier")
]
"""Plain enough that no tokeniser, stemmer or folding makes another word of them."""

ARGUMENTS = {KEY: VALUE, "words": VALUE}
TOOLS: dict[str, dict[str, Any]] = {
    "echoes": {},
    "fails": {
        "do": "result",
        "result": {
            "isError": True,
            "content": [{"type": "text", "text": f"401 timeout {ERROR}"}],
            "structuredContent": {"failure": {"kind": ERROR, "message": ERROR}, RESULT: RESULT},
            "_meta": {"failure": {"kind": ERROR, "message": ERROR}},
        },
    },
    "says": {
        "do": "result",
        "result": {"content": [{"type": "text", "text": RESULT}], "structuredContent": {"a": RESULT}},
    },
    "breaks": {"do": "error", "error": {"code": -32603, "message": ERROR, "data": {DATA: DATA}}},
    "refuses": {"do": "error", "error": {"code": -32602, "message": ERROR, "data": DATA}},
    "lies": {"do": "result", "result": {"content": RESULT}},
    "lacks": {"do": "result", "result": {"content": [{"type": RESULT, RESULT: RESULT}]}},
    "cut": {"do": "broken"},
    "babbles": {"do": "babble"},
    "grumbles": {"do": "grumble"},
    "hangs": {"do": "hang"},
    "exits": {"do": "exit"},
    "crashes": {"do": "crash"},
}
SPOKEN = f"cannot start: {SECRET}\n"


def files_of(home: Home) -> dict[str, bytes]:
    """Every file of a home, by its place in it, with its place in front: a name can tell as much."""
    found = {}
    for folder, _, names in os.walk(home.folder):
        for name in names:
            path = Path(folder) / name
            place = path.relative_to(home.folder).as_posix()
            found[place] = place.encode() + b"\n" + path.read_bytes()
    return found


def leaks(home: Home, *said: str, words: Sequence[str] = WORDS) -> list[str]:
    """Where these words are: in the bytes of any file of Roster's own, in any row of the database, in what was said."""
    places: dict[str, bytes] = {
        place: content
        for place, content in files_of(home).items()
        if place != "roster.json" and not place.startswith("logs/")
    }
    with closing(sqlite3.connect(home.database)) as db:
        # A long value is torn apart by the pages of the file, so rows are read as well.
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in db.execute(f'SELECT * FROM "{table}"'):
                places[f"{table}: {row[:3]!r}"] = b"\n".join(
                    v if isinstance(v, bytes) else str(v).encode() for v in row
                )
    places |= {f"what was said ({number})": text.encode() for number, text in enumerate(said)}
    return [
        f"{word} in {place}"
        for place, content in places.items()
        for word in words
        if any(sign in content.lower() for sign in (word.encode(), word.encode("utf-16-le")))
    ]


def test_a_leak_would_be_found(home: Home, db: sqlite3.Connection) -> None:
    """In a row, also torn apart; in the database's log; in any file or its name; in either case of the letters."""
    assert leaks(home, "nothing") == []
    db.execute("INSERT INTO drift (card, at, old, new) VALUES (?, 0, ?, '')", ("x", "x" * 5000 + NEED.upper()))
    (home.folder / "index").mkdir()
    (home.folder / "index" / f"a.{VALUE}").write_text("")
    (home.folder / "b.lock").write_text(SECRET, encoding="utf-16-le")
    (home.folder / "roster.json").write_text(LITERAL)

    found = leaks(home, f"… {ERROR} …")
    for sign in (f"{NEED} in drift: ", f"{NEED} in roster.db-wal", f"{VALUE} in index/a", f"{SECRET} in b.lock"):
        assert [leak for leak in found if leak.startswith(sign)], sign
    assert f"{ERROR} in what was said (0)" in found
    assert [leak for leak in found if LITERAL in leak] == []


# ---------------------------------------------------------------------------------------- a serving process


class _Refusing(http.server.BaseHTTPRequestHandler):
    """Answers every request with what came in it, as servers that explain themselves do."""

    def do_POST(self) -> None:
        told = f"401: {self.path} {self.headers['Authorization']}".encode()
        self.send_response(401, told.decode())
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(told)

    do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def refusing() -> Iterator[str]:
    """The address of a server that refuses and repeats what it was sent."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def box(home: Home, tmp_path: Path) -> Iterator[Scripted]:
    """A server for every way a call can end, beside others that hold secrets and fail with them in their mouths."""
    box = Scripted(tmp_path, "box", rows=[tool(name, f"It {name}") for name in TOOLS], tools=TOOLS)
    env = {SECRET_ENVIRONMENT: "${SECRET}", "LITERAL": LITERAL}
    hidden: dict[str, Any] = {"env": env}
    (project := tmp_path / "project").mkdir()
    with refusing() as address:
        headers = {"Authorization": "Bearer ${SECRET}", "X-Key": LITERAL}
        entries = {
            "box": box.entry("--token=${SECRET}", LITERAL, **hidden, call_timeout_s=1),
            "files": {
                "command": sys.executable,
                "args": ["-m", "roster.demo.files", str(project)],
                **hidden,
            },
            "dies": Scripted(tmp_path, "dies", start="exit").entry("${SECRET}", **hidden),
            "shut": Scripted(tmp_path, "shut", start="refuse").entry("${SECRET}", **hidden),
            "remote": {"url": f"{address}/mcp?key=${{SECRET}}&more={LITERAL}", "headers": headers},
            "gone": {"url": "http://127.0.0.1:9/${SECRET}", "type": "sse", "headers": headers},
            "lost": {"command": "/lost/${SECRET}", "args": [LITERAL], **hidden},
            "wrong": {"args": [LITERAL], "env": {LITERAL: LITERAL}, "headers": LITERAL},
        }
        home.config.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
        yield box


def served(home: Home, *options: str, **more: Any) -> Serving:
    roster = Serving(home, *options, "--verbose", SECRET=SECRET, **more)
    roster.handshake()
    return roster


def soon(condition: Any) -> Any:
    end = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)
    return found


def counted(home: Home, table: str) -> int:
    with closing(open_database(home.database)) as db:
        return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def heard(answers: Sequence[Any]) -> set[str]:
    """Which of the words a client was answered with: what passes through must do so, or nothing is shown here."""
    text = json.dumps(answers)
    return {word for word in WORDS if word in text}


def test_no_word_of_a_five_mode_session_is_left_behind(home: Home, box: Scripted) -> None:
    """Drafts, calls that end in every way, and requests that are refused, while the needs behind them are learned."""
    roster = served(home, "--five")
    meta = {"org.example/x": META}
    soon(lambda: "box__echoes" in roster.drafted(f"{NEED} something that echoes"))
    soon(lambda: home.index.exists() and list(home.index.iterdir()))
    draft = roster.use("draft", need=f"{NEED} something that echoes", k=10)["structuredContent"]
    answers: list[Any] = []

    def call(**arguments: Any) -> None:
        answers.append(roster.answer("tools/call", name="call", arguments=arguments, _meta=meta))

    for name in TOOLS:
        call(tool=f"box__{name}", args=ARGUMENTS, draft_id=draft["draft_id"])
    call(tool="files__read_text", args={"path": f"{VALUE}.txt"}, draft_id=draft["draft_id"])
    call(tool="files__read_text", args={KEY: VALUE})
    recorded = counted(home, "outcomes")
    call(tool=ID, args=ARGUMENTS)
    call(tool={ID: ID})
    call(tool="box__echoes", args=VALUE)
    call(tool="box__echoes", args=[VALUE])
    call(tool="box__echoes", args=ARGUMENTS, draft_id=ID)
    call(tool="box__echoes", **{KEY: VALUE})
    call(**{KEY: VALUE})
    for wrong in ({"need": NEED, "k": VALUE}, {"need": {NEED: NEED}}, {"need": NEED * 5000}, {"need": "", KEY: VALUE}):
        answers.append(roster.answer("tools/call", name="draft", arguments=wrong))
    answers.append(roster.answer("tools/call", name=ID, arguments=ARGUMENTS))
    answers.append(roster.answer(ID, **ARGUMENTS))
    while_serving = leaks(home)
    assert roster.ended() == 0

    assert counted(home, "outcomes") > recorded
    assert counted(home, "needs") == 1
    assert heard(answers) >= {VALUE, KEY, RESULT, ERROR, ID}
    assert while_serving == []
    assert leaks(home, "".join(roster.errors)) == []
    assert [place for place, content in files_of(home).items() if NEED.encode() in content.lower()] == []


def test_no_word_of_a_transparent_session_is_left_behind(home: Home, box: Scripted) -> None:
    """The same without drafts: calls by listed name, and names nobody has."""
    roster = served(home, "--transparent")
    soon(lambda: "box__echoes" in [row["name"] for row in roster.ask("tools/list")["tools"]])
    answers = [
        roster.answer("tools/call", name=name, arguments=ARGUMENTS, _meta={"org.example/x": META})
        for name in (*(f"box__{name}" for name in TOOLS), "files__read_text", ID)
    ]
    assert roster.ended() == 0

    assert counted(home, "outcomes") >= len(TOOLS) + 1
    assert heard(answers) >= {VALUE, KEY, RESULT, ERROR, DATA}
    assert leaks(home, "".join(roster.errors)) == []


def test_a_log_holds_what_its_server_wrote_and_nothing_of_ours(home: Home, box: Scripted) -> None:
    """To the byte; for its owner alone. What a server prints of its arguments or secrets it prints itself."""
    roster = served(home, "--five")
    soon(lambda: "box__echoes" in roster.drafted(f"{NEED} something that echoes"))
    soon(lambda: (home.logs / "dies.log").exists() and (home.logs / "dies.log").read_text())
    for name in ("echoes", "fails", "breaks", "grumbles", "crashes"):
        roster.use("call", tool=f"box__{name}", args=ARGUMENTS)
    assert roster.ended() == 0

    written = {path.name: path.read_text(encoding="utf-8") for path in home.logs.iterdir()}
    assert written["box.log"] == f"{VALUE}\n{VALUE}\n"
    assert set(written["dies.log"].splitlines(keepends=True)) == {SPOKEN}
    assert written["shut.log"] == ""
    assert written.keys() <= {"box.log", "dies.log", "shut.log", "files.log", "lost.log"}
    if os.name == "posix":
        assert {path.stat().st_mode & 0o077 for path in (home.logs, *home.logs.iterdir())} == {0}


FAULTS = """
import sys
from roster import app, cli
from roster.backends import Backend

def draft(catalogue, need, *more):
    raise ValueError(f"no way to draft for {need}")

async def call(self, tool, arguments, **more):
    raise LookupError(f"{tool} with {arguments}")

if "{draft}" in sys.argv:
    sys.argv.remove("{draft}")
    app.draft = draft
Backend.call = call
cli.main()
"""


@pytest.mark.parametrize("mode", ["--five", "--transparent"])
def test_a_fault_of_our_own_is_not_told_with_the_words_it_was_about(home: Home, box: Scripted, mode: str) -> None:
    """An exception nobody expected, with the need or the arguments in its message: the client hears of it, stderr and
    the home do not, and serving goes on."""
    faulty = [] if mode == "--transparent" else ["{draft}"]
    roster = served(home, mode, *faulty, program=("-c", FAULTS))
    soon(lambda: counted(home, "cards"))
    answers = []
    for _ in range(2):
        answers.append(roster.answer("tools/call", name="draft", arguments={"need": f"{NEED} echoes"}))
        answers.append(roster.answer("tools/call", name="call", arguments={"tool": "box__echoes", "args": ARGUMENTS}))
        answers.append(roster.answer("tools/call", name="box__echoes", arguments=ARGUMENTS))
    assert roster.ended() == 0

    assert len(answers) == 6
    assert leaks(home, "".join(roster.errors)) == []


def test_the_commands_leave_no_word_behind(home: Home, box: Scripted) -> None:
    """`reindex`, `draft` with and without `--explain`, `status` and the records: the need is on stdout, where it was
    asked for, and nowhere else; a secret is nowhere at all."""
    environ = {**os.environ, "ROSTER_HOME": str(home.folder), "SECRET": SECRET}

    def roster(*words: str) -> tuple[str, str]:
        command = [sys.executable, "-W", "error", "-m", "roster", *words]
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=REPOSITORY, env=environ, timeout=DEADLINE_S
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout, ran.stderr

    need = f"{NEED} something that echoes"
    out, said = zip(
        roster("reindex"),
        roster("draft", need, "--explain"),
        roster("draft", need, "--explain", "--json"),
        roster("status"),
        roster("status", "--json"),
        roster("ratings"),
        roster("scorecard", "box__echoes"),
        roster("history"),
        strict=True,
    )
    assert NEED in out[1]
    assert NEED in out[2]
    assert leaks(home, *said, *out[:1], *out[3:]) == []
    assert leaks(home, *out, words=[word for word in WORDS if word != NEED]) == []


# ------------------------------------------------------------------------------------ a database in trouble


@pytest.mark.anyio
@pytest.mark.parametrize("trouble", ["locked", "full", "gone"])
async def test_a_warning_about_the_database_has_no_words_in_it(
    home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """Held by another process, out of space, or without its tables: the caller has its answer, and the log says which
    card's outcome was lost, and not a word of it."""
    caplog.set_level(logging.DEBUG, "roster")
    monkeypatch.setattr(app, "open_encoder", lambda *_: WordEncoder())
    box = Scripted(tmp_path, "box", rows=[tool(name) for name in TOOLS], tools=TOOLS)
    async with running(home, {"box": box.entry()}) as roster:
        db = roster.writer.db
        need = NeedRow("words", WordEncoder().encode_needs([NEED])[0], [(1, 0.5)] * 50)
        roster.catalogue.refresh()
        other = open_database(home.database)
        match trouble:
            case "locked":
                db.execute("PRAGMA busy_timeout = 0")
                other.execute("BEGIN IMMEDIATE")
            case "full":
                (pages,) = db.execute("PRAGMA page_count").fetchone()
                db.execute(f"PRAGMA max_page_count = {pages}")
                while True:
                    try:
                        History(db).keep_need(need, 1.0)
                    except sqlite3.OperationalError:
                        break
            case "gone":
                other.execute("DROP TABLE outcomes")
        for name in ("echoes", "fails", "breaks", "says"):
            entry = roster.catalogue.find(f"box__{name}")
            assert entry is not None
            called = await roster.caller.call(entry.card, ARGUMENTS, drafted=Drafted((entry.card.id,), need))
            assert called.answer.result is not None or called.answer.error is not None
            await roster.caller.scribe.finish()
        lost = [record.getMessage() for record in caplog.records if "could not be recorded" in record.getMessage()]
        if trouble == "locked":
            other.execute("ROLLBACK")
        other.close()

    assert [message.split(" could ")[0] for message in lost] == [
        f"an outcome of box__{name}" for name in ("echoes", "fails", "breaks", "says")
    ]
    assert leaks(home, caplog.text) == []
