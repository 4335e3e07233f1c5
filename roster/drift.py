"""The drift policy: what was known of a server's cards and what is listed now → what becomes of each card. Pure.

A card is held out of drafts when its definition changed, and let in again after a dwell, by a person, or not at all:

    free ──changed──> held:drift ──the same definition for DWELL_S, then seen again──> free
      │                   │ changed again: the dwell starts anew
      ├──a hint flipped toward danger, or new suspicious text──> held:safety ──a person──> free
      └──a review found something grave, new cards too─────────> held:review ──a person──> free

What holds a card only ever gets graver until a person looks: a harmless change on top of a grave one clears nothing.
A definition that a person accepted stays accepted for its card. Removal, another name or another server name do not
let a held definition out, nor make a changed one new.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from roster.cards import FORMULA, Card, card_from_row
from roster.contracts import Severity, compare, severity_of
from roster.dwell import Hold, Moment, Reason
from roster.origins import EventKind, Known, Origin, Seen, origins_of

__all__ = ["BULK_CARDS", "BULK_SHARE", "UNEXPLAINED_CARDS", "Event", "News", "Plan", "Policy", "Step", "plan"]

BULK_SHARE, BULK_CARDS, UNEXPLAINED_CARDS = 0.5, 3, 10
"""So much of a server, and at least so many cards, changed in one listing: one event, not one a card.

More of them where the server's version is what it was: a few such changes are read better one by one."""


class News(StrEnum):
    """What a listing brought for one card."""

    NONE = "none"
    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    CLEARED = "cleared"


# What a new version of a server does to many of its cards.
_SWEEPING = (EventKind.CHANGED, EventKind.RENAMED)


