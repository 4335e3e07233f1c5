"""One self-contained page from an evaluation: tables, plots, and the needs that went worst. No scripts, no network."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from roster.evaluation import plots
from roster.evaluation.comparison import Evaluation
from roster.evaluation.markup import Element, el, page

__all__ = ["page_style", "report_page", "table", "worst_needs", "write_report", "write_results"]

WORST = 12
_NEED_SHOWN = 400

_WHAT = {
    "ndcg": "discounted gain of the first k cards by their grades (linear gain, log2 discount), 1 is the best order",
    "recall": "share of the wanted cards among the first k",
    "hit": "at least one of the first k cards is a wanted one; for hit@1 the very first",
    "mrr": "one over the place of the first wanted card",
    "all": "every wanted card is among the first k (of more than k, any k)",
}


def write_report(folder: Path, evaluation: Evaluation) -> Path:
    """Write `index.html` and `results.json` into a folder that is there; the path of the page."""
    write_results(folder, evaluation)
    path = folder / "index.html"
    path.write_text(report_page(evaluation), "utf-8")
    return path


def write_results(folder: Path, evaluation: Evaluation) -> Path:
    """Write `results.json`: the figures and every need's results."""
    path = folder / "results.json"
    path.write_text(json.dumps(evaluation.document(), separators=(",", ":")) + "\n", "utf-8")
    return path


def worst_needs(records: Mapping[str, Any], name: str, measure: str, limit: int = WORST) -> list[tuple[str, float]]:
    """Need ids with their loss (1 - measure) under a system, largest first.

    Of equal losses the one whose first wanted card came later, then by id. A need without loss is never among them.
    """

    def order(item: tuple[str, Any]) -> tuple[float, float, str]:
        found = item[1]["systems"][name]
        return (found[measure], -(found["rank"] or float("inf")), item[0])

    losses = [(id_, 1 - record["systems"][name][measure]) for id_, record in sorted(records.items(), key=order)]
    return [(id_, loss) for id_, loss in losses if loss > 1e-9][:limit]


def report_page(evaluation: Evaluation) -> str:
    """The page, as text."""
    figures, results = evaluation.figures, evaluation.records
    main_measure = figures["measures"][0]
    names = figures["systems"]
    sets = figures["sets"]
    needs = sum(found["needs"] for found in sets.values())
    cards = sum(found["cards"] for found in sets.values())
    title = f"Ranking quality: {_listing(names)}"
    head = el(
        "header",
        el("h1", title),
        el(
            "p",
            f"{_count(len(sets), 'need set')}, {_count(cards, 'card')}, {_count(needs, 'need')} of the split "
            f"“{figures['split']}”; the first {figures['k']} cards count. ",
            el("span", f"{figures['made'][:16].replace('T', ' ')} UTC", class_="nowrap"),
            class_="lead",
        ),
        el("nav", "Sets: ", *_between(", ", [el("a", name, href=f"#{_anchor(sets, name)}") for name in sets])),
    )
    overview = el(
        "section",
        el("h2", "All sets" if len(sets) > 1 else "Overview"),
        _measure_table(figures, figures["mean"], "Mean over the sets, each set counting the same"),
        _explained(figures),
        plots.by_set(figures, main_measure),
        plots.differences(figures, main_measure) if len(names) > 1 else None,
        el("h3", "Is the first card right?"),
        el(
            "p",
            "Where the two sides hardly overlap, a cut-off on the score would keep wrong cards out of drafts. "
            "Each set counts the same.",
        ),
        el("div", *filter(None, (plots.scores(results, name) for name in names)), class_="plots"),
        _cost_table(figures),
    )
    each = [_set_section(figures, results[name], name) for name in sets]
    return page(title, page_style(), head, el("main", overview, *each), _made_by(figures))


# ------------------------------------------------------------------------------------------------- tables


