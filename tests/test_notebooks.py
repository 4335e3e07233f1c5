"""Every notebook runs from top to bottom, its own assertions hold, and what is stored of it is clean."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[1]
NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))

EVAL = ("ir_measures", "bpe_openai")
BUILD = ("torch", "sentence_transformers", "onnx")
PACKAGES = {"reading_an_eval": EVAL, "tune_on_your_needs": (*BUILD, *EVAL)}
"""What a notebook needs beyond the base and is skipped without."""
WEIGHTS = {"tune_on_your_needs": REPOSITORY / "models" / "roster-minilm" / "onnx" / "model.onnx.data"}

_MACHINE_PATH = re.compile(r"/(home|root|tmp|private|Users)/|[A-Za-z]:\\\\?Users")


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def skip_without_what_it_needs(name: str) -> None:
    missing = [package for package in PACKAGES.get(name, ()) if find_spec(package) is None]
    if missing:
        extras = [extra for extra, of in (("build", BUILD), ("eval", EVAL)) if set(of) & set(missing)]
        pytest.skip(f"needs {', '.join(missing)}: install the extras {', '.join(extras)}")
    if name in WEIGHTS and not WEIGHTS[name].is_file():
        pytest.skip(f"needs {WEIGHTS[name].relative_to(REPOSITORY)} to begin from")


def test_there_are_notebooks() -> None:
    """The parametrised tests below have something to run."""
    assert NOTEBOOKS
    assert {*PACKAGES, *WEIGHTS} <= {path.stem for path in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_top_to_bottom(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cell by cell in one namespace and in the notebook's own folder, as a kernel would."""
    skip_without_what_it_needs(path.stem)
    monkeypatch.chdir(path.parent)
    cells = [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]
    namespace: dict[str, object] = {"__name__": "__main__"}
    for cell in cells:
        exec(compile("".join(cell["source"]), f"{path.name}[{cell['id']}]", "exec"), namespace)
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_stored_notebook_is_nbformat_4_5_without_traces_of_a_machine(path: Path) -> None:
    """Ids that are there and differ, no counts or metadata of a run, no path of whoever ran it."""
    notebook = read(path)
    cells = notebook["cells"]

    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", cell["id"]) for cell in cells)
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert notebook["metadata"].keys() <= {"kernelspec", "language_info"}
    assert all(cell["metadata"] == {} for cell in cells)
    assert all(cell["execution_count"] is None for cell in cells if cell["cell_type"] == "code")
    assert not _MACHINE_PATH.search(path.read_text("utf-8"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_begins_with_its_title_and_links_only_to_what_is_there(path: Path) -> None:
    """Links and the names of other notebooks, which is how a reader gets from one to the next."""
    prose = ["".join(cell["source"]) for cell in read(path)["cells"] if cell["cell_type"] == "markdown"]
    links = re.findall(r"\]\((?!https?://)([^)#]+)\)", "\n".join(prose))
    others = re.findall(r"`(\w+\.ipynb)`", "\n".join(prose))

    assert prose[0].startswith("# ")
    assert [link for link in [*links, *others] if not (path.parent / link).exists()] == []
