"""Need sets as training data: read, cap, shuffle into batches, and say which cards must never count as wrong.

Pure, and without torch: files and numbers in, texts, indices and masks out; every draw comes from a seeded generator.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from roster.cards import TEXT_LIMIT
from roster.vectors import Vectors
from roster.words import split_identifier, tokens_of_need

Mask: TypeAlias = NDArray[np.bool_]

CAPS = {
    "acebench_zh": 300,
    "apibench": 600,
    "awscli": 3000,
    "banking77": 450,
    "clinc150": 900,
    "home_intents": 500,
    "metatool": 2500,
    "office_powershell": 1500,
    "powershell": 2500,
    "slurp": 650,
    "snips": 70,
    "tldr_en": 2200,
    "tldr_europe": 700,
    "tldr_world": 400,
}
"""Needs taken of a set, at most; a set that is not named gives all. Intent sets have a hundred needs a card and would
drown the rest; in the command-line sets several cards often do the same job."""

NOISY = frozenset({"apibench", "tldr_en", "tldr_europe", "tldr_world"})
"""Sets whose README warns that an unlabelled card is often right as well."""

TWIN_WORDS = 0.85
"""Jaccard similarity of two card texts' words from which they are taken for the same card."""
TWIN_COSINE = 0.95
"""The same for the cosine of their base vectors."""
SAFE_SHARE = 0.95
"""A doubtful card is a negative only below this share of the similarity the base model gives the right card
("positive-aware" filtering: Moreira et al. 2024, NV-Retriever)."""


class TrainDataError(Exception):
    """A need set that cannot be trained on; the message names the file, the line and what to do."""


@dataclass(frozen=True, slots=True)
class CardParts:
    """A card's text in its three parts, each as `roster.cards.dense_text` writes it."""

    server: str
    name: str
    about: str

    @property
    def text(self) -> str:
        """What the encoder reads once this card is in an index."""
        return f"{self.server}, {self.name}: {self.about}"


@dataclass(frozen=True, slots=True)
class NeedSet:
    """Labelled needs over one corpus. `relevant[i]`: numbers of the cards that serve `needs[i]`, never empty."""

    name: str
    cards: tuple[CardParts, ...]
    needs: tuple[str, ...]
    relevant: tuple[frozenset[int], ...]
    licences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Example:
    """One need to learn from, by its place: which set, which need of it."""

    set: int
    need: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step reads. `cards`: (set, card) of the pool, each once; masks are (needs, cards).

    positive: labelled. ignored: neither right nor wrong, because it may be right without a label.
    """

    examples: tuple[Example, ...]
    cards: tuple[tuple[int, int], ...]
    needs: tuple[str, ...]
    texts: tuple[str, ...]
    positive: Mask
    ignored: Mask


# --- Reading ----------------------------------------------------------------------------------------------------------


def _rows(file: Path, keys: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, row) of a JSON-lines file; raises TrainDataError for a row without `keys` as strings."""
    if not file.is_file():
        raise TrainDataError(
            f"{file} is missing: a need set is a folder of corpus.jsonl, queries.jsonl, qrels/train.tsv"
        )
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise TrainDataError(f"{file}, line {number} is not JSON ({error}): write one object a line") from None
            for key in keys:
                if not isinstance(row, dict) or not isinstance(row.get(key), str):
                    raise TrainDataError(f'{file}, line {number} has no "{key}": give it, as a string')
            yield number, row


def card_parts(row: Mapping[str, Any]) -> CardParts:
    """The parts of a corpus row's text; server and name as words, the title where there is no description."""
    about = row.get("description") or row.get("title") or ""
    return CardParts(
        " ".join(split_identifier(str(row["server"]))),
        " ".join(split_identifier(str(row["name"]))),
        str(about)[:TEXT_LIMIT],
    )


