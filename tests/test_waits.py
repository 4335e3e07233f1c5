"""How long to wait, as texts put it: seconds, exactly, and none where none is given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roster.waits import seconds_in, wait_in


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Please retry after 26 seconds.", 26),
        ("Try again in 1m30s.", 90),
        ("try again in 3.106s", 3.106),
        ("Retry in 2 minutes and 5 seconds", 125),
        ("Next request allowed in 2500 ms.", 2.5),
        ("HTTP 429\nRetry-After: 57\nRateLimit-Limit: 60", 57),
        ('{"retry_after": 64.57}', 64.57),
        ('{"retry_after_ms":1500}', 1.5),
        ('{"retryDelay":"4s"}', 4),
        ("resets in 00:01:38.", 98),
        ("Please wait 60 seconds before retrying.", 60),
        ("You can make another one in 1 hour.", 3600),
        ("come back in a minute", 60),
        ("30秒後に再試行してください。", 30),
        ("réessayez dans 2 minutes", 120),
        ("Bitte in 30 Sekunden erneut versuchen", None),
        ("Bitte versuchen Sie es in 30 Sekunden erneut", 30),
        ("Try again in 5 s. attempt 2 failed, try again in 9 s.", 9),
        ("The request timed out after 30 seconds", None),
        ("limit of 60 requests per minute", None),
        ("try again in a few minutes", None),
        ("The import finished in 30 seconds", None),
        ("", None),
    ],
)
def test_a_wait_is_read_as_it_is_given(text: str, seconds: float | None) -> None:
    """The last one of several; neither a timeout, nor a window, nor words without a number."""
    assert wait_in(text) == seconds


def test_the_waits_of_the_seen_half_are_exact() -> None:
    """All that are given, and none where none is."""
    corpus = Path(__file__).parents[1] / "eval" / "errors" / "seen.jsonl"
    rows = [json.loads(line) for line in corpus.read_text("utf-8").split("\n") if line.strip()]

    assert {row["_id"] for row in rows if wait_in(row["text"]) != row.get("retry_after_s")} == set()


@given(st.integers(0, 59), st.integers(0, 59))
def test_minutes_and_seconds_add_up(minutes: int, seconds: int) -> None:
    """In the short form and the long one."""
    total = 60 * minutes + seconds

    assert seconds_in(f"{minutes}m{seconds}s") == total
    assert wait_in(f"retry after {minutes} minutes and {seconds} seconds") == total


@given(st.text(max_size=200))
def test_any_text_can_be_asked(text: str) -> None:
    """A wait is never negative."""
    assert (wait_in(f"retry after {text}") or 0) >= 0
