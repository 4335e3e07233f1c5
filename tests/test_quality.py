"""The quality script measures what it says, through the real index."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def quality() -> ModuleType:
    """eval/quality.py as a module."""
    spec = importlib.util.spec_from_file_location("quality_script", ROOT / "eval" / "quality.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_ndcg_is_the_one_in_the_books(quality: ModuleType) -> None:
    """Worked by hand: grades 2 and 1, found at places 2 and 4 of 5."""
    ideal = 2 + 1 / math.log2(3)
    gained = 2 / math.log2(3) + 1 / math.log2(5)
    assert quality.ndcg(["x", "a", "y", "b", "z"], {"a": 2.0, "b": 1.0}, 5) == pytest.approx(gained / ideal)
    assert quality.ndcg(["x", "a"], {"a": 2.0}, 1) == 0.0


def test_a_need_set_is_scored_end_to_end(quality: ModuleType, tmp_path: Path) -> None:
    """Needs in a card's own words find it, also the second of one name; an odd line separator stays in its line."""
    cards = [
        {"_id": "a", "server": "mail", "name": "send_message", "description": "Send an e-mail.\u2028Now."},
        {"_id": "b", "server": "files", "name": "make_folder", "description": "Create a new folder."},
        {"_id": "c", "server": "files", "name": "make_folder", "description": "Bake a cake."},
    ]
    (tmp_path / "qrels").mkdir()
    lines = [json.dumps(card, ensure_ascii=False) for card in cards]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines), "utf-8")
    needs = {"1": "send an e-mail", "2": "bake a cake"}
    queries = [json.dumps({"_id": id_, "text": text}) for id_, text in needs.items()]
    (tmp_path / "queries.jsonl").write_text("\n".join(queries), "utf-8")
    (tmp_path / "qrels" / "test.tsv").write_text("query\tcard\tgrade\n1\ta\t1\n2\tc\t1\n2\ta\t0\n", "utf-8")

    found = quality.evaluate(tmp_path, "test", 0, None, 5, True)

    assert found["cards"] == 3
    assert found["ndcg@5"] == {"lexical": 1.0, "dense": 1.0, "hybrid": 1.0}
