"""One way through the code: who may import whom (STYLE.md, section 1), and what starting up costs."""

from __future__ import annotations

import ast
import importlib
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import python
from packaging.requirements import Requirement
from packaging.version import Version

import roster

PACKAGE = Path(roster.__file__).parent
REPOSITORY = Path(__file__).parents[1]

# A module imports only from rows above its own; a folder counts as one module.
LAYERS = """
errors
streams addresses words vectors outcomes jsonc terminal arguments waits uptime
cards failures errorlikeness ratings evidence mended adapter dwell
declared errortexts passages weights contracts review
answers origins
config drift
clients offers welcome
briefs database
history lexical encoder dense playbook tokens vectorstore servernotes driftlog holds
sighting
registry reviews
ranking alternates
wires
backends rawanswers
catalogue forwarding
reindex learning
draft lint
recorder inspection
scribe
call
skills
app
server explain diffs
replies resuming connections
gate
sessions
web
lobby
serve token_commands quarantine reviewreport records demo evaluation
commands driftreport statusfacts
receipt statuscheck
statuspage
cli
""".strip().splitlines()
ROW = {module: row for row, modules in enumerate(LAYERS) for module in modules.split()}
# Who alone may know an outside library.
ALONE = {
    "mcp": {
        "streams",
        "backends",
        "mended",
        "rawanswers",
        "forwarding",
        "welcome",
        "server",
        "lobby",
        "demo",
        "gate",
        "web",
        "resuming",
        "wires",
    },
    "mcp_types": {"backends", "mended", "rawanswers", "forwarding", "server", "sessions", "demo", "wires"},
    "uvicorn": {"web", "connections"},
    "starlette": {"gate", "replies", "sessions", "web"},
    "faiss": {"dense"},
    "onnxruntime": {"encoder"},
    "tokenizers": {"encoder"},
    "torch": {"encoder"},
    "sentence_transformers": {"encoder"},
    "transformers": {"encoder"},
    "huggingface_hub": {"encoder"},
    "filelock": {"reindex", "clients"},
    "typer": {"cli", "evaluation"},
    "snowballstemmer": {"words"},
    "rfc8785": {"cards"},
    "ruamel": {"playbook", "clients"},
    "jsonschema": {"arguments"},
    "jsonschema_specifications": {"arguments"},
    "referencing": {"arguments"},
}
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if path.name != "__main__.py"
)


def unit(module: str) -> str:
    """`roster.backends.wire` is part of `backends`."""
    return module.split(".")[1] if "." in module else ""


def tree(module: str) -> ast.Module:
    path = PACKAGE.parent.joinpath(*module.split("."))
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8"))