def _measure_table(figures: Mapping[str, Any], systems: Mapping[str, Any], caption: str) -> Element:
    measures, baseline = figures["measures"], figures["baseline"]
    rows = []
    for place, name in enumerate(figures["systems"]):
        cells = []
        for measure in measures:
            found = systems[name]["measures"][measure]
            cells.append(
                el(
                    "td",
                    el("b", f"{found['mean']:.3f}"),
                    el("small", f" {found['low']:.3f}–{found['high']:.3f}"),
                    _difference(found.get("difference")),
                    class_="n",
                )
            )
        rows.append(el("tr", el("th", _key(place), name, scope="row"), *cells))
    note = "The small numbers are 95 % intervals of the paired bootstrap"
    note += f"; the second line is the difference from {baseline}." if len(rows) > 1 else "."
    return table(caption, ["system", *measures], rows, note)


def _difference(found: Mapping[str, float] | None) -> Element | None:
    if found is None:
        return None
    clear = "better" if found["low"] > 0 else "worse" if found["high"] < 0 else "even"
    sign = {"better": "▲ ", "worse": "▼ ", "even": ""}[clear]
    shown = f"{sign}{_signed(found['mean'])} [{_signed(found['low'])}, {_signed(found['high'])}]"
    return el("div", shown, class_=f"difference {clear}")


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _cost_table(figures: Mapping[str, Any]) -> Element:
    rows = []
    for name, found in figures["sets"].items():
        for place, system in enumerate(figures["systems"]):
            cost = found["systems"][system]
            ms = cost["draft_ms"]
            cells = [
                f"{cost['tokens']['mean']:,.0f}",
                f"{cost['tokens']['p95']:,.0f}",
                f"{cost['drafted']['mean']:.2f}",
                f"{cost['drafted']['fewer_than_k']:,}",
                f"{cost['drafted']['unmet_share']:.1%}",
                f"{ms['p50']:.1f}" if ms else "–",
                f"{ms['p95']:.1f}" if ms else "–",
            ]
            first = el("th", name, scope="rowgroup", rowspan=len(figures["systems"])) if not place else None
            rows.append(
                el("tr", first, el("th", _key(place), system, scope="row"), *(el("td", c, class_="n") for c in cells),
                   class_="first" if not place else None)
            )  # fmt: skip
    heads = [
        "set",
        "system",
        "tokens, mean",
        "p95",
        "cards shown",
        f"fewer than {figures['k']}",
        "unmet",
        "draft ms, p50",
        "p95",
    ]
    note = (
        f"Tokens of the JSON five mode answers, by {figures['tokenizer']}. Unmet: the share of needs that are told "
        "nothing fits, which counts as a miss. Milliseconds of the whole draft in this "
        "process, encoding included; lexical, dense and hybrid of one encoder are read off the same draft."
    )
    return table("What a draft costs: tokens, cards, time", heads, rows, note, left=2)


def _set_section(figures: Mapping[str, Any], records: Mapping[str, Any], name: str) -> Element:
    found, names = figures["sets"][name], figures["systems"]
    main_measure = figures["measures"][0]
    skipped = f"; {_count(found['skipped'], 'more need')} without any wanted card left out" if found["skipped"] else ""
    drawn = [plots.ranks(records, names, name)]
    if len(names) > 1:
        drawn.append(plots.scatter(records, names, main_measure, name))
    groups = [_group_table(figures, by, key) for key, by in found["groups"].items()]
    return el(
        "section",
        el("h2", name, id=_anchor(figures["sets"], name)),
        el(
            "p",
            f"{_count(found['cards'], 'card')}, {_count(found['needs'], 'need')}{skipped}.",
            el("small", f" Digest {found['digest'][:16]}"),
        ),
        _measure_table(figures, found["systems"], f"Measures on {name}"),
        el("div", *drawn, class_="plots"),
        *groups,
        _worst(figures, records),
    )


def _group_table(figures: Mapping[str, Any], by: Mapping[str, Any], key: str) -> Element:
    main_measure, names = figures["measures"][0], figures["systems"]
    rows = [
        el(
            "tr",
            el("th", value, scope="row"),
            el("td", f"{found['needs']:,}", class_="n"),
            *(el("td", f"{found['systems'][name][main_measure]:.3f}", class_="n") for name in names),
        )
        for value, found in by.items()
    ]
    return table(f"{main_measure} by {key}", [key, "needs", *names], rows, None)


