"""The error codes that a response holds, wherever they stand in it: for metrics, and for the audit log.

Which fields of a message can hold any is worked out once a class, so that a long answer without codes costs nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from operator import attrgetter

from ottla.errors import ErrorCode
from ottla.wire.message import Message

_FIELD = "error_code"
_code_of = attrgetter(_FIELD)

Places = tuple[bool, tuple[str, ...]]
"""Does a message have a code of its own, and which of its lists hold messages that may?"""
_known: dict[type[Message], Places] = {}


def may_hold_errors(response: Message) -> bool:
    """Whether it is worth looking for codes: most answers have one of their own, which says NONE, and no other place
    for any."""
    kind = type(response)
    own, nested = _known.get(kind) or _places(kind)
    return bool(nested) or (own and getattr(response, _FIELD) != ErrorCode.NONE)


def error_codes(response: Message) -> Iterator[int]:
    """All but NONE."""
    return filter(None, every_code(response))


def every_code(response: Message) -> Iterator[int]:
    """NONE among them, so that whoever looks through a long answer can do so in steps."""
    kind = type(response)
    own, nested = _known.get(kind) or _places(kind)
    if own:
        yield getattr(response, _FIELD)
    for name in nested:
        listed = getattr(response, name)
        if not listed:
            continue
        own, deeper = _known.get(type(listed[0])) or _places(type(listed[0]))
        if deeper:
            for each in listed:
                yield from every_code(each)
        else:
            yield from map(_code_of, listed)


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _places(kind: type[Message]) -> Places:
    own = False
    nested: list[str] = []
    for line in kind.SCHEMA.split("\n"):
        name, *rest = line.split()[:2] or [""]
        if name == _FIELD:
            own = True
        elif rest and rest[0].startswith("[]"):
            element = getattr(sys.modules[kind.__module__], rest[0][2:], None)
            if element is not None and any(_places(element)):
                nested.append(name)
    found = _known[kind] = own, tuple(nested)
    return found
