"""The skills of one home: read, put on file like a server's tools, looked at again, and called.

A call of a skill executes nothing and reaches no server. It returns instructions, read at that moment.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from roster.backends import Answer
from roster.call import Called, held_card
from roster.cards import Card, Kind, card_from_row, card_from_skill, text_hash
from roster.catalogue import Catalogue
from roster.database import atomic
from roster.dense import drop_index
from roster.dwell import Reason
from roster.failures import failure_of
from roster.inspection import Inspector
from roster.outcomes import CallReport, Cause, judge
from roster.passages import passages_of
from roster.playbook import Playbook, Reading, blocks_of, reread
from roster.reindex import Writer
from roster.sighting import Sighting
from roster.uptime import uptime

__all__ = ["Skills", "open_skill"]

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 3.0
"""The folders are looked at again at a draft, for what has changed, but not more often than this."""
LOOK_WAIT_S = 0.5
"""So long a draft waits for that; what takes longer is there for the next one."""
SIGHT_AGAIN_S = 3600.0
"""Skills that have not changed are sighted again after this, so that a quarantine comes to its end."""


class Skills:
    """What is on file of the skills, kept in step with the folders."""

    def __init__(
        self,
        playbook: Playbook,
        writer: Writer,
        catalogue: Catalogue,
        index: Path,
        inspector: Inspector,
        *,
        quarantine: str = "draft",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.playbook = playbook
        self.sightings: list[Sighting] = []
        self.ready = anyio.Event()
        """Set once the first reading is on file, or has failed."""
        self._writer = writer
        self._catalogue = catalogue
        self._index = index
        self._inspector = inspector
        self._quarantine = quarantine
        self._clock = clock
        self._turn = threading.Lock()
        self._looked = self._sighted = float("-inf")

    # ------------------------------------------------------------------------------------------ sighting

    def sight(self) -> Reading:
        """Read every skill folder and put what is there on file. Synchronous. Raises sqlite3.Error."""
        with self._turn:
            reading = self.playbook.read()
            now = self._clock()
            self._catalogue.refresh()
            on_file = [entry.card for entry in self._catalogue.living() if entry.card.kind is Kind.SKILL]
            for server in self.playbook.servers:
                listed = reading.listed(server, [card.raw for card in on_file if card.server == server])
                self._inspector.read(card_from_row(Kind.SKILL, server, row) for row in listed.rows)
                with self._writer.lock:
                    sighting = self._writer.registry.sight(
                        server,
                        listed.rows,
                        now,
                        uptime=uptime(),
                        complete=listed.complete,
                        present=listed.present,
                        quarantine=self._quarantine != "off",
                        kind=Kind.SKILL,
                        suspicious=self._inspector.suspicious,
                        review=self._inspector.grave,
                    )
                    self._forget_passages([card for card in on_file if card.id in sighting.changed], listed.rows)
                self._inspector.note([*sighting.added, *sighting.changed])
                if sighting.changed:
                    # As with tools: what a definition said must not stay on disk until the index happens to be saved.
                    drop_index(self._index)
                self.sightings.append(sighting)
                for id_ in sighting.changed:
                    log.warning("the skill %s changed; it is kept out of drafts: roster unquarantine %s", id_, id_)
            self._sighted = now
        return reading

    def _forget_passages(self, before: Sequence[Card], rows: Sequence[Mapping[str, Any]]) -> None:
        """Drop the vectors of passages that skills no longer have: people edit their skills, and each edit leaves some.

        One that another skill has as well is embedded once more.
        """
        if before:
            names = {card.name for card in before}
            after = [card_from_skill(row) for row in rows if row["name"] in names]
            old, new = ({text_hash(text) for card in cards for text in passages_of(card)} for cards in (before, after))
            with atomic(self._writer.db):
                self._writer.registry.vectors.drop(sorted(old - new))

    async def begin(self) -> None:
        """Read the skills for the first time. Whatever comes of it, nobody waits for it any longer."""
        await to_thread.run_sync(self._sight_if_due)
        for problem in self.playbook.problems:
            log.warning("%s", problem)
        self._looked = self._clock()
        self.ready.set()

    async def look(self) -> None:
        """Take in what changed in the folders since they were last looked at; hardly waits for it."""
        if not self.ready.is_set() or 0 <= self._clock() - self._looked < LOOK_AGAIN_S:
            return
        self._looked = self._clock()
        with anyio.move_on_after(LOOK_WAIT_S):
            await to_thread.run_sync(self._sight_if_due, abandon_on_cancel=True)

    def _sight_if_due(self) -> None:
        try:
            if self.playbook.changed() or not 0 <= self._clock() - self._sighted < SIGHT_AGAIN_S:
                self.sight()
        except sqlite3.Error as error:
            # Drafts go on with what is on file.
            log.warning("the skills could not be put on file (%s); trying again", error)
        except Exception as error:  # noqa: BLE001 - files that anybody may have written; serving must not end by them
            self.playbook.forget()
            log.warning("the skills could not be read (%s); drafts go on without what is new", type(error).__name__)

    # ------------------------------------------------------------------------------------------- calling

    async def call(self, card: Card, arguments: Mapping[str, Any] | None) -> Called:
        """What calling a skill returns; its folder is read anew. Raises HeldCardError when the policy says no."""
        changed = True
        try:
            called, changed = await to_thread.run_sync(open_skill, self.playbook, card, arguments, self._quarantine)
        finally:
            if changed:
                self.playbook.forget()
                await to_thread.run_sync(self._sight_if_due)
        return called


def open_skill(
    playbook: Playbook, card: Card, arguments: Mapping[str, Any] | None, quarantine: str
) -> tuple[Called, bool]:
    """What calling a skill returns, as its folder is now; and whether that is another skill than is on file.

    Nothing is recorded of it: that instructions could be read says nothing of whether they help.
    quarantine: the policy; "call" refuses a skill that has changed. Synchronous. Raises HeldCardError.
    """
    begun = time.perf_counter()
    try:
        skill = reread(playbook, card.raw)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        report = CallReport(Cause.UNREACHABLE, _ms_since(begun))
        verdict = judge(report)
        words = f"the skill {card.name!r} cannot be read ({reason}): draft again, or go on without it"
        answer = Answer(report, {"content": [{"type": "text", "text": words}], "isError": True})
        return Called(card, answer, verdict, failure_of(report, {}, {}, verdict)), True
    changed = skill.fingerprint != card.fingerprint
    notes = []
    if changed:
        if quarantine == "call":
            raise held_card(card.id, Reason.DRIFT)
        notes.append("Note: this skill changed since it was put on file; this is what it says now.")
    if arguments:
        notes.append("Note: a skill takes no arguments; those given were ignored.")
    answer = Answer(CallReport(Cause.ANSWERED, _ms_since(begun)), {"content": blocks_of(skill, notes)})
    return Called(card, answer, judge(answer.report)), changed


def _ms_since(begun: float) -> float:
    return (time.perf_counter() - begun) * 1000
