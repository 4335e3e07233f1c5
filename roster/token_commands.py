"""`roster token`: bearer tokens made, listed and removed. One is printed when it is made, and never again."""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

from roster.cards import SKILLS
from roster.config import find_home, load_config, open_home
from roster.database import open_database
from roster.errors import TokenError
from roster.terminal import Out, plain, when
from roster.tokens import Tokens

__all__ = ["add", "remove", "show"]


@contextmanager
def _tokens() -> Iterator[Tokens]:
    db = open_database(open_home(find_home()).database)
    try:
        yield Tokens(db)
    finally:
        db.close()


def add(name: str, servers: str | None, *, out: Out) -> None:
    """Make a token and print it. servers: names separated by commas; None: all. Raises TokenError."""
    seen = None if servers is None else _known(servers)
    with _tokens() as tokens:
        secret = tokens.add(name, time.time(), seen)
    if out is not None:
        out({"name": name, "servers": seen, "token": secret})
        return
    print(
        f"roster: {name} sees {_said(seen)}; this token is shown once; what is kept cannot be turned back into it",
        file=sys.stderr,
    )
    print(secret)


def show(*, out: Out) -> None:
    """Print the tokens' names and what each of them sees."""
    with _tokens() as tokens:
        known = tokens.all()
    if out is not None:
        rows = [(token, None if token.servers is None else sorted(token.servers)) for token in known]
        out({"tokens": [{"name": t.name, "servers": servers, "created_at": t.created_at} for t, servers in rows]})
        return
    if not known:
        print("no tokens yet: `roster token add NAME` makes one")
        return
    table = Table()
    for heading in ("name", "sees", "made"):
        table.add_column(heading)
    for token in known:
        seen = None if token.servers is None else sorted(token.servers)
        table.add_row(plain(token.name), plain(_said(seen)), plain(when(token.created_at)))
    Console().print(table)


def remove(name: str, *, out: Out) -> None:
    """Forget a token. Raises TokenError for a name nobody has."""
    with _tokens() as tokens:
        tokens.remove(name)
    if out is not None:
        out({"removed": name})
    else:
        print(f"{name}: removed")


def _known(servers: str) -> list[str]:
    """The named servers, all of which are in the config. Skills count as a server of their own."""
    configured = [*load_config(find_home()).servers, SKILLS]
    names = [name for part in servers.split(",") if (name := part.strip())]
    for name in names:
        if name not in configured:
            close = difflib.get_close_matches(name, configured, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(configured))}"
            raise TokenError(f"roster.json has no server {name!r}: {hint}")
    return sorted(set(names))


def _said(servers: list[str] | None) -> str:
    return "every server" if servers is None else ", ".join(servers)
