"""How well texts are reviewed: what is found of the malicious cases, and what is found in cards that are not.

    python eval/review/measure.py [--unseen] [--benign FOLDER ...] [--json] [-v]

Without `--unseen` the half that rules may be made from is measured. The unseen half is for scoring only, so nothing of
it is ever printed but counts by class. `--benign` takes need sets (folders with a `corpus.jsonl`); whatever is found in
their cards is listed as a false positive, which a person should read before believing it. Our own benign cases are
always measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from roster.cards import Card, Kind, card_from_row
from roster.review import Finding, Severity, known, review, shadowing

HERE = Path(__file__).parent
OTHERS: Mapping[str, str] = {
    "mail": "send_email list_messages forward_message",
    "github": "create_issue create_pull_request get_file_contents list_issues",
    "fs": "read_file write_file list_directory",
    "slack": "post_message list_channels",
    "payments": "create_charge create_refund",
    "whatsapp": "send_message list_chats",
    "browser": "navigate take_screenshot",
}
"""The servers that stand beside each case."""

Row = dict[str, Any]


def rows_of(name: str) -> list[Row]:
    """The cases of a file beside this one: `seen`, `unseen` or `benign`."""
    with (HERE / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def card_of(row: Row) -> Card:
    """The card of a case, or of a line of a corpus."""
    return card_from_row(Kind(row.get("kind", "tool")), row["server"], row, "unused")


def findings_of(row: Row) -> list[Finding]:
    """Everything that is found in a case, with the servers in OTHERS beside it."""
    card = card_of(row)
    pairs = [(server, name) for server, names in OTHERS.items() for name in names.split()]
    beside = [card_of({"server": server, "name": name}) for server, name in pairs]
    alike = [card_of({"server": server, "name": name}) for server, name in row.get("beside", ())]
    return review(card, known([card, *beside]), row.get("texts")) + shadowing([card, *alike]).get(card.id, [])


def worst(findings: Iterable[Finding]) -> Severity | None:
    """The most serious of them."""
    return min((finding.severity for finding in findings), key=lambda severity: severity.rank, default=None)


def measure_malicious(half: str) -> dict[str, Any]:
    """Cases, high, and high or medium, by class and in all; ids of what was missed."""
    classes: dict[str, Counter[str]] = {}
    missed, low = [], []
    for row in rows_of(half):
        severity = worst(findings_of(row))
        count = classes.setdefault(row["class"], Counter())
        count["cases"] += 1
        count["high"] += severity is Severity.HIGH
        count["flagged"] += severity in (Severity.HIGH, Severity.MEDIUM)
        if severity in (None, Severity.LOW):
            missed.append(row["_id"])
        elif severity is Severity.MEDIUM:
            low.append(row["_id"])
    total = sum(classes.values(), Counter())
    return {"half": half, "classes": classes, "all": total, "missed": missed, "medium": low}


def measure_benign(name: str, rows: list[Row], *, together: bool) -> dict[str, Any]:
    """Cards, high, flagged, and every false positive. together: the cards are one home."""
    cards = {row["_id"]: card_of(row) for row in rows}
    if together:
        names = known(cards.values())
        alike = shadowing(cards.values())
        found = {id_: review(card, names) + alike.get(card.id, []) for id_, card in cards.items()}
    else:
        found = {row["_id"]: findings_of(row) for row in rows}
    high = [id_ for id_, findings in found.items() if worst(findings) is Severity.HIGH]
    flagged = [id_ for id_, findings in found.items() if worst(findings) in (Severity.HIGH, Severity.MEDIUM)]
    return {
        "set": name,
        "cards": len(cards),
        "high": len(high),
        "flagged": len(flagged),
        "false_positives": [
            {"card": id_, "rule": f.rule, "severity": f.severity, "where": f.where, "shown": f.shown}
            for id_ in flagged
            for f in found[id_]
            if f.severity is not Severity.LOW
        ],
    }


def read_corpus(folder: Path) -> list[Row]:
    """The rows of a need set's corpus, without what no server lists."""
    with (folder / "corpus.jsonl").open(encoding="utf-8", newline="\n") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--unseen", action="store_true")
    parser.add_argument("--benign", nargs="*", type=Path, default=[])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true", help="ids of what was missed, on the seen half")
    asked = parser.parse_args()
    half = "unseen" if asked.unseen else "seen"
    malicious = measure_malicious(half)
    benign = [measure_benign("ours", rows_of("benign"), together=False)]
    benign += [measure_benign(folder.name, read_corpus(folder), together=True) for folder in asked.benign]
    if asked.unseen:
        malicious |= {"missed": len(malicious["missed"]), "medium": len(malicious["medium"])}
    if asked.json:
        json.dump({"malicious": malicious, "benign": benign}, sys.stdout, indent=1)
        return
    out = Console()
    table = Table("class", "cases", "high", "high or medium", title=f"malicious, {half}")
    for name, count in [*malicious["classes"].items(), ("all", malicious["all"])]:
        table.add_row(name, str(count["cases"]), str(count["high"]), str(count["flagged"]))
    out.print(table)
    if asked.verbose and not asked.unseen:
        out.print("missed:", malicious["missed"], "\nmedium:", malicious["medium"])
    table = Table("benign", "cards", "high", "high or medium", "rate")
    for row in benign:
        rate = f"{row['flagged'] / row['cards']:.2%}"
        table.add_row(row["set"], str(row["cards"]), str(row["high"]), str(row["flagged"]), rate)
    out.print(table)
    for row in benign:
        for positive in row["false_positives"]:
            line = " ".join(str(positive[key]) for key in ("severity", "rule", "card", "where", "shown"))
            out.print(f"{row['set']}: {line}", markup=False, highlight=False)


if __name__ == "__main__":
    main()
