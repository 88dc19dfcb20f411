"""The blocking client against Apache Kafka: over TLS, with each mechanism, and with the wrong password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.blocking import BlockingClient, CoordinatorKind
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from tests.client.certificates import self_signed

from .apache_kafka import ApacheKafka, KafkaTools, free_ports
from .conftest import At

pytestmark = pytest.mark.oracle

_MODULE = "org.apache.kafka.common.security"


class SecureNode:
    def __init__(self, port: int, certificate: Path) -> None:
        self.port = port
        self.certificate = certificate

    def client(self, mechanism: str, password: str) -> BlockingClient:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        options = {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.certificate),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{_MODULE}.{module} required username="alice" password="{password}";',
        }
        return BlockingClient(ClientSettings.parse(options))


@pytest.fixture(scope="module")
def secure(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    directory = tmp_path_factory.mktemp("secure")
    certificate = self_signed(directory)
    (port,) = free_ports(1)
    node = ApacheKafka(directory, heap=("-Xmx512M",))
    scram = f"{_MODULE}.scram.ScramLoginModule required;"
    plain = f'{_MODULE}.plain.PlainLoginModule required user_alice="secret";'
    listeners = f"PLAINTEXT://{node.bootstrap},CONTROLLER://127.0.0.1:{node.controller_port},SECURE://127.0.0.1:{port}"
    more = {
        "listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.secure.plain.sasl.jaas.config": plain,
        "listener.name.secure.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.secure.scram-sha-512.sasl.jaas.config": scram,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate),
    }
    with (directory / "server.properties").open("a") as properties:  # What comes last counts.
        properties.writelines(f"{key}={value}\n" for key, value in more.items())
    node.start(tools)
    at = At(tools, node.bootstrap)
    entity = ("--entity-type", "users", "--entity-name", "alice")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        at("kafka-configs", "--alter", *entity, "--add-config", f"{mechanism}=[password=secret]")
    yield SecureNode(port, certificate)
    node.stop()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_each_mechanism_over_tls(secure: SecureNode, mechanism: str) -> None:
    with secure.client(mechanism, "secret") as client:
        assert client.topics(["missing"]) == {}
        request = InitProducerIdRequest(transactional_id="payer", transaction_timeout_ms=60_000)
        answer = client.to_coordinator(CoordinatorKind.TRANSACTION, "payer", request, InitProducerIdResponse)
        assert answer.producer_id >= 0


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_the_wrong_password(secure: SecureNode, mechanism: str) -> None:
    with secure.client(mechanism, "guess") as client, pytest.raises(KafkaError) as raised:
        client.persist(lambda: client.topics(["missing"]))
    assert raised.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
