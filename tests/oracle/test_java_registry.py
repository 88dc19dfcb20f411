"""Java's client of schema registries, Confluent's own, unchanged: reads what Python wrote, and is read by it.

Confluent publishes its jars in a repository of its own. The client is in Apache Flink's jar for registries too, under
another package, and that is in Maven's ordinary repository.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.gateway.conftest import registry_url
from tests.node_process import running_node
from tests.oracle.apache_kafka import compiled, java, registry_client

pytestmark = [pytest.mark.oracle, pytest.mark.long]

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'


def test_java_and_python_read_each_other(tmp_path: Path) -> None:
    with running_node(tmp_path) as node:
        url = registry_url(node)
        with SchemaRegistryClient({"url": url}) as client:
            context = SerializationContext("orders", MessageField.VALUE)
            record: Any = AvroSerializer(client, ORDER)({"id": 5}, context)
            path = compiled(Path(__file__).with_name("RegistryClient.java"), registry_client())
            done = subprocess.run(
                [java(), "-cp", path, "RegistryClient", url, "orders-value", record.hex()],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            told = dict(line.split(" ", 1) for line in done.stdout.splitlines())
            assert told["read"] == '{"id": 5}'
            assert told["compatible"] == "true"
            assert told["versions"] == "[1, 2]"
            assert told["latest"] == str(client.get_latest_version("orders-value").schema_id)
            assert told["refused"] == "409 40901"
            read: Any = AvroDeserializer(client)(bytes.fromhex(told["wrote"]), context)
            assert read == {"id": 7, "note": "from Java"}
