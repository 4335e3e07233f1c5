"""Runs and qrels go out as TREC writes them, and runs come in."""

from __future__ import annotations

from array import array
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from roster.errors import NeedSetError
from roster.evaluation import NeedSet
from roster.evaluation.rankings import Ranking
from roster.evaluation.trec import read_run, write_qrels, write_run


def ranking(*hits: tuple[str, float]) -> Ranking:
    return Ranking(tuple(card for card, _ in hits), array("d", (score for _, score in hits)), (), 0, 0, None)


def test_a_run_that_went_out_comes_back_in_the_same_order(tmp_path: Path, needset: NeedSet) -> None:
    """Equal scores too: what is written falls strictly, even when read in single precision."""
    tied = [("weather", 1.7), ("mail-1", 1.7), ("pdf", 1.7), ("files-2", 0.1), ("mail-2", -1.0)]

    write_run(tmp_path / "run", {"1": ranking(*tied), "2": ranking()}, "dense:some/model")
    back = read_run(tmp_path / "run", needset)

    assert [card for card, _ in back["1"]] == [card for card, _ in tied]
    assert [score for _, score in back["1"]] == pytest.approx([score for _, score in tied], abs=1e-4)
    assert list(back) == ["1"]
    singles = array("f", (score for _, score in back["1"]))
    assert all(first > second for first, second in pairwise(singles))
    assert (tmp_path / "run").read_text().splitlines()[0] == "1 Q0 weather 1 1.700000 dense-some-model"


def test_a_run_is_ordered_by_its_scores_not_its_lines(tmp_path: Path, needset: NeedSet) -> None:
    """As in trec_eval; of equal scores the first line comes first. Needs of another split are passed over."""
    lines = ["1 Q0 pdf 1 0.5 x", "99 Q0 pdf 1 0.5 x", "", "1 Q0 mail-2 2 0.9 x", "1 Q0 mail-1 3 5e-1 x"]
    (tmp_path / "run").write_text("\n".join(lines))

    assert read_run(tmp_path / "run", needset) == {"1": [("mail-2", 0.9), ("pdf", 0.5), ("mail-1", 0.5)]}


def test_qrels_hold_the_positive_grades(tmp_path: Path, needset: NeedSet) -> None:
    write_qrels(tmp_path / "qrels", needset)

    assert (tmp_path / "qrels").read_text().splitlines() == [
        "1 0 mail-1 1",
        "2 0 files-2 1",
        "3 0 weather 2",
        "4 0 mail-1 1",
        "4 0 mail-2 2",
    ]


def test_an_id_with_a_space_cannot_go_out(tmp_path: Path, needset: NeedSet) -> None:
    odd = replace(needset, needs=(replace(needset.needs[0], id="a b"),))

    with pytest.raises(NeedSetError, match="'a b' has a space"):
        write_qrels(tmp_path / "qrels", odd)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 Q0 pdf 1 0.5", r"run, line 1: 5 columns: a run line is `need Q0 card rank score tag`"),
        ("1 Q0 pdf 1 high x", r"line 1: the score is 'high': write a number"),
        ("1 Q0 pdf 1 nan x", r"the score is 'nan'"),
        ("1 Q0 pdf 1 2 x\n1 Q0 zzz 2 1 x", r"line 2: card 'zzz' is not in small: is it the run of another need set"),
        ("1 Q0 pdf 1 2 x\n1 Q0 pdf 2 1 x", r"line 2: need '1' has card 'pdf' twice"),
        ("77 Q0 pdf 1 2 x", r"none of its needs is in the test split of small"),
        ("", r"none of its needs"),
    ],
)
def test_a_broken_run_is_refused_with_its_line(text: str, message: str, tmp_path: Path, needset: NeedSet) -> None:
    (tmp_path / "run").write_text(text)

    with pytest.raises(NeedSetError, match=message):
        read_run(tmp_path / "run", needset)


def test_a_run_that_is_not_there_is_named(tmp_path: Path, needset: NeedSet) -> None:
    with pytest.raises(NeedSetError, match="nowhere: cannot be read"):
        read_run(tmp_path / "nowhere", needset)
