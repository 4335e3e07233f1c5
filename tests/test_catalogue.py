"""The catalogue: which cards may be drafted, kept in step with the database and with the dense index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fakes import Clock, WordEncoder, tool

from roster.cards import dense_text, public_id
from roster.catalogue import Catalogue
from roster.config import Home
from roster.dense import DenseIndex, drop_manifest
from roster.registry import Registry
from roster.reindex import Writer, embed_missing

ADD, LIST, READ = tool("add", "Add an event"), tool("list", "List events"), tool("read", "Read a file")
ADD2 = tool("add", "Add an event, and mail everybody")


@pytest.fixture
def sight(registry: Registry, clock: Clock) -> Callable[..., object]:
    """Sight a listing of `calendar` over the connection that writes, not the catalogue's."""
    return lambda *rows, server="calendar": registry.sight(server, rows, clock.now)


@pytest.fixture
def embed(registry: Registry) -> Callable[[Catalogue], None]:
    """Embed what a catalogue lacks, one text after the other."""

    def embed_all(catalogue: Catalogue) -> None:
        assert catalogue.encoder is not None
        for text_hash, entries in catalogue.unembedded().items():
            vectors = catalogue.encoder.encode_cards([dense_text(entries[0].card)])
            registry.vectors.keep(catalogue.encoder.fingerprint, [text_hash], vectors)
            catalogue.take([text_hash], vectors)

    return embed_all


def draftable(catalogue: Catalogue) -> list[str]:
    return sorted(entry.card.id for entry in catalogue.draftable().values())


def dense(catalogue: Catalogue) -> DenseIndex:
    assert catalogue.dense is not None
    return catalogue.dense


# ----------------------------------------------------------------------------------------------- cards


def test_what_another_connection_sighted_is_seen_at_the_next_refresh(catalogue: Catalogue, sight: Any) -> None:
    """And not before; a refresh says whether there was anything new."""
    assert (catalogue.refresh(), draftable(catalogue)) == (True, [])
    sight(ADD, LIST)
    assert draftable(catalogue) == []

    assert catalogue.refresh() is True
    assert draftable(catalogue) == ["calendar__add", "calendar__list"]
    assert catalogue.refresh() is False
    sight(ADD, LIST)
    assert catalogue.refresh() is False


def test_a_card_that_drifts_is_not_drafted_until_cleared(catalogue: Catalogue, registry: Registry, sight: Any) -> None:
    """It is still listed and can be called; clearing it brings it back at the next refresh."""
    sight(ADD, LIST)
    sight(ADD2, LIST)
    catalogue.refresh()
    assert draftable(catalogue) == ["calendar__list"]
    assert [entry.card.id for entry in catalogue.living()] == ["calendar__add", "calendar__list"]
    assert catalogue.named(["add"]) == set()
    assert catalogue.find("calendar__add") is not None

    registry.unquarantine("calendar__add", 0.0)
    catalogue.refresh()
    assert draftable(catalogue) == ["calendar__add", "calendar__list"]


def test_with_quarantine_off_a_held_card_is_drafted(connect: Any, sight: Any) -> None:
    """The policy is the reader's: `quarantine: "off"` also frees what was held before."""
    sight(ADD)
    sight(ADD2)
    catalogue = Catalogue(connect(), ["calendar"], quarantine=False)
    catalogue.refresh()

    assert draftable(catalogue) == ["calendar__add"]


def test_a_removed_card_is_gone_from_drafts_and_listings_but_not_from_memory(catalogue: Catalogue, sight: Any) -> None:
    """Calling it can still say what became of it; when it returns it is drafted again."""
    sight(ADD, LIST)
    catalogue.refresh()
    sight(LIST)
    catalogue.refresh()
    found = catalogue.find("calendar__add")

    assert draftable(catalogue) == [entry.card.id for entry in catalogue.living()] == ["calendar__list"]
    assert found is not None
    assert found.removed
    assert set(catalogue.ids()) == {"calendar__add", "calendar__list"}
    sight(ADD, LIST)
    catalogue.refresh()
    assert draftable(catalogue) == ["calendar__add", "calendar__list"]


def test_cards_of_servers_that_are_not_configured_are_left_out(catalogue: Catalogue, sight: Any) -> None:
    """A server taken out of the config, or disabled, leaves its cards in the database only."""
    sight(ADD, server="forgotten")
    sight(READ, server="files")
    catalogue.refresh()

    assert draftable(catalogue) == ["files__read"]
    assert catalogue.find("forgotten__add") is None
    assert set(catalogue.ids()) == {"files__read"}
    assert catalogue.named(["add"]) == set()


