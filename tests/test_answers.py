"""What a failed answer says: by its fields first, then its words; how long to wait; and its author's own kinds."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roster.answers import LONGEST_WAIT_S, MAX_MESSAGE, Said, examine, seconds_of
from roster.outcomes import Outcome

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


def failed(**result: Any) -> Said:
    return examine({"isError": True, **result}, "", None, NOW)


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


@pytest.mark.parametrize(
    ("fields", "outcome", "rule"),
    [
        ({"status": 429}, Outcome.QUOTA, "field:429"),
        ({"statusCode": "503"}, Outcome.INTERNAL, "field:503"),
        ({"error": {"code": 404}}, Outcome.OTHER, "field:404"),
        ({"code": "RATE_LIMITED"}, Outcome.QUOTA, "field:rate-limit"),
        ({"error": {"type": "AccessDeniedException"}}, Outcome.AUTH, "field:permission"),
        ({"errorCode": "deadline_exceeded"}, Outcome.TIMEOUT, "field:timed-out"),
        ({"error": "invalid_argument"}, Outcome.SCHEMA, "field:validation"),
        ({"grpcCode": 8}, Outcome.QUOTA, "field:grpc-8"),
        ({"details": [{"@type": "type.googleapis.com/google.rpc.BadRequest"}]}, Outcome.SCHEMA, "field:grpc-detail"),
        # Of several, the weightiest; of alike ones the inner, which says why.
        ({"code": 403, "status": "PERMISSION_DENIED", "errors": [{"reason": "rateLimitExceeded"}]}, Outcome.QUOTA,
         "field:rate-limit"),
        ({"status": 400, "error": {"code": "token_expired"}}, Outcome.AUTH, "field:secret"),
    ],
)  # fmt: skip
def test_fields_say_what_happened(fields: dict[str, Any], outcome: Outcome, rule: str) -> None:
    """Wherever a server puts them: structured content, `_meta`, or the data of an error."""
    for said in (failed(structuredContent=fields), failed(_meta=fields), examine(None, "", fields, NOW)):
        assert said.fields is not None
        assert (said.fields.outcome, said.fields.rule) == (outcome, rule)


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "open", "type": "object", "code": 12},
        {"status": 200},
        {"code": True},
        {"title": "Unauthorized", "name": "forbidden"},
        {"error": "see the log for what went wrong, and then a great deal more that is no code word " * 3},
        {"failure": {"kind": "quota_exceeded", "code": 401}},
        ["unauthorized"],
        "unauthorized",
        None,
    ],
)
def test_fields_that_only_look_like_it_say_nothing(fields: Any) -> None:
    """A status of something else, a title, a sentence, and what the author reports as a kind of their own."""
    assert failed(structuredContent=fields).fields is None


def test_words_are_those_of_the_text_blocks() -> None:
    """Several are one text; without any, so are the messages in structured content; the rest is passed over."""
    both = failed(content=[*text("Something happened."), {"type": "image", "data": "x"}, *text("Rate limit exceeded")])
    none = failed(content=[], structuredContent={"message": "Rate limit exceeded"})
    odd = failed(content=[7, {"type": "text"}, {"type": "text", "text": 3}], structuredContent=[])

    assert both.text is not None
    assert none.text is not None
    assert both.text.outcome is none.text.outcome is Outcome.QUOTA
    assert odd.text is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (30, 30), (2.5, 2.5), ("30", 30), ("4s", 4), ("1m30s", 90), ({"seconds": 4, "nanos": 500_000_000}, 4.5),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60), ("Tue, 14 Nov 2023 22:12:20 GMT", 0),
        (-1, None), (math.nan, None), (math.inf, None), ("nan", None), (LONGEST_WAIT_S + 1, None), (True, None),
        ("soon", None), ("x" * 100, None), (None, None), ([], None), ({"seconds": "4"}, None),
    ],
)  # fmt: skip
def test_a_wait_is_a_number_of_seconds(value: Any, seconds: float | None) -> None:
    """Numbers, durations and HTTP dates; nothing that is not a wait, or of a month and more."""
    assert seconds_of(value, NOW) == seconds


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (failed(structuredContent={"retryAfter": 12}, content=text("retry after 99 seconds")), 12),
        (failed(_meta={"error": {"retry_after_ms": 1500}}), 1.5),
        (failed(structuredContent={"details": [{"retryDelay": "4s"}]}), 4),
        (failed(content=text("Try again in 1m30s")), 90),
        (failed(content=text("no idea when")), None),
        (examine(None, "Slow down, retry in 7 s", {"retry_after": None}, NOW), 7),
    ],
)
def test_fields_say_how_long_before_words_do(said: Said, seconds: float | None) -> None:
    """A machine wrote the one, so that a machine can read it."""
    assert said.wait_s == seconds


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ({"failure": {"kind": "out_of_paper", "message": "Tray 2 is empty"}}, "out_of_paper", "Tray 2 is empty"),
        ({"failure": {"kind": "out_of_paper"}}, "out_of_paper", ""),
        ({"failure": {"kind": "Out Of Paper", "message": "x"}}, "", "x"),
        ({"failure": {"kind": 7}}, "", ""),
        ({"failure": {"kind": "x" * 41}}, "", ""),
        ({"failure": {"message": "x"}}, None, ""),
        ({"failure": "out_of_paper"}, None, ""),
        ({"result": {"failure": {"kind": "out_of_paper"}}}, None, ""),
    ],
)
def test_an_author_reports_a_kind(fields: dict[str, Any], kind: str | None, message: str) -> None:
    """At the top of structured content or `_meta`; a word that is no name is empty, a report without a kind is none."""
    for said in (failed(structuredContent=fields), failed(_meta=fields)):
        assert (said.kind, said.message) == (kind, message)


def test_a_message_has_an_end() -> None:
    """2,000 characters of the author's own words."""
    said = failed(_meta={"failure": {"kind": "x", "message": "ü" * 5_000}})

    assert said.message == "ü" * MAX_MESSAGE == "ü" * 2_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from("code status error failure kind retryAfter details message x".split()), inner)
    ),
    max_leaves=20,
)


@given(JSON, JSON, JSON)
def test_any_answer_can_be_examined(content: Any, structured: Any, meta: Any) -> None:
    """Whatever a backend sends; a wait is never negative, endless or no number."""
    said = failed(content=content, structuredContent=structured, _meta=meta)

    assert said.wait_s is None or 0 <= said.wait_s <= LONGEST_WAIT_S
    examine(None, "x", structured, NOW)


def test_a_deep_or_wide_answer_is_not_read_to_its_end() -> None:
    """As far down as it is worth looking."""
    deep: Any = {"code": 401}
    for _ in range(50_000):
        deep = {"x": deep}

    assert failed(structuredContent=deep | {}, content=[{"type": "text", "text": "x"}]).fields is None
    assert failed(structuredContent={f"k{n}": n for n in range(100_000)} | {"code": 401}).fields is None
