"""Another certificate for a listener that runs, set by AlterConfigs: Apache Kafka and Ottla refuse the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.broker.test_key_material import certificate
from tests.certificates import Authority, Issued, der
from tests.node_process import running_node

from .apache_kafka import ApacheKafka, KafkaTools, free_ports

pytestmark = [pytest.mark.oracle, pytest.mark.long]


def settings(issued: Issued) -> tuple[dict[str, str], int, int]:
    plain, encrypted, controller = free_ports(3)
    return (
        {
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{encrypted},"
            f"CONTROLLER://127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(issued.store),
        },
        plain,
        encrypted,
    )


@contextmanager
def apache(directory: Path, tools: KafkaTools, issued: Issued) -> Iterator[tuple[int, int]]:
    overrides, plain, encrypted = settings(issued)
    node = ApacheKafka(directory, overrides=overrides)
    try:
        node.start(tools)
        yield plain, encrypted
    finally:
        node.kill()


@contextmanager
def ottla(directory: Path, tools: KafkaTools, issued: Issued) -> Iterator[tuple[int, int]]:
    overrides, plain, encrypted = settings(issued)
    with running_node(directory, *(part for key, value in overrides.items() for part in ("--set", f"{key}={value}"))):
        yield plain, encrypted


@pytest.mark.parametrize("server", [apache, ottla], ids=["apache", "ottla"])
def test_what_may_take_a_certificates_place(
    server: Callable[[Path, KafkaTools, Issued], object], tools: KafkaTools, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "authority")
    first = authority.issue("first", subject="/CN=node/O=Ottla")
    with server(tmp_path / "node", tools, first) as (plain, encrypted):  # type: ignore[attr-defined]
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{plain}"})

        def alter(issued: Issued) -> int:
            entry = ConfigEntry(
                "listener.name.ssl.ssl.keystore.location",
                str(issued.store),
                incremental_operation=AlterConfigOpType.SET,
            )
            resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
            try:
                for done in admin.incremental_alter_configs([resource]).values():
                    done.result(60)
            except KafkaException as refused:
                return int(refused.args[0].code())
            return 0

        refused = KafkaError.INVALID_REQUEST
        assert alter(authority.issue("other", subject="/CN=other/O=Ottla")) == refused
        assert alter(authority.issue("less", subject="/CN=node/O=Ottla", names="DNS:localhost")) == refused
        assert certificate(encrypted) == der(first.certificate)
        renewed = authority.issue(
            "renewed", subject="/CN=NODE/O=ottla", names="IP:127.0.0.1,DNS:localhost,DNS:elsewhere"
        )
        assert alter(renewed) == 0
        until = time.monotonic() + 60
        while certificate(encrypted) != der(renewed.certificate):
            assert time.monotonic() < until
            time.sleep(0.05)
