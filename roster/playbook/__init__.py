"""The Playbook: skills (folders with a SKILL.md) as cards, and what calling one returns."""

from roster.playbook.folders import Flaw
from roster.playbook.manifest import blocks_of, reread
from roster.playbook.reading import Listed, Playbook, Reading, Skill, open_playbook
from roster.playbook.roots import Root, Scope, roots_of, user_folder
from roster.playbook.texts import texts_of

__all__ = [
    "Flaw",
    "Listed",
    "Playbook",
    "Reading",
    "Root",
    "Scope",
    "Skill",
    "blocks_of",
    "open_playbook",
    "reread",
    "roots_of",
    "texts_of",
    "user_folder",
]
