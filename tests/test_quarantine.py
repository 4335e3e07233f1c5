"""Drift as a user meets it: real servers that change, `roster drift`, `unquarantine`, `status`, and refused calls."""

from __future__ import annotations

import copy
import io
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from fakes import HOUR, Clock, Run, WordEncoder, tool
from mcp import Client
from scripted_backend import Scripted, raw, running

from roster.app import open_roster
from roster.cards import card_from_tool, dense_text
from roster.catalogue import Catalogue
from roster.config import Home, Mode, load_config
from roster.dense import drop_index, read_manifest
from roster.dwell import Reason
from roster.server import RosterServer

ROW = tool("add", "Add an event to the calendar", title="Add") | {
    "inputSchema": {
        "type": "object",
        "properties": {"day": {"type": "string", "default": 1, "enum": ["a", "b"]}, "who": {"type": "string"}},
        "required": ["day"],
    },
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
    "execution": {"taskSupport": "optional"},
}
LIST = tool("list", "List the events of a day")
ID = "cal__add"


@pytest.fixture
def cal(home: Home, tmp_path: Path) -> Scripted:
    """A server that is in roster.json and was listed once."""
    server = Scripted(tmp_path, "cal", rows=[ROW, LIST])
    configure(home, cal=server)
    return server


def configure(home: Home, settings: dict[str, Any] | None = None, **servers: Scripted) -> None:
    entries = {name: server.entry() for name, server in servers.items()}
    home.config.write_text(json.dumps({**(settings or {}), "mcpServers": entries}), encoding="utf-8")


def with_(path: str, value: Any) -> dict[str, Any]:
    row = copy.deepcopy(ROW)
    *way, last = path.split("/")
    place: Any = row
    for key in way:
        place = place[key]
    place[last] = value
    return row


FIELDS = {
    "title": "Append",
    "description": "Add an event, and mail everybody",
    "inputSchema/properties/day/type": "integer",
    "inputSchema/properties/day/enum": ["b", "a"],
    "inputSchema/properties/day/default": True,
    "inputSchema/properties/who/description": "and send it there",
    "inputSchema/properties/more": {},
    "inputSchema/required": [],
    "outputSchema/properties": {"id": {"type": "integer"}},
    "annotations/readOnlyHint": False,
    "annotations/idempotentHint": True,
    "execution/taskSupport": "required",
}


@pytest.mark.report("smart-mcp-proxy/mcpproxy-go#328")
def test_a_change_of_any_part_of_a_contract_is_caught_at_the_next_listing(run: Run, cal: Scripted) -> None:
    """Each in turn, through a real server; and what is the same contract written otherwise is not."""
    run("reindex")
    for path, value in FIELDS.items():
        cal.says(rows=[with_(path, value), LIST])
        assert run("reindex", "--json").json()["changed"] == 1, path
        assert run("unquarantine", ID, "--yes", "--json").json() == {"cleared": [ID]}, path
        cal.says(rows=[ROW, LIST])
        assert run("reindex", "--json").json()["changed"] == 1, path
        run("unquarantine", ID, "--yes")
    reordered = dict(reversed(with_("inputSchema/properties/day/default", 1.0).items())) | {
        "icons": [],
        "_meta": {"x": 1},
    }
    cal.says(rows=[reordered, LIST])
    figures = run("reindex", "--json").json()
    assert (figures["changed"], figures["quarantined"]) == (0, 0)


def test_removing_a_tool_and_adding_it_again_changed_is_caught(run: Run, cal: Scripted) -> None:
    """A tombstone remembers what it was; a server that cannot be reached removes nothing."""
    run("reindex")
    cal.says(start="exit")
    run("reindex")
    assert run("status", "--json").json()["servers"]["cal"]["tools"] == 2
    cal.says(start="", rows=[LIST])
    assert run("reindex", "--json").json()["removed"] == 1
    cal.says(rows=[with_("description", "Add what?"), LIST])
    assert run("reindex", "--json").json()["changed"] == 1
    assert run("status", "--json").json()["quarantined"] == [ID]


# ------------------------------------------------------------------------------------------ roster drift


