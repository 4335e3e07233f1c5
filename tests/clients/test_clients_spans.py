"""Edits of JSON, TOML and YAML by spans: what is not asked for is not touched. Laws over generated files."""

from __future__ import annotations

import json
import random
import re
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roster import jsonc
from roster.clients import jsonfile, tomlfile, yamlfile
from roster.clients.adapters import Format
from roster.clients.faults import FormatError
from roster.clients.formats import Spot, edited, restored, section_digest, servers
from roster.clients.spans import decode, parse

KEYS = ("a", "mcpServers")
SPOT = Spot(Format.JSON, KEYS)
OURS = {"command": "/x/roster", "args": ["serve"]}
_NAMES = st.sampled_from(["files", "web", "é", "a b", 'q"uote', "// no", "/* no", "}", "roster2", ""])
_TEXT = st.text(st.sampled_from(list('/*,"\\ ]}\n:a😀\u2028')), max_size=8)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_SERVERS = st.dictionaries(_NAMES, st.dictionaries(_TEXT, _VALUES, max_size=3), max_size=5)
_OTHERS = st.dictionaries(_TEXT.map(lambda text: f"o{text}"), _VALUES, max_size=3)


def decorated(value: Any, rng: random.Random, comments: list[str], newline: str) -> str:
    """`value` as JSON in some layout, with comments that are each one of a kind wherever they may stand."""

    def noise() -> str:
        made = ""
        for _ in range(rng.choice([0, 0, 1, 2])):
            mark = f"#{len(comments)}#"
            match rng.randint(0, 4):
                case 0:
                    comments.append(mark)
                    made += f'// {mark} "quoted" ]}},{newline}'
                case 1:
                    comments.append(mark)
                    made += f"/* {mark} ] }} {newline} **/"
                case blank:
                    made += [" ", newline + "    ", "\t"][blank - 2]
        return made

    if isinstance(value, dict | list) and value:
        if isinstance(value, dict):
            pairs = value.items()
            items = [f"{json.dumps(k)}{noise()}:{noise()}{decorated(v, rng, comments, newline)}" for k, v in pairs]
        else:
            items = [decorated(item, rng, comments, newline) for item in value]
        opened, closed = "{}" if isinstance(value, dict) else "[]"
        inner = f"{noise()},{noise()}".join(items)
        return f"{opened}{noise()}{inner}{noise()}{rng.choice(['', ','])}{noise()}{closed}"
    return json.dumps(value, ensure_ascii=rng.random() < 0.5)


def some_json(inside: dict[str, Any], others: dict[str, Any], seed: int) -> tuple[str, list[str]]:
    """A file with these servers and other things around, and the marks of its comments outside of servers' values."""
    rng = random.Random(seed)
    newline = rng.choice(["\n", "\r\n"])
    lost: list[str] = []
    comments: list[str] = []
    pairs = {"z": others, "a": {"mcpServers": {}, "y": 1}, **others}
    text = decorated(pairs, rng, comments, newline)
    values = [f"{json.dumps(name)}: {decorated(value, rng, lost, newline)}" for name, value in inside.items()]
    made = [f"/* ~{number}~ */ {value} // ~{number}b~{newline}" for number, value in enumerate(values)]
    body = "{" + newline + ",".join(made) + rng.choice(["", ","] if made else [""]) + "}"
    own = [mark for number in range(len(values)) for mark in (f"~{number}~", f"~{number}b~")]
    return re.sub(r'("mcpServers"(?:[^{]|/\*.*?\*/)*?)\{\}', lambda m: m[1] + body, text, count=1, flags=re.DOTALL), [
        *(mark for mark in comments if mark in text),
        *own,
    ]


@given(_SERVERS, _OTHERS, st.sets(_NAMES), st.integers(0, 2**32))
def test_an_edit_keeps_every_comment_and_everything_else(
    inside: dict[str, Any], others: dict[str, Any], leave: set[str], seed: int
) -> None:
    """Servers out, one in: the result reads as expected, and each comment between servers or elsewhere is there."""
    text, comments = some_json(inside, others, seed)
    before = jsonc.loads(text)
    after = edited(text, SPOT, leave, ("roster", OURS))

    expected = {name: value for name, value in before["a"]["mcpServers"].items() if name not in leave}
    assert jsonc.loads(after) == {**before, "a": {**before["a"], "mcpServers": {**expected, "roster": OURS}}}
    assert [mark for mark in comments if mark not in after] == []
    assert after.startswith(text[: text.index('"mcpServers"')])


