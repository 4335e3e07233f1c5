"""Receipts over a machine of the test's own: three clients, their files, and what Roster has on file of their tools."""

from __future__ import annotations

import json
import re
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from fakes import python, tool
from scripted_backend import Scripted

from roster.clients import commands
from roster.clients.adapters import chosen
from roster.clients.machine import Machine
from roster.config import Home, open_home
from roster.database import open_database
from roster.errors import ConfigError, RosterError
from roster.evaluation.tokens import open_tokenizer
from roster.receipt import command, loading
from roster.receipt.meter import Meter, open_meter
from roster.receipt.receipt import make_receipt
from roster.receipt.short import NOTHING_KNOWN, short
from roster.registry import Registry
from roster.server import five_tools

ENV, HEADER, ARGUMENT, USER, QUERY, BROKEN, INPUT = SECRETS = [
    f"zq{kind}7x1" for kind in ("env", "header", "argument", "user", "query", "broken", "input")
]
FILES = {"command": "acme-files", "args": ["--token", ARGUMENT, "/srv/docs"], "env": {"KEY": ENV}}
WEB = {"type": "http", "url": f"https://{USER}:pw@web.example/mcp?key={QUERY}", "headers": {"X-Key": HEADER}}
MAIL = {"command": "acme-mail"}
ASKS = {"command": "vault", "env": {"KEY": "${input:key}", "OTHER": INPUT}}
ROWS = {
    "files": [
        tool("read_text", "Read a text file and give back what is in it, line by line"),
        tool("write_text", "Write a text file, whole, over whatever was there before; it is made if it is not there"),
    ],
    "mail": [tool("send_mail", "Send a mail to one address")],
}


@dataclass
class Desk:
    """A machine with Cursor, Claude Code and VS Code on it."""

    machine: Machine
    home: Home
    capsys: pytest.CaptureFixture[str]
    written: dict[Path, str] = field(default_factory=dict)

    def put(self, where: str, content: Any) -> Path:
        path = self.machine.home / where
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content, indent=2)
        path.write_text(text, encoding="utf-8")
        self.written[path] = text
        return path

    def sight(self, **rows: list[dict[str, Any]]) -> None:
        """What these servers list is on file."""
        open_home(self.home)
        with closing(open_database(self.home.database)) as db:
            for name, some in rows.items():
                Registry(db).sight(name, some, 1_000.0)

    def init(self) -> None:
        commands.init(clients=[], project=None, dry_run=False, out=lambda _: None, machine=self.machine)

    def receipt(self, *clients: str, **options: Any) -> dict[str, Any]:
        """The JSON document."""
        said: list[dict[str, Any]] = []
        asked = {"project": None, "connect": False, "named": False, "svg": None, **options}
        command.receipt(clients=clients, out=said.append, machine=self.machine, **asked)
        return said[0]

    def card(self, *clients: str, **options: Any) -> str:
        """The card as it is printed."""
        self.capsys.readouterr()
        asked = {"project": None, "connect": False, "named": False, "svg": None, **options}
        command.receipt(clients=clients, out=None, machine=self.machine, **asked)
        return self.capsys.readouterr().out

    def everything(self, folder: Path, **options: Any) -> list[str]:
        """Card, document, picture and short form."""
        picture = folder / "receipt.svg"
        card = self.card(svg=picture, **options)
        document = json.dumps(self.receipt(**options))
        return [card, document, picture.read_text("utf-8"), *short(self.machine, self.home)]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    for name in ("user", "project"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("COLUMNS", "200")
    environ = {"ROSTER_HOME": str(tmp_path / "home"), "PATH": ""}
    machine = Machine(tmp_path / "user", environ, "linux", tmp_path / "project", "/opt/roster/bin/python")
    desk = Desk(machine, Home(tmp_path / "home"), capsys)
    desk.put(".cursor/mcp.json", {"mcpServers": {"files": FILES, "mail": MAIL}})
    desk.put(".claude.json", {"mcpServers": {"files": {"type": "stdio", **FILES}, "web": WEB}})
    desk.put(".config/Code/User/mcp.json", {"servers": {"mail": MAIL, "vault": ASKS}})
    return desk


def client(said: dict[str, Any], id_: str) -> dict[str, Any]:
    return next(row for row in said["clients"] if row["client"] == id_)


def case(row: dict[str, Any], loaded: str = "whole") -> dict[str, Any]:
    return next(one for one in row["cases"] if one["loaded"] == loaded)


def compact(row: dict[str, Any]) -> str:
    kept = {key: row[key] for key in ("name", "description", "inputSchema")}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":"))


