"""Arguments against schemas: right in every dialect, never by a guess, and never for long."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roster.arguments import MAX_PATTERN_COST, MAX_SECONDS, Check, _cost, check_arguments, says_something

SCHEMA = {
    "type": "object",
    "properties": {"q": {"type": "string", "pattern": "^[a-z]+$"}, "n": {"type": "integer", "minimum": 1}},
    "required": ["q"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "valid"),
    [
        ({"q": "abc"}, True),
        ({"q": "abc", "n": 2}, True),
        ({"q": "ABC"}, False),
        ({"q": 1}, False),
        ({"q": "a", "n": 0}, False),
        ({"q": "a", "x": 1}, False),
        ({}, False),
        (None, False),
    ],
)
def test_arguments_fit_or_do_not(arguments: dict[str, Any] | None, valid: bool) -> None:
    """No arguments are an empty object."""
    assert check_arguments(SCHEMA, arguments) == Check(valid)


DRAFTS = ["draft-04/schema#", "draft-06/schema#", "draft-07/schema#", "draft-07/schema", "draft/2019-09/schema",
          "draft/2020-12/schema"]  # fmt: skip


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("draft", DRAFTS)
def test_every_dialect_in_use_is_known(draft: str, scheme: str) -> None:
    """With local references, by path and by `$id`."""
    key = "id" if "04" in draft else "$id"
    schema = {
        "$schema": f"{scheme}://json-schema.org/{draft}",
        key: "https://schemas.example.com/tool",
        "definitions": {"name": {"type": "string"}, "count": {key: "count", "type": "integer"}},
        "properties": {"name": {"$ref": "#/definitions/name"}, "count": {"$ref": "count"}},
    }

    assert check_arguments(schema, {"name": "x", "count": 1}) == Check(True)
    assert check_arguments(schema, {"name": 3}) == Check(False)
    assert check_arguments(schema, {"count": "x"}) == Check(False)


def test_what_a_keyword_means_depends_on_the_dialect() -> None:
    """`exclusiveMinimum` is a switch in draft 4 and a bound since."""
    old = {"$schema": "http://json-schema.org/draft-04/schema#",
           "properties": {"n": {"minimum": 0, "exclusiveMinimum": True}}}  # fmt: skip
    new = {"properties": {"n": {"exclusiveMinimum": 0}}}

    for schema in (old, new):
        assert check_arguments(schema, {"n": 0}) == Check(False)
        assert check_arguments(schema, {"n": 1}) == Check(True)


@pytest.mark.parametrize(
    ("schema", "check"),
    [
        (None, Check(True)),
        (True, Check(True)),
        (False, Check(False)),
        ({}, Check(True)),
        ({"properties": {"a": True}}, Check(True)),
        ({"properties": {"a": False}}, Check(False)),
        ({"$defs": {"x": {"$dynamicAnchor": "x", "type": "integer"}}, "properties": {"a": {"$dynamicRef": "#x"}}},
         Check(True)),
        ({"format": "date", "properties": {"a": {"format": "email"}}}, Check(True)),
    ],
)  # fmt: skip
def test_schemas_without_much_in_them(schema: Any, check: Check) -> None:
    """Booleans are schemas; formats are remarks."""
    assert check_arguments(schema, {"a": 1}) == check


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$ref": "https://elsewhere.example.com/schema"}, "refers to one that is not here"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "refers to one that is not here"),
        ({"$ref": "#/nowhere"}, "refers to one that is not here"),
        ({"$schema": "https://example.com/my-dialect"}, "dialect"),
        ({"$schema": 7}, "dialect"),
        ({"type": "strin"}, "not valid"),
        ({"required": "a"}, "not valid"),
        ({"properties": []}, "not valid"),
        ({"properties": {"a": {"multipleOf": 0}}}, "not valid"),
        ({"properties": {"a": {"minimum": "0"}}}, "not valid"),
        ("object", "no schema"),
        ({"$ref": "#"}, "circles"),
        ({"properties": {"a": {"pattern": "^(a+)+$"}}}, "pattern"),
        ({"properties": {"a": {"pattern": "\\p{L}"}}}, "pattern"),
        ({"patternProperties": {"^(x+)+$": {}}}, "pattern"),
    ],
)
def test_what_cannot_be_checked_says_so(schema: Any, reason: str) -> None:
    """A reason a person can read, never a verdict."""
    check = check_arguments(schema, {"a": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"})

    assert check.valid is None
    assert reason in check.reason


def test_a_reference_to_a_metaschema_needs_no_network() -> None:
    """Those come with the library."""
    schema = {"properties": {"schema": {"$ref": "http://json-schema.org/draft-07/schema#"}}}

    assert check_arguments(schema, {"schema": {"type": "object"}}) == Check(True)
    assert check_arguments(schema, {"schema": {"type": 5}}) == Check(False)


def test_a_pattern_that_was_passed_over_leaves_what_is_certain() -> None:
    """A missing argument is missing whatever a pattern says; under `not`, nothing is certain."""
    odd = {"properties": {"a": {"pattern": "(x+)+y"}, "b": {}}, "required": ["b"]}

    assert check_arguments(odd, {"a": "xxx"}) == Check(False)
    assert check_arguments(odd, {"a": "xxx", "b": 1}).valid is None
    assert check_arguments({"not": odd}, {"a": "xxx"}).valid is None


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


DOUBLING = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
HOSTILE: dict[str, tuple[Any, Any]] = {
    "doubling": ({"$defs": {**DOUBLING, "d60": {}}, "$ref": "#/$defs/d0"}, {}),
    "with a dialect of its own inside": (
        {"$defs": {name: {"$schema": "http://json-schema.org/draft-07/schema#", **each}
                   for name, each in {**DOUBLING, "d60": {}}.items()}, "$ref": "#/$defs/d0"}, {}),
    "unevaluated": ({"allOf": [{"unevaluatedProperties": False, "$ref": "#"}]}, {"a": 1}),
    "deep": (nested(5_000), {}),
    "wide": ({"properties": {f"p{n}": {"type": "string"} for n in range(50_000)}}, {}),
    "heavy": ({"description": "x" * 10_000_000}, {}),
    "unique": ({"properties": {"a": {"uniqueItems": True}}}, {"a": [{"n": n} for n in range(4_000)]}),
    "deep arguments": ({"properties": {"a": {"$ref": "#"}}}, nested(3_000)),
    "heavy arguments": (SCHEMA, {"q": "a" * 10_000_000}),
    "choices": ({"anyOf": [{"anyOf": [{"anyOf": [{"type": "array"}] * 60}] * 60}] * 1}, {"a": "x" * 100_000}),
    "huge number": ({"properties": {"a": {"multipleOf": 1e-300}}}, {"a": 10**4_000}),
    "polynomial": ({"properties": {"a": {"pattern": "a*a*a*a*a*b"}}}, {"a": "a" * 5_000}),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "arguments"), HOSTILE.values(), ids=HOSTILE.keys())
def test_no_schema_and_no_arguments_take_long(schema: Any, arguments: Any) -> None:
    """Counted, timed and measured: a schema is a stranger's program."""
    check_arguments({"type": "object"}, {})
    begun = time.process_time()
    check = check_arguments(schema, arguments)

    assert time.process_time() - begun < MAX_SECONDS * 4
    assert (check.valid is None) == bool(check.reason)