def _grades(file: Path) -> Iterator[tuple[int, str, str]]:
    """(line number, need id, card id) of every positive grade."""
    if not file.is_file():
        raise TrainDataError(f"{file} is missing: it holds the header and a line `need<TAB>card<TAB>grade` a label")
    with file.open(encoding="utf-8") as lines:
        next(lines, None)
        for number, line in enumerate(lines, 2):
            parts = line.rstrip("\r\n").split("\t")
            if parts == [""]:
                continue
            try:
                need, card, grade = parts[0], parts[1], float(parts[2])
            except (IndexError, ValueError):
                raise TrainDataError(
                    f"{file}, line {number} is not `need<TAB>card<TAB>grade`: separate by tabs, grade as a number"
                ) from None
            if grade > 0:
                yield number, need, card


def read_needset(folder: Path, split: str = "train") -> NeedSet:
    """The cards of a BEIR folder and the needs that `qrels/{split}.tsv` labels, in that file's order.

    Needs of the same text are one need with the labels of all. Raises TrainDataError naming file, line and remedy.
    """
    corpus, queries, qrels = folder / "corpus.jsonl", folder / "queries.jsonl", folder / "qrels" / f"{split}.tsv"
    numbers: dict[str, int] = {}
    cards: list[CardParts] = []
    for line, row in _rows(corpus, ("_id", "server", "name")):
        if row["_id"] in numbers:
            raise TrainDataError(f"{corpus}, line {line} repeats the id {row['_id']!r}: give every card its own")
        numbers[row["_id"]] = len(cards)
        cards.append(card_parts(row))
    texts = {row["_id"]: row["text"].strip() for _, row in _rows(queries, ("_id", "text"))}
    relevant: dict[str, set[int]] = {}
    for line, need, card in _grades(qrels):
        if need not in texts:
            raise TrainDataError(
                f"{qrels}, line {line} names need {need!r}: add it to {queries.name}, or drop the line"
            )
        if card not in numbers:
            raise TrainDataError(f"{qrels}, line {line} names card {card!r}: add it to {corpus.name}, or drop the line")
        if texts[need]:
            relevant.setdefault(texts[need], set()).add(numbers[card])
    if not relevant:
        raise TrainDataError(f"{qrels} labels no need with a grade above 0: there is nothing to learn from")
    readme = folder / "README.md"
    lines = readme.read_text("utf-8").splitlines() if readme.is_file() else []
    licences = [line.removeprefix("- Licence:").strip() for line in lines if line.startswith("- Licence:")]
    return NeedSet(
        folder.resolve().name,
        tuple(cards),
        tuple(relevant),
        tuple(frozenset(found) for found in relevant.values()),
        tuple(licences),
    )


def find_needsets(folder: Path) -> list[Path]:
    """The need sets right under a folder, by name. Raises TrainDataError when there is none."""
    found = sorted(path.parent for path in folder.glob("*/corpus.jsonl"))
    if not found:
        raise TrainDataError(f"{folder} holds no need set: give a folder of folders with corpus.jsonl")
    return found


# --- Sampling ---------------------------------------------------------------------------------------------------------


def sample(needset: NeedSet, cap: int | None, rng: np.random.Generator) -> list[int]:
    """At most `cap` need numbers, spread over the cards: every card gives one before any gives a second."""
    order: list[int] = rng.permutation(len(needset.needs)).tolist()
    if cap is None or cap >= len(order):
        return order
    seen: Counter[int] = Counter()
    turns = []
    for need in order:
        card = min(needset.relevant[need])
        turns.append(seen[card])
        seen[card] += 1
    return [order[place] for place in np.argsort(turns, kind="stable")[:cap].tolist()]


def neighbourhoods(cards: Sequence[int], vectors: Vectors, size: int, rng: np.random.Generator) -> list[list[int]]:
    """Places 0..n-1 in groups of `size`: a random one and those whose cards are nearest to its card.

    cards: the card of each place, so that a group holds a card once where there are others left. vectors: (n, dim)
    unit rows, the base vector of that card. In-batch negatives are then near misses, not strangers.
    """
    left = rng.permutation(len(cards)).tolist()
    groups = []
    while left:
        nearness = vectors[left] @ vectors[left[0]]
        taken: list[int] = []
        again: list[int] = []
        seen: set[int] = set()
        for at in np.argsort(-nearness, kind="stable").tolist():
            place = left[at]
            if cards[place] in seen:
                again.append(place)
                continue
            seen.add(cards[place])
            taken.append(place)
            if len(taken) == size:
                break
        group = (taken + again)[:size]
        groups.append(group)
        gone = set(group)
        left = [place for place in left if place not in gone]
    return groups


