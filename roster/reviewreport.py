"""What is said of the review: at a glance, and finding by finding with the place made visible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from roster.app import Roster
from roster.cards import Card
from roster.dwell import Reason
from roster.reviews import Reviews
from roster.terminal import plain, visible

if TYPE_CHECKING:
    from roster.review import Finding

__all__ = ["finding_json", "findings_in", "print_findings", "print_review", "review_json"]

_STYLES = {"high": "red", "medium": "yellow", "low": "dim"}


def findings_in(roster: Roster, card: Card) -> list[Finding]:
    """What the review says of a card as it is now, its name beside those of others included; gravest first."""
    found = [*roster.inspector.findings(card), *roster.inspector.lookalikes().get(card.id, [])]
    return sorted(found, key=lambda finding: finding.severity.rank)


def finding_json(finding: Finding) -> dict[str, str]:
    """A finding as `roster drift ID --json` gives it."""
    return {
        "rule": finding.rule.value,
        "severity": finding.severity.value,
        "where": finding.where,
        "message": finding.message,
        "shown": finding.shown,
    }


def print_findings(console: Console, findings: Iterable[Finding]) -> None:
    """Each finding: how grave, where, what it means, and the place."""
    for finding in findings:
        line = Text(f"{finding.severity.value:<9}", style=_STYLES[finding.severity.value])
        line.append(f"{visible(finding.where)}: {finding.message} ({finding.rule.value})")
        console.print(line, soft_wrap=True)
        if finding.shown:
            console.print(Text(f"         {visible(finding.shown)}", style="dim"), soft_wrap=True)


def review_json(roster: Roster) -> dict[str, Any]:
    """What `roster status` says of the review: cards held for it, and cards with findings of each severity."""
    living = {entry.card.id for entry in roster.catalogue.living()}
    gravest: dict[str, str] = {}
    for noted in Reviews(roster.writer.db).all():
        if noted.card in living:
            gravest.setdefault(noted.card, noted.severity)
    held = [each.id for each in roster.writer.registry.holds.all() if each.reason is Reason.REVIEW]
    return {
        "held": [id_ for id_ in held if id_ in living],
        "findings": dict(Counter(gravest.values())),
        "cards": sorted(id_ for id_, severity in gravest.items() if severity != "low"),
    }


def print_review(console: Console, seen: Mapping[str, Any]) -> None:
    """The review at a glance; nothing when there is nothing to look at."""
    if seen["cards"]:
        counts = ", ".join(f"{seen['findings'][s]} {s}" for s in ("high", "medium") if s in seen["findings"])
        some = ", ".join(seen["cards"][:3]) + (" ..." if len(seen["cards"]) > 3 else "")
        line = f"review: cards with findings: {counts} ({some}; roster drift ID shows them, roster lint lists all)"
        console.print(plain(line), soft_wrap=True)
