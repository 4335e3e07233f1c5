"""Builds everything once from a config; the command line, the server, tests and evaluation all use it."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from roster.backends import Backend, Listing, Pool, State
from roster.call import Caller
from roster.cards import Kind, card_from_tool
from roster.catalogue import Catalogue
from roster.config import Config, Home, open_home
from roster.database import atomic, open_database
from roster.dense import drop_index, drop_manifest
from roster.draft import Draft, draft
from roster.encoder import open_encoder
from roster.errors import EncoderError, StoreError
from roster.history import History, Limits
from roster.inspection import Inspector
from roster.learning import Learner
from roster.playbook import open_playbook, texts_of
from roster.reindex import Writer, embed_missing
from roster.servernotes import ServerNote
from roster.sighting import Sighting
from roster.skills import Skills
from roster.uptime import uptime

__all__ = ["Roster", "open_roster"]

log = logging.getLogger(__name__)

DRAFTING_AT_ONCE = 2
PATIENCE_S = 5.0
LOOK_AGAIN_S = 30.0
PRUNED_AT_ONCE = 200
PRUNE_PAUSE_S = 0.01
WORTH_WAITING_FOR = 300
"""Texts that are embedded within `PATIENCE_S`, with some to spare; a longer queue is not waited for."""


class Roster:
    """One home, opened: its cards, its backends (connected only inside `running`), drafts and calls."""

    def __init__(
        self,
        config: Config,
        home: Home,
        writer: Writer,
        catalogue: Catalogue,
        skills: Skills,
        inspector: Inspector,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self.home = home
        self.writer = writer
        self.catalogue = catalogue
        self.skills = skills
        self.pool = Pool(config, home, on_listing=self._sighted, on_state=self._noted, environ=environ)
        kept = config.settings
        self.limits = Limits(kept.history_days, kept.history_outcomes, kept.history_needs)
        self.learner = (
            Learner(catalogue, needs=kept.learning == "full", clock=clock) if kept.learning != "off" else None
        )
        self.caller = Caller(self.pool, writer, clock, learning=kept.learning, limits=self.limits)
        self.inspector = inspector
        self.sightings: dict[str, list[Sighting]] = {}
        self._warned: dict[str, str] = {}
        self._first_lists_until: float | None = None
        self.on_change: Callable[[], Awaitable[None]] | None = None
        self._clock = clock
        self._drafting = anyio.CapacityLimiter(DRAFTING_AT_ONCE)
        self._warm = anyio.Event()
        self._indexed = anyio.Event()
        self._patient_until: float | None = None
        self._news = anyio.Event()
        self._listed = anyio.Event()
        self._stopping = threading.Event()

    # ------------------------------------------------------------------------------------------ life

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Roster]:
        """Backends connected, or on their way; stopped again on the way out."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.caller.scribe.run)
            try:
                async with self.pool.running():
                    yield self
            finally:
                await self.caller.scribe.finish()
                group.cancel_scope.cancel()

    async def keep_indexed(self) -> None:
        """Read the skills, load the encoder, then embed what arrives, for as long as this runs. Nothing that goes wrong
        here ends it."""
        told, pruned = "", False
        await self.skills.begin()
        try:
            while True:
                self._news = anyio.Event()
                try:
                    if self.catalogue.encoder is None:
                        await to_thread.run_sync(self.warm_up)
                    self._warm.set()
                    await to_thread.run_sync(self._embed)
                    await to_thread.run_sync(self.review)
                    if not pruned:
                        await to_thread.run_sync(self.prune_history)
                        pruned = True
                    await to_thread.run_sync(self.learn)
                    told = ""
                except EncoderError as error:
                    # A person must act. Drafts go on by words alone; the log and `roster status` say why.
                    log.warning("%s", error)
                    self._warm.set()
                    self._indexed.set()
                    return
                except Exception as error:  # noqa: BLE001 - it would end every client's connection
                    # A full disk, a locked database, a history that makes no sense: drafts go on with what there is, by
                    # words alone if need be, and this is tried again. Said once, not at every try.
                    kind = type(error).__name__
                    if kind != told:
                        log.warning("the index could not be brought up to date (%s); trying again", kind)
                    told = kind
                self._warm.set()
                if not self._news.is_set():
                    self._indexed.set()
                    # Cards another process admitted, or has put on file, are news that nobody tells this one.
                    with anyio.move_on_after(LOOK_AGAIN_S):
                        await self._news.wait()
                    if self._news.is_set():
                        self._indexed = anyio.Event()
        finally:
            self._stopping.set()

    def stop_indexing(self) -> None:
        """Let a thread that is embedding come to an end; cancelling cannot reach it."""
        self._stopping.set()

    def warm_up(self) -> None:
        """Open the encoder and its index. Synchronous; raises EncoderError."""
        settings = self.config.settings
        encoder = open_encoder(settings.model, settings.threads)
        self.catalogue.attach(encoder, self.home.index)
        if self.learner is not None:
            # A long history takes a second to read; here it does not hold up the first draft.
            self.learner.refresh()

    def prune_history(self) -> int:
        """Bring the history within its limits, oldest rows first; how many that dropped. Synchronous.

        In short transactions with a pause after each, so that calls that want to be recorded get their turn.
        """
        history, dropped = History(self.writer.db), 0
        while not self._stopping.is_set():
            with self.writer.lock, atomic(self.writer.db):
                some = history.trim(self.limits, self._clock(), PRUNED_AT_ONCE)
            if not some:
                break
            dropped += some
            self._stopping.wait(PRUNE_PAUSE_S)
        return dropped

    def learn(self, *, always: bool = False) -> None:
        """Choose anew what past outcomes count, if there is enough that is new. Synchronous."""
        if self.learner is not None and self.learner.settle(always=always):
            with self.writer.lock:
                self.learner.keep(History(self.writer.db), self._clock())

    def review(self, on_progress: Callable[[int, int], None] | None = None) -> int:
        """Read every card on file again if the rules are others now; how many that were. Synchronous."""
        held = self.config.settings.quarantine != "off"
        return self.inspector.catch_up(self._clock(), quarantine=held, on_progress=on_progress)

    def forget_vectors(self) -> None:
        """Drop this encoder's vectors and start the dense index anew. Synchronous."""
        if self.catalogue.encoder is not None:
            # The index file first: killed in between, the next run must find nothing that looks finished.
            drop_manifest(self.home.index)
            with self.writer.lock:
                self.writer.registry.vectors.forget(self.catalogue.encoder.fingerprint)
            self.catalogue.empty_dense()

    def _embed(self) -> None:
        self.catalogue.refresh()
        embed_missing(self.catalogue, self.writer, self.home, stopping=self._stopping.is_set)

    # ------------------------------------------------------------------------------- what backends report

    async def _sighted(self, backend: Backend, listing: Listing) -> bool:
        now = self._clock()
        try:
            sighting = await to_thread.run_sync(self._sight, backend, listing, now)
        except sqlite3.Error as error:
            # A connection must not end because its tools could not be written down just now.
            log.warning("%s: its tools could not be put on file (%s); trying again", backend.name, error)
            return False
        self.sightings.setdefault(backend.name, []).append(sighting)
        await self._noted(backend, tools=len(listing.rows), rejected=tuple(listing.rejected), listed_at=now)
        if listing.rejected:
            some = "; ".join(f"{name!r}: {reason}" for name, reason in list(listing.rejected.items())[:3])
            log.warning("%s: %d of its tools cannot be used (%s)", backend.name, len(listing.rejected), some)
        if listing.mended:
            some = "; ".join(f"{name!r}: {reason}" for name, reason in list(listing.mended.items())[:3])
            log.warning(
                "%s: %d of its tools break the protocol and are used without that (%s)",
                backend.name,
                len(listing.mended),
                some,
            )
        for line in sighting.told():
            log.warning("%s", line)
        self._told()
        if sighting.news:
            self._news.set()
            if self.on_change is not None:
                await self.on_change()
        return True

    def _sight(self, backend: Backend, listing: Listing, now: float) -> Sighting:
        self.inspector.read(card_from_tool(backend.name, row) for row in listing.rows)
        with self.writer.lock:
            sighting = self.writer.registry.sight(
                backend.name,
                listing.rows,
                now,
                uptime=uptime(),
                complete=listing.complete,
                present=listing.rejected,
                quarantine=self.config.settings.quarantine != "off",
                version=backend.version,
                configured=self.config.servers.keys(),
                suspicious=self.inspector.suspicious,
                review=self.inspector.grave,
            )
        self.inspector.note([*sighting.added, *sighting.changed])
        if sighting.changed:
            # A definition that is no more must not stay on disk until somebody happens to save the index.
            drop_index(self.home.index)
        return sighting

    async def _noted(self, backend: Backend, **more: Any) -> None:
        failed = backend.state in (State.FAILED, State.MISCONFIGURED)
        error = backend.error.value if failed and backend.error else None
        note = ServerNote(
            backend.name,
            backend.state.value,
            protocol=backend.protocol,
            version=backend.version,
            connect_ms=backend.connect_ms,
            error_kind=error,
            error_at=self._clock() if error else None,
            reason=backend.reason if error else None,
            offers=None if backend.offers is None else " ".join(backend.offers),
            **more,
        )
        if error and self._warned.get(backend.name) != backend.reason:
            # Once, not at every retry: a server can be broken for days.
            self._warned[backend.name] = backend.reason
            log.warning("%s: %s (%s)", backend.name, backend.reason, error)
        elif backend.state is State.READY:
            self._warned.pop(backend.name, None)

        def write() -> None:
            with self.writer.lock:
                self.writer.registry.servers.note(note)

        try:
            await to_thread.run_sync(write)
        except sqlite3.Error as failure:
            log.warning("the state of %s could not be noted: %s", backend.name, failure)
        if error:
            self._told()

    def _told(self) -> None:
        """Wake who waits for a first listing: one came, or one server fewer is going to send one."""
        self._listed.set()
        self._listed = anyio.Event()

    # ------------------------------------------------------------------------------------------ drafting

    async def draft(self, need: str, k: int, servers: Collection[str] | None = None) -> Draft:
        """The best k cards for a checked need, of these servers alone if any are named.

        In the first seconds after the first draft it waits for the encoder and for a small index to be complete: a
        better answer a moment later is worth more than a quick one by words alone. After that it never waits.
        """
        if self._patient_until is None:
            self._patient_until = anyio.current_time() + PATIENCE_S
        with anyio.CancelScope(deadline=self._patient_until):
            await self.skills.ready.wait()
            await self._something_known()
            await self._warm.wait()
            if self.catalogue.missing <= WORTH_WAITING_FOR:
                await self._indexed.wait()
        await self.skills.look()
        try:
            made = await to_thread.run_sync(self.draft_now, need, k, servers, limiter=self._drafting)
        except sqlite3.Error as error:
            remedy = "restart Roster; if that does not help, move the file away"
            raise StoreError(f"{self.home.database} cannot be read ({error}): {remedy}") from error
        if self.catalogue.missing:
            self._news.set()
        return made

    def draft_now(self, need: str, k: int, servers: Collection[str] | None = None) -> Draft:
        """`draft` as it stands, without waiting for anything. Synchronous."""
        return draft(self.catalogue, need, k, self.catalogue.tallies, self.learner, servers)

    async def _something_known(self) -> None:
        """Wait for a first listing when no tool of any server is known: there is nothing to answer with before it."""
        await to_thread.run_sync(self.catalogue.refresh)
        while not self._a_tool_is_known() and self.starting():
            await self._listed.wait()
            await to_thread.run_sync(self.catalogue.refresh)

    def _a_tool_is_known(self) -> bool:
        # Skills are read at once: that they are there says nothing of the servers.
        return any(entry.card.kind is Kind.TOOL for entry in self.catalogue.draftable().values())

    async def first_listings(self) -> None:
        """Wait for the servers that were never listed before, in the first seconds after the first call only."""
        if self._first_lists_until is None:
            self._first_lists_until = anyio.current_time() + PATIENCE_S
        with anyio.CancelScope(deadline=self._first_lists_until):
            notes = await to_thread.run_sync(self.catalogue.servers)
            for name, backend in self.pool.items():
                if name not in notes or notes[name].listed_at is None:
                    await backend.settled()

    def starting(self) -> list[str]:
        """The backends that have not listed their tools yet and may still."""
        return [name for name, backend in self.pool.items() if backend.state is State.STARTING]

    def awaited(self) -> list[str]:
        """The backends that are starting and of which nothing is on file from an earlier time."""
        known = {entry.card.server for entry in self.catalogue.draftable().values()}
        return [name for name in self.starting() if name not in known]


