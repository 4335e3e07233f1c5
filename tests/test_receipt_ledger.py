"""Receipts, the sums: what counts, in which way, and from when on nothing is saved any more."""

from __future__ import annotations

import json

import pytest

from roster.receipt.ledger import Offer, Owned, Server, Tool, Use, bill, heaviest, together
from roster.receipt.loading import Loading, Way, loading_of
from roster.receipt.meter import Count, Meter, definition, open_meter

WHOLE, NAMES = Loading(Way.WHOLE, "why"), Loading(Way.NAMES, "why")


def count(tokens: int) -> Count:
    return Count(tokens - 1, tokens, tokens + 2)


def server(name: str, *sizes: int) -> Server:
    """A server with a tool of each size; a tool's name takes a tenth of it."""
    return Server(
        name, name, tuple(Tool(name, f"t{n}", n, count(size), count(size // 10)) for n, size in enumerate(sizes, 1))
    )


def owned(*uses: Use) -> Owned:
    return Owned("c", "C", uses)


ROSTER = server("roster", 30, 20).tools or ()
OFFER = Offer(ROSTER, server("all", 100, 200, 300).tools or (), Count(4, 5, 6), Count(9, 10, 11))


def test_all_loaded_costs_every_definition() -> None:
    """Without Roster the sum of them; with it those of its own tools, and its instructions."""
    (case,) = bill(owned(Use(server("a", 100, 200)), Use(server("b", 300))), OFFER, WHOLE).cases

    assert case.without == Count(597, 600, 606)
    assert case.transparent == Count(597 + 9, 600 + 10, 606 + 11)
    assert case.five == Count(48 + 4, 50 + 5, 54 + 6)
    assert case.saved == Count(545, 545, 546)
    assert case.share == pytest.approx(545 / 600)


def test_a_client_that_defers_has_a_second_case_of_names_alone() -> None:
    """What it does by itself comes first; all loaded is the other end."""
    names, whole = bill(owned(Use(server("a", 100, 200))), OFFER, NAMES).cases

    assert (names.way, whole.way) == (Way.NAMES, Way.WHOLE)
    assert names.without.tokens == 10 + 20
    assert names.five.tokens == 3 + 2 + 5
    assert whole.without.tokens == 300


def test_a_server_that_is_off_costs_nothing_and_one_never_asked_is_unknown() -> None:
    """Neither is counted; only the second one makes the figure an "at least"."""
    one = bill(owned(Use(server("a", 100)), Use(server("b", 900), on=False), Use(Server("x", "x", None))), OFFER, WHOLE)

    assert one.cases[0].without.tokens == 100
    assert (one.tools, one.unknown) == (1, 1)


def test_a_server_that_stays_with_its_client_costs_with_roster_as_well() -> None:
    """Roster cannot take away what it cannot route."""
    (case,) = bill(owned(Use(server("a", 100)), Use(server("b", 40), stays=True)), OFFER, WHOLE).cases

    assert (case.without.tokens, case.five.tokens) == (140, 50 + 40 + 5)


def test_beyond_a_clients_limit_the_range_says_which_tools_it_may_be() -> None:
    """The lightest two at best, the heaviest two at worst, their share of the sum in between."""
    (case,) = bill(owned(Use(server("a", 100, 200, 300))), OFFER, Loading(Way.WHOLE, "why", limit=2)).cases

    assert case.without == Count(99 + 199, 400, 202 + 302)
    assert case.five.tokens == 55


@pytest.mark.parametrize(("draft", "drafts"), [(545, 1), (546, 0), (100, 5), (0, None)])
def test_a_saving_is_used_up_by_drafts(draft: int, drafts: int | None) -> None:
    """How many answers fit into what is saved, rounded down."""
    (case,) = bill(owned(Use(server("a", 600))), OFFER, WHOLE).cases

    assert case.drafts(Count(draft, draft, draft)) == drafts
    assert case.drafts(None) is None


def test_where_nothing_is_saved_no_draft_is_counted() -> None:
    """A client with one small tool pays for Roster's two: the saving is below zero and says so."""
    (case,) = bill(owned(Use(server("a", 40))), OFFER, WHOLE).cases

    assert (case.saved.tokens, case.share) == (-15, pytest.approx(-0.375))
    assert case.drafts(Count(1, 1, 1)) is None


def test_the_heaviest_tools_are_each_named_once() -> None:
    """Though two clients have the server; and a server that is off has none."""
    shared = Use(server("a", 100, 300))
    bills = [bill(owned(shared), OFFER, WHOLE), bill(owned(shared, Use(server("b", 200))), OFFER, NAMES),
             bill(owned(Use(server("c", 900), on=False)), OFFER, WHOLE)]  # fmt: skip

    assert [(tool.server, tool.place) for tool in heaviest(bills)] == [("a", 2), ("b", 1), ("a", 1)]
    assert len(heaviest(bills, most=2)) == 2


def test_all_clients_together_are_a_sum_of_cases_of_one_way() -> None:
    """A client that only ever loads all of it counts in full in both sums."""
    bills = [bill(owned(Use(server("a", 100))), OFFER, NAMES), bill(owned(Use(server("b", 200))), OFFER, WHOLE)]

    assert together(bills, Way.NAMES).without.tokens == 10 + 200
    assert together(bills, Way.WHOLE).without.tokens == 100 + 200
    assert together(bills, Way.WHOLE).five.tokens == 2 * 55


def test_clients_that_say_how_they_load_tools_are_known() -> None:
    """And any other one is counted as if it sent every definition."""
    assert loading_of("claude-code").way is Way.NAMES
    assert loading_of("vscode").limit == 128
    assert (loading_of("zed").way, loading_of("zed").limit) == (Way.WHOLE, None)


def test_a_definition_is_name_description_and_input_schema() -> None:
    """What else a listing holds does not reach a model's context; what is missing is empty."""
    row = {"name": "t", "title": "T", "description": "d", "inputSchema": {"type": "object"}, "_meta": {"a": 1}}

    assert definition(row) == {"name": "t", "description": "d", "inputSchema": {"type": "object"}}
    assert definition({"name": "t", "inputSchema": 3}, "x") == {
        "name": "x",
        "description": "",
        "inputSchema": {"type": "object"},
    }


def test_a_count_is_the_first_tokenizers_and_its_range_that_of_all_in_both_spellings() -> None:
    """Compact for the figure; the most is with a space after each comma and colon."""
    meter = Meter("characters", True, (len, lambda text: len(text) - 3, lambda text: len(text) + 1))

    assert meter.json({"a": [1, 2]}) == Count(11 - 3, 11, 13 + 1)
    assert meter.text("abcd") == Count(1, 4, 5)


def test_without_a_tokenizer_a_count_is_an_estimate_with_a_wide_range() -> None:
    """From 4 to 5 characters a token, 4.5 for the figure."""
    assert Meter("estimate", False, ()).text("x" * 900) == Count(180, 200, 225)


def test_the_estimate_holds_what_a_tokenizer_counts() -> None:
    """Tool definitions, as the field writes them, lie within the estimate's range."""
    pytest.importorskip("bpe_openai")
    exact = open_meter()
    value = {
        "name": "create_issue",
        "description": "Create a new issue in a repository, with a title, a body, labels and assignees. "
        "Returns the number of the issue and the address under which it can be read.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "owner": {"type": "string", "description": "Owner of the repository"},
                "repo": {"type": "string", "description": "Name of the repository"},
                "title": {"type": "string", "description": "Title of the issue"},
                "labels": {"type": "array", "items": {"type": "string"}, "description": "Labels to put on it"},
            },
            "required": ["owner", "repo", "title"],
        },
    }
    counted, guessed = exact.json(value), Meter("estimate", False, ()).json(value)

    assert exact.exact
    assert counted.low <= counted.tokens <= counted.high
    assert guessed.low <= counted.tokens <= guessed.high
    assert exact.text(json.dumps(value)).tokens > counted.tokens
