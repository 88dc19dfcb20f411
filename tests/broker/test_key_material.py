"""Certificates of a node that is running: new files, new configs, and those that would not do."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from ottla.broker.doors import doors
from ottla.broker.doors.key_material import check_replacement, material_of
from ottla.broker.services import Services
from ottla.config.node import NodeConfig
from ottla.errors import StartupError
from ottla.runtime import Runtime
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import SystemDisk
from ottla.runtime.offload import SystemOffload
from ottla.runtime.system import free_ports
from ottla.runtime.timers import TimerWheel
from ottla.runtime.tls import Tls
from tests.certificates import Authority, Issued, der
from tests.node_process import running_node
from tests.seams.test_maintenance import until

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


@pytest.mark.parametrize(
    ("protocol", "settings", "asked"),
    [
        ("SSL", {"ssl.client.auth": "required"}, "required"),
        ("SASL_SSL", {"ssl.client.auth": "required"}, "none"),
        ("SASL_SSL", {"listener.name.ssl.ssl.client.auth": "required"}, "required"),
        ("SASL_SSL", {"ssl.client.auth": "required", "listener.name.ssl.ssl.client.auth": "requested"}, "requested"),
    ],
)
def test_who_logs_in_needs_a_certificate_only_where_the_listener_itself_says_so(
    issued: Issued, protocol: str, settings: dict[str, str], asked: str
) -> None:
    """KIP-684."""
    static = {**STATIC, "listener.security.protocol.map": f"SSL:{protocol},CONTROLLER:PLAINTEXT"}
    static |= {"ssl.keystore.location": str(issued.store), "inter.broker.listener.name": "SSL"}
    del static["security.inter.broker.protocol"]
    material = material_of(NodeConfig({**static, **settings}), "SSL", SystemDisk(), server_side=True)
    assert material.peer_certificate == asked


def test_a_key_comes_from_one_place(issued: Issued) -> None:
    with pytest.raises(StartupError, match="both set"):
        read(ssl_keystore_location=str(issued.store), ssl_keystore_key=issued.key.read_text())


def certificate(port: int) -> bytes | None:
    """What a server shows."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("localhost", port), 60) as plain, context.wrap_socket(plain) as encrypted:
        return encrypted.getpeercert(binary_form=True)


def wait_for(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until, "it did not come to be"
        time.sleep(0.05)


# What may take a certificate's place.


def replace(listener_settings: dict[str, str], old: Issued, new: Issued) -> None:
    config = NodeConfig({**STATIC, **listener_settings, "ssl.keystore.location": str(new.store)})
    before = NodeConfig({**STATIC, "ssl.keystore.location": str(old.store)})
    first, second = (material_of(each, "SSL", SystemDisk(), server_side=True) for each in (before, config))
    check_replacement(config, "SSL", first, second)


def test_a_certificate_gives_way_to_one_with_the_same_names(authority: Authority, issued: Issued) -> None:
    replace({}, issued, authority.issue("renewed", subject="/CN=node"))
    replace({}, issued, authority.issue("more", subject="/CN=NODE", names="DNS:localhost,IP:127.0.0.1,DNS:elsewhere"))


def test_one_with_another_subject_is_refused_unless_a_key_allows_it(authority: Authority, issued: Issued) -> None:
    other = authority.issue("other")
    with pytest.raises(StartupError, match=r"'CN=other' and was 'CN=node': set ssl\.allow\.dn\.changes=true"):
        replace({}, issued, other)
    with pytest.raises(StartupError, match="distinguished name"):
        replace({"ssl.allow.san.changes": "true"}, issued, other)
    replace({"ssl.allow.dn.changes": "true"}, issued, other)
    replace({"listener.name.ssl.ssl.allow.dn.changes": "true"}, issued, other)


def test_one_that_is_good_for_less_is_refused_unless_a_key_allows_it(authority: Authority, issued: Issued) -> None:
    fewer = authority.issue("fewer", subject="/CN=node", names="DNS:other")
    with pytest.raises(StartupError, match=r"lacks the alternative names 7f000001, localhost: set ssl\.allow\.san"):
        replace({}, issued, fewer)
    with pytest.raises(StartupError, match="alternative names"):
        replace({"ssl.allow.dn.changes": "true"}, issued, fewer)
    replace({"ssl.allow.san.changes": "true"}, issued, fewer)


@pytest.mark.slow
def test_a_running_node_takes_new_certificates(authority: Authority, tmp_path: Path) -> None:
    stores = {name: authority.issue(f"node-{name}", subject="/CN=node") for name in ("first", "second", "third")}
    shown = {name: der(issued.certificate) for name, issued in stores.items()}
    stranger = authority.issue("stranger")
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
        assert certificate(encrypted) == shown["first"]
        current.write_text("half of a file")
        wait_for(lambda: "the old ones stay" in node.log())
        current.write_text(stranger.store.read_text())
        wait_for(lambda: "is another's" in node.log())
        assert certificate(encrypted) == shown["first"]
        current.write_text(stores["second"].store.read_text())
        wait_for(lambda: certificate(encrypted) == shown["second"])
        assert node.log().count("is another's") == 1

        admin = AdminClient({"bootstrap.servers": f"localhost:{plain}"})

        def alter(location: object) -> None:
            entry = ConfigEntry(
                "listener.name.ssl.ssl.keystore.location", str(location), incremental_operation=AlterConfigOpType.SET
            )
            resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
            for done in admin.incremental_alter_configs([resource]).values():
                done.result(60)

        with pytest.raises(KafkaException, match="cannot be read"):
            alter(tmp_path / "gone.pem")
        with pytest.raises(KafkaException, match=r"ssl\.allow\.dn\.changes"):
            alter(stranger.store)
        alter(stores["third"].store)
        wait_for(lambda: certificate(encrypted) == shown["third"])


class Surroundings:
    """As much of a node as doors need."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.offload = SystemOffload()
        self.timers = TimerWheel(SystemClock())
        self.tasks: list[asyncio.Task[None]] = []

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))


async def test_a_node_that_only_knocks_looks_for_new_certificates_too(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own listeners are plain, those of the controllers are not."""
    monkeypatch.setattr(doors, "RELOAD_MS", 1)
    caplog.set_level("INFO")
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(authority.certificate.read_text())
    config = NodeConfig(
        {
            "process.roles": "broker",
            "node.id": "2",
            "listeners": "PLAINTEXT://localhost:9092",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@localhost:9093",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trusted),
        }
    )
    services = Surroundings(config)
    runtime = SimpleNamespace(disk=SystemDisk(), network=None, secrets=None)
    made = doors.Doors(cast(Services, services), cast(Runtime, runtime))
    await made.prepare()
    made.peers_for("CONTROLLER", "sasl.mechanism.controller.protocol", "node")
    other = Authority(tmp_path / "other")
    trusted.write_text(authority.certificate.read_text() + other.certificate.read_text())
    try:
        await until(lambda: "listener CONTROLLER has new keys or certificates" in caplog.text)
    finally:
        services.timers.close()
        await asyncio.gather(*services.tasks)
        services.offload.close()
