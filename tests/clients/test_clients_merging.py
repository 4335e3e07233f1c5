"""Taking back what we wrote, by lines, from a text that others went on with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roster.clients.merging import taken_back

_LINES = st.lists(st.sampled_from("abcde"), max_size=8).map(lambda words: [f"{word}\n" for word in words])


@pytest.mark.parametrize(
    ("before", "after", "now", "expected"),
    [
        ("abcd", "aXd", "aXd", "abcd"),
        ("abcd", "aXd", "1aXd2", "1abcd2"),
        ("abcd", "aXd", "aX3d", "abc3d"),
        ("abcd", "aXd", "aYd", None),
        ("abcd", "ad", "a1d", "abc1d"),
        ("abcd", "aXd", "", None),
        ("abc", "Xabc", "Xabc9", "abc9"),
        ("", "X", "X1", "1"),
    ],
)
def test_what_others_wrote_stays(before: str, after: str, now: str, expected: str | None) -> None:
    """One letter a line: ours go, theirs stay; where theirs stand in ours there is no answer."""

    def lines(text: str) -> str:
        return "".join(f"{letter}\n" for letter in text)

    assert taken_back(lines(now), lines(after), lines(before)) == (None if expected is None else lines(expected))


@given(_LINES, _LINES, _LINES, _LINES)
def test_with_nothing_written_since_it_is_the_text_before(
    head: list[str], before: list[str], after: list[str], tail: list[str]
) -> None:
    """And with lines put around it, these are around it still."""
    old, ours = "".join([*head, *before, *tail]), "".join([*head, *after, *tail])

    assert taken_back(ours, ours, old) == old
    if head and tail:  # else what was taken out at an end has no place of its own
        assert taken_back(f"1\n{ours}2\n", ours, old) == f"1\n{old}2\n"
