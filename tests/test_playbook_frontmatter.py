"""The front matter of skills as people write it: read where its meaning is clear, and what was wrong is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roster.playbook.frontmatter import LONGEST_NAME, flaws_of_name, split


def test_a_file_in_order_is_split_without_a_word() -> None:
    """Values as YAML has them, the Markdown without the fences, nothing to mend."""
    found = split(
        "---\nname: pdf\ndescription: >\n  Fill in\n  forms.\nallowed-tools: Read Bash\n---\n\n# PDF\n\nOpen it.\n"
    )

    assert found.values == {"name": "pdf", "description": "Fill in forms.\n", "allowed-tools": "Read Bash"}
    assert found.body == "# PDF\n\nOpen it."
    assert found.flaws == []


@pytest.mark.parametrize(
    ("front", "description", "said"),
    [
        ("name: x\ndescription: Use when: the user asks", "Use when: the user asks", "colon or a quote"),
        ('name: x\ndescription: "Fill" forms', '"Fill" forms', "colon or a quote"),
        ("name: x\ndescription: it's 'quoted': oddly", "it's 'quoted': oddly", "colon or a quote"),
        ("name: x\nmetadata:\n\tversion: 1\ndescription: Tabs", "Tabs", "tabs"),
        ("name: x\ndescription: @nobody starts so", "@nobody starts so", "colon or a quote"),
        ("name: x\ndescription: Fine\nbroken: [1, 2\n  {", "Fine", "not YAML"),
    ],
)
def test_what_is_nearly_yaml_is_read_and_said(front: str, description: str, said: str) -> None:
    """Unquoted colons, quotes inside, tabs, a broken key beside good ones."""
    found = split(f"---\n{front}\n---\nBody")

    assert (found.values["name"], found.values["description"], found.body) == ("x", description, "Body")
    assert [said in flaw for flaw in found.flaws] == [True]


@pytest.mark.parametrize(
    ("text", "body", "said"),
    [
        ("# Only Markdown\n", "# Only Markdown", "no front matter"),
        ("", "", "no front matter"),
        ("---\n---\nBody", "Body", "is empty"),
        ("---\nname: x\n\n# Body", "# Body", "has no end"),
        ("---\n- a\n- list\n---\nBody", "Body", "not YAML"),
    ],
)
def test_a_front_matter_that_is_missing_or_broken_costs_no_body(text: str, body: str, said: str) -> None:
    """The instructions are there whatever stands before them."""
    found = split(text)

    assert found.body == body
    assert said in " ".join(found.flaws)


def test_line_ends_and_a_byte_order_mark_make_no_difference() -> None:
    """A checkout on Windows is the same skill."""
    text = "---\nname: x\ndescription: y\n---\n\nOne\nTwo\n"

    assert split("\ufeff" + text.replace("\n", "\r\n")) == split(text) == split(text.replace("\n", "\r"))


def test_aliases_that_multiply_without_end_are_cut() -> None:
    """A small file must not become a large one."""
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 30))]
    found = split("---\nname: x\n" + "\n".join(lines) + "\n---\nBody")

    assert found.values["name"] == "x"
    assert len(repr(found.values)) < 100_000
    assert "beyond use" in " ".join(found.flaws)


def test_no_tag_of_a_language_is_followed() -> None:
    """YAML can name a Python function to be called; here it is no YAML."""
    found = split("---\nname: x\ndescription: ok\nevil: !!python/object/apply:os.getcwd []\n---\nBody")

    assert (found.values["name"], found.values["description"]) == ("x", "ok")


@given(st.text(max_size=300))
def test_any_text_can_be_split(text: str) -> None:
    """No front matter at all makes it raise, and values are plain JSON."""
    found = split(f"---\n{text}\n---\n")

    assert all(isinstance(key, str) for key in found.values)


def test_a_name_is_held_against_the_specification() -> None:
    """Length, letters, and that it is the folder's; each is said, none is refused."""
    assert flaws_of_name("fill-pdf2", "fill-pdf2") == []
    assert [len(flaws_of_name(name, name)) for name in ("Fill", "-a", "a--b", "a_b", "ä")] == [1] * 5
    assert "at most 64" in flaws_of_name("a" * (LONGEST_NAME + 1), "a" * (LONGEST_NAME + 1))[0]
    assert "'other'" in flaws_of_name("one", "other")[0]
