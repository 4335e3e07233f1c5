"""Passages of skills: which texts a body gives, and how the nearest of them speaks for its card."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes import WordEncoder, tool

from roster.cards import Card, card_from_skill, card_from_tool, lexical_text
from roster.catalogue import Catalogue
from roster.config import Home
from roster.draft import draft
from roster.passages import MOST_PASSAGES, PASSAGE_WORDS, Passages, passages_of
from roster.ranking import PASSAGE_COST
from roster.registry import Registry
from roster.reindex import Writer, embed_missing
from roster.vectors import unit_rows


def card(body: str, **more: Any) -> Card:
    return card_from_skill({"name": "fill-forms", "description": "Forms", "body": body, **more})


def test_a_passage_is_a_few_lines_under_their_heading() -> None:
    """Marks of Markdown aside; what is in a code block is no heading, and an empty line says nothing."""
    body = "Intro.\n\n## Sign\n\n- Use a `certificate`.\n1. Sign last.\n\n---\n```sh\n# sign it\npdfsign in.pdf\n```\n"

    assert passages_of(card(body)) == [
        "fill forms: Intro.",
        "fill forms, Sign: Use a certificate. Sign last. # sign it pdfsign in.pdf",
    ]


def test_a_long_body_has_longer_passages_and_never_too_many() -> None:
    """A paragraph in one line is cut, thousands of lines are packed, and no passage is without an end."""
    paragraph = " ".join(f"word{n}" for n in range(4 * PASSAGE_WORDS))
    assert [len(text.split()) for text in passages_of(card(paragraph))] == [PASSAGE_WORDS + 2] * 4
    many = "\n".join(f"- line number {n} of a body" for n in range(900))
    assert MOST_PASSAGES // 2 <= len(passages_of(card(many))) <= MOST_PASSAGES
    headings = "\n".join(f"## h{n}\nline {n}" for n in range(200))
    assert len(passages_of(card(headings))) == MOST_PASSAGES
    assert max(map(len, passages_of(card("x" * 50_000)))) <= 1_200


def test_only_skills_have_passages() -> None:
    """A tool has none, whatever its row says, nor has a skill without a body."""
    assert passages_of(card_from_tool("s", tool("x", body="A body"))) == []
    assert passages_of(card("")) == []
    assert passages_of(card_from_skill({"name": "x"})) == []


def test_the_nearest_passage_counts() -> None:
    """Values by hand: cos 0° = 1, cos 45° = √½; a card without passages is not there; the last ones put count."""
    held = Passages(2)
    assert held.nearest(np.array([[1, 0]], np.float32)) == {}
    held.put(7, unit_rows(np.array([[0, 1], [1, 1]], np.float32)))
    held.put(9, unit_rows(np.array([[1, 0]], np.float32)))
    held.put(8, np.empty((0, 2), np.float32))

    assert held.nearest(np.array([[1, 0]], np.float32)) == {7: pytest.approx(2**-0.5), 9: pytest.approx(1)}
    held.put(9, unit_rows(np.array([[0, 1]], np.float32)))
    held.drop([7, 99])
    assert held.nearest(np.array([[1, 0]], np.float32)) == {9: pytest.approx(0)}
    assert (8 in held, 7 in held) == (True, False)


def test_each_word_of_a_body_counts_once() -> None:
    """A body that says a word a hundred times has it once in the index, beside the name and not instead of it."""
    text = lexical_text(card("sign " * 100 + "certificate"))

    assert text.parameters.split() == ["sign", "s0sign", "certificate", "s0certif"]
    assert "forms" in text.name


@pytest.fixture
def two(home: Home, registry: Registry, writer: Writer, catalogue: Catalogue, encoder: WordEncoder) -> Catalogue:
    """A catalogue with two skills, told apart by a line of their bodies alone, and their vectors."""
    rows = [
        {
            "name": "one",
            "description": "Office work",
            "body": "# A\n\nbananas ripen quickly on warm days\n\n# B\n\nx y",
        },
        {
            "name": "two",
            "description": "Office work",
            "body": "# A\n\nlorries need new tyres every autumn\n\n# B\n\nx y",
        },
    ]
    registry.sight("skill", rows, 1.0, kind=card("").kind)
    catalogue.attach(encoder, home.index)
    assert embed_missing(catalogue, writer, home) == len(encoder.embedded) == 2 + 4
    return catalogue


def test_a_need_that_only_a_body_answers_finds_its_skill(two: Catalogue) -> None:
    """By meaning: the nearest passage, less what passages cost."""
    made = draft(two, "lorries need new tyres every autumn", 2)

    assert [card.name for card, _ in made.running] == ["two", "one"]
    (best, other) = (scored for _, scored in made.running)
    assert best.similarity is not None
    assert best.similarity == pytest.approx(
        max(two.passages_near(WordEncoder().encode_needs([made.need])).values()) - PASSAGE_COST, abs=1e-6
    )
    assert other.similarity is not None
    assert other.similarity < best.similarity


def test_what_was_embedded_is_taken_over(two: Catalogue, home: Home, writer: Writer, encoder: WordEncoder) -> None:
    """The next process reads the vectors and embeds nothing; a full reindex embeds everything anew."""
    again = Catalogue(two._db, ["calendar"])
    again.attach(encoder, home.index)

    assert embed_missing(again, writer, home) == 0
    need = encoder.encode_needs(["lorries need tyres"])
    assert again.passages_near(need) == two.passages_near(need)
    writer.registry.vectors.forget(encoder.fingerprint)
    two.empty_dense()
    assert two.passages_near(need) == {}
    assert embed_missing(two, writer, home) == 6
    assert two.passages_near(need) == again.passages_near(need)


def test_a_skill_that_left_the_drafts_left_the_passages(two: Catalogue, registry: Registry) -> None:
    """One that was removed is not found by what it said."""
    rows = [entry.card.raw for entry in two.living() if entry.card.name == "one"]
    registry.sight("skill", rows, 2.0, kind=card("").kind)
    two.refresh()

    (number,) = (entry.number for entry in two.living())
    assert two.passages_near(WordEncoder().encode_needs(["tyres"])).keys() == {number}
