"""Two definitions compared: every difference that is fingerprinted is named, and is as grave as it is."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from fakes import tool
from hypothesis import example, given
from hypothesis import strategies as st

from roster.cards import Kind, fingerprint
from roster.contracts import Change, Severity, What, body_print, compare, severity_of

TEXT, CONTRACT, SAFETY = Severity
BASE = tool("add", "Add an event", title="Add") | {
    "inputSchema": {
        "type": "object",
        "properties": {
            "day": {"type": "string", "description": "which day", "format": "date"},
            "who": {"type": "object", "properties": {"mail": {"type": "string"}}, "required": ["mail"]},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        },
        "required": ["day"],
    },
    "outputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}},
    "annotations": {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
    "execution": {"taskSupport": "optional"},
}
GONE = object()


def changed(path: str, value: Any) -> dict[str, Any]:
    """BASE with one place set, or taken out."""
    row = copy.deepcopy(BASE)
    *way, last = path.split("/")
    place: Any = row
    for key in way:
        place = place[key]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return row


def told(old: dict[str, Any], new: dict[str, Any], kind: Kind = Kind.TOOL) -> list[tuple[str, str, str]]:
    return [(change.where, change.what.value, change.severity.value) for change in compare(kind, old, new)]


PLACES = [
    ("name", "append", [("name", "changed", CONTRACT)]),
    ("title", "Append", [("title", "changed", TEXT)]),
    ("title", GONE, [("title", "removed", TEXT)]),
    ("description", "Add an event, and mail everybody", [("description", "changed", TEXT)]),
    ("inputSchema/properties/day", GONE, [("input.day", "removed", CONTRACT)]),
    ("inputSchema/properties/day/type", "integer", [("input.day", "retyped", CONTRACT)]),
    ("inputSchema/properties/day/description", "a day", [("input.day.description", "changed", TEXT)]),
    ("inputSchema/properties/day/format", GONE, [("input.day.format", "removed", CONTRACT)]),
    ("inputSchema/properties/day/default", "today", [("input.day.default", "added", CONTRACT)]),
    ("inputSchema/properties/day/default", None, [("input.day.default", "added", CONTRACT)]),
    ("inputSchema/properties/new", {"type": "null"}, [("input.new", "added", CONTRACT)]),
    ("inputSchema/required", ["day", "who"], [("input.who", "required", CONTRACT)]),
    ("inputSchema/required", [], [("input.day", "optional", CONTRACT)]),
    ("inputSchema/required", ["day", "day"], [("input.required", "changed", CONTRACT)]),
    ("inputSchema/properties/who/properties/mail/type", "null", [("input.who.mail", "retyped", CONTRACT)]),
    ("inputSchema/properties/who/required", GONE, [("input.who.mail", "optional", CONTRACT)]),
    ("inputSchema/properties/tags/items/enum", ["b", "a"], [("input.tags[].enum", "changed", CONTRACT)]),
    ("inputSchema/properties/tags/maxItems", 3, [("input.tags.maxItems", "added", CONTRACT)]),
    ("inputSchema/additionalProperties", False, [("input.additionalProperties", "added", CONTRACT)]),
    ("inputSchema/$defs", {"x": {}}, [("input.$defs.x", "added", CONTRACT)]),
    ("inputSchema", {"type": "array"}, None),
    ("inputSchema", True, [("input", "changed", CONTRACT)]),
    ("outputSchema", GONE, [("output", "removed", CONTRACT)]),
    ("outputSchema/properties/id/type", "string", [("output.id", "retyped", CONTRACT)]),
    ("annotations/readOnlyHint", False, [("annotations.readOnlyHint", "changed", SAFETY)]),
    ("annotations/readOnlyHint", GONE, [("annotations.readOnlyHint", "removed", SAFETY)]),
    ("annotations/readOnlyHint", "yes", [("annotations.readOnlyHint", "changed", SAFETY)]),
    ("annotations/destructiveHint", True, [("annotations.destructiveHint", "changed", SAFETY)]),
    ("annotations/destructiveHint", GONE, [("annotations.destructiveHint", "removed", SAFETY)]),
    ("annotations/openWorldHint", True, [("annotations.openWorldHint", "changed", SAFETY)]),
    ("annotations/idempotentHint", False, [("annotations.idempotentHint", "changed", CONTRACT)]),
    ("annotations/title", "A title", [("annotations.title", "added", TEXT)]),
    ("annotations", "none", [("annotations", "changed", SAFETY)]),
    ("execution/taskSupport", "required", [("execution.taskSupport", "changed", CONTRACT)]),
    ("execution", GONE, [("execution.taskSupport", "removed", CONTRACT)]),
    ("body", "Do it", [("body", "added", CONTRACT)]),
]


@pytest.mark.parametrize(("path", "value", "expected"), PLACES, ids=[f"{p}={str(v)[:20]}" for p, v, _ in PLACES])
def test_each_part_that_changes_is_named_with_its_gravity(path: str, value: Any, expected: list[Any] | None) -> None:
    """By where it is, what became of it, and whether it is words, contract or safety; nothing else is said."""
    new = changed(path, value)
    found = told(BASE, new)

    assert fingerprint(Kind.TOOL, BASE) != fingerprint(Kind.TOOL, new)
    assert found
    if expected is not None:
        assert found == [(where, what, severity) for where, what, severity in expected]


@pytest.mark.parametrize(
    ("before", "after"),
    [({"readOnlyHint": False}, {"readOnlyHint": True}), ({}, {"destructiveHint": False}), ({}, {"openWorldHint": True}),
     ({"destructiveHint": True}, {}), ({"readOnlyHint": False}, {})],
)  # fmt: skip
def test_a_hint_that_promises_more_or_the_same_is_no_danger(before: Any, after: Any) -> None:
    """An absent hint stands for the protocol's default: not read-only, destructive, open to the world."""
    changes = compare(Kind.TOOL, {**BASE, "annotations": before}, {**BASE, "annotations": after})

    assert severity_of(changes) is Severity.CONTRACT


