"""Texts to unit rows. `OnnxEncoder` runs the embedded default, `SentenceTransformerEncoder` any model a user names.

Importing this module imports neither: each opening function imports its own runtime, so a router that uses the default
never pays for torch (seconds and hundreds of megabytes, models/roster-minilm/README.md has the figures).
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from roster.errors import EncoderError
from roster.vectors import Vectors, unit_rows

__all__ = [
    "Encoder",
    "OnnxEncoder",
    "SentenceTransformerEncoder",
    "batches",
    "default_model_folder",
    "open_encoder",
    "open_onnx_encoder",
    "open_sentence_transformer",
    "read_max_length",
]

DEFAULT_MODEL = "roster-minilm"

FORMULA = "1"
"""Raised when this module changes what a vector is (cutting, prompts, pooling), so that old indexes are rebuilt."""

BATCH_TOKENS = 256
"""Tokens a batch may hold, padding included: as many as the longest text alone. Larger batches are not faster on one
thread and their activations are what makes the process grow (1,024 tokens: some 40 MB more)."""

CHARACTERS_PER_TOKEN = 256
"""Text beyond this many characters per token of the limit is not tokenised: 10 MB costs no more than 64 kB."""

GRAPH_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}
GRAPH_OUTPUT = "sentence_embedding"


class Encoder(Protocol):
    """A model that turns texts into unit rows, needs and cards each its own way."""

    name: str
    fingerprint: str
    """Hex digest of everything that changes a vector. Vectors of different fingerprints are never compared."""
    dim: int
    match_floor: float | None
    """The match strength (`ranking.match_strength`) below which nothing fits a need; None where nobody measured it."""

    def encode_needs(self, texts: Sequence[str]) -> Vectors:
        """(n, dim) float32 unit rows, in the order of `texts`; no texts give (0, dim)."""
        ...

    def encode_cards(self, texts: Sequence[str]) -> Vectors:
        """(n, dim) float32 unit rows, in the order of `texts`; no texts give (0, dim)."""
        ...

    def unread(self, text: str) -> float:
        """The share of a text's tokens, 0 to 1, that stand for "not in the vocabulary"."""
        ...


# --- Opening ----------------------------------------------------------------------------------------------------------


def open_encoder(model: str | None, threads: int = 1) -> Encoder:
    """The encoder `model` names: None or "default" for the embedded one, a folder, or a model on the hub.

    A folder with an onnx/model.onnx runs on onnxruntime; everything else, and anything after `st:`, on
    sentence-transformers. Raises EncoderError when it cannot be opened; another model never takes its place.
    """
    if model is None or model == "default":
        return open_onnx_encoder(default_model_folder(), threads)
    name = model.removeprefix("st:")
    folder = Path(model).expanduser()
    if name == model and (folder / "onnx" / "model.onnx").is_file():
        return open_onnx_encoder(folder, threads)
    if name.startswith((".", "~", os.sep)) and not folder.is_dir() and not Path(name).expanduser().is_dir():
        raise EncoderError(f"there is no model folder {name!r}: name a folder, or a model of the hub as owner/name")
    return open_sentence_transformer(name, threads=threads)


def default_model_folder() -> Path:
    """The embedded model: inside the installed package, or in a source checkout beside it. Raises EncoderError."""
    package = Path(__file__).resolve().parent
    candidates = [package / "_models" / DEFAULT_MODEL, package.parent / "models" / DEFAULT_MODEL]
    for folder in candidates:
        if (folder / "onnx" / "model.onnx").is_file():
            return folder
    raise EncoderError(
        f"the embedded model is missing: no onnx/model.onnx in {' or '.join(map(str, candidates))}. "
        "Reinstall roster-mcp; in a source checkout run `python models/build.py`"
    )


# --- The embedded runtime ---------------------------------------------------------------------------------------------


