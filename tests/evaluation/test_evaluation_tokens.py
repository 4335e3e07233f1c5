"""Tokens per draft are those of what five mode really answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from mcp import Client
from mcp.client._memory import InMemoryTransport

from roster.config import Mode
from roster.encoder import open_encoder
from roster.errors import RosterError
from roster.evaluation import NeedSet
from roster.evaluation.homes import open_filled
from roster.evaluation.tokens import draft_json, open_tokenizer
from roster.history import History, OutcomeRow
from roster.outcomes import Outcome
from roster.ranking import Match
from roster.server import RosterServer

WORKED = OutcomeRow("mail__send_message", "print", Outcome.SUCCESS, None, 5.0, 0.0, True)


def test_a_text_has_the_tokens_of_o200k() -> None:
    """A special token's name is text like any other, and no surrogate breaks it."""
    tokenizer = open_tokenizer()

    assert [tokenizer.count(text) for text in ("", "hello world", "<|endoftext|>")] == [0, 2, 7]
    assert tokenizer.count("\ud800") == 1
    assert tokenizer.name.startswith("o200k_base")


@pytest.mark.anyio
async def test_what_is_counted_is_what_five_mode_answers(tmp_path: Path, needset: NeedSet) -> None:
    """To the character, but for the draft id; whether a card fits, perhaps fits, or none does, but one is rated."""
    expected = {
        "send an e-mail": (Match.CLEAR, 2),
        "a long need " * 60: (Match.WEAK, 2),
        "play the tuba": (Match.NONE, 0),
        "play the tuba again": (Match.NONE, 1),
    }
    for need, (match, starters) in expected.items():
        with open_filled(needset, open_encoder(None), tmp_path / "cache") as filled:
            if match is Match.NONE and starters:
                History(filled.roster.writer.db).record(WORKED)
            made = filled.roster.draft_now(need, 2)
            assert (made.match, len(made.starters)) == (match, starters)
            counted = draft_json(need, [starter.wire() for starter in made.starters], made.match)
            filled.roster._patient_until = 0.0  # nobody to wait for
            async with Client(InMemoryTransport(RosterServer(filled.roster, Mode.FIVE).server)) as client:
                reply = await client.call_tool("draft", {"need": need, "k": 2})
        answered = reply.content[0].text.replace(json.loads(reply.content[0].text)["draft_id"], "d0a1b2c3d")

        assert answered == counted


def test_without_the_tokenizer_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bpe_openai", None)

    with pytest.raises(RosterError, match=r"pip install"):
        open_tokenizer()
