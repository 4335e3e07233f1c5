"""The embedded encoder against fp32 vectors; its promises about batches and texts; what it says when it cannot load."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from roster.encoder import (
    OnnxEncoder,
    batches,
    default_model_folder,
    open_encoder,
    open_onnx_encoder,
    open_sentence_transformer,
)
from roster.errors import EncoderError

REPOSITORY = Path(__file__).resolve().parents[1]
GOLDEN = json.loads((Path(__file__).parent / "data" / "minilm_golden.json").read_text("utf-8"))
TEXTS: list[str] = [case["text"] for case in GOLDEN]


@pytest.fixture(scope="module")
def encoder() -> OnnxEncoder:
    return open_onnx_encoder(default_model_folder())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the embedded model's folder, without the fp32 weights, to break."""
    copy = tmp_path / "model"
    shutil.copytree(default_model_folder(), copy, ignore=shutil.ignore_patterns("model.safetensors"))
    return copy


def cosines(left: Any, right: Any) -> np.ndarray:
    """Row by row; rows of unit length."""
    return np.sum(np.asarray(left) * np.asarray(right), axis=1)  # type: ignore[no-any-return]


def run_python(code: str) -> str:
    """What `code` prints in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def test_eight_bit_vectors_agree_with_fp32_sentence_transformers(encoder: OnnxEncoder) -> None:
    """Cosine is 0.999 or more for every golden text; measured: 0.9992 for the empty one, 0.9995 for the rest."""
    golden = np.array([case["vector"] for case in GOLDEN])

    assert cosines(encoder.encode_cards(TEXTS), golden).min() >= 0.999
    assert cosines(encoder.encode_needs(TEXTS), golden).min() >= 0.999


def test_rows_are_float32_of_unit_length(encoder: OnnxEncoder) -> None:
    """(n, dim) float32, length one to rounding."""
    rows = encoder.encode_cards(TEXTS)

    assert rows.shape == (len(TEXTS), encoder.dim) == (12, 384)
    assert rows.dtype == np.float32
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-6)


def test_a_text_alone_has_the_vector_it_has_in_a_batch_of_mixed_lengths(encoder: OnnxEncoder) -> None:
    """Its companions do not show in its vector: cosine 0.9999 or more, measured 0.9999998."""
    together = encoder.encode_cards(TEXTS * 5)
    alone = np.concatenate([encoder.encode_cards([text]) for text in TEXTS])

    assert cosines(together, np.tile(alone, (5, 1))).min() >= 0.9999


def test_rows_come_in_the_order_of_their_texts(encoder: OnnxEncoder) -> None:
    """Batches are made by length, rows are given back by position."""
    shuffled = np.random.default_rng(7).permutation(len(TEXTS))

    rows = encoder.encode_cards([TEXTS[place] for place in shuffled])

    assert cosines(rows, encoder.encode_cards(TEXTS)[shuffled]).min() >= 0.9999


def test_batches_hold_each_text_once_within_the_budget() -> None:
    """Groups go from short to long and count padding; a text over the budget is alone."""
    assert list(batches([5, 1, 9, 2, 2, 40], budget=10)) == [[1, 3, 4], [0], [2], [5]]
    assert list(batches([], budget=10)) == []


def test_no_texts_give_no_rows(encoder: OnnxEncoder) -> None:
    """(0, dim), so that it can be stacked and searched like any other."""
    assert encoder.encode_needs([]).shape == encoder.encode_cards([]).shape == (0, 384)


@pytest.mark.parametrize(
    "text",
    ["", " \n\t", "\x00", "a\x00b", "\ud800", "ok \udfff", "\u202e\ufeff\ufffd", "x" * 100_000, "many words " * 9_000],
    ids=["empty", "blank", "nul", "nul inside", "surrogate", "surrogate inside", "marks", "100 kB word", "99 kB text"],
)
def test_any_text_has_a_vector(encoder: OnnxEncoder, text: str) -> None:
    """Whatever a client sends as a need, or a server as a description, is encoded rather than refused."""
    rows = encoder.encode_needs([text, "read a file"])

    assert np.isfinite(rows).all()
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-6)


def test_a_long_text_is_cut_at_256_tokens(encoder: OnnxEncoder) -> None:
    """254 words and the two marks count; not 128, which is what upstream's tokenizer file says."""
    rows = encoder.encode_cards(["word " * 200 + "cat " * 54, "word " * 200 + "cat " * 54 + "dog " * 99, "word " * 200])

    assert cosines(rows[:1], rows[1:2])[0] > 0.99999
    assert cosines(rows[:1], rows[2:])[0] < 0.99


