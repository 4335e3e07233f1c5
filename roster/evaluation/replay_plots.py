"""The plots of a replay's report: curves with intervals, bars of shares, and the dots that an evaluation has too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roster.evaluation import plots
from roster.evaluation.markup import Element, el
from roster.evaluation.svg import Frame, Scale, legend, legend_height, marker, number, plot, ticks

__all__ = ["bars", "curve", "harm", "noise"]

TAUGHT = ("learned", "single centroid")
_WIDTH = 360.0


def as_evaluation(sets: Mapping[str, Any], mean: Mapping[str, Any] | None) -> dict[str, Any]:
    """Set → system → measure → cell, in the shape that the plots of an evaluation read."""
    names = list(next(iter(sets.values())))
    return {
        "systems": names,
        "baseline": names[0],
        "sets": {
            set_name: {"systems": {name: {"measures": cells} for name, cells in systems.items()}}
            for set_name, systems in sets.items()
        },
        "mean": {name: {"measures": cells} for name, cells in (mean or next(iter(sets.values()))).items()},
    }


def harm(figures: Mapping[str, Any]) -> list[Element]:
    """What every set has after all outcomes, and how far that is from no outcome."""
    sets = {name: found["harm"]["systems"] for name, found in figures["sets"].items()}
    shaped, measure = as_evaluation(sets, figures["mean"]), f"ndcg@{figures['k']}"
    return [plots.differences(shaped, measure), plots.by_set(shaped, measure)]


def noise(figures: Mapping[str, Any]) -> Element:
    """How far every set is from no outcome as more of the outcomes are wrong."""
    sets = {}
    for name, found in figures["sets"].items():
        cells: dict[str, Any] = {"base": found["noise"]["base"]}
        for each in found["noise"]["shares"]:
            cells |= {f"{system}, {each['share']:.0%} wrong": each["systems"][system] for system in TAUGHT}
        sets[name] = dict(sorted(cells.items(), key=lambda item: (item[0] != "base", item[0].startswith("single"))))
    measure = f"ndcg@{figures['k']}"
    mean = {
        system: {measure: _mean([cells[system][measure] for cells in sets.values()])}
        for system in next(iter(sets.values()))
    }
    return plots.differences(as_evaluation(sets, mean), measure)


def _mean(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of cells; its interval is the mean of theirs, wider than that of the mean."""
    found: dict[str, Any] = {key: sum(cell[key] for cell in cells) / len(cells) for key in ("mean", "low", "high")}
    if "difference" in cells[0]:
        found["difference"] = _mean([cell["difference"] for cell in cells])
    return found


def curve(found: Mapping[str, Any], measure: str, set_name: str) -> Element:
    """A measure by outcomes a card, with intervals, beside the published method and no learning."""
    steps, base = found["steps"], found["base"][measure]["mean"]
    names = ["learned", "single centroid", "no outcome"]
    classes = [plots.series(place) for place in (0, 1)] + ["even"]
    frame = Frame(_WIDTH, 300, top=30 + legend_height(_WIDTH, names))
    cells = [step["systems"][name][measure] for step in steps for name in TAUGHT]
    low, high = min(base, *(cell["low"] for cell in cells)), max(base, *(cell["high"] for cell in cells))
    pad = max(0.01, (high - low) * 0.06)
    y, x = frame.y(low - pad, high + pad), frame.x(-0.4, len(steps) - 0.6)
    marks = [el("line", x1=x(-0.4), x2=x(len(steps) - 0.6), y1=y(base), y2=y(base), class_="zero")]
    for place, name in enumerate(TAUGHT):
        shift = 0.08 * place
        at = [(x(column + shift), step["systems"][name][measure]) for column, step in enumerate(steps)]
        way = " ".join(f"{left:.1f},{y(cell['mean']):.1f}" for left, cell in at)
        marks.append(el("polyline", points=way, class_=f"line {plots.series(place)}"))
        for (left, cell), step in zip(at, steps, strict=True):
            told = f"{name}, {_count(step)}: {cell['mean']:.3f} [{cell['low']:.3f}, {cell['high']:.3f}]"
            low_y, high_y = y(cell["low"]), y(cell["high"])
            marks.append(el("line", x1=left, x2=left, y1=low_y, y2=high_y, class_=f"whisker {plots.series(place)}"))
            marks.append(marker(place, left, y(cell["mean"]), plots.series(place), told))
    return plot(
        frame,
        set_name,
        f"{measure} on {set_name} by outcomes a card, with 95 % intervals; dashed: no outcome, {base:.3f}.",
        frame.y_axis([(y(value), number(value)) for value in ticks(low - pad, high + pad)], measure),
        legend(frame, names, classes, markers=False),
        *marks,
        frame.x_axis([(x(at), _count(step)) for at, step in enumerate(steps)], "outcomes a card"),
    )


def _count(step: Mapping[str, Any]) -> str:
    return "all" if step["per_card"] is None else str(step["per_card"])


def bars(
    title: str,
    told: str,
    groups: Sequence[str],
    names: Sequence[str],
    values: Sequence[Sequence[float | None]],
    by: str,
) -> Element:
    """Shares as bars, group by group. values: by group, then by name; None: nothing to show."""
    frame = Frame(plots.NARROW, 300, top=30 + legend_height(plots.NARROW, names))
    top = max(0.1, max((value for row in values for value in row if value is not None), default=0.1)) * 105
    x, y = frame.x(0, len(groups)), frame.y(0, top)
    width = (x(1) - x(0)) * 0.8 / len(names)
    marks: list[Element] = []
    for column, (group, row) in enumerate(zip(groups, values, strict=True)):
        for place, (name, value) in enumerate(zip(names, row, strict=True)):
            if value is not None:
                marks.append(_bar(x(column + 0.1) + place * width, width * 0.92, 100 * value, y, place,
                                  f"{name}, {group}: {value:.1%}"))  # fmt: skip
    return plot(
        frame,
        title,
        told,
        frame.y_axis([(y(at), number(at)) for at in ticks(0, top)], "% of needs"),
        legend(frame, names, [plots.series(place) for place in range(len(names))], markers=False),
        *marks,
        frame.x_axis([(x(at + 0.5), group) for at, group in enumerate(groups)], by),
    )


def _bar(left: float, width: float, value: float, y: Scale, place: int, told: str) -> Element:
    # A share of nothing still shows that it was measured.
    height = max(1.0, y(0) - y(value))
    return el(
        "rect", el("title", told), x=left, y=y(0) - height, width=width, height=height, class_=plots.series(place)
    )
