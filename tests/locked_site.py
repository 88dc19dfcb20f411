"""One node behind every kind of door, and who knocks there: each mechanism, encrypted and not, with credentials that
are right or wrong. Python's clients and Kafka's own tools are sent to the same one. And a node with just two doors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from ottla.runtime.system import free_ports
from tests.certificates import Authority, Issued
from tests.node_process import running_node
from tests.tokens import Provider

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required user_ann=secret user_bob=secret;"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Login(NamedTuple):
    protocol: str
    mechanism: str = ""
    password: str = "secret"


class Site(NamedTuple):
    ports: dict[str, int]
    authority: Authority
    ann: Issued
    stranger: Issued
    provider: Provider

    def bootstrap(self, login: Login) -> str:
        return f"localhost:{self.ports[login.protocol]}"

    def token(self, login: Login) -> str:
        """A token whose password is wrong is one that somebody else has signed."""
        return (self.provider if login.password == "secret" else Provider()).token(aud="kafka")

    def certificate(self, login: Login) -> Issued:
        return self.ann if login.password == "secret" else self.stranger


@contextmanager
def locked_site(directory: Path) -> Iterator[Site]:
    authority = Authority(directory / "authority")
    node, ann = authority.issue("node"), authority.issue("ann", subject="/O=Ottla/CN=Ann")
    stranger = Authority(directory / "other").issue("ann")
    provider = Provider()
    (directory / "keys.json").write_bytes(provider.document())
    *ports, controller_port = free_ports("127.0.0.1", 5)
    by_protocol = dict(zip(PROTOCOLS, ports, strict=True))
    listeners = [f"{protocol}://localhost:{port}" for protocol, port in by_protocol.items()]
    settings = {
        "listeners": ",".join([*listeners, f"CONTROLLER://localhost:{controller_port}"]),
        "listener.security.protocol.map": ",".join([*(f"{p}:{p}" for p in PROTOCOLS), "CONTROLLER:PLAINTEXT"]),
        "controller.quorum.bootstrap.servers": f"localhost:{controller_port}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(node.store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=([^,]+),O=Ottla$/$1/L",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{directory / 'keys.json'}",
        "sasl.oauthbearer.expected.audience": "kafka",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Whoever is not ann, by whatever way she came in, is not served; bob, where a test lets him.
        "super.users": "User:ANONYMOUS;User:ann",
    }
    with running_node(directory / "node", *_set(settings)):
        admin = AdminClient({"bootstrap.servers": f"localhost:{by_protocol['PLAINTEXT']}"})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            made = UserScramCredentialUpsertion("ann", ScramCredentialInfo(mechanism, 4096), b"secret")
            admin.alter_user_scram_credentials([made])["ann"].result(60)
        yield Site(by_protocol, authority, ann, stranger, provider)


class Doors(NamedTuple):
    """Where a node lets everybody in, and where it asks for a login by SCRAM-SHA-512."""

    open: str
    locked: str


@contextmanager
def two_doors(directory: Path, *options: str, settings: Mapping[str, str] | None = None) -> Iterator[Doors]:
    """A node with these settings besides, whose users are yet to be made, by the open door."""
    plain, locked, controller = free_ports("127.0.0.1", 3)
    chosen = {
        "listeners": f"PLAINTEXT://localhost:{plain},LOCKED://localhost:{locked},CONTROLLER://localhost:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOCKED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.bootstrap.servers": f"localhost:{controller}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        **(settings or {}),
    }
    with running_node(directory, *options, *_set(chosen)):
        yield Doors(f"localhost:{plain}", f"localhost:{locked}")


def _set(settings: Mapping[str, str]) -> list[str]:
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


LOGINS = [
    Login("SSL"),
    Login("SASL_PLAINTEXT", "PLAIN"),
    Login("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    Login("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    Login("SASL_PLAINTEXT", "OAUTHBEARER"),
    Login("SASL_SSL", "PLAIN"),
    Login("SASL_SSL", "SCRAM-SHA-256"),
    Login("SASL_SSL", "SCRAM-SHA-512"),
    Login("SASL_SSL", "OAUTHBEARER"),
]
WRONG = [login._replace(password="wrong") for login in LOGINS]


def shown(login: Login) -> str:
    return "-".join(filter(None, login))
