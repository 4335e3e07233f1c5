"""The same figures as sentence-transformers' own evaluator, from the same encoder."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from roster.cards import card_from_tool, dense_text
from roster.encoder import default_model_folder, open_onnx_encoder
from roster.evaluation import Plan, evaluate, parse_system, read_needset

VERBS = {"list": "show me all", "create": "set up a new", "delete": "get rid of the", "search": "look for a certain"}
NOUNS = ["invoice", "repository", "calendar event", "photo", "database table", "playlist", "support ticket", "folder"]


def test_the_dense_system_scores_as_sentence_transformers_does(tmp_path: Path, write_set: Any) -> None:
    """Every measure that both have, on needs with one or two wanted cards, through the real index on our side.

    Their relevance is yes or no, so all grades are 1; their mrr is cut, ours is the whole run's.
    """
    pytest.importorskip("sentence_transformers")
    torch = pytest.importorskip("torch")
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    pairs = list(itertools.product(VERBS, NOUNS))
    cards = [
        {"_id": f"{verb}-{noun.replace(' ', '-')}", "server": noun.split()[-1], "name": f"{verb}_{noun.split()[0]}",
         "description": f"{verb.title()} one {noun} of the account."}
        for verb, noun in pairs
    ]  # fmt: skip
    needs, qrels = [], []
    for number, (verb, noun) in enumerate(pairs):
        needs.append({"_id": str(number), "text": f"{VERBS[verb]} {noun}"})
        wanted = [verb, "search"] if verb in ("delete", "list") else [verb]
        qrels += [f"{number}\t{one}-{noun.replace(' ', '-')}\t1" for one in wanted]
    needset = read_needset(write_set(tmp_path / "set", cards=cards, needs=needs, qrels=qrels))
    ours = evaluate([needset], Plan([parse_system("dense")], 5, 13, tmp_path / "cache", {}), lambda *_: None)

    encoder = open_onnx_encoder(default_model_folder())

    class Model:
        """As much of a SentenceTransformer as the evaluator asks for, over our encoder."""

        similarity_fn_name = "cosine"

        def encode_query(self, texts: list[str], **_: Any) -> Any:
            return torch.from_numpy(encoder.encode_needs(texts))

        def encode_document(self, texts: list[str], **_: Any) -> Any:
            return torch.from_numpy(encoder.encode_cards(texts))

        def similarity(self, needs: Any, cards: Any) -> Any:
            return needs @ cards.T

    evaluator = InformationRetrievalEvaluator(
        {need.id: need.text for need in needset.needs},
        {row["_id"]: dense_text(card_from_tool(row["server"], row)) for row in needset.cards},
        {need.id: set(need.grades) for need in needset.needs},
        ndcg_at_k=[5],
        mrr_at_k=[100],
        accuracy_at_k=[1, 5],
        precision_recall_at_k=[5],
    )
    theirs = evaluator.compute_all_metrics(Model()) if evaluator.score_functions else _scores(evaluator, Model())
    measures = ours.figures["mean"]["dense"]["measures"]
    expected = {
        "ndcg@5": theirs["ndcg@k"][5],
        "recall@5": theirs["recall@k"][5],
        "hit@1": theirs["accuracy@k"][1],
        "hit@5": theirs["accuracy@k"][5],
        "mrr": theirs["mrr@k"][100],
    }

    assert {name: measures[name]["mean"] for name in expected} == pytest.approx(expected, abs=1e-5)
    assert 0.3 < expected["hit@1"] < 1.0


def _scores(evaluator: Any, model: Any) -> dict[str, Any]:
    evaluator.score_functions = {"cosine": model.similarity}
    return dict(evaluator.compute_all_metrics(model)["cosine"])
