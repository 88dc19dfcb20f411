"""Clients that reach one forwarded port of one node, and work with a cluster of three all the same."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.broker.gateway.presenting import GATEWAY_ID
from ottla.broker.gateway.routing import ROUTES
from ottla.runtime.system import free_ports
from ottla.wire.apis import API_VERSIONS, APIS
from ottla.wire.frames import request_frame
from tests.cluster.harness import Cluster, give_gateway
from tests.oracle.apache_kafka import KafkaTools
from tests.wire_client import WireClient, last_version

pytestmark = pytest.mark.slow

PARTITIONS = 6
PATIENCE_S = 60.0


@contextmanager
def forwarded(port: int, to: int) -> Iterator[None]:
    """`ssh -L port:127.0.0.1:to`, in a thread."""
    loop = asyncio.new_event_loop()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pipe(reader, there[1]), pipe(there[0], writer))

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", port))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield
    loop.call_soon_threadsafe(loop.stop)
    thread.join(PATIENCE_S)
    server.close()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0.05))
    loop.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, str]]:
    """A cluster whose first node has a gateway, and the address at which its clients reach that."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    (public,) = free_ports("127.0.0.1", 1)
    port = give_gateway(cluster, public=public)
    with forwarded(public, port):
        try:
            cluster.start()
            yield cluster, f"127.0.0.1:{public}"
            cluster.stop_all()
        except BaseException:
            print(cluster.complaints())
            raise
        finally:
            cluster.close()
    assert "Traceback" not in cluster.complaints(), cluster.complaints()


def make_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result(PATIENCE_S)