class OnnxEncoder:
    """A sentence-transformers folder whose onnx/model.onnx pools and normalises by itself. Safe to share by threads.

    A text's vector does not depend on the texts encoded with it, up to rounding (models/roster-minilm/README.md).
    """

    def __init__(
        self,
        *,
        name: str,
        fingerprint: str,
        dim: int,
        session: Any,
        tokenizer: Any,
        max_length: int,
        need_prompt: str = "",
        card_prompt: str = "",
        match_floor: float | None = None,
        unknown_token: str | None = None,
    ) -> None:
        self.name = name
        self.match_floor = match_floor
        self.fingerprint = fingerprint
        self.dim = dim
        self._session = session
        self._tokenizer = tokenizer
        self._max_characters = max_length * CHARACTERS_PER_TOKEN
        self._need_prompt = need_prompt
        self._card_prompt = card_prompt
        self._unknown = tokenizer.token_to_id(unknown_token) if unknown_token else None
        self._inputs = {each.name for each in session.get_inputs()}

    def encode_needs(self, texts: Sequence[str]) -> Vectors:
        """(n, dim) float32 unit rows; a text is cut at the model's length, any string is accepted."""
        return self._encode(texts, self._need_prompt)

    def encode_cards(self, texts: Sequence[str]) -> Vectors:
        """(n, dim) float32 unit rows; a text is cut at the model's length, any string is accepted."""
        return self._encode(texts, self._card_prompt)

    def unread(self, text: str) -> float:
        """The share of a text's tokens, 0 to 1, that stand for "not in the vocabulary"."""
        encoding = self._tokenizer.encode(sanitised(text[: self._max_characters]), add_special_tokens=False)
        return share_of(encoding.ids, self._unknown)

    def _encode(self, texts: Sequence[str], prompt: str) -> Vectors:
        # One by one: `encode_batch` would start a pool of threads, and tokenising is a hundredth of the work.
        tokens = [self._tokenizer.encode(sanitised(prompt + text[: self._max_characters])).ids for text in texts]
        rows = np.zeros((len(tokens), self.dim), np.float32)
        for chosen in batches([len(ids) for ids in tokens], BATCH_TOKENS):
            width = len(tokens[chosen[-1]])
            input_ids = np.zeros((len(chosen), width), np.int64)
            mask = np.zeros_like(input_ids)
            for row, position in enumerate(chosen):
                ids = tokens[position]
                input_ids[row, : len(ids)] = ids
                mask[row, : len(ids)] = 1
            feed = {"input_ids": input_ids, "attention_mask": mask}
            if "token_type_ids" in self._inputs:
                feed["token_type_ids"] = np.zeros_like(input_ids)
            (rows[chosen],) = self._session.run([GRAPH_OUTPUT], feed)
        return unit_rows(rows)


def open_onnx_encoder(folder: Path, threads: int = 1) -> OnnxEncoder:
    """The encoder in a folder that models/build.py wrote.

    threads: used inside one call. One is the fastest beside a busy client, two waiting on each other are slower.
    Raises EncoderError naming the file that is missing or of another shape.
    """
    # Its builds for some platforms queue usage events in a file in the user's cache as soon as they are imported.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime
    from tokenizers import Tokenizer

    graph = folder / "onnx" / "model.onnx"
    for file in (graph, folder / "tokenizer.json"):
        if not file.is_file():
            raise EncoderError(
                f"{file} is missing: build the folder with models/build.py, "
                f"or use the model through sentence-transformers as 'st:{folder}'"
            )

    # What goes wrong is raised; a second account of it on stderr would only land in the client's log.
    onnxruntime.set_default_logger_severity(4)
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_mem_pattern = False  # batches differ in shape: a plan kept for each is seldom used again
    try:
        session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # both libraries raise classes of their own, without a common root
        raise EncoderError(f"{folder} cannot be loaded: {error}. Rebuild it with models/build.py") from error

    inputs = {each.name for each in session.get_inputs()}
    outputs = {each.name: each.shape for each in session.get_outputs()}
    shape = outputs.get(GRAPH_OUTPUT, [])
    if (
        not {"input_ids", "attention_mask"} <= inputs <= GRAPH_INPUTS
        or len(shape) != 2
        or not isinstance(shape[1], int)
    ):
        raise EncoderError(
            f"{graph} maps {', '.join(sorted(inputs))} to {', '.join(outputs)}, not input_ids, attention_mask to "
            f"{GRAPH_OUTPUT} (texts, dim): rebuild it with models/build.py, "
            f"or use the model through sentence-transformers as 'st:{folder}'"
        )

    max_length = read_max_length(folder)
    tokenizer.enable_truncation(max_length)  # the file of many models says 128, and pads every text to it
    tokenizer.no_padding()
    prompts = read_json(folder / "config_sentence_transformers.json").get("prompts") or {}
    need_prompt = prompts.get("query") or ""
    card_prompt = prompts.get(card_prompt_name(prompts)) or ""
    files = [*sorted(graph.parent.glob("model.onnx*")), folder / "tokenizer.json"]
    return OnnxEncoder(
        name=folder.resolve().name,
        fingerprint=fingerprint_of("onnx", str(max_length), need_prompt, card_prompt, files=files),
        dim=shape[1],
        session=session,
        tokenizer=tokenizer,
        max_length=max_length,
        need_prompt=need_prompt,
        card_prompt=card_prompt,
        match_floor=read_match_floor(folder),
        unknown_token=getattr(tokenizer.model, "unk_token", None),
    )


