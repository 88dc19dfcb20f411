"""Hypothesis strategies for any message in any version, derived from its schema."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ottla.wire.message import Message
from ottla.wire.messages import message_class, message_names
from ottla.wire.schema import Field, fields_of, is_flexible

ALL = [(name, version) for name in message_names() for version in message_class(name).VERSIONS]
"""Every message in every version."""

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TEXT = st.sampled_from(["", "a", "topic-1", "žluťoučký kůň", "😀", "x" * 126, "x" * 127, "x" * 300]) | st.text(
    max_size=6
)
_BLOB = st.sampled_from([b"", bytes(126), bytes(127), bytes(300)]) | st.binary(max_size=6)

_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    **{kind: st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for kind, bits in _BITS.items()},
    "uint16": st.integers(0, (1 << 16) - 1),
    "uint32": st.integers(0, (1 << 32) - 1),
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": _TEXT,
    "bytes": _BLOB,
    "records": _BLOB,
}
# Values that every peer agrees about: no error code that it does not know, no time that it cannot hold.
_TAME: dict[str, st.SearchStrategy[Any]] = {
    **_SCALARS,
    **{kind: st.integers(0, 100) for kind in (*_BITS, "uint16", "uint32")},
    "uuid": st.binary(min_size=16, max_size=16).filter(any),
}

_UNKNOWN_TAGS = st.dictionaries(st.integers(1000, (1 << 31) - 1), st.binary(max_size=4), min_size=1, max_size=2).map(
    lambda tags: tuple(sorted(tags.items()))
)


def _field(field: Field, version: int, tame: bool, depth: int) -> st.SearchStrategy[Any]:
    element: st.SearchStrategy[Any]
    if field.struct is not None:
        element = messages(field.struct, version, tame=tame, depth=depth + 1)
    else:
        element = (_TAME if tame else _SCALARS)[field.kind]
    if field.is_array:
        element = st.lists(element, max_size=2 if depth < 2 else 1)
        if field.struct is None and field.kind in _BITS and not tame:
            element |= st.integers(126, 129).map(lambda count: [7] * count)
    return st.none() | element if version in field.nullable else element


def messages(owner: type[Message], version: int, *, tame: bool = False, depth: int = 0) -> st.SearchStrategy[Any]:
    """Messages of `owner` with values in the fields that `version` has, and now and then a stranger's tags."""
    present = {
        field.name: _field(field, version, tame, depth) for field in fields_of(owner) if version in field.versions
    }
    drawn: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(present)
    made = drawn.map(lambda values: owner(**values))
    if tame or not is_flexible(owner, version):
        return made

    def with_tags(message: Message, tags: tuple[tuple[int, bytes], ...]) -> Message:
        message.unknown_tagged_fields = tags
        return message

    return st.one_of(made, made, made, st.builds(with_tags, made, _UNKNOWN_TAGS))
