"""Weigh ways to store the encoder's weights against each other: process size, speed, fidelity, ranking quality.

    python models/compare.py --needset DIR [DIR ...]    # BEIR folders: corpus.jsonl, queries.jsonl, qrels/train.tsv

Every candidate is built from the fp32 weights of models/minilm and measured by `open_onnx_encoder` in a process
of its own, so its peak memory is its own. Only the training half of a need set is read: the choice is made here, and
nothing is tuned on the needs it is scored on. The table goes to eval/results/encoder_candidates.json and into the
model card between its two marks. Times are of this machine on the day; read ratios.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import build
import numpy as np
from numpy.typing import NDArray

from roster.encoder import BATCH_TOKENS, OnnxEncoder, open_onnx_encoder
from roster.vectors import Vectors

MODEL = build.BASE
RESULTS = build.REPOSITORY / "eval" / "results" / "encoder_candidates.json"
CARD = build.SHIPPED / "README.md"
MARKS = ("<!-- candidates -->", "<!-- /candidates -->")

NEED = (
    "Look through the open pull requests of our repository, find those that nobody has reviewed for more than three "
    "days, and send their authors a short reminder in the team's chat channel before noon"
)
"""Some 40 tokens."""


# --- Candidates -------------------------------------------------------------------------------------------------------


def fp32_linear(graph: build.Graph, source: str, weight: NDArray[np.float32], name: str) -> str:
    """A plain matrix product."""
    return graph.node("MatMul", [source, graph.constant(name, weight.T)], f"{name}.product")


def fp32_table(graph: build.Graph, ids: str, table: NDArray[np.float32], name: str) -> str:
    """A plain gather."""
    return graph.node("Gather", [graph.constant(name, table), ids], f"{name}.rows")


def qdq_linear(graph: build.Graph, source: str, weight: NDArray[np.float32], name: str) -> str:
    """int8 weights, a scale per output, widened by a DequantizeLinear node."""
    scales = np.abs(weight).max(axis=1) / np.float32(127)
    codes = np.rint(weight / scales[:, None]).astype(np.int8)
    inputs = [graph.constant(f"{name}.codes", codes.T), graph.constant(f"{name}.scales", scales)]
    wide = graph.node("DequantizeLinear", inputs, f"{name}.wide", axis=1)
    return graph.node("MatMul", [source, wide], f"{name}.product")


def mixed_linear(graph: build.Graph, source: str, weight: NDArray[np.float32], name: str) -> str:
    """Block 16, but 32 for the widest input, that of a layer's last matrix, where it matters least."""
    block = 32 if weight.shape[1] > weight.shape[0] else 16
    return build.nbits_linear(block, 4)(graph, source, weight, name)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to store the weights."""

    linear: build.Linear
    table: build.Table = build.int8_table
    sort_channels: bool = True
    one_file: bool = False


REFERENCE = "fp32"
CHOSEN = f"8-bit, block {build.BLOCK}, int8 activations, channels sorted"
CANDIDATES = {
    "fp32": Candidate(fp32_linear, fp32_table, sort_channels=False),
    "int8 QDQ per channel": Candidate(qdq_linear),
    "8-bit, block 32, fp32 activations (level 0)": Candidate(build.nbits_linear(32, 0)),
    "8-bit, block 32, fp32 activations (level 1)": Candidate(build.nbits_linear(32, 1)),
    "8-bit, block 16, int8 activations": Candidate(build.nbits_linear(16), sort_channels=False),
    "8-bit, block 32, int8 activations": Candidate(build.nbits_linear(32), sort_channels=False),
    "8-bit, block 16, int8 activations, channels sorted": Candidate(build.nbits_linear(16)),
    "8-bit, block 16 and 32, int8 activations, channels sorted": Candidate(mixed_linear),
    "8-bit, block 32, int8 activations, channels sorted": Candidate(build.nbits_linear(32)),
    "8-bit, block 64, int8 activations, channels sorted": Candidate(build.nbits_linear(64)),
    "8-bit, block 128, int8 activations, channels sorted": Candidate(build.nbits_linear(128)),
    f"{CHOSEN}, weights in the graph file": Candidate(build.nbits_linear(), one_file=True),
}


def write_candidates(out: Path) -> dict[str, Path]:
    """Each candidate's folder under `out`, by its label."""
    import onnx

    weights = build.read_weights(MODEL / "model.safetensors")
    shape = build.read_architecture(MODEL)
    folders = {}
    for number, label in enumerate(CANDIDATES):
        folder = folders[label] = out / str(number)
        folder.mkdir()
        for file in MODEL.glob("*.json"):
            (folder / file.name).write_bytes(file.read_bytes())
        candidate = CANDIDATES[label]
        model = build.bert_model(
            weights, shape, linear=candidate.linear, table=candidate.table, sort_channels=candidate.sort_channels
        )
        if candidate.one_file:
            (folder / "onnx").mkdir()
            onnx.save_model(model, folder / "onnx" / "model.onnx")
        else:
            build.write_graph(model, folder / "onnx" / "model.onnx")
    return folders


