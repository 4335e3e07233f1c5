"""Taking a change of ours back out of a text that somebody else has changed since, by lines. Pure."""

from __future__ import annotations

from difflib import SequenceMatcher

__all__ = ["taken_back"]

_TOO_FAR = 1_000_000
"""Pairs of lines to compare, above which a text was written anew: comparing takes long and finds nothing."""

Hunk = tuple[int, int, int, int]


def taken_back(now: str, after: str, before: str) -> str | None:
    """`now` with our change from `before` to `after` reversed; None where the lines we wrote were changed since.

    Everything that differs between `after` and `now` stays as it is now.
    """
    ours, theirs, old = (text.splitlines(keepends=True) for text in (after, now, before))
    if _apart(ours, theirs) > _TOO_FAR:
        return None
    blocks = _equal(ours, theirs)
    for start, end, old_start, old_end in reversed(_changed(ours, old)):
        block = next(((a, b, size) for a, b, size in blocks if a <= start and end <= a + size), None)
        if block is None:
            return None
        at = block[1] + start - block[0]
        theirs[at : at + end - start] = old[old_start:old_end]
    return "".join(theirs)


def _ends(a: list[str], b: list[str]) -> tuple[int, int]:
    """How many lines two texts share at their beginning, and at their end besides: most of both, as a rule."""
    shortest = min(len(a), len(b))
    head = next((i for i in range(shortest) if a[i] != b[i]), shortest)
    tail = next((i for i in range(shortest - head) if a[-1 - i] != b[-1 - i]), shortest - head)
    return head, tail


def _apart(a: list[str], b: list[str]) -> int:
    head, tail = _ends(a, b)
    return (len(a) - head - tail) * (len(b) - head - tail)


def _middle(a: list[str], b: list[str]) -> tuple[SequenceMatcher[str], int, int]:
    head, tail = _ends(a, b)
    return SequenceMatcher(None, a[head : len(a) - tail], b[head : len(b) - tail], autojunk=False), head, tail


def _changed(a: list[str], b: list[str]) -> list[Hunk]:
    """The ranges of lines of `a` that are others in `b`, with those."""
    matcher, head, _ = _middle(a, b)
    return [
        (i1 + head, i2 + head, j1 + head, j2 + head) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"
    ]


def _equal(a: list[str], b: list[str]) -> list[tuple[int, int, int]]:
    """The runs of lines that `a` and `b` share: where in `a`, where in `b`, how many; those that touch are one."""
    matcher, head, tail = _middle(a, b)
    runs = [(0, 0, head), *((i + head, j + head, size) for i, j, size in matcher.get_matching_blocks() if size)]
    joined: list[tuple[int, int, int]] = []
    for i, j, size in [*runs, (len(a) - tail, len(b) - tail, tail)]:
        if joined and joined[-1][0] + joined[-1][2] == i and joined[-1][1] + joined[-1][2] == j:
            joined[-1] = (joined[-1][0], joined[-1][1], joined[-1][2] + size)
        else:
            joined.append((i, j, size))
    return joined
