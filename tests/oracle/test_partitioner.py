"""Ten thousand keys go to the same partitions, whoever sends them: Java, librdkafka, our own code, `ottla produce`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.records.partitioner import LIBRDKAFKA_MURMUR2, Murmur2, partition_of_key
from tests.cli.sessions import run_ottla
from tests.records.columns_of import strings

from .apache_kafka import compiled, java
from .conftest import Node

pytestmark = pytest.mark.oracle

KEYS = 10_000
PARTITIONS = 17


def keys() -> list[bytes]:
    """All different, of 1 to 40 bytes, numbers and words among them."""
    random = Random(1)
    plain = [str(number).encode() for number in range(3000)]
    return list(dict.fromkeys([*plain, *(random.randbytes(random.randint(3, 40)) for _ in range(KEYS))]))[:KEYS]


def test_java_librdkafka_and_we_agree(node: Node, topic: str) -> None:
    wanted = keys()
    ours = [partition_of_key(key, PARTITIONS) for key in wanted]
    assert len(set(ours)) == PARTITIONS
    assert Murmur2()("topic", strings(list(wanted)), len(wanted), PARTITIONS).tolist() == ours

    done = subprocess.run(
        [java(), "-cp", compiled(Path(__file__).with_name("Partitions.java")), "Partitions", str(PARTITIONS)],
        input="".join(f"{key.hex()}\n" for key in wanted),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert [int(line) for line in done.stdout.split()] == ours

    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": node.bootstrap, "partitioner": LIBRDKAFKA_MURMUR2})
    chosen: dict[bytes, int] = {}
    for key in wanted:
        producer.produce(
            topic, key=key, on_delivery=lambda error, message: chosen.setdefault(message.key(), message.partition())
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert [chosen[key] for key in wanted] == ours


def test_ottla_produce_agrees_too(node: Node, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", "/nonexistent/config.toml")
    wanted = keys()
    separator, delimiter = b"\x00\xca\xfe\x00\xf0", b"\x00\xde\xad\x00\xf1"
    assert not any(separator in key + delimiter or delimiter in key + separator for key in wanted)
    at = ("-b", node.bootstrap)
    assert run_ottla(["topic", "create", topic, "-p", str(PARTITIONS), "-r", "1", *at])[0] == 0
    typed = ["-K", _typed(separator), "-D", _typed(delimiter)]
    status, _, said = run_ottla(
        ["produce", topic, *typed, *at], b"".join(key + separator + delimiter for key in wanted)
    )
    assert status == 0, said
    form = "%p %K " + "%k" + _typed(delimiter)
    status, out, said = run_ottla(["consume", topic, "-o", "beginning", "-e", "-f", form, *at])
    assert status == 0, said
    chosen: dict[bytes, int] = {}
    for piece in out.split(delimiter)[:-1]:
        partition, length, key = piece.split(b" ", 2)
        assert len(key) == int(length)
        chosen[key] = int(partition)
    assert [chosen[key] for key in wanted] == [partition_of_key(key, PARTITIONS) for key in wanted]


def _typed(data: bytes) -> str:
    return "".join(f"\\x{each:02x}" for each in data)
