"""Fine-tune the encoder for need → card retrieval, on processor cores alone: the default, or one for your own needs.

    pip install -e ".[build]"
    python models/build.py                                   # the model to begin from → models/minilm
    python models/train.py --base models/minilm --data SETS --needset METATOOL BFCL_LIVE SEALTOOLS --out tuned
    python models/train.py --needset DIR --out tuned          # the current default, on your own labelled needs
    python models/build.py --source tuned --out models/tuned  # then: a folder Roster can embed
    python models/calibrate.py models/tuned --needset DIR     # and when its drafts say that nothing fits

A need set is a BEIR folder (corpus.jsonl, queries.jsonl, qrels/train.tsv); only its *train* labels are read. `--out`
gets a sentence-transformers folder and training.json: sets, licences, counts, recipe, seed, versions, loss curve.

The default base is the embedded model, from its 8-bit graph where no fp32 weights lie beside it. Such weights are on a
grid, and most of what a training does is less than half a step of it: rounded anew, it would be gone (after 8 steps,
nine tenths of it). So they are dithered, which rounding undoes on average and the ranking does not notice
(`build.widened`).

The recipe. A batch is a few groups of needs, each group around one card and its nearest neighbours in one set, so that
in-batch negatives are near misses; one mined hard negative a need joins them. What may be right without a label is no
negative: twins of a right card, and, where labels are doubtful, cards the base model holds nearly as near
(`train_data.ignored_cards`). Some needs are joined to needs of several steps, some cards lose a part. The loss is
InfoNCE in both directions. In the end the weights are the mean over the last stretch of training, mixed with those it
began from, so that the model keeps what it knew (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models").

Same seed, threads and machine: same weights.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import platform
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import build
import numpy as np
import train_data as data
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from roster.vectors import Vectors, unit_rows

Tensor = Any
"""A torch tensor. torch is imported where it is used: reading and planning need none of it."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is decided before training. Figures are in the model card."""

    seed: int = 13
    epochs: int | None = None
    """By default one, and for few needs as many as give a hundred steps, at most ten."""
    minutes: float | None = None
    """Train no longer than this; the learning rate falls in time for it. Where it bites, training.json says so and two
    runs differ."""
    group: int = 16
    """Needs around one card."""
    groups: int = 4
    """Groups a batch."""
    learning_rate: float = 5e-5
    warmup: float = 0.1
    """Share of the steps in which the learning rate rises; after it, it falls to 0 in a straight line."""
    weight_decay: float = 0.01
    scale: float = 20.0
    """Inverse temperature of the loss."""
    card_to_need: float = 0.5
    """Weight of the second direction of the loss."""
    depth: int = 10
    """A hard negative is one of so many; 0 mines none."""
    vary: float = 0.15
    """Share of needs, and of cards, that lose a part."""
    join: float = 0.12
    """Needs of several steps, as a share of the batch."""
    averaged: float = 0.4
    """The last share of the steps, over which the weights are averaged."""
    tuned: float = 0.7
    """Share of the tuned weights in the result; the rest is the base's."""
    tokens: int = 96
    """Texts are cut here while training; the result reads as far as its base does."""
    threads: int = 1
    """One is the safe choice: on two cores that others use as well, two threads wait for each other and took twice the
    time of one or more."""
    bf16: bool | None = None
    """Matrix products in bfloat16; by default where the processor multiplies it by itself."""


# --- The model --------------------------------------------------------------------------------------------------------


@contextmanager
def loadable(folder: Path, seed: int) -> Iterator[Path]:
    """`folder` if it holds fp32 weights, else a copy with the weights of its 8-bit graph, as git and the wheel have it.

    Those are drawn, by the seed, from what rounds to them: what is trained then survives being rounded again
    (`build.widened`). Raises TrainDataError when it is no model folder.
    """
    if not (folder / "modules.json").is_file():
        raise data.TrainDataError(f"{folder} holds no modules.json: give a sentence-transformers folder as --base")
    if (folder / "model.safetensors").is_file():
        yield folder
        return
    graph = folder / "onnx" / "model.onnx"
    if not graph.is_file():
        raise data.TrainDataError(
            f"{folder} holds neither model.safetensors nor onnx/model.onnx: build it, models/build.py"
        )
    from safetensors.numpy import save_file

    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "base"
        shutil.copytree(folder, copy)
        positions = json.loads((folder / "config.json").read_text("utf-8"))["max_position_embeddings"]
        weights = build.weights_from_onnx(graph, positions, np.random.default_rng(seed))
        save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
        yield copy


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Without transformers' warning of a missing pooler: the graph has none, and the mean is what pools here."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def native_bf16() -> bool:
    """Whether this processor multiplies bfloat16 by itself; elsewhere it is slower than fp32."""
    import torch

    return any(
        bool(getattr(torch.cpu, name, bool)()) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    )


