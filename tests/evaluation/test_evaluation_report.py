"""The report is one page that needs nothing else: no script, no network, every plot in it."""

from __future__ import annotations

import copy
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from roster.evaluation import Evaluation
from roster.evaluation.markup import el, page
from roster.evaluation.report import report_page, worst_needs, write_report
from roster.evaluation.svg import Scale, ticks

VOID = {"meta", "br", "wbr", "link", "img", "hr", "input"}


class Outline(HTMLParser):
    """Elements opened and closed in turn, their attributes, and the text of each kind of element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)


@pytest.fixture(scope="module")
def text(evaluation: Evaluation) -> str:
    return report_page(evaluation)


@pytest.fixture(scope="module")
def outline(text: str) -> Outline:
    return Outline(text)


def test_the_page_is_well_formed(outline: Outline) -> None:
    """Whatever is opened is closed, in order; ids are unique and every link on the page leads to one."""
    ids = [value for _, name, value in outline.attributes if name == "id"]
    links = [value for tag, name, value in outline.attributes if (tag, name) == ("a", "href")]

    assert outline.open == []
    assert outline.tags[:2] == ["html", "head"]
    assert len(set(ids)) == len(ids)
    assert links == [f"#{id_}" for id_ in ids]


def test_the_page_needs_nothing_else(text: str, outline: Outline) -> None:
    """No script, no style sheet, picture or font from elsewhere."""
    outside = {"src", "srcset", "data", "action", "poster", "background"}

    assert not set(outline.tags) & {"script", "link", "img", "iframe", "object"}
    assert not [found for found in outline.attributes if found[1] in outside or found[1].startswith("on")]
    assert "http:" not in text
    assert "https:" not in text
    assert "url(" not in text
    assert "@import" not in text


def test_every_plot_is_one_picture_with_title_and_axes(outline: Outline) -> None:
    """By set, differences, scores of three systems; and for each of two sets ranks and a scatter."""
    assert outline.tags.count("svg") == 2 + 3 + 2 * 2
    assert outline.tags.count("desc") == outline.tags.count("svg")
    drawn = " ".join(outline.texts["text"])
    for label in ("ndcg@3 by set", "difference from hybrid", "% of needs", "place in the ranking", "mean of sets"):
        assert label in drawn


def test_every_number_of_the_figures_is_in_a_table(evaluation: Evaluation, text: str) -> None:
    for found in evaluation.figures["sets"].values():
        for system in found["systems"].values():
            for cell in system["measures"].values():
                assert f"<b>{cell['mean']:.3f}</b>" in text


def test_the_page_follows_light_dark_and_print(text: str) -> None:
    assert "@media (prefers-color-scheme: dark)" in text
    assert "@media print" in text


def test_text_from_outside_stays_text(evaluation: Evaluation, tmp_path: Path) -> None:
    """Markup in a need or a name is shown, and what no page can hold is replaced."""
    odd = copy.deepcopy(evaluation)
    record = odd.records["small"]["4"]
    record["text"] = "</style><script>alert('x')</script> \x00\ud800 https://example.org"
    record["systems"]["hybrid"] |= {"ndcg@3": 0.0, "rank": None}

    text = write_report(tmp_path, odd).read_text("utf-8")

    assert "script" not in Outline(text).tags
    assert "&lt;script&gt;alert('x')&lt;/script&gt; \ufffd\ufffd" in text


def test_the_results_lie_beside_the_page(evaluation: Evaluation, tmp_path: Path) -> None:
    assert write_report(tmp_path, evaluation) == tmp_path / "index.html"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "results.json"]
    assert json.loads((tmp_path / "results.json").read_text("utf-8")) == evaluation.document()


def test_the_worst_needs_come_first() -> None:
    """By loss, then by how far down the first wanted card was; a need without loss is not among them."""

    def record(value: float, rank: int | None) -> dict[str, Any]:
        return {"systems": {"s": {"m": value, "rank": rank}}}

    records = {
        "good": record(1.0, 1),
        "half": record(0.5, 2),
        "nine": record(0.0, 9),
        "none": record(0.0, None),
        "also": record(0.0, 9),
    }

    assert worst_needs(records, "s", "m") == [("none", 1.0), ("also", 1.0), ("nine", 1.0), ("half", 0.5)]
    assert worst_needs(records, "s", "m", limit=1) == [("none", 1.0)]


def test_one_system_and_one_set_make_a_page_too(evaluation: Evaluation) -> None:
    """Without anything to compare there is no difference and no scatter; a system may have found nothing at all."""
    single = copy.deepcopy(evaluation)
    single.figures["systems"] = ["hybrid"]
    del single.figures["sets"]["again"], single.records["again"]
    for record in single.records["small"].values():
        record["systems"]["hybrid"] |= {"top": [], "rank": None, "ndcg@3": 0.0}

    outline = Outline(report_page(single))

    assert outline.tags.count("svg") == 2
    assert "mean of sets" not in " ".join(outline.texts["text"])


def test_an_element_takes_text_between_its_children() -> None:
    shown = page("a & b", "p > b { color: red }", el("p", "x < ", el("b", "y"), None, " & z", class_="n", data_x=0.5))

    assert '<p class="n" data-x="0.5">x &lt; <b>y</b> &amp; z</p>' in shown
    assert "p > b { color: red }" in shown
    assert "<title>a &amp; b</title>" in shown


def test_ticks_are_round_and_a_scale_is_straight() -> None:
    assert ticks(0.2, 1.0, 8) == [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert ticks(-0.03, 0.02, 5) == [-0.03, -0.02, -0.01, 0.0, 0.01, 0.02]
    assert ticks(0, 47) == [0, 10, 20, 30, 40]
    assert [Scale(0, 2, 100, 200)(value) for value in (0, 1, 2)] == [100, 150, 200]
    assert not re.search("[a-z]", "".join(map(str, ticks(1e-4, 9e-4))).replace("e", ""))