def produce(bootstrap: str, topic: str, values: range, between: Callable[[int], None] = lambda value: None) -> None:
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
    for value in values:
        producer.produce(
            topic,
            str(value).encode(),
            partition=value % PARTITIONS,
            on_delivery=lambda error, message: failed.append(error) if error else None,
        )
        producer.poll(0)
        between(value)
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def consume(bootstrap: str, topic: str, count: int, **settings: Any) -> list[tuple[int, int, int]]:
    """Partition, offset and value of `count` records."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"of-{topic}", "auto.offset.reset": "earliest", **settings}
    )
    consumer.subscribe([topic])
    found: list[tuple[int, int, int]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        message = consumer.poll(0.5)
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        if message is not None and message.error() is None:
            found.append((message.partition(), message.offset(), int(message.value())))
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def test_clients_see_one_broker_that_does_everything(gateway: tuple[Cluster, str]) -> None:
    cluster, bootstrap = gateway
    make_topic(bootstrap, "seen")
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=PATIENCE_S)
    ((node_id, broker),) = metadata.brokers.items()
    assert (node_id, f"{broker.host}:{broker.port}") == (GATEWAY_ID, bootstrap)
    assert {partition.leader for partition in metadata.topics["seen"].partitions.values()} == {GATEWAY_ID}
    direct = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=PATIENCE_S)
    assert len(direct.brokers) == 3
    assert {partition.leader for partition in direct.topics["seen"].partitions.values()} == {1, 2, 3}


def test_records_and_groups_go_through(gateway: tuple[Cluster, str]) -> None:
    cluster, bootstrap = gateway
    make_topic(bootstrap, "through")
    produce(bootstrap, "through", range(600))
    found = consume(bootstrap, "through", 600)
    assert sorted(value for *_, value in found) == list(range(600))
    for partition in range(PARTITIONS):
        of_one = [(offset, value) for each, offset, value in found if each == partition]
        assert of_one == sorted(of_one)  # In the order in which they were produced.
    protocol = {"group.protocol": "consumer", "group.id": "of-through-again"}
    assert len(consume(bootstrap, "through", 600, **protocol)) == 600
    # Whoever comes without the gateway finds the group where it is.
    behind = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "of-through"})
    places = [TopicPartition("through", partition) for partition in range(PARTITIONS)]
    assert [each.offset for each in behind.committed(places, timeout=PATIENCE_S)] == [100] * PARTITIONS
    behind.close()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    groups = admin.list_consumer_groups().result(PATIENCE_S)
    assert "of-through" in {group.group_id for group in groups.valid}


def test_transactions_go_through(gateway: tuple[Cluster, str]) -> None:
    _, bootstrap = gateway
    make_topic(bootstrap, "from")
    make_topic(bootstrap, "to")
    produce(bootstrap, "from", range(60))
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "transformer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["from"])
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "transformer"})
    producer.init_transactions(PATIENCE_S)
    done, deadline, aborted = 0, time.monotonic() + PATIENCE_S, False
    while done < 60:
        assert time.monotonic() < deadline
        messages = [message for message in consumer.consume(20, 0.5) if message.error() is None]
        if not messages:
            continue
        if not aborted:
            producer.begin_transaction()
            producer.produce("to", b"-1", partition=0)
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
            aborted = True
        producer.begin_transaction()
        for message in messages:
            producer.produce("to", message.value(), partition=message.partition())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)
        done += len(messages)
    committed = consumer.committed([TopicPartition("from", each) for each in range(PARTITIONS)], timeout=PATIENCE_S)
    assert [each.offset for each in committed] == [10] * PARTITIONS
    consumer.close()
    assert sorted(value for *_, value in consume(bootstrap, "to", 60)) == list(range(60))


def test_what_a_client_asks_wrongly_is_refused_as_ever(gateway: tuple[Cluster, str]) -> None:
    _, bootstrap = gateway
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    with pytest.raises(KafkaException) as refused:
        consumer.get_watermark_offsets(TopicPartition("nobody-made-it", 0), timeout=10)
    assert refused.value.args[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)
    consumer.close()


@pytest.mark.oracle
def test_apache_kafkas_own_tools_go_through(gateway: tuple[Cluster, str]) -> None:
    _, bootstrap = gateway
    make_topic(bootstrap, "java")
    lines = [f"line {number}" for number in range(60)]
    with KafkaTools() as tools:
        at = ("--bootstrap-server", bootstrap, "--topic", "java")
        tools.check("kafka-console-producer", *at, stdin="\n".join(lines) + "\n", timeout=120)
        for protocol in ("classic", "consumer"):
            read = tools.check(
                "kafka-console-consumer",
                *at,
                *("--from-beginning", "--max-messages", "60", "--timeout-ms", "60000"),
                *("--group", f"java-{protocol}", "--command-property", f"group.protocol={protocol}"),
                timeout=120,
            )
            assert sorted(read.out.splitlines()) == sorted(lines)
        described = tools.check("kafka-topics", "--describe", *at, timeout=120).out
    assert described.count(f"Leader: {GATEWAY_ID}") == PARTITIONS


def test_nonsense_does_no_harm(gateway: tuple[Cluster, str]) -> None:
    """Spoilt requests of every API that is handed on: each is answered, or its connection closed."""
    _, bootstrap = gateway
    host, _, port = bootstrap.partition(":")
    random = Random(7)
    tried = 0
    for api_key in ROUTES:
        request = APIS[api_key].request()
        for spoilt in range(8):
            body = bytearray(request.encode(last_version(request)))
            for _ in range(spoilt):
                body[random.randrange(len(body))] = random.randrange(256)
            with WireClient((host, int(port)), timeout_s=2) as client:
                frame = request_frame(api_key, last_version(request), 5, "nonsense", bytes(body))
                client.send_raw(frame + request_frame(API_VERSIONS, 0, 6, "nonsense", b""))
                with suppress(EOFError, OSError):  # Some ask to wait for minutes, and may.
                    while client.receive_correlation_id() != 6:
                        pass
            tried += 1
    assert tried == 8 * len(ROUTES)
    assert AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=PATIENCE_S).brokers


def test_a_leader_may_die_behind_the_gateway(gateway: tuple[Cluster, str]) -> None:
    cluster, bootstrap = gateway
    make_topic(bootstrap, "survivor")

    def kill(value: int) -> None:
        if value == 150:
            cluster.kill(3)
        time.sleep(0.005)

    produce(bootstrap, "survivor", range(600), kill)
    found = consume(bootstrap, "survivor", 600)
    assert sorted(value for *_, value in found) == list(range(600))
    cluster.restart(3)
