"""What can be wrong with another program's file, as errors that name the place and never quote it.

RosterError
└── ClientError        a client's file that is left as it is, and why
    └── FormatError    it cannot be read: line and column, and what was expected there
"""

from __future__ import annotations

from roster.errors import RosterError

__all__ = ["ClientError", "FormatError"]


class ClientError(RosterError):
    """A client's file that cannot be changed, or not safely; it is left as it is."""


class FormatError(ClientError):
    """A client's file that cannot be read. line, column: from 1; 0 when the place is not known."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        self.line, self.column = line, column
        super().__init__(f"line {line}, column {column}: {message}" if line else message)