@dataclass(frozen=True, slots=True)
class Policy:
    """What holds a card. suspicious: whether a change brings words that call for a person. review: whether a card, new
    or changed, needs a person's look. accepted: the (card id, fingerprint) that a person has accepted."""

    quarantine: bool = True
    suspicious: Callable[[Card, Card], bool] = lambda _old, _new: False
    review: Callable[[Card], bool] | None = None
    accepted: Collection[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Event:
    """Something for the drift log. was: the card the old definition is of, where that is another one."""

    kind: EventKind
    old: str
    new: str
    severity: Severity
    was: str = ""
    held: bool = True
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of one listed card.

    written: its row must be stored. hold: what holds it from now on. baseline: the formula, not the card, changed.
    """

    seen: Seen
    old: Known | None
    news: News = News.NONE
    hold: Hold | None = None
    event: Event | None = None
    written: bool = True
    baseline: bool = False

    @property
    def sweeping(self) -> bool:
        """Whether its event may be told as part of what happened to the server as a whole.

        A hint that flipped toward danger must not drown in an upgrade.
        """
        event = self.event
        return event is not None and event.kind in _SWEEPING and event.severity is not Severity.SAFETY


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of a listing. bulk: most of the server, `changed` of the `there` cards, became others at once."""

    steps: Sequence[Step]
    removed: Sequence[Known]
    changed: int
    there: int
    bulk: bool


def plan(
    known: Mapping[str, Known],
    listing: Sequence[Seen],
    now: Moment,
    policy: Policy,
    *,
    complete: bool = True,
    present: Iterable[str] = (),
    moved: Mapping[str, Known] | None = None,
    upgraded: bool = False,
) -> Plan:
    """What a listing makes of what was known.

    known: by name. complete: what is not listed is gone. present: names that are listed but unusable, so not gone.
    moved: the cards of the server that this one seems to have been, by name, where it is new itself.
    upgraded: the listing is of another version of the server than the last one.
    """
    listed = {seen.name for seen in listing} | set(present)
    gone = [old for name, old in known.items() if name not in listed]
    leaving = [old for old in gone if complete and not old.removed]
    # Only a card that is new in earnest can be an old one in disguise.
    new = [seen for seen in listing if seen.name not in known and seen.name not in (moved or {})]
    origins = origins_of(known, gone if complete else [], new)
    steps = []
    for seen in listing:
        old = known.get(seen.name)
        if old is not None:
            steps.append(_again(seen, old, now, policy))
        elif moved and seen.name in moved:
            steps.append(_moved(seen, moved[seen.name], now, policy))
        else:
            steps.append(_first(seen, origins.get(seen.name), now, policy))
    changed = sum(step.event is not None and step.event.kind in _SWEEPING for step in steps)
    there = sum(not old.removed for old in (moved or known).values())
    least = BULK_CARDS if upgraded else UNEXPLAINED_CARDS
    return Plan(steps, leaving, changed, there, bulk=changed >= least and changed >= BULK_SHARE * there)


# ---------------------------------------------------------------------------------------- one card each


def _again(seen: Seen, old: Known, now: Moment, policy: Policy) -> Step:
    """A name that is on file."""
    same_row = old.raw == seen.raw and old.formula == FORMULA
    if not same_row and old.formula == FORMULA and old.fingerprint != seen.card().fingerprint:
        return _changed(seen, old, now, policy)
    back = News.ADDED if old.removed else News.NONE
    written = not same_row or old.removed or old.position != seen.position
    # Another formula gives another fingerprint for the same contract: a new baseline, never drift.
    step = Step(seen, old, back, written=written, baseline=old.formula != FORMULA)
    if old.hold is None:
        return step
    # While it was away nobody saw it stay the same.
    hold = replace(old.hold, seen=now) if old.removed else old.hold.seen_again(now)
    if hold.waits_s == 0:
        return replace(step, news=News.CLEARED, written=True)
    return replace(step, hold=hold)


def _changed(seen: Seen, before: Known, now: Moment, policy: Policy, was: str = "") -> Step:
    """Another definition than `before`'s. was: its id, where that is not this card's own."""
    card, row = seen.card(), before.row()
    severity = severity_of(compare(card.kind, row, card.raw))
    if policy.suspicious(card_from_row(card.kind, card.server, row), card):
        severity = Severity.SAFETY
    reason = Reason.SAFETY if severity is Severity.SAFETY else Reason.DRIFT
    reason = reason.or_worse(before.hold.reason if before.hold is not None else None)
    event = Event(EventKind.CHANGED, before.fingerprint, card.fingerprint, severity, was)
    return _held(Step(seen, None if was else before, News.CHANGED), reason, event, now, policy)


def _taken_over(seen: Seen, before: Known, kind: EventKind, now: Moment, policy: Policy) -> Step:
    """The definition of `before` under a name of its own, and held if that one is."""
    event = Event(kind, before.fingerprint, seen.card().fingerprint, Severity.CONTRACT, before.id)
    reason = before.hold.reason if before.hold is not None else None
    return _held(Step(seen, None, News.ADDED), reason, event, now, policy)


def _first(seen: Seen, origin: Origin | None, now: Moment, policy: Policy) -> Step:
    """A name that was never listed: new, or a known card under another name."""
    if origin is None:
        return _held(Step(seen, None, News.ADDED), None, None, now, policy)
    if origin.kind is EventKind.CHANGED:
        return _changed(seen, origin.card, now, policy, origin.card.id)
    return _taken_over(seen, origin.card, origin.kind, now, policy)


def _moved(seen: Seen, before: Known, now: Moment, policy: Policy) -> Step:
    """A card of a server that has another name now."""
    if before.formula == FORMULA and seen.card().fingerprint != before.fingerprint:
        return _changed(seen, before, now, policy, before.id)
    if before.hold is not None:
        return _taken_over(seen, before, EventKind.RENAMED, now, policy)
    return _first(seen, None, now, policy)


def _held(step: Step, reason: Reason | None, event: Event | None, now: Moment, policy: Policy) -> Step:
    """`step`, held unless there is no reason to, quarantine is off, or a person accepted this very definition."""
    card = step.seen.card()
    accepted = (card.id, card.fingerprint) in policy.accepted
    if policy.quarantine and not accepted and policy.review is not None and policy.review(card):
        reason = Reason.REVIEW
        found = Event(EventKind.FOUND, "", card.fingerprint, Severity.SAFETY)
        event = replace(event, severity=Severity.SAFETY) if event is not None else found
    if reason is None or accepted or not policy.quarantine:
        return replace(step, event=replace(event, held=False, accepted=accepted) if event is not None else None)
    return replace(step, hold=Hold(reason, now.at, now), event=event)