def test_threads_share_an_encoder(encoder: OnnxEncoder) -> None:
    """Eight callers at once get what one gets."""
    expected = encoder.encode_cards(TEXTS)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: encoder.encode_cards(TEXTS), range(16)))

    assert all(cosines(rows, expected).min() >= 0.9999 for rows in results)


def test_the_fingerprint_is_of_what_changes_vectors(encoder: OnnxEncoder, folder: Path) -> None:
    """The same for a second opening and a copy elsewhere; another when a prompt, the tokenizer or a weight differs."""
    assert open_onnx_encoder(folder).fingerprint == encoder.fingerprint

    seen = {encoder.fingerprint}
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "need: "}}')
    seen.add(open_onnx_encoder(folder).fingerprint)
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text("utf-8") + "\n", "utf-8")
    seen.add(open_onnx_encoder(folder).fingerprint)
    weights = bytearray((folder / "onnx" / "model.onnx.data").read_bytes())
    weights[1_000_000] ^= 1
    (folder / "onnx" / "model.onnx.data").write_bytes(weights)
    seen.add(open_onnx_encoder(folder).fingerprint)
    assert len(seen) == 4


def test_prompts_go_before_needs_and_cards(encoder: OnnxEncoder, folder: Path) -> None:
    """As in sentence-transformers: "query" for needs, "document" or "passage" for cards."""
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "need: ", "passage": "card: "}}')
    prompted = open_onnx_encoder(folder)

    assert cosines(prompted.encode_needs(["x"]), encoder.encode_needs(["need: x"]))[0] > 0.99999
    assert cosines(prompted.encode_cards(["x"]), encoder.encode_cards(["card: x"]))[0] > 0.99999


def test_the_default_model_is_the_embedded_one() -> None:
    """Without a name, and by the word "default"."""
    assert open_encoder(None).name == open_encoder("default").name == "roster-minilm"


def test_a_folder_with_a_graph_runs_on_onnxruntime(folder: Path) -> None:
    """Naming the folder is enough."""
    assert isinstance(open_encoder(str(folder)), OnnxEncoder)


def test_encoding_imports_neither_torch_nor_transformers() -> None:
    """A router starts with every client: it must not pay seconds for what the default does not use. Silent, too."""
    heavy = {"torch", "transformers", "sentence_transformers"}
    light = run_python(
        "import sys, roster.encoder\n"
        "print('onnxruntime' in sys.modules, 'tokenizers' in sys.modules)\n"
        "roster.encoder.open_encoder(None).encode_needs(['read a file'])\n"
        f"print({heavy!r} & set(sys.modules))"
    )

    assert light.splitlines() == ["False False", "set()"]


def test_a_missing_graph_is_named_with_its_remedy(tmp_path: Path, folder: Path) -> None:
    """A folder that is not there, and one without onnx/model.onnx."""
    with pytest.raises(EncoderError, match=r"nowhere.onnx.model\.onnx is missing: build .* models/build\.py"):
        open_onnx_encoder(tmp_path / "nowhere")

    (folder / "onnx" / "model.onnx").unlink()
    with pytest.raises(EncoderError, match=r"model\.onnx is missing.*st:"):
        open_onnx_encoder(folder)


def test_a_graph_of_another_shape_is_refused_by_name(folder: Path) -> None:
    """One that gives token embeddings has to be pooled by someone: sentence-transformers."""
    graph = folder / "onnx" / "model.onnx"
    renamed = graph.read_bytes().replace(b"sentence_embedding", b"last_hidden_state_")  # as long, so still well-formed
    graph.write_bytes(renamed)

    with pytest.raises(EncoderError, match=r"model\.onnx maps .* to last_hidden_state_, not .*st:"):
        open_onnx_encoder(folder)


def test_a_broken_file_is_an_encoder_error(folder: Path) -> None:
    """Not an exception of onnxruntime's or tokenizers' own."""
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(EncoderError, match=r"cannot be loaded.*Rebuild"):
        open_onnx_encoder(folder)


def test_a_missing_extra_is_named_with_its_remedy() -> None:
    """Another model never takes the place of the one asked for."""
    message = run_python(
        "import sys\n"
        "sys.modules['sentence_transformers'] = None\n"
        "from roster.encoder import open_encoder\n"
        "from roster.errors import EncoderError\n"
        "try: open_encoder('intfloat/e5-small-v2')\n"
        "except EncoderError as error: print(error)"
    )

    assert "'intfloat/e5-small-v2' needs sentence-transformers" in message
    assert 'pip install "sentence-transformers>=6,<7"' in message
    assert "CPU build" in message