def test_drift_lists_events_and_shows_how_a_card_changed(run: Run, cal: Scripted) -> None:
    """One line each, newest first; with an id or a glob the difference, part by part."""
    assert run("drift").out == "No definition has changed since it was first seen.\n"
    run("reindex")
    cal.says(rows=[with_("description", "Add an event to the\u202e calendar"), LIST])
    run("reindex")
    cal.says(rows=[with_("annotations/readOnlyHint", False), LIST | {"title": "[bold]List[/]"}])
    run("reindex")
    lines = run("drift").out.splitlines()
    assert len(lines) == 3
    assert [ID in line for line in lines] == [False, True, True]
    assert "safety" in lines[1]
    assert "held, waits for a person" in lines[1]
    assert "superseded" in lines[2]
    assert "24 h to wait" in lines[0]

    for words in (ID, "cal__a*"):
        text = run("drift", words).out
        assert "annotations.readOnlyHint: true -> false" in text
        assert "Add an event to [-the -]{+the\\u202e +}calendar" in text or "{+the\\u202e+}" in text
        assert "\u202e" not in text
    assert "title added: {+[bold]List[/]+}" in run("drift", "cal__list").out
    newest = run("drift", ID, "--json").json()["events"][0]
    assert (newest["card"], newest["severity"], newest["state"], newest["waits_s"]) == (ID, "safety", "held", None)
    assert {
        "where": "annotations.readOnlyHint",
        "what": "changed",
        "severity": "safety",
        "old": True,
        "new": False,
    } in (newest["changes"])
    assert [event["card"] for event in run("drift", "--json").json()["events"]] == ["cal__list", ID, ID]


@pytest.mark.parametrize(
    "words", [w.split() for w in ("drift cal__ad", "drift x*", "unquarantine x*", "unquarantine cal__ad",
                                  "unquarantine --server ca")]
)  # fmt: skip
def test_what_nobody_knows_is_an_error_with_the_remedy(run: Run, cal: Scripted, words: list[str]) -> None:
    """An id, a glob that matches no card, a server without one."""
    run("reindex")
    ran = run(*words)

    assert (ran.status, ran.out) == (1, "")
    assert words[-1] in ran.err
    assert "did you mean 'cal" in ran.err or "roster status" in ran.err


def test_a_card_that_never_changed_has_nothing_to_show(run: Run, cal: Scripted) -> None:
    """It is known, so that is no error."""
    run("reindex")
    assert run("drift", ID).out == f"No change of {ID} is on record.\n"
    assert run("drift", ID, "--json").json() == {"events": [], "findings": {}}


def test_an_upgraded_server_is_one_line_and_accepted_as_one(run: Run, home: Home, tmp_path: Path) -> None:
    """In `drift`, in `status` and for `unquarantine --server`, with both versions; a danger in it stands by itself."""
    rows = [tool(f"t{n}", f"Does thing {n}", annotations={"readOnlyHint": True}) for n in range(60)]
    box = Scripted(tmp_path, "box", rows=rows, version="1.0")
    configure(home, box=box)
    run("reindex")
    after = [{**row, "description": f"{row['description']}, better"} for row in rows]
    after[7] = {**after[7], "annotations": {}}
    box.says(rows=after, version="2.0")
    assert run("reindex", "--json").json()["quarantined"] == 60

    told = "box changed 60 of 60 definitions at once, from box 1.0 to box 2.0"
    lines = run("drift").out.splitlines()
    assert len(lines) == 2
    assert told in lines[0]
    assert "roster unquarantine --server box" in lines[0]
    assert "box__t7" in lines[1]
    status = run("status")
    assert told in status.out
    assert status.out.count("box__t") == 2  # t7 and how to look at it
    seen = run("status", "--json").json()
    assert len(seen["quarantined"]) == len(seen["quarantine"]["held"]) == 60
    assert [len(batch["held"]) for batch in seen["quarantine"]["batches"]] == [59]
    assert seen["quarantine"]["reasons"] == {"drift": 59, "safety": 1}

    refused = run("unquarantine", "--server", "box")
    assert (refused.status, refused.out) == (1, "")
    assert "box__t7" in refused.err
    assert "--yes" in refused.err
    assert len(run("status", "--json").json()["quarantined"]) == 60
    assert run("unquarantine", "--server", "box", "--yes").out == "60 cards: in drafts again\n"
    assert run("status", "--json").json()["quarantined"] == []
    (batch,) = [event for event in run("drift", "--json").json()["events"] if event["kind"] == "batch"]
    assert (batch["states"], batch["old_version"]) == ({"cleared by a person": 59}, "box 1.0")
    assert len(batch["members"]) == 59


