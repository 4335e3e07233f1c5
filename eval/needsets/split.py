"""Deal the needs of these sets to train and test by a hash of their text, and count what there is.

    python eval/needsets/split.py            # after adding or rewording needs: rewrite qrels, splits and the counts
    python eval/needsets/split.py --check    # exit 1 if any of that is out of date

A reworded need may change sides: the split belongs to the text.
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
SETS = ("servers", "skills", "chinese")
OF_SERVERS = ("servers", "chinese")
SPLITS = ("train", "test")
STYLES = ("plain", "terse", "verbose", "typo", "no_shared_word", "misleading", "several", "not_english")
SEED = "roster-needs-1"
TRAIN_SHARE = 0.4
HEADER = "query\tcard\tgrade"
BEGIN, END = "<!-- counts: written by split.py -->", "<!-- end of counts -->"


def split_of(need: str) -> str:
    """`train` for about 40 of 100 texts, `test` for the others; the same on every machine."""
    digest = hashlib.sha256(f"{SEED}\n{need}".encode()).digest()
    return "train" if int.from_bytes(digest[:8], "big") < TRAIN_SHARE * 2**64 else "test"


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON Lines file. By line feeds alone: a text may hold the other characters that end a line."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def read_qrels(folder: Path, split: str) -> list[tuple[str, str, int]]:
    """(need id, card id, grade) of one split, in the file's order."""
    with (folder / "qrels" / f"{split}.tsv").open(encoding="utf-8") as lines:
        header = next(lines).rstrip("\n")
        if header != HEADER:
            raise ValueError(f"{folder.name}/qrels/{split}.tsv must begin with {HEADER!r}, not {header!r}")
        rows = [line.rstrip("\n").split("\t") for line in lines if line.strip()]
    return [(need, card, int(grade)) for need, card, grade in rows]


def qrels_texts(folder: Path) -> dict[str, str]:
    """What train.tsv and test.tsv should hold, in the order of queries.jsonl."""
    grades: dict[str, list[tuple[str, int]]] = {}
    for split in SPLITS:
        for need, card, grade in read_qrels(folder, split):
            grades.setdefault(need, []).append((card, grade))
    lines: dict[str, list[str]] = {split: [HEADER] for split in SPLITS}
    needs = read_jsonl(folder / "queries.jsonl")
    if unknown := grades.keys() - {row["_id"] for row in needs}:
        raise ValueError(f"{folder.name}/qrels grades {min(unknown)!r}: add it to queries.jsonl, or drop its lines")
    for row in needs:
        for card, grade in grades.get(row["_id"], []):
            lines[split_of(row["text"])].append(f"{row['_id']}\t{card}\t{grade}")
    return {split: "\n".join(found) + "\n" for split, found in lines.items()}


def nonsense_text(here: Path = HERE) -> str:
    """What nonsense.jsonl should hold: its rows, each with the split of its text."""
    rows = [{**row, "split": split_of(row["text"])} for row in read_jsonl(here / "nonsense.jsonl")]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> list[str]:
    ruler = "|".join(["---"] + ["---:"] * (len(head) - 1))
    return [f"| {' | '.join(head)} |", f"|{ruler}|"] + [f"| {' | '.join(map(str, row))} |" for row in rows] + [""]


def counts(here: Path = HERE) -> str:
    """The tables of the README: needs by style, language, server and split."""
    needs = {name: read_jsonl(here / name / "queries.jsonl") for name in SETS}
    cards = {name: {row["_id"]: row for row in read_jsonl(here / name / "corpus.jsonl")} for name in SETS}
    qrels = {name: [row for split in SPLITS for row in read_qrels(here / name, split)] for name in SETS}
    nonsense = read_jsonl(here / "nonsense.jsonl")

    totals: list[tuple[object, ...]] = []
    for name in SETS:
        wanted = {card for _, card, grade in qrels[name] if grade == 2}
        by_split = Counter(split_of(row["text"]) for row in needs[name])
        grades = Counter(grade for _, _, grade in qrels[name])
        sizes = (len(cards[name]), len(needs[name]), by_split["train"], by_split["test"])
        totals.append((f"`{name}`", *sizes, grades[2], grades[1], len(wanted)))
    by_split = Counter(split_of(row["text"]) for row in nonsense)
    totals.append(("`nonsense.jsonl`", "", len(nonsense), by_split["train"], by_split["test"], "", "", ""))
    head = ("set", "cards", "needs", "train", "test", "grades of 2", "grades of 1", "cards wanted (grade 2)")
    out = _table(head, totals)

    columns = [(name, split) for name in SETS for split in SPLITS]
    head = ("style", *(f"{name} {split}" for name, split in columns), "all")
    styles = Counter((row["style"], name, split_of(row["text"])) for name in SETS for row in needs[name])
    rows: list[tuple[object, ...]] = []
    for style in STYLES:
        cells = [styles[style, name, split] for name, split in columns]
        rows.append((f"`{style}`", *cells, sum(cells)))
    out += _table(head, rows)

    languages = Counter((row["lang"], name) for name in SETS for row in needs[name])
    order = sorted({lang for lang, _ in languages}, key=lambda lang: (-sum(languages[lang, n] for n in SETS), lang))
    head = ("language", *SETS, "all")
    out += _table(
        head,
        [(f"`{lang}`", *(languages[lang, n] for n in SETS), sum(languages[lang, n] for n in SETS)) for lang in order],
    )

    for name in OF_SERVERS:
        of = {card: row["server"] for card, row in cards[name].items()}
        servers = Counter(of.values())
        wanted_by = Counter(
            server for server, _ in {(of[card], need) for need, card, grade in qrels[name] if grade == 2}
        )
        covered = Counter(of[card] for card in {card for _, card, grade in qrels[name] if grade == 2})
        head = (f"server (set `{name}`)", "tools", "tools wanted", "needs that want one")
        out += _table(
            head, [(f"`{server}`", servers[server], covered[server], wanted_by[server]) for server in sorted(servers)]
        )

    kinds = Counter((row["kind"], row["split"]) for row in nonsense)
    out += _table(
        ("`nonsense.jsonl`", "train", "test", "all"),
        [
            (f"`{kind}`", kinds[kind, "train"], kinds[kind, "test"], kinds[kind, "train"] + kinds[kind, "test"])
            for kind in ("nonsense", "unserved")
        ],
    )
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
    wanted = {
        HERE / name / "qrels" / f"{split}.tsv": text
        for name in SETS
        for split, text in qrels_texts(HERE / name).items()
    }
    wanted[HERE / "nonsense.jsonl"] = nonsense_text()
    stale = [path for path, text in wanted.items() if path.read_text("utf-8") != text]
    if not args.check:
        for path in stale:
            path.write_text(wanted[path], "utf-8", newline="\n")
    readme = HERE / "README.md"
    page = readme.read_text("utf-8")
    if (counted := with_counts(page, counts())) != page:
        stale.append(readme)
        if not args.check:
            readme.write_text(counted, "utf-8", newline="\n")
    for path in stale:
        print(f"{path.relative_to(HERE)}: {'out of date' if args.check else 'rewritten'}")
    return int(bool(stale) and args.check)


if __name__ == "__main__":
    sys.exit(main())
