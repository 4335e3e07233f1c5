"""Pointing the clients at Roster: plan, show, keep the bytes, write, look again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roster import jsonc
from roster.clients import files
from roster.clients.adapters import Client, Scope
from roster.clients.faults import ClientError
from roster.clients.files import ChangedError, Step, no_step
from roster.clients.finding import ClientFile, find_files
from roster.clients.journal import Change, Journal, State, locked, open_journal
from roster.clients.machine import Machine
from roster.clients.plan import FilePlan, Wish, plan_file
from roster.config import Config, Home

__all__ = ["Outcome", "carry_out", "plan_sync", "routed_servers", "was_carried_out", "wish_for"]

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one file's plan. problem: "" when it was written."""

    plan: FilePlan
    problem: str = ""


def routed_servers(config: Config, text: str) -> dict[str, Mapping[str, Any]]:
    """The servers of roster.json that Roster starts, as they stand there."""
    entries = jsonc.loads(text).get("mcpServers", {})
    return {name: entries[name] for name, spec in config.servers.items() if not spec.disabled}


def wish_for(
    machine: Machine,
    home: Home,
    routed: Mapping[str, Mapping[str, Any]],
    *,
    keep: Sequence[str] = (),
    named: Sequence[str] = (),
    project: Path | None = None,
) -> Wish:
    """What to ask of every file. project: the one whose shared files may be changed too; none: the directory's own."""
    own = home.folder.absolute()
    env = {} if own == machine.home / ".roster" else {"ROSTER_HOME": str(own)}
    return Wish(routed, keep, named, (project or machine.cwd).absolute(), project is not None, env)


def plan_sync(machine: Machine, clients: Iterable[Client], wish: Wish, journal: Journal) -> list[FilePlan]:
    """What would be done to each file that is there, or that a named client would have."""
    groups: dict[Path, list[ClientFile]] = {}
    found = list(find_files(machine, clients, wish.project))
    has_file = {file.client.id for file in found if file.there and file.place.scope is Scope.USER}
    for file in found:
        wanted = file.client.id in wish.named and file.place.scope is Scope.USER and file.client.id not in has_file
        if wanted and not file.there:
            if not file.path.parent.is_dir():
                continue
            has_file.add(file.client.id)
        elif not file.there:
            continue
        target = file.found.target if file.found is not None else file.path
        groups.setdefault(target, []).append(file)
    plans = [plan_file(machine, group, wish, journal.of(group[0].path)) for group in groups.values()]
    for client in clients:
        if client.id in wish.named and client.id not in has_file:
            first = next(file for file in found if file.client is client)
            plan = FilePlan(first.path, client, [first])
            plan.problem = f"{client.title} is not on this machine: there is no folder {first.path.parent}"
            plans.append(plan)
    return plans


def settle(journal: Journal) -> None:
    """Finish what an interrupted sync left open: a change is either carried out or never was."""
    for change in journal.changes:
        if change.state is not State.PREPARED:
            continue
        files.clean(files.read(Path(change.path)).target)
        journal.settle(change, done=was_carried_out(change))


def was_carried_out(change: Change) -> bool:
    """Whether a prepared change reached its file, going by the file."""
    try:
        data = files.read(Path(change.path)).data
        if data is None or files.digest(data) == change.before:
            return False
        if files.digest(data) == change.after:
            return True
        # Somebody wrote it since. Ours if it holds what we put there or lacks what we took out.
        return any(_looks_changed(change, files.decoded(data)))
    except ClientError:
        return True  # keep the backup within reach


def _looks_changed(change: Change, text: str) -> Iterable[bool]:
    from roster.clients.dialects import is_roster
    from roster.clients.formats import servers

    for spot in change.spots:
        now = dict(servers(text, spot.spot))
        yield is_roster(now[spot.added]) if spot.added in now else any(name not in now for name in spot.removed)


def carry_out(
    machine: Machine, home: Home, plans: Sequence[FilePlan], wish: Wish, step: Step = no_step
) -> list[Outcome]:
    """Write what was planned, file by file; one that cannot be written costs only itself."""
    out = []
    with locked(home):
        journal = open_journal(home, step)
        settle(journal)
        for plan in plans:
            if plan.after is None:
                continue
            try:
                out.append(Outcome(_write(machine, plan, wish, journal, step)))
            except ClientError as error:
                out.append(Outcome(plan, str(error)))
    return out


def _write(machine: Machine, plan: FilePlan, wish: Wish, journal: Journal, step: Step) -> FilePlan:
    """Carry out one plan, made anew where the client of a live file wrote in between. Raises ClientError."""
    shown = plan.removed
    for _ in range(_TRIES):
        with files.client_lock(plan.path, plan.lock):
            found = files.read(plan.path)
            if plan.files[0].found is None or found.data != plan.files[0].found.data:
                if not plan.live:
                    raise ClientError("another program changed it since the diff was made: run it again")
                fresh = [ClientFile(file.client, file.place, file.path, found) for file in plan.files]
                plan = plan_file(machine, fresh, wish, journal.of(plan.path))
                if plan.problem:
                    raise ClientError(plan.problem)
                if set(plan.removed) - set(shown):
                    raise ClientError("another program changed its servers since the diff was made: run it again")
            if plan.after is None:
                return plan
            change = journal.prepare(plan.client.id, found, plan.after, plan.spots, plan.lock)
            step("prepared")
            try:
                files.replace(found, plan.after, step)
            except ClientError as error:
                journal.settle(change, done=False)
                if isinstance(error, ChangedError):
                    continue
                raise
            journal.settle(change, done=True)
            if files.read(plan.path).data != plan.after:
                plan.notes.append(
                    "its client has written it again already; run `roster sync` once more if Roster is gone"
                )
            return plan
    raise ClientError("another program keeps changing it: close its client and run it again")
