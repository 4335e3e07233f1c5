"""A need set is read whole, or refused with file, line, what is wrong and the remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roster.errors import NeedSetError
from roster.evaluation import read_needset

CARD = {"_id": "a", "kind": "tool", "server": "s", "name": "n", "description": "d"}
NEED = {"_id": "1", "text": "do it"}


def without(row: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != key}


def test_cards_and_needs_are_read_as_written(folder: Path) -> None:
    """Odd line separators stay in their line; grades of 0 are no cards; a need with no other grade is left out."""
    found = read_needset(folder)

    assert (found.name, len(found.cards), found.skipped) == ("small", 6, 1)
    assert found.cards[0]["description"] == "Send an e-mail.\u2028Now."
    assert [(need.id, dict(need.grades)) for need in found.needs] == [
        ("1", {"mail-1": 1}),
        ("2", {"files-2": 1}),
        ("3", {"weather": 2}),
        ("4", {"mail-1": 1, "mail-2": 2}),
    ]
    assert (found.needs[0].style, found.needs[3].lang) == ("terse", "")


def test_the_digest_is_of_every_file(folder: Path) -> None:
    before = read_needset(folder).digest
    with (folder / "qrels" / "test.tsv").open("a") as out:
        out.write("3\tpdf\t1\n")

    assert read_needset(folder).digest != before


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm(folder: Path) -> None:
    for file in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        path = folder / file
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))

    assert len(read_needset(folder).needs) == 4


BROKEN = {
    "bad JSON": ({"cards": [CARD, '{"_id": "b",']}, r"corpus\.jsonl, line 2: not JSON \(.*\): each line is one JSON"),
    "not JSON at all": ({"cards": ['{"_id": NaN}']}, r"corpus\.jsonl, line 1: not JSON \(NaN"),
    "bottomless JSON": ({"cards": ['{"a":' * 5_000]}, r"corpus\.jsonl, line 1: not JSON \(.*recursion"),
    "an array": ({"needs": ["[1]"]}, r"queries\.jsonl, line 1: a JSON list: each line is one JSON object"),
    "a missing id": ({"cards": [without(CARD, "_id")]}, r'line 1: the key "_id" is missing: give _id, server, name'),
    "a missing server": ({"cards": [CARD, {"_id": "b"}]}, r'corpus\.jsonl, line 2: the key "server" is missing'),
    "a missing name": ({"cards": [without(CARD, "name")]}, r'the key "name" is missing'),
    "a missing description": ({"cards": [without(CARD, "description")]}, r'the key "description" is missing'),
    "a missing text": ({"needs": [NEED, {"_id": "2"}]}, r'queries\.jsonl, line 2: the key "text" is missing'),
    "a numeric id": ({"cards": [{**CARD, "_id": 7}]}, r'"_id" is 7: write it as a string'),
    "an empty need": ({"needs": [{"_id": "1", "text": " "}]}, r'"text" is empty: give it a value'),
    "a strange kind": ({"cards": [{**CARD, "kind": "agent"}]}, r"\"kind\" is 'agent': write \"tool\" or \"skill\""),
    "a strange schema": ({"cards": [{**CARD, "inputSchema": "{}"}]}, r'"inputSchema" is not an object'),
    "a strange style": ({"needs": [{**NEED, "style": 3}]}, r'"style" is 3: write it as a string, or leave it out'),
    "a duplicate card": ({"cards": [CARD, "", CARD]}, r"corpus\.jsonl, line 3: \"_id\" 'a' is that of line 1 too"),
    "a duplicate need": ({"needs": [NEED, NEED]}, r"queries\.jsonl, line 2: \"_id\" '1' is that of line 1 too"),
    "an empty corpus": ({"cards": []}, r"corpus\.jsonl: empty: write one JSON object a line"),
    "an unknown card": ({"qrels": ["1\ta\t1", "1\tz\t1"]}, r"test\.tsv, line 3: card 'z' is not in corpus\.jsonl: add"),
    "an unknown need": ({"qrels": ["9\ta\t1"]}, r"test\.tsv, line 2: need '9' is not in queries\.jsonl: add"),
    "a fractional grade": ({"qrels": ["1\ta\t0.5"]}, r"test\.tsv, line 2: the grade is '0\.5': write a whole number"),
    "a negative grade": ({"qrels": ["1\ta\t-1"]}, r"the grade is '-1'"),
    "a fourth column": ({"qrels": ["1\t0\ta\t1"]}, r"test\.tsv, line 2: 4 columns: each line has three"),
    "spaces for tabs": ({"qrels": ["1 a 1"]}, r"test\.tsv, line 2: 1 columns: each line has three, with tabs"),
    "a grade given twice": ({"qrels": ["1\ta\t1", "1\ta\t2"]}, r"line 3: need '1' grades card 'a' twice: keep one"),
    "no header": ({"qrels": [], "header": "1\ta\t1"}, r"test\.tsv, line 1: the header is missing: start the file with"),
    "an empty split": ({"qrels": []}, r"test\.tsv: no need has a card with a grade above 0: add some, or name"),
    "a split of zeros": ({"qrels": ["1\ta\t0"]}, r"no need has a card with a grade above 0"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_set_is_refused_with_line_and_remedy(name: str, tmp_path: Path, write_set: Any) -> None:
    """One fault at a time in an otherwise good set."""
    changed, message = BROKEN[name]
    folder = write_set(tmp_path / "set", **{"cards": [CARD], "needs": [NEED], "qrels": ["1\ta\t1"], **changed})

    with pytest.raises(NeedSetError, match=message):
        read_needset(folder)


@pytest.mark.parametrize("file", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_a_missing_file_is_named(file: str, folder: Path) -> None:
    (folder / file).unlink()

    with pytest.raises(NeedSetError, match=rf"{file}: cannot be read \(No such file or directory\): "):
        read_needset(folder)


def test_a_missing_split_names_those_that_are_there(folder: Path) -> None:
    (folder / "qrels" / "train.tsv").write_text("query\tcard\tgrade\n")

    with pytest.raises(NeedSetError, match="name one of the splits that are there: test, train"):
        read_needset(folder, "dev")


def test_a_file_that_is_not_utf8_is_named(folder: Path) -> None:
    (folder / "corpus.jsonl").write_bytes(json.dumps(CARD).encode() + b"\n\xff\n")

    with pytest.raises(NeedSetError, match=r"corpus\.jsonl: not UTF-8 .*: save the file as UTF-8"):
        read_needset(folder)
