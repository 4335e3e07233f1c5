"""Real-shaped files, cut and spliced at random: each is either refused in words or edited and given back whole."""

from __future__ import annotations

from typing import Any

from client_samples import SECRETS, layouts, user_place
from hypothesis import given, settings
from hypothesis import strategies as st

from roster.clients.adapters import CLIENTS, Client
from roster.clients.dialects import from_client
from roster.clients.faults import ClientError
from roster.clients.files import decoded
from roster.clients.formats import Spot, edited, restored, section_digest, servers
from roster.clients.ourselves import is_roster
from roster.clients.redact import shown

_SMALL_BYTES = 5_000
_FILES = [(client, decoded(data)) for client in CLIENTS for _, data in layouts(client) if len(data) < _SMALL_BYTES]
_OURS: dict[str, Any] = {"command": "/x/roster", "args": ["serve"]}


@st.composite
def spliced(draw: st.DrawFn) -> tuple[Client, str]:
    """A client and its file with a few pieces of it gone, doubled, moved, or a character put in."""
    client, text = draw(st.sampled_from(_FILES))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 30)))
        into = draw(st.integers(0, len(text)))
        piece = draw(st.sampled_from([text[start:end], *"{}[],:\"'/*#\\\n\t-&|="]))
        text = text[:start] + text[end:] if draw(st.booleans()) else text[:into] + piece + text[into:]
    return client, text


@settings(max_examples=150)
@given(spliced(), st.randoms(use_true_random=False))
def test_a_spliced_file_is_refused_or_given_back(file: tuple[Client, str], rng: Any) -> None:
    """No exception but ours, no secret in one, and nothing lost of what could be read."""
    client, text = file
    place = user_place(client)
    spot = Spot(place.format, place.keys)
    try:
        before = servers(text, spot)
        for name, value in before:
            from_client(client.dialect, value)
            is_roster(value, name)
            shown(value)
        gone = [name for name, _ in before if rng.random() < 0.6]
        after = edited(text, spot, gone, ("roster", _OURS))
        exact = restored(after, text, spot, gone, ["roster"], section_digest(after, spot), after)
        by_key = restored(after, text, spot, gone, ["roster"])
    except ClientError as error:
        refused = str(error)
    else:
        refused = ""
    assert [word for word in SECRETS if word in refused] == []
    if refused:
        return
    assert exact == text
    assert sorted(map(repr, servers(by_key, spot))) == sorted(map(repr, before))
