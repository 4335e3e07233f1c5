"""The need set of skills with bodies: what its README promises, checked."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from pathlib import Path

import pytest

from roster.cards import card_from_skill
from roster.evaluation import NeedSet, read_needset
from roster.passages import MOST_PASSAGES, passages_of
from roster.words import tokens_of_need, with_stems

NEEDSETS = Path(__file__).parents[1] / "eval/needsets"
README = (NEEDSETS / "playbook/README.md").read_text("utf-8")
SPLIT_OF = runpy.run_path(str(NEEDSETS / "split.py"))["split_of"]


@pytest.fixture(scope="module", params=["train", "test"])
def half(request: pytest.FixtureRequest) -> NeedSet:
    return read_needset(NEEDSETS / "playbook", request.param)


def test_the_readme_counts_what_is_there() -> None:
    """Skills, lines, headings, needs by style and by side."""
    train, test = (read_needset(NEEDSETS / "playbook", split) for split in ("train", "test"))
    lines = [row["body"].count("\n") for row in train.cards]
    headings = [len(re.findall("^## ", row["body"], re.MULTILINE)) for row in train.cards]
    styles = Counter(need.style for need in (*train.needs, *test.needs))
    second = sum(1 in need.grades.values() for need in (*train.needs, *test.needs))

    assert f"{len(train.cards)} skills" in README
    assert f"{min(lines)} to {max(lines)} lines under {min(headings)} to {max(headings)} headings" in README
    assert f"`description` ({styles['description']})" in README
    assert f"`body` ({styles['body']})" in README
    assert f"{len(train.needs)} train, {len(test.needs)} test" in README
    assert (styles.total(), second) == (152, 3)


def test_every_need_is_on_the_side_that_its_text_says(half: NeedSet) -> None:
    """And wants exactly one skill most."""
    assert {SPLIT_OF(need.text) for need in half.needs} == {half.split}
    assert {list(need.grades.values()).count(2) for need in half.needs} == {1}


def test_what_a_body_alone_answers_is_not_in_the_description(half: NeedSet) -> None:
    """Hardly a `body` need shares three words with the description of the skill that it wants."""
    cards = {row["_id"]: row for row in half.cards}
    shared = 0
    for need in (need for need in half.needs if need.style == "body"):
        (wanted,) = (card for card, grade in need.grades.items() if grade == 2)
        described = set(with_stems(tokens_of_need(cards[wanted]["description"])))
        words = [word for word in tokens_of_need(need.text) if described & set(with_stems([word]))]
        shared += len(words) >= 3
    assert shared <= 2


def test_every_skill_has_passages_within_bounds(half: NeedSet) -> None:
    """As many as its lines make, never more than are kept."""
    for row in half.cards:
        assert 15 <= len(passages_of(card_from_skill(row))) <= MOST_PASSAGES