def plan(groups: Sequence[Sequence[Example]], groups_a_batch: int, rng: np.random.Generator) -> list[list[Example]]:
    """The groups of all sets in random order, so many to a batch: near misses within a group, other sets beside it."""
    order = rng.permutation(len(groups)).tolist()
    mixed = [order[at : at + groups_a_batch] for at in range(0, len(order), groups_a_batch)]
    return [[example for at in batch for example in groups[at]] for batch in mixed]


# --- Negatives --------------------------------------------------------------------------------------------------------


def word_sets(texts: Sequence[str]) -> NDArray[np.float32]:
    """(n, vocabulary) 0/1: which words a text holds."""
    split = [set(re.findall(r"\w+", text.casefold())) for text in texts]
    columns = {word: at for at, word in enumerate(sorted(set().union(*split)))}
    out = np.zeros((len(texts), len(columns)), np.float32)
    for row, words in enumerate(split):
        out[row, [columns[word] for word in words]] = 1
    return out


def twins(texts: Sequence[str], threshold: float = TWIN_WORDS) -> Mask:
    """(n, n): pairs of texts whose words have a Jaccard similarity of `threshold` or more, each with itself."""
    held = word_sets(texts)
    shared = held @ held.T
    sizes = held.sum(axis=1)
    union = sizes[:, None] + sizes[None, :] - shared
    out: Mask = (shared >= threshold * union) | np.eye(len(texts), dtype=bool)
    return out


def ignored_cards(
    positive: Mask,
    texts: Sequence[str],
    vectors: Vectors,
    need_vectors: Vectors,
    doubtful: Mask,
) -> Mask:
    """(needs, cards): unlabelled cards that must not count as wrong for a need.

    positive, doubtful: (needs, cards); doubtful marks pairs without a trustworthy negative label (another set's card,
    a noisy set). A card is left out when it is a twin of a right card, by words or by base vector, or when it is
    doubtful and the base model holds it nearly as near as the best right card. vectors: (cards, dim), need_vectors:
    (needs, dim), unit rows of the base model.
    """
    alike = twins(texts) | (vectors @ vectors.T >= TWIN_COSINE)
    twin = (positive.astype(np.float32) @ alike.astype(np.float32)) > 0
    similarity = need_vectors @ vectors.T
    best = np.where(positive, similarity, -1.0).max(axis=1, keepdims=True)
    near = doubtful & (similarity >= SAFE_SHARE * best)
    out: Mask = (twin | near) & ~positive
    return out


def mine(similarity: NDArray[np.float32], relevant: frozenset[int], depth: int, rng: np.random.Generator) -> int | None:
    """A card that the base model ranks high for a need and that is wrong, or None when there is none.

    similarity: (cards,) cosine to the need. One of the `depth` best cards that stay below `SAFE_SHARE` of the best
    right card: nearer ones are too often right without a label.
    """
    best = max(float(similarity[card]) for card in relevant)
    top = np.argsort(-similarity, kind="stable")[: depth + 4 * len(relevant) + 20].tolist()
    wrong = [card for card in top if card not in relevant and similarity[card] < SAFE_SHARE * best]
    return int(rng.choice(wrong[:depth])) if wrong else None


# --- Variety ----------------------------------------------------------------------------------------------------------


def vary_card(card: CardParts, rng: np.random.Generator, share: float) -> str:
    """The card's text, or for about `share` of the draws one with a part missing, as sparse catalogues have them."""
    draw = rng.random()
    if draw >= share or not card.about:
        return card.text
    match int(draw / share * 4):
        case 0:
            return f"{card.server}, {card.name}:"
        case 1:
            return card.about
        case _:
            return f"{card.name}: {card.about}"


