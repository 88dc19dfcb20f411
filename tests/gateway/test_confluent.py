"""Confluent's own Python client and Avro serializers, unchanged, against the registry of a real node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.gateway.conftest import Served

pytestmark = pytest.mark.slow


def avro(*fields: object, name: str = "Order") -> Schema:
    return Schema(json.dumps({"type": "record", "name": name, "fields": list(fields)}), "AVRO")


def field(name: str, kind: object = "int", **more: object) -> dict[str, object]:
    return {"name": name, "type": kind, **more}


V1 = avro(field("id"))
V2 = avro(field("id"), field("note", "string", default=""))
BROKEN = avro(field("id"), field("must", "string"))


@pytest.fixture
def client(served: Served) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": served.url}) as client:
        yield client


def code_of(refused: pytest.ExceptionInfo[Any]) -> int:
    code: int = refused.value.error_code
    return code


def test_schemas_subjects_and_versions(client: SchemaRegistryClient) -> None:
    one = client.register_schema("c-value", V1)
    assert client.register_schema("c-value", V1) == one
    full = client.register_schema_full_response("c-value", V2)
    assert (full.version, full.schema_id > one) == (2, True)
    assert json.loads(client.get_schema(one).schema_str) == json.loads(V1.schema_str)
    assert client.get_schema_by_guid(full.guid).schema_str == client.get_schema(full.schema_id).schema_str
    assert client.lookup_schema("c-value", V2).version == 2
    assert client.get_versions("c-value") == [1, 2]
    assert client.get_version("c-value", 1).schema_id == one
    assert client.get_latest_version("c-value").version == 2
    assert "c-value" in client.get_subjects()
    assert client.get_subjects(subject_prefix="c-v") == ["c-value"]
    assert client.get_subjects_by_schema_id(one) == ["c-value"]
    assert [(each.subject, each.version) for each in client.get_schema_versions(one)] == [("c-value", 1)]
    assert sorted(client.get_schema_types()) == ["AVRO", "JSON", "PROTOBUF"]
    assert client.get_contexts() == ["."]


def test_levels_and_modes(client: SchemaRegistryClient) -> None:
    client.register_schema("l-value", V1)
    assert client.test_compatibility("l-value", V2)
    assert not client.test_compatibility("l-value", BROKEN)
    assert not client.test_compatibility_all_versions("l-value", BROKEN)
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("l-value", BROKEN)
    assert (refused.value.http_status_code, code_of(refused)) == (409, 40901)
    assert client.set_compatibility("l-value", "NONE") == {"compatibility": "NONE"}
    assert client.get_compatibility("l-value") == "NONE"
    client.register_schema("l-value", BROKEN)
    client.set_config("l-value", ServerConfig(compatibility=ConfigCompatibilityLevel.FULL, compatibility_group="major"))
    config = client.get_config("l-value")
    assert (config.compatibility_level.value, config.compatibility_group) == ("FULL", "major")
    client.delete_config("l-value")
    with pytest.raises(SchemaRegistryError) as refused:
        client.get_compatibility("l-value")
    assert code_of(refused) == 40408
    assert client.get_compatibility() == "BACKWARD"
    client.update_mode("l-value", "READONLY")
    assert client.get_mode("l-value") == "READONLY"
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("l-value", V2)
    assert code_of(refused) == 42205
    assert client.delete_mode("l-value") == "READONLY"
    assert client.get_global_mode() == "READWRITE"
    assert client.update_global_mode("READWRITE") == "READWRITE"


def test_deletes(client: SchemaRegistryClient) -> None:
    client.register_schema("d-value", V1)
    client.register_schema("d-value", V2)
    assert client.delete_version("d-value", 1) == 1
    assert client.get_versions("d-value") == [2]
    assert client.get_versions("d-value", deleted=True) == [1, 2]
    assert client.delete_subject("d-value") == [2]
    assert "d-value" not in client.get_subjects()
    assert "d-value" in client.get_subjects(deleted=True)
    assert client.delete_subject("d-value", permanent=True) == [1, 2]
    assert "d-value" not in client.get_subjects(deleted=True)
    with pytest.raises(SchemaRegistryError) as refused:
        client.get_latest_version("d-value")
    assert code_of(refused) == 40401


def test_references(client: SchemaRegistryClient) -> None:
    client.register_schema("address", avro(field("street", "string"), name="Address"))
    person = Schema(
        json.dumps({"type": "record", "name": "Person", "fields": [field("home", "Address")]}),
        "AVRO",
        [SchemaReference("Address", "address", 1)],
    )
    made = client.register_schema("person", person)
    assert client.get_schema(made).references == person.references
    assert client.get_referenced_by("address", 1) == [made]
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_subject("address")
    assert code_of(refused) == 42206


def test_json_and_protobuf_schemas(client: SchemaRegistryClient) -> None:
    for kind, text in (("JSON", '{"type":"object"}'), ("PROTOBUF", 'syntax = "proto3";\nmessage M {}\n')):
        made = client.register_schema(f"kept-{kind}", Schema(text, kind))
        served = client.get_schema(made)
        assert (served.schema_type, served.schema_str) == (kind, text)


def test_avro_serializers_write_and_read_through_a_topic(served: Served, client: SchemaRegistryClient) -> None:
    """Written with two versions of a schema, read with the newer one."""
    topic = "avro-orders"
    producer = Producer({"bootstrap.servers": served.node.bootstrap})
    context = SerializationContext(topic, MessageField.VALUE)
    rows: list[dict[str, Any]] = [{"id": 1}, {"id": 2, "note": "two"}]
    for schema, row in zip((V1, V2), rows, strict=True):
        conf = {"subject.name.strategy": topic_subject_name_strategy}
        serializer = AvroSerializer(client, schema.schema_str, conf=conf)
        producer.produce(topic, value=serializer(row, context))
    assert producer.flush(60) == 0
    read = AvroDeserializer(client, V2.schema_str)
    consumer = Consumer(
        {"bootstrap.servers": served.node.bootstrap, "group.id": "avro", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < 2:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        found.append(read(message.value(), context))
    consumer.close()
    assert found == [{"id": 1, "note": ""}, {"id": 2, "note": "two"}]
    assert client.get_versions(f"{topic}-value") == [1, 2]