def read_match_floor(folder: Path) -> float | None:
    """`match_floor` of the folder's match.json; None without one. Cosines of another model mean something else."""
    found = read_json(folder / "match.json").get("match_floor")
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Positions of `lengths` in groups, shortest first, each position once.

    A group padded to its longest member, which comes last, holds at most `budget`; a longer text is a group of its own.
    """
    group: list[int] = []
    for position in sorted(range(len(lengths)), key=lengths.__getitem__):
        if group and (len(group) + 1) * lengths[position] > budget:
            yield group
            group = []
        group.append(position)
    if group:
        yield group


def read_max_length(folder: Path) -> int:
    """Tokens a text is cut at, [CLS] and [SEP] included, where any sentence-transformers from 2 to 6 notes it.

    Raises EncoderError when it is noted nowhere.
    """
    found = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
    found = found or read_json(folder / "tokenizer_config.json").get("model_max_length")
    if not found:
        raise EncoderError(
            f"{folder} notes no length: give max_seq_length in sentence_bert_config.json, "
            "or model_max_length in tokenizer_config.json"
        )
    return int(min(found, read_json(folder / "config.json").get("max_position_embeddings", found)))


# --- Any other model --------------------------------------------------------------------------------------------------


class SentenceTransformerEncoder:
    """Any model sentence-transformers can load, with its own prompts. Safe to share by threads; they take turns."""

    match_floor: float | None = None

    def __init__(self, *, name: str, fingerprint: str, dim: int, model: Any) -> None:
        self.name = name
        self.fingerprint = fingerprint
        self.dim = dim
        self._model = model
        self._turn = threading.Lock()  # its tokenizer is changed by every call, and says "Already borrowed"

    def encode_needs(self, texts: Sequence[str]) -> Vectors:
        """(n, dim) float32 unit rows, with the model's query prompt."""
        return self._encode(self._model.encode_query, texts)

    def encode_cards(self, texts: Sequence[str]) -> Vectors:
        """(n, dim) float32 unit rows, with the model's document prompt."""
        # Named, since an empty "document" prompt that sentence-transformers adds itself would hide a model's "passage".
        name = card_prompt_name(self._model.prompts)
        return self._encode(self._model.encode_document, texts, **({"prompt_name": name} if name else {}))

    def unread(self, text: str) -> float:
        """The share of a text's tokens, 0 to 1, that stand for "not in the vocabulary"."""
        tokenizer = self._model.tokenizer
        with self._turn:
            ids = tokenizer(sanitised(text), add_special_tokens=False, truncation=True)["input_ids"]
        return share_of(ids, getattr(tokenizer, "unk_token_id", None))

    def _encode(self, encode: Any, texts: Sequence[str], **prompt: str) -> Vectors:
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        clean = [sanitised(text) for text in texts]
        with self._turn:
            rows = encode(clean, normalize_embeddings=True, show_progress_bar=False, **prompt)
        return unit_rows(np.asarray(rows, np.float32))


def open_sentence_transformer(
    name_or_path: str, *, device: str = "cpu", revision: str | None = None, threads: int = 1
) -> SentenceTransformerEncoder:
    """The model of a local folder or of a name on the Hugging Face hub, at `revision` when given.

    Code that comes with a model is never run. Raises EncoderError when sentence-transformers is not installed, or the
    model cannot be had.
    """
    # Its tokenizers would start a thread a core, which then wait on each other; a user's own setting stands.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import torch
        from sentence_transformers import SentenceTransformer

        logging: Any = import_module("transformers.utils.logging")
    except ImportError as error:
        raise EncoderError(
            f'model {name_or_path!r} needs sentence-transformers ({error}): pip install "sentence-transformers>=6,<7". '
            "On Linux that brings a CUDA build of torch (gigabytes): install its CPU build first, see pytorch.org. "
            "The default model needs neither"
        ) from error

    logging.disable_progress_bar()
    torch.set_num_threads(threads)
    folder = Path(name_or_path).expanduser()
    local = folder.is_dir()
    if not local:
        revision, cached_only = resolve_on_hub(name_or_path, revision)
    try:
        model: Any = SentenceTransformer(
            str(folder) if local else name_or_path,
            device=device,
            revision=revision,
            local_files_only=local or cached_only,
            trust_remote_code=False,
        )
    except Exception as error:  # the hub, its HTTP client, transformers and torch have no common root
        raise EncoderError(
            f"model {name_or_path!r} cannot be loaded ({type(error).__name__}: {first_line(error)}): "
            "it has to be one that sentence-transformers loads without code of the model's own"
        ) from error
    if device == "cpu":
        model.float()  # files in half precision would stay so, which CPUs compute slowly

    if local:
        files = [path for path in sorted(folder.rglob("*")) if path.is_file() and changes_vectors(path, folder)]
        fingerprint = fingerprint_of("st", files=files, root=folder)
    else:
        fingerprint = fingerprint_of("st", name_or_path, loaded_commit(model) or state_digest(model))
    return SentenceTransformerEncoder(
        name=folder.resolve().name if local else name_or_path,
        fingerprint=fingerprint,
        dim=int(model.get_embedding_dimension()),
        model=model,
    )


