"""What `roster init`, `sync` and `eject` print: as JSON through `out`, or as text a person can read."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from roster.clients import files
from roster.clients.adapters import chosen
from roster.clients.eject import Ejected, Undone
from roster.clients.eject import eject as give_back
from roster.clients.importing import Found, Import, counts, import_servers, skill_roots, write_config
from roster.clients.journal import open_journal
from roster.clients.machine import Machine, this_machine
from roster.clients.plan import FilePlan
from roster.clients.sync import Outcome, carry_out, plan_sync, routed_servers, wish_for
from roster.config import Config, Mode, find_home, load_config, read_config
from roster.errors import ConfigError
from roster.terminal import Out, plain

__all__ = ["eject", "init", "sync"]


def _project(machine: Machine, project: Path | None) -> Path:
    if project is not None and not (machine.cwd / project).is_dir():
        raise ConfigError(f"--project {project}: there is no such folder")
    return machine.cwd if project is None else (machine.cwd / project).absolute()


# ----------------------------------------------------------------------------------------------- init


_EVERY_TOOL = "The mode is transparent: a client will list every tool of all these servers."
_CACHED = re.compile(r"[/\\](?:uv[/\\](?:cache[/\\])?(?:archive|environments)-v\d+|pipx[/\\]\.cache)[/\\]")
_FLEETING = (
    "Roster runs from a cache that uvx or `pipx run` may clear at any time, and the clients would be pointed there: "
    "install it with `uv tool install` or `pipx install` first."
)
_TWO_TOOLS = 'For two tools, draft and call, put "mode": "five" into roster.json.'


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _lists_all(text: str) -> bool:
    """Whether a roster.json of this text has clients list every tool."""
    try:
        return read_config(text).settings.mode is Mode.TRANSPARENT
    except ConfigError:
        return False


def init(
    *, clients: Sequence[str], project: Path | None, dry_run: bool, out: Out, machine: Machine | None = None
) -> int:
    """Import every client's servers into roster.json; the exit status."""
    machine = machine or this_machine()
    home = find_home(machine.environ)
    where = _project(machine, project)
    wanted = chosen(clients)
    done = import_servers(machine, home, wanted, where)
    roots = skill_roots(machine, wanted, where)
    written = done.text is not None and not dry_run
    if written:
        assert done.text is not None
        write_config(home, done.text)
    if out is not None:
        out(_init_json(done, roots, str(home.config), written))
    else:
        _print_init(done, roots, str(home.config), written, dry_run)
    return 0


def _init_json(done: Import, roots: list[tuple[Path, int]], config: str, written: bool) -> dict[str, Any]:
    return {
        "config": config,
        "written": written,
        **counts(done),
        "files": [
            {"client": file.client.id, "scope": file.place.scope.value, "path": str(file.path)} for file in done.files
        ],
        "servers": [_server_json(found) for found in done.found.values() if found.sources],
        "left_alone": [
            {"client": left.file.client.id, "path": str(left.file.path), "name": left.name, "reason": left.reason}
            for left in done.left
        ],
        "unreadable_files": [
            {"client": file.client.id, "path": str(file.path), "reason": reason} for file, reason in done.unreadable
        ],
        "skill_roots": [{"path": str(path), "skills": count} for path, count in roots],
        "notes": done.notes,
    }


def _server_json(found: Found) -> dict[str, Any]:
    return {
        "name": found.name,
        "added": found.added,
        "disabled": bool(found.entry.get("disabled")),
        "from": [
            {"client": file.client.id, "scope": file.place.scope.value, "path": str(file.path), "name": name}
            for file, name in found.sources
        ],
        "values": found.secrets,
        "notes": found.notes,
    }


