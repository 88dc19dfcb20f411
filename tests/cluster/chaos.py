"""`python -m tests.cluster.chaos --kills 20 --pauses 20`: clients at work while nodes are killed and stopped.

Three real nodes, topics with three replicas of which two are required. librdkafka writes with acks=all, to one topic as
an idempotent producer and to another as a plain one, and reads both as they grow; with `--java` Apache Kafka's own
producers and consumers do the same with two more. Meanwhile leaders and active controllers are killed (-9) and come
back, or are stopped (SIGSTOP) for longer than a session and go on as if nothing had happened. Then everything is read
once more by a new client, each partition's `History` is judged, the nodes are shut down, and their copies compared byte
by byte.

The faults come from a seed; the processes' timing does not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from bisect import bisect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ottla.records import batches
from tests.cluster.harness import PATIENCE_S, Cluster, eventually, running_cluster
from tests.cluster.history import History
from tests.cluster.java_clients import JavaReading, JavaWriting

PARTITIONS = 2
RATE = 200
"""Records a second that each producer writes, while it can."""
QUEUE_MAX = 2000
"""Records that a producer may hold back while nobody takes them."""
ONCE, PLAIN, JAVA_ONCE, JAVA_PLAIN = "once", "plain", "java-once", "java-plain"

CLIENT: Mapping[str, object] = {
    "socket.timeout.ms": 3000,
    "retry.backoff.ms": 50,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 1000,
    "enable.metrics.push": False,
    "log_level": 0,
}


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    kills: int = 0
    pauses: int = 0
    of_controllers: int = 0
    seconds: float = 0.0
    acknowledged: int = 0
    read: int = 0
    refused: int = 0
    bytes_compared: int = 0
    longest_gap_s: float = 0.0
    """Between two acknowledgements of one producer."""
    complaints: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = (
            f"{self.kills} kills and {self.pauses} pauses ({self.of_controllers} of the active controller) in "
            f"{self.seconds:.0f} s: {self.acknowledged} records acknowledged, {self.refused} not, {self.read} read "
            f"meanwhile; longest time without an acknowledgement {self.longest_gap_s:.1f} s; "
            f"{self.bytes_compared / 1e6:.1f} MB of copies compared"
        )
        return "\n".join([told, *self.complaints]) if self.complaints else f"{told}; nothing lost, torn or out of order"


class Writing:
    """One producer and its thread: numbers, in order, to each partition of a topic.

    An idempotent producer has many records under way. One that is not has one in a partition at a time: when leaders
    move, librdkafka sends to the new one while requests to the old one are unanswered, and what is sent again comes
    after what was sent later. That is the client's bargain; with one at a time there is no such excuse.
    """

    def __init__(self, bootstrap: str, topic: str, histories: list[History], *, idempotent: bool) -> None:
        self._topic = topic
        self._histories = histories
        self._unanswered_max = QUEUE_MAX if idempotent else 0
        self._unanswered = [0] * PARTITIONS
        self._producer = Producer(
            {
                **CLIENT,
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "linger.ms": 2,
                "request.timeout.ms": 3000,
                "message.timeout.ms": 120_000,
            }
        )
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writes {topic}")
        self._acknowledged_s = [time.monotonic()]
        self.longest_gap_s = 0.0
        self.failure: str | None = None

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Write no more; returns when everything is acknowledged or never will be."""
        self.longest_gap_s = self.gap_since()
        self._ending.set()
        self._thread.join()

    def gap_since(self, began_s: float = 0.0) -> float:
        """The longest time without an acknowledgement, from then on."""
        times = [*self._acknowledged_s, time.monotonic()]
        first = max(0, bisect(times, began_s) - 1)
        return max((after - before for before, after in pairwise(times[first:])), default=0.0)

    def _run(self) -> None:
        number = 0
        due = time.monotonic()
        while not self._ending.is_set():
            self._producer.poll(0.001)
            partition = number % PARTITIONS
            if time.monotonic() < due or self._unanswered[partition] > self._unanswered_max:
                continue
            due = max(due + 1 / RATE, time.monotonic() - 0.1)
            self._write(partition, number // PARTITIONS)
            number += 1
        left = self._producer.flush(90)
        if left:
            self.failure = f"{left} records were never answered"

    def _write(self, partition: int, number: int) -> None:
        history = self._histories[partition]
        known = history.on_write()
        self._unanswered[partition] += 1

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            self._unanswered[partition] -= 1
            if error is not None:
                history.on_refused(number, str(error))
                return
            history.on_acknowledged(number, message.offset(), known)
            self._acknowledged_s.append(time.monotonic())

        self._producer.produce(self._topic, b"%d" % number, partition=partition, on_delivery=on_delivery)


class Reading:
    """One consumer and its thread, which follows a topic from its beginning."""

    def __init__(self, bootstrap: str, topic: str, histories: list[History], name: str) -> None:
        self._histories = histories
        self._name = name
        self._consumer = _consumer(bootstrap, topic)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"reads {topic}")
        self.count = 0
        self.failure: str | None = None

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            message = self._consumer.poll(0.05)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self._histories[message.partition()].on_read(self._name, message.offset(), int(message.value()))
                self.count += 1
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self.failure = f"{self._name} has lost its place: {error}"
                break
        self._consumer.close()


