"""Ranking quality on labelled need sets, through the real index and ranker: what `roster eval` runs.

The names below are imported when they are first used, since every command's start passes by this page; ir-measures and
the tokenizer (extra `eval`) are imported by use alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roster.evaluation.comparison import Evaluation, Plan, evaluate
    from roster.evaluation.needsets import Need, NeedSet, read_needset
    from roster.evaluation.systems import System, parse_system

__all__ = ["Evaluation", "Need", "NeedSet", "Plan", "System", "evaluate", "parse_system", "read_needset"]

_HOMES = {
    "comparison": ("Evaluation", "Plan", "evaluate"),
    "needsets": ("Need", "NeedSet", "read_needset"),
    "systems": ("System", "parse_system"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"roster.evaluation.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
