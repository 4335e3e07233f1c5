"""A need becomes a draft: exact names, meaning and words, blended; the best k; rated ones when too few match."""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roster.briefs import brief
from roster.cards import Card
from roster.catalogue import Catalogue
from roster.errors import NeedError, json_type
from roster.history import Tally
from roster.ranking import Scored, blend, match_strength, rank
from roster.ratings import wilson_lower
from roster.registry import Entry
from roster.words import fold

__all__ = ["DEFAULT_K", "MAX_K", "Draft", "DraftMemory", "Starter", "checked_k", "checked_need", "draft"]

DEFAULT_K = 5
MAX_K = 10
MAX_NEED_CHARACTERS = 20_000
CANDIDATES = 200
"""How many cards each stage puts in the running: far more than k, so that the blend and not a stage decides."""

_HUMP = re.compile(r"[a-z][A-Z]")
_TYPED = re.compile(r"[^\s,;:!?()\[\]{}\"'`<>]+")


@dataclass(frozen=True, slots=True)
class Starter:
    """A card in a draft, with the numbers that put it there; `rated` when it is there for its record alone."""

    card: Card
    scored: Scored
    rated: bool = False

    def wire(self) -> dict[str, Any]:
        """The starter as `draft` answers it."""
        shown = brief(self.card)
        return {**shown, "basis": "rated"} if self.rated else shown


@dataclass(frozen=True, slots=True)
class Draft:
    """The answer to one need.

    ranking: card ids, best first, beyond the k shown. running: each with its numbers. weak: none of them
    clearly fits the need.
    """

    need: str
    starters: tuple[Starter, ...]
    ranking: tuple[str, ...]
    running: tuple[tuple[Card, Scored], ...] = field(default=(), repr=False)
    weak: bool = False


def checked_need(need: Any) -> str:
    """`need` if it can be drafted for. Raises NeedError naming what is wrong and what to send."""
    if need is None:
        raise NeedError("need is missing: say in a sentence what you want to do next")
    if not isinstance(need, str):
        raise NeedError(f"need must be a string, not {json_type(need)}: say in a sentence what you want to do next")
    if not need.strip():
        raise NeedError("need is empty: say in a sentence what you want to do next")
    if len(need) > MAX_NEED_CHARACTERS:
        raise NeedError(
            f"need has {len(need):,} characters, at most {MAX_NEED_CHARACTERS:,} are read: "
            "say what to do next, not what to do it with"
        )
    return need


def checked_k(k: Any) -> int:
    """`k` if it is a whole number from 1 to 10; the default when it is absent. Raises NeedError."""
    if k is None:
        return DEFAULT_K
    if isinstance(k, float) and k.is_integer():
        k = int(k)
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_K:
        raise NeedError(f"k is {k!r}: it must be a whole number from 1 to {MAX_K}")
    return k


def names_in(need: str) -> set[str]:
    """The words of a need that may be a card's whole name, folded: `create_issue`, `githubSearch`, `notes-2`.

    A plain word is not taken for a name unless it is all there is: "search" alone names the tool `search`, "search
    the web" names nothing.
    """
    written = [word for typed in _TYPED.findall(need) if (word := typed.rstrip("."))]
    alone = len(written) == 1
    return {fold(word) for word in written if alone or not word.isalpha() or _HUMP.search(word)}


def rated_first(entries: Mapping[int, Entry], tallies: Mapping[str, Tally]) -> list[int]:
    """Cards that have worked here, highest Wilson lower bound first, then the most recently called."""
    worked = [(number, tally) for number, e in entries.items() if (tally := tallies.get(e.card.id)) and tally.successes]

    def order(pair: tuple[int, Tally]) -> tuple[float, float, int]:
        number, tally = pair
        return (-wilson_lower(tally.successes, tally.calls), -tally.last_at, number)

    return [number for number, _ in sorted(worked, key=order)]


def fits_nothing(need: str, floor: float | None, similarity: float, bm25: float) -> bool:
    """Whether the best match of a need is too weak to be shown.

    floor: the encoder's own. A need with letters beyond ASCII is never judged: the embedded model reads English, so
    that its cosines are low there says nothing about the cards.
    """
    return floor is not None and need.isascii() and match_strength(similarity, bm25) < floor


def draft(
    catalogue: Catalogue, need: str, k: int = DEFAULT_K, tallies: Callable[[], Mapping[str, Tally]] = dict
) -> Draft:
    """The best k cards for a need. Synchronous and processor-bound; deterministic for one state of the database.

    tallies: read only when fewer than k cards match.
    """
    catalogue.refresh()
    entries = catalogue.draftable()
    bm25 = {number: score for number, score in catalogue.words(need, CANDIDATES) if number in entries}
    named = catalogue.named(names_in(need)) & entries.keys()
    similarities: dict[int, float] = {}
    floor = 0.0
    encoder, dense = catalogue.encoder, catalogue.dense
    if encoder is not None and dense is not None and len(dense):
        vector = encoder.encode_needs([need])
        similarities = {n: s for n, s in dense.search(vector, CANDIDATES) if n in entries}
        others = [number for number in {*bm25, *named} if number not in similarities]
        similarities |= dense.similarities(vector, others)
        floor = dense.floor(vector)
    order = rank(blend(similarities, floor, bm25, named=named), CANDIDATES)
    running = tuple((entries[scored.number].card, scored) for scored in order)
    best, words = max(similarities.values(), default=1.0), max(bm25.values(), default=0.0)
    weak = not named and fits_nothing(need, encoder.match_floor if encoder else None, best, words)
    starters = [Starter(card, scored) for card, scored in running[:k]]
    if len(starters) < k:
        shown = {starter.scored.number for starter in starters}
        rated = [number for number in rated_first(entries, tallies()) if number not in shown]
        starters += [Starter(entries[n].card, Scored(n, 0.0), rated=True) for n in rated[: k - len(starters)]]
    return Draft(need, tuple(starters), tuple(card.id for card, _ in running), running, weak)


class DraftMemory:
    """The drafts of one connection, by draft id; the oldest are forgotten."""

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._drafts: OrderedDict[str, Sequence[str]] = OrderedDict()

    def remember(self, made: Draft) -> str:
        """Keep a draft's ranking, never its words; the id it can be named by from now on."""
        draft_id = f"d{secrets.token_hex(4)}"
        while draft_id in self._drafts:
            draft_id = f"d{secrets.token_hex(4)}"
        shown = [starter.card.id for starter in made.starters]
        self._drafts[draft_id] = tuple(dict.fromkeys([*shown, *made.ranking]))
        while len(self._drafts) > self._limit:
            self._drafts.popitem(last=False)
        return draft_id

    def ranking(self, draft_id: object) -> Sequence[str] | None:
        """Card ids of a draft, best first; None for an id that is unknown here or forgotten."""
        return self._drafts.get(draft_id) if isinstance(draft_id, str) else None
