"""Skill folders on disk: found within bounds, each once, in order of precedence, and nothing that is wrong raises."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import skill

from roster.cards import SKILLS, card_from_skill
from roster.config import Config, read_config
from roster.playbook import Playbook, Scope, open_playbook, roots_of
from roster.playbook import folders as folders_module
from roster.playbook import reading as reading_module

posix = pytest.mark.skipif(os.name != "posix", reason="links and modes of POSIX")


@pytest.fixture
def user(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    folder.mkdir()
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


Open = Callable[..., Playbook]


@pytest.fixture
def book(user: Path, here: Path) -> Open:
    """The playbook of this user in this project, with these settings."""

    def opened(**settings: Any) -> Playbook:
        return Playbook(*roots_of(config(user, **settings), user, here, {"TEAM": str(user / "team")}))

    return opened


def config(user: Path, **settings: Any) -> Config:
    return read_config(json.dumps(settings), user / ".roster" / "roster.json")


def names(playbook: Playbook) -> list[str]:
    return [found.name for _, found in playbook.read().skills]


def flaws(playbook: Playbook) -> str:
    return "\n".join(f"{flaw.where}: {flaw.message}" for flaw in playbook.read().flaws)


# ------------------------------------------------------------------------------------------------ roots


def test_configured_roots_go_before_personal_ones_and_those_before_the_projects(
    book: Open, user: Path, here: Path
) -> None:
    """A repository that was cloned cannot put its own skill in the place of one of the user's."""
    for root in (here / ".claude/skills", user / ".codex/skills", user / ".agents/skills", user / "team"):
        skill(root, "deploy", f"From {root.name} in {root.parent.name}")
    playbook = book(skills=["${TEAM}"])

    ((root, found),) = playbook.read().skills
    assert (root.scope, found.folder) == (Scope.CONFIGURED, user / "team/deploy")
    assert flaws(playbook).count("goes before this one") == 3
    ((root, _),) = book().read().skills
    assert root.path == user / ".agents/skills"
    assert names(book(standard_skills=False)) == []


def test_every_folder_of_the_clients_is_looked_into(book: Open, user: Path, here: Path) -> None:
    """Personal and project ones, hidden folders below them included."""
    personal = "agents claude codex gemini cursor copilot codeium/windsurf openclaw config/agents".split()
    project = "agents claude codex gemini cursor github windsurf openclaw amp".split()
    for at, name in enumerate(personal):
        skill(user / f".{name}/skills", f"personal{at}")
    for at, name in enumerate(project):
        skill(here / f".{name}/skills", f"project{at}")
    skill(user / ".codex/skills/.system", "inner")

    assert set(names(book())) == {f"{kind}{at}" for kind in ("personal", "project") for at in range(9)} | {"inner"}


def test_roots_are_named_as_people_name_folders(user: Path, tmp_path: Path) -> None:
    """With ~, a variable, or relative to the config; a variable without a value is a problem, not the end."""
    read = config(user, skills=["~/a", "b", str(tmp_path / "c"), "${NOT_SET}"], standard_skills=False)
    roots, problems = roots_of(read, user, None, {})

    assert [root.path for root in roots] == [user / "a", user / ".roster/b", tmp_path / "c"]
    assert len(problems) == 1
    assert "NOT_SET" in problems[0]


def test_each_project_has_a_listing_of_its_own(book: Open, user: Path, here: Path, tmp_path: Path) -> None:
    """Two projects may have a skill of the same name, with another id each; the user's own keep the plain one."""
    cards = set()
    for folder in (here, tmp_path / "other"):
        skill(folder / ".agents/skills", "deploy")
        playbook = Playbook(*roots_of(config(user), user, folder))
        ((root, found),) = playbook.read().skills
        cards.add(card_from_skill(found.row, server=root.server).id)
        assert playbook.servers == [SKILLS, root.server]
    skill(user / ".agents/skills", "deploy")
    ((root, found),) = book().read().skills
    cards.add(card_from_skill(found.row, server=root.server).id)

    assert len(cards) == 3
    assert "skill__deploy" in cards
    assert all(id_.startswith("skill__deploy") for id_ in cards)


def test_the_home_folder_can_be_given(user: Path) -> None:
    """By the environment that Roster was given, never looked up behind its back."""
    skill(user / ".claude/skills", "mine")
    playbook = open_playbook(config(user), {"HOME": str(user), "USERPROFILE": str(user)}, user / "nowhere")

    assert names(playbook) == ["mine"]


