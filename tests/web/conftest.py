"""What tests of serving over HTTP share: a server with a calendar, a Roster over servers, both eras, a fake encoder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import WordEncoder
from scripted_backend import Scripted
from web_client import CALENDAR, Open, opening

from roster import app
from roster.config import Home


@pytest.fixture(autouse=True)
def _words(monkeypatch: pytest.MonkeyPatch, encoder: WordEncoder) -> None:
    monkeypatch.setattr(app, "open_encoder", lambda *_: encoder)


@pytest.fixture(params=["legacy", "auto"])
def era(request: pytest.FixtureRequest) -> str:
    """How a client opens its connection: with a handshake and a session, or with neither."""
    return str(request.param)


@pytest.fixture
def calendar(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path, "calendar", rows=CALENDAR)


@pytest.fixture
def opened(home: Home) -> Iterator[Open]:
    """Open a Roster over these servers, not started yet, with these settings."""
    with opening(home) as open_one:
        yield open_one