def _print_init(done: Import, roots: list[tuple[Path, int]], config: str, written: bool, dry_run: bool) -> None:
    console = Console()

    def say(text: str, style: str = "") -> None:
        console.print(Text(style=style) + plain(text) if style else plain(text), soft_wrap=True)

    paths = dict.fromkeys(f"{file.client.title}: {file.path}" for file in done.files)
    for line in paths:
        say(f"read {line}")
    for found in done.found.values():
        if not found.sources:
            continue
        titles = ", ".join(dict.fromkeys(file.client.title for file, _ in found.sources))
        state = "added" if found.added else "is there"
        off = ", disabled" if found.entry.get("disabled") else ""
        values = f"; values in it: {', '.join(found.secrets)}" if found.added and found.secrets else ""
        say(
            f"{'+' if found.added else '='} {found.name} ({titles}): {state}{off}{values}",
            "green" if found.added else "",
        )
        for note in found.notes:
            say(f"    {note}", "yellow")
    for left in done.left:
        say(f"- {left.name} stays in {left.file.client.title} ({left.file.path}): {left.reason}", "yellow")
    for file, reason in done.unreadable:
        say(f"! {file.client.title}: {file.path} was left alone: {reason}", "red")
    for path, count in roots:
        say(f"skills: {count} in {path}")
    for note in done.notes:
        say(note)
    if not done.files:
        say("No client of this machine keeps MCP servers in a file that Roster knows.")
    figures = counts(done)
    would = "would be " if dry_run and done.added else ""
    say(
        f"{_count(figures['added'], 'server')} {would}added to {config}, {figures['present']} there already, "
        f"{figures['left']} left with their client, {_count(figures['unreadable'], 'file')} not read"
    )
    if written and any(found.secrets for found in done.added):
        say("The file now holds keys as your clients had them, readable by you alone; ${VAR} references work as well.")
    if _lists_all(done.text or _text_of(Path(config))):
        say(f"{_EVERY_TOOL} {_TWO_TOOLS}")
    if not figures["added"] and not Path(config).is_file():
        say(f'There is nothing to write, so {config} is not there yet: put {{"mcpServers": {{...}}}} into it yourself.')
    elif not dry_run:
        say("Next: `roster reindex` asks the servers for their tools, `roster sync --dry-run` shows what would change.")


# ----------------------------------------------------------------------------------------------- sync


def sync(
    *,
    clients: Sequence[str],
    keep: Sequence[str],
    project: Path | None,
    dry_run: bool,
    ask: Callable[[str], None] | None,
    out: Out,
    machine: Machine | None = None,
) -> int:
    """Point clients at Roster, after showing how; the exit status. ask: returns only after a yes; None: do not ask."""
    machine = machine or this_machine()
    home = find_home(machine.environ)
    if not home.config.exists():
        raise ConfigError(
            f"{home.config} is not there: run `roster init` first, which makes it of your clients' servers"
        )
    config = load_config(home)
    found = files.read(home.config)
    assert found.data is not None
    routed = routed_servers(config, files.decoded(found.data))
    named = [client.id for client in chosen(clients)] if clients else []
    wish = wish_for(
        machine, home, routed, keep=keep, named=named, project=_project(machine, project) if project else None
    )
    plans = plan_sync(machine, chosen(clients), wish, open_journal(home))
    changing = [plan for plan in plans if plan.after is not None]
    warnings = _warnings(config, routed, machine) + _unknown(keep, plans)
    if out is None:
        _print_plans(plans, warnings)
    outcomes: list[Outcome] = []
    if changing and not dry_run:
        if ask is not None:
            ask(f"Write {_count(len(changing), 'file')}?")
        outcomes = carry_out(machine, home, plans, wish)
    failed = [one for one in outcomes if one.problem]
    refused = [plan for plan in plans if plan.problem]
    if out is not None:
        out(_sync_json(plans, outcomes, dry_run, warnings))
    else:
        _print_outcomes(outcomes, changing, dry_run)
    return 1 if failed or refused else 0


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _warnings(config: Config, routed: Any, machine: Machine) -> list[str]:
    """Which routed servers would not start with the variables that are set here, and what clients will list."""
    unset = [
        f"{name}: {missing}"
        for name in routed
        if (missing := config.servers[name].missing(machine.environ)) is not None
    ]
    fleeting = [_FLEETING] if routed and _CACHED.search(machine.python) else []
    every = [f"{_EVERY_TOOL} {_TWO_TOOLS}"] if routed and config.settings.mode is Mode.TRANSPARENT else []
    return [*unset, *fleeting, *every]


def _unknown(keep: Sequence[str], plans: list[FilePlan]) -> list[str]:
    there = {kept.name for plan in plans for kept in plan.kept}
    return [f"--keep {name}: no client has a server of this name" for name in keep if name not in there]


