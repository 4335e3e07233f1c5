"""What the commands do: each calls one service and prints, as JSON through `out` or as text a person can read."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from roster.app import Roster, open_roster
from roster.config import find_home, load_config
from roster.draft import checked_k, checked_need
from roster.errors import RosterError
from roster.explain import draft_json, print_draft
from roster.history import History
from roster.lint import Severity
from roster.lint import lint as find_faults
from roster.reindex import embed_missing
from roster.terminal import Out, plain

__all__ = ["draft", "lint", "progress", "reindex", "sight_all"]

# ---------------------------------------------------------------------------------------------- draft


def draft(need: str, k: int, *, explain: bool, out: Out) -> None:
    """Print the draft for a need."""
    need, k = checked_need(need), checked_k(k)
    home = find_home()
    config = load_config(home)
    with open_roster(config, home) as roster:
        roster.warm_up()
        if not roster.catalogue.draftable():
            raise RosterError("no card is on file yet: run `roster reindex` first")
        missing = len(roster.catalogue.unread_texts())
        made = roster.draft_now(need, k)
    if missing:
        print(
            f"roster: {missing} texts have no vector yet and count by words alone: run `roster reindex`",
            file=sys.stderr,
        )
    if out is not None:
        out(draft_json(made, explain))
    else:
        print_draft(made, explain)


# -------------------------------------------------------------------------------------------- reindex


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr; nothing when that is not a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def reindex(*, full: bool, model: str | None, out: Out) -> None:
    """Sight every server, embed what is new or changed, swap the index in; print the figures."""
    home = find_home()
    config = load_config(home)
    if model is not None:
        config = config.with_model(model)
    for problem in config.problems:
        print(f"roster: {home.config.name}: {problem}", file=sys.stderr)
    begun = time.perf_counter()
    with open_roster(config, home) as roster:
        roster.warm_up()
        unread = _needs_of_others(roster)
        if unread:
            _say_what_it_costs(unread, trying=model is not None)
        anyio.run(sight_all, roster)
        roster.skills.sight()
        roster.catalogue.refresh()
        if full:
            roster.forget_vectors()
        with progress("embedding") as on_progress:
            embedded = embed_missing(roster.catalogue, roster.writer, home, on_progress=on_progress)
        with progress("reviewing") as on_progress:
            roster.review(on_progress)
        if unread and model is None and roster.catalogue.encoder is not None:
            with roster.writer.lock:
                History(roster.writer.db).forget_other_encoders(roster.catalogue.encoder.fingerprint)
        roster.prune_history()
        roster.learn(always=True)
        sightings = [sighting for each in roster.sightings.values() for sighting in each] + roster.skills.sightings
        living = roster.catalogue.living()
        failed = {name: b.reason for name, b in roster.pool.items() if name not in roster.sightings}
        figures = {
            "cards": len(living),
            "added": sum(len(sighting.added) for sighting in sightings),
            "changed": sum(len(sighting.changed) for sighting in sightings),
            "removed": sum(len(sighting.removed) for sighting in sightings),
            "embedded": embedded,
            "quarantined": sum(entry.quarantined for entry in living),
            "seconds": round(time.perf_counter() - begun, 2),
            "failed": failed,
        } | ({"needs_dropped": unread} if unread and model is None else {})
    nobody = bool(failed) and len(failed) == len(roster.pool)
    if out is not None:
        out(figures)
        _exit_if(nobody)
        return
    for name, reason in failed.items():
        print(f"roster: {name}: {reason}", file=sys.stderr)
    unheard = f"; {len(failed)} of {len(roster.pool)} servers not reached" if failed else ""
    counts = "{cards} cards: {added} added, {changed} changed, {removed} removed; {embedded} newly embedded"
    print(f"{counts}, {{quarantined}} quarantined; {{seconds}} s".format(**figures) + unheard)
    if model is not None:
        print(f'To draft with this model, put "model": "{model}" into {home.config}')
    _exit_if(nobody)


def _needs_of_others(roster: Roster) -> int:
    """How many needs on record another encoder has read: this one can learn nothing from them."""
    encoder = roster.catalogue.encoder
    counts = History(roster.writer.db).encoders()
    return sum(count for name, count in counts.items() if encoder is not None and name != encoder.fingerprint)


def _say_what_it_costs(needs: int, *, trying: bool) -> None:
    """Before anything is done: what was learned from needs goes with the model that read them."""
    what = f"{needs} past needs were read by another model; their words are not kept, so they teach this one nothing"
    then = (
        "they stay until this model is the one in roster.json and the index is made with it"
        if trying
        else "they are dropped at the end of this run; stop it now (Ctrl-C) and put the old model back to keep them"
    )
    print(f"roster: {what}: {then}. Ratings stay.", file=sys.stderr)


def _exit_if(nobody: bool) -> None:
    if nobody:
        raise RosterError("no server answered; what was on file is kept")


async def sight_all(roster: Roster) -> None:
    """Ask every server of an opened Roster for its tools, with a progress bar on stderr; done when all settled."""
    with progress("asking servers") as on_progress:
        async with roster.running(), anyio.create_task_group() as group:
            total = len(roster.pool)

            async def watch() -> None:
                while True:
                    on_progress(total - len(roster.starting()), total)
                    await anyio.sleep(0.2)

            group.start_soon(watch)
            await roster.pool.settled()
            group.cancel_scope.cancel()


# ----------------------------------------------------------------------------------------------- lint


def lint(path: Path | None, *, out: Out) -> int:
    """Print what a person should mend in a config; how many errors there are."""
    path = path if path is not None else find_home().folder
    findings = find_faults(path, os.environ)
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    if out is not None:
        rows = [{"level": f.severity.value, "where": f.where, "message": f.message} for f in findings]
        out({"path": str(path), "findings": rows, "errors": errors, "warnings": len(findings) - errors})
        return errors
    console = Console()
    for finding in findings:
        style = "red" if finding.severity is Severity.ERROR else "yellow"
        line = Text(f"{finding.severity.value}: ", style=style) + plain(f"{finding.where}: {finding.message}")
        console.print(line, soft_wrap=True)
    console.print(f"errors: {errors}, warnings: {len(findings) - errors}")
    return errors
