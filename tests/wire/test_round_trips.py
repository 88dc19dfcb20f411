"""Every message in every version: what is written is read back, and nothing else is.

The three-way test of each decoder: the whole bytes, the bytes with more behind them, and every prefix.
"""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.errors import Malformed
from ottla.wire.message import Message
from ottla.wire.messages import message_class

from .strategies import ALL, messages

QUICK = settings(
    max_examples=3, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
LONG = settings(max_examples=15, derandomize=False, database=None, suppress_health_check=list(HealthCheck))


def check_three_ways(message: Message, version: int, *, prefixes_max: int) -> None:
    owner = type(message)
    data = message.encode(version)
    assert owner.decode(data, version) == message
    assert owner.decode(memoryview(data), version) == message
    assert owner.decode(data, version).encode(version) == data

    read, position = owner.read(b"head" + data + b"tail", 4, version)
    assert (read, position) == (message, 4 + len(data))
    with pytest.raises(Malformed):
        owner.decode(data + b"\x00", version)

    for end in range(0, len(data), len(data) // prefixes_max + 1):
        with pytest.raises(Malformed):
            owner.decode(data[:end], version)


def check_damage(message: Message, version: int, at: int, damage: bytes) -> None:
    """Overwritten bytes give another message or are malformed; nothing else happens."""
    data = bytearray(message.encode(version))
    if data:
        at %= len(data)
        data[at : at + len(damage)] = damage
    with contextlib.suppress(Malformed):
        type(message).decode(bytes(data), version)


def check_random(owner: type[Message], version: int, data: bytes) -> None:
    """Random bytes are a message, which can then be written, or malformed."""
    try:
        message, position = owner.read(data, 0, version)
    except Malformed:
        return
    assert position <= len(data)
    message.encode(version)


DAMAGE = st.sampled_from([b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\x00\x00\x00"]) | st.binary(
    min_size=1, max_size=4
)


@pytest.mark.parametrize(("name", "version"), ALL)
def test_round_trip(name: str, version: int) -> None:
    owner = message_class(name)

    @QUICK
    @given(messages(owner, version), st.integers(0, 1 << 16), DAMAGE, st.binary(max_size=64))
    def check(message: Message, at: int, damage: bytes, noise: bytes) -> None:
        check_three_ways(message, version, prefixes_max=24)
        check_damage(message, version, at, damage)
        check_random(owner, version, noise)

    check()


@pytest.mark.long
@pytest.mark.parametrize(("name", "version"), ALL)
def test_many_round_trips(name: str, version: int) -> None:
    owner = message_class(name)

    @LONG
    @given(
        messages(owner, version),
        st.lists(st.tuples(st.integers(0, 1 << 16), DAMAGE), max_size=8),
        st.binary(max_size=256),
    )
    def check(message: Message, damages: list[tuple[int, bytes]], noise: bytes) -> None:
        check_three_ways(message, version, prefixes_max=1 << 20)
        for at, damage in damages:
            check_damage(message, version, at, damage)
        check_random(owner, version, noise)

    check()