def _sync_json(plans: list[FilePlan], outcomes: list[Outcome], dry_run: bool, warnings: list[str]) -> dict[str, Any]:
    rows = []
    for plan in plans:
        outcome = next((one for one in outcomes if one.plan.path == plan.path), None)
        problem = plan.problem or (outcome.problem if outcome else "")
        state = "refused" if problem else "unchanged" if plan.after is None else "written" if outcome else "planned"
        rows.append(
            {
                "client": plan.client.id,
                "path": str(plan.path),
                "state": state,
                "removed": plan.removed,
                "added": plan.added,
                "kept": [{"name": kept.name, "reason": kept.reason} for kept in plan.kept],
                "notes": (outcome.plan if outcome else plan).notes,
                "reason": problem,
                "diff": plan.diff,
            }
        )
    return {
        "dry_run": dry_run,
        "written": sum(row["state"] == "written" for row in rows),
        "refused": sum(row["state"] == "refused" for row in rows),
        "files": rows,
        "warnings": warnings,
    }


_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def _print_plans(plans: list[FilePlan], warnings: list[str]) -> None:
    console = Console()
    for plan in plans:
        for line in plan.diff.splitlines():
            style = "bold" if line.startswith(("---", "+++")) else _COLOURS.get(line[:1], "")
            console.print(Text.assemble((plain(line).plain, style)), soft_wrap=True)
        for kept in plan.kept:
            console.print(
                plain(f"{plan.client.title}: {kept.name} stays in {plan.path}: {kept.reason}"), soft_wrap=True
            )
        for note in plan.notes:
            console.print(plain(f"{plan.client.title}: {note}"), soft_wrap=True)
        if plan.problem:
            problem = plain(f"{plan.client.title}: {plan.path} is left as it is: {plan.problem}")
            console.print(Text(style="red") + problem, soft_wrap=True)
    for warning in warnings:
        console.print(Text(style="yellow") + plain(warning), soft_wrap=True)


def _print_outcomes(outcomes: list[Outcome], changing: list[FilePlan], dry_run: bool) -> None:
    console = Console()
    for outcome in outcomes:
        plan = outcome.plan
        if outcome.problem:
            line = plain(f"{plan.client.title}: {plan.path} is left as it is: {outcome.problem}")
            console.print(Text(style="red") + line, soft_wrap=True)
        else:
            console.print(plain(f"{plan.client.title}: wrote {plan.path}"), soft_wrap=True)
    if not changing:
        console.print("Nothing to change: no client has a server in its files that Roster routes.")
    elif dry_run:
        console.print(f"{_count(len(changing), 'file')} would be written. Nothing was.")
    elif any(not outcome.problem for outcome in outcomes):
        console.print("Restart these clients; tools they allow by name will ask anew. `roster eject` undoes it all.")


# ---------------------------------------------------------------------------------------------- eject


def eject(*, clients: Sequence[str], force: bool, dry_run: bool, out: Out, machine: Machine | None = None) -> int:
    """Give the clients their files back; the exit status."""
    machine = machine or this_machine()
    home = find_home(machine.environ)
    named = [client.id for client in chosen(clients)] if clients else []
    done = give_back(home, named, force=force, dry_run=dry_run)
    if out is not None:
        out({"dry_run": dry_run, "files": [_ejected_json(one) for one in done]})
    else:
        _print_ejected(done, dry_run)
    return 1 if any(one.undone is Undone.REFUSED for one in done) else 0


def _ejected_json(one: Ejected) -> dict[str, Any]:
    return {
        "client": one.client,
        "path": str(one.path),
        "state": one.undone.value,
        "put_back": list(one.put_back),
        "reason": one.problem,
    }


_UNDONE = {
    Undone.BYTES: "is as it was, to the byte",
    Undone.KEYS: "has its servers back; what was changed since is kept",
    Undone.REMOVED: "is gone again: sync had made it",
    Undone.NOTHING: "was as before already",
}


def _print_ejected(done: list[Ejected], dry_run: bool) -> None:
    console = Console()
    if not done:
        console.print("Nothing to do: no file is changed by `roster sync`.")
    for one in done:
        if one.undone is Undone.REFUSED:
            print(f"roster: {one.path} is left as it is: {one.problem}", file=sys.stderr)
            continue
        would = "would be given back: it " if dry_run else ""
        console.print(plain(f"{one.path} {would}{_UNDONE[one.undone]}"), soft_wrap=True)
    if not dry_run and any(one.undone is not Undone.REFUSED for one in done):
        console.print("Restart these clients. The bytes as they were stay in the backups folder of Roster's home.")