# ------------------------------------------------------------------------------------------------ figures


def test_each_client_pays_for_its_own_servers_and_with_roster_for_all(desk: Desk) -> None:
    """Token by token what the tokenizer counts of each definition, in each client and mode."""
    count = pytest.importorskip("bpe_openai") and open_tokenizer().count
    desk.sight(**ROWS)
    said = desk.receipt(named=True)
    costs = {name: sum(count(compact(row)) for row in rows) for name, rows in ROWS.items()}

    assert said["tokenizer"] == "o200k_base"
    assert [row["title"] for row in said["clients"]] == ["Claude Code", "Cursor", "VS Code"]
    whole = {row["client"]: case(row)["without"]["tokens"] for row in said["clients"]}
    assert whole == {
        "claude-code": costs["files"],
        "cursor": costs["files"] + costs["mail"],
        "vscode": costs["mail"],
    }
    assert len({case(row)["transparent"]["tokens"] for row in said["clients"]}) == 1
    assert case(said["clients"][0])["transparent"]["tokens"] > costs["files"] + costs["mail"]


def test_five_mode_costs_its_two_tools_and_its_instructions(desk: Desk) -> None:
    """The very definitions that `roster serve --five` lists for this config, in every client."""
    pytest.importorskip("bpe_openai")
    desk.init()
    desk.sight(**ROWS)
    from roster.config import Mode, load_config
    from roster.server import instructions

    config, count = load_config(desk.home), open_tokenizer().count
    expected = sum(count(compact(row)) for row in five_tools(config)) + count(instructions(config, Mode.FIVE))

    assert {case(row)["five"]["tokens"] for row in desk.receipt()["clients"]} == {expected}


def test_a_draft_costs_tokens_too_and_says_when_the_saving_is_gone(desk: Desk) -> None:
    """So the saving is not overstated: the median answer, and how many of them take what was saved."""
    desk.init()
    desk.sight(files=[tool(f"t{n}", f"Does the thing of number {n} with a file, and says so. " * 9) for n in range(40)])
    said = desk.receipt()
    saved = case(client(said, "cursor"))

    assert 0 < said["draft"]["low"] <= said["draft"]["tokens"] <= said["draft"]["high"]
    assert said["draft"]["needs"] == 40
    assert saved["used_up_by_drafts"] == saved["saved"]["tokens"] // said["draft"]["tokens"] > 0


def test_what_a_client_defers_is_a_range_and_says_why(desk: Desk) -> None:
    """Names alone at one end, all loaded at the other; the reason and where it is written."""
    desk.sight(**ROWS)
    row = client(desk.receipt(), "claude-code")

    assert [one["loaded"] for one in row["cases"]] == ["names", "whole"]
    assert case(row, "names")["without"]["tokens"] < case(row)["without"]["tokens"]
    assert row["loading"]["why"] in desk.card().replace("\n  ", " ")
    assert row["loading"]["source"].startswith("https://")


def test_a_server_that_the_client_has_switched_off_costs_nothing(desk: Desk) -> None:
    """Though another client has it on."""
    desk.put(".cursor/mcp.json", {"mcpServers": {"files": {**FILES, "disabled": True}, "mail": MAIL}})
    desk.sight(**ROWS)
    said = desk.receipt(named=True)

    assert {row["server"]: row["state"] for row in client(said, "cursor")["servers"]} == {
        "files": "off",
        "mail": "counted",
    }
    assert client(said, "cursor")["tools"] == 1
    assert client(said, "claude-code")["tools"] == 2


def test_a_server_that_is_off_in_roster_json_stays_with_its_clients(desk: Desk) -> None:
    """Roster does not route it, so that it costs the same with Roster as without."""
    desk.init()
    said = json.loads(desk.home.config.read_text("utf-8"))
    said["mcpServers"]["files"]["disabled"] = True
    desk.home.config.write_text(json.dumps(said), encoding="utf-8")
    desk.sight(**ROWS)
    row = client(desk.receipt(named=True), "claude-code")
    files = row["servers"][0]

    assert (files["server"], files["state"], files["stays_with_client"]) == ("files", "counted", True)
    assert case(row)["five"]["tokens"] > case(row)["without"]["tokens"] == files["tokens"]["tokens"]


@pytest.mark.parametrize("some", [{"enabled_tools": ["read_text"]}, {"excludeTools": ["write_text"]},
                                  {"toolFilter": {"include": ["read_text"]}}, {"tools": ["read_text"]}])  # fmt: skip
