"""Streams that keep their order whatever becomes of the links under them."""

from __future__ import annotations

import asyncio
from random import Random

from ottla.runtime.seams import Connection
from ottla.sim.client import Lost, SimClient
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.sim.loop import WALL_MS, Scheduler, SimLoop
from ottla.sim.network import Fabric, SimNetwork
from ottla.sim.streams import SEND_BUFFER_BYTES, SimConnection
from ottla.sim.trace import Trace
from ottla.sim.volume import Volume
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse


class End:
    """One end of a connection, and all that happened to it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._view = memoryview(bytearray(4096))
        self.received = b""
        self.times: list[float] = []
        self.events: list[str] = []
        self.connection: Connection | None = None

    def connection_made(self, connection: Connection) -> None:
        self.connection = connection
        self.events.append("made")

    def get_buffer(self) -> memoryview:
        return self._view

    def buffer_updated(self, size: int) -> None:
        self.received += self._view[:size]
        self.times.append(self._scheduler.now)

    def write_blocked(self) -> None:
        self.events.append("blocked")

    def write_resumed(self) -> None:
        self.events.append("resumed")

    def connection_lost(self) -> None:
        self.events.append("lost")


class Two:
    """Two hosts, with a connection from one to the other."""

    def __init__(self, *, connect: bool = True) -> None:
        self.scheduler = Scheduler()
        self.fabric = Fabric(Random(1), Trace(self.scheduler), latency_s=0.01)
        self.loops = {
            name: SimLoop(self.scheduler, SimClock(self.scheduler, wall_ms=WALL_MS), name) for name in ("a", "b")
        }
        self.near, self.far = End(self.scheduler), End(self.scheduler)
        self.fabric.host("a")
        self.failed: list[BaseException] = []

        async def listen() -> None:
            listener = await SimNetwork(self.fabric, "b", self.loops["b"]).listen("b", 9092, lambda: self.far)
            listener.start()

        self.loops["b"].create_task(listen())
        self.run(0.001)
        if connect:
            self.connect()
            self.run(1)

    def connect(self) -> None:
        async def connect() -> None:
            try:
                await SimNetwork(self.fabric, "a", self.loops["a"]).connect("b", 9092, self.near)
            except OSError as error:
                self.failed.append(error)

        self.loops["a"].create_task(connect())

    def run(self, seconds: float) -> None:
        self.scheduler.run(self.scheduler.now + seconds)

    def send(self, data: bytes) -> None:
        connection = self.near.connection
        assert connection is not None
        self.loops["a"].call_soon(connection.write, data)


def test_bytes_arrive_in_order_after_a_while() -> None:
    two = Two()
    began = two.scheduler.now
    for part in (b"one ", b"two ", b"three"):
        two.send(part)
    two.run(1)
    assert two.far.received == b"one two three"
    assert 0.004 < two.far.times[0] - began < 0.05


def test_a_cut_link_holds_bytes_back_until_it_is_whole() -> None:
    two = Two()
    two.fabric.cut("a", "b")
    two.send(b"hello")
    two.run(5)
    assert two.far.received == b""
    assert two.far.connection is not None
    two.loops["b"].call_soon(two.far.connection.write, b"the other way is open")
    two.run(1)
    assert two.near.received == b"the other way is open"
    two.fabric.heal("a", "b")
    two.run(1)
    assert two.far.received == b"hello"


def test_a_connect_waits_for_a_host_that_does_not_answer_and_gives_up() -> None:
    two = Two(connect=False)
    two.fabric.cut("b", "a")
    two.connect()
    two.run(2)
    assert two.near.events == []
    two.fabric.heal("b", "a")
    two.run(5)
    assert two.near.events == ["made"]
    two = Two(connect=False)
    two.fabric.cut("a", "b")
    two.connect()
    two.run(60)
    assert isinstance(two.failed[0], TimeoutError)


def test_a_process_that_dies_is_told_of_and_its_port_refuses() -> None:
    two = Two()
    two.loops["b"].kill()
    two.fabric.vanish("b", machine=False)
    two.run(1)
    assert two.near.events == ["made", "lost"]
    two.connect()
    two.run(1)
    assert isinstance(two.failed[0], ConnectionRefusedError)
    assert two.far.events == ["made"], "the dead hear nothing"


def test_a_machine_that_dies_is_missed_only_when_it_is_back() -> None:
    two = Two()
    two.loops["b"].kill()
    two.fabric.vanish("b", machine=True)
    two.send(b"anybody there?")
    two.run(30)
    assert two.near.events == ["made"]
    two.fabric.host("b").up = True
    two.send(b"and now?")
    two.run(1)
    assert two.near.events == ["made", "lost"]


def test_a_reset_after_processing_takes_the_answer_with_it() -> None:
    two = Two()
    two.fabric.link("b", "a").reset_next = True
    two.send(b"do it")
    two.run(1)
    assert two.far.received == b"do it"
    assert two.far.connection is not None
    two.loops["b"].call_soon(two.far.connection.write, b"done")
    two.run(1)
    assert two.near.received == b""
    assert (two.near.events[-1], two.far.events[-1]) == ("lost", "lost")


def test_a_stopped_process_finds_everything_in_its_buffers_when_it_goes_on() -> None:
    two = Two()
    two.loops["b"].pause()
    for part in (b"old ", b"requests"):
        two.send(part)
    two.run(30)
    assert two.far.received == b""
    two.loops["b"].resume()
    two.run(1)
    assert two.far.received == b"old requests"


def test_who_sends_more_than_the_peer_reads_is_held_back() -> None:
    two = Two()
    two.loops["b"].pause()
    for _ in range(3):
        two.send(bytes(SEND_BUFFER_BYTES // 2 + 1))
    two.run(1)
    assert two.near.events == ["made", "blocked"]
    two.loops["b"].resume()
    two.run(1)
    assert two.near.events == ["made", "blocked", "resumed"]
    assert len(two.far.received) == 3 * (SEND_BUFFER_BYTES // 2 + 1)


def test_a_span_that_waits_is_read_when_its_turn_comes() -> None:
    """As sendfile does it: a file that was cut meanwhile ends the connection."""
    two = Two()
    disk = SimDisk(Volume(random=Random(1)))
    disk.make_dirs("/data")
    file = disk.open("/data/f", create=True)
    file.write(0, b"records")
    connection = two.near.connection
    assert isinstance(connection, SimConnection)
    two.loops["a"].call_soon(connection.write_file_span, file, 0, 7)
    two.run(1)
    assert two.far.received == b"records"
    two.loops["b"].pause()
    two.send(bytes(SEND_BUFFER_BYTES))
    two.loops["a"].call_soon(connection.write_file_span, file, 0, 7)
    two.run(1)
    file.truncate(3)
    two.loops["b"].resume()
    two.run(1)
    assert two.near.events[-1] == "lost"


def test_closing_sends_what_is_queued_first() -> None:
    two = Two()
    assert two.near.connection is not None
    two.send(b"last words")
    two.loops["a"].call_soon(two.near.connection.close)
    two.run(1)
    assert two.far.received == b"last words"
    assert (two.near.events[-1], two.far.events[-1]) == ("lost", "lost")


def test_packets_that_are_lost_come_later_and_still_in_order() -> None:
    two = Two()
    two.fabric.stall_chance = 0.5
    for number in range(50):
        two.send(b"%d," % number)
        two.run(0.001)
    two.run(10)
    assert two.far.received == b"".join(b"%d," % number for number in range(50))
    assert two.fabric.stalls > 5


def test_an_address_is_taken_once_and_port_0_is_any() -> None:
    two = Two(connect=False)
    network = SimNetwork(two.fabric, "b", two.loops["b"])
    taken = two.loops["b"].create_task(network.listen("b", 9092, lambda: two.far))
    free = two.loops["b"].create_task(network.listen("b", 0, lambda: two.far))
    two.run(1)
    assert isinstance(taken.exception(), OSError)
    assert free.result().address[1] > 0


def test_nobody_waits_in_a_backlog_for_ever() -> None:
    two = Two(connect=False)
    listening = SimNetwork(two.fabric, "b", two.loops["b"]).listen("b", 1, lambda: two.far)
    task = two.loops["b"].create_task(listening)
    two.run(1)
    outcome: list[str] = []

    async def connect() -> None:
        try:
            await SimNetwork(two.fabric, "a", two.loops["a"]).connect("b", 1, two.near)
            outcome.append("connected")
        except ConnectionRefusedError:
            outcome.append("refused")

    two.loops["a"].create_task(connect())
    two.run(1)
    assert outcome == []
    two.loops["b"].call_soon(task.result().close)
    two.run(1)
    assert outcome == ["refused"]
    assert not asyncio.all_tasks(two.loops["a"])


def test_who_knocks_at_a_process_that_dies_is_turned_away() -> None:
    two = Two(connect=False)
    two.loops["b"].pause()
    two.connect()
    two.run(1)
    assert two.near.events == [], "nobody has let us in yet"
    two.loops["b"].kill()
    two.fabric.vanish("b", machine=False)
    two.run(1)
    assert [type(error) for error in two.failed] == [ConnectionRefusedError]


def test_a_connection_that_nobody_waits_for_any_more_is_not_told_of() -> None:
    two = Two(connect=False)
    two.loops["b"].pause()

    async def give_up() -> None:
        attempt = two.loops["a"].create_task(SimNetwork(two.fabric, "a", two.loops["a"]).connect("b", 9092, two.near))
        await asyncio.wait([attempt], timeout=1.0)
        attempt.cancel()

    two.loops["a"].create_task(give_up())
    two.run(2)
    two.loops["b"].resume()
    two.run(1)
    assert two.near.events == []


def test_a_client_does_not_wait_for_an_attempt_that_was_lost() -> None:
    two = Two(connect=False)
    client = SimClient("c", two.scheduler, two.fabric, [("b", 9092)], Random(1))
    lost: list[tuple[float, bool]] = []

    async def ask() -> None:
        try:
            await client.anywhere(MetadataRequest(), MetadataResponse, timeout_s=1.0)
        except Lost as error:
            lost.append((two.scheduler.now, error.sent))

    two.fabric.cut("c", "b")
    two.scheduler.world.create_task(ask())
    two.run(1.2)
    two.fabric.heal("c", "b")
    began = two.scheduler.now
    two.scheduler.world.create_task(ask())
    two.run(0.5)
    assert two.far.events == ["made"], "at once, though the first attempt would have waited for its packets longer"
    assert two.far.received
    two.run(1)
    assert [sent for _, sent in lost] == [False, True]
    assert lost[1][0] - began < 1.2
