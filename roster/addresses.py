"""HOST:PORT: what is asked for, what is listened on, and whether anybody but this machine can reach it."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from dataclasses import dataclass

from roster.errors import ConfigError, ListenError

__all__ = ["LOOPBACKS", "Address", "host_of", "is_loopback", "listen", "parse_address", "url_of"]

LOOPBACKS = ("127.0.0.1", "::1", "localhost")
"""What this machine calls itself; the first is what is listened on unless another host is named."""
BACKLOG = 128
UNREAD_LIMIT_S = 120
"""For so long the system keeps a connection whose other end does not take what is sent, where it can be told."""

_FORM = re.compile(r"(?:(?P<host>\[[^\[\]]*\]|[^:\[\]]*):)?(?P<port>\d{1,5})")


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. host: a name or an IP address without brackets. port: 0 for any that is free."""

    host: str
    port: int


def parse_address(text: str) -> Address:
    """`HOST:PORT`, `:PORT`, `PORT` or `[IPv6]:PORT`; without a host, this machine alone. Raises ConfigError."""
    match = _FORM.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65_535:
        raise ConfigError(
            f"{text!r} is not an address: give HOST:PORT such as 127.0.0.1:8765, [::1]:8765, or :0 for any free port"
        )
    return Address((match["host"] or "").strip("[]") or LOOPBACKS[0], int(match["port"]))


def is_loopback(host: str) -> bool:
    """Whether an IP address can be reached from this machine alone. Anything that is no IP address cannot be trusted
    to be."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str | None:
    """The host of a `Host` header, in lower case, without port and brackets; None when it is malformed."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.%]+)\]|([^\s:/\[\]@]+))(?::\d{1,5})?", header.strip())
    return (match[1] or match[2]).lower() if match else None


def listen(address: Address) -> socket.socket:
    """A socket that listens on the address a host name stands for, IPv4 first. Raises ListenError.

    The name is looked up once: what was found to be this machine alone is also what is listened on.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ListenError(f"the host {address.host!r} is not known here ({error}): use an IP address") from None
    family, kind, protocol, _, place = min(found, key=lambda each: each[0] != socket.AF_INET)
    sock = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            # So that a restart need not wait for the connections of the last run to fade.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Connections that come in here inherit it.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_LIMIT_S * 1000)
        sock.bind(place)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ListenError(
            f"cannot listen on {address.host}:{address.port} ({error.strerror}): choose another port, or 0 for any"
        ) from None
    sock.setblocking(False)
    return sock


def url_of(sock: socket.socket, path: str = "") -> str:
    """The URL of a listening socket."""
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"
