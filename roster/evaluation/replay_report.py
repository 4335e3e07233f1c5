"""One self-contained page from a replay: what learning does to every set, in plots and tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from roster.evaluation import replay_plots
from roster.evaluation.markup import Element, el, page
from roster.evaluation.report import page_style, table

__all__ = ["harm_rows", "replay_page", "rows_of", "write_replay", "write_replay_report"]

SCENARIO_TITLES = {
    "failures": "Failures only",
    "modes": "Two modes of one card",
    "duplicates": "An unreliable duplicate",
    "boilerplate": "Boilerplate needs",
    "drift": "Drift in mid-stream",
    "poison": "Poisoning and recovery",
}


def write_replay(folder: Path, figures: Mapping[str, Any]) -> Path:
    """Write `replay.json` into a folder that is there; its path."""
    path = folder / "replay.json"
    path.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    return path


def write_replay_report(folder: Path, figures: Mapping[str, Any]) -> Path:
    """Write `index.html` and `replay.json` into a folder that is there; the path of the page."""
    write_replay(folder, figures)
    path = folder / "index.html"
    path.write_text(replay_page(figures), "utf-8")
    return path


_NOTE = "Second number: paired difference from no outcome; * where its 95 % interval is clear of 0."

# --------------------------------------------------------------------------------------------------- rows


def cell_text(cell: Mapping[str, Any]) -> str:
    """A mean and, where it has one, its difference from no outcome; a star where the interval is clear of 0."""
    apart = cell.get("difference")
    if apart is None:
        return f"{cell['mean']:.3f}"
    clear = "*" if apart["low"] > 0 or apart["high"] < 0 else ""
    return f"{cell['mean']:.3f} {apart['mean']:+.3f}{clear}"


def harm_rows(figures: Mapping[str, Any]) -> list[list[str]]:
    """Set, needs, outcomes, and what every system has there; the mean over sets last."""
    measure = f"ndcg@{figures['k']}"
    rows = []
    for name, found in figures["sets"].items():
        harm = found["harm"]
        cells = [cell_text(cells[measure]) for cells in harm["systems"].values()]
        rows.append([name, f"{harm['needs']:,}", f"{harm['outcomes']:,}", *cells])
    rows.append(["mean of sets", "", "", *(cell_text(cells[measure]) for cells in figures["mean"].values())])
    return rows


def rows_of(figures: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Set, scenario, what, and its figure, of every scenario but `harm`."""
    measure = f"ndcg@{figures['k']}"
    out = []
    for name, found in figures["sets"].items():
        for scenario in figures["scenarios"]:
            if scenario in _ROWS:
                out += [(name, scenario, what, shown) for what, shown in _ROWS[scenario](found[scenario], measure)]
    return out


def _curve(found: Mapping[str, Any], measure: str) -> Iterator[tuple[str, str]]:
    yield "no outcome", cell_text(found["base"][measure])
    for step in found["steps"]:
        label = "all" if step["per_card"] is None else f"{step['per_card']} a card"
        for name, cells in step["systems"].items():
            yield f"{name}, {label} ({step['outcomes']:,})", cell_text(cells[measure])


def _noise(found: Mapping[str, Any], measure: str) -> Iterator[tuple[str, str]]:
    for each in found["shares"]:
        for name, cells in each["systems"].items():
            yield f"{name}, {each['share']:.0%} wrong", cell_text(cells[measure])


def _systems(found: Mapping[str, Any], measure: str) -> Iterator[tuple[str, str]]:
    for name, cells in found["systems"].items():
        yield f"{name} ({found['outcomes']:,} outcomes)", cell_text(cells[measure])


def _poison(found: Mapping[str, Any], _: str) -> Iterator[tuple[str, str]]:
    for who, counts in found["attackers"].items():
        for each in counts["wrong"]:
            yield (
                f"{who}, {each['wrong']} wrong",
                (
                    f"displaced {percent(each['displaced_share'])} of {each['needs']}, "
                    f"out of the first five {percent(each['left_share'])}"
                ),
            )
        if (after := counts["recovered"]) is not None:
            yield (
                f"{who}, {after['wrong']} wrong, then {after['right']} right",
                (f"displaced {percent(after['displaced_share'])}, restored {percent(after['restored_share'])}"),
            )


def _modes(found: Mapping[str, Any], measure: str) -> Iterator[tuple[str, str]]:
    for part in ("own", "other"):
        for name, means in found.get(part, {}).get("systems", {}).items():
            yield f"{part} needs ({found[part]['needs']}), {name}", f"{means[measure]:.3f}, hit@1 {means['hit@1']:.3f}"


