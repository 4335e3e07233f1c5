"""What the commands do: each calls one service and prints, as JSON through `out` or as text a person can read."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from roster.app import Roster, open_roster
from roster.backends import ErrorKind
from roster.cards import Kind
from roster.config import Config, ServerSpec, find_home, load_config
from roster.dense import read_manifest
from roster.draft import checked_k, checked_need
from roster.encoder import open_encoder
from roster.errors import EncoderError, RosterError
from roster.explain import draft_json, print_draft
from roster.history import History
from roster.lint import Severity
from roster.lint import lint as find_faults
from roster.quarantine import print_quarantine, quarantine_json
from roster.reindex import embed_missing
from roster.reviewreport import print_review, review_json
from roster.servernotes import ServerNote
from roster.terminal import Out, plain, when

__all__ = ["draft", "lint", "reindex", "sight_all", "status"]

_STYLES = {"answered": "green", "never seen": "yellow", "failed": "red", "misconfigured": "red", "disabled": "dim"}


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
def _progress(label: str) -> Iterator[Callable[[int, int], None]]:
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
        with _progress("embedding") as on_progress:
            embedded = embed_missing(roster.catalogue, roster.writer, home, on_progress=on_progress)
        with _progress("reviewing") as on_progress:
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
    with _progress("asking servers") as on_progress:
        async with roster.running(), anyio.create_task_group() as group:
            total = len(roster.pool)

            async def watch() -> None:
                while True:
                    on_progress(total - len(roster.starting()), total)
                    await anyio.sleep(0.2)

            group.start_soon(watch)
            await roster.pool.settled()
            group.cancel_scope.cancel()


# --------------------------------------------------------------------------------------------- status


def status(*, out: Out) -> None:
    """Print what is known of everything, without connecting to anything."""
    home = find_home()
    config = load_config(home)
    with open_roster(config, home) as roster:
        seen = _status(roster)
    if out is not None:
        out(seen)
    else:
        _print_status(seen, config)


def _last_known(spec: ServerSpec | None, note: ServerNote | None) -> str:
    """What a server last did, whichever process saw it: nothing here is connected to ask."""
    if spec is None:
        return "misconfigured"
    if spec.disabled:
        return "disabled"
    if note is None or (note.listed_at is None and note.error_at is None):
        return "never seen"
    if note.error_at is not None and note.error_at >= (note.listed_at or 0.0):
        return "misconfigured" if note.error_kind == ErrorKind.CONFIG else "failed"
    return "answered"


def _status(roster: Roster) -> dict[str, Any]:
    config, home = roster.config, roster.home
    roster.catalogue.refresh()
    notes = roster.writer.registry.servers.all()
    living = roster.catalogue.living()
    names = dict.fromkeys([*config.servers, *(problem.server for problem in config.problems if problem.server)])
    servers = {}
    for name in names:
        spec, note = config.servers.get(name), notes.get(name)
        servers[name] = {
            "state": _last_known(spec, note),
            "tools": sum(entry.card.server == name for entry in living),
            "rejected": list(note.rejected) if note else [],
            "connect_ms": round(note.connect_ms, 1) if note and note.connect_ms is not None else None,
            "listed_at": note.listed_at if note else None,
            "last_error": note.error_kind if note else None,
            "last_error_at": note.error_at if note else None,
            "reason": note.reason if note else None,
            "problems": config.problems_of(name),
        }
    manifest = read_manifest(home.index)
    calls = History(roster.writer.db).tallies()
    encoder: dict[str, Any] = {"model": config.settings.model or "default"}
    try:
        opened = open_encoder(config.settings.model, config.settings.threads)
        encoder |= {"name": opened.name, "dim": opened.dim, "fingerprint": opened.fingerprint}
        roster.catalogue.attach(opened, home.index)
        encoder["unembedded"] = len(roster.catalogue.unread_texts())
    except EncoderError as error:
        encoder["error"] = str(error)
    return {
        "home": str(home.folder),
        "mode": config.settings.mode.value,
        "servers": servers,
        "cards": len(living),
        "skills": _skills(roster),
        "quarantined": sorted(entry.card.id for entry in living if entry.quarantined),
        "quarantine": quarantine_json(roster),
        "review": review_json(roster),
        "index": manifest,
        "encoder": encoder,
        "calls": sum(tally.calls for tally in calls.values()),
        "learning": _learning(roster),
        "problems": [str(problem) for problem in config.problems],
    }


def _skills(roster: Roster) -> dict[str, Any]:
    """How many skills are on file, which of them are never drafted, and where they are looked for."""
    cards = [entry.card for entry in roster.catalogue.living() if entry.card.kind is Kind.SKILL]
    roots = [str(root.path) for root in roster.skills.playbook.roots if root.path.is_dir()]
    return {"cards": len(cards), "by_id_only": sorted(card.id for card in cards if not card.offered), "roots": roots}


def _learning(roster: Roster) -> dict[str, Any] | None:
    """What past outcomes count at present; None when learning is off."""
    if roster.learner is None:
        return None
    roster.learner.refresh()
    return roster.learner.figures()


def _print_status(seen: dict[str, Any], config: Config) -> None:
    console = Console()
    encoder, index = seen["encoder"], seen["index"]
    console.print(plain(f"home {seen['home']}, mode {seen['mode']}"))
    table = Table()
    for heading in ("server", "state", "tools", "connect", "listed", "last error"):
        table.add_column(heading, justify="right" if heading in ("tools", "connect") else "left")
    for name, server in seen["servers"].items():
        connect = "" if server["connect_ms"] is None else f"{server['connect_ms']:.0f} ms"
        error = f"{server['last_error']}, {when(server['last_error_at'])}" if server["last_error"] else ""
        cells = [name, Text(server["state"], style=_STYLES.get(server["state"], "")), server["tools"], connect]
        table.add_row(*(plain(c) if not isinstance(c, Text) else c for c in [*cells, when(server["listed_at"]), error]))
    console.print(table)
    covered = f"{index['count']} cards, encoder {index['encoder'][:8]}" if index else "not made yet (roster reindex)"
    console.print(
        plain(f"{seen['cards']} cards, {len(seen['quarantined'])} quarantined, {seen['calls']} calls recorded")
    )
    if (skills := seen["skills"])["cards"]:
        asked = f", {len(skills['by_id_only'])} of them by id only" if skills["by_id_only"] else ""
        console.print(plain(f"skills: {skills['cards']}{asked}, from {', '.join(skills['roots'])}"))
    console.print(plain(f"index: {covered}"))
    if seen["learning"]:
        learnt, weights = seen["learning"], seen["learning"]["weights"]
        console.print(
            plain(
                f"learning: {learnt['outcomes']} outcomes of {learnt['cards']} cards; nearness counts "
                f"{weights['near']:g}, share {weights['share']:g}{', slowly' if weights['slow'] else ''}, "
                f"the adapter {weights['adapter']:g} "
                f"(nDCG@5 {learnt['gain']:+.3f} on them)"
            )
        )
    named = encoder.get("name") or encoder["model"]
    waiting = f", {encoder['unembedded']} texts to embed (roster reindex)" if encoder.get("unembedded") else ""
    console.print(plain(f"encoder: {named}{waiting}"))
    print_quarantine(console, seen["quarantine"], config)
    print_review(console, seen["review"])
    for problem in [*seen["problems"], *([encoder["error"]] if "error" in encoder else [])]:
        console.print(Text(f"problem: {problem}", style="yellow"))
    for name, server in seen["servers"].items():
        if server["state"] in ("failed", "misconfigured") and server["reason"]:
            console.print(Text(f"problem: {name}: {server['reason']}", style="yellow"))
        if server["rejected"]:
            console.print(plain(f"problem: {name}: unusable tools: {', '.join(server['rejected'])}"), style="yellow")


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
