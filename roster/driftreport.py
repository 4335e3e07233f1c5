"""What `roster drift` says: what changed, how grave it is, how it stands, and how one card changed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from rich.console import Console
from rich.text import Text

from roster.app import open_roster
from roster.config import find_home, load_config
from roster.contracts import Change, Severity
from roster.diffs import STYLES, change_json, print_change
from roster.driftlog import Batch, Logged, State
from roster.holds import Held
from roster.origins import EventKind
from roster.quarantine import matching, waiting
from roster.reviewreport import finding_json, findings_in, print_findings
from roster.terminal import Out, visible, when

__all__ = ["drift"]

SHOWN = 50
"""Lines that are printed unless all of them were asked for."""
BRIEF = 4
"""Changes that one line names."""


def drift(pattern: str | None, *, everything: bool, out: Out) -> None:
    """Print what changed, newest first; of one card, or of those a glob names, how it changed."""
    home = find_home()
    with open_roster(load_config(home), home) as roster:
        roster.catalogue.refresh()
        registry = roster.writer.registry
        waits = {held.id: held for held in registry.holds.all()}
        if pattern is not None:
            ids = matching(pattern, registry.servers_by_id())
            found = [event for id_ in ids for event in registry.log.events(id_)]
            found.sort(key=lambda event: (-event.at, -event.number))
            batches: list[Batch] = []
            reviewed = {
                id_: findings_in(roster, e.card) for id_ in ids if (e := roster.catalogue.find(id_)) is not None
            }
        else:
            found, batches, reviewed = registry.log.events(), registry.log.batches(), {}
    if out is not None:
        known = {batch.number for batch in batches}
        rows = [_event_json(e, waits.get(e.card), changes=pattern is not None) for e in found if e.batch not in known]
        rows += [_batch_json(batch, [event for event in found if event.batch == batch.number]) for batch in batches]
        findings = {id_: [finding_json(each) for each in some] for id_, some in reviewed.items() if some}
        out({"events": sorted(rows, key=lambda row: -row["at"])} | ({"findings": findings} if pattern else {}))
        return
    console = Console(highlight=False)
    if pattern is not None:
        _print_diffs(console, pattern, found, waits)
        for id_, some in reviewed.items():
            if some:
                console.print(visible(f"the review of {id_} as it is now:"), soft_wrap=True)
                print_findings(console, some)
        return
    lines = _lines(found, batches, waits)
    if not lines:
        print("No definition has changed since it was first seen.")
    shown = lines if everything else lines[:SHOWN]
    for line in shown:
        console.print(line, soft_wrap=True)
    if len(shown) < len(lines):
        console.print(f"{len(lines) - len(shown)} older ones: roster drift --all", soft_wrap=True)


def _lines(found: Sequence[Logged], batches: Sequence[Batch], waits: Mapping[str, Held]) -> list[Text]:
    members: dict[int, list[Logged]] = {batch.number: [] for batch in batches}
    rows: list[tuple[float, int, Text]] = []
    for event in found:
        if event.batch in members:
            members[event.batch].append(event)
        else:
            rows.append((event.at, event.number, _event_line(event, waits.get(event.card))))
    for batch in batches:
        # Beside the events of one listing, what was said of the server as a whole comes first.
        rows.append((batch.at, sys.maxsize, _batch_line(batch, members[batch.number])))
    return [line for *_, line in sorted(rows, key=lambda row: row[:2], reverse=True)]


def _line(at: float, severity: Severity, state: str, what: str) -> Text:
    line = Text(f"{when(at):<12}")
    line.append(f"{severity.value:<9}", style=STYLES[severity])
    line.append(f"{state:<28} ")
    line.append(visible(what))
    return line


def _event_line(event: Logged, held: Held | None) -> Text:
    what = f"{event.card}: "
    if event.kind is EventKind.FOUND:
        what += "held for review"
    elif event.kind is not EventKind.CHANGED:
        what += f"{event.kind.value} from {event.was}"
    else:
        what += (f"was {event.was}; " if event.was else "") + _brief(event.changes())
    return _line(event.at, event.severity, _standing(event, held), what)


def _brief(changes: Sequence[Change]) -> str:
    order = list(Severity)
    gravest = sorted(changes, key=lambda change: -order.index(change.severity))
    more = f" and {len(changes) - BRIEF} more" if len(changes) > BRIEF else ""
    return ", ".join(change.brief()[:80] for change in gravest[:BRIEF]) + more


def _standing(event: Logged, held: Held | None) -> str:
    if event.state is State.HELD and held is not None:
        return f"held, {waiting(held.waits_s)}"
    return event.state.value


def _severity(members: Sequence[Logged]) -> Severity:
    return reduce(Severity.or_worse, (event.severity for event in members), Severity.TEXT)


def _batch_line(batch: Batch, members: Sequence[Logged]) -> Text:
    states = Counter(event.state for event in members)
    state = ", ".join(f"{count} {state.value}" for state, count in states.items())
    remedies = [f"roster drift '{batch.server}__*'"] if members else []
    remedies += [f"roster unquarantine --server {batch.server}"] if states[State.HELD] else []
    remedy = f" ({', '.join(remedies)})" if remedies else ""
    return _line(batch.at, _severity(members), state or "reported", f"{batch.told()}{remedy}")


def _event_json(event: Logged, held: Held | None, *, changes: bool) -> dict[str, Any]:
    found = event.changes()
    shown: dict[str, Any] = {
        "at": event.at,
        "kind": event.kind.value,
        "card": event.card,
        "server": event.server,
        "was": event.was,
        "severity": event.severity.value,
        "state": event.state.value,
        "waits_s": held.waits_s if held is not None and event.state is State.HELD else None,
        "cleared_at": event.cleared_at,
        "changed": [change.brief() for change in found],
    }
    return shown | ({"changes": [change_json(change) for change in found]} if changes else {})


def _batch_json(batch: Batch, members: Sequence[Logged]) -> dict[str, Any]:
    return {
        "at": batch.at,
        "kind": "batch",
        "server": batch.server,
        "was": batch.was,
        "severity": _severity(members).value,
        "states": dict(Counter(event.state.value for event in members)),
        "cards": batch.cards,
        "of": batch.of,
        "old_version": batch.old_version,
        "new_version": batch.new_version,
        "members": sorted(event.card for event in members),
    }


def _print_diffs(console: Console, pattern: str, found: Sequence[Logged], waits: Mapping[str, Held]) -> None:
    if not found:
        print(f"No change of {pattern} is on record.")
    for event in found[:SHOWN]:
        console.print(_event_line(event, waits.get(event.card)), soft_wrap=True)
        for change in event.changes():
            for line in print_change(change, colour=console.is_terminal and not console.no_color):
                console.print(Text("  ") + line, soft_wrap=True)
    if len(found) > SHOWN:
        print(f"{len(found) - SHOWN} older ones are left out.")
