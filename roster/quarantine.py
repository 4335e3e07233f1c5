"""What is held out of drafts and why, at a glance; and letting it in again."""

from __future__ import annotations

import difflib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from rich.console import Console

from roster.app import Roster, open_roster
from roster.config import Config, Mode, find_home, load_config
from roster.dwell import Reason
from roster.errors import RosterError, UnknownCardError
from roster.holds import Held
from roster.registry import Registry
from roster.terminal import Out, lasting, plain

__all__ = ["matching", "print_quarantine", "quarantine_json", "unquarantine", "waiting"]

NAMED = 10
"""Cards that are named one by one."""


# ------------------------------------------------------------------------------------------- choosing


def _is_glob(pattern: str) -> bool:
    return any(c in pattern for c in "*?[")  # no id has one of them


def matching(pattern: str, known: Iterable[str]) -> list[str]:
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


# --------------------------------------------------------------------------------------- unquarantine


def unquarantine(patterns: Sequence[str], *, server: str | None, ask: Callable[[str], None] | None, out: Out) -> None:
    """Let cards into drafts again, by id, glob or server; an unknown one is an error and changes nothing.

    ask: puts a question to the person, and does not return after a no; None: everything is agreed to.
    """
    home = find_home()
    with open_roster(load_config(home), home) as roster:
        registry = roster.writer.registry
        servers = registry.servers_by_id()
        chosen = [id_ for pattern in patterns for id_ in matching(pattern, servers)]
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


def waiting(waits_s: float | None) -> str:
    """What a held card waits for, in words. waits_s: stable time; None: a person."""
    if waits_s is None:
        return "waits for a person"
    return f"{lasting(waits_s)} to wait" if waits_s > 0 else "clears when seen again"


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
        line = f"  {batch['told']}: {len(batch['held'])} held, {waiting(batch['waits_s'])} ({remedy})"
        console.print(plain(line), soft_wrap=True)
    single = [each for each in seen["held"] if each["id"] not in inside]
    # What waits for a person comes before what clears itself.
    single.sort(key=lambda each: (each["waits_s"] is not None, each["id"]))
    for each in single[:NAMED]:
        line = f"  {each['id']}: {each['reason']}, {waiting(each['waits_s'])} (roster drift {each['id']})"
        console.print(plain(line), soft_wrap=True)
    if len(single) > NAMED:
        console.print(f"  {len(single) - NAMED} more (roster drift)")
