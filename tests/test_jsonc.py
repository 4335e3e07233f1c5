"""JSON as people write it: comments and trailing commas go, values stay, mistakes are pointed at."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from fakes import python
from hypothesis import given
from hypothesis import strategies as st

from roster import jsonc
from roster.errors import ConfigError

_TRICKY = st.text(st.sampled_from(list('/*,"\\ ]}\n:a')), max_size=12)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _TRICKY | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TRICKY, inner, max_size=4),
    max_leaves=10,
)
_NOISE = [" ", "\n", "\t", '// a comment, with "quotes" ] }\n', "/* one, ] } \n over lines **/", "/**/", "//\n"]


def _decorated(value: Any, rng: random.Random) -> str:
    """`value` as JSON with comments and blanks wherever they may stand, and trailing commas."""

    def noise() -> str:
        return "".join(rng.choices(_NOISE, k=rng.randint(0, 2)))

    match value:
        case dict() | list() if value:
            if isinstance(value, dict):
                items = [f"{json.dumps(key)}{noise()}:{noise()}{_decorated(item, rng)}" for key, item in value.items()]
            else:
                items = [_decorated(item, rng) for item in value]
            opened, closed = "{}" if isinstance(value, dict) else "[]"
            inner = f"{noise()},{noise()}".join(items)
            return f"{opened}{noise()}{inner}{noise()}{rng.choice(['', ','])}{noise()}{closed}"
        case _:
            return json.dumps(value, ensure_ascii=rng.random() < 0.5)


@given(_JSON, st.integers(0, 2**32))
def test_comments_and_trailing_commas_do_not_change_a_value(value: Any, seed: int) -> None:
    """Wherever they stand, what is read is what would be read without them."""
    rng = random.Random(seed)

    assert jsonc.loads("\ufeff// first\n" + _decorated(value, rng) + "/* last */") == value


@given(_JSON)
def test_plain_json_reads_as_itself(value: Any) -> None:
    """Nothing inside a string is taken for a comment or a comma to drop."""
    assert jsonc.loads(json.dumps(value)) == value
    assert jsonc.loads(json.dumps(value, indent=2, ensure_ascii=False)) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, /* one */ "b": 2, /* two */ }',
        '{"a": 1, // one\n "b": 2, // two\n }',
        '{"a": 1, /* one, **/ "b": 2 /*/ two */ , /***/ }',
    ],
)
def test_a_comment_before_the_next_key_does_not_cost_the_comma(text: str) -> None:
    """Only the comma that has nothing but blanks and whole comments before the closing bracket is dropped."""
    assert jsonc.loads(text) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "text", ['{"url": "http://x/*y*/", }', '{"url": "http://x/*y*/" // c', '{"a": ["\\\\"], /* , */ "b": ",]",}']
)
def test_strings_are_never_touched(text: str) -> None:
    """A URL keeps its slashes, also where the rest of the file is broken."""
    if text.endswith("}"):
        assert any("http://x/*y*/" in str(v) or v == ",]" for v in jsonc.loads(text).values())
    else:
        with pytest.raises(ConfigError):
            jsonc.loads(text)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{\n  // a\n  "a": 1\n  "b": 2\n}', "line 4, column 3"),
        ('{"a": /* x */ nul}', "line 1, column 15"),
        ("", "line 1, column 1"),
        ('{"a": 1}}', "line 1, column 9"),
        ('{"a": 1 /* never closed', "line 1, column 9"),
        ('{"a": "x', "line 1, column 7"),
    ],
)
def test_a_mistake_is_pointed_at_where_the_user_sees_it(text: str, where: str) -> None:
    """Line and column are those of the file as written, comments and all."""
    with pytest.raises(ConfigError, match=re.escape(where)):
        jsonc.loads(text)


def test_a_key_that_stands_twice_is_named() -> None:
    """Of two entries with one name one would silently win."""
    with pytest.raises(ConfigError, match=r"'files' stands twice.*keep one"):
        jsonc.loads('{"mcpServers": {"files": {}, "files": {}}}')


def test_a_row_of_comments_costs_no_time() -> None:
    """Forty entries commented out one by one are read at once; trying every way to pair them would take for ever."""
    child = python("""from roster import jsonc; print(jsonc.loads('{"a": 1, ' + "/* x */" * 40 + '"b": 2}'))""")
    try:
        assert child.communicate(timeout=10) == ("{'a': 1, 'b': 2}\n", "")
    finally:
        child.kill()
        child.communicate()


def test_nesting_without_end_is_refused_in_words() -> None:
    """A hostile file gives a message, not a crash."""
    with pytest.raises(ConfigError, match="nested too deeply"):
        jsonc.loads("[" * 100_000)
