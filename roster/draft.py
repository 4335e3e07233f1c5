"""A need becomes a draft: exact names, meaning and words, blended; the best k; rated ones when too few match."""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any

from roster.briefs import brief
from roster.cards import Card
from roster.catalogue import Catalogue
from roster.errors import NeedError, json_type
from roster.history import NeedRow, Tally
from roster.learning import Learner, Learning
from roster.ranking import (
    PASSAGE_COST,
    Match,
    Scored,
    blend,
    dense_weight,
    match_of,
    match_strength,
    rank,
    scaled,
    spread,
    steps_share,
    with_learning,
)
from roster.ratings import wilson_lower
from roster.registry import Entry
from roster.vectors import Vectors
from roster.welcome import DEFAULT_K, MAX_K
from roster.words import fold, length_of, squashed, steps_of, tokens_of_need

__all__ = ["DEFAULT_K", "MAX_K", "Draft", "DraftMemory", "Drafted", "Starter", "checked_k", "checked_need", "draft"]

MAX_NEED_CHARACTERS = 20_000
CANDIDATES = 200
"""How many cards each stage puts in the running: far more than k, so that the blend and not a stage decides."""
ASKED = 40
"""How many cards of the running past outcomes are asked about: those further down are too far for evidence."""
LEARNED_FROM = 50
"""How many cards of a need's running are kept with it: what learning weighs its evidence against."""

_LONGEST_NAME = 8
"""Words of a need that may be nothing but a name."""
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

    running: the cards in the running, best first, beyond the k shown, each with its numbers. match: how well the best
    of them fits; when none does, the starters are rated ones or none. unread: the share of the need that the encoder
    cannot read. ranking: ids of what may stand in for a starter.
    """

    need: str
    starters: tuple[Starter, ...]
    ranking: tuple[str, ...]
    running: tuple[tuple[Card, Scored], ...] = field(default=(), repr=False)
    match: Match = Match.CLEAR
    unread: float = 0.0
    encoder: str = ""
    vector: Vectors | None = field(default=None, repr=False, compare=False)

    def lesson(self) -> NeedRow | None:
        """What learning may keep of this draft: the need's vector and the cards in the running, no words."""
        if self.vector is None:
            return None
        # Scores without evidence, or it would be weighed against itself.
        running = [(scored.number, scored.base) for _, scored in self.running[:LEARNED_FROM]]
        return NeedRow(self.encoder, self.vector, running)


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
    the web" names nothing. Nearly exact counts too: another way of joining a name's words (`listIssues`), and a need
    that is nothing but such words ("list the issues"), with or without the server's.
    """
    written = [word for typed in _TYPED.findall(need) if (word := typed.rstrip("."))]
    alone = len(written) == 1
    names = {
        fold(word)
        for word in written
        if alone or _HUMP.search(word) or (not word.isalpha() and len(word) > 2 and any(map(str.isalpha, word)))
    }
    names |= {squashed(word) for word in written if "_" in word or _HUMP.search(word)}
    if len(written) <= _LONGEST_NAME:
        names.add(squashed(need))
        if len(said := tokens_of_need(need)) > 1:  # one word that is left of a sentence is no name
            names.add("".join(said))
    return names - {""}


def rated_first(entries: Mapping[int, Entry], tallies: Mapping[str, Tally]) -> list[int]:
    """Cards that have worked here, highest Wilson lower bound first, then the most recently called."""
    worked = [(number, tally) for number, e in entries.items() if (tally := tallies.get(e.card.id)) and tally.successes]

    def order(pair: tuple[int, Tally]) -> tuple[float, float, int]:
        number, tally = pair
        return (-wilson_lower(tally.successes, tally.calls), -tally.last_at, number)

    return [number for number, _ in sorted(worked, key=order)]


def draft(
    catalogue: Catalogue,
    need: str,
    k: int = DEFAULT_K,
    tallies: Callable[[], Mapping[str, Tally]] = dict,
    learner: Learner | None = None,
    servers: Collection[str] | None = None,
) -> Draft:
    """The best k cards for a need. Synchronous and processor-bound; deterministic for one state of the database.

    tallies: read only when fewer than k cards match. learner: what past outcomes add; None: nothing. servers: the only
    ones whose cards are in the running; None: all.
    """
    catalogue.refresh()
    if learner is not None:
        learner.refresh()
    known = entries = catalogue.draftable()
    if servers is not None:
        entries = {number: entry for number, entry in known.items() if entry.card.said_server in servers}
    words = length_of(need)
    # Enough of them that cards which are not in the running take nobody's place.
    shared_words = catalogue.words(need, CANDIDATES + len(known) - len(entries))
    bm25 = dict([pair for pair in shared_words if pair[0] in entries][:CANDIDATES])
    named = catalogue.named(names_in(need)) & entries.keys()
    only = entries.keys() if servers is not None else None
    meant = _meaning(catalogue, need, words, entries.keys(), {*bm25, *named}, learner, only)
    blended = blend(
        meant.similarities,
        meant.floor,
        bm25,
        named=named,
        weight=dense_weight(words, meant.unread),
        steps=meant.steps,
        share=steps_share(words),
    )
    learned = Learning()
    if learner is not None:
        asked = {*meant.served, *(scored.number for scored in rank(blended, ASKED))}
        learned = learner.ask(meant.vector, asked, [scored.number for scored in blended])
        blended = with_learning(blended, learned.evidence, learned.weights, learned.ratings, learned.adapted)
    blended = spread(blended, meant.steps, MAX_K, steps_share(words))
    running = tuple((entries[scored.number].card, scored) for scored in rank(blended, CANDIDATES))
    best, shared = max(meant.similarities.values(), default=1.0), max(bm25.values(), default=0.0)
    # A named card fits, and a need beyond ASCII is never judged: the embedded model reads English, so that its cosines
    # are low there says nothing about the cards.
    # What served needs like this one fits, whatever it says of itself.
    served = any(
        scored.learned is not None and scored.learned.share * scored.learned.well > 0.5 for _, scored in running[:k]
    )
    judged = not named and not served and need.isascii()
    match = match_of(match_strength(best, shared), catalogue.match_floor if judged else None)
    starters = [] if match is Match.NONE else [Starter(card, scored) for card, scored in running[:k]]
    if len(starters) < k:
        shown = {starter.scored.number for starter in starters}
        rated = [number for number in rated_first(entries, tallies()) if number not in shown]
        starters += [Starter(entries[n].card, Scored(n, 0.0), rated=True) for n in rated[: k - len(starters)]]
    ranking = () if match is Match.NONE else tuple(card.id for card, _ in running)
    named_by = catalogue.encoder.fingerprint if catalogue.encoder is not None else ""
    return Draft(need, tuple(starters), ranking, running, match, meant.unread, named_by, meant.vector)


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What the encoder says of a need: cosines by card, the lowest of all, and nearness to each single step.

    unread: how much of the need it cannot read. served: cards that served needs near this one.
    """

    similarities: Mapping[int, float] = field(default_factory=dict)
    floor: float = 0.0
    steps: Mapping[int, Sequence[float]] = field(default_factory=dict)
    unread: float = 0.0
    vector: Vectors | None = None
    served: Sequence[int] = ()


