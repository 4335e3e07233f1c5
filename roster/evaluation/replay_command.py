"""`roster eval replay`: parse, replay, print and write. Figures go to stdout, progress to stderr."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from roster.evaluation.command import make_folders, progress_bar, say

__all__ = ["replay_app", "replay_command"]

replay_app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, add_completion=False)


@replay_app.command("replay")
def replay_command(
    sets: Annotated[
        list[Path], typer.Argument(metavar="SET", help="Need sets in BEIR layout, with qrels for train and test.")
    ],
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            "--scenario",
            "-s",
            help="harm, curve, noise, failures, poison, modes, duplicates, boilerplate or drift; once for each. "
            "Without any: all.",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", "--k", help="How many cards count (1 to 10).")] = 5,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Test needs a set, by chance; the scenario harm asks them all.")
    ] = None,
    outcomes: Annotated[int | None, typer.Option("--outcomes", min=1, help="Outcomes a set at most.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME_OR_PATH", help="Another encoder than the default.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write a page with plots into this folder.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write replay.json into this folder.")] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Where vectors are kept, instead of eval-cache in Roster's home.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the outcomes and of the bootstrap.")] = 13,
    threads: Annotated[int, typer.Option("--threads", min=1, max=64, help="Threads of the encoder.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """What learning does: outcomes of train needs, right and wrong ones, and then the test needs.

    Each set is put into a home of its own that is gone afterwards, and taught through the real history, learner and
    ranker. Beside it stand no learning, and the published method of one centroid a card.
    """
    from roster.config import find_home, open_home
    from roster.draft import checked_k
    from roster.evaluation.replay import SCENARIOS, ReplayPlan, read_lesson, replay
    from roster.evaluation.replay_report import write_replay, write_replay_report

    names = list(dict.fromkeys(scenario or SCENARIOS))
    if unknown := [name for name in names if name not in SCENARIOS]:
        raise typer.BadParameter(f"scenario {unknown[0]!r} is not known: use {', '.join(SCENARIOS)}")
    checked_k(k)
    lessons = [read_lesson(folder) for folder in sets]
    make_folders([folder for folder in (report, out) if folder is not None])
    kept = cache or open_home(find_home()).folder / "eval-cache"
    with progress_bar() as progress:
        figures = replay(lessons, ReplayPlan(names, k, seed, kept, limit, outcomes, model, threads), progress)
    if out is not None:
        write_replay(out, figures)
    if report is not None:
        say(f"report: {write_replay_report(report, figures)}")
    if as_json:
        print(json.dumps(figures, indent=1))
    else:
        _print_tables(figures)


def _print_tables(figures: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from roster.evaluation.replay_report import harm_rows, rows_of

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    if figures["mean"]:
        table = Table(title="No harm: every test need, after all outcomes", title_justify="left")
        names = list(figures["mean"])
        for heading in ("set", "needs", "outcomes", *names):
            table.add_column(heading, justify="left" if heading == "set" else "right")
        for row in harm_rows(figures):
            table.add_row(*map(Text, row))
        console.print(table)
    table = Table("set", "scenario", "what", "figure")
    for cells in rows_of(figures):
        table.add_row(*map(Text, cells))
    if table.row_count:
        console.print(table)
