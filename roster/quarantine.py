"""What the commands about drift do: what changed and how it stands, and letting cards into drafts again."""

from __future__ import annotations

import difflib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import reduce
from typing import Any

from rich.console import Console
from rich.text import Text

from roster.app import Roster, open_roster
from roster.config import Config, Mode, find_home, load_config
from roster.contracts import Change, Severity
from roster.diffs import STYLES, change_json, print_change
from roster.driftlog import Batch, Logged, State
from roster.dwell import Reason
from roster.errors import RosterError, UnknownCardError
from roster.holds import Held
from roster.origins import EventKind
from roster.registry import Registry
from roster.terminal import Out, lasting, plain, visible, when

__all__ = ["drift", "print_quarantine", "quarantine_json", "unquarantine"]

SHOWN = 50
"""Lines that are printed unless all of them were asked for."""
NAMED = 10
"""Cards that are named one by one."""
BRIEF = 4
"""Changes that one line names."""


# ------------------------------------------------------------------------------------------- choosing


def _is_glob(pattern: str) -> bool:
    return any(c in pattern for c in "*?[")  # no id has one of them


def _matching(pattern: str, known: Iterable[str]) -> list[str]:
    """The ids that an id or a glob names. Raises UnknownCardError when there is none."""
    ids = sorted(known)
    if pattern in ids:
        return [pattern]
    if _is_glob(pattern):
        if found := [id_ for id_ in ids if fnmatchcase(id_, pattern)]:
            return found
        raise UnknownCardError(f"no card has an id like {pattern!r}: `roster status` names the quarantined ones")
    close = difflib.get_close_matches(pattern[:80], ids, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`roster status` names the quarantined ones"
    raise UnknownCardError(f"no card has the id {pattern!r}: {hint}")


def _of_server(server: str, servers: Mapping[str, str]) -> list[str]:
    if found := [id_ for id_, name in servers.items() if name == server]:
        return found
    close = difflib.get_close_matches(server[:80], list({*servers.values()}), n=1)
    raise RosterError(
        f"no card is of a server {server!r}: {f'did you mean {close[0]!r}?' if close else '`roster status` names them'}"
    )


# ---------------------------------------------------------------------------------------------- drift


def drift(pattern: str | None, *, everything: bool, out: Out) -> None:
    """Print what changed, newest first; of one card, or of those a glob names, how it changed."""
    home = find_home()
    with open_roster(load_config(home), home) as roster:
        registry = roster.writer.registry
        waits = {held.id: held for held in registry.holds.all()}
        if pattern is not None:
            ids = _matching(pattern, registry.servers_by_id())
            found = [event for id_ in ids for event in registry.log.events(id_)]
            found.sort(key=lambda event: (-event.at, -event.number))
            batches: list[Batch] = []
        else:
            found, batches = registry.log.events(), registry.log.batches()
    if out is not None:
        known = {batch.number for batch in batches}
        rows = [_event_json(e, waits.get(e.card), changes=pattern is not None) for e in found if e.batch not in known]
        rows += [_batch_json(batch, [event for event in found if event.batch == batch.number]) for batch in batches]
        out({"events": sorted(rows, key=lambda row: -row["at"])})
        return
    console = Console(highlight=False)
    if pattern is not None:
        _print_diffs(console, pattern, found, waits)
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
        return f"held, {_waiting(held.waits_s)}"
    return event.state.value


def _waiting(waits_s: float | None) -> str:
    if waits_s is None:
        return "waits for a person"
    return f"{lasting(waits_s)} to wait" if waits_s > 0 else "clears when seen again"


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


# --------------------------------------------------------------------------------------- unquarantine


def unquarantine(patterns: Sequence[str], *, server: str | None, ask: Callable[[str], None] | None, out: Out) -> None:
    """Let cards into drafts again, by id, glob or server; an unknown one is an error and changes nothing.

    ask: puts a question to the person, and does not return after a no; None: everything is agreed to.
    """
    home = find_home()
    with open_roster(load_config(home), home) as roster:
        registry = roster.writer.registry
        servers = registry.servers_by_id()
        chosen = [id_ for pattern in patterns for id_ in _matching(pattern, servers)]
        chosen = list(dict.fromkeys([*chosen, *(_of_server(server, servers) if server is not None else [])]))
        before = {id_: (reason, registry.fingerprint(id_)) for id_ in chosen if (reason := registry.held(id_))}
        _confirm({id_: reason for id_, (reason, _) in before.items()}, ask)
        at = time.time()
        cleared = [id_ for id_, (_, print_) in before.items() if registry.unquarantine(id_, at, print_)]
    if out is not None:
        out({"cleared": cleared})
    else:
        _print_cleared(patterns, server, before.keys(), cleared)
    if len(cleared) < len(before):
        # What a person has looked at is not what it is now.
        changed = ", ".join(id_ for id_ in before if id_ not in set(cleared))
        raise RosterError(f"changed just now, so not let in: {changed}: look again with `roster drift`")


def _confirm(held: Mapping[str, Reason], ask: Callable[[str], None] | None) -> None:
    """Ask about what does not clear by itself. Raises RosterError when there is nobody to ask."""
    grave = [id_ for id_, reason in held.items() if reason is not Reason.DRIFT]
    if not grave or ask is None:
        return
    some = ", ".join(grave[:NAMED]) + (f" and {len(grave) - NAMED} more" if len(grave) > NAMED else "")
    if not sys.stdin.isatty():
        raise RosterError(
            f"held for a person to look at: {some}. Look with `roster drift ID`, then say --yes; nothing was changed"
        )
    ask(f"Held for a person to look at: {some}. `roster drift ID` shows why. Let them into drafts again?")


def _print_cleared(patterns: Sequence[str], server: str | None, held: Iterable[str], cleared: Sequence[str]) -> None:
    known, done = set(held), set(cleared)
    plainly = [pattern for pattern in patterns if not _is_glob(pattern)]
    for id_ in plainly:
        if id_ in done:
            print(f"{id_}: in drafts again")
        elif id_ not in known:
            print(f"{id_}: was not quarantined")
    others = [id_ for id_ in cleared if id_ not in plainly]
    if len(others) > NAMED:
        print(f"{len(others)} cards: in drafts again")
    for id_ in others if len(others) <= NAMED else ():
        print(f"{id_}: in drafts again")
    if not known and (server is not None or len(plainly) < len(patterns)):
        print("Nothing of it was quarantined.")


# --------------------------------------------------------------------------------------------- status


def quarantine_json(roster: Roster) -> dict[str, Any]:
    """What `roster status` says of quarantine: the policy, and each held card that there is, with what it waits for."""
    registry: Registry = roster.writer.registry
    living = {entry.card.id for entry in roster.catalogue.living()}
    held = [each for each in registry.holds.all() if each.id in living]
    batch_of = registry.log.batch_of_held()
    batches = {batch.number: batch for batch in registry.log.batches()}
    together: dict[int, list[Held]] = {}
    for each in held:
        if each.reason is Reason.DRIFT and each.id in batch_of:
            together.setdefault(batch_of[each.id], []).append(each)
    return {
        "policy": roster.config.settings.quarantine,
        "reasons": dict(Counter(each.reason.value for each in held)),
        "batches": [
            {
                "server": batches[number].server,
                "told": batches[number].told(),
                "held": [each.id for each in members],
                "waits_s": max(each.waits_s or 0.0 for each in members),
            }
            for number, members in together.items()
        ],
        "held": [
            {"id": each.id, "server": each.server, "reason": each.reason.value, "at": each.at, "waits_s": each.waits_s}
            for each in held
        ],
    }


def print_quarantine(console: Console, seen: Mapping[str, Any], config: Config) -> None:
    """Quarantine at a glance: how many by reason, batches as one, and each of the rest with what it waits for."""
    if config.settings.mode is Mode.TRANSPARENT and seen["policy"] == "call":
        console.print(plain('quarantine: "call" refuses calls in five mode only; transparent mode is never narrowed'))
    if not seen["held"]:
        return
    reasons = ", ".join(f"{count} for {reason}" for reason, count in seen["reasons"].items())
    off = "; the policy is off, so all are in drafts" if seen["policy"] == "off" else ""
    console.print(plain(f"quarantined: {reasons}{off}"))
    inside = {id_ for batch in seen["batches"] for id_ in batch["held"]}
    for batch in seen["batches"]:
        remedy = f"roster unquarantine --server {batch['server']}"
        line = f"  {batch['told']}: {len(batch['held'])} held, {_waiting(batch['waits_s'])} ({remedy})"
        console.print(plain(line), soft_wrap=True)
    single = [each for each in seen["held"] if each["id"] not in inside]
    # What waits for a person comes before what clears itself.
    single.sort(key=lambda each: (each["waits_s"] is not None, each["id"]))
    for each in single[:NAMED]:
        line = f"  {each['id']}: {each['reason']}, {_waiting(each['waits_s'])} (roster drift {each['id']})"
        console.print(plain(line), soft_wrap=True)
    if len(single) > NAMED:
        console.print(f"  {len(single) - NAMED} more (roster drift)")
