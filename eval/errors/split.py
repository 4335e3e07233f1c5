"""Deal the texts of this corpus to seen and unseen by a hash of each, check them, and count what there is.

    python eval/errors/split.py            # after adding or rewording texts: rewrite the files and the counts
    python eval/errors/split.py --check    # exit 1 if any of that is out of date

A new record goes into either file; a reworded text may change sides: the split belongs to the text.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SPLITS = ("seen", "unseen")
SEED = "roster-errors-1"
TOOL_CLASSES = ("auth", "quota", "schema", "timeout", "internal", "other")
CLASSES = (*(f"tool_fail:{name}" for name in TOOL_CLASSES), "hard_fail:protocol")
# The platform's kinds that a failure text can show. The others need more than the text.
KINDS = frozenset("budget cancelled denied error invalid_input model refused timeout tool_failed unavailable".split())
FIELDS = ("_id", "text", "class", "source", "kind", "retry_after_s", "hard")
REQUIRED = FIELDS[:4]
SUCCESS_FIELDS = ("_id", "text", "source", "split")
BEGIN, END = "<!-- counts: written by split.py -->", "<!-- end of counts -->"

Row = dict[str, Any]


def split_of(text: str) -> str:
    """`seen` or `unseen`, about half of the texts each; the same on every machine."""
    digest = hashlib.sha256(f"{SEED}\n{text}".encode()).digest()
    return SPLITS[int.from_bytes(digest[:8], "big") % 2]


def read_jsonl(path: Path) -> list[Row]:
    """The rows of a JSON Lines file. By line feeds alone: a text may hold the other characters that end a line."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def checked(rows: list[Row]) -> list[Row]:
    """The rows in the order of their ids. Raises ValueError for one that breaks the form the README describes."""
    for field in ("_id", "text"):
        twice = [value for value, n in Counter(row[field] for row in rows).items() if n > 1]
        if twice:
            raise ValueError(f"two records have the same {field}: {twice[0]!r}")
    return sorted(rows, key=lambda row: row["_id"])


def check_failure(row: Row) -> None:
    """Raises ValueError unless the record has the fields, the class and the kind that it may have."""
    if row.keys() - set(FIELDS) or set(REQUIRED) - row.keys():
        raise ValueError(f"{row.get('_id')}: fields must be {FIELDS}, the first four of them always")
    if row["class"] not in CLASSES:
        raise ValueError(f"{row['_id']}: no class {row['class']!r}")
    if row.get("kind", "error") not in KINDS:
        raise ValueError(f"{row['_id']}: kind {row['kind']!r} is none that a text can show")
    if row.get("retry_after_s", 1) <= 0:
        raise ValueError(f"{row['_id']}: retry_after_s must be above zero")


def jsonl(rows: list[Row], fields: tuple[str, ...]) -> str:
    """The rows as JSON Lines, their fields in this order."""
    ordered = [{field: row[field] for field in fields if field in row} for row in rows]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ordered)


def failures(here: Path = HERE) -> list[Row]:
    """Every failed result of both files. Raises ValueError for one of the wrong form."""
    rows = [row for split in SPLITS for row in read_jsonl(here / f"{split}.jsonl")]
    for row in rows:
        check_failure(row)
    return checked(rows)


def successes(here: Path = HERE) -> list[Row]:
    """Every successful result, each with the split of its text."""
    return checked([{**row, "split": split_of(row["text"])} for row in read_jsonl(here / "successes.jsonl")])


def wanted(here: Path = HERE) -> dict[Path, str]:
    """What each of the three files should hold."""
    rows = failures(here)
    files = {
        here / f"{split}.jsonl": jsonl([row for row in rows if split_of(row["text"]) == split], FIELDS)
        for split in SPLITS
    }
    return {**files, here / "successes.jsonl": jsonl(successes(here), SUCCESS_FIELDS)}


def _table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> list[str]:
    ruler = "|".join(["---"] + ["---:"] * (len(head) - 1))
    return [f"| {' | '.join(head)} |", f"|{ruler}|"] + [f"| {' | '.join(map(str, row))} |" for row in rows] + [""]


def _line(label: str, rows: list[Row]) -> tuple[object, ...]:
    sides = Counter(split_of(row["text"]) for row in rows)
    hard = Counter(split_of(row["text"]) for row in rows if row.get("hard"))
    return (label, len(rows), *(sides[split] for split in SPLITS), *(hard[split] for split in SPLITS))


def counts(here: Path = HERE) -> str:
    """The tables of the README: failures by class and kind and half, successes by half."""
    rows = failures(here)
    head = ("all", *SPLITS, *(f"hard, {split}" for split in SPLITS))
    by_class = [_line(f"`{name}`", [row for row in rows if row["class"] == name]) for name in CLASSES]
    by_class += [
        _line("**all failures**", rows),
        _line("with `retry_after_s`", [row for row in rows if "retry_after_s" in row]),
    ]
    by_kind = [_line(f"`{kind}`", [row for row in rows if row.get("kind") == kind]) for kind in sorted(KINDS)]
    by_kind = [line for line in by_kind if line[1]]
    by_kind.append(_line("none given", [row for row in rows if "kind" not in row]))
    fine = successes(here)
    sides = Counter(row["split"] for row in fine)
    out = _table(("class", *head), by_class) + _table(("kind", *head), by_kind)
    out += _table(("", "all", *SPLITS), [("successes", len(fine), *(sides[split] for split in SPLITS))])
    return "\n".join(out).rstrip("\n")


def with_counts(readme: str, tables: str) -> str:
    """The README with these tables between its two marks."""
    before, rest = readme.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def main() -> int:
    """Rewrite what is out of date, or only name it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if something is out of date")
    args = parser.parse_args()
    readme = HERE / "README.md"
    files = {**wanted(), readme: with_counts(readme.read_text("utf-8"), counts())}
    stale = [path for path, text in files.items() if path.read_text("utf-8") != text]
    for path in stale:
        if not args.check:
            path.write_text(files[path], "utf-8", newline="\n")
        print(f"{path.relative_to(HERE)}: {'out of date' if args.check else 'rewritten'}")
    return int(bool(stale) and args.check)


if __name__ == "__main__":
    sys.exit(main())
