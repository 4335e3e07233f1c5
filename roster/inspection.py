"""The review at work: every new or changed card is read before it can be drafted, and what is found is kept.

The rules are imported when there is something to read, not when Roster starts.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from roster.cards import Card, Kind
from roster.catalogue import Catalogue
from roster.dwell import Reason
from roster.reindex import Writer
from roster.reviews import Noted, Reviews

if TYPE_CHECKING:
    from roster.review import Finding, Known

__all__ = ["REVIEW_VERSION", "Inspector"]

REVIEW_VERSION = 1
"""Of the rules: with another one, every card on file is read again."""
REMEMBERED = 5_000
"""Cards whose findings stay in memory between being read and being put on file."""

Files = Callable[[Card], Mapping[str, str]]
"""Path to text of a skill's other files."""


class Inspector:
    """Reads the cards of one home. Safe from several threads.

    files: reads a skill's other files; a card only has their hashes.
    """

    def __init__(self, catalogue: Catalogue, writer: Writer, *, files: Files = lambda _: {}) -> None:
        self._catalogue = catalogue
        self._writer = writer
        self._files = files
        self._lock = threading.Lock()
        self._read: OrderedDict[tuple[str, str], list[Finding]] = OrderedDict()
        self._names: Known | None = None

    # -------------------------------------------------------------------------------------- before a sighting

    def read(self, cards: Iterable[Card]) -> None:
        """Read the cards that are not on file as they are, so that the transaction that follows does not have to."""
        self._catalogue.refresh()
        for card in cards:
            entry = self._catalogue.find(card.id)
            if entry is None or entry.card.fingerprint != card.fingerprint:
                self.findings(card)

    def grave(self, card: Card) -> bool:
        """Whether a person has to look before the card is drafted."""
        return any(finding.severity.value == "high" for finding in self.findings(card))

    def suspicious(self, old: Card, new: Card) -> bool:
        """Whether a change brings something of a kind that was not there before, grave or not quite."""
        before = {finding.rule for finding in self.findings(old)}
        return any(
            finding.rule not in before for finding in self.findings(new) if finding.severity.value in ("high", "medium")
        )

    def findings(self, card: Card) -> list[Finding]:
        """What is found in a card; remembered for a while."""
        from roster.review import known, review

        key = (card.id, card.fingerprint)
        with self._lock:
            if key not in self._read:
                if self._names is None:
                    self._names = known(entry.card for entry in self._catalogue.living())
                self._read[key] = review(card, self._names, self._files(card))
                while len(self._read) > REMEMBERED:
                    self._read.popitem(last=False)
            return self._read[key]

    # --------------------------------------------------------------------------------------- after a sighting

    def note(self, ids: Collection[str]) -> None:
        """Put on file what was found in these cards, which are new or changed, and whose names pass for others."""
        if not ids:
            return
        with self._lock:
            self._names = None  # other names may be orders about other servers' tools from now on
        self._catalogue.refresh()
        entries = [entry for id_ in ids if (entry := self._catalogue.find(id_)) is not None]
        self._keep([entry.card for entry in entries])

    def catch_up(self, now: float, *, quarantine: bool, on_progress: Callable[[int, int], None] | None = None) -> int:
        """Read every card on file, if other rules read them last or other names are known by now; how many that were.

        An order about another server's tool is only known as one once that tool is: which server lists first is not to
        matter.

        quarantine: hold what is grave. A definition that a person accepted stays in drafts.
        """
        self._catalogue.refresh()
        cards = [entry.card for entry in self._catalogue.living()]
        # Of tools alone: processes in different projects see different skills, and would never agree.
        names = "\n".join(sorted(f"{card.server}\0{card.name}" for card in cards if card.kind is Kind.TOOL))
        version = REVIEW_VERSION << 32 | zlib.crc32(names.encode("utf-8", "surrogatepass"))
        if not cards or Reviews(self._writer.db).version == version:
            return 0
        with self._lock:
            self._names = None
            self._read.clear()
        for done, card in enumerate(cards, 1):
            if self.grave(card) and quarantine:
                with self._writer.lock:
                    self._writer.registry.hold(card.id, Reason.REVIEW, now)
            if on_progress is not None:
                on_progress(done, len(cards))
        self._keep(cards)
        with self._writer.lock:
            Reviews(self._writer.db).reviewed(version)
        return len(cards)

    def lookalikes(self) -> dict[str, list[Finding]]:
        """Card id to findings: whose names pass for those of another server."""
        from roster.review import shadowing

        return shadowing(entry.card for entry in self._catalogue.living())

    def _keep(self, cards: Sequence[Card]) -> None:
        from roster.review import Rule

        noted = [_noted(card, finding) for card in cards for finding in self.findings(card)]
        # A name passes for another one's: neither of the two has to be new for that, and neither is held for it.
        found = self.lookalikes()
        pairs = [
            _noted(entry.card, finding)
            for id_, findings in found.items()
            if (entry := self._catalogue.find(id_)) is not None
            for finding in findings
        ]
        with self._writer.lock:
            Reviews(self._writer.db).keep(
                [card.id for card in cards], noted, (Rule.LOOKALIKE_NAME.value, Rule.LOOKALIKE_SERVER.value), pairs
            )


def _noted(card: Card, finding: Finding) -> Noted:
    """A finding as it is kept: its excerpt, which is the author's words, is made again when somebody asks."""
    where = finding.where.encode("utf-8", "backslashreplace").decode()
    return Noted(card.id, card.fingerprint, finding.rule.value, finding.severity.value, where)
