"""What can go wrong that is ours or our caller's, as one tree.

    RosterError
    ├── ConfigError            roster.json cannot be used as it stands
    │   └── VariableError      a ${VAR} reference has no value
    ├── NeedError              a need that cannot be drafted for (empty, too long, k out of range)
    ├── CallError              a call that cannot be carried out as asked
    │   ├── UnknownCardError   no card has this id
    │   └── HeldCardError      the card is quarantined, and the user's policy refuses its calls
    ├── EncoderError           a model that cannot be loaded or used
    │   └── DimensionError     vectors of another width than the index
    ├── StoreError             the database cannot be used
    │   └── StoreTooNewError   it was written by a newer Roster
    ├── TokenError             a bearer token that cannot be made, or is not there
    ├── ListenError            an address that cannot be served on
    └── NeedSetError           a labelled need set that breaks its format

Every message names the value and the remedy. A backend that fails is not here: that is news about
the world, and travels as a value (see `outcomes`).
"""

from __future__ import annotations

__all__ = [
    "CallError",
    "ConfigError",
    "DimensionError",
    "EncoderError",
    "HeldCardError",
    "ListenError",
    "NeedError",
    "NeedSetError",
    "RosterError",
    "StoreError",
    "StoreTooNewError",
    "TokenError",
    "UnknownCardError",
    "VariableError",
    "json_type",
]


class RosterError(Exception):
    """The root: catch this to catch everything Roster raises on purpose."""


class ConfigError(RosterError):
    """roster.json cannot be used as it stands."""


class VariableError(ConfigError):
    """A `${VAR}` reference has neither a value nor a default."""


class NeedError(RosterError):
    """A need, or the `k` beside it, that cannot be drafted for."""


class CallError(RosterError):
    """A call that cannot be carried out as asked."""


class UnknownCardError(CallError):
    """No card has this id."""


class HeldCardError(CallError):
    """The card is quarantined, and the user's policy refuses calls of such cards."""


class EncoderError(RosterError):
    """A model that cannot be loaded or used."""


class DimensionError(EncoderError):
    """Vectors of another width than the index they were offered to."""


class StoreError(RosterError):
    """The database cannot be used."""


class StoreTooNewError(StoreError):
    """The database was written by a newer Roster than this one."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"roster.db has schema {found}, this Roster knows {known}: upgrade roster-mcp, "
            "or point ROSTER_HOME at another folder"
        )


class TokenError(RosterError):
    """A bearer token that cannot be made as asked, or is not there."""


class ListenError(RosterError):
    """An address that cannot be served on."""


def json_type(value: object) -> str:
    """What a JSON value is called where JSON is written: callers are not all Python programs."""
    names = {
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        list: "an array",
        dict: "an object",
    }
    return "null" if value is None else names.get(type(value), type(value).__name__)


class NeedSetError(RosterError):
    """A labelled need set that breaks its format; the message names file and line."""
