"""A receipt as an SVG picture: a bar for what a client's tools cost now, one for five mode.

One file that needs nothing else: text is text, no script, no font of its own, and colours for light and for dark.
"""

from __future__ import annotations

from textwrap import wrap
from xml.etree import ElementTree

from roster.evaluation.markup import Element, el
from roster.receipt.labels import Labels
from roster.receipt.ledger import Bill, Case
from roster.receipt.receipt import Receipt
from roster.receipt.words import case_name, cost_now, counted, counted_with, in_drafts, left_out, number, percent

__all__ = ["picture"]

_WIDTH, _MARGIN, _LABEL, _BAR, _LINE = 760.0, 24.0, 108.0, 13.0, 19.0
_SPAN = 400.0
"""Pixels of the longest bar; its figures stand to the right of it."""
_WRAP = 112
_STYLE = """
text { font-family: ui-sans-serif, system-ui, sans-serif; font-size: 13px; fill: #1f2328 }
.title { font-size: 19px; font-weight: 600 } .client { font-size: 15px; font-weight: 600 }
.note { font-size: 11.5px; fill: #59636e } .paper { fill: #ffffff; stroke: #d1d9e0 }
.now { fill: #bc4c00 } .range { fill: #bc4c00; opacity: .35 } .five { fill: #1a7f37 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .note { fill: #9198a1 } .paper { fill: #0d1117; stroke: #3d444d }
.now, .range { fill: #f0883e } .five { fill: #3fb950 }
}
"""


def picture(receipt: Receipt, labels: Labels) -> str:
    """The SVG document, as text."""
    longest = max((case.without.high for one in receipt.bills for case in one.cases), default=1) or 1
    y = 46.0
    body: list[Element] = [el("text", "What tools cost each client's context", x=_MARGIN, y=y, class_="title")]
    y += 22
    body.append(el("text", "tokens, without Roster and with it in five mode", x=_MARGIN, y=y, class_="note"))
    for one in receipt.bills:
        y += 34
        parts, y = _client(receipt, one, labels, longest, y)
        body += parts
    y += 14
    for line in [
        row
        for note in [*counted_with(receipt), *left_out(receipt)]
        for row in wrap(note, _WRAP, break_on_hyphens=False)
    ]:
        y += 16
        body.append(el("text", line, x=_MARGIN, y=y, class_="note"))
    height = y + 22
    svg = el(
        "svg",
        el("title", "What tools cost each client's context"),
        el("desc", _told(receipt)),
        el("style", _STYLE),
        el("rect", x=0.5, y=0.5, width=_WIDTH - 1, height=height - 1, rx=10, class_="paper"),
        *body,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH:g} {height:g}",
        width=f"{_WIDTH:g}",
        height=f"{height:g}",
        role="img",
    )
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


def _client(receipt: Receipt, one: Bill, labels: Labels, longest: int, y: float) -> tuple[list[Element], float]:
    known = counted(one.tools, "tool") + (f", {one.unknown} of its servers unknown" if one.unknown else "")
    parts: list[Element] = [
        el("text", el("tspan", one.owned.title, class_="client"), f"  {known}", x=_MARGIN, y=y),
    ]
    for case in one.cases if one.tools else ():
        y += _LINE + 3
        parts.append(_bar(case_name(case, one), cost_now(case, least=bool(one.unknown)), case, longest, y))
        y += _LINE
        parts.append(_five(case, receipt, longest, y))
    heavy = sorted((use for use in one.owned.uses if use.on), key=lambda use: -use.server.count.tokens)[:5]
    if one.tools:
        y += _LINE
        shares = [f"{labels.server(use.server.key)} {number(use.server.count.tokens)}" for use in heavy]
        shares = [share for share, use in zip(shares, heavy, strict=True) if use.server.tools is not None]
        for line in wrap(", ".join(shares), _WRAP, break_on_hyphens=False):
            parts.append(el("text", line, x=_MARGIN, y=y, class_="note"))
            y += 15
        y -= 15
    return parts, y


def _pixels(tokens: int, longest: int) -> float:
    return max(1.5, _SPAN * max(0, tokens) / longest)


def _bar(name: str, told: str, case: Case, longest: int, y: float) -> Element:
    """What it costs now: solid to the figure, paler to the end of its range."""
    left = _MARGIN + _LABEL
    end = _pixels(case.without.high, longest)
    return el(
        "g",
        el("text", name, x=_MARGIN, y=y),
        el("rect", x=left, y=y - 11, width=end, height=_BAR, class_="range"),
        el("rect", x=left, y=y - 11, width=_pixels(case.without.tokens, longest), height=_BAR, class_="now"),
        el("text", told, x=left + end + 8, y=y),
    )


def _five(case: Case, receipt: Receipt, longest: int, y: float) -> Element:
    left, end = _MARGIN + _LABEL, _pixels(case.five.tokens, longest)
    return el(
        "g",
        el("text", "five mode", x=_MARGIN, y=y),
        el("rect", x=left, y=y - 11, width=end, height=_BAR, class_="five"),
        el("text", f"{number(case.five.tokens)}  ({_saved(case, receipt)})", x=left + end + 8, y=y),
    )


def _saved(case: Case, receipt: Receipt) -> str:
    if case.saved.tokens <= 0:
        return "nothing saved"
    drafts = in_drafts(case, receipt)
    return f"{percent(case)} saved" + (
        f", used up by {drafts} draft{'' if drafts in ('1', '<1') else 's'}" if drafts else ""
    )


def _told(receipt: Receipt) -> str:
    """What the picture shows, for who cannot see it."""
    return " ".join(
        f"{one.owned.title}, {case_name(case, one)}: {number(case.without.tokens)} tokens, "
        f"in five mode {number(case.five.tokens)}."
        for one in receipt.bills
        for case in one.cases
        if one.tools
    )
