"""The script behind `docs/fidelity.md`: its tables say what was found, and explain only what is meant."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

EVAL = Path(__file__).parents[1] / "eval"


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The script's modules, imported as it imports them."""
    monkeypatch.syspath_prepend(str(EVAL))
    names = ("everything", "newer", "newer_server", "odd", "odd_server", "report")
    yield SimpleNamespace(**{name: importlib.import_module(f"faithful.{name}") for name in names})
    for name in [name for name in sys.modules if name.split(".")[0] == "faithful"]:
        del sys.modules[name]


def _features(parts: Any) -> list[Any]:
    odd = [feature for kind in parts.odd.KINDS.values() for feature in kind]
    return [*parts.everything.FEATURES, *parts.newer.FEATURES, *odd]


def test_every_feature_has_a_row_of_its_own(parts: Any) -> None:
    """Its docstring is the row's name, and no two are the same."""
    names = [feature.__doc__ for feature in _features(parts)]

    assert all(names)
    assert len(set(names)) == len(names)


def test_a_difference_that_nothing_explains_is_called_one(parts: Any) -> None:
    """And it has no reason; one that is meant has its own."""
    assert parts.report.explained("tools/call: text", "transparent, 2025-11-25") == ("differs", "")
    assert parts.report.explained("error: own_code", "transparent, 2025-11-25") == ("differs", "")
    assert parts.report.explained("error: own_code", "five, 2025-11-25")[0] == "by contract"
    assert parts.report.explained("shape: icon_without_src", "transparent, 2026-07-28")[0] == "mended"


def test_what_is_not_looked_at_in_five_mode_has_a_reason(parts: Any) -> None:
    """And each of those reasons is for a feature there is: none is left over from one that is looked at by now."""
    left_out = {feature.__name__ for feature in _features(parts) if parts.report.not_in_five(feature.__name__)}

    assert left_out == set(parts.report.NOT_IN_FIVE)
    assert not left_out & {"text", "progress", "updates", "metadata", "found"}


def test_the_newer_server_refuses_a_call_whose_headers_say_something_else(parts: Any) -> None:
    """It answers one whose headers fit, with what it saw of them."""
    call = {"name": "find", "arguments": {"region": "west"}}

    def answered(**headers: str) -> Any:
        return parts.newer_server.answer(SimpleNamespace(headers=headers), "tools/call", call)

    assert answered(**{"mcp-param-region": "east"})["error"]["code"] == -32020
    assert answered()["error"]["code"] == -32020
    (block,) = answered(**{"mcp-param-region": "west"})["result"]["content"]
    assert json.loads(block["text"]) == [{"mcp-param-region": "west"}, {"region": "west"}]


def test_the_page_counts_every_cell_and_numbers_each_reason_once(parts: Any) -> None:
    """A difference without a reason stands out."""
    meant = {"is": "by design", "why": "Because."}
    columns = {"a": {"is": "full"}, "b": meant, "c": {"is": "differs", "why": ""}}
    rows = [{"row": "one | two", "straight": "", "columns": columns}]
    page = parts.report.markdown({"T": rows, "U": rows}, [])

    assert "2 of 6 cells are full; 2 by design, 2 differs." in page
    assert page.count("| one &#124; two | full | by design (1) | **differs** |") == 2
    assert page.count("Because.") == 1


def test_the_odd_server_offers_every_oddity_it_names(parts: Any) -> None:
    """Each shape, name and result is a tool; the same name comes twice where that is the oddity."""
    for kind, wanted in (("shapes", parts.odd_server.SHAPES), ("results", parts.odd_server.RESULTS)):
        (page,) = parts.odd_server.rows(kind)
        assert {row["name"] for row in page} >= set(wanted)
    (page,) = parts.odd_server.rows("names")
    assert [row["name"] for row in page].count("twice") == 2
    assert len(parts.odd_server.rows("pages")) == parts.odd_server.PAGES
