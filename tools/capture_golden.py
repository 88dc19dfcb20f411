"""Captures the bytes of real clients and of Apache Kafka for `tests/wire/golden`.

    python -m tools.capture_golden

Starts one Apache Kafka node on loopback behind a recording proxy, walks librdkafka, kafka-python, aiokafka and the Java
client through their APIs, and then asks Kafka every served version of what they asked. Brokers' own traffic (to the
controller, between coordinators) passes the proxy too, and what Kafka stored is read from its logs. Of each message
and version the most telling capture of each speaker is kept: the longest within `BYTES_MAX`, or else the shortest. A
file is one message; a line is version, who spoke, hex.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from ottla.errors import KafkaError
from ottla.wire.apis import APIS
from ottla.wire.frames import read_request_header, read_response_header, request_frame
from ottla.wire.messages import (
    GROUP_KEYS,
    GROUP_VALUES,
    METADATA_RECORDS,
    SHARE_KEYS,
    SHARE_VALUES,
    TRANSACTION_KEYS,
    TRANSACTION_VALUES,
    message_class,
)
from ottla.wire.primitives import read_unsigned_varint, read_varint, read_varlong
from tests.oracle.apache_kafka import ApacheKafka, KafkaTools, compiled, free_ports, java

GOLDEN = Path(__file__).parents[1] / "tests" / "wire" / "golden"
BYTES_MAX = 800
SPEAKERS = ("librdkafka", "kafka-python", "aiokafka", "java")
NOT_SWEPT = {"SyncGroup", "SaslHandshake", "SaslAuthenticate", "UnregisterBroker", "UpdateFeatures", "PushTelemetry"}


class Recorder:
    """What passed: the bodies of requests and responses by message name and version."""

    def __init__(self) -> None:
        self.bodies: dict[tuple[str, int], set[tuple[str, bytes]]] = {}

    def request(self, frame: bytes) -> tuple[int, int, str]:
        head = read_request_header(frame)
        speaker = next((name for name in SPEAKERS if (head.client_id or "").startswith(name)), "kafka")
        self.add(f"{APIS[head.api_key].name}Request", head.api_version, speaker, frame[head.body_position :])
        return head.api_key, head.api_version, speaker

    def response(self, api_key: int, version: int, frame: bytes) -> None:
        api = APIS[api_key]
        head = read_response_header(frame, api.response_header_version(version) == 1)
        self.add(f"{api.name}Response", version, "kafka", frame[head.body_position :])

    def add(self, name: str, version: int, speaker: str, body: bytes) -> None:
        self.bodies.setdefault((name, version), set()).add((speaker, body))

    def chosen(self) -> Iterator[tuple[str, int, str, bytes]]:
        for (name, version), captures in sorted(self.bodies.items()):
            for speaker in sorted({speaker for speaker, _ in captures}):
                bodies = sorted({body for who, body in captures if who == speaker}, key=lambda body: (len(body), body))
                short = [body for body in bodies if len(body) <= BYTES_MAX]
                yield name, version, speaker, short[-1] if short else bodies[0]


class Proxy:
    """Forwards connections to `target` and hands every frame to the recorder; runs in a thread of its own."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def serve(self, port: int, target: int) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._connect(reader, writer, target)
            writer.close()

        async def start() -> None:
            await asyncio.start_server(accept, "127.0.0.1", port, limit=1 << 24)

        started: Future[None] = asyncio.run_coroutine_threadsafe(start(), self._loop)
        started.result()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", target, limit=1 << 24)
        asked: dict[int, tuple[int, int]] = {}

        async def requests() -> None:
            while True:
                size = await reader.readexactly(4)
                frame = await reader.readexactly(int.from_bytes(size, "big"))
                key, version, _ = self.recorder.request(frame)
                asked[int.from_bytes(frame[4:8], "big")] = key, version
                server_writer.write(size + frame)

        async def responses() -> None:
            while True:
                size = await server_reader.readexactly(4)
                frame = await server_reader.readexactly(int.from_bytes(size, "big"))
                self.recorder.response(*asked.pop(int.from_bytes(frame[:4], "big")), frame)
                writer.write(size + frame)

        done = [asyncio.ensure_future(requests()), asyncio.ensure_future(responses())]
        try:
            await asyncio.wait(done, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in done:
                task.cancel()
            await asyncio.gather(*done, return_exceptions=True)
            server_writer.close()


def attempt(name: str, step: Callable[[], Any]) -> None:
    """A step that a client or the cluster refuses has still spoken: say so and go on."""
    try:
        step()
    except Exception as failure:
        print(f"{name}: {failure!r}"[:200], file=sys.stderr)


def drive_librdkafka(servers: str) -> None:
    ck: Any = import_module("confluent_kafka")
    ca: Any = import_module("confluent_kafka.admin")
    common = {"bootstrap.servers": servers, "client.id": "librdkafka"}
    admin = ca.AdminClient(common)
    topic = "librdkafka"

    def all_of(futures: Any) -> None:
        for future in futures.values() if isinstance(futures, dict) else [futures]:
            future.result(timeout=10)

    resource = ca.ConfigResource(ca.ConfigResource.Type.TOPIC, topic)
    partition = ck.TopicPartition(topic, 0, 1)
    attempt("create", lambda: all_of(admin.create_topics([ck.admin.NewTopic(topic, 1, 1)])))

    producer = ck.Producer({**common, "enable.idempotence": True, "compression.type": "gzip"})
    for _ in range(3):
        producer.produce(topic, b"value", b"key", headers={"h": b"1"})
        producer.flush(10)
    plain = ck.Producer({**common, "acks": 1})
    plain.produce(topic, b"value")
    plain.flush(10)

    def transact() -> None:
        transactional = ck.Producer({**common, "transactional.id": "librdkafka-txn"})
        transactional.init_transactions(10)
        transactional.begin_transaction()
        transactional.produce(topic, b"value")
        consumer = ck.Consumer({**common, "group.id": "librdkafka-txn"})
        transactional.send_offsets_to_transaction([partition], consumer.consumer_group_metadata(), 10)
        transactional.commit_transaction(10)
        consumer.close()

    attempt("transaction", transact)
    for protocol in ("classic", "consumer"):
        group = {**common, "group.id": f"librdkafka-{protocol}", "group.protocol": protocol}
        consumer = ck.Consumer({**group, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe([topic])
        deadline = time.monotonic() + 8
        seen = 0
        while seen < 3 and time.monotonic() < deadline:
            record = consumer.poll(0.5)
            seen += record is not None and not record.error()
        attempt("commit", partial(consumer.commit, asynchronous=False))
        attempt("committed", partial(consumer.committed, [partition], timeout=5))
        attempt("times", partial(consumer.offsets_for_times, [partition], timeout=5))
        if protocol == "classic":
            attempt("describe groups", lambda: all_of(admin.describe_consumer_groups(["librdkafka-classic"])))
        consumer.close()

    attempt("configs", lambda: all_of(admin.describe_configs([resource])))
    entry = ca.ConfigEntry("retention.ms", "1000000", incremental_operation=ca.AlterConfigOpType.SET)
    changed = ca.ConfigResource(ca.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    attempt("incremental", lambda: all_of(admin.incremental_alter_configs([changed])))
    attempt("partitions", lambda: all_of(admin.create_partitions([ck.admin.NewPartitions(topic, 2)])))
    attempt("cluster", lambda: all_of(admin.describe_cluster()))
    attempt("topics", lambda: all_of(admin.describe_topics(ck.TopicCollection([topic]))))
    attempt("groups", lambda: all_of(admin.list_consumer_groups()))
    attempt("offsets", lambda: all_of(admin.list_offsets({partition: ca.OffsetSpec.latest()})))
    attempt("delete records", lambda: all_of(admin.delete_records([partition])))
    group_offsets = ck.ConsumerGroupTopicPartitions("librdkafka-classic", [partition])
    asked = ck.ConsumerGroupTopicPartitions("librdkafka-classic", [ck.TopicPartition(topic, 0)])
    attempt("alter group", lambda: all_of(admin.alter_consumer_group_offsets([group_offsets])))
    attempt("group offsets", lambda: all_of(admin.list_consumer_group_offsets([asked])))
    attempt("delete groups", lambda: all_of(admin.delete_consumer_groups(["librdkafka-classic"])))
    attempt("scram", lambda: all_of(admin.describe_user_scram_credentials()))
    attempt("elect", lambda: all_of(admin.elect_leaders(ck.ElectionType.PREFERRED, [partition])))
    acl = ca.AclBinding(
        ca.ResourceType.TOPIC,
        topic,
        ca.ResourcePatternType.LITERAL,
        "User:bob",
        "*",
        ca.AclOperation.READ,
        ca.AclPermissionType.ALLOW,
    )
    attempt("acls", lambda: all_of(admin.create_acls([acl])))
    attempt("delete topics", lambda: all_of(admin.delete_topics([topic])))


def drive_kafka_python(servers: str) -> None:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import NewTopic

    def one(version: tuple[int, ...] | None) -> None:
        common: dict[str, Any] = {"bootstrap_servers": servers, "client_id": "kafka-python"}
        if version:
            common["api_version"] = version
        topic = "kafka-python-" + "-".join(map(str, version or ("now",)))
        admin = KafkaAdminClient(**common)
        attempt("create", lambda: admin.create_topics([NewTopic(topic, 1, 1)]))
        producer = KafkaProducer(**common)
        for _ in range(3):
            producer.send(topic, b"value", b"key").get(10)
        producer.close()
        consumer = KafkaConsumer(
            topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=4000, **common
        )
        attempt("poll", lambda: [next(consumer) for _ in range(3)])
        partition = TopicPartition(topic, 0)
        attempt("commit", consumer.commit)
        attempt("committed", lambda: consumer.committed(partition))
        attempt("offsets", lambda: consumer.end_offsets([partition]))
        attempt("times", lambda: consumer.offsets_for_times({partition: 1}))
        attempt("describe groups", lambda: admin.describe_groups([topic]))
        consumer.close()
        attempt("groups", admin.list_groups)
        attempt("topics", admin.describe_topics)
        attempt("cluster", admin.describe_cluster)
        attempt("delete", lambda: admin.delete_topics([topic]))
        admin.close()

    for version in (None, (2, 1), (2, 4), (2, 6)):
        attempt(f"kafka-python {version}", partial(one, version))


async def drive_aiokafka(servers: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    common = {"bootstrap_servers": servers, "client_id": "aiokafka"}
    topic = "aiokafka"
    admin = AIOKafkaAdminClient(**common)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    producer = AIOKafkaProducer(**common, enable_idempotence=True)
    await producer.start()
    for _ in range(3):
        await producer.send_and_wait(topic, b"value", b"key")
    await producer.stop()
    transactional = AIOKafkaProducer(**common, transactional_id="aiokafka-txn")
    await transactional.start()
    async with transactional.transaction():
        await transactional.send_and_wait(topic, b"value")
        await transactional.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, "aiokafka-txn")
    await transactional.stop()
    consumer = AIOKafkaConsumer(topic, **common, group_id="aiokafka", auto_offset_reset="earliest")
    await consumer.start()
    for _ in range(3):
        await asyncio.wait_for(consumer.getone(), 10)
    await consumer.commit()
    await consumer.end_offsets([TopicPartition(topic, 0)])
    await consumer.stop()
    await admin.list_consumer_groups()
    await admin.describe_cluster()
    await admin.delete_topics([topic])
    await admin.close()


def drive_java(servers: str) -> None:
    command = [java(), "-cp", compiled(Path(__file__).with_name("CaptureClient.java")), "CaptureClient", servers]
    subprocess.run(command, check=True, timeout=240)


def sweep(recorder: Recorder, port: int) -> None:
    """Ask every served version of every request that clients made, as far as the version can say it."""
    for (name, seen_version), captures in sorted(recorder.bodies.items()):
        api = next((api for api in APIS.values() if f"{api.name}Request" == name), None)
        if api is None or not api.on_broker or api.name in NOT_SWEPT:
            continue
        for version in range(api.first_version, api.last_version + 1):
            for _, body in sorted(captures, key=lambda capture: -len(capture[1]))[:3]:
                with contextlib.suppress(KafkaError, OSError, TypeError, AttributeError):
                    again = api.request.decode(body, seen_version).encode(version)
                    recorder.response(api.key, version, ask(port, request_frame(api.key, version, 1, "sweep", again)))


def ask(port: int, frame: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.sendall(frame)
        with connection.makefile("rb") as answers:
            size = answers.read(4)
            if len(size) < 4:
                raise ConnectionError
            return answers.read(int.from_bytes(size, "big"))


def records_of(file: Path) -> Iterator[tuple[bool, bytes | None, bytes | None]]:
    """Key and value of every record of an uncompressed log file, and whether it is a control record."""
    data = file.read_bytes()
    start = 0
    while len(data) - start > 61:
        size, attributes, count = struct.unpack_from(">8xi9xh34xi", data, start)
        if size == 0:  # Preallocated space.
            return
        position = start + 61
        for _ in range(0 if attributes & 7 else count):  # Clients' compressed batches hold nothing of interest here.
            length, position = read_varint(data, position)
            after = position + length
            position += 1
            _, position = read_varlong(data, position)
            _, position = read_varint(data, position)
            pair: list[bytes | None] = []
            for _ in range(2):
                length, position = read_varint(data, position)
                pair.append(data[position : position + length] if length >= 0 else None)
                position += max(length, 0)
            yield bool(attributes & 32), pair[0], pair[1]
            position = after
        start += 12 + size


CONTROL_RECORDS = {
    2: "LeaderChangeMessage",
    3: "SnapshotHeaderRecord",
    4: "SnapshotFooterRecord",
    5: "KRaftVersionRecord",
    6: "VotersRecord",
}


def add_stored(recorder: Recorder, data: Path) -> None:
    """What Kafka wrote to its own logs and producer snapshots."""
    coordinators = {
        "__consumer_offsets": (GROUP_KEYS, GROUP_VALUES),
        "__transaction_state": (TRANSACTION_KEYS, TRANSACTION_VALUES),
        "__share_group_state": (SHARE_KEYS, SHARE_VALUES),
    }
    for file in sorted([*data.glob("*/*.log"), *data.glob("*/*.checkpoint")]):
        topic = file.parent.name.rpartition("-")[0]
        for is_control, key, value in records_of(file):
            if is_control:
                _, kind = struct.unpack(">hh", key or b"")
                version = int.from_bytes((value or b"")[:2], "big")
                if kind in CONTROL_RECORDS:
                    recorder.add(CONTROL_RECORDS[kind], version, "log", value or b"")
                else:
                    recorder.add("EndTxnMarker", version, "log", (value or b"")[2:])
            elif topic == "__cluster_metadata" and value:
                _, position = read_unsigned_varint(value, 0)
                kind, position = read_unsigned_varint(value, position)
                version, position = read_unsigned_varint(value, position)
                recorder.add(METADATA_RECORDS[kind].__name__, version, "log", value[position:])
            elif topic in coordinators and key:
                keys, values = coordinators[topic]
                kind = int.from_bytes(key[:2], "big")
                recorder.add(keys[kind].__name__, 0, "log", key[2:])
                if value:
                    recorder.add(values[kind].__name__, int.from_bytes(value[:2], "big"), "log", value[2:])
    for file in data.glob("*/*.snapshot"):
        raw = file.read_bytes()
        recorder.add("ProducerSnapshot", int.from_bytes(raw[:2], "big"), "log", raw[2:])


def write(recorder: Recorder) -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for old in GOLDEN.glob("*.hex"):
        old.unlink()
    files: dict[str, list[str]] = {}
    for name, version, speaker, body in recorder.chosen():
        if len(body) > 10 * BYTES_MAX:
            continue
        module = message_class(name).__module__.rpartition(".")[2]
        files.setdefault(module, []).append(f"{version} {speaker} {body.hex()}\n")
    for module, lines in files.items():
        (GOLDEN / f"{module}.hex").write_text("".join(lines))
    total = sum(len(line) for lines in files.values() for line in lines)
    print(f"{len(files)} messages, {sum(map(len, files.values()))} captures, {total} characters")


def main() -> None:
    recorder = Recorder()
    proxy = Proxy(recorder)
    port, controller_port = free_ports(2)
    with tempfile.TemporaryDirectory(prefix="golden-") as scratch, KafkaTools() as tools:
        listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
        node = ApacheKafka(
            Path(scratch) / "node",
            heap=("-Xmx512M",),
            overrides={
                "advertised.listeners": listeners,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
                "group.initial.rebalance.delay.ms": "0",
                "offsets.topic.num.partitions": "2",
                "transaction.state.log.num.partitions": "2",
                "share.coordinator.state.topic.num.partitions": "2",
            },
        )
        proxy.serve(port, node.port)
        proxy.serve(controller_port, node.controller_port)
        node.start(tools)
        servers = f"127.0.0.1:{port}"
        try:
            attempt("java", lambda: drive_java(servers))
            attempt("librdkafka", lambda: drive_librdkafka(servers))
            attempt("aiokafka", lambda: asyncio.run(drive_aiokafka(servers)))
            attempt("kafka-python", lambda: drive_kafka_python(servers))
            sweep(recorder, node.port)
        finally:
            node.stop()
        add_stored(recorder, node.data)
    write(recorder)


if __name__ == "__main__":
    main()
