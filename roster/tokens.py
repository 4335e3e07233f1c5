"""Bearer tokens: who may use this Roster over HTTP, and which servers each of them sees.

They live in `roster.db`, beside what they give access to: a token that is added or removed while a server runs counts
from the next request on, in every process, and two commands at once cannot lose each other's.

A token is shown once, when it is made. Kept is its SHA-256: it is 32 random bytes, so there is nothing to guess that a
slow hash would have to make dear.
"""

from __future__ import annotations

import difflib
import hashlib
import hmac
import json
import re
import secrets
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass

from roster.database import atomic
from roster.errors import TokenError

__all__ = ["FIRST", "PREFIX", "Token", "Tokens"]

PREFIX = "roster_"
"""What every token starts with, so that programs which look for secrets know one when they see it."""
FIRST = "first"
"""The name of the token that is made when one is needed and there is none."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token, which is not the token. servers: the only ones it sees; None: all."""

    name: str
    servers: frozenset[str] | None
    created_at: float


class Tokens:
    """The tokens of one home. Synchronous; whoever shares the connection takes turns."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def add(self, name: str, now: float, servers: Collection[str] | None = None) -> str:
        """Make a token; what comes back is shown to a person and then forgotten. Raises TokenError.

        servers: the only ones it will see, None for all. now: seconds since the epoch.
        """
        if not _NAME.fullmatch(name):
            raise TokenError(
                f"{name[:80]!r} cannot name a token: use up to 64 letters, digits, dots, dashes and underscores"
            )
        if servers is not None and not servers:
            raise TokenError(f"{name} would see no server at all: name at least one, or leave the list out")
        with atomic(self._db):
            if self._db.execute("SELECT 1 FROM tokens WHERE name = ?", (name,)).fetchone():
                raise TokenError(
                    f"there is a token {name!r} already: take another name, or first run `roster token remove {name}`"
                )
            return self._keep(name, now, servers)

    def first(self, now: float) -> str | None:
        """A token that sees everything, made because one is needed; None when there is one already."""
        with atomic(self._db):
            if self._db.execute("SELECT 1 FROM tokens").fetchone():
                return None
            return self._keep(FIRST, now, None)

    def remove(self, name: str) -> None:
        """Forget a token; requests with it are refused from now on. Raises TokenError for a name nobody has."""
        with atomic(self._db):
            if self._db.execute("DELETE FROM tokens WHERE name = ?", (name,)).rowcount:
                return
        close = difflib.get_close_matches(name, [token.name for token in self.all()], n=1)
        hint = f"did you mean {close[0]!r}?" if close else "`roster token list` shows them"
        raise TokenError(f"there is no token {name[:80]!r}: {hint}")

    def all(self) -> list[Token]:
        """Every token, oldest first."""
        return [token for token, _ in self._rows()]

    def holder(self, secret: str) -> Token | None:
        """The token that `secret` is; None when it is none. Takes as long for a near miss as for any other."""
        hashed, found = _hashed(secret), None
        for token, kept in self._rows():
            if hmac.compare_digest(hashed, kept):
                found = token
        return found

    def _keep(self, name: str, now: float, servers: Collection[str] | None) -> str:
        secret = PREFIX + secrets.token_urlsafe(32)
        listed = None if servers is None else json.dumps(sorted(set(servers)))
        self._db.execute("INSERT INTO tokens VALUES (?, ?, ?, ?)", (name, _hashed(secret), listed, now))
        return secret

    def _rows(self) -> list[tuple[Token, str]]:
        rows = self._db.execute("SELECT name, hash, servers, created_at FROM tokens ORDER BY created_at, name")
        return [
            (Token(name, None if servers is None else frozenset(json.loads(servers)), created_at), hashed)
            for name, hashed, servers, created_at in rows
        ]


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
