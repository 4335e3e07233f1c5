"""A home's history in its drafts: visible at once, in every process, gone with the definition it was about."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from fakes import Clock, WordEncoder, tool

from roster.catalogue import Catalogue
from roster.config import Home
from roster.draft import Draft, draft
from roster.dwell import DWELL_S
from roster.history import History, OutcomeRow
from roster.learning import AT_ONCE, Learner
from roster.outcomes import Outcome
from roster.reindex import Writer, embed_missing
from roster.weights import FIRST_WEIGHTS, Weights

ROWS = [
    tool("send", "Send a message to somebody"),
    tool("post", "Put a notice on a board"),
    tool("list", "List the events of a day"),
]
NEED = "send a notice that lunch is ready"


@dataclass
class Bench:
    """A home with a few cards, and outcomes as calls of drafts would leave them."""

    catalogue: Catalogue
    writer: Writer
    history: History
    learner: Learner
    home: Home
    clock: Clock
    again: Callable[[], Catalogue]
    numbers: dict[str, int] = field(default_factory=dict)

    def draft(self, need: str = NEED, k: int = 5) -> Draft:
        return draft(self.catalogue, need, k, learner=self.learner)

    def ids(self, need: str = NEED) -> list[str]:
        return [starter.card.name for starter in self.draft(need).starters]

    def happen(self, name: str, need: str | None = NEED, outcome: Outcome = Outcome.SUCCESS, times: int = 1) -> None:
        """A call of a card, under a draft for `need` made without learning; None: without a draft."""
        made = draft(self.catalogue, need) if need is not None else None
        entry = self.catalogue.find(f"calendar__{name}")
        assert entry is not None
        for _ in range(times):
            lesson = made.lesson() if made is not None else None
            number = self.history.keep_need(lesson, self.clock.now) if lesson is not None else None
            row = OutcomeRow(
                entry.card.id, entry.card.fingerprint, outcome, None, 1.0, self.clock.now, drafted=True, need=number
            )
            self.history.record(row)


@pytest.fixture
def bench(
    catalogue: Catalogue,
    writer: Writer,
    home: Home,
    clock: Clock,
    encoder: WordEncoder,
    connect: Callable[[], sqlite3.Connection],
) -> Bench:
    writer.registry.sight("calendar", ROWS, clock.now)
    catalogue.attach(encoder, home.index)
    embed_missing(catalogue, writer, home)

    def again() -> Catalogue:
        other = Catalogue(connect(), ["calendar", "files"])
        other.attach(WordEncoder(), home.index)
        return other

    return Bench(catalogue, writer, History(writer.db), Learner(catalogue, clock=clock), home, clock, again)


def test_the_first_outcome_is_in_the_next_draft(bench: Bench) -> None:
    """With its numbers, and for this need only: a need of other words is drafted as before."""
    before = bench.draft()
    bench.happen("post")
    after = bench.draft()

    assert before.starters[0].card.name != "post"
    assert after.starters[0].card.name == "post"
    first = after.starters[0].scored
    assert first.learned is not None
    assert first.learned.share > 0.8
    assert first.boost > 0
    assert first.score == pytest.approx(first.base + first.boost + first.rating)
    other = bench.draft("list the events of a day").running[0][1]
    assert (other.boost, other.score) == (0, other.base)


def test_another_process_sees_it_too(bench: Bench) -> None:
    """Whoever recorded the outcome; each has a learner of its own over the one database."""
    other = bench.again()
    learner = Learner(other, clock=bench.clock)
    assert draft(other, NEED, learner=learner).starters[0].scored.learned is None
    bench.happen("post")

    assert draft(other, NEED, learner=learner).starters[0].card.name == "post"


def test_failures_sink_a_card_for_the_need_and_a_little_overall(bench: Bench) -> None:
    """Each one more; a need of other words is hardly touched."""
    name = bench.ids()[0]
    scores = []
    for _ in range(6):
        running = {card.name: scored for card, scored in bench.draft().running}
        scores.append(running[name].score)
        bench.happen(name, outcome=Outcome.INTERNAL)
    elsewhere = {card.name: scored for card, scored in bench.draft("list the events of a day").running}[name]

    assert scores == sorted(scores, reverse=True)
    assert scores[0] - scores[-1] > 0.3
    assert -0.3 < elsewhere.boost + elsewhere.rating < 0
    assert bench.ids()[0] != name


def test_what_is_the_callers_own_teaches_nothing(bench: Bench) -> None:
    """A rejection of wrong arguments, and a call that belongs to no draft."""
    before = bench.draft()
    bench.happen("post", outcome=Outcome.SCHEMA, times=9)
    assert bench.draft() == before
    bench.happen("post", need=None, times=3)
    after = {card.name: scored for card, scored in bench.draft().running}["post"]
    assert after.learned is None
    assert 0 < after.rating < 0.01


def test_a_changed_definition_drops_what_was_learned_of_it(bench: Bench) -> None:
    """Needs and learned vectors go, once it is back in drafts; its record stays, and others keep theirs."""
    bench.happen("post", times=4)
    bench.happen("send", need="write to my sister", times=2)
    assert bench.ids()[0] == "post"
    changed = tool("post", "Put a notice on a board, and ring a bell")
    bench.writer.registry.sight("calendar", [ROWS[0], changed, ROWS[2]], bench.clock.now)
    assert "post" not in bench.ids()
    bench.writer.registry.unquarantine("calendar__post", bench.clock.now)
    bench.catalogue.refresh()
    embed_missing(bench.catalogue, bench.writer, bench.home)
    again = {card.name: scored for card, scored in bench.draft().running}["post"]
    kept = {card.name: scored for card, scored in bench.draft("write to my sister").running}["send"]

    assert (again.learned, again.boost) == (None, 0)
    assert again.rating > 0
    assert kept.learned is not None
    assert bench.learner.settle(always=True)
    assert {card.name: scored for card, scored in bench.draft().running}["post"].learned is None
    assert bench.clock.now < DWELL_S * 1e9


def test_evidence_of_the_old_contract_stays_away_in_a_new_process(bench: Bench) -> None:
    """Outcomes carry the fingerprint they were recorded under."""
    bench.happen("post", times=4)
    changed = tool("post", "Put a notice on a board, and ring a bell")
    bench.writer.registry.sight("calendar", [ROWS[0], changed, ROWS[2]], bench.clock.now)
    bench.writer.registry.unquarantine("calendar__post", bench.clock.now)
    bench.catalogue.refresh()
    embed_missing(bench.catalogue, bench.writer, bench.home)
    other = bench.again()
    running = {card.name: s for card, s in draft(other, NEED, learner=Learner(other, clock=bench.clock)).running}

    assert running["post"].learned is None
    assert running["post"].rating > 0


def test_a_cleared_history_is_forgotten_everywhere(bench: Bench) -> None:
    """Also when new outcomes have taken the old ones' numbers meanwhile."""
    bench.happen("post", times=3)
    assert bench.ids()[0] == "post"
    bench.history.clear()
    bench.happen("list", need="list the events of a day", times=3)

    assert bench.draft().starters[0].card.name != "post"
    assert all(scored.learned is None or not scored.boost for _, scored in bench.draft().running)


