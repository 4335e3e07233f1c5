"""Every notebook runs from top to bottom; its own assertions hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    """The parametrised test below has something to run."""
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_top_to_bottom(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cell by cell in one namespace, as a kernel would, and every code cell but the last says something or asserts."""
    cells = [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"{path.name}[{number}]", "exec"), namespace)
    assert capsys.readouterr().out
