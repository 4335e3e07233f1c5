"""Failure texts: read as a person would who knows the software, never for what they only mention, and in no time."""

from __future__ import annotations

import json
import re
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roster
from roster.errortexts import decided, read
from roster.failures import FailureKind
from roster.outcomes import CallReport, Cause, Clue, Outcome, judge
from roster.waits import READ

CORPUS = Path(__file__).parents[1] / "eval" / "errors"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CORPUS / name).read_text("utf-8").split("\n") if line.strip()]


def class_of(text: str) -> str:
    clue = read(text)
    return clue.outcome.value.rpartition(":")[2] if clue else "unread"


# -------------------------------------------------------------------------------------------- the corpus


def test_the_seen_half_is_read_rightly() -> None:
    """The half that the wordings were made from; `eval/errors/measure.py` scores the other one."""
    seen = rows("seen.jsonl")
    wrong = [
        row["_id"]
        for row in seen
        if judge(CallReport(Cause.TOOL_ERROR, 0.0, text=read(row["text"]))).outcome != row["class"]
    ]

    assert len(wrong) <= 0.02 * len(seen), wrong


def test_the_further_texts_are_read_rightly() -> None:
    """Those that were written down later, to see how the wordings do on texts they were not made from."""
    further = rows("further.jsonl")
    wrong = [
        row["_id"]
        for row in further
        if judge(CallReport(Cause.TOOL_ERROR, 0.0, text=read(row["text"]))).outcome != row["class"]
    ]

    assert len(wrong) <= 0.03 * len(further), wrong


def test_the_further_texts_are_none_of_the_others() -> None:
    """What the wordings are made from says nothing of the half that they are scored on. Each is there once."""
    further = rows("further.jsonl")
    texts = {row["text"] for row in further}
    others = [row["text"] for half in ("seen.jsonl", "unseen.jsonl") for row in rows(half)]

    assert len(texts) == len(further) == len({row["_id"] for row in further})
    assert sum(text in texts for text in others) == 0
    assert {row["class"] for row in further} <= {outcome.value for outcome in Outcome}


def test_the_wordings_they_were_made_from_are_still_read() -> None:
    """Whoever adds a wording sees what it costs elsewhere."""
    lines = (CORPUS / "wordings.tsv").read_text("utf-8").splitlines()
    examples = [(class_, text.replace("\\n", "\n").replace("\\t", "\t")) for class_, _, text in
                (line.partition("\t") for line in lines)]  # fmt: skip
    right = sum(
        judge(CallReport(Cause.TOOL_ERROR, 0.0, text=read(text))).outcome.value.endswith(class_)
        for class_, text in examples
    )

    assert right >= 0.96 * len(examples)


def test_a_success_is_never_a_failure_for_what_it_says() -> None:
    """Text is asked about failures only; here that is so for logs, guides and answers full of the words for one."""
    for row in rows("successes.jsonl"):
        if row["split"] == "seen":
            verdict = judge(CallReport(Cause.ANSWERED, 0.0, text=read(row["text"])))
            assert verdict.outcome is Outcome.SUCCESS


# ----------------------------------------------------------------------------------------- what is ignored

TRAPS = {
    "quoted": 'No file called "permission denied.txt" was found',
    "single": "Could not find the note 'rate limit exceeded'",
    "guillemets": "Aucun résultat pour « accès refusé »",
    "cjk": "「タイムアウトしました」という名前のノートは見つかりません。",
    "path": "No such file: /srv/auth/unauthorized/timed-out.log",
    "url": "404 for https://example.com/errors/401/forbidden?reason=rate+limit+exceeded",
    "identifier": "Table rate_limit_exceeded does not exist",
    "number": "Issue 429 was not found",
    "policy": "The timeout policy of this route does not exist",
    "pinned": "No matching distribution found for permission-denied==4.0.3",
}


@pytest.mark.parametrize("text", TRAPS.values(), ids=TRAPS.keys())
def test_what_a_text_only_names_does_not_count(text: str) -> None:
    """A missing thing is missing, whatever it is called."""
    assert class_of(text) == "other"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Request timed out. If this keeps happening, check that your API key has the search permission.", "timeout"),
        ("Error executing tool search: 429 Too Many Requests", "quota"),
        ("HTTP 403: rate limit exceeded", "quota"),
        ("HTTP 403", "auth"),
        ("Max retries exceeded with url: /x (Caused by SSLError(1, 'certificate verify failed'))", "internal"),
        ("attempt 1: 503 Service Unavailable\nattempt 2: read timed out\nattempt 3: 401 Unauthorized", "auth"),
        ('Traceback (most recent call last):\n  File "/srv/quota.py", line 403, in f\nKeyError: "timeout"', "internal"),
        ("java.lang.RuntimeException: x\n\tat a.B(D.java:1)\nCaused by: java.net.ConnectException: Connection refused",
         "internal"),
        ("TypeError: fetch failed\n    at x (y.js:1:2) {\n  [cause]: ConnectTimeoutError: Connect Timeout Error\n}",
         "timeout"),
        ('{"error":{"code":403,"message":"Quota exceeded for quota metric","status":"PERMISSION_DENIED"}}', "quota"),
        ("Upstream said: 'Rate limit exceeded, please slow down and try again after a while'", "quota"),
        ("SQLSTATE[28000]: x", "auth"),
        ("[Errno 28] whatever this may be called here", "quota"),
        ("'some_key'", "internal"),
        ("Zugriff verweigert.", "auth"),
        ("Délai d'attente dépassé", "timeout"),
        ("El usuario ya existe.", "other"),
        ("余额不足", "quota"),
        ("内部サーバーエラー", "internal"),
        ("Acesso negado", "auth"),
        ("Troppe richieste, riprova", "quota"),
        ("Файл не найден", "other"),
        ("Przekroczono limit czasu", "timeout"),
        ("서버 오류가 발생했습니다", "internal"),
        ("Caused by ProxyError('x', OSError('Tunnel connection failed: 407 Proxy Authentication Required'))", "auth"),
        ('raise PermissionError("not a member") was not found in app.py', "other"),
        ("550 5.1.1 That recipient does not exist", "other"),
        ("502 Bad Gateway for url: https://example.com/x", "internal"),
        ("max_tokens: 99999 > 8192", "schema"),
        ("Only four boards are included in the Free plan.", "quota"),
        ("timeout_ms must not exceed 60000", "schema"),
        ("FAILED tests/test_auth.py::test_token_expired - assert 401 == 200", "other"),
        ("The quick brown fox", "unread"),
        ("", "unread"),
        ("a", "unread"),
        ("42", "unread"),
    ],
)  # fmt: skip
def test_the_cause_decides_and_not_what_is_around_it(text: str, expected: str) -> None:
    """Wrappers, advice, earlier attempts and frames of a trace yield; a reason goes before a status."""
    assert class_of(text) == expected


