"""Train what a failure text is like, for those that no wording decides: one weight for each word and class.

    python eval/errors/train.py [--check]

Reads `seen.jsonl`, `further.jsonl` and `wordings.tsv`, never the unseen half, and writes `roster/errorlikeness.json`:
logistic regression over the words of a text and their first five letters, as `roster.errortexts` prepares them.
`--check` writes nothing and says how well texts are read by a table trained without those of their source (five folds):
by likeness alone, and together with the wordings. The wordings themselves know both files.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measure import rows_of
from numpy.typing import NDArray

import roster.errortexts as errortexts
from roster.errorlikeness import features, likeness
from roster.outcomes import Outcome

STEPS, RATE, DECAY, RARE, SCALE, FOLDS = 300, 5.0, 1e-4, 2, 100, 5
CORPUS = ("seen", "further")
TARGET = Path(errortexts.__file__).with_name("errorlikeness.json")

Floats = NDArray[np.float32]


def matrix(texts: Sequence[frozenset[str]], vocabulary: dict[str, int]) -> Floats:
    """(texts, words): 1 over the root of how many known words a text has, where it has the word."""
    rows = np.zeros((len(texts), len(vocabulary)), np.float32)
    for row, words in zip(rows, texts, strict=True):
        known = [vocabulary[word] for word in words if word in vocabulary]
        row[known] = 1 / np.sqrt(max(1, len(known)))
    return rows


def shares(scores: Floats) -> Floats:
    """Each row as probabilities."""
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True), np.float32)


def trained(
    texts: Sequence[frozenset[str]], labels: NDArray[np.int64], classes: int
) -> tuple[dict[str, int], Floats, Floats]:
    """The vocabulary, (words, classes) weights and (classes,) biases. Full batches from zero: no chance in it."""
    counts = Counter(word for words in texts for word in words)
    vocabulary = {word: n for n, word in enumerate(sorted(word for word, count in counts.items() if count >= RARE))}
    rows, wanted = matrix(texts, vocabulary), np.eye(classes, dtype=np.float32)[labels]
    weights, biases = np.zeros((len(vocabulary), classes), np.float32), np.zeros(classes, np.float32)
    for _ in range(STEPS):
        slope = (shares(rows @ weights + biases) - wanted) / len(rows)
        weights -= RATE * (rows.T @ slope + DECAY * weights)
        biases -= RATE * slope.sum(axis=0)
    return vocabulary, weights, biases


def table_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The table that `roster.errorlikeness` reads, trained on these texts."""
    classes = sorted({row["class"] for row in rows})
    labels = np.array([classes.index(row["class"]) for row in rows])
    vocabulary, weights, biases = trained([features(row["words"]) for row in rows], labels, len(classes))
    return {
        "classes": classes,
        "biases": np.rint(biases * SCALE).astype(int).tolist(),
        "scale": SCALE,
        "words": {word: np.rint(weights[n] * SCALE).astype(int).tolist() for word, n in vocabulary.items()},
    }


def check(rows: Sequence[dict[str, Any]]) -> None:
    """Print how well texts are read by a table that no text of their source had a part in."""
    fold_of = [zlib.crc32(row["source"].encode()) % FOLDS if "source" in row else None for row in rows]
    found: Counter[tuple[str, str]] = Counter()
    for fold in range(FOLDS):
        table = table_of([row for row, its in zip(rows, fold_of, strict=True) if its != fold])
        for row in (row for row, its in zip(rows, fold_of, strict=True) if its == fold):
            like, share = likeness(row["words"], table)
            read = errortexts.decided(row["words"], row["clue"], row["weight"], like, share)
            found["texts", row["half"]] += 1
            found["like", row["half"]] += like == row["class"]
            found["read", row["half"]] += (read.outcome if read else Outcome.OTHER) == row["class"]
    for half in CORPUS:
        texts = found["texts", half]
        print(
            f"{half}: {texts} texts, likeness {found['like', half] / texts:.3f}, read {found['read', half] / texts:.3f}"
        )


def main() -> None:
    """Train on everything, or check by folds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    only_check = parser.parse_args().check
    rows = [{**row, "half": half} for half in (*CORPUS, "wordings") for row in rows_of(half)]
    for row in rows:
        row["words"], row["clue"], row["weight"] = errortexts.prepared(row["text"])
    if only_check:
        check(rows)
        return
    table = table_of(rows)
    lines = ",\n".join(f"{json.dumps(word, ensure_ascii=False)}:{json.dumps(each, separators=(',', ':'))}"
                       for word, each in table["words"].items())  # fmt: skip
    TARGET.write_text(
        f'{{"classes":{json.dumps(table["classes"])},\n"biases":{json.dumps(table["biases"])},\n"scale":{SCALE},\n'
        f'"words":{{\n{lines}\n}}}}\n',
        encoding="utf-8",
    )
    print(f"{len(table['words'])} words written to {TARGET}")


if __name__ == "__main__":
    main()