def encode(model: Any, texts: Sequence[str], tokens: int, *, rows: int = 32, bf16: bool = False) -> Tensor:
    """(n, dim) fp32 unit rows, with their gradient. Texts of like length go through together: little padding."""
    import torch

    ids = model.tokenizer(list(texts), truncation=True, max_length=tokens, padding=False)["input_ids"]
    order = sorted(range(len(ids)), key=lambda at: len(ids[at]))
    parts = []
    for start in range(0, len(order), rows):
        chosen = order[start : start + rows]
        longest = max(len(ids[at]) for at in chosen)
        padded = torch.full((len(chosen), longest), model.tokenizer.pad_token_id, dtype=torch.long)
        mask = torch.zeros((len(chosen), longest), dtype=torch.long)
        for row, at in enumerate(chosen):
            padded[row, : len(ids[at])] = torch.tensor(ids[at])
            mask[row, : len(ids[at])] = 1
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            hidden = model[0]({"input_ids": padded, "attention_mask": mask})["token_embeddings"].float()
        weights = mask[:, :, None].float()
        parts.append((hidden * weights).sum(1) / weights.sum(1))
    back = torch.empty(len(order), dtype=torch.long)
    back[torch.tensor(order)] = torch.arange(len(order))
    return torch.nn.functional.normalize(torch.cat(parts)[back], dim=-1)


def embed(model: Any, texts: Sequence[str], recipe: Recipe, tick: Callable[[int], None]) -> Vectors:
    """(n, dim) unit rows, without gradient. tick: called with the number of texts done since the last call."""
    import torch

    out: list[Vectors] = []
    order = np.argsort([len(text) for text in texts], kind="stable")
    with torch.inference_mode():
        for start in range(0, len(texts), 512):
            chosen = [texts[at] for at in order[start : start + 512]]
            out.append(encode(model, chosen, recipe.tokens, rows=64, bf16=bool(recipe.bf16)).numpy())
            tick(len(chosen))
    rows = np.empty((len(texts), out[0].shape[1]), np.float32)
    rows[order] = np.concatenate(out)
    return unit_rows(rows)


# --- The loss ---------------------------------------------------------------------------------------------------------


def info_nce(similarity: Tensor, positive: Tensor, ignored: Tensor, scale: float) -> Tensor:
    """Mean over rows of the mean over a row's right columns p of -log(e^p / (e^p + Σ e^n)), n its wrong columns.

    InfoNCE (van den Oord et al. 2018), with several positives as in SupCon's L_out (Khosla et al. 2020) but without
    the other positives in the denominator: two right cards do not compete. similarity: (rows, columns) cosine; masks
    likewise, ignored columns count as neither. Rows without a right column are left out.
    """
    import torch

    logits = similarity * scale
    wrong = logits.masked_fill(positive | ignored, float("-inf"))
    # A column that is always there keeps a row without any wrong column finite; e^-scale·2 weighs next to nothing.
    least = logits.new_full((len(logits), 1), -2 * scale)
    negatives = torch.logsumexp(torch.cat([wrong, least], dim=1), dim=1, keepdim=True)
    terms = torch.nn.functional.softplus(negatives - logits) * positive
    counts = positive.sum(1)
    kept = counts > 0
    return (terms.sum(1)[kept] / counts[kept]).mean()


# --- Training ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Material:
    """The need sets with what the base model makes of them."""

    sets: list[data.NeedSet]
    chosen: list[data.Example]
    card_vectors: list[Vectors]
    need_vectors: dict[data.Example, Vectors]


def prepare(
    model: Any, sets: Sequence[data.NeedSet], caps: Mapping[str, int], recipe: Recipe, progress: Progress
) -> Material:
    """Sample the needs, and embed them and every card with the model as it is."""
    rng = np.random.default_rng(recipe.seed)
    chosen = [
        data.Example(at, need)
        for at, needset in enumerate(sets)
        for need in data.sample(needset, caps.get(needset.name), rng)
    ]
    needs = [sets[example.set].needs[example.need] for example in chosen]
    cards = [card.text for needset in sets for card in needset.cards]
    task = progress.add_task("reading with the base model", total=len(needs) + len(cards))
    rows = embed(model, [*needs, *cards], recipe, lambda count: progress.advance(task, count))
    ends = np.cumsum([len(needs), *(len(needset.cards) for needset in sets)]).tolist()
    card_vectors = [rows[start:end] for start, end in itertools.pairwise(ends)]
    return Material(list(sets), chosen, card_vectors, dict(zip(chosen, rows, strict=False)))


