"""A long message that is read and written in steps is, byte for byte, the one that is read and written at once."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import Malformed
from ottla.wire.decoding import compile_step_decoder
from ottla.wire.encoding import compile_step_encoder
from ottla.wire.in_steps import STEP_BYTES, encode_in_steps, read_in_steps
from ottla.wire.message import NO_LIMIT, Message
from ottla.wire.messages import message_class
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse, OffsetFetchResponseGroup
from ottla.wire.splicing import Spliced

from .strategies import ALL, messages
from .test_round_trips import DAMAGE, QUICK

R = TypeVar("R")

SOME = [(name, version) for name, version in ALL if version == message_class(name).VERSIONS[-1] or "Offset" in name]
"""Each message in its last version, and those that are about offsets, which may be long, in all."""

MANY = 20_000
LONG = OffsetFetchRequest(
    groups=[OffsetFetchRequestGroup(group_id=f"group-{number}") for number in range(MANY)], require_stable=True
)


def follow(steps: Generator[None, None, R]) -> tuple[R, int]:
    """What they come to, and how often they stopped."""
    stops = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, stops
        stops += 1


def outcome(steps: Generator[None, None, R]) -> R | str:
    """What they come to, or why that is malformed."""
    try:
        return follow(steps)[0]
    except Malformed as error:
        return str(error)


def at_once(owner: type[Message], data: bytes, version: int) -> Generator[None, None, tuple[Message, int]]:
    yield
    return owner.read(data, 0, version)


@pytest.mark.parametrize(("name", "version"), SOME)
def test_however_small_the_steps_it_is_the_same(name: str, version: int) -> None:
    owner = message_class(name)
    decode, encode = compile_step_decoder(owner, version, 0), compile_step_encoder(owner, version, 0)

    @QUICK
    @given(messages(owner, version), st.integers(0, 1 << 16), DAMAGE)
    def check(message: Message, at: int, damage: bytes) -> None:
        data = message.encode(version)
        assert b"".join(encode(message)) == data
        read, _ = follow(decode(data + b"tail", 0, len(data) + 4, NO_LIMIT))
        assert read == (message, len(data))
        at %= len(data) or 1
        for broken in (data[:at], data[:at] + damage + data[at + len(damage) :]):
            assert outcome(decode(broken, 0, len(broken), NO_LIMIT)) == outcome(at_once(owner, broken, version))

    check()


def test_a_long_request_stops_every_few_bytes() -> None:
    data = LONG.encode(9)
    read, stops = follow(read_in_steps(OffsetFetchRequest, data, 0, 9, 2 * MANY))
    assert read == LONG
    assert stops == pytest.approx(len(data) / STEP_BYTES, abs=3)


def test_a_short_request_does_not_stop() -> None:
    short = OffsetFetchRequest(groups=LONG.groups[:100])
    assert follow(read_in_steps(OffsetFetchRequest, short.encode(9), 0, 9, 1000)) == (short, 0)


def test_a_request_of_too_many_elements_is_given_up_before_any_is_read() -> None:
    steps = read_in_steps(OffsetFetchRequest, LONG.encode(9), 0, 9, MANY - 1)
    with pytest.raises(Malformed, match="more elements in one message than its reader allows"):
        next(steps)


def test_a_long_response_comes_in_pieces() -> None:
    response = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=str(each)) for each in range(MANY)])
    whole = response.encode(10)
    pieces = list(encode_in_steps(response, 10))
    assert b"".join(pieces) == whole
    assert max(map(len, pieces)) < len(whole) / 10


def test_what_was_encoded_as_it_grew_comes_as_it_is() -> None:
    response = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g")])
    spliced = Spliced(OffsetFetchResponse(), 10)
    spliced.add(response.groups[0])
    assert list(encode_in_steps(spliced, 10)) == [response.encode(10)]