# --------------------------------------------------------------------------------------------- each once


@posix
def test_a_farm_of_links_is_one_skill(book: Open, user: Path) -> None:
    """The same folder linked into another client's root, and a root that is a link itself."""
    skill(user / ".agents/skills", "pdf")
    (user / ".claude/skills").mkdir(parents=True)
    (user / ".claude/skills/pdf").symlink_to(user / ".agents/skills/pdf")
    (user / ".gemini").mkdir()
    (user / ".gemini/skills").symlink_to(user / ".agents/skills")

    assert names(book()) == ["pdf"]
    assert flaws(book()) == ""


def test_a_copy_is_no_second_skill(book: Open, user: Path) -> None:
    """The same name, text and files in two roots: taken once, without a word."""
    for root in (".agents/skills", ".claude/skills"):
        skill(user / root, "pdf", scripts__fill_py="print()")

    assert names(book()) == ["pdf"]
    assert flaws(book()) == ""


def test_the_search_ends_at_a_skill_and_at_a_depth(book: Open, user: Path) -> None:
    """What lies below a SKILL.md is part of that skill; six folders deep is found, seven is not."""
    root = user / ".agents/skills"
    skill(root, "outer")
    skill(root / "outer", "inner")
    skill(root / "1/2/3/4/5", "deep")
    skill(root / "1/2/3/4/5/6", "deeper")
    skill(root / ".git", "not-mine")

    found = {each.name: each for _, each in book().read().skills}
    assert found.keys() == {"outer", "deep"}
    assert found["outer"].row["files"].keys() == {"inner/SKILL.md"}


# ------------------------------------------------------------------------------------------- what is wrong


@posix
def test_no_link_is_followed_out_of_the_roots(book: Open, user: Path, tmp_path: Path) -> None:
    """Neither a folder's, nor a SKILL.md's, nor a file's: the first two are no skills, the last is not read."""
    secret = tmp_path / "secret"
    skill(secret, "stolen")
    (secret / "key").write_text("canary-4711")
    root = user / ".agents/skills"
    (root / "by-file").mkdir(parents=True)
    (root / "by-folder").symlink_to(secret / "stolen")
    (root / "by-file/SKILL.md").symlink_to(secret / "stolen/SKILL.md")
    (root / "nowhere").symlink_to(secret / "gone")
    (root / "round").symlink_to(root / "round")
    own = skill(root, "own")
    (own / "key").symlink_to(secret / "key")

    ((_, found),) = book().read().skills
    assert found.name == "own"
    assert found.row["files"] == {"key": f"link:{secret / 'key'}"}
    said = flaws(book())
    for words in ("by-folder: this link leads out", "by-file: its SKILL.md cannot be read", "nowhere: this link leads",
                  "round: this link leads", "own/key: a link out"):  # fmt: skip
        assert words in said
    assert "canary" not in said


