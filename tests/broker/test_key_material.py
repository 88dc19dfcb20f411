"""Certificates of a node that is running: new files, new configs, and those that would not do."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from ottla.broker.doors.key_material import material_of
from ottla.config.node import NodeConfig
from ottla.errors import StartupError
from ottla.runtime.disk import SystemDisk
from ottla.runtime.system import free_ports
from ottla.runtime.tls import Tls
from tests.certificates import Authority, Issued
from tests.node_process import running_node

STATIC = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "SSL://localhost:9092,CONTROLLER://localhost:9093",
    "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
    "security.inter.broker.protocol": "SSL",
    "ssl.keystore.type": "PEM",
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue("node")


def read(**settings: str) -> Tls:
    values = {name.replace("_", "."): value for name, value in settings.items()}
    config = NodeConfig({**STATIC, **values})
    return Tls(material_of(config, "SSL", SystemDisk(), server_side=True), server_side=True)


def test_a_key_may_be_in_a_file_or_in_the_properties(authority: Authority, issued: Issued) -> None:
    key, certificate = issued.key.read_text(), issued.certificate.read_text()
    in_file = read(ssl_keystore_location=str(issued.store)).material
    assert read(ssl_keystore_key=key, ssl_keystore_certificate_chain=certificate).material == in_file
    # As they look after an editor of properties has joined their lines.
    joined = read(
        ssl_keystore_key=key.replace("\n", " "),
        ssl_keystore_certificate_chain=certificate.replace("\n", " "),
        ssl_truststore_type="PEM",
        ssl_truststore_certificates=authority.certificate.read_text().replace("\n", " "),
        ssl_client_auth="required",
    ).material
    assert (joined.private_key, joined.certificate_chain) == (in_file.private_key, in_file.certificate_chain)
    assert joined.peer_certificate == "required"


def test_what_a_listener_has_of_its_own_counts_there(issued: Issued) -> None:
    config = {"ssl.keystore.location": "nowhere", "listener.name.ssl.ssl.keystore.location": str(issued.store)}
    assert read(**{name.replace(".", "_"): value for name, value in config.items()}).material.private_key


def test_a_key_comes_from_one_place(issued: Issued) -> None:
    with pytest.raises(StartupError, match="both set"):
        read(ssl_keystore_location=str(issued.store), ssl_keystore_key=issued.key.read_text())


def subject(port: int) -> str:
    """The common name that a server shows."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("localhost", port), 60) as plain, context.wrap_socket(plain) as encrypted:
        der = encrypted.getpeercert(binary_form=True)
    assert der is not None
    return next(name for name in ("first", "second", "third", "fourth") if f"node-{name}".encode() in der)


def wait_for(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until, "it did not come to be"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_running_node_takes_new_certificates(authority: Authority, tmp_path: Path) -> None:
    stores = {name: authority.issue(f"node-{name}") for name in ("first", "second", "third")}
    current = tmp_path / "current.pem"
    current.write_text(stores["first"].store.read_text())
    plain, encrypted, controller = free_ports("127.0.0.1", 3)
    settings = {
        "listeners": f"PLAINTEXT://localhost:{plain},SSL://localhost:{encrypted},CONTROLLER://localhost:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        "controller.quorum.bootstrap.servers": f"localhost:{controller}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(current),
    }
    arguments = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    with running_node(tmp_path / "node", *arguments) as node:
        assert subject(encrypted) == "first"
        current.write_text("half of a file")
        wait_for(lambda: "the old ones stay" in node.log())
        assert subject(encrypted) == "first"
        current.write_text(stores["second"].store.read_text())
        wait_for(lambda: subject(encrypted) == "second")

        admin = AdminClient({"bootstrap.servers": f"localhost:{plain}"})

        def alter(location: str) -> None:
            entry = ConfigEntry(
                "listener.name.ssl.ssl.keystore.location", location, incremental_operation=AlterConfigOpType.SET
            )
            resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
            for done in admin.incremental_alter_configs([resource]).values():
                done.result(60)

        with pytest.raises(KafkaException, match="cannot be read"):
            alter(str(tmp_path / "gone.pem"))
        alter(str(stores["third"].store))
        wait_for(lambda: subject(encrypted) == "third")