def vary_need(need: str, rng: np.random.Generator, share: float) -> str:
    """The need, or for about `share` of the draws its bare words, as a hurried caller types them."""
    draw = rng.random()
    if draw >= share:
        return need
    if draw < share / 2:
        return need.lower().rstrip(".?!")
    return " ".join(tokens_of_need(need)) if need.isascii() else need


_JOINTS = (" Then ", " Also, ", " And ", "\n", " After that, ", " ")


def join_needs(needs: Sequence[str], rng: np.random.Generator) -> str:
    """Several needs as one of several steps."""
    ended = [need if need.endswith((".", "?", "!")) else f"{need}." for need in needs]
    out = ended[0]
    for need in ended[1:]:
        out += str(rng.choice(_JOINTS)) + need
    return out


# --- Batches ----------------------------------------------------------------------------------------------------------


def assemble(
    sets: Sequence[NeedSet],
    examples: Sequence[Example],
    negatives: Mapping[Example, int],
    need_vectors: Mapping[Example, Vectors],
    card_vectors: Sequence[Vectors],
    rng: np.random.Generator,
    *,
    vary: float = 0.0,
    join: float = 0.0,
) -> Batch:
    """One step's texts and masks: the needs, then a share `join` of them once more, joined with others of the batch.

    The pool holds every labelled card of the needs and their mined negatives, so a joined need costs no card more.
    need_vectors: (dim,) base vector of an example's need; card_vectors: (cards, dim) of each set.
    """
    pool: dict[tuple[int, int], int] = {}
    for example in examples:
        for card in sorted(sets[example.set].relevant[example.need]):
            pool.setdefault((example.set, card), len(pool))
    for example in examples:
        if example in negatives:
            pool.setdefault((example.set, negatives[example]), len(pool))
    cards = tuple(pool)
    positive = np.zeros((len(examples), len(cards)), bool)
    by_text: dict[str, list[int]] = defaultdict(list)
    for row, example in enumerate(examples):
        positive[row, [pool[example.set, card] for card in sets[example.set].relevant[example.need]]] = True
        by_text[sets[example.set].needs[example.need].casefold()].append(row)
    owners = np.array([owner for owner, _ in cards])
    noisy = np.array([needset.name in NOISY for needset in sets])
    own = np.array([example.set for example in examples])
    doubtful = (owners[None, :] != own[:, None]) | noisy[own][:, None]
    ignored = ignored_cards(
        positive,
        [sets[owner].cards[card].text for owner, card in cards],
        np.stack([card_vectors[owner][card] for owner, card in cards]),
        np.stack([need_vectors[example] for example in examples]),
        doubtful,
    )
    for rows in by_text.values():  # the same words in two sets: what serves one may serve the other
        ignored[rows] |= positive[rows].any(axis=0)
    ignored &= ~positive

    needs = [sets[example.set].needs[example.need] for example in examples]
    varied = [vary_need(need, rng, vary) for need in needs]
    texts = [vary_card(sets[owner].cards[card], rng, vary) for owner, card in cards]
    joined, joined_positive, joined_ignored = [], [], []
    for _ in range(round(join * len(examples))):
        count = min(int(rng.integers(2, 4)), len(examples))
        rows = rng.choice(len(examples), count, replace=False).tolist()
        joined.append(join_needs([needs[row] for row in rows], rng))
        joined_positive.append(positive[rows].any(axis=0))
        joined_ignored.append(ignored[rows].any(axis=0))
    if joined:
        positive = np.vstack([positive, *joined_positive])
        ignored = np.vstack([ignored, *joined_ignored]) & ~positive
    return Batch(tuple(examples), cards, (*varied, *joined), tuple(texts), positive, ignored)


def counted(examples: Iterable[Example], sets: Sequence[NeedSet]) -> dict[str, int]:
    """How many needs of each set are used."""
    found = Counter(example.set for example in examples)
    return {needset.name: found[at] for at, needset in enumerate(sets)}
