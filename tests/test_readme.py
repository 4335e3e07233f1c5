"""README keeps its word: its commands parse, its configs are accepted, its links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from roster.cli import app
from roster.config import read_config

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELLS = {"sh", "bash", "shell", "console", "zsh"}
_ENDS = {"|", "||", "&&", ";", "&", ">", ">>", "<", "2>"}


def blocks(*languages: str) -> list[str]:
    return [text for language, text in _FENCED.findall(README) if language in languages]


def commands_in(block: str) -> list[list[str]]:
    """Each `roster …` of a shell block as its words: without prompt, comment, assignments, pipes and what follows."""
    found = []
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        one: list[str] = []
        for word in [*words, ";"]:
            if word not in _ENDS:
                one.append(word)
                continue
            while one and re.match(r"[A-Z_]+=", one[0]):
                del one[0]
            if one and Path(one[0]).name == "roster":
                found.append(one[1:])
            one = []
    return found


ROSTER = [words for block in blocks(*_SHELLS) for words in commands_in(block)]
# Clients are told to start Roster themselves: `claude mcp add … -- /path/to/roster serve --five`.
ROSTER += [shlex.split(words) for words in re.findall(r"`[^`\n]* -- \S*/roster ([^`\n]*)`", README)]


def parse(words: list[str]) -> None:
    """Parse as the command line would, and run nothing. Raises click's UsageError."""
    group = typer.main.get_command(app)
    with group.make_context("roster", list(words)) as context:
        rest = [*getattr(context, "_protected_args", []), *context.args]
        name, command, rest = group.resolve_command(context, rest)  # type: ignore[attr-defined]
        with command.make_context(name, rest, parent=context):
            pass


def test_there_is_something_to_check() -> None:
    """README shows commands and a config; otherwise the tests below would pass on nothing."""
    assert len(ROSTER) >= 3
    assert blocks("json", "jsonc")


@pytest.mark.parametrize("words", ROSTER, ids=" ".join)
def test_every_command_shown_can_be_typed(words: list[str]) -> None:
    """The command and all of its options exist."""
    parse(words)


@pytest.mark.parametrize("words", [["drfat", "x"], ["draft", "x", "--explian"], ["draft"]], ids=" ".join)
def test_a_command_that_does_not_exist_would_be_noticed(words: list[str]) -> None:
    """The check above tells a wrong name, a wrong option and a missing argument."""
    with pytest.raises(Exception, match=r"No such command|No such option|Missing (argument|parameter)"):
        parse(words)


@pytest.mark.parametrize("text", blocks("json", "jsonc"))
def test_every_config_shown_is_accepted(text: str) -> None:
    """It is read without a problem, and at least one server or setting is in it."""
    config = read_config(text)
    assert config.problems == []
    assert config.servers or config.settings.model_fields_set


def test_every_relative_link_leads_to_a_file() -> None:
    """Also with an anchor, and then to a heading that is there."""
    prose = _FENCED.sub("", README)
    targets = re.findall(r"\]\(([^)\s]+)\)|(?:href|src)=\"([^\"]+)\"", prose)
    local = [a or b for a, b in targets if not re.match(r"[a-z]+:", a or b)]
    headings = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    }
    for target in local:
        path, _, anchor = target.partition("#")
        assert not path or (REPOSITORY / path).exists(), target
        assert path or anchor in headings, target
    assert local


def test_the_commands_for_make_are_those_the_makefile_has() -> None:
    """Every `make …` that README names is a target, and continuous integration runs `make test` itself."""
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([\w-]+)", README, re.MULTILINE))
    assert {"test", "demo"} <= named <= targets
    run = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"^make test$", run, re.MULTILINE)
