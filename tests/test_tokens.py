"""Bearer tokens: made once, kept as a hash, each with the servers it sees; and the commands around them."""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
from collections.abc import Callable

import pytest
from fakes import Run
from test_canaries import files_of

from roster.config import Home
from roster.errors import TokenError
from roster.tokens import FIRST, PREFIX, Token, Tokens


@pytest.fixture
def tokens(db: sqlite3.Connection) -> Tokens:
    return Tokens(db)


def test_a_token_is_known_by_what_was_shown_and_by_nothing_else(tokens: Tokens) -> None:
    """The secret itself, whole; not its name, its hash, or a part of it."""
    secret = tokens.add("ann", 5.0, ["b", "a", "b"])
    ann = Token("ann", frozenset({"a", "b"}), 5.0)

    assert secret.startswith(PREFIX)
    assert len(secret) > 45
    assert tokens.holder(secret) == ann
    wrong = ["", "ann", PREFIX, secret[:-1], secret + "x", secret.upper(), hashlib.sha256(secret.encode()).hexdigest()]
    assert [tokens.holder(each) for each in (*wrong, "\ud800")] == [None] * 8
    assert tokens.all() == [ann]


def test_two_tokens_are_never_alike_and_each_sees_its_own(tokens: Tokens) -> None:
    """Also those that see the same; they are listed oldest first."""
    secrets = {name: tokens.add(name, at, servers) for name, at, servers in [("z", 1.0, None), ("a", 2.0, ["x"])]}
    assert len(set(secrets.values())) == 2
    assert [(name, tokens.holder(secret)) for name, secret in secrets.items()] == [
        ("z", Token("z", None, 1.0)),
        ("a", Token("a", frozenset({"x"}), 2.0)),
    ]
    assert [token.name for token in tokens.all()] == ["z", "a"]


def test_only_a_hash_is_kept(home: Home, db: sqlite3.Connection, tokens: Tokens) -> None:
    """In no file of the home is the token, nor what comes after its prefix."""
    secret = tokens.add("ann", 1.0)
    assert db.execute("SELECT hash FROM tokens").fetchall() == [(hashlib.sha256(secret.encode()).hexdigest(),)]
    said = secret.removeprefix(PREFIX).encode()
    assert [place for place, content in files_of(home).items() if said in content] == []


def test_every_hash_is_compared_in_constant_time(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever token it is, and whether it is one: as many comparisons, by the function made for it."""
    secrets = [tokens.add(f"t{n}", float(n)) for n in range(3)]
    compared: list[int] = []
    real = hmac.compare_digest

    def counting(one: str, other: str) -> bool:
        compared[-1] += 1
        return real(one, other)

    monkeypatch.setattr("roster.tokens.hmac.compare_digest", counting)
    for secret in (*secrets, "none"):
        compared.append(0)
        tokens.holder(secret)
    assert compared == [3, 3, 3, 3]


def test_the_first_token_is_made_only_where_there_is_none(tokens: Tokens) -> None:
    """It sees every server; a home that has a token of any name gets no other one unasked."""
    secret = tokens.first(1.0)
    assert secret is not None
    assert tokens.holder(secret) == Token(FIRST, None, 1.0)
    assert tokens.first(2.0) is None
    tokens.remove(FIRST)
    tokens.add("ann", 3.0)
    assert tokens.first(4.0) is None


def test_a_removed_token_is_unknown_at_once_and_to_every_process(
    tokens: Tokens, connect: Callable[[], sqlite3.Connection]
) -> None:
    """Its name is free again, and the old secret stays worthless."""
    other = Tokens(connect())
    old = tokens.add("ann", 1.0)
    assert other.holder(old) is not None
    other.remove("ann")
    assert tokens.holder(old) is None
    new = tokens.add("ann", 2.0)
    assert (tokens.holder(old), tokens.holder(new)) == (None, Token("ann", None, 2.0))


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", "a/b", "ä", "a\n", "a" * 65, "\x1b[2J"])
def test_a_name_that_would_not_print_well_is_refused(tokens: Tokens, name: str) -> None:
    """With what a name may be made of."""
    with pytest.raises(TokenError, match="letters, digits, dots, dashes and underscores"):
        tokens.add(name, 1.0)
    assert tokens.all() == []


def test_a_name_is_given_once_and_an_unknown_one_is_an_error(tokens: Tokens) -> None:
    """The remedy is named, and the nearest name there is."""
    secret = tokens.add("ann", 1.0)
    with pytest.raises(TokenError, match="roster token remove ann"):
        tokens.add("ann", 2.0, ["x"])
    with pytest.raises(TokenError, match="did you mean 'ann'"):
        tokens.remove("anne")
    with pytest.raises(TokenError, match="roster token list"):
        tokens.remove("zzz")
    with pytest.raises(TokenError, match="no server at all"):
        tokens.add("bob", 2.0, [])
    assert tokens.all() == [Token("ann", None, 1.0)]
    assert tokens.holder(secret) is not None


# ---------------------------------------------------------------------------------------------- the commands


@pytest.fixture
def configured(home: Home) -> Home:
    home.config.write_text(json.dumps({"mcpServers": {"calendar": {"command": "x"}, "files": {"command": "y"}}}))
    return home


def test_tokens_are_made_listed_and_removed_by_commands(configured: Home, run: Run, db: sqlite3.Connection) -> None:
    """The token is all that is on stdout, so that it can be put where it belongs; afterwards it is shown nowhere."""
    made = run("token", "add", "ann", "--servers", " files, calendar,files ")
    secret = made.out.strip()
    assert (made.status, secret.startswith(PREFIX), secret in made.err) == (0, True, False)
    assert "ann sees calendar, files" in made.err
    all_ = run("token", "add", "bob", "--json").json()
    assert (all_["name"], all_["servers"]) == ("bob", None)

    listed = run("token", "list")
    assert "ann" in listed.out
    assert "calendar, files" in listed.out
    assert "every server" in listed.out
    rows = run("token", "--json").json()
    assert rows == run("token", "list", "--json").json()
    assert [(row["name"], row["servers"]) for row in rows["tokens"]] == [("ann", ["calendar", "files"]), ("bob", None)]
    assert not {secret, all_["token"]} & set(json.dumps(rows).split('"'))

    assert run("token", "remove", "ann", "--json").json() == {"removed": "ann"}
    assert run("token", "remove", "bob").out == "bob: removed\n"
    assert "no tokens yet" in run("token").out
    assert Tokens(db).holder(secret) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add", "ann", "--servers", "calender"], "no server 'calender': did you mean 'calendar'?"),
        (["add", "ann", "--servers", "zzz"], "there are calendar, files, skill"),
        (["add", "ann", "--servers", " , "], "name at least one"),
        (["add", "a b"], "cannot name a token"),
        (["remove", "ann"], "there is no token 'ann'"),
    ],
)
def test_a_command_that_cannot_says_why_and_changes_nothing(
    configured: Home, run: Run, db: sqlite3.Connection, words: list[str], said: str
) -> None:
    """Exit status 1, nothing on stdout, one line that names the value."""
    ran = run("token", *words)
    assert (ran.status, ran.out) == (1, "")
    assert said in ran.err
    assert Tokens(db).all() == []
