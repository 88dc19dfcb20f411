"""Schemas that refer to others, which refer to others: all texts that one needs, in an order in which they can be read.

A walk over what somebody else has registered, so nothing about it is believed: a chain may be long, a schema may be
referred to by many, and two that each refer to the other's latest version make a circle. It is walked without
recursion, each schema is looked at once, and how many there may be is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ottla.schemas.avro import InvalidSchema

REFERENCES_MAX = 1000
"""Schemas that one may refer to, directly and by way of others."""

Place = tuple[str, int]
"""A subject and a version, which may stand for the latest."""


class Referred(NamedTuple):
    place: Place
    """Which one it is: the latest has a number by now."""
    text: str
    references: tuple[Place, ...]


def texts_of(
    references: Iterable[Place], find: Callable[[Place], Referred], *, most: int = REFERENCES_MAX
) -> tuple[str, ...]:
    """The texts of what is referred to, each after those that it needs itself, but for circles, which have no such
    order. Raises `InvalidSchema` where there are more than `most`, and whatever `find` raises."""
    texts: dict[Place, str] = {}
    known: set[Place] = set()
    path: list[tuple[Referred | None, Iterator[Place]]] = [(None, iter(references))]
    while path:
        owner, left = path[-1]
        wanted = next(left, None)
        if wanted is None:
            path.pop()
            if owner is not None:
                texts[owner.place] = owner.text
        elif wanted not in known:
            found = find(wanted)
            is_new = found.place not in known
            known |= {wanted, found.place}
            if is_new:
                if len(texts) + len(path) > most:  # The path begins with whoever asks, and the new one follows.
                    raise InvalidSchema(f"The schema refers to more than {most} others.")
                path.append((found, iter(found.references)))
    return tuple(texts.values())


def places_in(described: Mapping[str, Any]) -> tuple[Place, ...]:
    """What a schema refers to, as a registry describes it over HTTP."""
    return tuple((str(each["subject"]), int(each["version"])) for each in described.get("references") or ())
