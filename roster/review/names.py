"""Names that pass for others: tools and servers of one home, compared with each other. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from roster.cards import Card, Kind
from roster.review.findings import MESSAGES, Finding, Rule, Severity
from roster.review.text import CONFUSABLE, visible
from roster.words import fold, squashed

__all__ = ["shadowing"]

_SHORTEST_NAME, _SHORTEST_SERVER = 7, 5
_DIGITS = str.maketrans("0135", "oles")
_DRAWN = (("rn", "m"), ("vv", "w"), ("cl", "d"), ("l", "i"))


def shadowing(cards: Iterable[Card]) -> dict[str, list[Finding]]:
    """Card id to findings, for names of one server that are easily taken for those of another.

    An equal name on two servers is no finding: `search` and `read_file` are everybody's. Neither is a name that
    differs in separators, case, plural or a number. Both sides of a pair are reported: which of them is the
    impostor, names do not tell.
    """
    tools = [card for card in cards if card.kind is Kind.TOOL]
    found: dict[str, list[Finding]] = {}
    for card, other, severity in _pairs_of_tools(tools):
        _note(found, card, Rule.LOOKALIKE_NAME, severity, "name", f"{card.name} / {other.name} ({other.server})")
    servers: dict[str, list[Card]] = {}
    for card in tools:
        servers.setdefault(card.server, []).append(card)
    for one, two, severity in _pairs_of_servers(sorted(servers)):
        shared = {card.name for card in servers[one]} & {card.name for card in servers[two]}
        for server, twin in ((one, two), (two, one)):
            for card in servers[server]:
                if card.name in shared:
                    _note(found, card, Rule.LOOKALIKE_SERVER, severity, "server", f"{server} / {twin}")
    return found


def _note(found: dict[str, list[Finding]], card: Card, rule: Rule, severity: Severity, where: str, shown: str) -> None:
    mine = found.setdefault(card.id, [])
    if all(finding.rule is not rule for finding in mine):
        mine.append(Finding(rule, severity, where, MESSAGES[rule], visible(shown, room=160)))


def drawn(name: str) -> str:
    """What a name looks like: letters and digits that are drawn alike are one."""
    text = squashed("".join(c.lower().translate(CONFUSABLE) for c in fold(name))).translate(_DIGITS)
    for two, one in _DRAWN:
        text = text.replace(two, one)
    return text


def _pairs_of_tools(tools: list[Card]) -> Iterator[tuple[Card, Card, Severity]]:
    """Both directions of every pair, (card, the other one, severity)."""
    by_look: dict[str, list[Card]] = {}
    for card in tools:
        by_look.setdefault(drawn(card.name), []).append(card)
    for look, group in by_look.items():
        if len(look) < _SHORTEST_NAME or len({squashed(card.name) for card in group}) == 1:
            continue
        for card in group:
            for other in group:
                if card.server != other.server and squashed(card.name) != squashed(other.name):
                    plain = card.name.isascii() and other.name.isascii()
                    yield card, other, Severity.MEDIUM if plain else Severity.HIGH
                    break
    # One slip of the pen apart. Found by what is left when one letter is taken out, so that the work grows with the
    # number of names and not with its square.
    by_rest: dict[str, list[str]] = {}
    for look in by_look:
        if _SHORTEST_NAME <= len(look) <= 80:
            for rest in {look[:i] + look[i + 1 :] for i in range(len(look))} | {look}:
                by_rest.setdefault(rest, []).append(look)
    for looks in by_rest.values():
        for one in looks[:50]:
            for two in looks[:50]:
                if one != two and _slip(one, two):
                    for card in by_look[one]:
                        others = [other for other in by_look[two] if other.server != card.server]
                        if others:
                            yield card, others[0], Severity.MEDIUM


def _slip(one: str, two: str) -> bool:
    """Whether two names differ by a letter doubled or by two letters swapped: a typing error, not another word."""
    if len(one) == len(two):
        differ = [i for i in range(len(one)) if one[i] != two[i]]
        return (
            len(differ) == 2
            and differ[1] == differ[0] + 1
            and one[differ[0]] == two[differ[1]]
            and (one[differ[1]] == two[differ[0]])
        )
    short, long = sorted((one, two), key=len)
    if len(long) != len(short) + 1:
        return False
    at = next((i for i in range(len(short)) if short[i] != long[i]), len(short))
    return (
        short[at:] == long[at + 1 :] and at > 0 and long[at] == long[at - 1] and long[at].isalpha() and long[at] != "s"
    )


def _pairs_of_servers(servers: list[str]) -> Iterator[tuple[str, str, Severity]]:
    looks = [(drawn(server), squashed(server), server) for server in servers]
    for i, (look, plain, one) in enumerate(looks):
        if len(look) < _SHORTEST_SERVER:
            continue
        for other_look, other_plain, two in looks[i + 1 :]:
            if plain == other_plain or abs(len(look) - len(other_look)) > 1:
                continue
            if look == other_look:
                yield one, two, Severity.MEDIUM if one.isascii() and two.isascii() else Severity.HIGH
            elif _one_apart(look, other_look):
                yield one, two, Severity.MEDIUM


def _one_apart(one: str, two: str) -> bool:
    """Whether one letter was added, dropped, changed or swapped with its neighbour; a number does not count."""
    at = next((i for i in range(min(len(one), len(two))) if one[i] != two[i]), min(len(one), len(two)))
    changed = one[at : at + 1] + two[at : at + 1]
    if any(c.isdigit() for c in changed):
        return False
    if len(one) == len(two):
        return one[at + 1 :] == two[at + 1 :] or _slip(one, two)
    short, long = sorted((one, two), key=len)
    plural = at == len(short) and long.endswith("s")
    return short[at:] == long[at + 1 :] and not plural
