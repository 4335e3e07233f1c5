"""The `roster` command: its names, its machine-readable output and its exit statuses are contracts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from fakes import Ran, Run, tool
from scripted_backend import Scripted

from roster import cli
from roster.app import open_roster
from roster.config import Home, load_config
from roster.demo.session import STEPS
from roster.history import History, OutcomeRow
from roster.outcomes import Outcome
from roster.ranking import DENSE_WEIGHT

REPOSITORY = Path(__file__).parents[1]
ROWS = [tool("add_event", "Add an event to the calendar"), tool("list_events", "List the events of a day")]
COMMANDS = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]


@pytest.fixture
def calendar(home: Home, tmp_path: Path) -> Scripted:
    """A server that is in roster.json."""
    server = Scripted(tmp_path, "calendar", rows=ROWS)
    write(home, calendar=server.entry())
    return server


def write(home: Home, settings: dict[str, Any] | None = None, **entries: Any) -> None:
    home.config.write_text(json.dumps({**(settings or {}), "mcpServers": entries}), encoding="utf-8")


def roster(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own, with the encoder that comes with it."""
    command = [sys.executable, "-W", "error", "-m", "roster", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=120, **options)


# --------------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_every_command_explains_itself(run: Run, name: str | None) -> None:
    """`--help` and `-h` say what the command does and what each of its options means."""
    words = [name] if name else []
    ran = run(*words, "--help")
    assert ran.status == 0
    assert run(*words, "-h").out == ran.out
    command = COMMANDS[name] if name else typer.main.get_command(cli.app)
    assert command.help
    assert command.help.split("\n")[0][:40] in ran.out
    silent = [one.name for one in command.params if not getattr(one, "help", None) and one.name != "help"]
    assert silent == []


def test_the_documented_commands_are_there() -> None:
    """Each but `serve` has `--json`."""
    names = (
        "serve init sync eject receipt status reindex draft drift unquarantine ratings scorecard history eval lint demo"
    ).split()
    assert set(names) <= COMMANDS.keys()
    for name, command in COMMANDS.items():
        options = {option for one in command.params for option in one.opts}
        assert ("--json" in options) is (name != "serve"), name


def test_the_version_is_the_packages(run: Run) -> None:
    """`roster --version` prints it and does nothing else."""
    import roster as package

    assert run("--version") == Ran(0, f"roster {package.__version__}\n", "")


# ---------------------------------------------------------------------------------------- what they answer


def test_reindex_reports_its_figures(run: Run, home: Home, calendar: Scripted) -> None:
    """Added, changed, removed and embedded, each run for itself; a second run over the same has nothing to do."""

    def figures(*words: str) -> dict[str, Any]:
        found = run("reindex", "--json", *words).json()
        assert found.pop("seconds") >= 0
        return dict(found)

    keys = "cards added changed removed embedded quarantined".split()
    assert figures() == dict(zip(keys, (2, 2, 0, 0, 2, 0), strict=True)) | {"failed": {}}
    assert figures() == dict(zip(keys, (2, 0, 0, 0, 0, 0), strict=True)) | {"failed": {}}
    assert figures("--full") == dict(zip(keys, (2, 0, 0, 0, 2, 0), strict=True)) | {"failed": {}}
    calendar.says(rows=[{**ROWS[0], "description": "Something else"}, tool("new", "A new one")])
    assert figures() == dict(zip(keys, (2, 1, 1, 1, 1, 1), strict=True)) | {"failed": {}}
    assert run("reindex").out.startswith("2 cards: 0 added, 0 changed, 0 removed; 0 newly embedded, 1 quarantined; ")