def batches_of(material: Material, recipe: Recipe, epoch: int) -> list[data.Batch]:
    """The batches of one epoch; the same ones for the same seed and epoch."""
    rng = np.random.default_rng((recipe.seed, epoch))
    sets = material.sets
    groups: list[list[data.Example]] = []
    negatives: dict[data.Example, int] = {}
    for at, needset in enumerate(sets):
        own = [example for example in material.chosen if example.set == at]
        if not own:
            continue
        cards = [min(needset.relevant[example.need]) for example in own]
        around = data.neighbourhoods(cards, material.card_vectors[at][cards], recipe.group, rng)
        groups += [[own[place] for place in group] for group in around]
        if recipe.depth:
            for example in own:
                similarity = material.card_vectors[at] @ material.need_vectors[example]
                mined = data.mine(similarity, needset.relevant[example.need], recipe.depth, rng)
                if mined is not None:
                    negatives[example] = mined
    return [
        data.assemble(
            sets,
            batch,
            negatives,
            material.need_vectors,
            material.card_vectors,
            rng,
            vary=recipe.vary,
            join=recipe.join,
        )
        for batch in data.plan(groups, recipe.groups, rng)
    ]


def loss_of(model: Any, batch: data.Batch, recipe: Recipe) -> Tensor:
    """The loss of one batch, with its gradient."""
    import torch

    bf16 = bool(recipe.bf16)
    needs = encode(model, batch.needs, recipe.tokens, bf16=bf16)
    cards = encode(model, batch.texts, recipe.tokens, bf16=bf16)
    positive, ignored = torch.from_numpy(batch.positive), torch.from_numpy(batch.ignored)
    similarity = needs @ cards.T
    loss = info_nce(similarity, positive, ignored, recipe.scale)
    if recipe.card_to_need:
        # A joined need names several cards: as somebody else's negative it would be a harsh one, so it sits out here.
        single = len(batch.examples)
        back = info_nce(similarity[:single].T, positive[:single].T, ignored[:single].T, recipe.scale)
        loss = (loss + recipe.card_to_need * back) / (1 + recipe.card_to_need)
    return loss


def learning_rate_share(done: float, warmup: float) -> float:
    """Share of the full learning rate after a share `done` of the training: up, then down to 0, both in a line."""
    return done / warmup if done < warmup else max(0.0, (1 - done) / (1 - warmup))


