"""`roster eval replay` on the command line, its page, and the system `learned` of plain `roster eval`."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from test_evaluation_report import Outline
from typer.testing import CliRunner, Result

from roster.errors import NeedSetError
from roster.evaluation import Need, Plan, evaluate, parse_system, read_needset
from roster.evaluation.command import EvalCommand, eval_command
from roster.evaluation.replay import SCENARIOS
from roster.evaluation.replay_report import replay_page

TRAIN = ["6\tmail-1\t1", "7\tweather\t1", "8\tmail-2\t1", "9\tfiles-2\t1"]
MORE = [
    {"_id": "6", "text": "write to my sister"},
    {"_id": "7", "text": "do I need an umbrella?"},
    {"_id": "8", "text": "anything new in the post?"},
    {"_id": "9", "text": "something sweet for sunday"},
]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory, write_set: Any) -> Path:
    """The small set, with a train split."""
    return with_train(tmp_path_factory.mktemp("sets") / "small", write_set)


def with_train(folder: Path, write_set: Any) -> Path:
    write_set(folder)
    lines = [json.dumps(row) for row in MORE]
    with (folder / "queries.jsonl").open("a", encoding="utf-8") as out:
        out.write("".join(f"{line}\n" for line in lines))
    (folder / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *TRAIN, ""]), "utf-8")
    return folder


def run(*arguments: object) -> Result:
    app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})
    app.command("eval", cls=EvalCommand)(eval_command)
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def figures(taught: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every scenario, by the embedded encoder."""
    result = run("replay", taught, "--json", "--limit", 3, "--cache", tmp_path_factory.mktemp("cache"))
    assert result.exit_code == 0, result.exception
    assert "roster: small: test needs after all outcomes (4)" in result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_json_is_one_document_with_every_scenario(figures: dict[str, Any], taught: Path) -> None:
    """And names no path of this machine."""
    small = figures["sets"]["small"]

    assert figures["scenarios"] == list(SCENARIOS)
    assert set(SCENARIOS) <= small.keys()
    assert small["needs"] == {"train": 4, "test": 4}
    assert small["harm"]["needs"] == 4
    assert small["curve"]["needs"] == 3
    assert figures["single_centroid"] == {"alpha": 0.3, "beta": 0.1, "rounds": 3, "positives": 4}
    assert figures["mean"]["learned"]["ndcg@5"]["mean"] == small["harm"]["systems"]["learned"]["ndcg@5"]["mean"]
    assert str(taught.parent) not in json.dumps(figures)


def test_the_page_needs_nothing_else(figures: dict[str, Any]) -> None:
    """Well-formed, no script, no network, each plot with a title and a text that tells what it shows."""
    text = replay_page(figures)
    outline = Outline(text)

    assert outline.open == []
    assert not set(outline.tags) & {"script", "link", "img", "iframe", "object"}
    assert "http:" not in text
    assert "https:" not in text
    assert "url(" not in text
    assert outline.tags.count("svg") == outline.tags.count("desc") == 4
    for title in ("No harm", "Learning curves", "Label noise", "Poisoning and recovery", "Drift in mid-stream"):
        assert title in outline.texts["h2"]


def test_poison_and_modes_are_shown_where_there_were_any(figures: dict[str, Any]) -> None:
    counts = {"families": 1, "needs": 4, "led": 4, "displaced": 1, "shown": 4, "left": 0}
    shares = {"displaced_share": 0.25, "left_share": 0.0}
    after = {"wrong": 4, "right": 4, **counts, **shares, "restored_share": 1.0}
    one = {"wrong": [{"wrong": 4, **counts, **shares}], "recovered": after}
    found = json.loads(json.dumps(figures))
    means = {"ndcg@5": 0.75, "hit@1": 0.5, "hit@5": 1.0}
    found["sets"]["small"]["modes"] = {"pairs": 1, "own": {"needs": 2, "systems": {"learned": means}}}
    found["pooled"]["poison"] = found["sets"]["small"]["poison"]["attackers"] = {"near": one, "far": one}

    outline = Outline(replay_page(found))

    assert outline.tags.count("svg") == 6
    assert "near, 4 wrong: 25.0%" in outline.texts["title"]
    assert "0.750, hit@1 0.500" in outline.texts["td"]
    assert "displaced 25.0%, restored 100.0%" in outline.texts["td"]


def test_a_table_is_what_a_person_gets(taught: Path, tmp_path: Path) -> None:
    """Files go where they were asked for; one scenario alone is one scenario alone."""
    out = tmp_path / "deep"
    result = run("replay", taught, "-s", "failures", "--cache", tmp_path, "--report", out / "page", "--out", out)

    assert result.exit_code == 0, result.exception
    for word in ("small", "failures", "base"):
        assert word in result.stdout
    found = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    assert found == ["page/index.html", "page/replay.json", "replay.json"]
    figures = json.loads((out / "replay.json").read_text("utf-8"))
    assert (figures["scenarios"], figures["mean"]) == (["failures"], None)
    assert "No harm" not in (out / "page/index.html").read_text("utf-8")


def test_a_folder_named_replay_is_still_a_set(tmp_path: Path, write_set: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with_train(tmp_path / "replay", write_set)
    monkeypatch.chdir(tmp_path)

    result = run("./replay", "--system", "lexical", "--json")

    assert result.exit_code == 0, result.exception
    assert list(json.loads(result.stdout)["sets"]) == ["replay"]


def test_the_replay_explains_itself() -> None:
    result = run("replay", "--help")

    assert result.exit_code == 0
    assert "--scenario" in result.stdout
    assert "eval replay" in result.stdout
    assert "eval replay" in run("--help").stdout


def test_a_misuse_is_told_with_status_two(taught: Path, folder: Path, tmp_path: Path) -> None:
    unknown = run("replay", taught, "--scenario", "luck")
    assert unknown.exit_code == 2
    assert "'luck' is not known: use harm, curve" in " ".join(unknown.stderr.replace("│", " ").split())
    missing = run("replay", folder)
    assert isinstance(missing.exception, NeedSetError)
    assert "splits that are there: test" in str(missing.exception)


# ------------------------------------------------------------------------------------------------ learned


def test_learned_is_hybrid_after_outcomes(taught: Path, tmp_path: Path) -> None:
    """A train need asked again finds what served it, and the home that is kept has seen nothing."""
    cache = tmp_path / "cache"
    again = replace(read_needset(taught), needs=(Need("again", "do I need an umbrella?", {"weather": 1}),))
    systems = [parse_system(name) for name in ("hybrid", "learned")]

    found = evaluate([again], Plan(systems, 3, 13, cache, {}), lambda *_: None)

    one, other = (found.records["small"]["again"]["systems"][name] for name in ("hybrid", "learned"))
    assert other["rank"] <= one["rank"]
    assert dict(other["top"])["weather"] > dict(one["top"])["weather"]
    assert found.figures["sets"]["small"]["systems"]["learned"]["encoder"]["name"] == "roster-minilm"
    (home,) = cache.iterdir()
    db = sqlite3.connect(home / "roster.db")
    assert db.execute("SELECT count(*) FROM outcomes").fetchone() == (0,)
    db.close()


def test_what_was_taught_is_not_asked(taught: Path, tmp_path: Path) -> None:
    plan = Plan([parse_system("learned")], 3, 13, tmp_path, {})

    with pytest.raises(NeedSetError, match="name another split"):
        evaluate([read_needset(taught, "train")], plan, lambda *_: None)
