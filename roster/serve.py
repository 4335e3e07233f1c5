"""`roster serve`: one client on stdin and stdout until it closes them, or any number over HTTP until told to stop."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import anyio

from roster.addresses import is_loopback, listen, parse_address, url_of
from roster.config import Config, Home, Mode, find_home, load_config
from roster.errors import ConfigError

if TYPE_CHECKING:
    from roster.lobby import Lobby

__all__ = ["serve_http", "serve_stdio"]

log = logging.getLogger(__name__)

STOP_LIMIT_S = 10.0


def serve_stdio(*, five: bool = False, transparent: bool = False) -> None:
    """Serve stdin and stdout. Raises ConfigError, StoreError before the first byte; a bad server entry only warns."""
    # Imports make much that lives as long as the process. To search it for garbage over and over, while it grows,
    # takes a tenth of the time until the first answer.
    gc.disable()
    home, config = _configured()
    mode = _mode(config, five=five, transparent=transparent)
    from roster.lobby import Lobby, last_offers

    anyio.run(_serve, Lobby(config, home, mode, last_offers(config, home)))


def serve_http(address: str, *, five: bool = False, transparent: bool = False) -> None:
    """Serve streamable HTTP at HOST:PORT until told to stop. Says on stderr where; on a terminal, a new token once.

    Raises ConfigError, ListenError, StoreError before it listens. What is wrong with who may come in stops it, too.
    """
    wanted = parse_address(address)
    home, config = _configured()
    if wrong := config.problems_below("http"):
        raise ConfigError(f"{home.config}: {wrong[0]}; over HTTP nothing is served until that is mended")
    from roster.app import open_roster
    from roster.tokens import FIRST, Tokens
    from roster.web import PATH, Web, serve_web

    with listen(wanted) as sock, open_roster(config, home) as roster:
        exposed = not is_loopback(sock.getsockname()[0])
        needed = exposed or config.settings.http.require_token
        if needed:
            with roster.writer.lock:
                tokens = Tokens(roster.writer.db)
                # A token is for a person's eyes. What a service says is kept in a log.
                made = tokens.first(time.time()) if sys.stderr.isatty() else None
                none = not tokens.all()
            if made is not None:
                _say(f"a bearer token was made, named {FIRST!r}; it is shown this once: {made}")
            if none:
                _say("there is no token yet, so nobody can come in: `roster token add NAME` makes one")
        if exposed:
            _say("other machines can reach this address, and nothing here is encrypted: put TLS in front of it")
        web = Web(
            roster,
            _mode(config, five=five, transparent=transparent),
            token=needed,
            hosts=(wanted.host,),
            here=not exposed,
        )
        anyio.run(serve_web, web, sock, lambda: _say(f"serving {url_of(sock, PATH)}"))


def _say(words: str) -> None:
    print(f"roster: {words}", file=sys.stderr, flush=True)


def _configured() -> tuple[Home, Config]:
    home = find_home()
    config = load_config(home)
    for problem in config.problems:
        log.warning("%s: %s", home.config.name, problem)
    return home, config


def _mode(config: Config, *, five: bool, transparent: bool) -> Mode:
    mode = Mode.FIVE if five else Mode.TRANSPARENT if transparent else config.settings.mode
    if mode is Mode.TRANSPARENT and config.settings.quarantine == "call":
        log.warning('"quarantine": "call" refuses calls in five mode only: transparent mode lists and calls every tool')
    return mode


async def _serve(lobby: Lobby) -> None:
    async with anyio.create_task_group() as group:
        if sys.platform != "win32":
            group.start_soon(_stop_on_signal, lobby)
        await lobby.serve_stdio()
        group.cancel_scope.cancel()


async def _stop_on_signal(lobby: Lobby) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            with anyio.move_on_after(STOP_LIMIT_S):
                await lobby.close()
            # Where stdin is no pipe, a thread waits in read(0) for the client's next line, and nothing can interrupt
            # that: not a cancellation, not the end of the interpreter. The children are gone, every write is committed.
            os._exit(0)
