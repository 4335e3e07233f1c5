"""The plots of a report, each a function of figures or per-need records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from roster.evaluation.markup import Element, el
from roster.evaluation.svg import Frame, legend, legend_height, marker, number, plot, ticks

__all__ = ["by_set", "differences", "ranks", "scatter", "scores", "series"]

WIDE, NARROW = 760.0, 470.0
_SIDE = 130.0
_ROW = 13.0


def series(place: int) -> str:
    """The class that colours the n-th system."""
    return f"s{place % 6}"


def _named(figures: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Every set's systems by set, the mean over sets last."""
    rows = [(name, found["systems"]) for name, found in figures["sets"].items()]
    return [*rows, ("mean of sets", figures["mean"])] if len(rows) > 1 else rows


def _whisker(place: int, x: tuple[float, float, float], y: float, told: str) -> Element:
    low, mean, high = x
    return el(
        "g",
        el("line", x1=low, x2=high, y1=y, y2=y, class_=f"whisker {series(place)}"),
        marker(place, mean, y, series(place), told),
    )


def _bands(frame: Frame, names: Sequence[str]) -> tuple[float, list[Element], list[tuple[float, str]]]:
    """One band a set: its height, the rules between bands, and the label at the middle of each."""
    band = (frame.height - frame.top - frame.bottom) / len(names)
    tops = [frame.top + band * row for row in range(len(names))]
    right = frame.width - frame.right
    rules = [el("line", x1=frame.left, x2=right, y1=top, y2=top, class_="rule") for top in tops[1:]]
    return band, rules, [(top + band / 2, _short(name)) for top, name in zip(tops, names, strict=True)]


def _rows(figures: Mapping[str, Any], names: Sequence[str]) -> tuple[Frame, Sequence[tuple[str, Any]]]:
    rows = _named(figures)
    top = 30 + legend_height(WIDE, names)
    band = _ROW * len(names) + 14
    return Frame(WIDE, top + band * len(rows) + 44, left=_SIDE, top=top, right=20), rows


def by_set(figures: Mapping[str, Any], measure: str) -> Element:
    """A measure's mean for every set and system, with its interval."""
    names = figures["systems"]
    title = f"{measure} by set"
    frame, rows = _rows(figures, names)
    found = [systems[name]["measures"][measure] for _, systems in rows for name in names]
    low = max(0.0, math.floor(min(each["low"] for each in found) * 10 - 0.2) / 10)
    x = frame.x(low, 1.0)
    band, marks, labels = _bands(frame, [set_name for set_name, _ in rows])
    for row, (set_name, systems) in enumerate(rows):
        top = frame.top + band * row
        for place, name in enumerate(names):
            cell = systems[name]["measures"][measure]
            told = f"{set_name}, {name}: {cell['mean']:.3f} [{cell['low']:.3f}, {cell['high']:.3f}]"
            y = top + 7 + _ROW * (place + 0.5)
            marks.append(_whisker(place, (x(cell["low"]), x(cell["mean"]), x(cell["high"])), y, told))
    return plot(
        frame,
        title,
        f"Mean {measure} of {', '.join(names)} on each need set, with 95 % intervals; the tables say the same.",
        legend(frame, names, [series(place) for place in range(len(names))], markers=True),
        frame.x_axis(
            [(x(at), number(at)) for at in ticks(low, 1.0, 8)], f"{measure}, mean and 95 % interval", grid=True
        ),
        frame.y_axis(labels, "", grid=False),
        *marks,
    )