def test_another_encoders_needs_are_left_alone(bench: Bench, encoder: WordEncoder) -> None:
    """They mean nothing to this one; the records of the cards go on counting."""
    bench.happen("post", times=3)
    bench.ids()
    bench.catalogue.attach(WordEncoder(dim=128), bench.home.index)
    embed_missing(bench.catalogue, bench.writer, bench.home)
    scored = {card.name: each for card, each in bench.draft().running}["post"]

    assert scored.learned is None
    assert scored.rating > 0


def test_records_alone_can_be_learned_from(bench: Bench) -> None:
    """`learning: "ratings"`: no evidence from needs."""
    bench.learner = Learner(bench.catalogue, needs=False, clock=bench.clock)
    bench.happen("post", outcome=Outcome.TIMEOUT, times=9)
    scored = {card.name: each for card, each in bench.draft().running}["post"]

    assert scored.learned is None
    assert scored.rating < -0.1


def test_weights_are_settled_kept_and_begun_with(bench: Bench) -> None:
    """By this home's needs; the next process starts from them."""
    for word in "red green blue black white grey brown pink gold teal plum lime".split():
        bench.happen("post", need=f"tell the {word} team", times=2)
    assert bench.learner.settle()
    assert not bench.learner.settle()
    bench.learner.keep(bench.history, bench.clock.now)
    other = bench.again()
    learner = Learner(other, clock=bench.clock)
    learner.refresh()

    assert learner.weights == bench.learner.weights
    assert learner.weights != Weights()
    assert learner.figures()["outcomes"] == 24
    assert not learner.settle()


