"""Kafka's own tools at a locked node: users by kafka-configs, every mechanism, TLS, and delegation tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.runtime.system import free_ports
from tests.certificates import Authority
from tests.node_process import running_node

from .apache_kafka import KafkaTools

pytestmark = pytest.mark.oracle

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
NAMED = {"PLAIN": PLAIN, "SCRAM-SHA-256": SCRAM, "SCRAM-SHA-512": SCRAM}


class Site(NamedTuple):
    directory: Path
    bootstrap: str
    authority: Authority

    def config(self, mechanism: str, user: str, password: str, options: str = "") -> str:
        """A client's properties file."""
        path = self.directory / f"{mechanism}-{user}-{password[:8].encode().hex()}.properties"
        path.write_text(
            "security.protocol=SASL_SSL\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={self.authority.certificate}\n"
            f"sasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={NAMED[mechanism]} required username="{user}" password="{password}" {options};\n'
        )
        return str(path)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    authority = Authority(directory / "authority")
    port, controller_port = free_ports("127.0.0.1", 2)
    settings = {
        "listeners": f"LOCKED://localhost:{port},CONTROLLER://localhost:{controller_port}",
        "listener.security.protocol.map": "LOCKED:SASL_SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "LOCKED",
        "controller.quorum.bootstrap.servers": f"localhost:{controller_port}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("node").store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.locked.plain.sasl.jaas.config": f"{PLAIN} required username=node password=n user_node=n "
        "user_admin=admin-secret;",
        "delegation.token.secret.key": "the nodes' own",
    }
    arguments = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    with running_node(directory / "node", *arguments):
        yield Site(directory, f"localhost:{port}", authority)


@pytest.fixture(scope="module")
def admin(site: Site, tools: KafkaTools) -> Callable[..., str]:
    """Run a tool as the administrator; what it printed."""
    config = site.config("PLAIN", "admin", "admin-secret")

    def run(tool: str, *arguments: str) -> str:
        where = ("--bootstrap-server", site.bootstrap, "--command-config", config)
        return tools.check(tool, *where, *arguments).out

    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        changed = f"{mechanism}=[iterations=4096,password=ann-secret]"
        run("kafka-configs", "--alter", "--entity-type", "users", "--entity-name", "ann", "--add-config", changed)
    run("kafka-topics", "--create", "--topic", "letters", "--partitions", "1")
    return run


def test_users_are_described_without_what_they_know(admin: Callable[..., str]) -> None:
    printed = admin("kafka-configs", "--describe", "--entity-type", "users", "--entity-name", "ann")
    assert "SCRAM-SHA-256=iterations=4096" in printed
    assert "secret" not in printed


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_writes_and_reads(site: Site, admin: Callable[..., str], tools: KafkaTools, mechanism: str) -> None:
    config = site.config(mechanism, "ann", "ann-secret")
    where = ("--bootstrap-server", site.bootstrap, "--topic", "letters", "--command-config", config)
    tools.check("kafka-console-producer", *where, stdin=f"by {mechanism}\n")
    read = tools.check("kafka-console-consumer", *where, "--from-beginning", "--timeout-ms", "10000")
    assert f"by {mechanism}" in read.out


@pytest.mark.parametrize(
    ("mechanism", "user", "password", "told"),
    [
        ("PLAIN", "admin", "wrong", "Invalid username or password"),
        ("SCRAM-SHA-256", "ann", "wrong", "invalid credentials with SASL mechanism SCRAM-SHA-256"),
        ("SCRAM-SHA-512", "nobody", "ann-secret", "invalid credentials with SASL mechanism SCRAM-SHA-512"),
    ],
)
def test_others_are_told_what_kafka_tells_them(
    site: Site, admin: Callable[..., str], tools: KafkaTools, mechanism: str, user: str, password: str, told: str
) -> None:
    config = site.config(mechanism, user, password)
    refused = tools.run("kafka-topics", "--bootstrap-server", site.bootstrap, "--command-config", config, "--list")
    assert refused.status != 0
    assert "SaslAuthenticationException" in refused.printed
    assert told in refused.printed


def test_a_delegation_token_is_made_used_and_taken_back(
    site: Site, admin: Callable[..., str], tools: KafkaTools
) -> None:
    made = admin("kafka-delegation-tokens", "--create", "--max-life-time-period", "-1")
    found = re.search(r"^(\S{22})\s+(\S{88})\s", made, re.MULTILINE)
    assert found is not None, made
    token_id, hmac = found[1], found[2]
    assert token_id in admin("kafka-delegation-tokens", "--describe", "--owner-principal", "User:admin")
    holder = site.config("SCRAM-SHA-256", token_id, hmac, "tokenauth=true")
    where = ("--bootstrap-server", site.bootstrap, "--command-config", holder)
    assert "letters" in tools.check("kafka-topics", *where, "--list").out
    admin("kafka-delegation-tokens", "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    admin("kafka-delegation-tokens", "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert tools.run("kafka-topics", *where, "--list").status != 0
