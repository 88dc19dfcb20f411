"""Every length and count of every request, in every version, lied about: an answer or a hung-up connection, no more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from socket import socket
from struct import pack

import pytest

from ottla.errors import Malformed
from ottla.wire.apis import APIS
from ottla.wire.frames import request_frame

from .harness import Target, exchange
from .lies import Walk, lies
from .requests import SERVED, drawn, meaningful

pytestmark = pytest.mark.slow


def spoilt(key: int, version: int, count: int) -> Iterator[bytes]:
    """Request bodies, each with one lie."""
    bodies = list(drawn(key, version, count))
    sound = meaningful(key, version)
    if sound is not None:
        bodies.append(sound)
    for body in bodies:
        for length in Walk(APIS[key].request, version, body).lengths:
            for _, lie in lies(body, length):
                yield lie


def test_the_walk_finds_the_end_of_every_request() -> None:
    """What the lies are derived from agrees with the decoders about where every request ends."""
    for key, version in SERVED:
        for body in drawn(key, version, 5):
            walk = Walk(APIS[key].request, version, body)
            assert walk.position == len(body)


def test_decoders_survive_every_lie() -> None:
    told = 0
    for key, version in SERVED:
        owner = APIS[key].request
        for body in spoilt(key, version, 5):
            told += 1
            with contextlib.suppress(Malformed):
                owner.read(body, 0, version)
    print(f"{told:,} lies told to the decoders of {len(SERVED)} requests")
    assert told > 5_000


def tell(target: Target, key: int, count: int) -> tuple[int, int]:
    """Tell the node every lie about one API; how many, and how many of them it answered."""
    told = answered = 0
    sock = target.connect()
    try:
        for version in range(APIS[key].first_version, APIS[key].last_version + 1):
            for body in spoilt(key, version, count):
                told += 1
                frame = request_frame(key, version, told, "liar", body)
                # What follows makes the node answer, or hang up, whatever became of the lie: acks=0 has no answer.
                if is_answered(sock, frame):
                    answered += 1
                else:
                    sock.close()
                    sock = target.connect()
    finally:
        sock.close()
    return told, answered


PING = request_frame(18, 0, 0x0BADCAFE, None, b"")


def is_answered(sock: socket, frame: bytes) -> bool:
    """Send a request and an ApiVersions after it, and wait until that is answered, or the node hangs up.

    A lie may turn out as a fetch that waits for more: that is no answer, and not worth waiting for.
    """
    sock.settimeout(0.2)
    try:
        answer = exchange(sock, frame + PING)
        while answer is not None and answer[:4] != PING[8:12]:
            answer = exchange(sock, b"")
    except TimeoutError:
        return False
    return answer is not None


@pytest.mark.parametrize("key", sorted({key for key, _ in SERVED}), ids=lambda key: APIS[key].name)
def test_the_node_survives_every_lie(target: Target, key: int) -> None:
    told, answered = tell(target, key, 3)
    print(f"{APIS[key].name}: {told} lies, {answered} answered")
    assert told > 0


@pytest.mark.long
@pytest.mark.parametrize("key", sorted({key for key, _ in SERVED}), ids=lambda key: APIS[key].name)
def test_the_node_survives_many_more_lies(target: Target, key: int) -> None:
    told, answered = tell(target, key, 12)
    print(f"{APIS[key].name}: {told} lies, {answered} answered")
    assert answered < told or not told


def test_the_header_lies_too(target: Target) -> None:
    """The client id's length, and the header's tagged fields."""
    for client_id_size in (-2, -0x8000, 1, 7, 0x7FFF):
        for key, version in ((0, 9), (1, 12), (3, 12), (18, 3)):
            head = pack(">hhih", key, version, 7, client_id_size) + b"id"
            target.outcome(pack(">i", len(head)) + head)
    endless, enormous, many = b"\xff" * 9, b"\x01\x00\xff\xff\xff\xff\x07", b"\x21" + bytes(66)
    for tags in (b"\x01", b"\xff\xff\xff\xff\x0f", endless, enormous, many):
        for key, version in ((0, 9), (1, 12), (3, 12), (18, 3)):
            head = pack(">hhih", key, version, 7, -1) + tags
            assert target.outcome(pack(">i", len(head)) + head) is None
