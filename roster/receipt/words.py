"""The words of a receipt: its figures, how they were made, and what they leave out. ASCII, for any terminal."""

from __future__ import annotations

from roster.receipt.ledger import Bill, Case
from roster.receipt.loading import Way
from roster.receipt.meter import SERIALISATION, Count
from roster.receipt.receipt import Receipt

__all__ = [
    "case_name",
    "cost_now",
    "counted",
    "counted_with",
    "in_drafts",
    "left_out",
    "number",
    "percent",
    "ranged",
    "short_lines",
]

_CASES = {Way.NAMES: "names only", Way.WHOLE: "all loaded"}


def counted(things: int, name: str) -> str:
    """So many of something: `1 tool`, `2 tools`."""
    return f"{number(things)} {name}{'' if things == 1 else 's'}"


def number(tokens: int) -> str:
    """A number with its thousands apart."""
    return f"{tokens:,}"


def ranged(count: Count) -> str:
    """A figure with its range, where it has one."""
    return number(count.tokens) if count.low == count.high else f"{number(count.tokens)} ({_ends(count)})"


def _ends(count: Count) -> str:
    return f"{number(count.low)}-{number(count.high)}"


def cost_now(case: Case, *, least: bool) -> str:
    """What tools cost without Roster. least: some of it is unknown."""
    return f"{'>= ' if least else ''}{ranged(case.without)}"


def percent(case: Case) -> str:
    """The share that five mode saves, below zero when it adds to the cost; "" without a cost."""
    return "" if case.share is None else f"{case.share:.0%}"


def case_name(case: Case, bill: Bill) -> str:
    """What a client's case is called."""
    limit = bill.loading.limit
    if case.way is Way.WHOLE and limit is not None and bill.tools > limit:
        return f"{limit} loaded"
    return _CASES[case.way]


def in_drafts(case: Case, receipt: Receipt) -> str:
    """How many drafts' answers take as much as is saved; "" when there is nothing to divide."""
    drafts = case.drafts(receipt.draft.count if receipt.draft is not None else None)
    return "" if drafts is None else number(drafts) if drafts else "<1"


def counted_with(receipt: Receipt) -> list[str]:
    """How the figures were made."""
    lines = [
        f"Counted: {SERIALISATION}.",
        f"With Roster every client has the servers of all of them: {counted(receipt.offered, 'tool')} known.",
    ]
    if receipt.meter.exact:
        lines.append(
            f"Tokenizer: {receipt.meter.name}; ranges also by cl100k_base and voyage3_base. Claude's and Gemini's "
            "tokenizers cannot be run here and can differ by more."
        )
    else:
        lines.append(
            "No tokenizer is installed: estimated from characters. "
            "`pip install bpe-openai` (the extra `receipt`, 40 MB) counts with o200k_base."
        )
    if receipt.draft is not None:
        draft = receipt.draft
        lines.append(
            f"A draft's answer takes about {number(draft.count.tokens)} tokens of the conversation (the middle half "
            f"of {draft.needs} sample needs: {_ends(draft.count)}). "
            "Drafts, as given: how many of them use the saving up."
        )
    return lines


def left_out(receipt: Receipt) -> list[str]:
    """What the figures do not hold."""
    lines = []
    if unknown := len(receipt.unknown):
        some = f"{counted(unknown, 'server')} {'has' if unknown == 1 else 'have'} never listed any tool"
        lines.append(
            f"{some}, so the costs are at least these: `roster reindex` (after `roster init`) or --connect asks them."
        )
    stays = [use for one in receipt.bills for use in one.owned.uses if use.stays and use.on]
    if stays:
        cost = "what they cost is not known" if any(use.unknown for use in stays) else "they cost the same with it"
        lines.append(f"Servers that Roster does not route stay with their client; {cost}.")
    if unreadable := sum(one.owned.unreadable for one in receipt.bills):
        lines.append(f"{counted(unreadable, 'file')} could not be read: `roster init --dry-run` says which and why.")
    lines.append(
        "Not counted: built-in tools, skills, servers' own instructions, and searches where a client defers. "
        "A prompt cache lowers the price of tokens, not their number."
    )
    return lines


def short_lines(receipt: Receipt) -> list[str]:
    """The receipt in a line a client, for the end of another command; none without a figure."""
    lines = []
    for one in receipt.bills:
        if not one.tools:
            continue
        takes = f"{counted(one.tools, 'tool')} {'takes' if one.tools == 1 else 'take'}"
        least = "at least " if one.unknown else ""
        now = " to ".join(f"{number(case.without.tokens)} ({case_name(case, one)})" for case in one.cases)
        five = " to ".join(number(case.five.tokens) for case in one.cases)
        lines.append(f"{one.owned.title}: {takes} {least}{now} tokens of context, five mode {five}")
    if lines and receipt.draft is not None:
        lines.append(f"Each draft adds about {number(receipt.draft.count.tokens)} tokens. `roster receipt` says more.")
    return lines
