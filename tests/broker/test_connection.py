"""One connection: frames are cut right however they arrive, and replies leave in the order of their requests."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ottla.broker.buffers import POOLED_BYTES, ReceiveBuffers
from ottla.broker.connection import IN_FLIGHT_MAX, STASH_BYTES_MAX, ClientConnection
from ottla.broker.reply import CloseConnection, Deferred, Reply
from ottla.errors import Malformed
from ottla.runtime import File, FileSpan
from ottla.runtime.seams import Buffer
from ottla.runtime.timers import Timer


class Wire:
    """A connection's other side, which keeps what was sent."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.reading = True
        self.closed = False
        self.writes = 0

    peer = ("127.0.0.1", 50000)

    def write(self, data: Buffer, more: bool = False) -> None:
        self.writes += 1
        self.sent += data

    def write_file_span(self, file: File, position: int, size: int) -> None:
        self.sent += b"<%d+%d>" % (position, size)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class Echo:
    """A service that answers a frame with itself, unless the frame's first letter says otherwise."""

    def __init__(self, private_bytes_max: int = -1) -> None:
        self.buffers = ReceiveBuffers(private_bytes_max)
        self.frame_bytes_max = 4 << 20
        self.frames: list[bytes] = []
        self.deferred: list[tuple[Deferred, bytes]] = []
        self.reasons: list[str | None] = []
        self.crashes: list[BaseException] = []
        self.turns = 0
        self.time_s = 0.0
        self.later: list[Callable[[], None]] = []

    def start_request(
        self, connection: ClientConnection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> Reply:
        frame = bytes(view[start:end])
        self.frames.append(frame)
        kind = frame[:1]
        if kind == b"d":
            deferred = Deferred()
            self.deferred.append((deferred, frame))
            return deferred
        if kind == b"n":
            return None
        if kind == b"m":
            raise Malformed("nonsense")
        if kind == b"c":
            raise CloseConnection("go away")
        if kind == b"x":
            raise ZeroDivisionError
        if kind == b"f":
            return [frame, FileSpan(None, 5, 7), b"tail"]  # type: ignore[arg-type]
        return frame

    def now(self) -> float:
        return self.time_s

    def soon(self, call: Callable[[], None]) -> None:
        self.later.append(call)

    def limit_closing(self, call: Callable[[], None]) -> Timer:
        return Timer(call)

    def end_of_turn(self) -> None:
        self.turns += 1

    def opened(self, connection: ClientConnection) -> bool:
        return True

    def closed(self, connection: ClientConnection, reason: str | None) -> None:
        self.reasons.append(reason)

    def crashed(self, connection: ClientConnection, error: BaseException) -> None:
        self.crashes.append(error)


class Slow(Echo):
    """Every request takes a while."""

    def start_request(
        self, connection: ClientConnection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> Reply:
        self.time_s += 0.0015
        return super().start_request(connection, buffer, view, start, end)


def connect(service: Echo) -> tuple[ClientConnection, Wire]:
    wire = Wire()
    connection = ClientConnection(service, "PLAINTEXT")
    connection.connection_made(wire)
    return connection, wire


def feed(connection: ClientConnection, data: bytes, step: int = 1 << 30) -> None:
    """Hand over `data` as the network would: at most `step` bytes at a time, and no more than there is room for."""
    while data:
        room = connection.get_buffer()
        assert len(room) > 0
        size = min(step, len(room), len(data))
        room[:size] = data[:size]
        data = data[size:]
        connection.buffer_updated(size)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100, 1 << 20])
def test_frames_are_cut_right_whatever_pieces_they_arrive_in(step: int) -> None:
    service = Echo()
    connection, wire = connect(service)
    bodies = [b"request-%d" % number * (number + 1) for number in range(20)]
    feed(connection, b"".join(map(frame, bodies)), step)
    assert service.frames == bodies
    assert bytes(wire.sent) == b"".join(bodies)