def changes_vectors(file: Path, folder: Path) -> bool:
    """Whether sentence-transformers reads `file`: not documents, not other runtimes' copies, not hidden folders."""
    parts = file.relative_to(folder).parts
    return parts[0] not in {"onnx", "openvino"} and file.suffix != ".md" and not any(p.startswith(".") for p in parts)


def resolve_on_hub(name: str, revision: str | None) -> tuple[str | None, bool]:
    """The commit `revision` of a hub model stands for now, and False; or `revision` itself, and True, when the hub
    cannot say but the model is in the local cache.

    Asked first, because loading by a wrong name or without a connection takes over a minute of retries to fail.
    Raises EncoderError when neither hub nor cache has the model.
    """
    from huggingface_hub import HfApi, try_to_load_from_cache

    try:
        return HfApi().model_info(name, revision=revision, timeout=10).sha, False
    except Exception as error:  # its own errors, its HTTP client's, and ValueError for what cannot be a name
        # Without modules.json a half-cached model would load as another one, with a pooling it was not trained for.
        with suppress(ValueError):
            if try_to_load_from_cache(name, "modules.json", revision=revision) is not None:
                return revision, True
        raise EncoderError(
            f"model {name!r} is neither a folder here nor to be had from the Hugging Face hub "
            f"({type(error).__name__}: {first_line(error)}): check the name and the connection, "
            "or give a local sentence-transformers folder, which needs no hub"
        ) from error


def loaded_commit(model: Any) -> str | None:
    """The hub commit the first module was loaded from; None when it keeps no record of it."""
    inner = getattr(model[0], "auto_model", None) or getattr(model[0], "model", None)
    commit = getattr(getattr(inner, "config", None), "_commit_hash", None)
    return commit if isinstance(commit, str) else None


def state_digest(model: Any) -> str:
    """Hex digest of a torch model's parameters, the same in every process."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.detach().cpu().float().contiguous().numpy().tobytes())
    return digest.hexdigest()


# --- Shared -----------------------------------------------------------------------------------------------------------


def fingerprint_of(*parts: str, files: Sequence[Path] = (), root: Path | None = None) -> str:
    """Hex digest of the formula's version, the parts, and each file's name (under `root`, when given) and bytes."""
    digest = hashlib.sha256(json.dumps([FORMULA, *parts]).encode())
    for file in files:
        name = file.relative_to(root).as_posix() if root else file.name
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        digest.update(json.dumps([name, content]).encode())
    return digest.hexdigest()[:32]


def card_prompt_name(prompts: Mapping[str, str]) -> str:
    """Which of a model's prompts goes before a card; "" when it has none."""
    return next((key for key in ("document", "passage", "corpus") if prompts.get(key)), "")


def share_of(ids: Sequence[int], unknown: int | None) -> float:
    """The share of `ids` that are `unknown`; 0 for no ids, or a vocabulary without an unknown."""
    return sum(id_ == unknown for id_ in ids) / len(ids) if ids and unknown is not None else 0.0


def sanitised(text: str) -> str:
    """`text` with lone surrogates as "?": no tokenizer takes them, and JSON can carry them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def read_json(file: Path) -> dict[str, Any]:
    """The object in `file`; {} when there is no such file."""
    found = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return found if isinstance(found, dict) else {}


def first_line(error: Exception) -> str:
    """The first line of an error's message, at most 300 characters."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else ""