def test_reindex_goes_on_without_a_server_that_fails_and_names_it(
    run: Run, home: Home, tmp_path: Path, calendar: Scripted
) -> None:
    """A server that cannot be asked is in `failed` with the reason, and its cards stay; nobody at all is status 1."""
    assert run("reindex", "--json").json()["cards"] == 2
    other = Scripted(tmp_path, "other", rows=[tool("t")])
    broken = {"calendar": calendar.entry(cwd="/lost"), "gone": {"command": "no-such-program-of-anyone"}}
    write(home, other=other.entry(), **broken)

    figures = run("reindex", "--json").json()
    assert (figures["cards"], figures["added"], figures["removed"]) == (3, 1, 0)
    assert figures["failed"].keys() == {"calendar", "gone"}
    assert "no-such-program-of-anyone" in figures["failed"]["gone"]
    plain = run("reindex")
    assert (plain.status, "roster: gone: the command" in plain.err) == (0, True)
    write(home, **broken)
    nobody = run("reindex", "--json")
    assert (nobody.status, json.loads(nobody.out)["cards"]) == (1, 2)
    assert "no server answered" in nobody.err


def test_draft_answers_what_five_mode_would(run: Run, calendar: Scripted) -> None:
    """Starters as a client sees them, or their ids and descriptions as text; no more than `-k`."""
    run("reindex")
    shown = run("draft", "add an event to the calendar", "--json", "-k", "1").json()
    assert shown == {
        "need": "add an event to the calendar",
        "match": "clear",
        "starters": [
            {
                "id": "calendar__add_event",
                "kind": "tool",
                "description": "Add an event to the calendar",
                "input": {"properties": {}},
            }
        ],
    }
    text = run("draft", "add an event to the calendar").out
    assert text.splitlines()[:2] == ["1. calendar__add_event", "   Add an event to the calendar"]
    assert "2. calendar__list_events" in text


def test_draft_explains_every_stage(run: Run, calendar: Scripted) -> None:
    """`--explain` gives each card's numbers, and the score is made of them as it says."""
    run("reindex")
    need = "calendar__add_event adds an event"
    first, second = run("draft", need, "--explain", "--json").json()["explain"]
    assert list(first) == [
        "id",
        "score",
        "similarity",
        "dense",
        "bm25",
        "lexical",
        "step",
        "named",
        "covered",
        "base",
        "learned",
        "boost",
        "adapted",
        "rating",
    ]
    assert (first["id"], first["named"], second["named"]) == ("calendar__add_event", True, False)
    for card in (first, second):
        made = DENSE_WEIGHT * card["dense"] + (1 - DENSE_WEIGHT) * card["lexical"] + card["named"]
        assert card["score"] == pytest.approx(made, abs=1e-5)
    table = run("draft", need, "--explain").out
    for word in ("similarity", "BM25", "calendar__add_event", f"{first['score']:.3f}", "yes"):
        assert word in table


def test_draft_explains_what_was_learned(run: Run, home: Home, calendar: Scripted) -> None:
    """Columns for learning are there once there is something to show, and the numbers add up."""
    run("reindex")
    need = "put lunch on the calendar"
    assert "record" not in run("draft", need, "--explain").out
    with open_roster(load_config(home), home) as roster:
        roster.warm_up()
        made = roster.draft_now(need, 5)
        lesson = made.lesson()
        assert lesson is not None
        last = made.running[-1][0]
        history, now = History(roster.writer.db), time.time()
        for _ in range(3):
            number = history.keep_need(lesson, now)
            history.record(
                OutcomeRow(last.id, last.fingerprint, Outcome.SUCCESS, None, 1.0, now, drafted=True, need=number)
            )
    explained = {card["id"]: card for card in run("draft", need, "--explain", "--json").json()["explain"]}[last.id]
    assert explained["learned"]["share"] > 0.5
    assert explained["score"] == pytest.approx(
        explained["base"] + explained["boost"] + explained["rating"] - explained["covered"], abs=1e-5
    )
    table = run("draft", need, "--explain").out
    assert "record" in table
    assert "+ learned + record" in table