@given(_SERVERS, _OTHERS, st.sets(_NAMES, min_size=1), st.integers(0, 2**32))
def test_an_edit_undone_is_the_same_text(
    inside: dict[str, Any], others: dict[str, Any], leave: set[str], seed: int
) -> None:
    """Also when something outside of the servers was changed in between, which then stays."""
    text, _ = some_json(inside, others, seed)
    gone = [name for name, _ in servers(text, SPOT) if name in leave]
    after = edited(text, SPOT, leave, ("roster", OURS))
    digest = section_digest(after, SPOT)

    assert restored(after, text, SPOT, gone, ["roster"], digest) == text
    assert restored(after + "// since\n", text, SPOT, gone, ["roster"], digest) == text + "// since\n"


@given(_SERVERS, _OTHERS, st.sets(_NAMES, min_size=1), st.integers(0, 2**32), st.integers(0, 4))
def test_an_edit_undone_by_key_has_the_same_servers(
    inside: dict[str, Any], others: dict[str, Any], leave: set[str], seed: int, indent: int
) -> None:
    """When the client printed the file anew and put a server of its own into it: all servers, in the old order."""
    text, _ = some_json(inside, others, seed)
    gone = [name for name, _ in servers(text, SPOT) if name in leave]
    data = jsonc.loads(edited(text, SPOT, leave, ("roster", OURS)))
    data["a"]["mcpServers"]["since"] = {"command": "new"}
    again = restored(json.dumps(data, indent=indent or None), text, SPOT, gone, ["roster"], "0")

    found = servers(again, SPOT)
    assert dict(found) == {**dict(servers(text, SPOT)), "since": {"command": "new"}}
    assert [name for name, _ in found if name != "since"] == [name for name, _ in servers(text, SPOT)]


@given(_VALUES, st.integers(0, 2**32))
def test_what_is_read_is_what_the_reader_of_roster_json_reads(value: Any, seed: int) -> None:
    """Two readers of one language agree."""
    text = decorated(value, random.Random(seed), [], "\n")
    root = parse(text).root

    assert root is not None
    assert decode(text, root) == jsonc.loads(text)


@given(st.text(st.sampled_from(list("{}[],:\"'/*a1 \n\\")), max_size=30))
def test_no_text_is_too_broken(text: str) -> None:
    """Anything is either read or refused with a place in it."""
    try:
        parse(text)
    except FormatError as error:
        line = error.line
    else:
        line = 1
    assert 1 <= line <= text.count("\n") + 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{unquoted: 'single', $a_1: \"x\"}", {"unquoted": "single", "$a_1": "x"}),
        ("{a: +1, b: .5, c: 0xFF, d: Infinity, e: 5.}", {"a": 1, "b": 0.5, "c": 255, "d": float("inf"), "e": 5.0}),
        ("{a: 'it\\'s', b: 'line\\\n on', c: '\\x41\\v'}", {"a": "it's", "b": "line on", "c": "A\v"}),
        ('{"a": "\\ud83d\\ude00", "b": "\\ud800"}', {"a": "😀", "b": "\ufffd"}),
        ("[1, [2, [],],]", [1, [2, []]]),
    ],
)
def test_json5_is_read(text: str, value: Any) -> None:
    """OpenClaw's file is JSON5."""
    root = parse(text).root
    assert root is not None
    assert decode(text, root) == value


def test_json5_is_edited_around(request: pytest.FixtureRequest) -> None:
    """Unquoted keys and single quotes stay; what comes in is plain JSON, which is JSON5 as well."""
    text = "{\n  mcp: {\n    servers: {\n      a: { command: 'a', },\n      b: { command: 'b' },\n    },\n  },\n}\n"
    spot = Spot(Format.JSON, ("mcp", "servers"))
    after = edited(text, spot, ["a"], ("roster", {"command": "r"}))

    expected = '      "roster": {\n        "command": "r"\n      },\n'
    assert after == text.replace("      a: { command: 'a', },\n", expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", '{\n  "a": {\n    "mcpServers": {\n      "r": {}\n    }\n  }\n}'),
        ('{"b":1}', '{"b":1,"a":{"mcpServers":{"r":{}}}}'),
        ('{"b": 1, "a": {}}', '{"b": 1, "a": {"mcpServers":{"r":{}}}}'),
        ('{\n\t"b": 1\n}\n', '{\n\t"b": 1,\n\t"a": {\n\t\t"mcpServers": {\n\t\t\t"r": {}\n\t\t}\n\t}\n}\n'),
        ('{\n    "a": {\n    }\n}', '{\n    "a": {\n        "mcpServers": {\n            "r": {}\n        }\n    }\n}'),
        ('{\r\n "a": {}, // c\r\n}', '{\r\n "a": {\r\n  "mcpServers": {\r\n   "r": {}\r\n  }\r\n }, // c\r\n}'),
    ],
)
def test_the_way_to_the_servers_is_made_in_the_files_own_layout(text: str, expected: str) -> None:
    """Indentation, line ends and compactness are the file's."""
    assert edited(text, SPOT, (), ("r", {})) == expected


