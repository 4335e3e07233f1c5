"""The Sixth Man: after a failure, the next card of the same draft from another server that lives. Never executed. Pure.

A suggestion is an offer to the caller, who decides. It says whether the same arguments would do, and if not, which of
them the other tool seems to call by another name and which it asks for besides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roster.arguments import Check, check_arguments
from roster.cards import Card, Kind, parameter_names
from roster.outcomes import Outcome
from roster.words import split_identifier, squashed

__all__ = ["WORTH_ANOTHER", "Suggestion", "next_after", "suggestion"]

WORTH_ANOTHER = frozenset((Outcome.TRANSPORT, Outcome.TIMEOUT, Outcome.INTERNAL))
"""The failures that another server may not share. One that a caller or a person must mend first is not among them."""

MOST_NAMES = 50
# What tools call the same thing by. Only asked when the names themselves have no word in common.
_ALIKE = tuple(
    frozenset(names.split())
    for names in (
        "q query search text term keywords question prompt",
        "path file filename filepath",
        "dir directory folder",
        "url uri link href address",
        "limit count max maxresults size pagesize perpage top k n",
        "content body text message data",
        "id identifier key",
        "name title",
    )
)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Another card to call instead. check: whether the arguments of the failed call validate against its schema.

    same, renamed, missing: which of those arguments it takes as they are, which under another name (old → new), and
    what it requires that there is no value for.
    """

    card: Card
    reason: str
    check: Check
    same: tuple[str, ...] = ()
    renamed: Mapping[str, str] | None = None
    missing: tuple[str, ...] = ()

    def wire(self) -> dict[str, Any]:
        """The `suggested_alternate` object of a `_roster` block."""
        shown: dict[str, Any] = {
            "tool": self.card.id,
            "reason": self.reason,
            "args_compatible": self.check.valid,
        }
        if self.check.valid is None:
            shown["unchecked"] = self.check.reason
        shown["arguments"] = {
            "same": list(self.same),
            "renamed": dict(self.renamed or {}),
            "missing": list(self.missing),
        }
        return shown


def next_after(
    ids: Sequence[str], failed: Card, find: Callable[[str], Card | None], living: Callable[[Card], bool]
) -> Card | None:
    """The card that comes next in a draft's ranking after the failed one, from another server; None if there is none.

    ids: the ranking, best first. A failed card that is not in it is followed by the first of all. find: the card of an
    id, None for one that is gone or held. living: whether its server can be called now.
    """
    after = ids.index(failed.id) + 1 if failed.id in ids else 0
    for id_ in ids[after:]:
        card = find(id_)
        if card is not None and card.kind is Kind.TOOL and card.server != failed.server and living(card):
            return card
    return None


def suggestion(card: Card, failed: Card, outcome: Outcome, arguments: Mapping[str, Any] | None) -> Suggestion:
    """The suggestion to call `card` instead, with what its schema says of the arguments of the failed call."""
    what = {Outcome.TRANSPORT: "cannot be reached", Outcome.TIMEOUT: "did not answer in time"}.get(outcome, "failed")
    reason = f"{failed.server} {what}; this is the next match of the draft, from another server"
    check = check_arguments(card.input_schema, arguments)
    given = list(arguments or {})[:MOST_NAMES]
    taken = parameter_names(card.input_schema)[:MOST_NAMES]
    same = tuple(name for name in given if name in taken)
    renamed = _renamed([name for name in given if name not in taken], [name for name in taken if name not in given])
    there = {*same, *renamed.values()}
    required = (card.input_schema or {}).get("required")
    missing = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    return Suggestion(
        card, reason, check, same, renamed, tuple(name for name in missing[:MOST_NAMES] if name not in there)
    )


def _renamed(given: Sequence[str], taken: Sequence[str]) -> dict[str, str]:
    """Names of arguments to the names that another tool seems to have for them: only where both point at each other
    and at nobody else."""
    out: dict[str, str] = {}
    for alike in (_written_alike, _said_alike, _meant_alike):
        left = [name for name in given if name not in out]
        open_ = [name for name in taken if name not in out.values()]
        pairs = [(old, new) for old in left for new in open_ if alike(old, new)]
        for old, new in pairs:
            if sum(other == old for other, _ in pairs) == 1 and sum(other == new for _, other in pairs) == 1:
                out[old] = new
    return out


def _written_alike(old: str, new: str) -> bool:
    return squashed(old) == squashed(new)


def _said_alike(old: str, new: str) -> bool:
    """`file_path` and `path`: every word of the one is a word of the other."""
    one, other = set(split_identifier(old)), set(split_identifier(new))
    return bool(one and other) and (one <= other or other <= one)


def _meant_alike(old: str, new: str) -> bool:
    one, other = squashed(old), squashed(new)
    return any(one in names and other in names for names in _ALIKE)