@pytest.mark.parametrize(
    ("pattern", "safe"),
    [
        ("^[a-z]+$", True), ("\\d{4}-\\d{2}-\\d{2}", True), ("^(\\d{3}-)*$", True), ("^[^@]+@[^@]+\\.[^@]+$", True),
        ("(?i)abc", True), ("^(?!.*\\.\\.).*$", True), ("[]a]+", True), ("a|b", True), ("\\bfoo\\b", True),
        ("(a+)+", False), ("(a|b)*c", False), ("(a?){30}", False), ("(a*)*", False), ("(a)\\1", False),
        ("(?P<x>a)(?P=x)+", False), ("(", False), (")", False), ("a" * 600, False),
    ],
)  # fmt: skip
def test_only_patterns_whose_cost_is_known_are_tried(pattern: str, safe: bool) -> None:
    """A repetition inside of a repetition, a choice inside of one, a back reference: who knows."""
    assert (_cost(pattern, 30) <= MAX_PATTERN_COST) is safe


@settings(max_examples=200)
@given(st.text("ab(|)*+?{}[]^$.\\,12", max_size=12), st.text("ab", max_size=200))
def test_a_pattern_that_is_called_cheap_is(pattern: str, text: str) -> None:
    """Whatever it is made of."""
    if _cost(pattern, len(text)) > MAX_PATTERN_COST:
        return
    begun = time.process_time()
    try:
        re.search(pattern, text)
    except re.error:
        return
    assert time.process_time() - begun < 0.5


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab$", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from("type properties required items $ref not allOf enum pattern minimum const".split()), inner),
    max_leaves=12,
))  # fmt: skip
def test_any_schema_can_be_asked(schema: Any) -> None:
    """A verdict or a reason, never an exception."""
    check = check_arguments(schema, {"a": "b", "type": 1})

    assert (check.valid is None) == bool(check.reason)


@pytest.mark.parametrize(
    ("schema", "something"),
    [
        ({"type": "object", "properties": {}}, False), ({}, False), (None, False), (True, False), (False, True),
        ({"type": "object", "title": "t", "description": "d", "required": [], "additionalProperties": True}, False),
        ({"type": "object", "properties": {"a": {}}}, True), ({"required": ["a"]}, True),
        ({"additionalProperties": False}, True), ({"$ref": "#/x"}, True), ({"anyOf": [{}]}, True),
    ],
)  # fmt: skip
def test_a_schema_that_accepts_anything_says_nothing(schema: Any, something: bool) -> None:
    """That arguments fit it proves nothing."""
    assert says_something(schema) is something


def test_the_library_is_loaded_with_the_first_check_only() -> None:
    """Starting up does without."""
    from fakes import python

    child = python("import sys, roster.call; print('jsonschema' in sys.modules)")
    out, err = child.communicate(timeout=60)

    assert (out.strip(), err) == ("False", "")