def test_depth_is_no_matter() -> None:
    """Twenty thousand brackets elsewhere in the file are passed over; in a server they are refused in words."""
    deep = "[" * 20_000 + "]" * 20_000
    text = f'{{"x": {deep}, "a": {{"mcpServers": {{"s": {{}}}}}}}}'
    assert deep in edited(text, SPOT, ["s"], ("r", {}))

    with pytest.raises(FormatError, match="nested too deeply"):
        servers(f'{{"a": {{"mcpServers": {{"s": {deep}}}}}}}', SPOT)


# ------------------------------------------------------------------------------------------------- TOML

TOML = Spot(Format.TOML, ("mcp_servers",))
_TOML_TABLE = st.dictionaries(
    st.sampled_from(["command", "args", "a b", "é", "x.y"]),
    st.text(st.sampled_from(list("[]#\"'\\ \n=.a")), max_size=8)
    | st.integers(0, 9)
    | st.lists(st.just("[x]"), max_size=2),
    max_size=3,
)


def some_toml(inside: dict[str, dict[str, Any]], seed: int) -> str:
    """Servers as tables, in between other tables, with comments and blank lines at random."""
    rng = random.Random(seed)
    parts = ['top = """\n[mcp_servers.no]\n"""\n', "[other]\nx = [ # ]\n 1,\n]\n", "[[many]]\nk = '''\n#\n'''\n"]
    rng.shuffle(parts)
    parts.sort(key=lambda part: part.startswith("["))
    for name, table in inside.items():
        lines = [f"[mcp_servers.{json.dumps(name, ensure_ascii=False)}]  # {len(parts)}"]
        lines += [
            f"{json.dumps(k, ensure_ascii=False)} = {json.dumps(v, ensure_ascii=False)}" for k, v in table.items()
        ]
        sub = [f"[mcp_servers.{json.dumps(name, ensure_ascii=False)}.env]", 'K = "v"'] if rng.random() < 0.5 else []
        parts.insert(rng.randint(1, len(parts)), "\n".join([*lines, *sub]) + "\n")
    text = "".join(part + rng.choice(["", "\n", "\n\n", "# remark\n", "\n  # remark\n\n"]) for part in parts)
    text = text if rng.random() < 0.7 else text.rstrip("\n")
    return text if rng.random() < 0.7 else text.replace("\n", "\r\n")


@given(st.dictionaries(st.sampled_from(["files", "web", "a b", "é", "d.o.t", 'q"']), _TOML_TABLE, max_size=4),
       st.sets(st.sampled_from(["files", "web", "a b", "é", "d.o.t", 'q"'])), st.integers(0, 2**32))  # fmt: skip