def test_a_home_that_earned_an_adapter_reads_needs_as_it_means_them(bench: Bench, encoder: WordEncoder) -> None:
    """From the first draft of a process on, and beside all other evidence; a changed card's part of it goes."""
    for word in "red green blue black white grey brown pink gold teal plum lime".split():
        bench.happen("post", need=f"tell the {word} team")
    bench.history.keep_weights(encoder.fingerprint, Weights(adapter=1.0), 0.1, 12, bench.clock.now)
    need = "tell the violet team"
    running = {card.name: scored for card, scored in bench.draft(need).running}

    assert running["post"].adapted > 0.01
    assert running["post"].adapted > running["list"].adapted
    assert running["post"].score == pytest.approx(
        running["post"].base + running["post"].boost + running["post"].adapted + running["post"].rating
    )
    changed = tool("post", "Put a notice on a board, and ring a bell")
    bench.writer.registry.sight("calendar", [ROWS[0], changed, ROWS[2]], bench.clock.now)
    bench.writer.registry.unquarantine("calendar__post", bench.clock.now)
    bench.catalogue.refresh()
    embed_missing(bench.catalogue, bench.writer, bench.home)
    assert all(scored.adapted == 0 for _, scored in bench.draft(need).running)


def test_many_outcomes_at_once_wait_for_the_next_settling(bench: Bench) -> None:
    """A draft is not held up by another process's import; nothing of it is lost."""
    bench.ids()
    bench.happen("post", times=AT_ONCE + 1)
    assert bench.draft().running[0][1].learned is None
    assert bench.learner.settle()
    assert bench.ids()[0] == "post"


def test_a_need_that_was_served_is_no_weak_match(bench: Bench, encoder: WordEncoder) -> None:
    """What worked for needs like it fits, though it says nothing of the kind itself."""
    encoder.match_floor = 0.5
    assert bench.draft("zxqv wvut").starters == ()
    bench.happen("post", need="zxqv wvut")

    assert bench.ids("zxqv wvut")[0] == "post"


def test_without_history_a_learner_changes_nothing(bench: Bench) -> None:
    """Numbers included."""
    assert bench.draft() == draft(bench.catalogue, NEED)
    assert bench.learner.weights == FIRST_WEIGHTS
    assert bench.learner.figures() == {
        "outcomes": 0,
        "cards": 0,
        "weights": {"near": 0.1, "share": 0.2, "slow": False, "adapter": 0.0},
        "gain": 0.0,
    }


def test_the_stored_need_is_worth_no_more_than_a_number(bench: Bench, db: sqlite3.Connection) -> None:
    """Scores kept with a need are those without evidence, or it would be weighed against itself."""
    bench.happen("post", times=3)
    made: Any = bench.draft()
    kept = dict(made.lesson().running)

    first = made.running[0][1]
    assert kept[first.number] == first.base < first.score


def test_a_first_outcome_of_the_new_definition_does_not_save_the_old_ones(bench: Bench) -> None:
    """Whichever is seen first, the change or the outcome."""
    bench.happen("post", times=4)
    assert bench.ids()[0] == "post"
    changed = tool("post", "Put a notice on a board, and ring a bell")
    bench.writer.registry.sight("calendar", [ROWS[0], changed, ROWS[2]], bench.clock.now)
    bench.writer.registry.unquarantine("calendar__post", bench.clock.now)
    bench.catalogue.refresh()
    embed_missing(bench.catalogue, bench.writer, bench.home)
    bench.happen("post", need="list the events of a day")
    scored = {card.name: each for card, each in bench.draft().running}["post"]

    assert scored.learned is not None
    assert scored.learned.share < 0.1


