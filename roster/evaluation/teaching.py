"""The system `learned`: a home that has seen every train need of a set served, and is then asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from roster.encoder import Encoder
from roster.errors import NeedSetError
from roster.evaluation.homes import Filled, open_filled, open_scratch
from roster.evaluation.needsets import Need, NeedSet, read_needset
from roster.evaluation.stage import Remembered, Stage
from roster.evaluation.streams import right_ones

__all__ = ["TEACHING", "open_taught", "teaching_needs"]

TEACHING = "train"
"""The split whose needs were served before."""


def teaching_needs(needset: NeedSet) -> Sequence[Need]:
    """The needs that `needset` is taught by. Raises NeedSetError when they are its own, or not there."""
    if needset.split == TEACHING:
        raise NeedSetError(
            f"{needset.folder}: learning is taught by the split {TEACHING!r}, so it cannot be asked about it: "
            "name another split"
        )
    return read_needset(needset.folder, TEACHING).needs


@contextmanager
def open_taught(
    needset: NeedSet,
    train: Sequence[Need],
    encoder: Encoder,
    cache: Path,
    k: int,
    on_card: Callable[[int, int], None],
    on_lesson: Callable[[int, int], None],
) -> Iterator[Filled]:
    """A scratch home of the set after a success of every card for each train need that it serves."""
    with open_filled(needset, encoder, cache, on_card) as kept:
        embedded, embed_s = kept.embedded, kept.embed_s
    with open_scratch(needset, Remembered(encoder), cache) as filled:
        stage = Stage(filled, train, k)
        filled.roster.learner = stage.taught(right_ones(train), on_lesson)
        yield replace(filled, embedded=embedded, embed_s=embed_s)