def test_a_server_under_another_name_is_reported(run: Run, home: Home, cal: Scripted) -> None:
    """Once; what it was held for it is still held for, and its records stay with the old ids."""
    run("reindex")
    cal.says(rows=[with_("annotations/readOnlyHint", False), LIST])
    run("reindex")
    configure(home, agenda=cal)
    assert run("reindex", "--json").json()["added"] == 2
    assert run("status", "--json").json()["quarantined"] == ["agenda__add"]
    assert "the server cal is called agenda now" in run("drift").out
    held = run("drift", "agenda__add", "--json").json()["events"][0]
    assert (held["kind"], held["was"], held["state"]) == ("renamed", ID, "held")
    run("reindex")
    assert run("drift").out.count("is called") == 1


# ---------------------------------------------------------------------------------------- unquarantine


def test_what_waits_for_a_person_is_asked_about(run: Run, cal: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal a question; without one an error that changes nothing; `--yes` for scripts."""
    run("reindex")
    cal.says(rows=[with_("annotations/readOnlyHint", False), LIST | {"title": "x"}])
    run("reindex")
    refused = run("unquarantine", "cal__*")
    assert (refused.status, refused.out) == (1, "")
    assert f"held for a person to look at: {ID}. Look with `roster drift ID`, then say --yes" in refused.err
    assert run("status", "--json").json()["quarantined"] == [ID, "cal__list"]

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for answer, left in (("n", [ID, "cal__list"]), ("y", [])):
        monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
        run("unquarantine", "cal__*")
        assert run("status", "--json").json()["quarantined"] == left


def test_plain_drift_needs_no_question(run: Run, cal: Scripted) -> None:
    """By id or glob; what was not held is said."""
    run("reindex")
    cal.says(rows=[ROW | {"title": "x"}, LIST])
    run("reindex")
    assert run("unquarantine", ID, "cal__list").out == f"{ID}: in drafts again\ncal__list: was not quarantined\n"
    assert run("unquarantine", "cal__*").out == "Nothing of it was quarantined.\n"
    assert run("unquarantine", "--server", "cal", "--json").json() == {"cleared": []}


def test_the_log_and_status_name_what_calls_are_refused(
    run: Run, home: Home, cal: Scripted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`"quarantine": "call"` in transparent mode: said by `roster status`, and once by `roster serve`."""
    from roster import serve

    configure(home, {"quarantine": "call"}, cal=cal)
    run("reindex")
    assert "transparent mode is never narrowed" in run("status").out
    assert run("status", "--json").json()["quarantine"]["policy"] == "call"
    monkeypatch.setattr("roster.serve.anyio.run", lambda *_: None)
    serve.serve_stdio()
    serve.serve_stdio(five=True)
    assert [record.message for record in caplog.records].count(
        '"quarantine": "call" refuses calls in five mode only: transparent mode lists and calls every tool'
    ) == 1


def test_a_clock_set_forward_lets_nothing_in(run: Run, home: Home, cal: Scripted) -> None:
    """Weeks by the time of day, while the machine was up for a moment: the card is as held as before."""

    async def look(clock: Clock) -> list[str]:
        with open_roster(load_config(home), home, clock=clock) as roster:
            async with roster.running():
                await roster.pool.settled()
            return [held.id for held in roster.writer.registry.holds.all()]

    clock = Clock()
    anyio.run(look, clock)
    cal.says(rows=[ROW | {"title": "x"}, LIST])
    for _ in range(5):
        assert anyio.run(look, clock) == [ID]
        clock.advance(7 * 24 * HOUR)


# ------------------------------------------------------------------------------------- refused calls


@pytest.mark.anyio
@pytest.mark.report("smart-mcp-proxy/mcpproxy-go#328")
async def test_a_quarantined_card_is_not_called_when_the_user_says_so(home: Home, cal: Scripted) -> None:
    """Five mode: refused before anything is sent, for a person to mend, with both commands; cleared, it is called."""
    async with (
        running(home, {"cal": cal.entry()}, quarantine="call") as roster,
        Client(RosterServer(roster, Mode.FIVE).server) as client,
    ):
        registry = roster.writer.registry
        registry.hold(ID, Reason.REVIEW, 1.0)
        reply = await raw(client, "tools/call", name="call", arguments={"tool": ID, "args": {"day": "a"}})
        assert reply["isError"]
        words, block = (each["text"] for each in reply["content"])
        failure = json.loads(block)["_roster"]["failure"]
        assert f"`roster drift {ID}`" in words
        assert f"`roster unquarantine {ID}`" in words
        assert failure == {"kind": "refused", "retryable": False, "partial": False, "person": True,
                               "declared": False, "class": "tool_fail:other"}  # fmt: skip
        assert cal.calls() == []
        registry.unquarantine(ID, 2.0)
        reply = await raw(client, "tools/call", name="call", arguments={"tool": ID, "args": {"day": "a"}})
        assert not reply.get("isError")
        assert len(cal.calls("add")) == 1


@pytest.mark.anyio
@pytest.mark.parametrize(("mode", "policy"), [(Mode.FIVE, "draft"), (Mode.FIVE, "off"), (Mode.TRANSPARENT, "call")])
async def test_by_default_and_in_transparent_mode_calls_go_on(
    home: Home, cal: Scripted, mode: Mode, policy: str
) -> None:
    """Quarantine is not a firewall."""
    async with (
        running(home, {"cal": cal.entry()}, quarantine=policy) as roster,
        Client(RosterServer(roster, mode).server) as client,
    ):
        roster.writer.registry.hold(ID, Reason.SAFETY, 1.0)
        asked = {"tool": ID, "args": {"day": "a"}} if mode is Mode.FIVE else {"day": "a"}
        reply = await raw(client, "tools/call", name="call" if mode is Mode.FIVE else ID, arguments=asked)
    assert not reply.get("isError")


# ------------------------------------------------------------------------------- what is left on disk


def index_rows(home: Home) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(home.index.glob("*.faiss"))) if home.index.exists() else b""


