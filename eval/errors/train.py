"""Train what a failure text is like, for those that no wording decides: one weight for each word and class.

    python eval/errors/train.py [--check]

Reads `seen.jsonl` and `wordings.tsv`, never the unseen half, and writes `roster/errorlikeness.json`: logistic
regression over the words of a text and their first five letters, as `roster.errortexts` prepares them. `--check` writes
nothing and says how well it does on texts that it was not trained on (five folds), in all and where it is asked.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from measure import rows_of
from numpy.typing import NDArray

import roster.errortexts as errortexts
from roster.errorlikeness import features

STEPS, RATE, DECAY, RARE, SCALE = 300, 5.0, 1e-4, 2, 100
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


def main() -> None:
    """Train on everything, or check by folds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    rows = [*rows_of("seen"), *rows_of("wordings")]
    prepared = [errortexts.prepared(row["text"]) for row in rows]
    texts = [features(words) for words, _ in prepared]
    classes = sorted({row["class"] for row in rows})
    labels = np.array([classes.index(row["class"]) for row in rows])
    if check:
        folds, guessed = np.arange(len(rows)) % 5, np.zeros(len(rows), np.int64)
        for fold in range(5):
            kept, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
            vocabulary, weights, biases = trained([texts[n] for n in kept], labels[kept], len(classes))
            guessed[held] = (matrix([texts[n] for n in held], vocabulary) @ weights + biases).argmax(axis=1)
        asked = np.array([clue is None or clue.rule.endswith("-hint") for _, clue in prepared])
        print(f"right: {np.mean(guessed == labels):.3f} of {len(rows)}")
        print(f"right where no wording decides: {np.mean((guessed == labels)[asked]):.3f} of {asked.sum()}")
        return
    vocabulary, weights, biases = trained(texts, labels, len(classes))
    table = {
        "classes": classes,
        "biases": np.rint(biases * SCALE).astype(int).tolist(),
        "words": {word: np.rint(weights[n] * SCALE).astype(int).tolist() for word, n in vocabulary.items()},
    }
    lines = ",\n".join(f"{json.dumps(word, ensure_ascii=False)}:{json.dumps(each, separators=(',', ':'))}"
                       for word, each in table["words"].items())  # fmt: skip
    TARGET.write_text(
        f'{{"classes":{json.dumps(classes)},\n"biases":{json.dumps(table["biases"])},\n"scale":{SCALE},\n'
        f'"words":{{\n{lines}\n}}}}\n',
        encoding="utf-8",
    )
    print(f"{len(vocabulary)} words written to {TARGET}")


if __name__ == "__main__":
    main()
