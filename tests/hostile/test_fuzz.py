"""Inputs by the thousand: spoilt requests, and sound ones with odd values. The tests say how many they tried."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from socket import socket
from struct import pack

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ottla.wire.apis import APIS
from ottla.wire.frames import request_frame
from ottla.wire.message import Message
from tests.wire.strategies import messages

from .harness import Target, exchange
from .mutation import mutate
from .requests import SERVED, drawn, meaningful, tame

pytestmark = pytest.mark.slow

PING = request_frame(18, 0, 0x0BADCAFE, None, b"")
INPUTS_PER_LOOK = 500


def is_answered(sock: socket, data: bytes, seconds: float) -> bool | None:
    """Send `data` and an ApiVersions: is that answered? None if neither that happens nor the node hangs up in time."""
    sock.settimeout(seconds)
    try:
        answer = exchange(sock, data + PING)
        while answer is not None and answer[:4] != PING[8:12]:
            answer = exchange(sock, b"")
    except TimeoutError:
        return None
    return answer is not None


def seeds(count: int) -> list[bytes]:
    """Frames without their lengths: every API and version."""
    found: list[bytes] = []
    for key, version in SERVED:
        bodies = list(drawn(key, version, count))
        sound = meaningful(key, version)
        if sound is not None:
            bodies += [sound] * 5
        found += [request_frame(key, version, 7, "fuzz", body)[4:] for body in bodies]
    return found


def inputs(seed: int, corpus: list[bytes]) -> Iterator[bytes]:
    chance = Random(seed)
    while True:
        spoilt = mutate(chance.choice(corpus), chance, corpus)
        # Mostly with an honest length, or nothing behind it would ever be looked at.
        length = len(spoilt) + (chance.choice((-1, 1, 1000, -len(spoilt) - 1)) if chance.random() < 0.02 else 0)
        yield pack(">i", length) + spoilt


def fuzz(target: Target, *, seed: int, count: int, seconds: float) -> None:
    tried = answered = closed = waiting = 0
    corpus = seeds(3 if count < 50_000 else 10)
    deadline = time.monotonic() + seconds
    recent: list[bytes] = []
    sock = target.connect()
    try:
        for data in inputs(seed, corpus):
            tried += 1
            recent.append(data)
            verdict = is_answered(sock, data, 0.05)
            answered += verdict is True
            closed += verdict is False
            waiting += verdict is None
            if verdict is not True:
                sock.close()
                sock = target.connect()
            if tried % INPUTS_PER_LOOK == 0 or tried == count:
                try:
                    target.check_alive()
                except AssertionError:
                    print(f"seed {seed}, inputs {tried - len(recent)} to {tried}:")
                    raise
                recent.clear()
                if tried >= count or time.monotonic() > deadline:
                    break
    finally:
        sock.close()
    print(f"seed {seed}: {tried:,} inputs, {answered:,} answered, {closed:,} hung up on, {waiting:,} kept waiting")
    assert tried >= INPUTS_PER_LOOK
    assert answered
    assert closed


def test_some_spoilt_requests(target: Target) -> None:
    fuzz(target, seed=1, count=2_500, seconds=5)


@pytest.mark.slow
def test_many_spoilt_requests(target: Target) -> None:
    fuzz(target, seed=2, count=10_000, seconds=60)


@pytest.mark.long
def test_a_hundred_thousand_spoilt_requests(target: Target) -> None:
    """Other ones each time: the seed is printed, and replays them."""
    fuzz(target, seed=time.time_ns(), count=100_000, seconds=90)
    assert target.mark()["p90_ms"] < 250


def send_odd_of(sock: socket, key: int, version: int, examples: int, *, fresh: bool) -> int:
    """Send well-formed requests of one API and version; each is answered. How many there were."""
    tried = 0

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=not fresh,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(messages(APIS[key].request, version), st.text(max_size=300) | st.none())
    def check(message: Message, client_id: str | None) -> None:
        nonlocal tried
        tame(message, version)
        if key == 0 and message.acks == 0:  # type: ignore[attr-defined]
            return  # It may be hung up on, for want of another way to refuse.
        tried += 1
        data = request_frame(key, version, 7, client_id, message.encode(version))
        assert is_answered(sock, data, 20), f"{message!r} v{version}"

    check()
    return tried


def send_odd(target: Target, examples: int, *, fresh: bool = False) -> None:
    tried = 0
    for key, version in SERVED:
        with target.connect() as sock:
            tried += send_odd_of(sock, key, version, examples, fresh=fresh)
    print(f"{tried:,} sound requests with odd values")


def test_odd_values_are_answered(target: Target) -> None:
    send_odd(target, 3)


@pytest.mark.slow
def test_many_odd_values_are_answered(target: Target) -> None:
    send_odd(target, 8)


@pytest.mark.long
def test_fresh_odd_values_are_answered(target: Target) -> None:
    """Other values each time; Hypothesis prints those that were not answered."""
    send_odd(target, 60, fresh=True)
