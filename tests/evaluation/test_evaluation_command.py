"""`roster eval` on the command line: figures on stdout, progress on stderr, files where they were asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from roster.errors import NeedError, NeedSetError, RosterError
from roster.evaluation.command import eval_command

Run = Callable[..., Result]


@pytest.fixture
def run(folder: Path) -> Run:
    """Run the command on the small need set, by words alone unless a system is named."""
    app = typer.Typer()
    app.command("eval")(eval_command)

    def invoke(
        *arguments: object, sets: tuple[Path, ...] = (folder,), systems: tuple[str, ...] = ("lexical",)
    ) -> Result:
        named = [part for system in systems for part in ("--system", system)]
        return CliRunner().invoke(app, [*map(str, sets), *named, *map(str, arguments)], env={"COLUMNS": "200"})

    return invoke


def test_json_is_one_document_and_progress_goes_to_stderr(run: Run, tmp_path: Path) -> None:
    """All three systems when none is named, hybrid first; vectors are kept in Roster's home."""
    result = run("--json", systems=())

    figures = json.loads(result.stdout)
    assert result.exit_code == 0
    assert figures["systems"] == ["hybrid", "dense", "lexical"]
    assert figures["measures"] == ["ndcg@5", "recall@5", "hit@1", "hit@5", "mrr", "all@5"]
    assert "results" not in figures
    assert "roster: small: embedding, roster-minilm (6)" in result.stderr
    assert "roster: small: drafting, roster-minilm (4)" in result.stderr
    assert "1 needs have no card with a grade above 0 and are left out" in result.stderr
    home = tmp_path / "home"
    assert [path.name[:6] for path in (home / "eval-cache").iterdir()] == ["small-"]
    assert os.name == "nt" or home.stat().st_mode & 0o077 == 0


def test_a_table_is_what_a_person_gets(run: Run, tmp_path: Path) -> None:
    result = run("-k", 2, "--cache", tmp_path / "cache")

    assert result.exit_code == 0
    for word in ("small", "lexical", "ndcg@2", "all@2", "unmet", "0.0%", "o200k_base"):
        assert word in result.stdout
    assert (tmp_path / "cache").is_dir()


def test_files_go_where_they_were_asked_for(run: Run, tmp_path: Path) -> None:
    """Report, per-need results, TREC runs and qrels, and one run alone; folders are made."""
    out = tmp_path / "deep"
    result = run(
        "--report", out / "report", "--out", out / "results", "--trec", out / "trec", "--run", out / "one" / "a.run"
    )

    assert result.exit_code == 0, result.exception
    found = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    assert found == [
        "one/a.run",
        "report/index.html",
        "report/results.json",
        "results/results.json",
        "trec/small.lexical.run",
        "trec/small.qrels",
    ]
    assert (out / "one/a.run").read_bytes() == (out / "trec/small.lexical.run").read_bytes()
    assert (out / "report/results.json").read_bytes() == (out / "results/results.json").read_bytes()


def test_a_run_that_went_out_scores_the_same_when_it_comes_in(run: Run, tmp_path: Path) -> None:
    run("--trec", tmp_path)

    figures = json.loads(run("--run-in", f"ours={tmp_path}/{{set}}.lexical.run", "--json").stdout)

    found = figures["sets"]["small"]["systems"]
    assert figures["systems"] == ["lexical", "ours"]
    for measure, cell in found["ours"]["measures"].items():
        assert cell["difference"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
        assert cell["mean"] == found["lexical"]["measures"][measure]["mean"]
    assert found["ours"]["tokens"] == found["lexical"]["tokens"]


@pytest.mark.parametrize(
    ("arguments", "systems", "message"),
    [
        (("--run-in", "x"), ("lexical",), "write NAME=FILE"),
        (("--run-in", "lexical=x"), ("lexical",), "which is a system"),
        (("--seed", "-1"), ("lexical",), "--seed"),
        ((), ("bm42",), "is not known: use lexical, dense, hybrid or learned"),
    ],
)
def test_a_misuse_is_told_with_status_two(
    run: Run, arguments: tuple[str, ...], systems: tuple[str, ...], message: str
) -> None:
    result = run(*arguments, systems=systems)

    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize("arguments", [("--run", "x.run"), ("--run-in", "x=file.run")])
def test_what_is_of_one_set_is_refused_for_several(
    run: Run, arguments: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    result = run(*arguments, sets=(folder, tmp_path))

    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("-k", "11"), NeedError, "from 1 to 10"),
        (("--split", "dev"), NeedSetError, "splits that are there: test"),
        (("--run-in", "x=nowhere.run"), NeedSetError, "nowhere.run: cannot be read"),
        (("--report", os.devnull + "/x"), RosterError, "cannot be made"),
    ],
)
def test_what_cannot_be_done_is_an_error_of_ours(
    run: Run, arguments: tuple[str, ...], error: type[RosterError], message: str
) -> None:
    """The command line makes one line and an exit status of it; nothing is on stdout."""
    result = run(*arguments)

    assert isinstance(result.exception, error)
    assert message in str(result.exception)
    assert result.stdout == ""


def test_nothing_that_serves_knows_of_evaluation() -> None:
    """Nor does importing it load ir-measures, a tokenizer, a model or FAISS."""
    from fakes import python

    code = """
import sys
import roster.serve, roster.server, roster.app, roster.commands
assert not [name for name in sys.modules if name.startswith("roster.evaluation")]
import roster.evaluation.report, roster.evaluation.trec, roster.evaluation.command
assert not {"ir_measures", "bpe_openai", "faiss", "onnxruntime", "torch"} & sys.modules.keys()
"""
    child = python(code)
    assert child.communicate(timeout=60) == ("", "")
