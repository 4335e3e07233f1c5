"""A receipt as one JSON document."""

from __future__ import annotations

from typing import Any

from roster.receipt.labels import Labels
from roster.receipt.ledger import Bill, Case, Use
from roster.receipt.meter import ENCODINGS, SERIALISATION, Count
from roster.receipt.receipt import Receipt
from roster.receipt.words import left_out

__all__ = ["document"]


def document(receipt: Receipt, labels: Labels) -> dict[str, Any]:
    """Everything on the receipt. Tokens are {"low", "tokens", "high"}; shares lie between 0 and 1."""
    draft = receipt.draft
    return {
        "tokenizer": receipt.meter.name,
        "estimated": not receipt.meter.exact,
        "range_over": list(ENCODINGS) if receipt.meter.exact else [],
        "serialisation": SERIALISATION,
        "draft": {**_tokens(draft.count), "needs": draft.needs} if draft is not None else None,
        "clients": [_client(receipt, one, labels) for one in receipt.bills],
        "totals": [_case(receipt, case) for case in receipt.totals] if receipt.known else [],
        "heaviest": [{"tool": labels.tool(tool), **_tokens(tool.whole)} for tool in receipt.heaviest],
        "unknown": [labels.server(key) for key in receipt.unknown],
        "notes": left_out(receipt),
    }


def _tokens(count: Count) -> dict[str, int]:
    return {"low": count.low, "tokens": count.tokens, "high": count.high}


def _client(receipt: Receipt, one: Bill, labels: Labels) -> dict[str, Any]:
    owned, loading = one.owned, one.loading
    return {
        "client": owned.client,
        "title": owned.title,
        "roster_in_place": owned.synced,
        "unreadable_files": owned.unreadable,
        "tools": one.tools,
        "unknown_servers": one.unknown,
        "loading": {"way": loading.way.value, "limit": loading.limit, "why": loading.why, "source": loading.source},
        "cases": [_case(receipt, case) for case in one.cases],
        "servers": [_server(use, labels) for use in owned.uses],
    }


def _case(receipt: Receipt, case: Case) -> dict[str, Any]:
    return {
        "loaded": case.way.value,
        "without": _tokens(case.without),
        "transparent": _tokens(case.transparent),
        "five": _tokens(case.five),
        "saved": _tokens(case.saved),
        "share_saved": round(case.share, 4) if case.share is not None else None,
        "used_up_by_drafts": case.drafts(receipt.draft.count if receipt.draft is not None else None),
    }


def _server(use: Use, labels: Labels) -> dict[str, Any]:
    state = "off" if not use.on else "unknown" if use.server.tools is None else "counted"
    known = use.server.tools is not None
    return {
        "server": labels.server(use.server.key),
        "state": state,
        "stays_with_client": use.stays,
        "tools": len(use.server.tools) if use.server.tools is not None else None,
        **({"tokens": _tokens(use.server.count)} if known else {}),
    }