def test_tools_that_a_clients_entry_leaves_out_are_not_counted(desk: Desk, some: dict[str, Any]) -> None:
    """One of the two is left; another client still has both."""
    desk.put(".cursor/mcp.json", {"mcpServers": {"files": {**FILES, **some}}})
    desk.sight(**ROWS)
    said = desk.receipt()

    assert (client(said, "cursor")["tools"], client(said, "claude-code")["tools"]) == (1, 2)


def test_of_two_servers_of_one_name_the_nearest_is_the_clients(desk: Desk) -> None:
    """A project's entry stands in for the user's, and is counted once."""
    (desk.machine.cwd / ".mcp.json").write_text(
        json.dumps({"mcpServers": {"files": {"type": "stdio", "command": "other-files"}}}), encoding="utf-8"
    )
    desk.sight(**ROWS)
    desk.sight(**{"files-claude-code": [tool("only", "One tool")]})
    row = client(desk.receipt(named=True), "claude-code")

    assert [one["server"] for one in row["servers"]] == ["files-claude-code", "web"]
    assert row["tools"] == 1


def test_after_sync_the_bill_is_the_same_and_roster_is_in_place(desk: Desk) -> None:
    """What was taken out of a file is known from the backups; eject changes nothing about it either."""
    desk.init()
    desk.sight(**ROWS)
    before = desk.receipt(named=True)
    options: dict[str, Any] = {"clients": ["cursor"], "keep": [], "project": None, "dry_run": False, "ask": None}
    assert commands.sync(out=lambda _: None, machine=desk.machine, **options) == 0
    after = desk.receipt(named=True)

    assert client(before, "cursor")["roster_in_place"] is False
    assert client(after, "cursor") == {**client(before, "cursor"), "roster_in_place": True}
    assert "Roster is in place" in desk.card()


# ---------------------------------------------------------------------------------------- what is unknown


def test_servers_never_asked_are_unknown_with_the_remedy(desk: Desk) -> None:
    """They are no zero: the figure is an "at least"."""
    desk.sight(files=ROWS["files"])
    card, said = desk.card(), desk.receipt(named=True)

    assert said["unknown"] == ["web", "mail"]
    assert client(said, "cursor")["unknown_servers"] == 1
    assert "unknown: no tools listed yet" in card
    notes = " ".join(card.split())
    assert "2 servers have never listed any tool" in notes
    assert "`roster reindex` (after `roster init`) or --connect asks them" in notes
    assert re.search(r"all loaded +>= \d", card)


def test_a_server_that_only_its_client_can_start_stays_there(desk: Desk) -> None:
    """It is neither asked for nor counted, and that is said."""
    row = client(desk.receipt(named=True), "vscode")

    assert [(one["server"], one["stays_with_client"]) for one in row["servers"]] == [("mail", False), ("vault", True)]
    assert "unknown: stays with the client" in desk.card("vscode")


def test_without_any_sighting_there_are_no_figures_and_nothing_is_made(desk: Desk) -> None:
    """Roster's home is not there afterwards either, and the short form says what to do."""
    card = desk.card()

    assert "0 tools known" in card
    assert "all loaded" not in card
    assert not desk.home.folder.exists()
    assert short(desk.machine, desk.home) == [NOTHING_KNOWN]


def test_a_file_that_cannot_be_read_is_counted_and_the_others_are_shown(desk: Desk) -> None:
    """What is wrong with it is `roster init --dry-run`'s to say."""
    desk.put(".cursor/mcp.json", '{"mcpServers": {"files": ' + BROKEN)
    desk.sight(**ROWS)
    said = desk.receipt()

    assert client(said, "cursor")["unreadable_files"] == 1
    assert client(said, "vscode")["tools"] == 1
    assert "1 file could not be read" in desk.card()


def test_a_machine_without_clients_says_so(desk: Desk) -> None:
    """And an id that no client has is an error that names the nearest."""
    for path in desk.written:
        path.unlink()

    assert "No client of this machine" in desk.card()
    assert desk.receipt()["clients"] == []
    with pytest.raises(ConfigError, match="did you mean 'cursor'"):
        desk.receipt("curser")