def _meaning(
    catalogue: Catalogue,
    need: str,
    words: int,
    allowed: Collection[int],
    others: Collection[int],
    learner: Learner | None,
    only: Collection[int] | None = None,
) -> _Meaning:
    """The nearest cards to a need and, for one of several steps, to each of its steps; and what it says of `others`.

    only: the cards that are looked at; None: all.
    """
    encoder, dense = catalogue.encoder, catalogue.dense
    if encoder is None or dense is None or not len(dense):
        return _Meaning()
    parts = steps_of(need) if steps_share(words) else []
    vectors = encoder.encode_needs([need, *parts])
    whole, *each = [vectors[row : row + 1] for row in range(len(vectors))]
    similarities = {number: score for number, score in dense.search(whole, CANDIDATES, only) if number in allowed}
    passages = catalogue.passages_near(whole)
    found = {number for vector in each for number, _ in dense.search(vector, MAX_K, only) if number in allowed}
    served: list[int] = []
    if learner is not None:
        served = [number for number in learner.near(vectors[0]) if number in allowed]
        found.update(served)
    best = nlargest(CANDIDATES, (number for number in passages if number in allowed), key=passages.__getitem__)
    missing = [number for number in {*others, *found, *best} if number not in similarities]
    similarities |= dense.similarities(whole, missing)
    similarities = _with_passages(similarities, passages)
    near: dict[int, list[float]] = {}
    for turn, vector in enumerate(each, 1):
        top, low = max((score for _, score in dense.search(vector, 1, only)), default=0.0), dense.floor(vector, only)
        step = _with_passages(dense.similarities(vector, similarities), catalogue.passages_near(vector))
        for number, score in step.items():
            near.setdefault(number, []).append(min(1.0, scaled(score, low, top)))
        # Another thread may be taking a card out at this moment: one that is not known for every step is for none.
        near = {number: steps for number, steps in near.items() if len(steps) == turn}
    return _Meaning(similarities, dense.floor(whole, only), near, encoder.unread(need), vectors[0], served)


def _with_passages(similarities: Mapping[int, float], passages: Mapping[int, float]) -> dict[int, float]:
    """Each card's similarity, or that of its nearest passage where that is nearer by more than passages cost."""
    return {
        number: max(score, passages[number] - PASSAGE_COST) if number in passages else score
        for number, score in similarities.items()
    }


@dataclass(slots=True)
class Drafted:
    """What is remembered of a draft, never its words. ids: the starters, then what may stand in for them, best first.

    need: what learning may keep of it once it leads to a call; None when nothing was encoded. stored: its number once
    it was kept, so that several calls of one draft keep it once. prints: by id, what each card was when it was drafted.
    """

    ids: tuple[str, ...]
    need: NeedRow | None = None
    stored: int | None = None
    prints: Mapping[str, str] = field(default_factory=dict)

    def holds(self, card: Card) -> bool:
        """Whether the draft was of this card as it is: what served a need by another definition teaches nothing."""
        return card.id in self.ids and self.prints.get(card.id, card.fingerprint) == card.fingerprint


class DraftMemory:
    """The drafts of one connection, by draft id; the oldest are forgotten."""

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._drafts: OrderedDict[str, Drafted] = OrderedDict()

    def remember(self, made: Draft) -> str:
        """Keep a draft's ranking, never its words; the id it can be named by from now on."""
        draft_id = f"d{secrets.token_hex(4)}"
        while draft_id in self._drafts:
            draft_id = f"d{secrets.token_hex(4)}"
        shown = [starter.card.id for starter in made.starters]
        self._drafts[draft_id] = Drafted(
            tuple(dict.fromkeys([*shown, *made.ranking])),
            made.lesson(),
            prints={card.id: card.fingerprint for card, _ in made.running},
        )
        while len(self._drafts) > self._limit:
            self._drafts.popitem(last=False)
        return draft_id

    def find(self, draft_id: object) -> Drafted | None:
        """The draft of this id; None for an id that is unknown here or forgotten."""
        return self._drafts.get(draft_id) if isinstance(draft_id, str) else None
