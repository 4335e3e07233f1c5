"""Resource URIs of several servers under one roof. A URI stays as it is; only where two servers have the same one does
the later one's get a scheme of its own in front: `roster+SERVER:URI`. Templates keep their variables that way.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from mcp.shared.uri_template import UriTemplate

__all__ = ["matching", "merged", "qualified", "unqualified"]

_UNSAFE = re.compile(r"[^a-z0-9.-]+")
_TEMPLATE_LIMIT = 2_000


def _scheme(server: str) -> str:
    """A URI scheme for a server; schemes know no case and few characters, so a name that had to give gets a hash."""
    safe = _UNSAFE.sub("-", server.lower())[:40]
    if safe == server:
        return f"roster+{server}"
    digest = hashlib.sha256(server.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"roster+{safe}-{digest}"


def qualified(server: str, uri: str) -> str:
    """`uri`, of this server and no other."""
    return f"{_scheme(server)}:{uri}"


def unqualified(uri: str, servers: Iterable[str]) -> tuple[str, str] | None:
    """The server and its own URI that a qualified one names; None for any other URI."""
    scheme, colon, rest = uri.partition(":")
    if not colon or not scheme.lower().startswith("roster+"):
        return None
    return next(((server, rest) for server in servers if _scheme(server) == scheme.lower()), None)


def merged(rows: Mapping[str, list[dict[str, Any]]], field: str) -> list[dict[str, Any]]:
    """The rows of all servers, in their order; a URI that an earlier server has already is qualified."""
    out: list[dict[str, Any]] = []
    owner: dict[str, str] = {}
    for server, listed in rows.items():
        for row in listed:
            uri = row[field]
            taken = owner.setdefault(uri, server) != server
            out.append({**row, field: qualified(server, uri)} if taken else row)
    return out


def matching(uri: str, templates: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    """The servers with a template that makes this URI, the most literal template first, then in their order."""
    found: list[tuple[int, str]] = []
    for server, rows in templates.items():
        fits = [len(re.sub(r"\{[^}]*\}", "", row["uriTemplate"])) for row in rows if _fits(row["uriTemplate"], uri)]
        if fits:
            found.append((-max(fits), server))
    return [server for _, server in sorted(found, key=lambda one: one[0])]


def _fits(template: str, uri: str) -> bool:
    if len(template) > _TEMPLATE_LIMIT or len(uri) > 8 * _TEMPLATE_LIMIT:
        return False
    try:
        return UriTemplate.parse(template).match(uri) is not None
    except ValueError:
        return template == uri  # not a template by RFC 6570; its owner is asked in the end all the same
