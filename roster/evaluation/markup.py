"""Elements of a page, as values: whatever text goes in, well-formed HTML comes out."""

from __future__ import annotations

import re
from xml.etree import ElementTree

__all__ = ["Element", "el", "page"]

Element = ElementTree.Element

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def el(tag: str, *inside: Element | str | None, **attributes: object) -> Element:
    """An element with these children and texts; None is left out.

    attributes: `class_` is `class`, other underscores are hyphens, None is left out, numbers are cut to 2 decimals.
    """
    node = ElementTree.Element(tag)
    for key, value in attributes.items():
        if value is not None:
            shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
            node.set(key.rstrip("_").replace("_", "-"), _UNPRINTABLE.sub("\ufffd", shown))
    for part in inside:
        if isinstance(part, str):
            text = _UNPRINTABLE.sub("\ufffd", part)
            if len(node):
                node[-1].tail = (node[-1].tail or "") + text
            else:
                node.text = (node.text or "") + text
        elif part is not None:
            node.append(part)
    return node


def page(title: str, style: str, *body: Element) -> str:
    """A whole HTML document with its style sheet inside. `style` must not come from outside: it is not escaped."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        el("style", style),
    )
    html = el("html", head, el("body", *body), lang="en")
    return f"<!DOCTYPE html>\n{ElementTree.tostring(html, encoding='unicode', method='html')}\n"
