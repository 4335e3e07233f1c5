"""`roster lint`: what a person should mend, with where and how; nothing is connected to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes import Clock, tool
from typer.testing import CliRunner

from roster.cli import app
from roster.config import Home
from roster.errors import ConfigError
from roster.failures import PLATFORM, Failure, FailureKind
from roster.history import History, OutcomeRow
from roster.lint import Finding, Severity, lint
from roster.outcomes import Outcome
from roster.registry import Registry

JAM = {"name": "jam", "description": "Paper is stuck"}


def says(folder: Path, **config: Any) -> Path:
    path = folder / "roster.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def test_a_config_in_order_has_nothing_to_mend(tmp_path: Path) -> None:
    """Neither by its path nor by its folder."""
    path = says(tmp_path, mcpServers={"printer": {"command": "x", "failures": [JAM]}})

    assert lint(path, {}) == lint(tmp_path, {}) == []


def test_every_finding_says_where_and_what_to_do(tmp_path: Path) -> None:
    """Unknown keys, servers that cannot be used, kinds that may not be declared; unset variables are but a warning."""
    path = says(
        tmp_path,
        mod="five",
        mcpServers={
            "printer": {"command": "x", "args": ["${NOT_SET}"], "failures": [{"name": "budget", "description": "x"}]},
            "nothing": {},
            "off": {"command": "x", "disabled": True, "failures": [JAM]},
        },
    )
    found = [(finding.severity.value, finding.where, finding.message) for finding in lint(path, {})]

    assert [(severity, where) for severity, where, _ in found] == [
        ("error", "roster.json"),
        ("error", "printer"),
        ("error", "nothing"),
        ("warning", "printer"),
        ("warning", "off"),
    ]
    words = " ".join(message for *_, message in found)
    for expected in ("did you mean 'mode'?", "'budget'", "name the program", "NOT_SET", "disabled"):
        assert expected in words
    assert not any("NOT_SET" in finding.message for finding in lint(path, {"NOT_SET": "x"}))


@pytest.mark.parametrize("text", ["{", "[]", '{"mcpServers": 7}', "\ud800"])
def test_a_file_that_cannot_be_read_is_a_finding(tmp_path: Path, text: str) -> None:
    """Not a crash."""
    path = tmp_path / "roster.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))

    assert any(finding.severity is Severity.ERROR for finding in lint(path, {}))


def test_nothing_at_the_path_is_misuse(tmp_path: Path) -> None:
    """The message names it."""
    with pytest.raises(ConfigError, match=r"nowhere.*is not there"):
        lint(tmp_path / "nowhere", {})


@pytest.fixture
def printer(home: Home, registry: Registry, history: History, clock: Clock) -> Path:
    """A home with one server, whose tools declare a kind each, one of them badly, and some of whose calls failed."""
    rows = [
        tool("print", _meta={"failures": [JAM | {"person": True}]}),
        tool("scan", _meta={"failures": [JAM, {"name": "Lamp", "description": "x"}]}),
        tool("fax"),
    ]
    registry.sight("printer", rows, clock.now)
    kinds = [PLATFORM[FailureKind.UNDECLARED]] * 2 + [
        Failure("jam", declared=True),
        Failure("lost_it", declared=True),
        PLATFORM[FailureKind.TIMEOUT],
    ]
    for failure in kinds:
        history.record(OutcomeRow("printer__print", "p", Outcome.OTHER, failure, 1.0, clock.now, drafted=False))
    history.record(OutcomeRow("gone__x", "p", Outcome.OTHER, kinds[0], 1.0, clock.now, drafted=False))
    says(home.folder, mcpServers={"printer": {"command": "x", "failures": [JAM]}})
    return home.folder


@pytest.fixture
def history(db: Any) -> History:
    return History(db)


def test_declarations_are_checked_both_ways(printer: Path) -> None:
    """What tools declare, where that contradicts the config, and what was reported without having been declared."""
    assert lint(printer, {}) == [
        Finding(Severity.WARNING, "printer__print",
                "failure kind 'jam': the tool declares other flags than the config, whose flags are used"),
        Finding(Severity.ERROR, "printer__scan",
                "failure kind 'Lamp': a name is lower-case letters, digits and _, begins with a letter and has at most "
                "40 characters"),
        Finding(Severity.ERROR, "printer__print",
                '2 calls failed with a kind that is not declared: declare it under "failures" in the config, or have '
                "its author do so"),
        Finding(Severity.WARNING, "printer__print",
                "failure kind 'lost_it' was reported here and is no longer declared: declare it again"),
    ]  # fmt: skip


def test_the_command_prints_findings_and_exits_with_1_on_errors(printer: Path) -> None:
    """Without a path it is this home that is checked."""
    run = CliRunner().invoke
    done = run(app, ["lint"])
    assert done.exit_code == 1
    assert "printer__scan" in done.stdout
    assert "errors: 2, warnings: 2" in done.stdout

    done = run(app, ["lint", str(printer / "roster.json"), "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {
        "path": str(printer / "roster.json"), "findings": [], "errors": 0, "warnings": 0
    }  # fmt: skip


def test_the_json_form_is_a_list_of_findings(tmp_path: Path) -> None:
    """One document; the exit status is the same."""
    says(tmp_path, mod=1)
    done = CliRunner().invoke(app, ["lint", str(tmp_path), "--json"])

    assert done.exit_code == 1
    shown = json.loads(done.stdout)
    assert (shown["errors"], shown["warnings"]) == (1, 1)
    assert shown["findings"][0].keys() == {"level", "where", "message"}
    assert shown["findings"][0]["level"] == "error"