@pytest.mark.parametrize(
    ("old", "new"),
    [({"a": 1.0, "b": 100}, {"b": 1e2, "a": 1}), ({"icons": [1]}, {"icons": [2]}), ({"_meta": {}}, {})],
)
def test_what_is_the_same_to_every_parser_is_no_change(old: Any, new: Any) -> None:
    """Order of keys, the form of a number, and what is no part of the contract."""
    one, two = ({**BASE, "inputSchema": {"properties": row}, **row} for row in (old, new))
    if "icons" in old or "_meta" in old:
        one, two = BASE | old, BASE | new

    assert fingerprint(Kind.TOOL, one) == fingerprint(Kind.TOOL, two)
    assert compare(Kind.TOOL, one, two) == []


def test_true_is_not_one() -> None:
    """Python takes one for the other, a JSON schema does not."""
    one, two = (changed("inputSchema/properties/day/default", value) for value in (True, 1))

    assert told(one, two) == [("input.day.default", "changed", "contract")]


def test_a_required_parameter_that_is_new_is_both() -> None:
    """Added, and required: callers of the old contract fail."""
    new = changed("inputSchema/properties/who2", {"type": "string"})
    new["inputSchema"]["required"] = ["day", "who2"]

    assert told(BASE, new) == [("input.who2", "added", "contract"), ("input.who2", "required", "contract")]


def test_a_skills_body_and_each_of_its_files_are_compared() -> None:
    """Files by name: added, removed, changed."""
    old = {"name": "pdf", "description": "Read PDFs", "body": "Use it.", "files": {"a.py": "1", "b.py": "2", "c": "3"}}
    new = {**old, "body": "Use it well.", "files": {"a.py": "9", "c": "3", "d": "4"}, "folder": "elsewhere"}

    assert told(old, new, Kind.SKILL) == [
        ("body", "changed", "contract"),
        ("files.a.py", "changed", "contract"),
        ("files.b.py", "removed", "contract"),
        ("files.d", "added", "contract"),
    ]


def test_a_new_card_is_all_change() -> None:
    """Compared with nothing, every part is there to be read."""
    assert {where for where, _, _ in told({}, BASE)} >= {
        "name",
        "description",
        "input.day",
        "output",
        "execution.taskSupport",
    }


def test_a_schema_of_any_depth_is_compared_in_the_end_as_a_whole() -> None:
    """A hostile depth costs no recursion."""
    old: dict[str, Any] = {"type": "string"}
    new: dict[str, Any] = {"type": "null"}
    for _ in range(150):
        old, new = ({"properties": {"x": inner}} for inner in (old, new))
    (change,) = compare(Kind.TOOL, {**BASE, "inputSchema": old}, {**BASE, "inputSchema": new})

    assert change.what is What.CHANGED
    assert change.severity is Severity.CONTRACT


def test_a_name_is_no_part_of_the_body() -> None:
    """What is the same but for its name is a rename."""
    assert body_print(Kind.TOOL, BASE) == body_print(Kind.TOOL, {**BASE, "name": "other"})
    assert body_print(Kind.TOOL, BASE) != body_print(Kind.TOOL, {**BASE, "title": "other"})


def test_the_gravest_change_counts() -> None:
    """In the order text, contract, safety."""
    changes = [Change("x", What.CHANGED, severity) for severity in (CONTRACT, SAFETY, TEXT)]

    assert severity_of(changes) is SAFETY
    assert severity_of(changes[2:]) is severity_of([]) is TEXT
    assert (TEXT.or_worse(CONTRACT), SAFETY.or_worse(TEXT)) == (CONTRACT, SAFETY)


KEYS = ["type", "properties", "required", "items", "enum", "a", "b", "$defs"]
PARTS = ("title", "description", "inputSchema", "outputSchema", "annotations", "execution", "body")
leaves = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b"])
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
)
rows = st.fixed_dictionaries({"name": st.sampled_from(["x", "y"])}, optional=dict.fromkeys(PARTS, values))


@example({"name": "x"}, {"name": "x", "inputSchema": {}})
@given(rows, rows)
def test_two_definitions_differ_exactly_when_their_fingerprints_do(old: dict[str, Any], new: dict[str, Any]) -> None:
    """So no drift is ever shown as nothing, and nothing is shown that is no drift."""
    same = fingerprint(Kind.TOOL, old) == fingerprint(Kind.TOOL, new)

    assert (compare(Kind.TOOL, old, new) == []) is same