@contextmanager
def open_roster(
    config: Config,
    home: Home,
    *,
    environ: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.time,
    here: Path | None = None,
    playbooks: Collection[str] | None = None,
) -> Iterator[Roster]:
    """A Roster over this home, its database opened and brought up to date. Raises StoreError, ConfigError.

    here: the folder whose project skills count; None: the working directory. playbooks: the names that skills are on
    file under; None: those of the config's own folders.
    """
    open_home(home)
    writing = open_database(home.database)
    reading = open_database(home.database)
    servers = [name for name, spec in config.servers.items() if not spec.disabled]
    playbook, policy = open_playbook(config, environ, here), config.settings.quarantine
    named = playbook.servers if playbooks is None else playbooks
    catalogue = Catalogue(reading, servers, playbooks=named, quarantine=policy != "off")
    writer = Writer(writing)
    inspector = Inspector(catalogue, writer, files=lambda card: texts_of(playbook, card.raw))
    skills = Skills(playbook, writer, catalogue, home.index, inspector, quarantine=policy, clock=clock)
    try:
        writer.registry.refresh_words()
        yield Roster(config, home, writer, catalogue, skills, inspector, environ, clock)
    finally:
        # A thread may still be in the middle of a statement, waiting for another process's lock. Closing the
        # connection under it would bring the interpreter down, so it is let finish; its wait has an end.
        catalogue.close()
        writer.close()