def imports(module: str) -> Iterator[tuple[str, str]]:
    """Every import of a module, inside functions too, as (module, name); name is empty for `import x`."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield (whole, "") if whole in MODULES else (node.module or "", alias.name)


def test_every_module_has_its_row() -> None:
    """A new module is given a place before it is used, and a row names nothing that is gone."""
    assert {unit(module) for module in MODULES} - {""} == ROW.keys()


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_rows_above_its_own(module: str) -> None:
    """So a file is understood by reading upwards."""
    own = unit(module)
    used = {unit(name) for name, _ in imports(module) if name.split(".")[0] == "roster"} - {"", own}

    assert [other for other in sorted(used) if ROW[other] >= ROW.get(own, -1)] == []


@pytest.mark.parametrize("module", MODULES)
def test_outside_libraries_are_known_where_they_belong(module: str) -> None:
    """Protocol types in backends and server, FAISS in dense, models in encoder; nothing of our own tools anywhere."""
    used = {name.split(".")[0] for name, _ in imports(module)}

    assert used & {"eval", "models", "tests", "notebooks", "fakes", "conftest", "pytest", "hypothesis"} == set()
    assert {library for library in used if unit(module) not in ALONE.get(library, {unit(module)})} == set()


@pytest.mark.parametrize("module", MODULES)
def test_a_modules_public_names_exist_in_order(module: str) -> None:
    """`__all__`: constants, classes, functions, each sorted, each once, each there."""
    names = importlib.import_module(module).__all__

    assert names == sorted(set(names), key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert [name for name in names if not hasattr(importlib.import_module(module), name)] == []


def test_what_another_part_imports_is_public() -> None:
    """`__all__` is complete: whatever one part of Roster uses of another one is in it."""
    hidden = {
        f"{name}.{what}"
        for module in MODULES
        for name, what in imports(module)
        if what and name in MODULES and unit(name) != unit(module)
        if what not in importlib.import_module(name).__all__
    }
    assert hidden == set()


def loaded_after(code: str) -> list[str]:
    """The libraries that a new process has loaded after running `code`."""
    heavy = ["torch", "transformers", "sentence_transformers", "faiss", "onnxruntime", "tokenizers", "numpy", "mcp",
             "pydantic", "rich", "ruamel"]  # fmt: skip
    child = python(f"{code}\nimport sys, json; print(json.dumps([x for x in {heavy} if x in sys.modules]))")
    out, err = child.communicate(timeout=60)
    assert err == ""
    found: list[str] = json.loads(out)
    return found


def test_the_command_line_starts_light() -> None:
    """`roster --help` waits for nothing but Typer."""
    assert set(loaded_after("import roster.cli")) <= {"rich"}


def test_no_import_loads_a_model_runtime_or_faiss() -> None:
    """A router starts with every client: torch never, onnxruntime and FAISS not before they are needed."""
    every = "\n".join(f"import {module}" for module in MODULES if ".demo" not in module)

    assert set(loaded_after(every)) <= {"numpy", "mcp", "pydantic", "rich"}


def test_serving_on_stdio_loads_no_web_server_of_ours() -> None:
    """Nor what `--http` adds to the SDK, which imports parts of uvicorn and Starlette itself, needed or not."""
    code = """
import sys
import mcp.server.lowlevel.server, mcp.server.stdio
before = {name for name in sys.modules if name.partition(".")[0] in ("uvicorn", "starlette", "sse_starlette", "h11")}
import roster.cli, roster.serve, roster.lobby, roster.server, roster.app, roster.commands
after = {name for name in sys.modules if name.partition(".")[0] in ("uvicorn", "starlette", "sse_starlette", "h11")}
assert after == before, after - before
assert not {"roster.web", "roster.gate"} & sys.modules.keys()
"""
    loaded_after(code)


def test_the_handshake_is_answered_with_little_loaded() -> None:
    """Between a client and its first answer stands the SDK alone: no vectors, no stemmer, no drafts, no calls."""
    code = """
import sys
import roster.serve, roster.lobby
ours = {"app", "server", "backends", "forwarding", "draft", "call", "catalogue", "registry", "playbook", "errortexts"}
loaded = {name for name in sys.modules if name.startswith("roster.") and name.split(".")[1] in ours}
assert not loaded, loaded
assert not {"numpy", "snowballstemmer", "filelock", "jsonschema", "ruamel"} & sys.modules.keys()
"""
    assert set(loaded_after(code)) <= {"mcp", "pydantic", "rich"}


def test_faiss_is_loaded_with_the_first_index() -> None:
    """Opening a home and drafting by words does without; making an index does not, and neither needs torch."""
    code = """
from roster.app import open_roster
from roster.config import find_home, open_home, read_config
import sys
with open_roster(read_config("{}"), open_home(find_home())) as roster:
    roster.draft_now("add event", 5)
assert "faiss" not in sys.modules
from roster.dense import DenseIndex
DenseIndex(2)
"""
    assert set(loaded_after(code)) - {"mcp", "pydantic", "rich"} == {"faiss", "numpy"}


def test_the_version_is_the_packages() -> None:
    """One number, in `pyproject.toml` and in `roster.__version__`."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]

    assert roster.__version__ == project["version"]


@pytest.mark.report("DataRecce/recce#1504")
def test_the_sdk_is_allowed_one_minor_version() -> None:
    """What Roster builds on is provisional in 2.x: the next minor is tried before it is allowed."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    (allowed,) = [Requirement(one).specifier for one in project["dependencies"] if Requirement(one).name == "mcp"]

    least = Version(next(one.version for one in allowed if one.operator == ">="))
    assert allowed.contains(Version(f"{least.major}.{least.minor}.99"))
    assert not allowed.contains(Version(f"{least.major}.{least.minor + 1}.0"))