def test_a_card_that_comes_back_as_it_was_has_what_it_was_taught(bench: Bench) -> None:
    """In a process that saw it go, as in one that did not."""
    bench.happen("post", times=4)
    bench.ids()
    bench.writer.registry.sight("calendar", [ROWS[0], ROWS[2]], bench.clock.now)
    assert "post" not in bench.ids()
    bench.writer.registry.sight("calendar", ROWS, bench.clock.now)

    assert bench.ids()[0] == "post"


def test_what_a_file_holds_by_mistake_costs_no_draft(bench: Bench) -> None:
    """Vectors of no sense, running of no sense, weights of no sense: left out, and the rest is learned from."""
    bench.happen("post", times=2)
    for turn in range(30):
        bench.happen("post", need=f"send notice {turn}")
    db = bench.writer.db
    db.execute("UPDATE needs SET vector = x'00' WHERE number = 1")
    db.execute("UPDATE needs SET vector = 'text' WHERE number = 3")
    db.execute("UPDATE needs SET vector = x'00000000' WHERE number = 4")
    db.execute("UPDATE needs SET running = x'0102' WHERE number = 5")
    bench.learner.settle(always=True)
    bench.learner.keep(bench.history, bench.clock.now)
    db.execute("UPDATE learning SET near = 'much'")

    assert bench.ids()[0] == "post"
    other = bench.again()
    assert draft(other, NEED, learner=Learner(other, clock=bench.clock)).starters[0].card.name == "post"


def test_a_history_at_its_limit_is_settled_again(bench: Bench) -> None:
    """By how many outcomes are new, not by how many there are."""
    bench.happen("post", times=20)
    assert bench.learner.settle()
    bench.writer.db.execute("DELETE FROM outcomes WHERE number <= 15")
    bench.learner.settle(always=True)
    for turn in range(6):
        bench.happen("post", need=f"send the notice number {turn}")

    assert bench.learner.settle()


def test_a_named_card_goes_before_whatever_was_learned(bench: Bench) -> None:
    """Evidence may add more than a name does."""
    need = "use calendar__list to send a notice that lunch is ready"
    bench.happen("post", need=need, times=3)
    assert bench.learner.settle(always=True)
    bench.learner._state.weights = Weights(2.0, 8.0)  # type: ignore[union-attr]

    first, second = bench.draft(need).starters[:2]
    assert (first.card.name, second.card.name) == ("list", "post")
    assert second.scored.score > first.scored.score


def test_a_need_that_only_failed_is_still_weak(bench: Bench, encoder: WordEncoder) -> None:
    """One success long ago does not make twenty failures a match."""
    encoder.match_floor = 0.5
    bench.happen("post", need="zxqv wvut")
    for turn in range(20):
        bench.happen("post", need=f"zxqv wvut {'again ' * (turn % 2)}", outcome=Outcome.INTERNAL)

    assert bench.draft("zxqv wvut").starters == ()


def test_a_card_that_keeps_failing_sinks_wherever_it_stands(bench: Bench) -> None:
    """Also among those too far down to be asked about; one that works is not looked at there."""
    bench.happen("post", outcome=Outcome.INTERNAL, times=51)
    bench.happen("send", times=3)
    bench.ids()
    numbers = {card.name: scored.number for card, scored in bench.draft().running}
    ratings = bench.learner.ask(None, [], list(numbers.values())).ratings

    assert ratings.keys() == {numbers["post"]}
    assert ratings[numbers["post"]] < -0.2


def test_a_history_that_makes_no_sense_costs_learning_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Said once, by its kind and without a word of it; drafts go on, and new outcomes are a new try."""

    def broken(self: History, after: int = 0) -> list[Any]:
        raise ValueError("a word of somebody's")

    bench.happen("post")
    with monkeypatch.context() as patched:
        patched.setattr(History, "events", broken)
        assert [bench.draft() for _ in range(3)][-1] == draft(bench.catalogue, NEED)
        assert not bench.learner.settle(always=True)
    assert [record.getMessage() for record in caplog.records] == [
        "what was recorded cannot be learned from (ValueError); drafts go on without"
    ]
    bench.happen("post")
    assert bench.ids()[0] == "post"