def differences(figures: Mapping[str, Any], measure: str) -> Element:
    """What every other system gains or loses against the first, set by set, with paired intervals."""
    names, baseline = figures["systems"], figures["baseline"]
    others = names[1:]
    title = f"{measure}: difference from {_short(baseline, 30)}"
    frame, rows = _rows(figures, others)
    found = [systems[name]["measures"][measure]["difference"] for _, systems in rows for name in others]
    low = min(-0.02, *(each["low"] for each in found))
    high = max(0.02, *(each["high"] for each in found))
    pad = (high - low) * 0.04
    x = frame.x(low - pad, high + pad)
    band, marks, labels = _bands(frame, [set_name for set_name, _ in rows])
    for row, (set_name, systems) in enumerate(rows):
        top = frame.top + band * row
        for place, name in enumerate(others, 1):
            cell = systems[name]["measures"][measure]["difference"]
            told = f"{set_name}, {name}: {cell['mean']:+.3f} [{cell['low']:+.3f}, {cell['high']:+.3f}]"
            y = top + 7 + _ROW * (place - 0.5)
            marks.append(_whisker(place, (x(cell["low"]), x(cell["mean"]), x(cell["high"])), y, told))
    zero = el("line", x1=x(0), x2=x(0), y1=frame.top, y2=frame.height - frame.bottom, class_="zero")
    return plot(
        frame,
        title,
        f"Paired mean differences in {measure} from {baseline}, with 95 % intervals. Left of zero is worse.",
        legend(frame, others, [series(place) for place in range(1, len(names))], markers=True, first=1),
        frame.x_axis(
            [(x(at), number(at)) for at in ticks(low - pad, high + pad, 8)],
            "mean paired difference and 95 % interval (right of zero: better)",
            grid=True,
        ),
        frame.y_axis(labels, "", grid=False),
        zero,
        *marks,
    )


_BINS = ((1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 10), (11, 20), (21, 100))


def ranks(records: Mapping[str, Any], names: Sequence[str], set_name: str) -> Element:
    """Where the first card that serves a need is, as a share of needs, for every system."""
    title = f"Place of the first wanted card: {_short(set_name)}"
    frame = Frame(NARROW, 360, top=30 + legend_height(NARROW, names))
    labels = [f"{a}" if a == b else f"{a}–{b}" for a, b in _BINS] + ["none"]
    shares = []
    for name in names:
        counts = [0] * len(labels)
        for record in records.values():
            rank = record["systems"][name]["rank"]
            counts[next((i for i, (a, b) in enumerate(_BINS) if rank and a <= rank <= b), -1)] += 1
        shares.append([100 * count / len(records) for count in counts])
    top = max(10.0, max(map(max, shares)) * 1.05)
    x, y = frame.x(0, len(labels)), frame.y(0, top)
    width = (x(1) - x(0)) * 0.8 / len(names)
    bars = []
    for place, (name, share) in enumerate(zip(names, shares, strict=True)):
        for column, value in enumerate(share):
            if value:
                left = x(column + 0.1) + place * width
                told = f"{name}, place {labels[column]}: {value:.1f} % of needs"
                bars.append(
                    el("rect", el("title", told), x=left, y=y(value), width=width * 0.92, height=y(0) - y(value),
                       class_=series(place))
                )  # fmt: skip
    return plot(
        frame,
        title,
        f"Histogram over {len(records)} needs of the rank of the first relevant card.",
        frame.y_axis([(y(at), number(at)) for at in ticks(0, top)], "% of needs"),
        legend(frame, names, [series(place) for place in range(len(names))], markers=False),
        *bars,
        frame.x_axis([(x(column + 0.5), label) for column, label in enumerate(labels)], "place in the ranking"),
    )


