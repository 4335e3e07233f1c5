"""What a person should mend in a config, in skills, and in the failure kinds that all of them declare. Connects to
nothing.

Declarations are checked both ways: whether each is well formed and its own author's, and whether what was reported on
this machine was declared at all.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from roster.cards import Kind
from roster.catalogue import Catalogue
from roster.config import Config, Home, load_config, read_config
from roster.database import open_database
from roster.declared import Declared, declared_by_skill, declared_by_tool
from roster.dwell import Reason
from roster.errors import ConfigError, StoreError
from roster.failures import FailureKind
from roster.history import History
from roster.playbook import Playbook, open_playbook
from roster.reviews import Reviews

__all__ = ["Finding", "Severity", "lint"]


class Severity(StrEnum):
    """How much a finding matters: an error costs somebody something now."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to mend. where: a server, a card's id, or the file."""

    severity: Severity
    where: str
    message: str


def lint(path: Path, environ: Mapping[str, str]) -> list[Finding]:
    """What is wrong with a config: a file, or a home's folder, and then with what its database holds as well.

    The skills are those that the config and the user's home folder lead to. environ: what `${VAR}` references, and the
    user's home folder, are looked up in. Raises ConfigError when there is nothing at `path`.
    """
    home = Home(path) if path.is_dir() else None
    file = home.config if home is not None else path
    if not file.exists():
        raise ConfigError(f"{file} is not there: name a roster.json, or a folder that holds one")
    try:
        config = load_config(home) if home is not None else read_config(file.read_text(encoding="utf-8"), file)
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        return [Finding(Severity.ERROR, file.name, str(error))]
    playbook = open_playbook(config, environ)
    found = [*_of_config(config, file.name, environ), *_of_skills(playbook)]
    if home is not None and home.database.exists():
        found += _of_database(config, home, playbook)
    return found


def _of_config(config: Config, name: str, environ: Mapping[str, str]) -> Iterator[Finding]:
    for problem in config.problems:
        yield Finding(Severity.ERROR, problem.server or name, problem.message)
    if not config.servers:
        yield Finding(
            Severity.WARNING, name, 'no server can be used: put your MCP client\'s "mcpServers" block into it'
        )
    for server, spec in config.servers.items():
        if spec.disabled and spec.failures:
            yield Finding(Severity.WARNING, server, "it declares failure kinds but is disabled")
        if not spec.disabled and (missing := spec.missing(environ)):
            # It may well be set where Roster is started.
            yield Finding(Severity.WARNING, server, missing)


def _of_skills(playbook: Playbook) -> Iterator[Finding]:
    """What is wrong with the skill folders, and with the kinds that skills declare."""
    reading = playbook.read()
    for flaw in reading.flaws:
        yield Finding(Severity.WARNING, flaw.where, flaw.message)
    for _, skill in reading.skills:
        for problem in declared_by_skill(skill.row)[1]:
            yield Finding(Severity.ERROR, str(skill.file), problem)


def _of_database(config: Config, home: Home, playbook: Playbook) -> list[Finding]:
    """What the cards on file declare, and what was reported here, against each other and the config."""
    found: list[Finding] = []
    try:
        with closing(open_database(home.database)) as db:
            catalogue = Catalogue(db, list(config.servers), playbooks=playbook.servers)
            catalogue.refresh()
            declared = {}
            for entry in catalogue.living():
                if entry.card.kind is Kind.SKILL:
                    # What is wrong with them was found in their folders.
                    declared[entry.card.id] = {kind.name for kind in declared_by_skill(entry.card.raw)[0]}
                    continue
                own, problems = declared_by_tool(entry.card.raw)
                spec = config.servers.get(entry.card.server)
                declared[entry.card.id] = {kind.name for kind in (*own, *(spec.failures if spec else ()))}
                found += [Finding(Severity.ERROR, entry.card.id, problem) for problem in problems]
                found += _contradictions(entry.card.id, own, spec.failures if spec else ())
            found += _reported(_kinds(History(db)), declared)
            found += _reviewed(db, {entry.card.id: entry.held for entry in catalogue.living()})
    except (StoreError, sqlite3.Error) as error:
        found.append(Finding(Severity.ERROR, home.database.name, str(error)))
    return found


def _reviewed(db: sqlite3.Connection, held: Mapping[str, Reason | None]) -> Iterator[Finding]:
    """What the review found and a person has not settled; the least serious is left to `roster drift ID`."""
    from roster.review import MESSAGES, Rule

    known = {rule.value: MESSAGES[rule] for rule in Rule}
    for noted in Reviews(db).all():
        if noted.card in held and noted.severity != "low" and noted.rule in known:
            kept_out = held[noted.card] is Reason.REVIEW
            level = Severity.ERROR if kept_out and noted.severity == "high" else Severity.WARNING
            remedy = f"roster drift {noted.card}" + (" shows it; kept out of drafts until then" if kept_out else "")
            yield Finding(level, noted.card, f"{known[noted.rule]} ({noted.rule}, {noted.where}): {remedy}")


def _kinds(history: History) -> dict[str, Counter[str]]:
    """Card id → failure kind → how many calls ended in it."""
    kinds: dict[str, Counter[str]] = {}
    for id_, endings in history.endings().items():
        for ending in endings:
            if ending.kind is not None:
                kinds.setdefault(id_, Counter())[ending.kind] += ending.calls
    return kinds


def _contradictions(id_: str, tool: tuple[Declared, ...], config: tuple[Declared, ...]) -> Iterator[Finding]:
    """Kinds that a tool and the config declare with different flags."""
    flags = {kind.name: (kind.retryable, kind.partial, kind.person) for kind in config}
    for kind in tool:
        if kind.name in flags and flags[kind.name] != (kind.retryable, kind.partial, kind.person):
            yield Finding(
                Severity.WARNING,
                id_,
                f"failure kind {kind.name!r}: the tool declares other flags than the config, whose flags are used",
            )


def _reported(kinds: Mapping[str, Mapping[str, int]], declared: Mapping[str, set[str]]) -> Iterator[Finding]:
    """Kinds that were reported here and are not declared, by what the outcomes on file say."""
    platform = {kind.value for kind in FailureKind}
    for id_, counts in sorted(kinds.items()):
        if id_ not in declared:
            continue
        if undeclared := counts.get(FailureKind.UNDECLARED.value):
            calls = "call" if undeclared == 1 else "calls"
            yield Finding(
                Severity.ERROR,
                id_,
                f"{undeclared} {calls} failed with a kind that is not declared: declare it under "
                '"failures" in the config, or have its author do so',
            )
        for kind in sorted(counts.keys() - platform - declared[id_]):
            yield Finding(
                Severity.WARNING,
                id_,
                f"failure kind {kind!r} was reported here and is no longer declared: declare it again",
            )