# --- Need sets --------------------------------------------------------------------------------------------------------


def words(name: str) -> str:
    """A name's words in lower case: split at _ - . / and where camelCase turns."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_\-./]+", " ", name)
    return " ".join(split.lower().split())


def read_needset(folder: Path) -> dict[str, Any]:
    """Card ids and texts, and the training needs with their graded cards."""
    cards = [json.loads(line) for line in (folder / "corpus.jsonl").read_text("utf-8").splitlines()]
    texts = {
        row["_id"]: row["text"] for row in map(json.loads, (folder / "queries.jsonl").read_text("utf-8").splitlines())
    }
    qrels: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels" / "train.tsv").read_text("utf-8").splitlines()[1:]:
        need, card, grade = line.split("\t")
        qrels.setdefault(need, {})[card] = int(grade)
    return {
        "name": folder.name,
        "ids": [card["_id"] for card in cards],
        "cards": [f"{words(card['server'])}, {words(card['name'])}: {card['description']}" for card in cards],
        "needs": [texts[need] for need in qrels],
        "qrels": list(qrels.values()),
    }


def ndcg(scores: NDArray[np.float32], ids: Sequence[str], grades: dict[str, int], k: int = 5) -> float:
    """nDCG@k of one need, linear gain (Järvelin & Kekäläinen 2002); ties keep the corpus order."""
    discounts = 1 / np.log2(np.arange(2, k + 2))
    gains = [grades.get(ids[place], 0) for place in np.argsort(-scores, kind="stable")[:k]]
    ideal = sorted(grades.values(), reverse=True)[:k]
    return float(gains @ discounts[: len(gains)]) / float(ideal @ discounts[: len(ideal)])


# --- One candidate, in its own process --------------------------------------------------------------------------------


def process_mb(key: str) -> float | None:
    """A memory figure of this process from the kernel, in MB; None where there is no /proc."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    found = re.search(rf"^{key}:\s+(\d+) kB", status.read_text(), re.MULTILINE)
    return round(int(found[1]) / 1000, 1) if found else None


def measure(folder: Path, texts_file: Path, output: Path) -> dict[str, Any]:
    """The figures of the encoder in `folder`; its vectors of all `texts_file`'s texts go to `output`."""
    started = time.process_time()
    encoder: OnnxEncoder = open_onnx_encoder(folder)
    encoder.encode_needs([NEED])
    first_cpu_s = time.process_time() - started

    needsets = json.loads(texts_file.read_text("utf-8"))
    smallest = min(needsets, key=lambda each: len(each["cards"]))
    encoder.encode_cards(smallest["cards"])
    for need in smallest["needs"]:
        encoder.encode_needs([need])
    figures = {
        "peak_mb": process_mb("VmHWM"),
        "anonymous_mb": process_mb("RssAnon"),
        "first_cpu_s": round(first_cpu_s, 3),
    }

    spent = []
    for _ in range(100):
        began = time.perf_counter()
        encoder.encode_needs([NEED])
        spent.append((time.perf_counter() - began) * 1000)
    figures["p50_ms"] = round(float(np.median(spent)), 2)

    rows, count, seconds = {}, 0, 0.0
    for each in needsets:
        began = time.perf_counter()
        cards = encoder.encode_cards(each["cards"])
        seconds += time.perf_counter() - began
        count += len(cards)
        rows[f"{each['name']}.cards"], rows[f"{each['name']}.needs"] = cards, encoder.encode_needs(each["needs"])
    figures["texts_per_s"] = round(count / seconds, 1)

    # Every seventh card, so that short and long ones are among them.
    texts = [text for each in needsets for text in each["cards"]]
    batched = np.concatenate([rows[f"{each['name']}.cards"] for each in needsets])[::7]
    alone = np.concatenate([encoder.encode_cards([text]) for text in texts[::7]])
    figures["alone_vs_batch_min"] = round(float((alone * batched).sum(axis=1).min()), 7)
    np.savez(output, allow_pickle=False, **rows)
    return figures