def _worst(figures: Mapping[str, Any], records: Mapping[str, Any]) -> Element:
    measure, baseline, k = figures["measures"][0], figures["baseline"], figures["k"]
    others = figures["systems"][1:]
    rows = []
    for id_, loss in worst_needs(records, baseline, measure):
        record = records[id_]
        came = [card for card, _ in record["systems"][baseline]["top"]]
        wanted = [
            el(
                "li",
                *_id(card),
                f" ({grade})" if len(set(record["wanted"].values())) > 1 else "",
                class_="hit" if card in came else None,
            )
            for card, grade in record["wanted"].items()
        ]
        shown = [el("li", *_id(card), class_="hit" if card in record["wanted"] else None) for card in came]
        text = record["text"]
        rows.append(
            el(
                "tr",
                el("td", text if len(text) <= _NEED_SHOWN else f"{text[:_NEED_SHOWN]}…", el("div", id_, class_="id")),
                el("td", f"{loss:.2f}", class_="n"),
                el("td", str(record["systems"][baseline]["rank"] or "–"), class_="n"),
                el("td", el("ul", *wanted), class_="cards"),
                el("td", el("ol", *shown), class_="cards"),
                *(el("td", f"{1 - record['systems'][other][measure]:.2f}", class_="n") for other in others),
            )
        )
    title = f"Worst needs of {baseline}, by loss (1 − {measure})"
    if not rows:
        return el("div", el("h3", title), el("p", "None: every need has its best possible draft."))
    heads = ["need", "loss", "first at", "wanted", f"came (first {k})", *(f"loss, {other}" for other in others)]
    return table(title, heads, rows, "✓ marks a card that is both wanted and among the first.", left=0, class_="worst")


def table(
    caption: str,
    heads: Sequence[str],
    rows: Sequence[Element],
    note: str | None,
    left: int = 1,
    class_: str | None = None,
) -> Element:
    """A table whose first `left` columns are names and the others numbers; 0: the rows know better."""
    cells = [
        el("th", head, scope="col", class_="n" if left and column >= left else None)
        for column, head in enumerate(heads)
    ]
    return el(
        "figure",
        el("table", el("caption", caption), el("thead", el("tr", *cells)), el("tbody", *rows), class_=class_),
        el("figcaption", note) if note else None,
    )


def _explained(figures: Mapping[str, Any]) -> Element:
    parts = []
    for measure in figures["measures"]:
        parts += [el("dt", measure), el("dd", _WHAT[measure.split("@")[0]])]
    return el("details", el("summary", "What the measures say"), el("dl", *parts), open="open")


def _made_by(figures: Mapping[str, Any]) -> Element:
    rows = [
        ("commit", figures["commit"] or "not in a checkout"),
        ("bootstrap", f"{figures['resamples']:,} resamples of the needs within each set, seed {figures['seed']}"),
        ("run depth", f"{figures['run_depth']} cards"),
        ("versions", ", ".join(f"{name} {version}" for name, version in figures["versions"].items())),
    ]
    seen = {}
    for found in figures["sets"].values():
        for name, system in found["systems"].items():
            if system["encoder"]:
                seen[name] = f"{system['encoder']['name']}, fingerprint {system['encoder']['fingerprint']}"
            elif system["run"]:
                seen[name] = f"run {system['run']}"
    rows += [(f"system {name}", how) for name, how in seen.items()]
    parts = []
    for key, value in rows:
        parts += [el("dt", key), el("dd", value)]
    return el("footer", el("h2", "How this was made"), el("dl", *parts))


# -------------------------------------------------------------------------------------------------- words


def _key(place: int) -> Element:
    return el("i", class_=f"key {plots.series(place)}", aria_hidden="true")


def _id(card: str) -> list[Element | str]:
    """A card's id that may be broken after each run of underscores."""
    return _between(el("wbr"), re.findall(r"[^_]*_+|[^_]+", card))


def _anchor(sets: Mapping[str, Any], name: str) -> str:
    return f"set-{list(sets).index(name) + 1}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _listing(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _between(comma: Element | str, items: Sequence[Element | str]) -> list[Element | str]:
    out: list[Element | str] = []
    for item in items:
        out += [copy.copy(comma), item] if out else [item]
    return out


def page_style() -> str:
    """The style sheet of our pages."""
    return resources.files("roster.evaluation").joinpath("report.css").read_text("utf-8")
