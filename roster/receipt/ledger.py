"""What a client has and what that costs, without Roster and with it. Pure: counts in, counts out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from roster.receipt.loading import Loading, Way
from roster.receipt.meter import Count, total

__all__ = ["Bill", "Case", "Offer", "Owned", "Server", "Tool", "Use", "bill", "heaviest", "together"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool in a context. whole: its definition; listed: its name alone. place: from 1, in its server's listing."""

    server: str
    name: str
    place: int
    whole: Count
    listed: Count


@dataclass(frozen=True, slots=True)
class Server:
    """A server by its key in this ledger. tools: None when nobody has asked it yet."""

    key: str
    name: str
    tools: tuple[Tool, ...] | None

    @property
    def count(self) -> Count:
        """Tokens of all its definitions."""
        return total(tool.whole for tool in self.tools or ())


@dataclass(frozen=True, slots=True)
class Use:
    """A server in a client's files. on: the client starts it; stays: Roster cannot route it, so it is there with Roster
    as well."""

    server: Server
    on: bool = True
    stays: bool = False

    @property
    def unknown(self) -> bool:
        """Whether it costs something that nobody knows."""
        return self.on and self.server.tools is None


@dataclass(frozen=True, slots=True)
class Owned:
    """A client with its servers.

    synced: Roster is in its files already. unreadable: how many of its files cannot be read.
    """

    client: str
    title: str
    uses: tuple[Use, ...]
    synced: bool = False
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class Offer:
    """What Roster puts into a context by itself: its tools in each mode, and its instructions."""

    five: tuple[Tool, ...]
    transparent: tuple[Tool, ...]
    five_words: Count
    transparent_words: Count


@dataclass(frozen=True, slots=True)
class Case:
    """The cost of one client when it loads definitions in one way."""

    way: Way
    without: Count
    transparent: Count
    five: Count

    @property
    def saved(self) -> Count:
        """Tokens that five mode takes off; negative when it adds some."""
        return self.without - self.five

    @property
    def share(self) -> float | None:
        """The share of the cost that five mode takes off; None when there is no cost."""
        return self.saved.tokens / self.without.tokens if self.without.tokens else None

    def drafts(self, draft: Count | None) -> int | None:
        """How many drafts in one conversation use the saving up; None when there is none, or no draft to go by."""
        if draft is None or not draft.tokens or self.saved.tokens <= 0:
            return None
        return self.saved.tokens // draft.tokens


@dataclass(frozen=True, slots=True)
class Bill:
    """A client's costs. cases: what it does by itself first, and last everything loaded."""

    owned: Owned
    loading: Loading
    cases: tuple[Case, ...] = field(default=())

    @property
    def tools(self) -> int:
        """How many tools it is known to have."""
        return sum(len(use.server.tools or ()) for use in self.owned.uses if use.on)

    @property
    def unknown(self) -> int:
        """How many of its servers cost something that nobody knows."""
        return sum(use.unknown for use in self.owned.uses)


def bill(owned: Owned, offer: Offer, loading: Loading) -> Bill:
    """What a client's tools cost in each way that it may load them."""
    ways = [Way.WHOLE] if loading.way is Way.WHOLE else [Way.NAMES, Way.WHOLE]
    own = [tool for use in owned.uses if use.on for tool in use.server.tools or ()]
    kept = [tool for use in owned.uses if use.on and use.stays for tool in use.server.tools or ()]
    cases = [
        Case(
            way,
            _cost(own, way, loading.limit),
            _cost([*offer.transparent, *kept], way, loading.limit) + offer.transparent_words,
            _cost([*offer.five, *kept], way, loading.limit) + offer.five_words,
        )
        for way in ways
    ]
    return Bill(owned, loading, tuple(cases))


def _cost(tools: Sequence[Tool], way: Way, limit: int | None) -> Count:
    counts = [tool.listed if way is Way.NAMES else tool.whole for tool in tools]
    if limit is None or len(counts) <= limit:
        return total(counts)
    # Which tools are left out is the user's choice or the client's: the lightest at best, the heaviest at worst.
    low = sum(sorted(count.low for count in counts)[:limit])
    high = sum(sorted(count.high for count in counts)[-limit:])
    return Count(low, round(sum(count.tokens for count in counts) * limit / len(counts)), high)


def heaviest(bills: Iterable[Bill], most: int = 10) -> list[Tool]:
    """The tools with the longest definitions that any client loads, each once, the heaviest first."""
    tools = {
        (tool.server, tool.name): tool
        for one in bills
        for use in one.owned.uses
        if use.on
        for tool in use.server.tools or ()
    }
    return sorted(tools.values(), key=lambda tool: (-tool.whole.tokens, tool.server, tool.place))[:most]


def together(bills: Iterable[Bill], way: Way) -> Case:
    """The sum over all clients, one conversation in each; clients that do not load in this way count as they do."""
    cases = [next((case for case in one.cases if case.way is way), one.cases[-1]) for one in bills]
    return Case(
        way,
        total(case.without for case in cases),
        total(case.transparent for case in cases),
        total(case.five for case in cases),
    )
