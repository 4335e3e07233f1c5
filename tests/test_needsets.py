"""The project's own need sets keep what their protocol page promises: format, grades, styles, split, counts."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from roster.words import tokens, tokens_of_need, with_stems

NEEDSETS = Path(__file__).parents[1] / "eval" / "needsets"
SETS = ("servers", "skills", "chinese")
STYLES = {"plain", "terse", "verbose", "typo", "no_shared_word", "misleading", "several", "not_english"}
CHINESE_STYLES = {"plain", "terse", "verbose", "typo", "no_shared_word"}
SERVERS = {"everything", "fetch", "filesystem", "git", "github", "memory", "playwright", "sqlite", "time"}
CHINESE_SERVERS = set(
    "12306 baidu-map china-festival-mcp china-law cnki kuaidi100 lark-mcp netease-mail nutstore quhua qweather "
    "xmind".split()
)


def _load_split() -> ModuleType:
    spec = importlib.util.spec_from_file_location("needset_split", NEEDSETS / "split.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


split = _load_split()


class NeedSet:
    """One folder, read whole: cards and needs by id, and each need's grades."""

    def __init__(self, name: str) -> None:
        self.folder = NEEDSETS / name
        self.card_rows: list[dict[str, Any]] = split.read_jsonl(self.folder / "corpus.jsonl")
        self.need_rows: list[dict[str, Any]] = split.read_jsonl(self.folder / "queries.jsonl")
        self.qrels = {side: split.read_qrels(self.folder, side) for side in ("train", "test")}
        self.cards = {row["_id"]: row for row in self.card_rows}
        self.needs = {row["_id"]: row for row in self.need_rows}
        self.grades: dict[str, dict[str, int]] = {}
        for rows in self.qrels.values():
            for need, card, grade in rows:
                self.grades.setdefault(need, {})[card] = grade

    def of_style(self, style: str) -> Iterator[tuple[dict[str, Any], dict[str, int]]]:
        """The needs of a style, each with its grades by card."""
        return ((row, self.grades[row["_id"]]) for row in self.need_rows if row["style"] == style)

    def wanted(self) -> set[str]:
        """The cards that some need grades 2."""
        return {card for grades in self.grades.values() for card, grade in grades.items() if grade == 2}


@pytest.fixture(scope="module", params=SETS)
def needset(request: pytest.FixtureRequest) -> NeedSet:
    return NeedSet(request.param)


@pytest.fixture(scope="module")
def servers() -> NeedSet:
    return NeedSet("servers")


@pytest.fixture(scope="module")
def skills() -> NeedSet:
    return NeedSet("skills")


@pytest.fixture(scope="module")
def chinese() -> NeedSet:
    return NeedSet("chinese")


@pytest.fixture(scope="module")
def nonsense() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = split.read_jsonl(NEEDSETS / "nonsense.jsonl")
    return rows


def _words(text: str) -> set[str]:
    return set(with_stems(tokens(text)))


def _is_chinese(text: str) -> bool:
    return re.search(r"[\u4e00-\u9fff]", text) is not None


def test_every_card_has_what_its_kind_needs(needset: NeedSet) -> None:
    """Ids are server and name, and nothing is missing that a tool or a skill must have."""
    assert len(needset.cards) == len(needset.card_rows)
    for card in needset.card_rows:
        assert card["_id"] == f"{card['server']}__{card['name']}"
        assert card["description"].strip()
        if card["kind"] == "tool":
            assert card["inputSchema"]["type"] == "object"
            assert card.keys() <= {
                *("_id", "kind", "server", "name", "title", "description", "inputSchema", "annotations")
            }
        else:
            assert (card["kind"], card["server"]) == ("skill", "skills")
            assert card.keys() == {"_id", "kind", "server", "name", "description", "body"}
            assert 100 <= len(card["body"].split()) <= 250


def test_every_need_is_graded_against_cards_that_exist(needset: NeedSet) -> None:
    """No dangling id, no pair graded twice, only grades 1 and 2, and at least one 2 for each need."""
    assert len(needset.needs) == len(needset.need_rows)
    pairs = [(need, card) for rows in needset.qrels.values() for need, card, _ in rows]
    assert len(pairs) == len(set(pairs))
    assert needset.grades.keys() == needset.needs.keys()
    for need, grades in needset.grades.items():
        assert grades.keys() <= needset.cards.keys(), need
        assert set(grades.values()) <= {1, 2}, need
        assert 2 in grades.values(), need