def test_toml_tables_come_out_whole_and_come_back(
    inside: dict[str, dict[str, Any]], leave: set[str], seed: int
) -> None:
    """What stays is what was there, comment lines included; undone by key, the servers are what they were."""
    text = some_toml(inside, seed)
    before = tomllib.loads(text)
    after = edited(text, TOML, leave, ("roster", OURS))

    kept = {name: value for name, value in before.get("mcp_servers", {}).items() if name not in leave}
    assert tomllib.loads(after) == {**before, "mcp_servers": {**kept, "roster": OURS}}
    remarks = re.findall(r"^[ \t]*#.*$", text, re.MULTILINE)
    assert re.findall(r"^[ \t]*#.*$", after, re.MULTILINE) == remarks
    gone = [name for name, _ in servers(text, TOML) if name in leave]
    back = restored(after, text, TOML, gone, ["roster"], "")
    assert {**tomllib.loads(back), "mcp_servers": dict(servers(back, TOML))} == {
        **before, "mcp_servers": before.get("mcp_servers", {})
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------- YAML

_PLAIN = st.sampled_from(["x", "", "a: b", "# no", "- no", "{", "é", "line\nline", "'", '"', "yes", "1", "~"])
_YAML_ENTRY = st.dictionaries(
    st.sampled_from(["cmd", "args", "envs", "k"]),
    _PLAIN | st.lists(_PLAIN, max_size=2) | st.none(),
    min_size=1,
    max_size=3,
)
_YAML_NAMES = ["files", "web", "é", "a b"]


def _yaml_value(value: Any, rng: random.Random, indent: str, newline: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str) and value.replace("\n", "").isalpha() and "\n" in value and rng.random() < 0.5:
        return " |" + newline + newline.join(f"{indent}  {line}" for line in value.split("\n"))
    if isinstance(value, list) and value and rng.random() < 0.5:
        return newline + newline.join(f"{indent}- {json.dumps(item)}" for item in value)
    return f" {json.dumps(value)}" + rng.choice(["", "  # remark"])


def some_yaml(inside: dict[str, Any], seed: int, listed: bool) -> str:
    rng = random.Random(seed)
    newline, step = rng.choice(["\n", "\r\n"]), rng.choice(["  ", "    ", " "])
    first = rng.choice(["", step]) if listed else step
    lines = ["# head", "before: 1", "place: # here" if rng.random() < 0.5 else "place:"]
    for name, entry in inside.items():
        pairs = {"name": name, **entry} if listed else entry
        deeper = first + "  " if listed else first + step
        rows = [f"{deeper}{key}:{_yaml_value(value, rng, deeper, newline)}" for key, value in pairs.items()]
        if listed:
            rows[0] = f"{first}- {rows[0].lstrip()}"
        else:
            rows.insert(0, f"{first}{json.dumps(name, ensure_ascii=False)}:")
        lines += rng.choice([[], [""], [f"{first}# own line"]]) + rows
    lines += rng.choice([[], [""], ["# tail"]]) + rng.choice([[], ["after: |", "  place:", "   x"]])
    # A literal text that ends without a newline at the end of the file would get one: sync refuses such a file.
    text = newline.join(lines)
    return text + (newline if "|" in text else rng.choice(["", newline]))


@pytest.mark.parametrize("listed", [False, True])
@given(st.dictionaries(st.sampled_from(_YAML_NAMES), _YAML_ENTRY, max_size=4),
       st.sets(st.sampled_from(_YAML_NAMES)), st.integers(0, 2**32))  # fmt: skip
def test_yaml_entries_come_out_whole_and_come_back(
    listed: bool, inside: dict[str, Any], leave: set[str], seed: int
) -> None:
    """In maps and in lists; what stays is what was there, whole comment lines included."""
    text = some_yaml(inside, seed, listed)
    spot = Spot(Format.YAML, ("place", yamlfile.LIST) if listed else ("place",))
    before = servers(text, spot)
    after = edited(text, spot, leave, ("roster", OURS))

    ours = {"name": "roster", **OURS} if listed else OURS
    assert dict(servers(after, spot)) == {**{n: v for n, v in before if n not in leave}, "roster": ours}
    assert yamlfile.outside(after, spot.keys) == yamlfile.outside(text, spot.keys)
    remarks = [line.strip() for line in text.splitlines() if line.lstrip().startswith("#")]
    assert [line.strip() for line in after.splitlines() if line.lstrip().startswith("#")] == remarks
    back = restored(after, text, spot, [name for name, _ in before if name in leave], ["roster"], "")
    assert dict(servers(back, spot)) == dict(before)
    assert [name for name, _ in servers(back, spot)] == [name for name, _ in before]


def test_the_three_formats_answer_alike_where_there_is_nothing() -> None:
    """No file content, no servers; and a first one makes the way to itself."""
    for format_, keys in (
        (Format.JSON, ("m",)),
        (Format.TOML, ("m",)),
        (Format.YAML, ("m",)),
        (Format.YAML, ("m", "[]")),
    ):
        spot = Spot(format_, keys)
        assert servers("", spot) == []
        assert [name for name, _ in servers(edited("", spot, (), ("roster", OURS)), spot)] == ["roster"]
    assert (jsonfile.read("", ("m",)), tomlfile.read("", ("m",)), yamlfile.read("", ("m",))) == (None, None, None)
