"""The pages of docs/: made from the code's own table, linked to what is there, with commands that exist."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from roster.cli import app
from roster.clients.adapters import CLIENTS

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
_MACHINE_PATH = re.compile(r"/(?:root|tmp|private|work)/|/home/(?!me/)")


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return runpy.run_path(str(DOCS.parent / "eval" / "docs.py"))


def test_the_pages_of_clients_are_what_the_table_says(made: dict[str, Any]) -> None:
    """Whoever changes a row runs `python eval/docs.py`."""
    pages = made["pages"]()

    assert pages.keys() == {path.name for path in (DOCS / "clients").glob("*.md")}
    assert pages.keys() == {"README.md", *(f"{client.id}.md" for client in CLIENTS)}
    for name, text in pages.items():
        assert (DOCS / "clients" / name).read_text("utf-8") == text, name


def test_the_check_says_which_page_is_old(
    made: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And writes nothing."""
    monkeypatch.setitem(made["main"].__globals__, "FOLDER", tmp_path / "clients")
    monkeypatch.setattr(sys, "argv", ["docs.py"])
    assert made["main"]() == 0
    monkeypatch.setattr(sys, "argv", ["docs.py", "--check"])
    assert made["main"]() == 0
    (tmp_path / "clients" / "zed.md").write_text("# Zed\n", "utf-8")
    assert made["main"]() == 1
    assert "docs/clients/zed.md" in capsys.readouterr().err
    assert (tmp_path / "clients" / "zed.md").read_text("utf-8") == "# Zed\n"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_links_to_what_is_there_and_names_no_machine(path: Path) -> None:
    """Links between files, from the page's own folder."""
    text = path.read_text("utf-8")
    for link in re.findall(r"\]\((?!https?://)([^)#]+)\)", text):
        assert (path.parent / link).exists(), link
    assert not _MACHINE_PATH.search(text)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_names_commands_that_exist(path: Path) -> None:
    """`roster X` in a page is a command of the command line."""
    group = typer.main.get_command(app)
    known = set(group.commands)  # type: ignore[attr-defined]
    named = set(re.findall(r"(?:^|`)roster ([a-z]+)", path.read_text("utf-8"), re.MULTILINE))

    assert named <= known