def test_connect_asks_the_servers_that_never_were(desk: Desk, tmp_path: Path) -> None:
    """Of the clients that are shown only; what they answer is on file from then on."""
    mail = Scripted(tmp_path, "mail", rows=ROWS["mail"])
    files = Scripted(tmp_path, "files", rows=ROWS["files"])
    desk.put(".cursor/mcp.json", {"mcpServers": {"mail": mail.entry(), "gone": {"command": "/nowhere/at-all"}}})
    desk.put(".claude.json", {"mcpServers": {"files": {"type": "stdio", **files.entry()}}})
    desk.put(".config/Code/User/mcp.json", {"servers": {}})
    said = desk.receipt("cursor", connect=True, named=True)

    assert {row["server"]: row["state"] for row in said["clients"][0]["servers"]} == {
        "mail": "counted",
        "gone": "unknown",
    }
    assert "1 server did not answer" in desk.capsys.readouterr().err
    assert desk.receipt("cursor")["clients"][0]["tools"] == 1
    assert (len(mail.events("start")), len(files.events("start"))) == (1, 0)


def test_without_a_tokenizer_the_figures_are_an_estimate_and_say_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a range, and with what to install."""
    monkeypatch.setitem(sys.modules, "bpe_openai", None)
    desk.sight(**ROWS)
    said, card = desk.receipt(), desk.card()
    tokens = case(client(said, "cursor"))["without"]

    assert said["estimated"] is True
    assert tokens["low"] < tokens["tokens"] < tokens["high"]
    assert "pip install bpe-openai" in card.replace("\n", " ")


# ------------------------------------------------------------------------------------ what is never shown


def test_no_name_is_shown_unless_asked_for(desk: Desk, tmp_path: Path) -> None:
    """Servers and tools go by number in every form; with --named by name, the same ones."""
    desk.sight(**ROWS)
    names = ["files", "mail", "web", "vault", "read_text", "write_text", "send_mail"]
    unnamed, named = desk.everything(tmp_path), desk.everything(tmp_path, named=True)

    assert [name for text in unnamed for name in names if re.search(rf"\b{name}\b", text)] == []
    assert "server 1: tool 2" in unnamed[0]
    assert "files: write_text" in named[0]
    assert all("files" in text for text in named[:3])


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("synced", [False, True])
def test_no_secret_no_path_and_no_user_is_ever_shown(desk: Desk, tmp_path: Path, named: bool, synced: bool) -> None:
    """Values of env, headers, addresses and arguments, from files that can be read and from one that cannot."""
    desk.put(".codeium/windsurf/mcp_config.json", '{"mcpServers": {"x": ' + BROKEN)
    desk.put(".lmstudio/mcp.json", {"mcpServers": {f"https://{USER}@h/{QUERY}": MAIL, f"{desk.machine.home}/x": ASKS,
                                                   f"KEY={ENV}": {"command": "y"}}})  # fmt: skip
    desk.init()
    desk.sight(**ROWS)
    if synced:
        options: dict[str, Any] = {"clients": ["cursor", "vscode"], "keep": [], "project": None, "dry_run": False}
        commands.sync(out=lambda _: None, machine=desk.machine, ask=None, **options)
    shown = [*desk.everything(tmp_path, named=named), desk.capsys.readouterr().err]

    assert [secret for text in shown for secret in SECRETS if secret in text] == []
    paths = [str(tmp_path), str(desk.machine.home), "/srv/docs", ".cursor", ".json"]
    assert [path for text in shown for path in paths if path in text] == []


def test_connecting_shows_no_secret_either(desk: Desk, tmp_path: Path) -> None:
    """Not of a server that answers, nor of one that does not start, on neither stream."""
    mail = Scripted(tmp_path, "mail", rows=ROWS["mail"])
    entry = mail.entry(env={"KEY": ENV})
    gone = {"command": f"/nowhere/{USER}", "args": ["--token", ARGUMENT], "env": {"KEY": ENV}}
    desk.put(".cursor/mcp.json", {"mcpServers": {"mail": entry, "gone": gone}})
    card = desk.card("cursor", connect=True)
    said = json.dumps(desk.receipt("cursor", connect=True))
    out, err = desk.capsys.readouterr()

    assert "1 tool known" in card
    assert [secret for secret in SECRETS for text in (card, said, out, err) if secret in text] == []


def test_nothing_of_a_client_is_changed(desk: Desk, tmp_path: Path) -> None:
    """Not one byte, in any form of the receipt."""
    desk.sight(**ROWS)
    desk.everything(tmp_path)

    assert {path: path.read_text("utf-8") for path in desk.written} == desk.written


# -------------------------------------------------------------------------------------------- how it looks


def test_the_card_is_eighty_columns_of_plain_ascii(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """However heavy the tools are and however long their names; no colour where nobody looks."""
    monkeypatch.setenv("COLUMNS", "80")
    heavy = [tool(f"{'very_' * 12}long_{n}", "What it does, in so many words. " * 400) for n in range(60)]
    desk.sight(files=heavy, mail=ROWS["mail"])
    for named in (False, True):
        lines = desk.card(named=named).splitlines()

        assert max(map(len, lines)) <= 80
        assert all(line.isascii() and line.isprintable() for line in lines)
        assert any(re.search(r"all loaded +>= \d{3},\d{3} \(\d{3},\d{3}-\d{3},\d{3}\)", line) for line in lines)


def test_the_picture_is_one_file_that_needs_nothing_else(desk: Desk, tmp_path: Path) -> None:
    """Well-formed; text as text; no script, no address, no font to fetch; colours for light and for dark."""
    desk.sight(**ROWS)
    picture = tmp_path / "receipt.svg"
    card = desk.card(svg=picture, named=True)
    text = picture.read_text("utf-8")
    root = ElementTree.fromstring(text)
    tags = {node.tag.rpartition("}")[2] for node in root.iter()}

    assert tags == {"svg", "title", "desc", "style", "rect", "text", "tspan", "g"}
    assert text.count("http") == 1  # the name of SVG itself
    assert "prefers-color-scheme: dark" in text
    assert "url(" not in text
    assert "@font-face" not in text
    said = " ".join("".join(root.itertext()).split())
    figure = re.search(r"all loaded +(>= [\d,]+ \([\d,-]+\))", card)
    assert figure is not None
    assert figure[1] in said


def test_a_name_with_markup_is_text_in_the_picture_and_on_the_card(desk: Desk, tmp_path: Path) -> None:
    """Angle brackets, rich's own brackets and an escape sequence do nothing."""
    odd = "<script>[red]\x1b[31mx"
    desk.put(".cursor/mcp.json", {"mcpServers": {odd: {"command": "odd"}}})
    desk.sight(**{odd: [tool("t", "A tool")]})
    picture = tmp_path / "receipt.svg"
    card = desk.card("cursor", svg=picture, named=True)
    root = ElementTree.fromstring(picture.read_text("utf-8"))

    assert "<script>[red] [31mx" in card
    assert "\x1b" not in card
    assert all(not node.tag.endswith("script") for node in root.iter())