def test_after_drift_no_vector_of_the_old_definition_is_on_disk(
    run: Run, home: Home, cal: Scripted, connect: Callable[[], sqlite3.Connection]
) -> None:
    """Neither in the database nor in an index file, by its very bytes; and the new one's only once it is let in."""

    def bytes_of(row: dict[str, Any]) -> bytes:
        return bytes(WordEncoder().encode_cards([dense_text(card_from_tool("cal", row))])[0].astype("<f4").tobytes())

    def on_disk(row: dict[str, Any]) -> tuple[bool, bool]:
        wanted = bytes_of(row)
        stored = [blob for (blob,) in connect().execute("SELECT vector FROM vectors")]
        return wanted in stored, wanted in index_rows(home)

    changed = with_("description", "Add an event, and mail everybody")
    run("reindex")
    assert on_disk(ROW) == on_disk(LIST) == (True, True)
    cal.says(rows=[changed, LIST])
    run("reindex")
    assert (on_disk(ROW), on_disk(changed), on_disk(LIST)) == ((False, False), (False, False), (True, True))
    assert (read_manifest(home.index) or {})["count"] == 1
    run("unquarantine", ID)
    run("reindex")
    assert (on_disk(ROW), on_disk(changed)) == ((False, False), (True, True))


def test_the_sighting_itself_takes_the_index_file_off_the_disk(
    home: Home, cal: Scripted, run: Run, connect: Callable[[], sqlite3.Connection]
) -> None:
    """A process that never saves an index, as in transparent mode, must not leave the old row lying there."""

    async def serve() -> None:
        async with running(home, {"cal": cal.entry()}):
            pass

    run("reindex")
    assert read_manifest(home.index) is not None
    anyio.run(serve)
    assert read_manifest(home.index) is not None  # nothing changed, nothing is thrown away
    cal.says(rows=[with_("description", "Other"), LIST])
    anyio.run(serve)
    assert (read_manifest(home.index), index_rows(home)) == (None, b"")
    catalogue = Catalogue(connect(), ["cal"])
    catalogue.attach(WordEncoder(), home.index)
    assert catalogue.dense is not None
    assert len(catalogue.dense) == 1  # from what is stored; nothing is embedded again


def test_a_change_that_moves_no_vector_leaves_the_index_saved(run: Run, home: Home, cal: Scripted) -> None:
    """With quarantine off a new schema has the old text: the file goes at the sighting and is there again after it."""
    configure(home, {"quarantine": "off"}, cal=cal)
    run("reindex")
    cal.says(rows=[with_("inputSchema/required", []), LIST])
    assert run("reindex", "--json").json()["changed"] == 1
    assert (read_manifest(home.index) or {})["count"] == 2


def test_an_index_that_is_not_there_can_be_dropped(home: Home) -> None:
    """Another process was faster."""
    drop_index(home.index)
    assert not home.index.exists()
