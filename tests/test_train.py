"""models/train_data.py and models/train.py: what is read, drawn, batched and never called wrong; then one real step."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from roster.cards import card_from_tool, dense_text
from roster.vectors import Vectors, unit_rows

MODELS = Path(__file__).resolve().parents[1] / "models"


def script(name: str) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, MODELS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its dataclasses look themselves up there, and its sibling imports it by this name
    spec.loader.exec_module(module)
    return module


data = script("train_data")

CARDS = [
    {"_id": "cal-add", "server": "calendar", "name": "addEvent", "description": "Add an event to the calendar."},
    {"_id": "cal-list", "server": "calendar", "name": "list_events", "description": "List the events of a day."},
    {"_id": "mail-send", "server": "mail", "name": "send", "description": "Send a message to somebody."},
    {"_id": "mail-send2", "server": "mail", "name": "send", "description": "Send a message, to somebody."},
]
NEEDS = {"n1": "put lunch on Friday", "n2": "what is on today", "n3": "write to Ann", "n4": "put lunch on Friday"}
LABELS = [
    ("n1", "cal-add", 1),
    ("n2", "cal-list", 2),
    ("n3", "mail-send", 1),
    ("n4", "cal-list", 1),
    ("n2", "mail-send", 0),
]


def write_set(folder: Path, cards=CARDS, needs=NEEDS, labels=LABELS) -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("".join(json.dumps(card) + "\n" for card in cards), "utf-8")
    rows = [json.dumps({"_id": key, "text": text}) + "\n" for key, text in needs.items()]
    (folder / "queries.jsonl").write_text("".join(rows), "utf-8")
    table = ["query-id\tcorpus-id\tscore\n", *(f"{need}\t{card}\t{grade}\n" for need, card, grade in labels)]
    (folder / "qrels" / "train.tsv").write_text("".join(table), "utf-8")
    return folder


def many(count: int, cards: int, name: str = "many") -> data.NeedSet:
    """`count` needs dealt out to `cards` cards unevenly: half of them belong to the first."""
    owners = [0 if at % 2 else at // 2 % cards for at in range(count)]
    parts = tuple(data.CardParts(f"server {at}", f"name {at}", f"about {at}") for at in range(cards))
    return data.NeedSet(name, parts, tuple(f"need {at}" for at in range(count)), tuple(frozenset({c}) for c in owners))


def unit(*rows: tuple[float, ...]) -> Vectors:
    return unit_rows(np.array(rows, np.float32))


# --- Reading ----------------------------------------------------------------------------------------------------------


def test_a_need_set_is_read_with_the_labels_of_like_needs_united(tmp_path: Path) -> None:
    """A grade of 0 is no label; two needs of one text are one need that both cards serve."""
    found = data.read_needset(write_set(tmp_path / "mine"))

    assert found.name == "mine"
    assert dict(zip(found.needs, found.relevant, strict=True)) == {
        "put lunch on Friday": {0, 1},
        "what is on today": {1},
        "write to Ann": {2},
    }


def test_a_card_is_trained_on_as_it_will_be_embedded(tmp_path: Path) -> None:
    """The text is `dense_text`'s, to the letter: what is learned about another form would be lost."""
    found = data.read_needset(write_set(tmp_path / "mine"))

    assert [card.text for card in found.cards] == [dense_text(card_from_tool(row["server"], row)) for row in CARDS]


def test_licences_come_from_the_sets_own_readme(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "mine")
    (folder / "README.md").write_text("# mine\n- Source: x\n- Licence: CC-BY-4.0 (LICENSE)\n- Licence: MIT\n", "utf-8")

    assert data.read_needset(folder).licences == ("CC-BY-4.0 (LICENSE)", "MIT")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("corpus.jsonl", '{"_id": "a", "server": "s", "name": "n"}\n{oops\n', r"corpus\.jsonl, line 2 is not JSON"),
        ("corpus.jsonl", '{"_id": "a", "server": "s"}\n', r'corpus\.jsonl, line 1 has no "name": give it'),
        ("corpus.jsonl", "[1]\n", r'corpus\.jsonl, line 1 has no "_id"'),
        ("corpus.jsonl", (json.dumps(CARDS[0]) + "\n") * 2, r"corpus\.jsonl, line 2 repeats the id 'cal-add'"),
        ("queries.jsonl", '{"_id": "n1"}\n', r'queries\.jsonl, line 1 has no "text"'),
        ("qrels/train.tsv", "h\nn1 cal-add 1\n", r"train\.tsv, line 2 is not `need<TAB>card<TAB>grade`"),
        ("qrels/train.tsv", "h\nn1\tcal-add\thigh\n", r"train\.tsv, line 2 is not"),
        ("qrels/train.tsv", "h\nn9\tcal-add\t1\n", r"train\.tsv, line 2 names need 'n9': add it to queries\.jsonl"),
        ("qrels/train.tsv", "h\nn1\tgone\t1\n", r"train\.tsv, line 2 names card 'gone': add it to corpus\.jsonl"),
        ("qrels/train.tsv", "h\nn1\tcal-add\t0\n", r"train\.tsv labels no need .* nothing to learn from"),
    ],
)
def test_a_broken_need_set_is_told_by_file_line_and_remedy(tmp_path: Path, file: str, text: str, message: str) -> None:
    folder = write_set(tmp_path / "mine")
    (folder / file).write_text(text, "utf-8")

    with pytest.raises(data.TrainDataError, match=message):
        data.read_needset(folder)


