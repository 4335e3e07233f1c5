"""HOST:PORT, read and listened on; and whether anybody but this machine can reach it."""

from __future__ import annotations

import pytest
from fakes import Run

from roster.addresses import Address, host_of, is_loopback, listen, parse_address
from roster.config import Home
from roster.errors import ConfigError, ListenError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":0", ("127.0.0.1", 0)),
        ("8765", ("127.0.0.1", 8765)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("localhost:65535", ("localhost", 65535)),
        ("[::1]:80", ("::1", 80)),
        (" host.example:80 ", ("host.example", 80)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    """Without a host it is this machine alone."""
    assert parse_address(text) == Address(*address)


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", ":65536", "::1:80", "http://h:1", "h:1/mcp", "h:-1"])
def test_what_is_no_address_is_misuse(home: Home, run: Run, text: str) -> None:
    """Exit status 2, with the value and a form that would do."""
    with pytest.raises(ConfigError, match="HOST:PORT"):
        parse_address(text)
    ran = run("serve", f"--http={text}")
    assert (ran.status, ran.out) == (2, "")
    assert f"{text!r} is not an address" in ran.err


@pytest.mark.parametrize(
    ("host", "here"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("10.0.0.1", False),
     ("fe80::1%eth0", False), ("localhost", False), ("", False)],
)  # fmt: skip
def test_only_addresses_of_this_machine_alone_are_loopback(host: str, here: bool) -> None:
    """A name is none: what it stands for is looked up when it is listened on, and then it is an address."""
    assert is_loopback(host) is here


def test_a_host_header_is_read_whole() -> None:
    """Port and brackets off, in lower case; nothing for what is no host."""
    assert [host_of(text) for text in ("A.b:1", "[::1]:2", "::1", "a b", "a:b", "")] == [
        "a.b",
        "::1",
        None,
        None,
        None,
        None,
    ]


def test_a_port_that_is_taken_says_so(home: Home) -> None:
    """With the address and the remedy; a host that nobody knows, too."""
    with listen(Address("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=rf"127\.0\.0\.1:{port}.*another port, or 0 for any"):
            listen(Address("127.0.0.1", port))
    with pytest.raises(ListenError, match=r"'nobody\.invalid' is not known here"):
        listen(Address("nobody.invalid", 0))