@posix
@pytest.mark.skipif(sys.platform != "win32" and os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_said(book: Open, user: Path) -> None:
    """And the rest is read."""
    locked = skill(user / ".agents/skills", "locked")
    skill(user / ".agents/skills", "open")
    (locked / "SKILL.md").chmod(0)
    try:
        assert names(book()) == ["open"]
        assert "locked" in flaws(book())
    finally:
        (locked / "SKILL.md").chmod(0o600)


def test_a_file_of_any_bytes_is_read_as_far_as_it_goes(book: Open, user: Path) -> None:
    """Not UTF-8, no name, no description: what is there is used, and each is said."""
    folder = user / ".agents/skills/odd"
    folder.mkdir(parents=True)
    (folder / "skill.md").write_bytes(b"---\ntitle: caf\xe9\n---\n# Odd\n\nFirst paragraph.\n\nSecond.")

    ((_, found),) = book().read().skills
    assert (found.row["name"], found.row["description"]) == ("odd", "First paragraph.")
    said = flaws(book())
    for words in ("not UTF-8", "has no name", "has no description"):
        assert words in said


def test_names_and_descriptions_beyond_the_limits_are_said_and_used(book: Open, user: Path) -> None:
    """A warning is no rejection."""
    skill(user / ".agents/skills", "Loud_Name", "x" * 2_000)

    assert names(book()) == ["Loud_Name"]
    for words in ("lower-case", "2,000 characters"):
        assert words in flaws(book())


def test_the_bounds_hold_and_are_said(book: Open, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders, skills, files of a skill and their bytes; beyond the bounds nothing is taken for removed."""
    for at in range(4):
        skill(user / ".agents/skills", f"s{at}", a_txt="x" * 60, b_txt="y" * 60, c_txt="z")
    monkeypatch.setattr(folders_module, "MOST_FILES", 2)
    monkeypatch.setattr(folders_module, "MOST_BYTES", 100)
    monkeypatch.setattr(reading_module, "MOST_SKILLS", 3)

    reading = book().read()
    assert [found.name for _, found in reading.skills] == ["s0", "s1", "s2"]
    assert reading.skills[0][1].row["files"]["b.txt"] == "size:60"
    assert not reading.listed(SKILLS, []).complete
    for words in ("more than 2 files", "show by their size only", "more than 3 skills"):
        assert words in flaws(book())
    monkeypatch.setattr(folders_module, "MOST_FOLDERS", 2)
    assert "folders: the rest was not looked at" in flaws(book())


# ------------------------------------------------------------------------------------- what stays on file


def test_a_root_that_is_out_of_reach_takes_nothing_off_the_file(book: Open, user: Path) -> None:
    """Its skills stay, and one of the same name elsewhere does not step in; deleted for good they are gone."""
    team = user / "team"
    skill(team, "deploy", "The team's")
    on_file = [found.row for _, found in book(skills=["~/team"]).read().skills]
    skill(user / ".agents/skills", "deploy", "Mine")
    team.rename(user / "unmounted")

    reading = book(skills=["~/team"]).read()
    listed = reading.listed(SKILLS, on_file)
    assert (listed.rows, listed.present, listed.complete) == ([], ["deploy"], True)
    assert "mend the path" in reading.flaws[0].message
    (user / "unmounted").rename(team)
    (team / "deploy/SKILL.md").unlink()
    listed = book(skills=["~/team"]).read().listed(SKILLS, on_file)
    assert [row["description"] for row in listed.rows] == ["Mine"]
    assert listed.present == []


def test_a_standard_root_that_was_deleted_is_empty_unless_its_base_is_gone(book: Open, user: Path) -> None:
    """No client, no skills; but a home folder that is not there is out of reach."""
    skill(user / ".claude/skills", "pdf")
    on_file = [found.row for _, found in book().read().skills]
    (user / ".claude").rename(user / "elsewhere")
    assert book().read().listed(SKILLS, on_file).present == []
    user.rename(user.with_name("gone"))
    assert book().read().listed(SKILLS, on_file).present == ["pdf"]


def test_a_change_is_noticed_by_times_alone(book: Open, user: Path) -> None:
    """A new skill, an edited script, a root that appears; and nothing when nothing happened."""
    folder = skill(user / ".agents/skills", "pdf", scripts__fill_py="one")
    playbook = book()
    assert playbook.changed()

    def noticed() -> bool:
        changed = playbook.changed()
        playbook.read()
        return changed and not playbook.changed()

    playbook.read()
    assert not playbook.changed()
    (folder / "scripts/fill.py").write_text("another")
    assert noticed()
    skill(user / ".agents/skills", "second")
    assert noticed()
    skill(user / ".claude/skills", "third")
    assert noticed()


def test_the_whole_folder_is_the_contract(book: Open, user: Path) -> None:
    """Another script, another body, another list of tools: another skill. What programs leave behind is not."""

    def fingerprint() -> str:
        ((_, found),) = book().read().skills
        return found.fingerprint

    root = user / ".agents/skills"
    folder = skill(root, "pdf", scripts__fill_py="one")
    prints = [fingerprint()]
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__/fill.pyc").write_text("x")
    (folder / ".DS_Store").write_text("x")
    assert fingerprint() == prints[0]
    (folder / "scripts/fill.py").write_text("two")
    prints.append(fingerprint())
    (folder / "SKILL.md").write_text("---\nname: pdf\ndescription: What it does\nallowed-tools: Bash\n---\nDo it.\n")
    prints.append(fingerprint())
    skill(root, "pdf", body="Do it otherwise.")
    prints.append(fingerprint())
    assert len(set(prints)) == 4
