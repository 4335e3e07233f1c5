"""How well failure texts are read: classes, kinds and waits over a labelled half, and false alarms over successes.

    python eval/errors/measure.py [--half seen|further|unseen|wordings] [-v] [--out FIGURES.json [--note WHY]]

Every text is judged as the whole answer of a failed call, without any of the evidence that goes before text. A success
never gets that far; for the record, it is also counted what the text rules would have said of one that claimed to have
failed. `-v` lists what was misread, except for the unseen half, which is for scoring only: whoever has read it can no
longer say how well rules do on texts they were not made for. `wordings` are the examples that the rules were made from,
some of which the unseen half has too: `unlike_wordings` are the figures without those.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from roster.errortexts import read
from roster.evaluation.comparison import checkout_commit
from roster.failures import failure_of
from roster.outcomes import CallReport, Cause, Outcome, judge
from roster.waits import wait_in

HERE = Path(__file__).parent
HALVES = ("seen", "further", "unseen", "wordings")

Row = dict[str, Any]


def rows_of(half: str) -> list[Row]:
    """The labelled failures of a half."""
    if half == "wordings":
        return [wording(line) for line in (HERE / "wordings.tsv").read_text("utf-8").splitlines()]
    with (HERE / f"{half}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def wording(line: str) -> Row:
    """A line of `wordings.tsv`: the last part of a class, a tab, and a text with `\\n` and `\\t` written out."""
    name, _, text = line.partition("\t")
    class_ = next(outcome for outcome in Outcome if outcome.value.rpartition(":")[2] == name)
    return {"_id": text[:60], "text": text.replace("\\n", "\n").replace("\\t", "\t"), "class": class_.value}


def successes(half: str) -> list[str]:
    """The texts of successes of a half."""
    with (HERE / "successes.jsonl").open(encoding="utf-8") as lines:
        return [row["text"] for line in lines if line.strip() and (row := json.loads(line))["split"] == half]


def judged(text: str) -> tuple[str, str, str]:
    """The class of a failed call whose answer is this text, its failure kind, and the rule that decided."""
    report = CallReport(Cause.TOOL_ERROR, 0.0, text=read(text))
    verdict, failure = judge(report), failure_of(report, {})
    return verdict.outcome.value, str(failure.kind) if failure else "", verdict.rule


def share(part: int, whole: int) -> float | None:
    """A share, rounded; None of nothing."""
    return round(part / whole, 4) if whole else None


def measured(half: str) -> tuple[dict[str, Any], list[str]]:
    """The figures of a half, and a line for each text that was misread."""
    rows = rows_of(half)
    found = [judged(row["text"]) for row in rows]
    pairs = [(row, class_) for row, (class_, _, _) in zip(rows, found, strict=True)]
    right = [(row, class_) for row, class_ in pairs if class_ == row["class"]]
    by_class = {}
    for name in sorted({row["class"] for row in rows}):
        labelled, said = sum(row["class"] == name for row in rows), sum(class_ == name for _, class_ in pairs)
        hits = sum(class_ == name for _, class_ in right)
        by_class[name] = {"texts": labelled, "recall": share(hits, labelled), "precision": share(hits, said)}
    hard = [row for row in rows if row.get("hard")]
    kinds = [(row["kind"], kind) for row, (_, kind, _) in zip(rows, found, strict=True) if "kind" in row]
    waits = [(row.get("retry_after_s"), wait_in(row["text"])) for row in rows]
    given = [(wanted, wait) for wanted, wait in waits if wanted is not None]
    figures: dict[str, Any] = {
        "texts": len(rows),
        "accuracy": share(len(right), len(rows)),
        "accuracy_hard": share(sum(bool(row.get("hard")) for row, _ in right), len(hard)),
        "by_class": by_class,
        "confusion": {
            f"{wanted} → {got}": n
            for (wanted, got), n in Counter((row["class"], class_) for row, class_ in pairs).most_common()
            if wanted != got
        },
        "kinds": {"labelled": len(kinds), "accuracy": share(sum(a == b for a, b in kinds), len(kinds))},
        "waits": {
            "given": len(given),
            "found_exactly": sum(wanted == wait for wanted, wait in given),
            "found_where_none": sum(wanted is None and wait is not None for wanted, wait in waits),
        },
    }
    if half == "unseen":
        known = {row["text"] for name in HALVES if name != "unseen" for row in rows_of(name)}
        fresh = [class_ == row["class"] for row, class_ in pairs if row["text"] not in known]
        figures["unlike_wordings"] = {"texts": len(fresh), "accuracy": share(sum(fresh), len(fresh))}
    if half not in ("wordings", "further"):
        texts = successes(half)
        calls = Counter(judge(CallReport(Cause.ANSWERED, 0.0, text=read(text))).outcome for text in texts)
        figures["successes"] = {
            "texts": len(texts),
            "judged_failures": len(texts) - calls[Outcome.SUCCESS],
            "a_rule_matches": sum(read(text) is not None for text in texts),
        }
    misread = [
        f"{row['_id']}: {row['class']}, read as {class_} ({rule})"
        for row, (class_, _, rule) in zip(rows, found, strict=True)
        if class_ != row["class"]
    ]
    return figures, misread


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--half", choices=HALVES, action="append", help="default: seen")
    parser.add_argument("-v", "--verbose", action="store_true", help="list what was misread")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    parser.add_argument("--note", help="what was changed since the last measurement: goes into the JSON")
    given = parser.parse_args()
    figures = {}
    for half in given.half or ["seen"]:
        figures[half], misread = measured(half)
        show(half, figures[half])
        if given.verbose and half != "unseen":
            print("\n".join(misread))
    if given.out is not None:
        note = {"note": given.note} if given.note else {}
        report = {"commit": checkout_commit(), **note, "halves": figures}
        given.out.write_text(json.dumps(report, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        print(f"written to {given.out}", file=sys.stderr)


def show(half: str, figures: dict[str, Any]) -> None:
    """Print the figures of a half."""
    console = Console()
    table = Table(title=f"{half}: {figures['accuracy']} of {figures['texts']} (hard: {figures['accuracy_hard']})")
    for heading in ("class", "texts", "recall", "precision"):
        table.add_column(heading, justify="left" if heading == "class" else "right")
    for name, each in figures["by_class"].items():
        table.add_row(name, str(each["texts"]), str(each["recall"]), str(each["precision"]))
    console.print(table)
    for name in ("confusion", "kinds", "waits", "successes", "unlike_wordings"):
        if figures.get(name):
            console.print(f"{name}: {json.dumps(figures[name], ensure_ascii=False)}", markup=False)


if __name__ == "__main__":
    main()