@pytest.mark.report("mezmo/aura#186", "mezmo/aura#713")
def test_listings_keep_each_servers_own_order(catalogue: Catalogue, sight: Any) -> None:
    """By server, then as the backend lists them now, whenever each was first seen."""
    sight(READ, server="files")
    sight(ADD)
    sight(LIST, ADD)
    catalogue.refresh()

    assert [entry.card.id for entry in catalogue.living()] == ["calendar__list", "calendar__add", "files__read"]


def test_a_card_is_found_by_its_id_and_by_its_listed_name(catalogue: Catalogue, sight: Any) -> None:
    """Both are names a client may hold; a part of one is not."""
    long = tool("a_name_that_is_too_long_for_a_client_with_a_prefix")
    sight(long)
    catalogue.refresh()
    (entry,) = catalogue.living()

    assert entry.card.listed != entry.card.id
    assert catalogue.find(entry.card.id) is catalogue.find(entry.card.listed) is entry
    assert catalogue.find("calendar") is None


def test_a_whole_name_or_id_names_its_cards(catalogue: Catalogue, sight: Any) -> None:
    """Folded on both sides; a name that two servers use names both."""
    sight(ADD, tool("createÉvent"))
    sight(ADD, READ, server="files")
    catalogue.refresh()
    ids = {entry.number: entry.card.id for entry in catalogue.living()}

    def named(*words: str) -> set[str]:
        return {ids[number] for number in catalogue.named(words)}

    assert named("add") == {"calendar__add", "files__add"}
    assert named("files__add", "createevent", "nothing") == {"files__add", public_id("calendar", "createÉvent")}
    assert named("ad", "__add", "") == set()


def test_a_draft_under_way_keeps_the_cards_it_has(catalogue: Catalogue, sight: Any) -> None:
    """A refresh makes a new mapping, and never changes the one that somebody reads."""
    sight(ADD)
    catalogue.refresh()
    before = catalogue.draftable()
    sight(LIST)
    catalogue.refresh()

    assert [entry.card.id for entry in before.values()] == ["calendar__add"]
    assert draftable(catalogue) == ["calendar__list"]


# --------------------------------------------------------------------------------------------- vectors


def test_without_an_encoder_there_is_nothing_to_embed_or_save(catalogue: Catalogue, home: Home, sight: Any) -> None:
    """Words work alone."""
    sight(ADD)
    catalogue.refresh()
    catalogue.take_stored()
    catalogue.take([], np.zeros((0, 256), np.float32))
    catalogue.empty_dense()

    assert (catalogue.dense, catalogue.unembedded(), catalogue.save(home.index)) == (None, {}, False)
    assert [number for number, _ in catalogue.words("add", 5)] == [1]


def test_attaching_an_encoder_embeds_nothing(
    catalogue: Catalogue, encoder: WordEncoder, home: Home, sight: Any
) -> None:
    """It says what is missing instead: each text once, oldest card first, with every card that has it."""
    sight(LIST, ADD, tool("ADD", "Add an event"))
    catalogue.attach(encoder, home.index)

    assert encoder.embedded == []
    assert len(dense(catalogue)) == 0
    assert [[e.card.name for e in entries] for entries in catalogue.unembedded().values()] == [["list"], ["add", "ADD"]]


@pytest.mark.report("anthropics/claude-code#14978", "anthropics/claude-code#89306")
def test_vectors_follow_the_cards(
    catalogue: Catalogue, encoder: WordEncoder, registry: Registry, home: Home, sight: Any, embed: Any
) -> None:
    """Removal and drift take a card's row out at the next refresh; its return or clearance brings it back."""
    catalogue.attach(encoder, home.index)
    sight(ADD, LIST)
    catalogue.refresh()
    embed(catalogue)
    assert dense(catalogue).numbers == {1, 2}

    sight(LIST)
    catalogue.refresh()
    assert dense(catalogue).numbers == {2}
    sight(ADD, LIST)  # as it was: the stored vector is taken, nothing is embedded again
    catalogue.refresh()
    assert dense(catalogue).numbers == {1, 2}
    assert catalogue.unembedded() == {}

    sight(ADD2, LIST)
    catalogue.refresh()
    assert (dense(catalogue).numbers, catalogue.unembedded()) == ({2}, {})
    registry.unquarantine("calendar__add", 0.0)
    catalogue.refresh()
    assert [[e.number for e in entries] for entries in catalogue.unembedded().values()] == [[1]]
    embed(catalogue)
    assert dense(catalogue).search(encoder.encode_needs(["mail everybody"]), 1)[0][0] == 1
    assert len(encoder.embedded) == 3