def test_the_deprecated_twin_is_graded_like_a_twin(servers: NeedSet) -> None:
    """`read_file` does what `read_text_file` does, and is the second choice everywhere."""
    for need, grades in servers.grades.items():
        reads = grades.get("filesystem__read_text_file")
        assert grades.get("filesystem__read_file") == (1 if reads else None), need


def test_no_text_comes_twice(nonsense: list[dict[str, Any]]) -> None:
    """Not within a set, not in two of them; case and spaces aside."""
    texts = [row["text"] for name in SETS for row in NeedSet(name).need_rows] + [row["text"] for row in nonsense]
    assert all(text == " ".join(text.split()) for text in texts)
    assert [text for text, n in Counter(text.casefold() for text in texts).items() if n > 1] == []


def test_there_is_enough_of_everything(servers: NeedSet, skills: NeedSet) -> None:
    """The minimum counts by style, language, server and tool."""
    styles = Counter(row["style"] for row in servers.need_rows)
    assert styles.keys() == STYLES
    assert min(styles.values()) >= 22
    assert {row["style"] for row in skills.need_rows} == STYLES
    assert len(servers.needs) >= 220
    assert len(skills.needs) >= 40

    languages = Counter(row["lang"] for row in servers.need_rows)
    assert min(languages[lang] for lang in ("zh", "es", "de", "fr")) >= 8
    assert min(languages.values()) >= 4

    assert {card["server"] for card in servers.card_rows} == SERVERS
    wanted = servers.wanted()
    assert {servers.cards[card]["server"] for card in wanted} == SERVERS
    assert len(wanted) >= 0.8 * len(servers.cards)

    written = {id_ for id_, card in skills.cards.items() if card["kind"] == "skill"}
    assert 12 <= len(written) <= 16
    assert written <= skills.wanted()
    distractors = {id_: card for id_, card in skills.cards.items() if card["kind"] == "tool"}
    assert len(distractors) == 15
    assert all(servers.cards[id_] == card for id_, card in distractors.items())


def test_there_is_enough_of_everything_chinese(chinese: NeedSet) -> None:
    """The same for the set whose cards are Chinese: every card is, and the needs are Chinese or English."""
    assert {card["server"] for card in chinese.card_rows} == CHINESE_SERVERS
    assert all(_is_chinese(card["description"]) for card in chinese.card_rows)
    assert {chinese.cards[card]["server"] for card in chinese.wanted()} == CHINESE_SERVERS
    assert len(chinese.wanted()) >= 0.8 * len(chinese.cards)

    for row in chinese.need_rows:
        assert row["lang"] == ("zh" if _is_chinese(row["text"]) else "en"), row["text"]
    languages = Counter(row["lang"] for row in chinese.need_rows)
    assert languages["zh"] >= 60
    assert languages["en"] >= 15
    styles = Counter(row["style"] for row in chinese.need_rows if row["lang"] == "zh")
    assert styles.keys() == CHINESE_STYLES
    assert min(styles.values()) >= 10
    assert {row["style"] for row in chinese.need_rows} == CHINESE_STYLES


def test_only_needs_in_another_language_than_their_cards_are_marked_so(servers: NeedSet, skills: NeedSet) -> None:
    """Where the cards are English, a need is of style `not_english` exactly if its language is another."""
    for row in [*servers.need_rows, *skills.need_rows]:
        assert (row["style"] == "not_english") == (row["lang"] != "en"), row["text"]


def test_terse_and_verbose_needs_are_that(needset: NeedSet) -> None:
    """One to three words; 40 to 80. Chinese has no spaces: one to eight characters; 70 to 140."""
    limits = {"terse": ((1, 3), (1, 8)), "verbose": ((40, 80), (70, 140))}
    for style, (words, characters) in limits.items():
        for row, _ in needset.of_style(style):
            low, high = characters if row["lang"] == "zh" else words
            length = len(row["text"]) if row["lang"] == "zh" else len(row["text"].split())
            assert low <= length <= high, row["text"]