@pytest.mark.parametrize("file", ["corpus.jsonl", "queries.jsonl", "qrels/train.tsv"])
def test_a_missing_file_is_told_with_what_belongs_in_it(tmp_path: Path, file: str) -> None:
    folder = write_set(tmp_path / "mine")
    (folder / file).unlink()

    with pytest.raises(data.TrainDataError, match=r"is missing: (a need set is|it holds)"):
        data.read_needset(folder)


def test_a_folder_of_sets_is_listed_by_name_and_an_empty_one_refused(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write_set(tmp_path / "sets" / name)
    (tmp_path / "none").mkdir()

    assert [path.name for path in data.find_needsets(tmp_path / "sets")] == ["a", "b"]
    with pytest.raises(data.TrainDataError, match="holds no need set"):
        data.find_needsets(tmp_path / "none")


# --- Sampling ---------------------------------------------------------------------------------------------------------


def test_a_cap_takes_from_every_card_before_any_gives_twice() -> None:
    needset = many(100, 10)

    chosen = data.sample(needset, 20, np.random.default_rng(1))

    assert len(chosen) == len(set(chosen)) == 20
    a_card = Counter(min(needset.relevant[need]) for need in chosen)
    assert set(a_card.values()) == {2}


def test_without_a_cap_every_need_is_taken_once() -> None:
    for cap in (None, 100, 1000):
        assert sorted(data.sample(many(100, 10), cap, np.random.default_rng(1))) == list(range(100))


def test_a_neighbourhood_holds_the_nearest_cards_each_once() -> None:
    """Two clusters of cards, two needs a card: groups of three never mix clusters nor repeat a card needlessly."""
    cards = [0, 1, 2, 3, 4, 5] * 2
    vectors = unit(*[(1, 0.1 * (card % 3), 10 * (card >= 3)) for card in cards])

    groups = data.neighbourhoods(cards, vectors, 3, np.random.default_rng(0))

    assert sorted(place for group in groups for place in group) == list(range(12))
    assert sorted(sorted(cards[place] for place in group) for group in groups) == [[0, 1, 2]] * 2 + [[3, 4, 5]] * 2


def test_batches_are_the_same_for_a_seed_and_others_for_another() -> None:
    groups = [[data.Example(at, need) for need in range(3)] for at in range(20)]

    def order(seed: int) -> list[list[data.Example]]:
        return data.plan(groups, 4, np.random.default_rng(seed))

    assert order(5) == order(5) != order(6)
    assert [len(batch) for batch in order(5)] == [12] * 5
    assert sorted((e.set, e.need) for batch in order(5) for e in batch) == [(s, n) for s in range(20) for n in range(3)]


# --- Negatives --------------------------------------------------------------------------------------------------------


def test_twins_are_texts_of_almost_the_same_words() -> None:
    found = data.twins(["mail, send: Send a message.", "mail, send: send, a message", "mail, list: List messages"])

    assert found.tolist() == [[True, True, False], [True, True, False], [False, False, True]]


def test_what_may_be_right_is_never_wrong() -> None:
    """Ignored: a twin by words, a twin by vector, and a near card of a doubtful set. A sure near card is not."""
    texts = ["mail send", "send mail", "post a letter", "chat write", "list mails"]
    vectors = unit((1, 0, 0), (0, 1, 0), (1, 0.1, 0), (0.8, 0, 0.6), (0.8, 0, -0.6))
    need = unit((1, 0, 0), (1, 0, 0))
    need[1] = unit((0.8, 0, 0.6))[0]
    positive = np.array([[True, False, False, False, False]] * 2)
    doubtful = np.array([[False, False, False, True, False]] * 2)

    ignored = data.ignored_cards(positive, texts, vectors, need, doubtful)

    assert ignored[0].tolist() == [False, True, True, False, False]  # the doubtful card is far below the right one
    assert ignored[1].tolist() == [False, True, True, True, False]  # here it is nearer than the right one


def test_a_mined_negative_is_near_but_not_too_near() -> None:
    """Of cards at .9 (right), .88, .7, .6, .1: .88 is within 95 % of the right one, so .7 is the first to be wrong."""
    similarity = np.array([0.9, 0.88, 0.7, 0.6, 0.1], np.float32)

    def mined(depth: int) -> set[int | None]:
        return {data.mine(similarity, frozenset({0}), depth, np.random.default_rng(seed)) for seed in range(20)}

    assert mined(1) == {2}
    assert mined(2) == {2, 3}
    assert data.mine(similarity[:2], frozenset({0}), 2, np.random.default_rng(0)) is None


def test_a_batch_holds_each_card_once_and_masks_nothing_it_should_learn() -> None:
    """Two sets, one need text in both: labels stay, the other set's answer is ignored, the rest are negatives."""
    cards = tuple(data.CardParts("s", name, about) for name, about in (("a", "red"), ("b", "green"), ("c", "blue")))
    first = data.NeedSet("first", cards, ("Help me", "paint"), (frozenset({0}), frozenset({0, 1})))
    other = data.NeedSet(
        "other", tuple(data.CardParts("t", f"x{at}", "z") for at in range(2)), ("help me",), (frozenset({1}),)
    )
    sets = [first, other]
    examples = [data.Example(0, 0), data.Example(0, 1), data.Example(1, 0)]
    eye = np.eye(8, dtype=np.float32)
    need_vectors = {example: eye[5 + at] for at, example in enumerate(examples)}

    def build(seed: int, join: float = 0.0, vary: float = 0.0) -> data.Batch:
        rng = np.random.default_rng(seed)
        negatives = {examples[1]: 2}
        return data.assemble(sets, examples, negatives, need_vectors, [eye[:3], eye[3:5]], rng, join=join, vary=vary)

    plain = build(0)
    assert plain.cards == ((0, 0), (0, 1), (1, 1), (0, 2))
    assert plain.positive.tolist() == [
        [True, False, False, False],
        [True, True, False, False],
        [False, False, True, False],
    ]
    assert plain.ignored[0, 2]
    assert plain.ignored[2, 0]
    assert not plain.ignored[:2, 3].any()

    joined = build(0, join=0.34)
    assert len(joined.needs) == 4
    assert joined.positive.shape == joined.ignored.shape == (4, 4)
    assert joined.positive[3].sum() >= 2
    assert build(3, join=0.34, vary=0.5).needs == build(3, join=0.34, vary=0.5).needs


def test_variety_takes_away_and_never_adds() -> None:
    card = data.CardParts("mail box", "send it", "Send a message")
    rng = np.random.default_rng(0)

    assert {data.vary_card(card, rng, 0.0) for _ in range(50)} == {card.text}
    seen = {data.vary_card(card, rng, 1.0) for _ in range(200)}
    assert seen == {"mail box, send it:", "Send a message", "send it: Send a message"}
    assert {data.vary_need("Please send the Report", rng, 1.0) for _ in range(50)} == {
        "please send the report",
        "send report",
    }


# --- Training ---------------------------------------------------------------------------------------------------------


def test_the_learning_rate_rises_then_falls_to_nothing() -> None:
    rate = script_train().learning_rate_share

    assert [rate(done, 0.1) for done in (0.0, 0.05, 0.1, 0.55, 1.0)] == pytest.approx([0, 0.5, 1, 0.5, 0])


def script_train() -> ModuleType:
    script("build")
    return script("train")


def test_neither_script_needs_torch_to_be_read_or_to_refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broken set is told before anything heavy is imported."""
    train = script_train()
    before = "torch" in sys.modules

    assert train.main(["--needset", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")]) == 1

    assert "nowhere" in capsys.readouterr().err
    assert ("torch" in sys.modules) is before


def test_info_nce_is_what_its_formula_says() -> None:
    """Two right cards do not compete, an ignored one does not count, a row without a right one is left out."""
    torch = pytest.importorskip("torch", reason="needs the build extra")
    similarity = torch.tensor([[0.5, 0.4, 0.1, 0.9], [0.0, 0.0, 0.0, 0.0]])
    positive = torch.tensor([[True, True, False, False], [False] * 4])
    ignored = torch.tensor([[False, False, False, True], [False] * 4])

    loss = script_train().info_nce(similarity, positive, ignored, scale=10.0)

    wrong = np.exp(1.0) + np.exp(-20.0)
    expected = np.mean([-np.log(np.exp(right) / (np.exp(right) + wrong)) for right in (5.0, 4.0)])
    assert loss.item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.filterwarnings("default")  # torch and transformers warn of their own affairs
def test_a_short_training_moves_a_need_towards_its_card_and_repeats_itself(tmp_path: Path) -> None:
    """From the 8-bit graph in git, on three needs: nearer than before, and the same weights for the same seed."""
    for package in ("torch", "sentence_transformers", "onnx"):
        pytest.importorskip(package, reason="needs the build extra")
    train = script_train()
    folder = write_set(tmp_path / "mine")
    sets = [data.read_needset(folder)]
    recipe = train.Recipe(
        epochs=6, learning_rate=1e-4, tuned=1.0, averaged=0.2, vary=0.0, join=0.0, threads=1, bf16=False
    )

    reports = [train.train(sets, train.build.SHIPPED, tmp_path / out, {}, recipe) for out in ("once", "again")]

    assert reports[0]["training"]["steps"] == 6
    assert reports[0]["training"]["loss"][-1] < reports[0]["training"]["loss"][0]
    assert reports[0]["sets"]["mine"]["needs_used"] == 3
    once, again = ((tmp_path / out / "model.safetensors").read_bytes() for out in ("once", "again"))
    assert once == again
    assert json.loads((tmp_path / "once" / "training.json").read_text("utf-8"))["recipe"]["seed"] == 13