def test_random_sizes_in_random_pieces() -> None:
    chance = random.Random(7)
    service = Echo()
    connection, wire = connect(service)
    bodies = [b"r" + chance.randbytes(chance.choice((10, 5_000, 40_000, 300_000))) for _ in range(60)]
    stream = b"".join(map(frame, bodies))
    position = 0
    while position < len(stream):
        size = chance.choice((1, 100, 9_000, 70_000, 400_000))
        feed(connection, stream[position : position + size])
        position += size
    assert service.frames == bodies
    assert bytes(wire.sent) == b"".join(bodies)
    assert service.buffers.private_bytes == 0


def test_replies_to_requests_that_came_together_leave_together() -> None:
    service = Echo()
    connection, wire = connect(service)
    feed(connection, frame(b"request1") + frame(b"request2") + frame(b"request3"))
    assert wire.writes == 1


def test_a_reply_waits_for_those_before_it() -> None:
    service = Echo()
    connection, wire = connect(service)
    feed(connection, frame(b"deferred-1") + frame(b"request-2") + frame(b"deferred-3") + frame(b"request-4"))
    assert not wire.sent
    (first, _), (third, _) = service.deferred
    third.resolve(b"3")
    assert not wire.sent
    first.resolve(b"1")
    assert bytes(wire.sent) == b"1request-23request-4"


def test_a_request_without_a_reply_takes_no_place_in_the_order() -> None:
    service = Echo()
    connection, wire = connect(service)
    feed(connection, frame(b"deferred") + frame(b"no reply") + frame(b"request2"))
    service.deferred[0][0].resolve(b"1")
    assert bytes(wire.sent) == b"1request2"


def test_a_reply_in_pieces_keeps_its_place() -> None:
    service = Echo()
    connection, wire = connect(service)
    feed(connection, frame(b"request1") + frame(b"file-----") + frame(b"request2"))
    assert bytes(wire.sent) == b"request1file-----<5+7>tailrequest2"


@pytest.mark.parametrize(("body", "reason"), [(b"malformed", "nonsense"), (b"close me", "go away")])
def test_a_bad_request_closes_the_connection_after_the_replies_before_it(body: bytes, reason: str) -> None:
    service = Echo()
    connection, wire = connect(service)
    feed(connection, frame(b"request1") + frame(body) + frame(b"request2"))
    assert bytes(wire.sent) == b"request1"
    assert wire.closed
    assert service.reasons == [reason]
    assert len(service.frames) == 2


def test_a_bug_closes_its_own_connection_and_is_reported() -> None:
    service = Echo()
    connection, wire = connect(service)
    feed(connection, frame(b"xxxxxxxx"))
    assert wire.closed
    assert isinstance(service.crashes[0], ZeroDivisionError)


@pytest.mark.parametrize("length", [-1, 0, 7, (4 << 20) + 1, 0x7FFFFFFF])
def test_a_length_that_cannot_be_closes_the_connection_before_anything_is_read(length: int) -> None:
    service = Echo()
    connection, wire = connect(service)
    feed(connection, length.to_bytes(4, "big", signed=True))
    assert wire.closed
    assert service.frames == []


def test_a_declared_length_reserves_nothing() -> None:
    service = Echo()
    connection, _ = connect(service)
    feed(connection, (4 << 20).to_bytes(4, "big") + b"r")
    assert service.buffers.private_bytes == 0


def test_a_slow_sender_holds_no_buffer() -> None:
    service = Echo()
    senders = [connect(service)[0] for _ in range(50)]
    for connection in senders:
        feed(connection, frame(b"request!")[:6])
    assert len(service.buffers._free) == 1  # One buffer served them all.
    for connection in senders:
        feed(connection, frame(b"request!")[6:])
    assert service.frames == [b"request!"] * 50


def test_too_many_requests_in_flight_stop_the_reading_until_replies_have_left() -> None:
    service = Echo()
    connection, wire = connect(service)
    feed(connection, frame(b"deferred") * (IN_FLIGHT_MAX + 10))
    assert len(service.frames) == IN_FLIGHT_MAX
    assert not wire.reading
    for deferred, _ in list(service.deferred):
        deferred.resolve(b".")
    assert wire.reading
    assert len(service.frames) == IN_FLIGHT_MAX + 10