def test_needs_for_several_cards_want_two_or_three(needset: NeedSet) -> None:
    """Each of them with a 2."""
    for row, grades in needset.of_style("several"):
        assert 2 <= list(grades.values()).count(2) <= 3, row["text"]


def test_no_shared_word_means_none(needset: NeedSet) -> None:
    """Phrasing words aside, neither a word nor a stem of the need is in any graded card's name or description."""
    for row, grades in needset.of_style("no_shared_word"):
        # Where words are not spaced, a pair of characters is a word; nearly any two texts share a single one.
        pairs = [word for word in tokens_of_need(row["text"]) if len(word) > 1 or word.isascii()]
        need = set(with_stems(pairs))
        for id_ in grades:
            card = needset.cards[id_]
            text = " ".join((card["server"], card["name"], card.get("title", ""), card["description"]))
            assert need & _words(text) == set(), (row["text"], id_)


def test_a_misleading_need_names_its_lure(needset: NeedSet) -> None:
    """A word of the need is in the lure's name, and the lure would not do the job."""
    assert all(("lure" in row) == (row["style"] == "misleading") for row in needset.need_rows)
    for row, grades in needset.of_style("misleading"):
        need = set(with_stems(tokens_of_need(row["text"])))
        assert need & _words(needset.cards[row["lure"]]["name"]), row["text"]
        assert row["lure"] not in grades, row["text"]


def test_the_split_is_a_hash_of_the_text(needset: NeedSet) -> None:
    """A need's grades are in the file that its text says, and in no other."""
    for side, rows in needset.qrels.items():
        assert {split.split_of(needset.needs[need]["text"]) for need, _, _ in rows} == {side}


def test_the_split_never_moves() -> None:
    """The same texts fall on the same sides for ever; about 40 of 100 on train."""
    sides = " ".join(split.split_of(text) for text in ("a", "b", "c", "d", "e", "é", "时间"))
    assert sides == "test train train train test test test"
    share = sum(split.split_of(str(n)) == "train" for n in range(2000)) / 2000
    assert 0.37 < share < 0.43


def test_nonsense_is_half_gibberish_half_unserved(nonsense: list[dict[str, Any]]) -> None:
    """Thirty of each kind, with ids of their own and the split of their text."""
    assert Counter(row["kind"] for row in nonsense) == {"nonsense": 30, "unserved": 30}
    assert len({row["_id"] for row in nonsense}) == len(nonsense)
    assert all(row.keys() == {"_id", "text", "kind", "split"} for row in nonsense)
    assert all(row["split"] == split.split_of(row["text"]) for row in nonsense)


def test_files_and_counts_are_what_split_py_would_write() -> None:
    """Nothing is out of date: order of the qrels, splits, the README's tables."""
    for name in SETS:
        for side, text in split.qrels_texts(NEEDSETS / name).items():
            assert (NEEDSETS / name / "qrels" / f"{side}.tsv").read_text("utf-8") == text
    assert (NEEDSETS / "nonsense.jsonl").read_text("utf-8") == split.nonsense_text()
    readme = (NEEDSETS / "README.md").read_text("utf-8")
    assert readme == split.with_counts(readme, split.counts())


def test_the_readme_shows_needs_that_exist_and_names_every_server() -> None:
    """Its example of each style is one of the needs, word for word up to an ellipsis; each server has a package."""
    readme = (NEEDSETS / "README.md").read_text("utf-8")
    by_style: dict[str, list[str]] = {}
    for name in SETS:
        for row in NeedSet(name).need_rows:
            by_style.setdefault(row["style"], []).append(row["text"])
    shown = dict(re.findall(r"^\| `(\w+)` \| (\D[^|]*?) \| [^|]*\|$", readme, re.MULTILINE))
    for style in STYLES:
        example = shown[style].strip("*").removesuffix("…").rstrip()
        assert any(text.startswith(example) for text in by_style[style]), style
    for server in SERVERS | CHINESE_SERVERS:
        assert re.search(rf"^\| `{server}` \| (npm|PyPI) `\S+` \| [\w.]+ \| \S", readme, re.MULTILINE), server
