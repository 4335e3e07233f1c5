"""What one listing of a server brought, and what of it a person should hear at once."""

from __future__ import annotations

from dataclasses import dataclass

from roster.driftlog import Batch

__all__ = ["Sighting"]

TOLD = 5
"""Ids that one line of the log names."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one listing of one server brought, as card ids.

    held: put under quarantine by it. renamed: (id before, id now). batch: one event for a server most of whose cards
    changed at once, or that has another name now.
    """

    cards: int
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    batch: Batch | None = None

    @property
    def news(self) -> bool:
        """Whether any draft can come out differently after it."""
        return bool(self.added or self.changed or self.removed or self.cleared)

    def told(self) -> list[str]:
        """What a person should hear of it at once: a line each, but one for a batch."""
        lines = []
        if (batch := self.batch) is not None:
            lines.append(f"{batch.told()}: roster drift")
        else:
            lines += [f"the definition of {id_} changed: roster drift {id_}" for id_ in self.changed]
        for old, new in self.renamed[:TOLD]:
            lines.append(f"{old} is called {new} now")
        if self.held:
            some = ", ".join(self.held[:TOLD]) + (f" and {len(self.held) - TOLD} more" if len(self.held) > TOLD else "")
            lines.append(f"kept out of drafts: {some}: roster unquarantine lets them in again")
        return lines