def test_status_shows_servers_cards_index_and_problems_without_connecting(
    run: Run, home: Home, calendar: Scripted
) -> None:
    """State, tools and last error of every server in the config, also of those that cannot be used."""
    before = run("status", "--json").json()
    assert before["servers"]["calendar"]["state"] == "never seen"
    assert (before["cards"], before["index"]) == (0, None)
    calendar.says(rows=[*ROWS, {"name": "bad", "inputSchema": {"type": 7}}])
    run("reindex")
    started = len(calendar.pids())
    write(home, {"threds": 2}, calendar=calendar.entry(), wrong={"args": []}, off={"command": "x", "disabled": True})

    seen = run("status", "--json").json()
    states = {name: server["state"] for name, server in seen["servers"].items()}
    assert states == {"calendar": "answered", "wrong": "misconfigured", "off": "disabled"}
    known = seen["servers"]["calendar"]
    assert (known["tools"], known["rejected"], known["last_error"], known["problems"]) == (2, ["bad"], None, [])
    assert known["connect_ms"] > 0
    assert (seen["cards"], seen["quarantined"], seen["index"]["count"]) == (2, [], 2)
    assert (seen["encoder"]["name"], seen["encoder"]["unembedded"]) == ("words", 0)
    assert any("'threds'" in problem and "'threads'" in problem for problem in seen["problems"])
    assert len(calendar.pids()) == started
    text = run("status").out
    for word in ("calendar", "misconfigured", "disabled", "2 cards", "threds", "unusable tools: bad"):
        assert word in text
    calendar.says(start="exit")
    run("reindex")
    known = run("status", "--json").json()["servers"]["calendar"]
    assert (known["state"], known["last_error"], known["tools"]) == ("failed", "exited", 2)


def test_unquarantine_lets_a_changed_card_into_drafts_again(run: Run, calendar: Scripted) -> None:
    """The card is missing from drafts until then; of an unknown id nothing is changed."""
    run("reindex")
    calendar.says(rows=[{**ROWS[0], "description": "Something else"}, ROWS[1]])
    run("reindex")
    held = "calendar__add_event"

    def drafted() -> set[str]:
        return {starter["id"] for starter in run("draft", "calendar events", "--json").json()["starters"]}

    assert run("status", "--json").json()["quarantined"] == [held]
    assert drafted() == {"calendar__list_events"}
    unknown = run("unquarantine", held, "nobody__knows")
    assert (unknown.status, unknown.out) == (1, "")
    assert "'nobody__knows'" in unknown.err
    assert run("status", "--json").json()["quarantined"] == [held]
    assert run("unquarantine", held, "--json").json() == {"cleared": [held]}
    assert run("unquarantine", held).out == f"{held}: was not quarantined\n"
    assert drafted() == {held, "calendar__list_events"}


def test_a_name_with_markup_is_shown_as_it_is(run: Run, home: Home, tmp_path: Path) -> None:
    """Square brackets in what a server says are text, on a terminal too."""
    server = Scripted(tmp_path, "s", rows=[tool("t", "[bold]Find[/] [/nonsense] things")])
    write(home, s=server.entry())
    run("reindex")
    assert "[bold]Find[/] [/nonsense] things" in run("draft", "find things").out