def test_a_peer_that_does_not_read_is_not_read_from() -> None:
    service = Echo()
    connection, wire = connect(service)
    connection.write_blocked()
    assert not wire.reading
    connection.write_resumed()
    assert wire.reading


def test_large_requests_wait_while_the_memory_for_them_is_used_up() -> None:
    service = Echo(private_bytes_max=3 * POOLED_BYTES)
    first, first_wire = connect(service)
    second, second_wire = connect(service)
    body = b"r" * (2 * POOLED_BYTES)
    stream = frame(body)
    feed(first, stream[:-1])
    feed(second, stream[:POOLED_BYTES])
    assert first_wire.reading
    assert not second_wire.reading
    feed(first, stream[-1:])
    assert second_wire.reading
    feed(second, stream[POOLED_BYTES:])
    assert service.frames == [body, body]
    assert service.buffers.private_bytes == 0


def test_frames_that_have_begun_and_do_not_go_on_share_the_memory_there_is() -> None:
    """Each sends a little more than may be put aside, and stops: no more of the pool is held than the budget allows."""
    service = Echo(private_bytes_max=4 * POOLED_BYTES)
    begun = frame(b"r" * 100_000)[: STASH_BYTES_MAX + 1000]
    peers = [connect(service) for _ in range(50)]
    for connection, _ in peers:
        feed(connection, begun, 1000)
    held = [connection for connection, _ in peers if connection._buffer is not None]
    assert len(held) == 4
    assert all(len(connection._stash) <= 2 * STASH_BYTES_MAX for connection, _ in peers)
    assert sum(wire.reading for _, wire in peers) == 4
    # Small requests are served all the while, and those who wait have their turn when others are done.
    other, _ = connect(service)
    feed(other, frame(b"request!"))
    assert service.frames == [b"request!"]
    rest = frame(b"r" * 100_000)[len(begun) :]
    while waiting := [connection for connection, wire in peers if wire.reading and connection in held]:
        feed(waiting[0], rest, 10_000)
        held.remove(waiting[0])
        held += [each for each, _ in peers if each._buffer is not None and each not in held]
    assert len(service.frames) == 51
    assert service.buffers._held == set()


def test_a_lost_connection_gives_its_buffer_back_and_forgets_its_replies() -> None:
    service = Echo()
    connection, wire = connect(service)
    feed(connection, frame(b"deferred") + frame(b"r" * (2 * POOLED_BYTES))[: POOLED_BYTES + 10])
    assert service.buffers.private_bytes > 0
    connection.connection_lost()
    assert service.buffers.private_bytes == 0
    service.deferred[0][0].resolve(b"late")
    assert not wire.sent


def test_a_long_turn_ends_and_goes_on_after_the_others() -> None:
    service = Slow()
    connection, wire = connect(service)
    frames = b"".join(b"\0\0\0\x08echo%04d" % number for number in range(60))
    feed(connection, frames)
    assert len(service.frames) < 60
    assert not wire.reading
    while service.later:
        service.later.pop()()
    assert len(service.frames) == 60
    assert wire.reading
    assert bytes(wire.sent) == b"".join(b"echo%04d" % number for number in range(60))


def test_those_who_have_begun_a_large_frame_can_finish_it() -> None:
    """The budget is given out by whole frames: if all held a part and waited for more, all would wait for ever."""
    service = Echo(private_bytes_max=4 * POOLED_BYTES)
    frame = (3 * POOLED_BYTES).to_bytes(4, "big") + b"e" * 3 * POOLED_BYTES
    first, first_wire = connect(service)
    second, second_wire = connect(service)
    for connection in (first, second):
        room = connection.get_buffer()
        room[:] = frame[: len(room)]
        connection.buffer_updated(len(room))
    assert first_wire.reading
    assert not second_wire.reading
    feed(first, frame[POOLED_BYTES:])
    assert len(service.frames) == 1
    assert second_wire.reading
    feed(second, frame[POOLED_BYTES:])
    assert len(service.frames) == 2
    assert service.buffers.private_bytes == 0