def _consumer(bootstrap: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            **CLIENT,
            "bootstrap.servers": bootstrap,
            "group.id": "chaos",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    return consumer


class Chaos:
    """The faults, one after the other, each until all replicas are in sync again."""

    def __init__(
        self,
        cluster: Cluster,
        topics: list[str],
        writers: list[Writing],
        random: Random,
        outcome: Outcome,
        *,
        loud: bool,
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._writers = writers
        self._random = random
        self._outcome = outcome
        self._loud = loud

    def run(self, kills: int, pauses: int) -> None:
        faults = ["kill"] * kills + ["pause"] * pauses
        self._random.shuffle(faults)
        for fault in faults:
            victim, role = self._victim()
            began = time.monotonic()
            if fault == "kill":
                self._kill(victim)
            else:
                self._pause(victim)
            self._wait_in_sync()
            if self._loud:
                took = time.monotonic() - began
                time.sleep(0.2)  # Those who wait for an acknowledgement get it now.
                gaps = ", ".join(f"{each.gap_since(began):.1f} s" for each in self._writers)
                print(f"{fault} node {victim}, {role}: in sync again after {took:.1f} s; no ack for {gaps}", flush=True)

    def _victim(self) -> tuple[int, str]:
        if self._random.random() < 0.4:
            self._outcome.of_controllers += 1
            return self._cluster.active_controller(), "the active controller"
        topic, partition = self._random.choice(self._topics), self._random.randrange(PARTITIONS)
        return self._cluster.leader_of(topic, partition), f"the leader of {topic}-{partition}"

    def _kill(self, victim: int) -> None:
        self._outcome.kills += 1
        self._cluster.kill(victim)
        # Sometimes it is back before anybody missed it, sometimes long after it was replaced.
        time.sleep(self._random.choice([0.0, 0.5, 3.0]))
        self._cluster.restart(victim)

    def _pause(self, victim: int) -> None:
        self._outcome.pauses += 1
        self._cluster.pause(victim)
        time.sleep(self._random.choice([0.5, 1.5, 4.0]))
        self._cluster.resume(victim)

    def _wait_in_sync(self) -> None:
        everyone = sorted(self._cluster.nodes)

        def are_in_sync() -> bool | None:
            found = self._cluster.metadata(*self._topics).topics
            partitions = [each for topic in found for each in topic.partitions]
            return all(sorted(each.isr_nodes) == everyone and each.leader_id > 0 for each in partitions) or None

        eventually(are_in_sync, "an ISR of all", seconds=60)


def run(
    cluster: Cluster, *, kills: int, pauses: int, seed: int, java: Path | None = None, loud: bool = False
) -> Outcome:
    """Returns with all nodes shut down; complaints are in the outcome. `java` is where its clients keep their
    output."""
    outcome = Outcome()
    javas = [JAVA_ONCE, JAVA_PLAIN] if java else []
    topics = [ONCE, PLAIN, *javas]
    for topic in topics:
        cluster.create_topic(topic, partitions=PARTITIONS, min_insync_replicas="2")
    histories = {topic: [History(topic in (ONCE, JAVA_ONCE)) for _ in range(PARTITIONS)] for topic in topics}
    writers = [Writing(cluster.bootstrap, each, histories[each], idempotent=each == ONCE) for each in (ONCE, PLAIN)]
    readers = [Reading(cluster.bootstrap, each, histories[each], f"the reader of {each}") for each in topics]
    began = time.monotonic()
    with _at_work(writers, readers):
        others: list[tuple[str, JavaWriting | JavaReading]] = []
        try:
            for topic in javas:
                assert java is not None
                idempotent = topic == JAVA_ONCE
                writing = JavaWriting(cluster.bootstrap, topic, java, RATE, idempotent=idempotent)
                others += [(topic, writing), (topic, JavaReading(cluster.bootstrap, topic, java))]
            time.sleep(0.5)
            Chaos(cluster, topics, writers, Random(seed), outcome, loud=loud).run(kills, pauses)
            time.sleep(0.5)
        finally:
            for _, other in others:
                other.finish()
    outcome.seconds = time.monotonic() - began
    outcome.longest_gap_s = max(each.longest_gap_s for each in writers)
    failures = [each.failure for each in writers] + [each.failure for each in readers]
    outcome.complaints += [each for each in failures if each is not None]
    for topic, other in others:
        outcome.complaints += other.tell(histories[topic])
    outcome.read = sum(len(seen) for each in histories.values() for history in each for seen in history.reads.values())
    ends: dict[tuple[str, int], int] = {}
    for topic in topics:
        final = read_to_the_end(cluster.bootstrap, topic)
        for partition, history in enumerate(histories[topic]):
            outcome.acknowledged += len(history.acknowledged)
            outcome.refused += len(history.refused)
            ends[topic, partition] = final[partition][-1][0] + 1 if final[partition] else 0
            outcome.complaints += [f"{topic}-{partition}: {each}" for each in history.complaints(final[partition])]
    cluster.stop_all()
    for (topic, partition), end in ends.items():
        size, complaints = compare_copies(cluster, topic, partition, end)
        outcome.bytes_compared += size
        outcome.complaints += complaints
    return outcome


@contextmanager
def _at_work(writers: list[Writing], readers: list[Reading]) -> Iterator[None]:
    clients: list[Writing | Reading] = [*writers, *readers]
    for each in clients:
        each.start()
    try:
        yield
    finally:
        for each in clients:
            each.finish()


def read_to_the_end(bootstrap: str, topic: str) -> list[list[tuple[int, int]]]:
    """Offset and number of all records, by partition, as a client sees them that knew nothing before."""
    consumer = _consumer(bootstrap, topic)
    found: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=30)[1] for index in range(PARTITIONS)]
    deadline = time.monotonic() + PATIENCE_S
    try:
        while any(end and (not seen or seen[-1][0] < end - 1) for end, seen in zip(ends, found, strict=True)):
            assert time.monotonic() < deadline, f"{topic}: read {[seen[-1:] for seen in found]} of {ends}"
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found[message.partition()].append((message.offset(), int(message.value())))
    finally:
        consumer.close()
    return found


