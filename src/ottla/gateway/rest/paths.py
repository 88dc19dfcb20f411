"""Matching of paths: cut at their slashes before their parts are decoded, so that no part can pass for two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import unquote_to_bytes

from ottla.gateway.http import not_found

T = TypeVar("T")


def match(routes: Mapping[str, T], path: str) -> tuple[T, tuple[str, ...]]:
    """The route of a path, in which a star stands for one part, and those parts. Raises `Refusal`."""
    parts = path.strip("/").split("/")
    for pattern, route in routes.items():
        wanted = pattern.split("/")
        if len(wanted) == len(parts) and all(each in ("*", part) for each, part in zip(wanted, parts, strict=True)):
            return route, tuple(_decode(part) for each, part in zip(wanted, parts, strict=True) if each == "*")
    raise not_found()


def _decode(part: str) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise not_found() from None
