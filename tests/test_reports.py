"""What people report of other routers: each symptom has a test that names it, and the page says which."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "eval" / "reports.py"))


def test_every_report_is_named_by_a_test_and_every_name_is_a_report(made: dict[str, Any]) -> None:
    """Whoever renames or drops a test that holds Roster to one hears of it here."""
    assert made["problems"](made["reports"](), made["marks"]()) == []


def test_the_page_is_what_the_list_and_the_tests_say(made: dict[str, Any]) -> None:
    """Whoever changes either runs `python eval/reports.py`."""
    assert made["PAGE"].read_text("utf-8") == made["page"](made["reports"](), made["marks"]())


def test_what_does_not_fit_together_is_said(made: dict[str, Any], tmp_path: Path) -> None:
    """A report without a test, a test of an unknown report, one that is there twice, and what is no reference."""
    (tmp_path / "reports.toml").write_text(
        '[[about]]\ntitle = "x"\n[[about.report]]\nsymptom = "s"\ndoes = "d"\nseen = ["a/b#1", "a/b#1", "a/b#2", "?"]\n'
    )
    known = {"a/b#1": [made["Test"]("tests/test_x.py", "test_one")], "?": [], "c/d#3": [made["Test"]("f", "test_two")]}

    assert made["problems"](made["reports"](tmp_path / "reports.toml"), known) == [
        "? is no reference",
        "a/b#1 is there twice",
        "no test names a/b#2",
        "test_two names c/d#3, which is not in reports.toml",
    ]
