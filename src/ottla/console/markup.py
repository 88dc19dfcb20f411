"""HTML in which text is always text: whatever is not `Markup` already is escaped on its way in.

Everything that a page shows is built here. So no name, key or value that somebody else has chosen becomes an element,
an attribute or a script.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import TypeAlias

Child: TypeAlias = "str | int | Iterable[Child] | None"

_HALVES = re.compile("[\ud800-\udfff]")
"""Of characters, which JSON can say and UTF-8 cannot."""
_VOID = frozenset({"br", "hr", "img", "input", "line", "link", "meta", "path", "rect", "circle", "use"})


class Markup(str):
    """Text that is HTML. Made by `tag` and `join` alone."""

    __slots__ = ()


def tag(_name: str, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """An element. `class_` and `for_` lose their underscore, others become hyphens (`aria_label`); an attribute that is
    None or False is left out."""
    parts = [f"<{_name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        name = key.rstrip("_").replace("_", "-")
        parts.append(f" {name}" if value is True else f' {name}="{_escape(str(value))}"')
    if _name in _VOID:
        assert not children
        parts.append("/>")
    else:
        parts += [">", join(*children), f"</{_name}>"]
    return Markup("".join(parts))


def join(*children: Child) -> Markup:
    """All of them, one behind the other."""
    return Markup("".join(_text(child) for child in children))


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str | int):
        return _escape(str(child))
    return "".join(_text(each) for each in child)


def _escape(text: str) -> str:
    return html.escape(_HALVES.sub("\ufffd", text))