def scatter(records: Mapping[str, Any], names: Sequence[str], measure: str, set_name: str) -> Element:
    """Two systems, need by need; needs at the same spot make one larger mark."""
    one, other = names[0], names[1]
    title = f"{measure} need by need: {_short(set_name)}"
    frame = Frame(NARROW, NARROW - 36, top=48)
    x, y = frame.x(-0.05, 1.05), frame.y(-0.05, 1.05)
    spots: Counter[tuple[float, float]] = Counter()
    for record in records.values():
        systems = record["systems"]
        spots[round(systems[one][measure], 2), round(systems[other][measure], 2)] += 1
    most = max(spots.values())
    marks = []
    for (a, b), count in sorted(spots.items(), key=lambda item: -item[1]):
        radius = 3 + 17 * math.sqrt(count / most) if most > 1 else 4.0
        side = "even" if abs(a - b) < 0.005 else series(0) if a > b else series(1)
        told = f"{count} need{'s' if count > 1 else ''}: {one} {a:.2f}, {other} {b:.2f}"
        marks.append(el("circle", el("title", told), cx=x(a), cy=y(b), r=radius, class_=f"spot {side}"))
    first = sum(count for (a, b), count in spots.items() if a - b >= 0.005)
    second = sum(count for (a, b), count in spots.items() if b - a >= 0.005)
    same = len(records) - first - second
    keys = [f"{first} better by {_short(one)}", f"{second} by {_short(other)}", f"{same} the same"]
    at = [(value, number(value)) for value in ticks(0, 1)]
    return plot(
        frame,
        title,
        f"{first} needs score higher with {one}, {second} with {other}, {same} the same. "
        "The area of a mark is the number of needs there.",
        frame.y_axis([(y(v), label) for v, label in at], _short(other, 40)),
        frame.x_axis(
            [(x(v), label) for v, label in at], f"{_short(one, 40)}   (area of a mark: number of needs)", grid=True
        ),
        el("line", x1=x(0), y1=y(0), x2=x(1), y2=y(1), class_="zero"),
        *marks,
        legend(frame, keys, [series(0), series(1), "even"], markers=False),
    )


def scores(results: Mapping[str, Mapping[str, Any]], name: str) -> Element | None:
    """Scores of the first card, where it is wanted and where it is not; every set counts the same. None without any."""
    firsts: list[tuple[float, bool, float]] = []
    for records in results.values():
        tops = [(r["systems"][name]["top"][0], r["wanted"]) for r in records.values() if r["systems"][name]["top"]]
        firsts += [(score, card in wanted, 100 / len(tops) / len(results)) for (card, score), wanted in tops]
    if not firsts:
        return None
    values = sorted(score for score, _, _ in firsts)
    low, high = values[0], values[min(len(values) - 1, int(len(values) * 0.995))]
    if high <= low:
        low, high = low - 0.5, high + 0.5
    bins = 32
    shares = {True: [0.0] * bins, False: [0.0] * bins}
    for score, right, weight in firsts:
        shares[right][max(0, min(bins - 1, int((score - low) / (high - low) * bins)))] += weight
    top = max(max(shares[True]), max(shares[False])) * 1.08
    keys = ["wanted card first", "another card first"]
    frame = Frame(NARROW, 320, top=30 + legend_height(NARROW, keys))
    x, y = frame.x(low, high), frame.y(-top, top)
    bars = []
    for right, class_ in ((True, "right"), (False, "wrong")):
        for place, share in enumerate(shares[right]):
            if share:
                left, wide = x(low + (high - low) * place / bins), (x(high) - x(low)) / bins
                ends = sorted((y(0), y(share if right else -share)))
                bars.append(el("rect", x=left, y=ends[0], width=wide * 0.92, height=ends[1] - ends[0], class_=class_))
    marks = ticks(0, top, 3)
    at = [*((y(-v), number(v)) for v in marks[:0:-1]), *((y(v), number(v)) for v in marks)]
    return plot(
        frame,
        f"Score of the first card: {_short(name, 36)}",
        "Two histograms over the score of the first card: upwards where it is wanted, downwards where it is not.",
        frame.y_axis(at, "% of needs"),
        legend(frame, keys, ["right", "wrong"], markers=False),
        *bars,
        frame.x_axis([(x(v), number(v)) for v in ticks(low, high, 6)], "score (the top 0.5 % are in the last bar)"),
        el("line", x1=frame.left, x2=frame.width - frame.right, y1=y(0), y2=y(0), class_="axis"),
    )


def _short(name: str, limit: int = 20) -> str:
    return name if len(name) <= limit else f"…{name[1 - limit :]}"
