"""Source and sink at a cluster that asks who they are: the `kafka.*` options, under the names of Java's clients."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings
from ottla.errors import KafkaError
from ottla.spark.sink.decision_log import DEFAULT_TOPIC
from ottla.spark.sink.options import SinkOptions
from ottla.spark.source.batch import BatchReader
from ottla.spark.source.options import SourceOptions
from tests.locked_site import Login, Site, locked_site, shown
from tests.spark.sink_world import Query, committed, create_topic

pytestmark = pytest.mark.slow

LOGINS = [Login("SSL"), Login("SASL_PLAINTEXT", "PLAIN"), Login("SASL_SSL", "SCRAM-SHA-512")]
MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-512": "scram.ScramLoginModule"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with locked_site(tmp_path_factory.mktemp("site")) as site:
        yield site


def options_of(site: Site, login: Login, user: str = "ann") -> dict[str, str]:
    options = {"kafka.bootstrap.servers": site.bootstrap(login), "kafka.security.protocol": login.protocol}
    if login.protocol.endswith("SSL"):
        options["kafka.ssl.truststore.location"] = str(site.authority.certificate)
    if login.protocol == "SSL":
        options["kafka.ssl.keystore.location"] = str(site.certificate(login).store)
    if login.mechanism:
        module = f"org.apache.kafka.common.security.{MODULES[login.mechanism]}"
        options["kafka.sasl.mechanism"] = login.mechanism
        options["kafka.sasl.jaas.config"] = f'{module} required username="{user}" password="{login.password}";'
    return options


def read(options: dict[str, str], topic: str) -> Counter[str]:
    reader = BatchReader(SourceOptions.parse({**options, "subscribe": topic}, streaming=False))
    batches = (batch for part in reader.partitions() for batch in reader.read(part))
    return Counter(value.decode() for batch in batches for value in batch["value"].to_pylist())


@pytest.mark.parametrize("login", LOGINS, ids=shown)
def test_who_is_known_writes_exactly_once_and_reads(site: Site, login: Login) -> None:
    topic, open_door = f"of-{shown(login)}", site.bootstrap(Login("PLAINTEXT"))
    create_topic(open_door, topic, 2)
    options = options_of(site, login)
    query = Query(site.bootstrap(login), topic, sink=topic, options=options, crashes=["ended-1"])
    query.run_batch(0)
    assert query.died_at == ["ended-1"], "one of its processes died, and another finished its work"
    assert committed(open_door, topic, 2) == read(options, topic) == query.expected(1)


def test_the_rights_that_are_needed_are_those_of_the_page(site: Site) -> None:
    """docs/spark-sink.md. With them what an attempt that died left open is found, too. Who reads needs Read."""
    topic, login, open_door = "of-bob", Login("SASL_PLAINTEXT", "PLAIN"), site.bootstrap(Login("PLAINTEXT"))
    create_topic(open_door, topic, 2)
    rights = [
        allowed(ResourceType.TRANSACTIONAL_ID, "ottla/", AclOperation.WRITE, ResourcePatternType.PREFIXED),
        allowed(ResourceType.TOPIC, DEFAULT_TOPIC, AclOperation.READ),
        allowed(ResourceType.TOPIC, DEFAULT_TOPIC, AclOperation.WRITE),
        allowed(ResourceType.TOPIC, DEFAULT_TOPIC, AclOperation.CREATE),
        allowed(ResourceType.TOPIC, topic, AclOperation.READ),
        allowed(ResourceType.TOPIC, topic, AclOperation.WRITE),
    ]
    admin = AdminClient({"bootstrap.servers": open_door})
    for made in admin.create_acls(rights).values():
        made.result(60)
    options = options_of(site, login, "bob")
    wait_until_seen(SinkOptions.parse(options).client, topic)
    query = Query(site.bootstrap(login), topic, sink=topic, options=options, crashes=["rows-acknowledged"])
    query.try_batch(0)
    assert query.died_at == ["rows-acknowledged"]
    settled = read({**options, "kafka.isolation.level": "read_committed"}, topic)
    assert committed(open_door, topic, 2) == settled == query.expected(1)


def allowed(
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(kind, name, pattern, "User:bob", "*", operation, AclPermissionType.ALLOW)


def wait_until_seen(settings: ClientSettings, topic: str) -> None:
    """Rights that are given at once take effect at once: one of them tells of the others."""
    deadline_s = time.monotonic() + 60
    with BlockingClient(settings) as client:
        while True:
            try:
                assert client.topics([topic])
                return
            except KafkaError:
                assert time.monotonic() < deadline_s, f"{topic} is not seen"
                time.sleep(0.02)


@pytest.mark.parametrize("login", LOGINS, ids=shown)
def test_who_is_not_known_is_told_so_at_once(site: Site, login: Login) -> None:
    options = options_of(site, login._replace(password="wrong"))
    with pytest.raises(KafkaError, match=r"(?i)does not let us in|TLS handshake|was lost|hung up"):
        read({**options, "kafka.default.api.timeout.ms": "1000"}, "any")
