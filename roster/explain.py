"""A draft for people and for scripts: its starters, and every stage's numbers for each card in the running."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from roster.draft import Draft
from roster.ranking import Match, Scored, dense_weight, steps_share
from roster.terminal import plain
from roster.words import length_of, steps_of

__all__ = ["draft_json", "print_draft"]


def draft_json(made: Draft, explain: bool) -> dict[str, Any]:
    """A draft as `roster draft --json` gives it; with `explain` every stage's numbers for every card in the running."""
    shown: dict[str, Any] = {
        "need": made.need,
        "match": made.match.value,
        "starters": [starter.wire() for starter in made.starters],
    }
    if explain:
        shown["explain"] = [
            {
                "id": card.id,
                "score": round(scored.score, 6),
                "similarity": scored.similarity,
                "dense": scored.dense,
                "bm25": scored.bm25,
                "lexical": scored.lexical,
                "step": scored.step,
                "named": scored.named,
                "covered": scored.covered,
                "base": scored.base,
                "learned": asdict(scored.learned) if scored.learned is not None else None,
                "boost": scored.boost,
                "adapted": scored.adapted,
                "rating": scored.rating,
            }
            for card, scored in made.running
        ]
    return shown


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _formula(need: str, unread: float, running: Sequence[Scored]) -> str:
    """How the numbers of one need's cards come to their score; what nobody has is left out."""
    words = length_of(need)
    weight, share = dense_weight(words, unread), steps_share(words) if steps_of(need) else 0.0
    meaning = f"({1 - share:.2g} dense + {share:.2g} step)" if share else "dense"
    covered = ", less what better cards cover" if share else ""
    adapted = any(scored.adapted for scored in running)
    learning = adapted or any(scored.boost or scored.rating for scored in running)
    learned = f", + learned{' + adapted' if adapted else ''} + record" if learning else ""
    return f"score = {weight:.2g} {meaning} + {1 - weight:.2g} lexical, + 1 when named{learned}{covered}"


def print_draft(made: Draft, explain: bool) -> None:
    """A draft as `roster draft` prints it: the starters, or with `explain` a table of those numbers."""
    console = Console()
    shown = {starter.card.id for starter in made.starters}
    match made.match:
        case Match.NONE:
            doubt = "Nothing on file fits this need; --explain shows what was in the running."
        case Match.WEAK:
            doubt = "A weak match: perhaps nothing on file fits this need."
        case Match.CLEAR:
            doubt = ""
    if doubt:
        console.print(Text(doubt, style="yellow"))
    if not explain:
        for place, starter in enumerate(made.starters, 1):
            wire = starter.wire()
            line = Text(f"{place}. ")
            line.append(starter.card.id, style="bold cyan")
            if starter.rated:
                line.append("  (works well here)", style="dim")
            console.print(line)
            console.print(plain(f"   {wire['description']}"))
            if "note" in wire:
                console.print(Text(f"   {wire['note']}", style="dim"))
        return
    table = Table(
        title=plain(made.need),
        title_justify="left",
        caption=_formula(made.need, made.unread, [scored for _, scored in made.running]),
    )
    # A column that is empty for every card is left out, so that the rest stays readable in eighty columns.
    columns: dict[str, Callable[[Scored], str]] = {
        "score": lambda scored: _number(scored.score),
        "similarity": lambda scored: _number(scored.similarity),
        "dense": lambda scored: _number(scored.dense),
        "step": lambda scored: _number(scored.step),
        "BM25": lambda scored: _number(scored.bm25, 2),
        "lexical": lambda scored: _number(scored.lexical),
        "named": lambda scored: "yes" if scored.named else "",
        "covered": lambda scored: _number(-scored.covered) if scored.covered else "",
        "near": lambda scored: _number(scored.learned.near, 2) if scored.learned else "",
        "share": lambda scored: _number(scored.learned.share, 2) if scored.learned else "",
        "failing": lambda scored: _number(scored.learned.failing, 2) if scored.learned else "",
        "learned": lambda scored: f"{scored.boost:+.3f}" if scored.boost else "",
        "adapted": lambda scored: f"{scored.adapted:+.3f}" if scored.adapted else "",
        "record": lambda scored: f"{scored.rating:+.3f}" if scored.rating else "",
    }
    rows = made.running[: max(15, len(shown))]
    empty = {heading for heading, cell in columns.items() if all(cell(scored) in ("", "–") for _, scored in rows)}
    chosen = [heading for heading in columns if heading not in empty]
    table.add_column("", justify="right")
    table.add_column("card")
    for heading in chosen:
        table.add_column(heading, justify="right")
    for place, (card, scored) in enumerate(rows, 1):
        style = "bold" if card.id in shown else "dim"
        cells = [str(place), card.id, *(columns[heading](scored) for heading in chosen)]
        table.add_row(*(plain(cell) for cell in cells), style=style)
    console.print(table)
