"""`roster status`: the page a user lives on. Everything as last known; with `check` every server is tried first."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from roster.app import Roster, open_roster
from roster.backends import ErrorKind
from roster.cards import Kind
from roster.config import Config, ServerSpec, find_home, load_config
from roster.dense import read_manifest
from roster.encoder import open_encoder
from roster.errors import EncoderError, RosterError
from roster.history import History
from roster.quarantine import print_quarantine, quarantine_json
from roster.reviewreport import print_review, review_json
from roster.servernotes import ServerNote
from roster.statuscheck import check_all
from roster.statusfacts import Today, calls_today, problem_lines, together
from roster.terminal import Out, plain, when

__all__ = ["status"]

_STYLES = {"answered": "green", "never seen": "yellow", "failed": "red", "misconfigured": "red", "disabled": "dim"}


def status(*, check: bool = False, watch_s: float | None = None, out: Out = None) -> bool:
    """Print what is known of everything; whether every server that was tried answered.

    check: connect to every server first; otherwise nothing is connected to. watch_s: again and again, on a terminal,
    with so many seconds between, until it is interrupted. Raises ConfigError, StoreError, RosterError.
    """
    if watch_s is None:
        return _once(check, out, Console())
    console = Console()
    if out is not None or not console.is_terminal:
        raise RosterError("--watch wants a terminal: leave it out, or call `roster status --json` now and then")
    if check:
        raise RosterError("--watch only looks, and --check starts every server: use one of them at a time")
    try:
        with console.screen():
            while True:
                console.clear()
                _once(False, None, console)
                time.sleep(watch_s)
    except KeyboardInterrupt:
        return True


def _once(check: bool, out: Out, console: Console) -> bool:
    home = find_home()
    config = load_config(home)
    with open_roster(config, home) as roster:
        checked = check_all(roster) if check else {}
        seen = _status(roster)
    for name, found in checked.items():
        seen["servers"][name]["check"] = found.wire()
    if out is not None:
        out(seen)
    else:
        _print_status(seen, config, console)
    return all(found.ok for found in checked.values())


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
    called = calls_today(roster, time.time())
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
            "today": called.get(name, Today()).wire(),
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
        "today": together(called.values()).wire(),
        "problems": [str(problem) for problem in config.problems],
        "problem_lines": problem_lines(config),
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


def _print_status(seen: dict[str, Any], config: Config, console: Console) -> None:
    encoder, index = seen["encoder"], seen["index"]
    console.print(plain(f"home {seen['home']}, mode {seen['mode']}"))
    table = Table()
    for heading in ("server", "state", "tools", "connect", "listed", "today", "last error"):
        table.add_column(heading, justify="right" if heading in ("tools", "connect") else "left")
    for name, server in seen["servers"].items():
        connect = "" if server["connect_ms"] is None else f"{server['connect_ms']:.0f} ms"
        error = f"{server['last_error']}, {when(server['last_error_at'])}" if server["last_error"] else ""
        cells = [name, Text(server["state"], style=_STYLES.get(server["state"], "")), server["tools"], connect]
        more = [when(server["listed_at"]), _today(server["today"]), error]
        table.add_row(*(plain(c) if not isinstance(c, Text) else c for c in [*cells, *more]))
    console.print(table)
    covered = f"{index['count']} cards, encoder {index['encoder'][:8]}" if index else "not made yet (roster reindex)"
    console.print(
        plain(
            f"{seen['cards']} cards, {len(seen['quarantined'])} quarantined, {seen['calls']} calls counted in ratings"
        )
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
    for problem, line in zip(seen["problems"], seen["problem_lines"], strict=True):
        where = f"roster.json:{line}: " if line is not None else ""
        console.print(Text(f"problem: {where}{problem}", style="yellow"), soft_wrap=True)
    if "error" in encoder:
        console.print(Text(f"problem: {encoder['error']}", style="yellow"), soft_wrap=True)
    for name, server in seen["servers"].items():
        if server["state"] in ("failed", "misconfigured") and server["reason"]:
            console.print(Text(f"problem: {name}: {server['reason']}", style="yellow"), soft_wrap=True)
        for note in server.get("check", {}).get("notes", ()):
            console.print(plain(f"note: {name}: {note}"), soft_wrap=True)
        if server["rejected"]:
            console.print(plain(f"problem: {name}: unusable tools: {', '.join(server['rejected'])}"), style="yellow")


def _today(today: dict[str, Any]) -> str:
    if not today["calls"]:
        return ""
    failed = f", {today['failed']} failed" if today["failed"] else ""
    took = f", {today['p50_ms']:.0f} ms" if today["p50_ms"] is not None else ""
    return f"{today['calls']} calls{failed}{took}"