def compare_copies(cluster: Cluster, topic: str, partition: int, end: int) -> tuple[int, list[str]]:
    """The bytes that all copies have in common, and what is wrong with them: they reach the high watermark `end`, and
    up to the shortest of them there is no difference."""
    copies = {}
    for node_id in cluster.nodes:
        files = sorted((cluster.directory / f"node-{node_id}" / f"{topic}-{partition}").glob("*.log"))
        copies[node_id] = b"".join(file.read_bytes() for file in files)
    shortest = min(map(len, copies.values()))
    complaints = []
    if len({copy[:shortest] for copy in copies.values()}) > 1:
        complaints.append(
            f"{topic}-{partition}: the copies differ; their sizes are { {k: len(v) for k, v in copies.items()} }"
        )
    last = 0
    for header, _ in batches(memoryview(next(iter(copies.values()))[:shortest])):
        last = header.last_offset + 1
    if last < end:
        complaints.append(f"{topic}-{partition}: a copy ends at {last}, below the high watermark {end}")
    return shortest, complaints


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests.cluster.chaos", description="Kill and stop nodes under clients at work."
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pauses", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--java", action="store_true", help="Apache Kafka's clients take part (needs Java and Maven)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-chaos-") as scratch:
        java = Path(scratch) if options.java else None
        with running_cluster(Path(scratch) / "nodes") as cluster:
            outcome = run(cluster, kills=options.kills, pauses=options.pauses, seed=options.seed, java=java, loud=True)
    print(outcome)
    return 1 if outcome.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