# -------------------------------------------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ([], 2, ""),
        (["nonsense"], 2, "no such command"),
        (["draft"], 2, "missing"),
        (["draft", "x", "--nonsense"], 2, "no such option"),
        (["draft", "x", "-k", "many"], 2, "valid integer"),
        (["draft", "x", "-k", "0"], 2, "k is 0: it must be a whole number from 1 to 10"),
        (["draft", " "], 2, "need is empty"),
        (["draft", "x" * 20_001], 2, "20,001 characters"),
        (["draft", "x"], 1, "run `roster reindex` first"),
        (["serve", "--five", "--transparent"], 2, "exclude each other"),
        (["unquarantine"], 2, "missing"),
        (["scorecard"], 2, "missing"),
        (["history", "nonsense"], 2, "no such command"),
        (["unquarantine", "nobody__knows"], 1, "no card has the id 'nobody__knows'"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_a_misuse_ends_with_its_status_and_the_remedy(
    run: Run, calendar: Scripted, words: Sequence[str], status: int, message: str
) -> None:
    """2 for what was asked wrongly, 1 for what could not be done; the words go to stderr, nothing to stdout."""
    ran = run(*words)
    assert ran.status == status
    assert message in " ".join(ran.err.replace("│", " ").split()).replace("No", "no").replace("Missing", "missing")
    assert ran.out == "" or not words
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("words", [["status"], ["reindex", "--json"], ["draft", "x"], ["unquarantine", "x"]])
@pytest.mark.parametrize(("text", "said"), [(None, "is not there"), ("{", "roster.json"), ("[]", "expected an object")])
def test_a_config_that_cannot_be_read_is_a_misuse(
    run: Run, home: Home, words: list[str], text: str | None, said: str
) -> None:
    """Status 2 and one line that names the file."""
    if text is not None:
        home.config.write_text(text)
    ran = run(*words)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"roster: {home.config}")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_another_model_drops_what_was_learned_from_needs_and_says_so_first(
    run: Run, home: Home, calendar: Scripted
) -> None:
    """Their vectors mean nothing to it. Trying a model costs nothing yet; the records of calls stay."""
    run("reindex")
    with open_roster(load_config(home), home) as roster:
        roster.warm_up()
        made = roster.draft_now("put lunch on the calendar", 5)
        card = made.running[0][0]
        lesson = made.lesson()
        assert lesson is not None
        history = History(roster.writer.db)
        number = history.keep_need(replace(lesson, encoder="another"), time.time())
        row = OutcomeRow(card.id, card.fingerprint, Outcome.SUCCESS, None, 1.0, time.time(), drafted=True, need=number)
        history.record(row)

    tried = run("reindex", "--model", "whatever", "--json")
    assert "1 past needs were read by another model" in tried.err
    assert "needs_dropped" not in tried.json()
    told = run("reindex", "--json")
    assert "dropped at the end of this run" in told.err
    assert told.json()["needs_dropped"] == 1
    with open_roster(load_config(home), home) as roster:
        history = History(roster.writer.db)
        assert history.encoders() == {}
        assert history.tallies()[card.id].calls == 1
    assert run("reindex").err == ""


def test_a_model_that_cannot_be_had_is_named(calendar: Scripted, tmp_path: Path) -> None:
    """Status 1 and one line, whether or not sentence-transformers is installed; another model never takes its place."""
    (tmp_path / "no-model").mkdir()
    ran = roster("reindex", "--json", "--model", str(tmp_path / "no-model"))
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "no-model" in ran.stderr
    assert "Traceback" not in ran.stderr


# ---------------------------------------------------------------------------------------------- in earnest


def test_the_demo_drafts_the_right_tool_for_every_need() -> None:
    """A real session over five servers; only the last call fails, as it should, and says why."""
    ran = roster("demo", "--json")
    assert ran.returncode == 0, ran.stderr
    steps = json.loads(ran.stdout)["steps"]
    assert [(step["need"], step["tool"]) for step in steps] == [(step.need, step.tool) for step in STEPS]
    assert [step["need"] for step in steps if step["tool"] not in step["draft"]] == []
    assert [step["need"] for step in steps if step["error"]] == ["read a file that is not there"]
    assert json.loads(steps[-1]["result"][-1])["_roster"]["failure"]["kind"] == "tool_failed"


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of POSIX")
@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_a_terminal_only(calendar: Scripted, terminal: bool) -> None:
    """A bar on stderr for who watches; for a pipe not a byte, and stdout is the same."""
    import pty

    watching, end = pty.openpty() if terminal else os.pipe()
    environ = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "NO_COLOR")}
    command = [sys.executable, "-m", "roster", "reindex", "--json"]
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=end, check=True, cwd=REPOSITORY, timeout=60,
        env={**environ, "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(end)
    said = b""
    try:
        while more := os.read(watching, 65_536):
            said += more
    except OSError:
        pass  # the other end of a terminal is gone
    os.close(watching)
    assert json.loads(ran.stdout)["cards"] == 2
    assert (b"embedding" in said) is terminal
    assert terminal or said == b""