def test_both_ends_of_a_long_text_are_read_and_nothing_between() -> None:
    """2,000 characters at either end."""
    filler = "lorem ipsum dolor " * 1_000

    assert class_of(f"Rate limit exceeded. {filler}") == "quota"
    assert class_of(f"{filler} Rate limit exceeded.") == "quota"
    assert class_of(f"{filler[: READ * 2]}. Rate limit exceeded. {filler[: READ * 2]}") == "unread"


# --------------------------------------------------------------------------------------------- the table


def test_every_wording_is_in_order() -> None:
    """Classes and kinds that exist, names once, lists that are there, no bracket or quote that would never match."""
    data = tomllib.loads((Path(roster.__file__).parent / "errorwordings.toml").read_text("utf-8"))
    classes = {outcome.value.rpartition(":")[2] for outcome in Outcome}
    kinds = {kind.value for kind in FailureKind} | {None}
    rules = [*data["english"], *data["near"], *data["far"]]

    assert len({rule["name"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["class"] in classes
        assert rule.get("kind") in kinds
        assert 1 <= rule["weight"] <= 10
        assert set(re.findall(r"\{(\w+)\}", rule["wordings"])) <= data["lists"].keys()
    for rule in [*data["english"], *data["near"]]:
        for line in rule["wordings"].splitlines():
            assert re.fullmatch(r"[\w\s|~^$§?*.:;/!<>=,'{}+-]*", line), line
            assert line == line.lower() or "NOT" in line


def test_the_table_is_read_at_the_first_failure_only() -> None:
    """A router that only succeeds never compiles it."""
    from fakes import python

    child = python("import roster.errortexts as e; print(e._table.cache_info().currsize)")
    out, err = child.communicate(timeout=60)

    assert (out.strip(), err) == ("0", "")


def test_the_likeness_is_of_known_classes_and_words() -> None:
    """The table that `eval/errors/train.py` makes: a weight for each word and class."""
    table = json.loads((Path(roster.__file__).parent / "errorlikeness.json").read_text("utf-8"))

    assert set(table["classes"]) <= {outcome.value for outcome in Outcome}
    assert {len(weights) for weights in table["words"].values()} == {len(table["classes"])} == {len(table["biases"])}


def test_words_as_a_whole_overrule_a_loose_wording_only() -> None:
    """Not one that says outright who must act, not a complaint that a schema could have made, not a few words."""
    loose, said = Clue(Outcome.OTHER, "not-found"), " a b c d e f g "

    assert decided(said, loose, 8, Outcome.AUTH, 0.9) == Clue(Outcome.AUTH, "likeness")
    assert decided(said, loose, 9, Outcome.AUTH, 0.9) == loose
    assert decided(said, loose, 8, Outcome.AUTH, 0.5) == loose
    assert decided(" a b ", loose, 8, Outcome.AUTH, 0.9) == loose
    formal = Clue(Outcome.SCHEMA, "must-be", "", formal=True)
    assert decided(said, formal, 8, Outcome.AUTH, 0.9) == formal


# --------------------------------------------------------------------------------------------- bounds

HOSTILE = ["a" * 9_000, "0a" * 4_000, "rate limit " * 900, "'" * 9_000, '"\\' * 4_000, "<a" * 4_000, "a." * 4_000,
           "\n" * 9_000, '{"message":' * 900, "\n    at a(" * 900, "is was has been " * 600, "aB" * 4_000, "/a" * 4_000,
           "a@" * 4_000, "Error('a" * 2_000, " .a" * 4_000, "1 > " * 3_000,
           "\nattempt 1 x" * 700, "Traceback (most recent call last):\n" + "A" * 9_000]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_takes_long(text: str) -> None:
    """Patterns over a stranger's text: bounded by its length, not by what it is made of."""
    read("warm")
    begun = time.process_time()
    read(text)

    assert time.process_time() - begun < 1.0


@given(st.text(max_size=300))
def test_any_text_can_be_read(text: str) -> None:
    """And is either understood or not."""
    clue = read(text)

    assert clue is None or (clue.outcome is not Outcome.SUCCESS and clue.rule)


def test_the_corpus_measure_runs(tmp_path: Path) -> None:
    """The figures in one command; of the unseen half it never lists a text."""
    import subprocess

    out = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, str(CORPUS / "measure.py"), "--half", "seen", "-v", "--out", str(out)],
        capture_output=True, text=True, timeout=120, env={**__import__("os").environ,
        "PYTHONPATH": str(Path(roster.__file__).parents[1])},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text("utf-8"))["halves"]["seen"]
    assert figures["successes"]["judged_failures"] == 0
    assert figures["accuracy"] > 0.9
