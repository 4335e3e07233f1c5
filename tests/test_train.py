"""models/train_data.py, train.py and calibrate.py: what is read, drawn, batched and never called wrong; that training
outlives being rounded to 8 bits; then one real step, and a floor."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roster.cards import card_from_tool, dense_text
from roster.encoder import open_encoder
from roster.evaluation import read_needset
from roster.evaluation.homes import open_filled
from roster.ranking import Match
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


# --- Eight bits -------------------------------------------------------------------------------------------------------


def quantisers() -> dict[str, Callable[[Vectors], tuple[np.ndarray, Vectors]]]:
    build = script("build")
    return {"blocks": lambda weight: build.quantise_blocks(weight, build.BLOCK), "rows": build.quantise_rows}


def matrix(seed: int = 0) -> Vectors:
    return np.random.default_rng(seed).normal(0, 0.05, (256, 384)).astype(np.float32)


@pytest.mark.parametrize("kind", ["blocks", "rows"])
@pytest.mark.parametrize("steps", [0.02, 0.1, 0.2], ids=lambda steps: f"{steps} of a step")
def test_what_training_moves_survives_being_rounded_again(kind: str, steps: float) -> None:
    """A move of less than half a step, in a direction of its own for each weight: all of it on average, not none."""
    quantise, widened = quantisers()[kind], script("build").widened
    codes, scales = quantise(matrix())
    step = np.repeat(scales, 384 // scales.shape[1], axis=1)
    move = steps * step * np.random.default_rng(1).choice([-1, 1], (256, 384))

    def kept(begun: Vectors) -> float:
        ended = widened(*quantise((begun + move).astype(np.float32)))
        return float(((ended - widened(codes, scales)) * move).sum() / (move * move).sum())

    assert kept(widened(codes, scales, np.random.default_rng(2))) == pytest.approx(1, abs=0.05)
    assert kept(widened(codes, scales)) < 0.2  # what dither is for


@pytest.mark.parametrize("kind", ["blocks", "rows"])
def test_dither_alone_is_rounded_away_and_repeats_itself(kind: str) -> None:
    """Within half a step of the graph's own weights, back to the same codes, and the same for the same seed."""
    quantise, widened = quantisers()[kind], script("build").widened
    codes, scales = quantise(matrix())
    once, again, other = (widened(codes, scales, np.random.default_rng(seed)) for seed in (1, 1, 2))

    back, scales_back = quantise(once)
    apart = np.abs(once - widened(codes, scales)).reshape(256, scales.size // 256, -1) / scales.reshape(256, -1, 1)
    assert np.mean(back == codes) > 0.9999
    assert scales_back == pytest.approx(scales, rel=1e-6)
    assert apart.max() <= 0.5001
    assert np.array_equal(once, again)
    assert not np.array_equal(once, other)


def test_the_embedded_model_survives_dither_and_keeps_a_small_move() -> None:
    """The whole way, from the graph in git to the graph a build would write: every matrix in its place."""
    pytest.importorskip("onnx", reason="needs the build extra")
    from onnx import numpy_helper

    build = script("build")
    file = build.SHIPPED / "onnx" / "model.onnx"
    exact = build.weights_from_onnx(file, 512)
    begun = build.weights_from_onnx(file, 512, np.random.default_rng(13))
    rng = np.random.default_rng(5)
    ended = {
        name: value + rng.choice([-1e-5, 1e-5], value.shape).astype(np.float32) if value.ndim == 2 else value
        for name, value in begun.items()
    }

    graph = build.bert_model(ended, build.read_architecture(build.SHIPPED)).graph
    written = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    back = np.argsort(written[build.ORIGINAL_PLACES])  # sorted channel → original one

    names = [name.removesuffix(".codes") for name in written if name.endswith(".codes")]
    assert len(names) == 37
    made = {name: build.widened(written[f"{name}.codes"], written[f"{name}.scales"]) for name in names}
    made = build.reordered(made, np.argsort(back))
    moved = sum(float(((ended[name] - begun[name]) * (made[name] - exact[name])).sum()) for name in names)
    whole = sum(float(((ended[name] - begun[name]) ** 2).sum()) for name in names)
    assert moved / whole == pytest.approx(1, abs=0.1)


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
def test_a_short_training_moves_a_need_towards_its_card_and_repeats_itself(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """From the 8-bit graph in git, on three needs: nearer than before, and the same weights for the same seed.

    Loading says nothing of a pooler that nobody misses, and the weights may be read by whoever may read the rest.
    """
    for package in ("torch", "sentence_transformers", "onnx"):
        pytest.importorskip(package, reason="needs the build extra")
    train = script_train()
    folder = write_set(tmp_path / "mine")
    sets = [data.read_needset(folder)]
    recipe = train.Recipe(
        epochs=6, learning_rate=1e-4, tuned=1.0, averaged=0.2, vary=0.0, join=0.0, threads=1, bf16=False
    )

    base = tmp_path / "base"  # without the fp32 weights that a build may have left beside the graph
    shutil.copytree(train.build.SHIPPED, base, ignore=shutil.ignore_patterns("model.safetensors"))

    reports = [train.train(sets, base, tmp_path / out, {}, recipe) for out in ("once", "again")]

    assert "pooler" not in "".join(capfd.readouterr())
    assert reports[0]["base_weights"] == "8-bit, dithered"
    modes = {file.name: file.stat().st_mode for file in (tmp_path / "once").glob("*.*")}
    assert modes["model.safetensors"] == modes["training.json"]
    assert reports[0]["training"]["steps"] == 6
    assert reports[0]["training"]["loss"][-1] < reports[0]["training"]["loss"][0]
    assert reports[0]["sets"]["mine"]["needs_used"] == 3
    once, again = ((tmp_path / out / "model.safetensors").read_bytes() for out in ("once", "again"))
    assert once == again
    assert json.loads((tmp_path / "once" / "training.json").read_text("utf-8"))["recipe"]["seed"] == 13


def test_what_was_done_is_told_in_good_english(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train = script_train()
    told = {"sets": {"mine": {"needs_used": 1}}, "training": {"steps": 1, "minutes": 0.1}}
    monkeypatch.setattr(train, "train", lambda *given: told)
    one, other = (str(write_set(tmp_path / name)) for name in ("one", "other"))

    assert train.main(["--needset", one, "--out", "tuned"]) == 0
    told["sets"]["mine"]["needs_used"] = told["training"]["steps"] = 1234
    assert train.main(["--needset", one, other, "--out", "tuned"]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "1 need of 1 set, 1 step in 0.1 min → tuned",
        "1,234 needs of 2 sets, 1,234 steps in 0.1 min → tuned",
    ]


# --- The floor --------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1, 2), min_size=1))
def test_a_floor_is_the_largest_of_two_decimals_that_cuts_nothing(strengths: list[float]) -> None:
    floor = script("calibrate").floor_under(strengths)

    assert floor == round(floor, 2)
    assert floor <= min(strengths) < floor + 0.01 + 1e-12


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the embedded model, without what was measured of it."""
    copy = tmp_path / "model"
    left = shutil.ignore_patterns("model.safetensors", "match.json")
    shutil.copytree(script("build").SHIPPED, copy, ignore=left)
    return copy


UNJUDGED = {"n5": "Was steht heute im Kalender für Übungen?", "n6": "mail__send"}
"""No floor is for a need beyond ASCII, nor for one that is a card's name."""


def test_a_measured_floor_is_one_that_the_encoder_reads_and_no_right_need_is_under(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With another hundredth it would cut one. Needs that no floor is for are not measured."""
    calibrate = script("calibrate")
    folder = write_set(
        tmp_path / "mine", needs=NEEDS | UNJUDGED, labels=[*LABELS, ("n5", "cal-list", 1), ("n6", "mail-send", 1)]
    )

    assert calibrate.main([str(model), "--needset", str(folder)]) == 0

    said = json.loads((model / "match.json").read_text("utf-8"))
    assert said["measured_with"] == "ranking.match_strength; 4 right train needs of mine"
    assert "mine: 4 right, the weakest 0." in (told := capsys.readouterr().out)
    assert "; 0 wrong, 2 not judged" in told
    encoder = open_encoder(str(model))
    assert encoder.match_floor == said["match_floor"] > 0
    with open_filled(read_needset(folder, "train"), encoder, tmp_path / "cache") as filled:

        def cut() -> list[str]:
            return [need for need in NEEDS.values() if filled.roster.draft_now(need, 5).match is Match.NONE]

        assert cut() == []
        encoder.match_floor += 0.01
        assert cut()


def test_a_strength_is_what_a_draft_holds_against_the_floor(tmp_path: Path, model: Path) -> None:
    """To the last digit: with the strength as floor a need is not cut, with the next larger number it is."""
    calibrate = script("calibrate")
    needset = read_needset(write_set(tmp_path / "mine"), "train")
    encoder = open_encoder(str(model))
    with open_filled(needset, encoder, tmp_path / "cache") as filled:
        for need in [*NEEDS.values(), "tune the piano"]:
            strength = calibrate.strength_of(filled.roster.draft_now(need, 5))
            matches = []
            for encoder.match_floor in (strength, np.nextafter(strength, 2)):
                matches.append(filled.roster.draft_now(need, 5).match)
            assert matches == [Match.WEAK, Match.NONE]


def test_a_sample_is_the_same_for_a_seed_and_the_encoders_own_floor_is_left(tmp_path: Path, model: Path) -> None:
    calibrate = script("calibrate")
    needset = read_needset(write_set(tmp_path / "mine"), "train")
    encoder = open_encoder(str(model))
    encoder.match_floor = 0.25

    found = [calibrate.measured(needset, encoder, tmp_path / "cache", 2, random.Random(seed)) for seed in (1, 1)]

    assert found[0] == found[1]
    assert len(found[0].right) + found[0].wrong + found[0].unjudged == 2
    assert encoder.match_floor == 0.25


def test_what_cannot_be_measured_leaves_no_match_json(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that is none, a set that is none, and needs none of which is right."""
    calibrate = script("calibrate")
    folder = write_set(tmp_path / "mine")
    named = write_set(tmp_path / "named", needs={"n1": "addEvent"}, labels=[("n1", "cal-add", 1)])

    assert calibrate.main([str(tmp_path / "nowhere"), "--needset", str(folder)]) == 1
    assert calibrate.main([str(model), "--needset", str(tmp_path / "nowhere")]) == 1
    assert calibrate.main([str(model), "--needset", str(named)]) == 1

    told = capsys.readouterr().err
    assert "model.onnx is missing" in told
    assert "corpus.jsonl" in told
    assert "no train need has a wanted card among its first 5" in told
    assert not (model / "match.json").exists()