# --- With the extra ---------------------------------------------------------------------------------------------------


def build_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build", REPOSITORY / "models" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["build"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


UNREAD = {"list the files": 0.0, "": 0.0, "北京到上海 train": 1 / 6, "餐厅预订": 1.0}
"""Text to the share of its tokens that the embedded model's vocabulary lacks."""


def test_what_the_model_cannot_read_is_known(encoder: OnnxEncoder) -> None:
    """English all of it, Chinese little: most characters are not in the vocabulary."""
    assert {text: encoder.unread(text) for text in UNREAD} == UNREAD
    assert encoder.unread("餐" * 3_000_000) == 1.0


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded folder with a model.safetensors of the graph's own 8-bit weights, widened.

    The copy's graph leaves activations in fp32 (accuracy_level 0), the only part that cannot be put in the file.
    """
    pytest.importorskip("sentence_transformers", reason="needs the models extra")
    onnx = pytest.importorskip("onnx", reason="needs the build extra")
    from safetensors.numpy import save_file

    build = build_script()
    copy = tmp_path_factory.mktemp("twin") / "roster-minilm"
    shutil.copytree(default_model_folder(), copy, ignore=shutil.ignore_patterns("model.safetensors"))
    file = copy / "onnx" / "model.onnx"
    save_file(build.weights_from_onnx(file, positions=512), copy / "model.safetensors", metadata={"format": "pt"})
    model = onnx.load(file)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 0
    build.write_graph(model, file)
    return copy


def test_both_encoders_agree_on_the_same_weights(twin: Path) -> None:
    """Tokens, cutting, network, pooling and order of channels: cosine 0.9999 or more, measured 0.999999."""
    graph, general = open_onnx_encoder(twin), open_sentence_transformer(str(twin))

    assert (general.dim, general.name) == (graph.dim, graph.name)
    assert cosines(general.encode_needs(TEXTS), graph.encode_needs(TEXTS)).min() >= 0.9999
    assert cosines(general.encode_cards(TEXTS), graph.encode_cards(TEXTS)).min() >= 0.9999
    assert general.encode_cards([]).shape == (0, 384)


def test_both_encoders_agree_on_the_folder_as_it_is(encoder: OnnxEncoder) -> None:
    """fp32 weights beside the graph, where a build left them: cosine 0.999 or more."""
    pytest.importorskip("sentence_transformers", reason="needs the models extra")
    if not (default_model_folder() / "model.safetensors").exists():
        pytest.skip("fp32 weights are not in git: python models/build.py")
    general = open_encoder(f"st:{default_model_folder()}")

    assert cosines(general.encode_cards(TEXTS), encoder.encode_cards(TEXTS)).min() >= 0.999


def test_both_encoders_say_what_they_cannot_read(twin: Path) -> None:
    """Token by token the same, so that the blend is."""
    graph, general = open_onnx_encoder(twin), open_sentence_transformer(str(twin))

    for text in UNREAD:
        assert general.unread(text) == pytest.approx(graph.unread(text))


def test_prompts_are_the_same_in_both_encoders(twin: Path, tmp_path: Path) -> None:
    """A model with "passage" in place of "document" gets it before cards."""
    copy = tmp_path / "prompted"
    shutil.copytree(twin, copy)
    (copy / "config_sentence_transformers.json").write_text('{"prompts": {"query": "need: ", "passage": "card: "}}')
    graph, general = open_onnx_encoder(copy), open_sentence_transformer(str(copy))

    assert cosines(general.encode_cards(TEXTS), graph.encode_cards(TEXTS)).min() >= 0.9999
    assert cosines(general.encode_needs(TEXTS), graph.encode_needs(TEXTS)).min() >= 0.9999


def test_a_local_folder_has_one_fingerprint(twin: Path) -> None:
    """Of its files, so the same in every process; documents beside them do not count."""
    first = open_sentence_transformer(str(twin)).fingerprint
    (twin / "NOTES.md").write_text("read me")

    assert open_sentence_transformer(str(twin)).fingerprint == first


def test_an_unknown_model_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline, which is how a hub that cannot be reached looks."""
    pytest.importorskip("sentence_transformers", reason="needs the models extra")
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(EncoderError, match=r"'nobody/nothing' is neither a folder here nor .* local sentence-trans"):
        open_encoder("nobody/nothing")
