"""End to end: real cards, the real index and ranker, the embedded encoder."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import pytest

import roster.evaluation.comparison as module
from roster.errors import NeedSetError, RosterError
from roster.evaluation import Evaluation, NeedSet, Plan, evaluate, parse_system, read_needset
from roster.evaluation.rankings import Ranking
from roster.evaluation.report import report_page
from roster.evaluation.trec import write_run
from roster.registry import Registry

MEASURES = ["ndcg@3", "recall@3", "hit@1", "hit@3", "mrr", "all@3"]


def run(needsets: list[NeedSet], cache: Path, *systems: str, k: int = 3, **more: Any) -> Evaluation:
    return evaluate(needsets, Plan([parse_system(s) for s in systems], k, 13, cache, more), lambda *_: None)


def test_needs_in_a_cards_own_words_find_it(evaluation: Evaluation) -> None:
    """Also the second of two cards with one server and name."""
    records = evaluation.records["small"]

    assert list(records) == ["1", "2", "3", "4"]
    for id_, card in (("1", "mail-1"), ("2", "files-2"), ("3", "weather")):
        found = records[id_]["systems"]["hybrid"]
        assert (found["top"][0][0], found["rank"]) == (card, 1)
        assert all(found[measure] == 1.0 for measure in MEASURES)
    assert records["4"]["text"] == "read <b>my</b> mail & answer it"
    assert records["4"]["wanted"] == {"mail-1": 1, "mail-2": 2}


def test_the_document_says_how_it_was_made(evaluation: Evaluation) -> None:
    """Seed, split, k, encoder, tokenizer, versions: what another run needs to be compared with it."""
    figures = evaluation.figures
    hybrid = figures["sets"]["small"]["systems"]["hybrid"]

    assert json.loads(json.dumps(evaluation.document())) == evaluation.document()
    assert (figures["k"], figures["split"], figures["seed"], figures["resamples"]) == (3, "test", 13, 10_000)
    assert (figures["systems"], figures["baseline"]) == (["hybrid", "dense", "lexical"], "hybrid")
    assert figures["measures"] == MEASURES
    assert figures["tokenizer"].startswith("o200k_base")
    assert {"roster", "python", "numpy", "faiss-cpu", "onnxruntime", "ir-measures"} <= figures["versions"].keys()
    assert hybrid["encoder"]["name"] == "roster-minilm"
    assert len(hybrid["encoder"]["fingerprint"]) == 32
    assert figures["sets"]["small"]["systems"]["lexical"]["encoder"] is None


def test_every_figure_is_the_mean_of_the_records(evaluation: Evaluation) -> None:
    """And the mean over sets that of the sets; the baseline has no difference from itself."""
    for name, found in evaluation.figures["sets"].items():
        records = evaluation.records[name].values()
        for system, figures in found["systems"].items():
            for measure in MEASURES:
                values = [record["systems"][system][measure] for record in records]
                cell = figures["measures"][measure]
                assert cell["mean"] == pytest.approx(sum(values) / len(values), abs=1e-5)
                assert cell["low"] <= cell["mean"] <= cell["high"]
                assert ("difference" in cell) == (system != "hybrid")
    for system, figures in evaluation.figures["mean"].items():
        for measure in MEASURES:
            sets = [found["systems"][system]["measures"][measure] for found in evaluation.figures["sets"].values()]
            assert figures["measures"][measure]["mean"] == pytest.approx(sum(s["mean"] for s in sets) / 2, abs=1e-5)


def test_a_draft_has_its_cost(evaluation: Evaluation) -> None:
    """Tokens of what is shown, cards shown, milliseconds."""
    found = evaluation.figures["sets"]["small"]["systems"]

    assert 0 < found["hybrid"]["drafted"]["mean"] <= 3
    assert found["lexical"]["drafted"]["fewer_than_k"] > 0
    assert 100 < found["hybrid"]["tokens"]["mean"] <= found["hybrid"]["tokens"]["p95"] < 400
    assert 0 < found["dense"]["draft_ms"]["p50"] <= found["dense"]["draft_ms"]["p95"]
    assert [len(r["systems"]["dense"]["drafted"]) for r in evaluation.records["small"].values()] == [3, 3, 3, 3]


def test_a_need_told_that_nothing_fits_is_counted(tmp_path: Path, write_set: Any) -> None:
    """As unmet and as a miss of the draft; words and meaning alone always rank something."""
    needs = [{"_id": "1", "text": "send an e-mail"}, {"_id": "2", "text": "play the tuba"}]
    folder = write_set(tmp_path / "set", needs=needs, qrels=["1\tmail-1\t1", "2\tpdf\t1"])

    found = run([read_needset(folder)], tmp_path / "cache", "hybrid", "dense", k=6)

    hybrid, dense = found.figures["sets"]["set"]["systems"].values()
    assert (hybrid["drafted"]["unmet"], hybrid["drafted"]["unmet_share"]) == (1, 0.5)
    assert (dense["drafted"]["unmet"], dense["drafted"]["unmet_share"]) == (0, 0.0)
    assert (hybrid["measures"]["hit@6"]["mean"], dense["measures"]["hit@6"]["mean"]) == (0.5, 1.0)
    assert ">50.0%</td>" in report_page(found)


def test_needs_are_also_scored_by_style_and_language(evaluation: Evaluation) -> None:
    groups = evaluation.figures["sets"]["small"]["groups"]

    assert {value: found["needs"] for value, found in groups["style"].items()} == {"terse": 2, "verbose": 2}
    assert {value: found["needs"] for value, found in groups["lang"].items()} == {"en": 3, "(none)": 1}
    assert groups["style"]["terse"]["systems"]["hybrid"] == dict.fromkeys(MEASURES, 1.0)


def test_a_second_run_embeds_nothing_and_says_the_same(tmp_path: Path, needset: NeedSet) -> None:
    """Time aside, to the last digit."""
    first = run([needset], tmp_path / "cache", "hybrid", "dense")
    second = run([needset], tmp_path / "cache", "hybrid", "dense")

    assert (first.figures["sets"]["small"]["embedded"], second.figures["sets"]["small"]["embedded"]) == (6, 0)
    assert len(list((tmp_path / "cache").iterdir())) == 1

    def timeless(found: Evaluation) -> Any:
        document = json.loads(json.dumps(found.document()))
        for key in ("made", "commit"):
            del document[key]
        figures = document["sets"]["small"]
        for key in ("embedded", "embed_s", "seconds"):
            del figures[key]
        for holder in (figures, *document["results"]["small"].values()):
            for system in holder["systems"].values():
                del system["draft_ms"]
        return document

    assert timeless(first) == timeless(second)


def test_a_set_with_another_card_is_another_home(tmp_path: Path, write_set: Any) -> None:
    """Only the text that is new is embedded there, and the home of the old one is left as it was."""
    cards = [{"_id": str(n), "server": "s", "name": f"tool_{n}", "description": f"does {n}"} for n in range(4)]
    needs, qrels = [{"_id": "n", "text": "do 1"}], ["n\t1\t1"]
    folder = write_set(tmp_path / "set", cards=cards, needs=needs, qrels=qrels)
    run([read_needset(folder)], tmp_path / "cache", "dense")
    write_set(folder, cards=[*cards[:3], {**cards[3], "description": "does it all"}], needs=needs, qrels=qrels)

    changed = run([read_needset(folder)], tmp_path / "cache", "dense")

    assert changed.figures["sets"]["set"]["embedded"] == 1
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_words_alone_need_no_encoder(tmp_path: Path, needset: NeedSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """And beside a system with an encoder they come off the same draft, with the same ranking."""
    beside = run([needset], tmp_path / "cache", "dense", "lexical")
    monkeypatch.setattr(module, "open_encoder", lambda *_: pytest.fail("an encoder was opened"))

    alone = run([needset], tmp_path / "cache", "lexical")

    tops = [
        [record["systems"]["lexical"]["top"] for record in found.records["small"].values()] for found in (beside, alone)
    ]
    assert tops[0] == tops[1]
    assert alone.figures["sets"]["small"]["embedded"] == 0


def test_another_encoder_stands_beside_the_default(tmp_path: Path, needset: NeedSet) -> None:
    """Named by its folder; the same model by another name ranks the same, from vectors that are shared."""
    from roster.encoder import default_model_folder

    named = f"dense:{default_model_folder()}"
    found = run([needset], tmp_path / "cache", "dense", named)

    assert found.figures["sets"]["small"]["embedded"] == 6
    for record in found.records["small"].values():
        assert record["systems"]["dense"]["top"] == record["systems"][named]["top"]
    apart = found.figures["mean"][named]["measures"]["ndcg@3"]["difference"]
    assert apart == {"mean": 0.0, "low": 0.0, "high": 0.0}


def test_the_run_of_another_system_is_scored_like_ours(tmp_path: Path, needset: NeedSet) -> None:
    """Two needs of four answered, one of them rightly; what it would have shown is counted."""
    ranked = {
        "1": Ranking(("mail-1", "pdf"), array("d", [2, 1]), (), 0, 0, None),
        "2": Ranking(("pdf",), array("d", [2]), (), 0, 0, None),
    }
    write_run(tmp_path / "theirs.small.run", ranked, "theirs")

    found = run([needset], tmp_path / "cache", "lexical", theirs=str(tmp_path / "theirs.{set}.run"))

    theirs = found.figures["sets"]["small"]["systems"]["theirs"]
    assert theirs["measures"]["hit@1"]["mean"] == theirs["measures"]["ndcg@3"]["mean"] == 0.25
    assert theirs["draft_ms"] is None
    assert theirs["drafted"]["mean"] == 0.75
    assert found.records["small"]["4"]["systems"]["theirs"]["rank"] is None


def test_two_sets_of_one_name_are_refused(tmp_path: Path, write_set: Any) -> None:
    needsets = [read_needset(write_set(tmp_path / parent / "same")) for parent in ("a", "b")]

    with pytest.raises(NeedSetError, match="are both named 'same': rename one"):
        run(needsets, tmp_path / "cache", "lexical")


def test_a_card_no_home_can_hold_is_refused(tmp_path: Path, needset: NeedSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the registry cannot take, the set and the server are named."""

    def sight(*_: Any, **__: Any) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr(Registry, "sight", sight)

    with pytest.raises(RosterError, match=r"small: a card of server 'mail' cannot be used \(too deep\)"):
        run([needset], tmp_path / "cache", "lexical")