def default_epochs(needs: int, recipe: Recipe) -> int:
    """How often to go through so many needs: an own need set of a few hundred is too few for one time to tell."""
    steps = max(1, needs // (recipe.group * recipe.groups))
    return min(10, max(1, math.ceil(100 / steps)))


def fit(model: Any, material: Material, recipe: Recipe, progress: Progress) -> dict[str, Any]:
    """Train `model` in place and mix its weights; what happened, for training.json."""
    import torch

    model.eval()  # gradients flow all the same, without dropout: an epoch is too short to learn anything by heart
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    base = [parameter.detach().clone() for parameter in parameters]
    mean = [torch.zeros_like(parameter) for parameter in parameters]
    optimiser = torch.optim.AdamW(parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    batches: list[data.Batch] = []
    epochs = recipe.epochs if recipe.epochs is not None else default_epochs(len(material.chosen), recipe)
    for epoch in range(epochs):
        batches += batches_of(material, recipe, epoch)
    total = len(batches)
    curve: list[float] = []
    averaged, seen, done = 0, 0, 0.0
    begun = time.monotonic()
    task = progress.add_task("training", total=1.0)
    for step, batch in enumerate(batches):
        used = (time.monotonic() - begun) / (60 * recipe.minutes) if recipe.minutes else 0.0
        done = max(done, step / total, used)
        if done >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate * learning_rate_share(done + 1e-9 + 0.5 / total, recipe.warmup)
        loss = loss_of(model, batch, recipe)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        curve.append(loss.item())
        seen += len(batch.examples)
        if done >= 1 - recipe.averaged:
            averaged += 1
            for kept, parameter in zip(mean, parameters, strict=True):
                kept.add_(parameter.detach())
        progress.update(task, completed=done, description=f"training, loss {np.mean(curve[-20:]):.3f}")
    with torch.no_grad():
        for parameter, start, kept in zip(parameters, base, mean, strict=True):
            tuned = kept / averaged if averaged else parameter
            parameter.copy_(recipe.tuned * tuned + (1 - recipe.tuned) * start)
    window = max(1, len(curve) // 20)
    return {
        "epochs": epochs,
        "steps": len(curve),
        "planned_steps": total,
        "needs_seen": seen,
        "averaged_steps": averaged,
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "loss": [round(float(np.mean(curve[at : at + window])), 4) for at in range(0, len(curve), window)],
    }


def train(
    sets: Sequence[data.NeedSet], base: Path, out: Path, caps: Mapping[str, int], recipe: Recipe
) -> dict[str, Any]:
    """Fine-tune the model in `base` on `sets`, write it and training.json to `out`; returns what training.json says."""
    import sentence_transformers
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    random.seed(recipe.seed)
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(recipe.threads)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    bf16 = native_bf16() if recipe.bf16 is None else recipe.bf16
    used = Recipe(**{**asdict(recipe), "bf16": bf16})
    with (
        loadable(base, recipe.seed) as folder,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
    ):
        with quiet_loading():
            model: Any = sentence_transformers.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        material = prepare(model, sets, caps, used, progress)
        happened = fit(model, material, used, progress)
        out.mkdir(parents=True, exist_ok=True)
        model.save(str(out), create_model_card=False)
    counts = data.counted(material.chosen, sets)
    report = {
        "base": base.name,
        "base_weights": "fp32" if (base / "model.safetensors").is_file() else "8-bit, dithered",
        "recipe": asdict(used),
        "sets": {
            needset.name: {
                "cards": len(needset.cards),
                "needs": len(needset.needs),
                "cap": caps.get(needset.name),
                "needs_used": counts[needset.name],
                "licences": list(needset.licences),
            }
            for needset in sets
        },
        "training": happened,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "sentence-transformers": sentence_transformers.__version__,
            "numpy": np.__version__,
        },
    }
    told = out / "training.json"
    told.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    for file in out.glob("*.safetensors"):  # some releases write weights for their owner alone, whatever the umask says
        file.chmod(told.stat().st_mode & 0o777)
    return report


# --- The command ------------------------------------------------------------------------------------------------------


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _cap(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not name or not number.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=NUMBER, such as banking77=300")
    return name, int(number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read, train, write; 1 for a set that cannot be trained on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder of need sets; all of them are used")
    parser.add_argument("--needset", type=Path, nargs="+", default=[], help="need sets, one folder each")
    parser.add_argument("--exclude", nargs="+", default=[], metavar="NAME", help="sets of --data to leave out")
    parser.add_argument("--cap", type=_cap, nargs="+", default=[], metavar="NAME=N", help="needs of a set, at most")
    parser.add_argument("--base", type=Path, default=build.SHIPPED, help="the model to begin from")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    defaults = asdict(Recipe())
    for name, kind in {
        "seed": int, "epochs": int, "minutes": float, "threads": int, "learning_rate": float, "scale": float,
        "group": int, "groups": int, "depth": int, "vary": float, "join": float, "tuned": float,
        "averaged": float, "card_to_need": float, "tokens": int,
    }.items():  # fmt: skip
        said = "see Recipe" if defaults[name] is None else f"default {defaults[name]}"
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=defaults[name], help=said)
    parser.add_argument("--bf16", action=argparse.BooleanOptionalAction, default=None, help="default: where it is fast")
    args = parser.parse_args(arguments)
    try:
        folders = [*(data.find_needsets(args.data) if args.data else []), *args.needset]
        folders = [folder for folder in folders if folder.resolve().name not in args.exclude]
        if not folders:
            parser.error("give --data or --needset")
        sets = [data.read_needset(folder) for folder in folders]
        recipe = Recipe(**{key: value for key, value in vars(args).items() if key in defaults})
        report = train(sets, args.base, args.out, {**data.CAPS, **dict(args.cap)}, recipe)
    except data.TrainDataError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 1
    used = sum(found["needs_used"] for found in report["sets"].values())
    happened = report["training"]
    told = f"{_many(used, 'need')} of {_many(len(sets), 'set')}, {_many(happened['steps'], 'step')}"
    print(f"{told} in {happened['minutes']} min → {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
