"""Identifiers and sentences as words: where one ends, what folding keeps, which words of a need are looked up."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roster.words import fold, split_identifier, tokens, tokens_of_need, with_stems


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("create_issue", "create issue"),
        ("createIssue", "create issue"),
        ("getHTTPStatus_v2", "get http status v 2"),
        ("list-all.items/now", "list all items now"),
        ("OAuth2Token", "o auth 2 token"),
        ("größe3", "grosse 3"),
        ("получить_данные", "получить данные"),
        ("___", ""),
        ("", ""),
    ],
)
def test_an_identifier_is_split_where_a_reader_would_split_it(name: str, words: str) -> None:
    """At underscores and punctuation, at humps, after an acronym, around digits; folded."""
    assert split_identifier(name) == words.split()


@pytest.mark.parametrize("text", ["Café", "CAFE", "cafe\u0301", "ｃａｆｅ", "𝐂𝐚𝐟𝐞"])
def test_case_accents_and_width_do_not_make_another_word(text: str) -> None:
    """`Café`, `CAFE`, full-width and mathematical letters fold to one word."""
    assert fold(text) == "cafe"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Add an event, please", "add an event please"),
        ("parseJSON(x2)", "parse json x 2"),
        ("日程を追加", "日程 程を を追 追加 日 程 を 追 加"),
        ("日", "日"),
        ("GitHub日程sync", "git hub 日程 日 程 sync"),
        ("naïve cafés", "naive cafes"),
        ("nai\u0308ve cafe\u0301s", "naive cafes"),  # decomposed, as macOS writes it
        ("か\u3099く", "かく か く"),
        ("ﾞ", ""),
        ("!?…", ""),
    ],
)
def test_text_becomes_words_and_pairs_of_characters(text: str, expected: str) -> None:
    """Scripts written without spaces are indexed as overlapping pairs and singles, everything else as folded words."""
    assert tokens(text) == expected.split()


@given(st.text())
@example("ﾞ")
def test_tokens_hold_nothing_that_full_text_syntax_could_read(text: str) -> None:
    """Any text gives tokens without quotes, spaces or operators, so that quoting them is enough."""
    assert all(token and '"' not in token and not token.isspace() for token in tokens(text))
    assert all(" " not in token and "*" not in token for token in tokens(text))


@given(st.text())
@example("ᴬϒ𝐀")
def test_folding_a_folded_text_changes_nothing(text: str) -> None:
    """Folding is idempotent for what tokens are made of, so an index and a need always meet."""
    for token in tokens(text):
        assert fold(token) == token


def test_each_word_is_followed_by_its_marked_stem() -> None:
    """`files` and `file` share a stem; the mark keeps a stem from being taken for a word."""
    assert with_stems(["files", "listing"]) == ["files", "s0file", "listing", "s0list"]
    assert with_stems(["file"])[1] == with_stems(["files"])[1]


@pytest.mark.parametrize(
    ("need", "words"),
    [
        ("Please add an event to my calendar", "add event calendar"),
        ("what is it", "what is it"),  # nothing but phrasing: better than nothing
        ("list list LIST files", "list files"),
        ("", ""),
    ],
)
def test_a_need_is_looked_up_by_what_it_is_about(need: str, words: str) -> None:
    """Phrasing words are left out unless there is nothing else, and no word is looked up twice."""
    assert tokens_of_need(need) == words.split()
