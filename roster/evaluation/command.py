"""`roster eval`: parse, evaluate, print and write. Figures go to stdout, progress to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from roster.errors import RosterError

__all__ = ["EvalCommand", "eval_command", "make_folders", "progress_bar", "say"]


REPLAY = "replay"


class EvalCommand(TyperCommand):
    """`roster eval SET...`, and `roster eval replay SET...` where the first word is `replay`.

    A folder of that name is still a set when it is given as `./replay`.
    """

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of this command or, by the first word, of the replay."""
        if args[:1] != [REPLAY]:
            return super().make_context(info_name, args, parent, **extra)
        from roster.evaluation.replay_command import replay_app

        return typer.main.get_command(replay_app).make_context(f"{info_name} {REPLAY}", args[1:], parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run whichever command the context is of."""
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)


def eval_command(
    sets: Annotated[list[Path], typer.Argument(metavar="SET", help="Need sets: folders in BEIR layout.")],
    system: Annotated[
        list[str] | None,
        typer.Option(
            "--system",
            "-s",
            help="lexical, dense, hybrid, learned (hybrid after outcomes from qrels/train.tsv), or dense:, hybrid: or "
            "learned: with NAME_OR_PATH of another encoder; once for each. "
            "The first is what the others are compared with. Without any: hybrid, dense, lexical.",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", "--k", help="How many cards count (1 to 10).")] = 5,
    split: Annotated[str, typer.Option("--split", help="Which qrels: the name of a file in qrels/.")] = "test",
    run: Annotated[Path | None, typer.Option("--run", help="Write the first system's TREC run of the one set.")] = None,
    run_in: Annotated[
        list[str] | None,
        typer.Option(
            "--run-in", metavar="NAME=FILE", help="Add a TREC run as a system; {set} in FILE is the set's name."
        ),
    ] = None,
    trec: Annotated[Path | None, typer.Option("--trec", help="Write every run and the qrels into this folder.")] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write a page with plots into this folder.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write results.json, need by need, into this folder.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Where vectors are kept, instead of eval-cache in Roster's home.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the bootstrap.")] = 13,
    threads: Annotated[int, typer.Option("--threads", min=1, max=64, help="Threads of the encoder.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Ranking quality on labelled need sets: nDCG, recall, hits, MRR, with intervals; and what drafts cost.

    `roster eval replay SET...` replays outcomes first, right ones and wrong ones: see `roster eval replay --help`.
    """
    from roster.config import find_home, open_home
    from roster.draft import checked_k
    from roster.evaluation.comparison import Plan, Rankings, evaluate
    from roster.evaluation.needsets import NeedSet, read_needset
    from roster.evaluation.report import write_report, write_results
    from roster.evaluation.systems import DEFAULT_SYSTEMS, parse_system
    from roster.evaluation.trec import file_stem, write_qrels, write_run

    runs = dict(_run_in(written) for written in run_in or [])
    names = list(dict.fromkeys(system or DEFAULT_SYSTEMS))
    if clash := set(names) & runs.keys():
        raise typer.BadParameter(f"--run-in names {', '.join(sorted(clash))}, which is a system: give it another name")
    if run is not None and len(sets) > 1:
        raise typer.BadParameter("--run writes the run of one set: use --trec FOLDER for several")
    if len(sets) > 1 and (bare := [name for name, pattern in runs.items() if "{set}" not in pattern]):
        raise typer.BadParameter(f"--run-in {bare[0]}: with several sets the file's name needs {{set}} in it")
    try:
        systems = [parse_system(name) for name in names]
    except RosterError as error:
        raise typer.BadParameter(str(error)) from None
    checked_k(k)
    needsets = [read_needset(folder, split) for folder in sets]
    for needset in needsets:
        if needset.skipped:
            say(f"{needset.name}: {needset.skipped} needs have no card with a grade above 0 and are left out")
    folders = [folder for folder in (trec, report, out, run.parent if run else None) if folder is not None]
    make_folders(folders)

    def on_rankings(needset: NeedSet, rankings: Rankings) -> None:
        if trec is not None:
            write_qrels(trec / f"{file_stem(needset.name)}.qrels", needset)
            for name, ranked in rankings.items():
                write_run(trec / f"{file_stem(needset.name)}.{file_stem(name)}.run", ranked, name)
        if run is not None:
            write_run(run, rankings[names[0]], names[0])

    plan = Plan(systems, k, seed, cache or open_home(find_home()).folder / "eval-cache", runs, threads)
    with progress_bar() as progress:
        evaluation = evaluate(needsets, plan, progress, on_rankings)
    if out is not None:
        write_results(out, evaluation)
    if report is not None:
        say(f"report: {write_report(report, evaluation)}")
    if as_json:
        print(json.dumps(evaluation.figures, indent=1))
    else:
        _print_tables(evaluation.figures)


def _run_in(written: str) -> tuple[str, str]:
    name, _, pattern = written.partition("=")
    if not name.strip() or not pattern:
        raise typer.BadParameter(f"--run-in {written!r}: write NAME=FILE")
    return name.strip(), pattern


def make_folders(folders: list[Path]) -> None:
    """Make folders that results go to. Raises RosterError for one that cannot be made."""
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RosterError(
                f"{folder} cannot be made ({error.strerror}): name a folder that can be written"
            ) from None


def say(what: str) -> None:
    """A line on stderr."""
    print(f"roster: {what}", file=sys.stderr)


@contextmanager
def progress_bar() -> Iterator[Any]:
    """What `evaluate` tells, as a bar on stderr; a line a step where that is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def told(label: str, done: int, total: int) -> None:
            if label not in tasks:
                if not console.is_terminal:
                    say(f"{label} ({total:,})")
                for task in tasks.values():
                    bar.update(task, visible=False)
                tasks[label] = bar.add_task(label, total=total)
            bar.update(tasks[label], completed=done)

        yield told


def _print_tables(figures: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    sets = figures["sets"]
    table = Table(
        caption=f"second number: difference from {figures['baseline']}, * where its 95 % interval is clear of 0; "
        f"unmet: needs told that nothing fits; tokens of a draft by {figures['tokenizer']}; its ms, p50 and p95",
        caption_justify="left",
    )
    for heading in ("set", "needs", "system", *figures["measures"], "unmet", "tokens", "ms"):
        table.add_column(heading, justify="left" if heading in ("set", "system") else "right")
    rows = [(name, str(found["needs"]), found["systems"]) for name, found in sets.items()]
    if len(rows) > 1:
        rows.append(("mean", "", figures["mean"]))
    for name, needs, systems in rows:
        table.add_section()
        for place, system in enumerate(figures["systems"]):
            found = systems[system]
            cells = [_cell(found["measures"][measure]) for measure in figures["measures"]]
            unmet = f"{found['drafted']['unmet_share']:.1%}" if "drafted" in found else ""
            tokens = f"{found['tokens']['mean']:,.0f}" if "tokens" in found else ""
            ms = f"{found['draft_ms']['p50']:.0f}, {found['draft_ms']['p95']:.0f}" if found.get("draft_ms") else ""
            first = (name, needs) if not place else ("", "")
            table.add_row(*(Text(cell) for cell in (*first, system, *cells, unmet, tokens, ms)))
    console.print(table)


def _cell(found: Mapping[str, Any]) -> str:
    apart = found.get("difference")
    if apart is None:
        return f"{found['mean']:.3f}"
    clear = "*" if apart["low"] > 0 or apart["high"] < 0 else " "
    return f"{found['mean']:.3f} {apart['mean']:+.3f}{clear}"
