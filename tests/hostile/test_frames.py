"""Bytes that are no requests, and requests that the node does not serve."""

from __future__ import annotations

import random
import time
from struct import pack

import pytest

from ottla.broker.api import HANDLERS
from ottla.broker.bounds.limits import REQUEST_BYTES_MAX
from ottla.errors import ErrorCode
from ottla.wire.apis import APIS
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse

from .canary import batch_of, produce
from .harness import VICTIM_TOPIC, Target, exchange, frame, is_hung_up, read_exactly
from .requests import drawn

PING = frame(18, 0, b"", correlation_id=0x0BADCAFE)
MIB = 1 << 20


@pytest.mark.parametrize("length", [-1, -0x80000000, 0, 1, 7, 100 * MIB + 1, 0x7FFFFFFF], ids=str)
def test_a_length_that_cannot_be_hangs_up(target: Target, length: int) -> None:
    assert target.outcome(pack(">i", length) + bytes(64)) is None


def test_a_header_cut_short_hangs_up_whatever_lies_behind_it(target: Target) -> None:
    """Of an ApiVersions of the future, say, whose version alone would get it an answer."""
    for version in (0, 3, 99):
        head = pack(">hhih", 18, version, 7, -1)
        for size in (8, 9):
            assert target.outcome(pack(">i", size) + head[:size] + PING) is None


def test_random_bytes_hang_up_or_are_waited_for(target: Target) -> None:
    chance = random.Random(5)
    for _ in range(300):
        with target.connect() as sock:
            sock.sendall(chance.randbytes(chance.randrange(1, 400)))
    for _ in range(100):  # Sound lengths, and nonsense within.
        noise = chance.randbytes(chance.randrange(10, 400))
        with target.connect() as sock:
            sock.sendall(pack(">i", len(noise)) + noise)
            is_hung_up(sock, 0.002)


@pytest.mark.parametrize("key", [-1, -0x8000, 56, 62, 99, 0x7FFF], ids=str)
def test_an_api_that_is_not_served_hangs_up(target: Target, key: int) -> None:
    assert key not in HANDLERS
    assert target.outcome(pack(">ihhih", 20, key, 0, 7, -1) + bytes(10)) is None


def test_a_version_that_is_not_served_hangs_up(target: Target) -> None:
    for key in HANDLERS:
        api = APIS[key]
        for version in (-1, api.first_version - 1, api.last_version + 1, 0x7FFF):
            if api.serves(version):
                continue
            answer = target.outcome(pack(">ihhih", 30, key, version, 7, -1) + bytes(20))
            if key != 18:
                assert answer is None, f"{api.name} v{version}"
            else:
                # A client of the future is told what there is, in the oldest form (KIP-511).
                assert answer is not None
                assert ApiVersionsResponse.decode(answer[4:], 0).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_request_cut_short_hangs_up(target: Target) -> None:
    """The length is that of the piece, which then lacks what it promised."""
    cut = 0
    for key in HANDLERS:
        version = APIS[key].last_version
        for body in drawn(key, version, 2):
            if body:
                whole = frame(key, version, body)
                piece = whole[4 : len(whole) - 1]
                assert target.outcome(pack(">i", len(piece)) + piece) is None, APIS[key].name
                cut += 1
    assert cut > 20


def test_a_request_that_ends_with_the_connection_is_forgotten(target: Target) -> None:
    files = target.open_files()
    for size in range(1, 60):
        with target.connect() as sock:
            sock.sendall(frame(3, 12, drawn(3, 12, 1)[0] + bytes(60))[:size])
    deadline = time.monotonic() + 60
    while target.open_files() > files and time.monotonic() < deadline:
        time.sleep(0.01)
    assert target.open_files() <= files


def test_frames_that_arrive_byte_by_byte_are_answered(target: Target) -> None:
    whole = frame(18, 3, ApiVersionsRequest(client_software_name="slow", client_software_version="1").encode(3))
    with target.connect() as sock:
        for _ in range(2):
            for at in range(len(whole) - 1):
                sock.sendall(whole[at : at + 1])
            assert exchange(sock, whole[-1:]) is not None


def test_a_large_frame_is_waited_for_without_memory_for_it(target: Target) -> None:
    """The length alone reserves nothing: thirty connections that promise 100 MiB each."""
    socks = [target.connect() for _ in range(30)]
    try:
        with target.costing() as cost:
            for sock in socks:
                sock.sendall(pack(">ihhih", 100 * MIB, 0, 9, 7, -1) + bytes(1000))
            target.mark()
        assert cost[0].peak_mb < 16
    finally:
        for sock in socks:
            sock.close()


def test_a_large_request_other_than_produce_is_refused_at_its_first_bytes(target: Target) -> None:
    assert target.outcome(pack(">ihh", REQUEST_BYTES_MAX + 1, 3, 12)) is None
    with target.connect() as sock, target.costing() as cost:
        # One that fits is read, and refused for what is in it.
        sock.sendall(pack(">ihhihb", REQUEST_BYTES_MAX, 3, 12, 7, -1, 0))
        sock.sendall(bytes(REQUEST_BYTES_MAX - 11))
        answer = read_exactly(sock, 4)
        assert answer is not None
    assert cost[0].peak_mb < 64


def test_the_largest_produce_is_served(target: Target) -> None:
    """100 MiB in one request, of which nothing is appended or kept since no topic takes so much; the node lives on."""
    batch = batch_of(bytes(90 * MIB))
    most_mb = target.resident_mb() + 40  # It may have much to remember of what came before.
    with target.client(60) as client:
        assert produce(client, VICTIM_TOPIC, batch)[0] == ErrorCode.MESSAGE_TOO_LARGE
    deadline = time.monotonic() + 60
    while target.resident_mb() > most_mb and time.monotonic() < deadline:
        time.sleep(0.05)
    assert target.resident_mb() < most_mb


def test_a_half_closed_connection_gets_its_answers_and_its_end(target: Target) -> None:
    import socket

    with target.connect() as sock:
        sock.sendall(PING * 3)
        sock.shutdown(socket.SHUT_WR)
        for _ in range(3):
            assert exchange(sock, b"") is not None
        assert is_hung_up(sock, 5)