def _duplicates(found: Mapping[str, Any], _: str) -> Iterator[tuple[str, str]]:
    yield f"reliable above in {found['runs']} runs", percent(found["runs_won_share"])
    yield f"reliable above for {found['needs']} needs", percent(found["needs_won_share"])
    failing = found["failing"]
    yield (
        f"{failing['failed']} of {failing['failed']} failed, above one that works",
        (f"{failing['above']} of {failing['needs']} needs"),
    )


def _drift(found: Mapping[str, Any], measure: str) -> Iterator[tuple[str, str]]:
    for part in ("changed", "kept"):
        each = found[part]
        yield f"{part}: cards with evidence afterwards", f"{each['evidence']} of {each['cards']}"
        for when in ("before", "after"):
            if when in each:
                yield f"{part}, {when} ({each['needs']} needs)", cell_text(each[when]["learned"][measure])


_ROWS = {
    "curve": _curve,
    "noise": _noise,
    "failures": _systems,
    "poison": _poison,
    "modes": _modes,
    "duplicates": _duplicates,
    "boilerplate": _systems,
    "drift": _drift,
}


def percent(share: float | None) -> str:
    """A share for reading; a dash where there was nothing to have a share of."""
    return "–" if share is None else f"{share:.1%}"


# --------------------------------------------------------------------------------------------------- page


def replay_page(figures: Mapping[str, Any]) -> str:
    """The page, as text."""
    sets = figures["sets"]
    outcomes = "" if figures["outcomes"] is None else f", at most {figures['outcomes']:,} of them a set"
    head = el(
        "header",
        el("h1", "What outcomes teach"),
        el(
            "p",
            f"{len(sets)} need sets. Outcomes of train needs{outcomes} are written through the real history and "
            f"learner; then test needs are drafted. The first {figures['k']} cards count; encoder "
            f"{figures['encoder']['name']}. ",
            el("span", f"{figures['made'][:16].replace('T', ' ')} UTC", class_="nowrap"),
            class_="lead",
        ),
    )
    sections = [_SECTIONS[name](figures) for name in figures["scenarios"]]
    return page("What outcomes teach", page_style(), head, el("main", *sections), _made_by(figures))


def _harm(figures: Mapping[str, Any]) -> Element:
    names = list(figures["mean"])
    rows = [_row(row[:3], 1, row[3:]) for row in harm_rows(figures)]
    weights = [
        [name, system, *_weights(found)]
        for name, each in figures["sets"].items()
        for system, found in each["harm"]["weights"].items()
    ]
    return el(
        "section",
        el("h2", "No harm"),
        el("p", "Every test need after all outcomes of the train needs, and after as many with three in ten wrong."),
        table(f"ndcg@{figures['k']}", ["set", "needs", "outcomes", *names], rows, _NOTE),
        *replay_plots.harm(figures),
        table(
            "What evidence was found to be worth",
            ["set", "outcomes", "nearness", "share", "slow", "adapter", "gain at home"],
            [_row(row, 2) for row in weights],
            "Weights that the home's own past needs chose, each judged by all others; the gain is theirs.",
            left=2,
        ),
    )


def _weights(found: Mapping[str, Any]) -> list[str]:
    slow = "yes" if found["slow"] else "no"
    return [f"{found['near']:g}", f"{found['share']:g}", slow, f"{found['adapter']:g}", f"{found['gain']:+.3f}"]


def _curves(figures: Mapping[str, Any]) -> Element:
    measure = f"ndcg@{figures['k']}"
    drawn = [replay_plots.curve(found["curve"], measure, name) for name, found in figures["sets"].items()]
    return el(
        "section",
        el("h2", "Learning curves"),
        el("p", "Outcomes of train needs in an order by chance, so many of each card and no more."),
        el("div", *drawn, class_="plots"),
        _curve_table(figures, measure),
    )


def _curve_table(figures: Mapping[str, Any], measure: str) -> Element:
    rows, counts = [], ["all"]
    for name, found in figures["sets"].items():
        steps = found["curve"]["steps"]
        counts = ["all" if step["per_card"] is None else str(step["per_card"]) for step in steps]
        base = cell_text(found["curve"]["base"][measure])
        for system in steps[0]["systems"]:
            rows.append(_row([name, system], 2, [base, *(cell_text(s["systems"][system][measure]) for s in steps)]))
    heads = ["set", "system", "no outcome", *counts]
    return table(f"{measure} by outcomes a card", heads, rows, _NOTE, left=2)


def _noisy(figures: Mapping[str, Any]) -> Element:
    return el(
        "section",
        el("h2", "Label noise"),
        el("p", "A share of the successes is told of another of the need's first ten cards."),
        replay_plots.noise(figures),
        el("p", "The interval of the mean is the mean of the sets' intervals.") if len(figures["sets"]) > 1 else None,
    )