@pytest.mark.report("stacklok/toolhive#5847")
def test_nothing_is_embedded_twice_across_a_restart(
    catalogue: Catalogue, encoder: WordEncoder, home: Home, connect: Any, sight: Any, embed: Any
) -> None:
    """With or without an index file, a new process takes the stored vectors and finds the same cards."""
    sight(ADD, LIST, READ)
    catalogue.attach(encoder, home.index)
    embed(catalogue)
    need = encoder.encode_needs(["list events"])
    for _ in range(2):  # first there is no index file, then there is one
        after = Catalogue(connect(), ["calendar", "files"])
        after.attach(WordEncoder(), home.index)

        assert after.unembedded() == {}
        assert dense(after).search(need, 5) == dense(catalogue).search(need, 5)
        catalogue.save(home.index)


def test_vectors_of_another_encoder_are_not_used(
    catalogue: Catalogue, encoder: WordEncoder, home: Home, sight: Any, embed: Any
) -> None:
    """Another model means other vectors, of another width perhaps; going back costs nothing."""
    sight(ADD, LIST)
    catalogue.attach(encoder, home.index)
    embed(catalogue)
    catalogue.save(home.index)

    catalogue.attach(WordEncoder(dim=64), home.index)
    assert (len(dense(catalogue)), len(catalogue.unembedded())) == (0, 2)
    catalogue.attach(encoder, home.index)
    assert (len(dense(catalogue)), len(catalogue.unembedded())) == (2, 0)


def test_an_index_is_saved_when_complete_and_only_when_it_changed(
    catalogue: Catalogue, encoder: WordEncoder, home: Home, connect: Any, sight: Any, embed: Any
) -> None:
    """A half-filled index never gets on disk; the same one is not written twice, nor by who loaded it."""
    sight(ADD, LIST)
    catalogue.attach(encoder, home.index)
    assert catalogue.save(home.index) is False
    assert not home.index.exists()

    embed(catalogue)
    assert [catalogue.save(home.index) for _ in range(2)] == [True, False]
    after = Catalogue(connect(), ["calendar"])
    after.attach(encoder, home.index)
    assert after.save(home.index) is False

    sight(ADD)
    assert after.save(home.index) is False  # not seen yet
    after.refresh()
    assert after.save(home.index) is True


def test_a_vector_is_taken_only_for_cards_that_have_the_text_now(
    catalogue: Catalogue, encoder: WordEncoder, home: Home, sight: Any
) -> None:
    """A card that changed while its text was being embedded gets no vector of what it said before."""
    sight(ADD, LIST)
    catalogue.attach(encoder, home.index)
    hashes = list(catalogue.unembedded())
    vectors = encoder.encode_cards(["calendar, add: Add an event", "calendar, list: List events"])
    sight(ADD2, LIST)
    catalogue.refresh()
    catalogue.take(hashes, vectors)

    assert dense(catalogue).numbers == {2}


def test_what_others_stored_is_taken_over(
    catalogue: Catalogue, encoder: WordEncoder, registry: Registry, home: Home, sight: Any
) -> None:
    """Without embedding it, and without the cards that have a vector already."""
    sight(ADD, LIST)
    catalogue.attach(encoder, home.index)
    first, second = catalogue.unembedded()
    registry.vectors.keep(encoder.fingerprint, [second], encoder.encode_needs(["list"]))
    catalogue.take_stored()

    assert dense(catalogue).numbers == {2}
    assert list(catalogue.unembedded()) == [first]
    catalogue.empty_dense()
    assert (len(dense(catalogue)), len(catalogue.unembedded())) == (0, 2)


def test_a_damaged_vector_is_made_anew(
    catalogue: Catalogue, writer: Writer, home: Home, clock: Clock, encoder: WordEncoder
) -> None:
    """Of another length, of no numbers, or no vector at all: the text has none, until it is embedded again."""
    rows = [tool(name, f"What {name} does") for name in ("short", "odd", "empty", "nan", "zero", "sound")]
    writer.registry.sight("calendar", rows, clock.now)
    catalogue.attach(encoder, home.index)
    embed_missing(catalogue, writer, home)
    nan = np.full(encoder.dim, np.nan, "<f4").tobytes()
    zero = bytes(4 * encoder.dim)
    damaged = {"short": bytes(400), "odd": b"abc", "empty": b"", "nan": nan, "zero": zero}
    for name, blob in damaged.items():
        entry = catalogue.find(f"calendar__{name}")
        assert entry is not None
        writer.db.execute("UPDATE vectors SET vector = ? WHERE text_hash = ?", (blob, entry.text_hash))
    drop_manifest(home.index)

    again = Catalogue(writer.db, ["calendar"])
    again.attach(encoder, home.index)
    assert again.missing == 5
    assert embed_missing(again, writer, home) == 5
    assert again.missing == 0
