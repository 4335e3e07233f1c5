"""What people report of other routers, what Roster does, and which test holds it to that: docs/reports.md.

    python eval/reports.py            # writes the page
    python eval/reports.py --check    # 1 when it is not what reports.toml and the tests say

Symptoms are in `reports.toml`; with `@pytest.mark.report("owner/project#number")` a test says which it is about.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reports.md"
REFERENCE = re.compile(r"[\w.-]+/[\w.-]+(#\d+)?")
OPENING = """# What people report of routers like this one

Symptoms from public issues of other routers, proxies and clients, what Roster does about each, and the tests that hold
it to that. A report is no judgement of its project: most of these are mended there by now.

Made by `eval/reports.py` from `eval/reports.toml` and the tests that name a report.
"""


@dataclass(frozen=True)
class Report:
    """One symptom, where it was seen (`owner/project#number`), and what Roster does."""

    symptom: str
    does: str
    seen: tuple[str, ...]


@dataclass(frozen=True, order=True)
class Test:
    """A test, by its file below the root and its name."""

    file: str
    name: str

    @property
    def link(self) -> str:
        """As the page shows it: what is promised, in words."""
        return f"[{self.name.removeprefix('test_').replace('_', ' ')}](../{self.file})"


def reports(file: Path = ROOT / "eval" / "reports.toml") -> dict[str, list[Report]]:
    """The reports by subject."""
    found = tomllib.loads(file.read_text("utf-8"))["about"]
    return {
        about["title"]: [Report(one["symptom"], one["does"], tuple(one["seen"])) for one in about["report"]]
        for about in found
    }


def marks(folder: Path = ROOT / "tests") -> dict[str, list[Test]]:
    """The tests that name each report. Files are read, nothing is imported."""
    found: dict[str, list[Test]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        for name, reference in _marks_in(ast.parse(path.read_text("utf-8"))):
            found.setdefault(reference, []).append(Test(path.relative_to(ROOT).as_posix(), name))
    return found


def _marks_in(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.report":
                    yield from ((node.name, ast.literal_eval(argument)) for argument in mark.args)


def problems(subjects: Mapping[str, Sequence[Report]], named: Mapping[str, Sequence[Test]]) -> list[str]:
    """What does not fit together: reports without a test, tests for unknown reports, references that are none."""
    seen = [reference for found in subjects.values() for report in found for reference in report.seen]
    return [
        *(f"{one} is no reference" for one in seen if REFERENCE.fullmatch(one) is None),
        *(f"{one} is there twice" for one in sorted(set(seen)) if seen.count(one) > 1),
        *(f"no test names {one}" for one in seen if one not in named),
        *(
            f"{tests[0].name} names {one}, which is not in reports.toml"
            for one, tests in named.items()
            if one not in seen
        ),
    ]


def page(subjects: Mapping[str, Sequence[Report]], named: Mapping[str, Sequence[Test]]) -> str:
    """The page in Markdown."""
    lines = [OPENING]
    for title, found in subjects.items():
        lines.append(f"## {title}\n")
        for report in found:
            tests = sorted({test for reference in report.seen for test in named.get(reference, ())})
            lines += [
                f"**{report.symptom}.** {report.does}\n",
                f"Tests: {'; '.join(test.link for test in tests)}.  ",
                f"Seen in {', '.join(map(_linked, report.seen))}.\n",
            ]
    return "\n".join(lines)


def _linked(reference: str) -> str:
    project, _, number = reference.partition("#")
    return f"[{reference}](https://github.com/{project}{f'/issues/{number}' if number else ''})"


def main() -> int:
    """Write the page, or say that it is not what it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when something does not fit")
    args = parser.parse_args()
    subjects, named = reports(), marks()
    wrong, text = problems(subjects, named), page(subjects, named)
    for problem in wrong:
        print(problem, file=sys.stderr)
    if args.check:
        stale = not PAGE.is_file() or PAGE.read_text("utf-8") != text
        if stale:
            print(f"{PAGE.relative_to(ROOT)} is stale: run python eval/reports.py", file=sys.stderr)
        return 1 if wrong or stale else 0
    PAGE.write_text(text, "utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
