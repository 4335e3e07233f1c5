"""What keeping the index right costs, and whether it survives being killed: `roster reindex` as a user runs it.

    python eval/reindex.py NEEDSET [--kills 100] [--changed 0.01] [--out eval/results/reindex.json]

The set's cards are served by one small backend. Measured: the first reindex, one that finds nothing new, one after a
part of the cards changed (and were let back into drafts), and one that makes the index file anew from stored vectors.
Then, `--kills` times: cards change, a reindex is killed (SIGKILL) at a random moment, and what the next start would
serve is held against the database: every card that may be drafted and has a vector is in the index with exactly that
vector, nothing else is, and a draft finds a card by its own words. POSIX only.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roster.app import open_roster
from roster.config import Home, load_config
from roster.dense import drop_manifest
from roster.encoder import Encoder, open_encoder

SPEED = Path(__file__).resolve().with_name("speed.py")


class Bench:
    """A home whose one server lists whatever rows it is given."""

    def __init__(self, folder: Path, rows: list[dict[str, Any]], seed: int) -> None:
        self.home = Home(folder / "home")
        self.home.folder.mkdir()
        self.rows = rows
        self.random = random.Random(seed)
        self._corpus = folder / "corpus.json"
        self._turn = 0
        self._write()
        server = {"command": sys.executable, "args": [str(SPEED), "--as-backend", str(self._corpus)]}
        self.home.config.write_text(json.dumps({"quarantine": "off", "mcpServers": {"set": server}}), "utf-8")

    def _write(self) -> None:
        self._corpus.write_text(json.dumps(self.rows), "utf-8")

    def change(self, share: float) -> int:
        """Let this share of the definitions change, in a way no two have in common; how many that were."""
        self._turn += 1
        chosen = self.random.sample(range(len(self.rows)), max(1, round(share * len(self.rows))))
        for at in chosen:
            row = self.rows[at]
            self.rows[at] = {**row, "description": f"{row['description']} (revision {self._turn} of {at})"}
        self._write()
        return len(chosen)

    def start(self) -> subprocess.Popen[bytes]:
        """`roster reindex --json`, in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "roster", "reindex", "--json"],
            env={**os.environ, "ROSTER_HOME": str(self.home.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def reindex(self) -> dict[str, Any]:
        """Its figures, and the wall seconds of the whole process."""
        begun = time.perf_counter()
        out, _ = self.start().communicate()
        figures: dict[str, Any] = json.loads(out)
        wanted = ("cards", "added", "changed", "removed", "embedded", "quarantined", "seconds")
        return {**{key: figures[key] for key in wanted}, "process_s": round(time.perf_counter() - begun, 2)}

    def faults(self, encoder: Encoder) -> list[str]:
        """What is wrong with what the next start would serve."""
        found = []
        with open_roster(load_config(self.home), self.home) as roster:
            if roster.writer.db.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                found.append("the database is damaged")
            catalogue = roster.catalogue
            catalogue.attach(encoder, self.home.index)
            dense, entries = catalogue.dense, catalogue.draftable()
            assert dense is not None
            stored = roster.writer.registry.vectors.of(encoder.fingerprint)
            wanted = {number for number, entry in entries.items() if entry.text_hash in stored}
            if strange := dense.numbers - wanted:
                found.append(f"{len(strange)} rows of cards that are not drafted or have another text")
            if missing := wanted - dense.numbers:
                found.append(f"{len(missing)} stored vectors are not in the index")
            rows = dense.rows_of(sorted(wanted & dense.numbers))
            wrong = [n for n, row in rows.items() if not np.array_equal(row, stored[entries[n].text_hash])]
            if wrong:
                found.append(f"{len(wrong)} rows are not the card's vector")
            if len(entries) != len(self.rows):
                found.append(f"{len(entries)} cards of {len(self.rows)}")
            asked = self.random.choice(sorted(wanted))
            made = roster.draft_now(entries[asked].card.name, 5)
            if entries[asked].card.id not in made.ranking:
                found.append(f"a draft does not find {entries[asked].card.id} by its name")
        return found


def rows_of(needset: Path) -> list[dict[str, Any]]:
    """The set's cards as one server's tools, by names that no two share."""
    rows = []
    with (needset / "corpus.jsonl").open(encoding="utf-8") as lines:
        for at, line in enumerate(lines):
            card = json.loads(line)
            schema = card.get("inputSchema") or {"type": "object"}
            rows.append(
                {"name": f"{card['name'][:80]}_{at}", "description": card["description"], "inputSchema": schema}
            )
    return rows


def killed(bench: Bench, encoder: Encoder, kills: int, share: float, longest_s: float) -> dict[str, Any]:
    """So many reindexes killed within `longest_s`, each looked at; those that were over before are counted."""
    over, faults = 0, []
    for turn in range(kills):
        bench.change(share)
        child = bench.start()
        try:
            child.wait(bench.random.uniform(0.0, longest_s))
            over += 1
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        faults += [{"kill": turn, "fault": fault} for fault in bench.faults(encoder)]
        if sys.stderr.isatty():
            print(f"\r{turn + 1} of {kills}", end="", file=sys.stderr)
    return {"kills": kills - over, "over_before": over, "faults": faults, "after": bench.reindex()}


def measure(needset: Path, folder: Path, kills: int, share: float, seed: int) -> dict[str, Any]:
    """Every figure, in the order in which a home would live through it."""
    bench = Bench(folder, rows_of(needset), seed)
    encoder = open_encoder(None)
    found: dict[str, Any] = {"first": bench.reindex(), "nothing_new": bench.reindex()}
    changed = bench.change(share)
    found["after_change"] = {"definitions": changed, **bench.reindex()}
    with open_roster(load_config(bench.home), bench.home) as roster:
        drop_manifest(bench.home.index)
        begun = time.perf_counter()
        roster.catalogue.attach(encoder, bench.home.index)
        roster.catalogue.save(bench.home.index)
        found["rebuilt_from_stored_vectors_s"] = round(time.perf_counter() - begun, 3)
    found["faults_before"] = bench.faults(encoder)
    found["killed"] = killed(bench, encoder, kills, share, found["after_change"]["process_s"])
    found["faults_after"] = bench.faults(encoder)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the JSON; 1 when something was found that should not be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("needset", type=Path)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--changed", type=float, default=0.01, help="share of the definitions that change each time")
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(arguments)
    scratch = Path(tempfile.mkdtemp(prefix="roster-reindex-"))
    try:
        found = measure(args.needset, scratch, args.kills, args.changed, args.seed)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(json.dumps(found, indent=1))
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 1 if found["killed"]["faults"] or found["faults_before"] or found["faults_after"] else 0


if __name__ == "__main__":
    sys.exit(main())