def _poisoned(figures: Mapping[str, Any]) -> Element:
    pooled = figures["pooled"]["poison"]
    drawn = []
    groups, values, left = [], [], []
    names = list(pooled)
    for place, first in enumerate(pooled[names[0]]["wrong"] if names else []):
        rows = [pooled[who]["wrong"][place] for who in names]
        groups.append(f"{first['wrong']} wrong")
        values.append([row["displaced_share"] for row in rows])
        left.append([row["left_share"] for row in rows])
    recovered = [pooled[who]["recovered"] for who in names]
    if groups and all(recovered):
        groups.append(f"{recovered[0]['wrong']} wrong, {recovered[0]['right']} right")
        values.append([row["displaced_share"] for row in recovered])
        left.append([row["left_share"] for row in recovered])
    if groups:
        told = "Share of the needs of a card, over all sets"
        by = "successes told of another card's needs"
        drawn = [
            replay_plots.bars("The wrong card stands above now", f"{told}, where a wrong one passed it.", groups, names,
                              values, by),
            replay_plots.bars("The right card left the draft", f"{told}, where it left the first cards.", groups, names,
                              left, by),
        ]  # fmt: skip
    return el(
        "section",
        el("h2", SCENARIO_TITLES["poison"]),
        el(
            "p",
            "Successes on one card's needs are told of another: of one of the first five for these needs (near), or of "
            "any other (far). Nothing but what the cards say of themselves stands against it.",
        ),
        el("div", *drawn, class_="plots"),
        _scenario_table(figures, "poison", "Set by set"),
    )


def _listed(scenario: str, told: str) -> Any:
    def section(figures: Mapping[str, Any]) -> Element:
        title = SCENARIO_TITLES[scenario]
        return el("section", el("h2", title), el("p", told), _scenario_table(figures, scenario, title))

    return section


_SECTIONS = {
    "harm": _harm,
    "curve": _curves,
    "noise": _noisy,
    "failures": _listed("failures", "What came first for a train need and was wrong fails; nothing ever succeeds."),
    "poison": _poisoned,
    "modes": _listed("modes", "One card serves the needs of two cards. nDCG of that card for its own needs and for "
                              "the other's, the mean over pairs of cards."),
    "duplicates": _listed("duplicates", "Two equal cards on two servers, ten calls each: the one that comes first "
                                        "works six times in ten, the other 95 in a hundred."),
    "boilerplate": _listed("boilerplate", "The same sentence stands in front of every need, taught and asked."),
    "drift": _listed("drift", "Half of the cards that outcomes tell of change their description. Their evidence is "
                              "gone with it; the others keep theirs."),
}  # fmt: skip


def _scenario_table(figures: Mapping[str, Any], scenario: str, caption: str) -> Element:
    rows = [(name, what, shown) for name, of, what, shown in rows_of(figures) if of == scenario]
    if not rows:
        return el("p", "No set has needs enough for it.")
    return table(caption, ["set", "what", "figure"], [_row(row, 2) for row in rows], _NOTE, left=2)


def _row(cells: Sequence[str], left: int = 1, measured: Sequence[str] = ()) -> Element:
    """A row whose first cells name it. measured: cells of `cell_text`, their differences on a line of their own."""
    return el(
        "tr",
        *(el("th", cell, scope="row") for cell in cells[:left]),
        *(el("td", cell, class_="n") for cell in cells[left:]),
        *(_measured(*cell.partition(" ")[::2]) for cell in measured),
    )


def _measured(mean: str, difference: str) -> Element:
    clear = "even" if not difference.endswith("*") else "better" if difference.startswith("+") else "worse"
    below = el("div", difference.replace("-", "−"), class_=f"difference {clear}") if difference else None
    return el("td", mean, below, class_="n")


def _made_by(figures: Mapping[str, Any]) -> Element:
    published = figures["single_centroid"]
    rows = [
        ("commit", figures["commit"] or "not in a checkout"),
        ("chance", f"seed {figures['seed']}; {figures['resamples']:,} resamples of the needs within each set"),
        ("test needs", "all" if figures["limit"] is None else f"at most {figures['limit']:,} a set, all for no harm"),
        (
            "single centroid",
            f"{published['rounds']} rounds of card + {published['alpha']} × mean need served − {published['beta']} × "
            f"mean need lost, from {published['positives']} needs served",
        ),
        ("encoder", f"{figures['encoder']['name']}, fingerprint {figures['encoder']['fingerprint']}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in figures["versions"].items())),
    ]
    parts = []
    for key, value in rows:
        parts += [el("dt", key), el("dd", value)]
    return el("footer", el("h2", "How this was made"), el("dl", *parts))