def table(rows: list[dict[str, Any]], names: Sequence[str]) -> str:
    """The results as Markdown."""
    head = [
        "weights",
        "file MB",
        "peak MB",
        "of it anonymous",
        "load + first, CPU s",
        "p50 ms",
        "texts/s",
        "cosine to fp32, mean / min",
        "alone vs batch, min",
        *(f"nDCG@5 {name}" for name in names),
    ]
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join(["---"] * len(head)) + " |"]
    for row in rows:
        label = f"**{row['weights']}**" if row["weights"] == CHOSEN else row["weights"]
        cells = [
            label,
            row["file_mb"],
            row["peak_mb"],
            row["anonymous_mb"],
            row["first_cpu_s"],
            row["p50_ms"],
            row["texts_per_s"],
            f"{row['cosine_mean']:.4f} / {row['cosine_min']:.4f}",
            f"{row['alone_vs_batch_min']:.6f}",
            *(f"{row['ndcg_at_5'][name]:.4f}" for name in names),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure every candidate and write the table; or measure one, for the parent process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--needset", type=Path, nargs="+", default=[], help="BEIR folders")
    parser.add_argument("--measure", type=Path, nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(*args.measure)))
        return
    if not args.needset:
        parser.error("--needset wants a folder or more")

    needsets = [read_needset(folder) for folder in args.needset]
    names = [each["name"] for each in needsets]
    rows, vectors = [], {}
    with tempfile.TemporaryDirectory() as scratch:
        texts_file = Path(scratch) / "needsets.json"
        texts_file.write_text(json.dumps(needsets), "utf-8")
        for label, folder in write_candidates(Path(scratch)).items():
            output = folder / "vectors.npz"
            command = [sys.executable, __file__, "--measure", str(folder), str(texts_file), str(output)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            file_mb = sum(file.stat().st_size for file in (folder / "onnx").iterdir()) / 1e6
            rows.append({"weights": label, "file_mb": round(file_mb, 1), **json.loads(done.stdout)})
            vectors[label] = dict(np.load(output))
            print(rows[-1], file=sys.stderr)

    for row in rows:
        ours: dict[str, Vectors] = vectors[row["weights"]]
        cosines = np.concatenate([(ours[key] * vectors[REFERENCE][key]).sum(axis=1) for key in ours])
        row["cosine_mean"], row["cosine_min"] = round(float(cosines.mean()), 6), round(float(cosines.min()), 6)
        row["ndcg_at_5"] = {
            each["name"]: round(
                float(
                    np.mean(
                        [
                            ndcg(scores, each["ids"], grades)
                            for scores, grades in zip(
                                ours[f"{each['name']}.needs"] @ ours[f"{each['name']}.cards"].T,
                                each["qrels"],
                                strict=True,
                            )
                        ]
                    )
                ),
                4,
            )
            for each in needsets
        }

    import onnxruntime

    report = {
        "machine": f"{platform.machine()} {platform.system()}, one thread, Python {platform.python_version()}",
        "onnxruntime": onnxruntime.__version__,
        "batch_tokens": BATCH_TOKENS,
        "needsets": {
            each["name"]: {"cards": len(each["cards"]), "train_needs": len(each["needs"])} for each in needsets
        },
        "chosen": CHOSEN,
        "candidates": rows,
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", "utf-8")
    markdown = table(rows, names)
    card = CARD.read_text("utf-8")
    if all(mark in card for mark in MARKS):
        before, rest = card.split(MARKS[0])
        after = rest.split(MARKS[1])[1]
        CARD.write_text(f"{before}{MARKS[0]}\n{markdown}\n{MARKS[1]}{after}", "utf-8")
    print(markdown)


if __name__ == "__main__":
    main()
