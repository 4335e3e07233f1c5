"""A home for each need set: its cards on file and embedded as in any other home, and kept for the next run."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from roster.app import Roster, open_roster
from roster.cards import SKILLS, Card, Kind, card_from_row, dense_text, lexical_text, raw_json
from roster.config import Config, Home, ServerSpec, Settings, Transport
from roster.database import open_database
from roster.encoder import Encoder
from roster.errors import RosterError
from roster.evaluation.needsets import NeedSet
from roster.passages import passages_of
from roster.registry import Registry
from roster.reindex import embed_missing

__all__ = ["Filled", "cards_of", "home_of", "open_filled", "open_scratch"]

_SPEC = ServerSpec(transport=Transport.STDIO, command="never-started")
_LISTED = ("name", "title", "description", "inputSchema", "annotations", "body")


@dataclass(frozen=True, slots=True)
class Filled:
    """A home with every card of a need set in it. corpus_ids: (server, name) of a card → its `_id` in the corpus."""

    roster: Roster
    corpus_ids: Mapping[tuple[str, str], str]
    embedded: int
    embed_s: float


def _listings(needset: NeedSet) -> dict[tuple[Kind, str], dict[str, Mapping[str, Any]]]:
    """(kind, server) → name → corpus row. Skills are on file as in any home: under one server, whatever theirs is here.

    One server cannot list a name twice, but some corpora do. The second one goes to a server of its own, whose name
    differs by an underscore and so has the same words: every text that is searched stays as it was.
    """
    listings: dict[tuple[Kind, str], dict[str, Mapping[str, Any]]] = {}
    for row in needset.cards:
        kind = Kind(row.get("kind", "tool"))
        server = SKILLS if kind is Kind.SKILL else row["server"]
        while row["name"] in listings.setdefault((kind, server), {}):
            server += "_"
        listings[kind, server][row["name"]] = row
    return listings


def _listed(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in _LISTED if row.get(key) is not None}


def cards_of(needset: NeedSet) -> dict[str, Card]:
    """`_id` in the corpus → the card as it is on file, but for its fingerprint."""
    return {
        row["_id"]: card_from_row(kind, server, _listed(row), "unused")
        for (kind, server), rows in _listings(needset).items()
        for row in rows.values()
    }


def home_of(needset: NeedSet, cache: Path) -> Home:
    """The home in `cache` for these cards: another one as soon as a card, or what is searched of it, is another."""
    digest = hashlib.sha256()
    for card in cards_of(needset).values():
        parts = [card.server, raw_json(card.raw), dense_text(card), repr(lexical_text(card)), *passages_of(card)]
        digest.update(json.dumps(parts).encode())
    return Home(cache / f"{_safe(needset.name)}-{digest.hexdigest()[:16]}")


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:60]


@contextmanager
def open_filled(
    needset: NeedSet,
    encoder: Encoder | None,
    cache: Path,
    on_progress: Callable[[int, int], None] | None = None,
    *,
    lender: Path | None = None,
) -> Iterator[Filled]:
    """The need set's home, every card on file and, with an encoder, embedded; vectors that are there are used.

    lender: the cache whose vectors may be taken over, instead of `cache`.
    Raises RosterError when the cache cannot be written or a card cannot be put on file.
    """
    listings = _listings(needset)
    servers = {kind: [server for of, server in listings if of is kind] for kind in Kind}
    config = Config(Settings(standard_skills=False), dict.fromkeys(servers[Kind.TOOL], _SPEC))
    home = home_of(needset, cache)
    with open_roster(config, home, playbooks=servers[Kind.SKILL]) as roster:
        ids: dict[tuple[str, str], str] = {}
        for (kind, server), rows in listings.items():
            try:
                roster.writer.registry.sight(server, [_listed(row) for row in rows.values()], time.time(), kind=kind)
            except (TypeError, ValueError, RecursionError) as error:
                raise RosterError(f"{needset.folder}: a card of server {server!r} cannot be used ({error})") from error
            ids |= {(server, name): row["_id"] for name, row in rows.items()}
        embedded, embed_s = 0, 0.0
        if encoder is None:
            roster.catalogue.refresh()
        else:
            roster.catalogue.attach(encoder, home.index)
            if roster.catalogue.unread_texts():
                _borrow_vectors(roster, encoder, home, lender or cache, f"{_safe(needset.name)}-*")
            begun = time.perf_counter()
            embedded = embed_missing(roster.catalogue, roster.writer, home, on_progress=on_progress)
            embed_s = time.perf_counter() - begun
        yield Filled(roster, ids, embedded, embed_s)


@contextmanager
def open_scratch(
    needset: NeedSet,
    encoder: Encoder,
    cache: Path,
    on_progress: Callable[[int, int], None] | None = None,
) -> Iterator[Filled]:
    """`open_filled`, in a home that is gone afterwards: for outcomes and changed cards, which `cache` never holds.

    Vectors are taken from `cache`; what is not there is embedded and lost.
    """
    with (
        TemporaryDirectory(prefix="roster-replay-") as folder,
        open_filled(needset, encoder, Path(folder), on_progress, lender=cache) as filled,
    ):
        yield filled


def _borrow_vectors(roster: Roster, encoder: Encoder, home: Home, lender: Path, pattern: str) -> None:
    """Take over what earlier states of the set have embedded: a card that changed costs one text, not all of them."""
    for folder in sorted(lender.glob(pattern)):
        missing = roster.catalogue.unread_texts()
        other = Home(folder)
        if not missing or folder == home.folder or not other.database.is_file():
            continue
        db = open_database(other.database)
        try:
            found = Registry(db).vectors.of(encoder.fingerprint, missing)
        finally:
            db.close()
        if found:
            roster.writer.registry.vectors.keep(encoder.fingerprint, list(found), np.stack(list(found.values())))
            roster.catalogue.take_stored()