def test_a_picture_that_cannot_be_written_names_the_file(desk: Desk, tmp_path: Path) -> None:
    """And what to do about it."""
    with pytest.raises(RosterError, match=r"missing/receipt\.svg cannot be written .*--svg"):
        desk.receipt(svg=tmp_path / "missing" / "receipt.svg")


def test_the_short_form_is_a_line_a_client(desk: Desk) -> None:
    """What `roster init` ends with: the figures of the receipt, without a name or a range too many."""
    desk.init()
    desk.sight(**ROWS)
    cursor = client(desk.receipt(), "cursor")
    lines = short(desk.machine, desk.home)

    assert [line.partition(":")[0] for line in lines[:3]] == ["Claude Code", "Cursor", "VS Code"]
    now, whole = case(cursor, "names"), case(cursor)
    assert lines[1] == (
        f"Cursor: 3 tools take {now['without']['tokens']} (names only) to {whole['without']['tokens']} (all loaded) "
        f"tokens of context, five mode {now['five']['tokens']} to {whole['five']['tokens']}"
    )
    assert lines[3].startswith("Each draft adds about ")


def test_every_client_that_is_said_to_defer_is_known() -> None:
    """The table of how clients load tools names no client that there is not."""
    assert [id_ for id_ in loading._LOADING if not chosen([id_])] == []


def test_serving_loads_neither_receipt_nor_tokenizer() -> None:
    """A router starts with every client; what it costs is asked now and then."""
    child = python(
        "import roster.serve, sys; print([name for name in sys.modules if 'receipt' in name or 'bpe_openai' in name])"
    )
    out, err = child.communicate(timeout=60)

    assert (out.strip(), err) == ("[]", "")


def test_a_receipt_is_the_same_twice(desk: Desk) -> None:
    """The sample of needs is fixed, and nothing of one receipt changes the next."""
    desk.sight(**ROWS)
    desk.init()
    meter: Meter = open_meter()
    made = [make_receipt(desk.machine, desk.home, chosen([]), desk.machine.cwd, meter) for _ in range(2)]

    assert made[0].bills == made[1].bills
    assert made[0].draft == made[1].draft
