"""Confluent's serializer for JSON, unchanged, on a real node and the registry beside it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2

from tests.gateway.conftest import Served

_numbers = count(1)


@pytest.fixture
def topic() -> str:
    return f"serialized-{next(_numbers)}"


@pytest.fixture
def client(served: Served) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": served.url}) as client:
        yield client


def there_and_back(served: Served, topic: str, data: bytes) -> bytes:
    producer = Producer({"bootstrap.servers": served.node.bootstrap})
    producer.produce(topic, data)
    assert producer.flush(60) == 0
    consumer = Consumer(
        {"bootstrap.servers": served.node.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        message = consumer.poll(60)
        assert message is not None
        value: bytes = message.value()
        return value
    finally:
        consumer.close()


def order(**properties: Any) -> str:
    return json.dumps(
        {
            "title": "Order",
            "type": "object",
            "properties": properties,
            "required": ["id"],
            "additionalProperties": False,
        }
    )


def test_json_goes_through_and_its_schema_is_judged(served: Served, client: SchemaRegistryClient, topic: str) -> None:
    context = SerializationContext(topic, MessageField.VALUE)
    first = order(id={"type": "integer"})
    data = JSONSerializer(first, client)({"id": 5}, context)
    assert data is not None
    assert JSONDeserializer(first, schema_registry_client=client)(there_and_back(served, topic, data), context) == {
        "id": 5
    }
    second = order(id={"type": "number"}, note={"type": "string"})
    JSONSerializer(second, client)({"id": 5, "note": "x"}, context)
    assert list(client.get_versions(f"{topic}-value")) == [1, 2]
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(f"{topic}-value", Schema(order(id={"type": "string"}, note={"type": "string"}), "JSON"))
    assert refused.value.http_status_code == 409
    assert "TYPE_CHANGED" in str(refused.value)


@pytest.mark.parametrize(("kind", "text"), [("PROTOBUF", "no schema"), ("JSON", "{"), ("PROTOBUF", "AAAA")])
def test_what_is_no_schema_is_refused(client: SchemaRegistryClient, topic: str, kind: str, text: str) -> None:
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(f"{topic}-value", Schema(text, kind))
    assert refused.value.http_status_code == 422


def test_a_protobuf_schema_is_registered_as_the_serializer_sends_it(client: SchemaRegistryClient, topic: str) -> None:
    """A FileDescriptorProto in base64: how Confluent's Python serializer gives a schema, and its text after it."""

    def described(kind: int) -> Schema:
        file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
        file.message_type.add(name="Order").field.add(name="id", number=1, type=kind)
        return Schema(base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")

    kinds = descriptor_pb2.FieldDescriptorProto
    subject = f"{topic}-value"
    first = client.register_schema(subject, described(kinds.TYPE_INT32))
    assert client.register_schema(subject, described(kinds.TYPE_INT32)) == first
    assert client.register_schema(subject, described(kinds.TYPE_INT64)) != first
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(subject, described(kinds.TYPE_STRING))
    assert refused.value.http_status_code == 409
    assert "FIELD_SCALAR_KIND_CHANGED" in str(refused.value)
    text = 'syntax = "proto3"; package shop; message Order { int64 id = 1; string note = 2; }'
    client.register_schema(subject, Schema(text, "PROTOBUF"))
    assert list(client.get_versions(subject)) == [1, 2, 3]
