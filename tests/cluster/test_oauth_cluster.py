"""Three nodes that know each other by tokens of an identity provider, and have new ones before the old are over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.runtime.system import free_ports
from tests.oracle.clusters import HOST, ClusterNode, OttlaCluster
from tests.tokens import Provider, TokenEndpoint, token_endpoint

pytestmark = pytest.mark.slow

LIFE_S = 4
CREDENTIALS = "sasl.oauthbearer.client.credentials.client"


class LockedCluster(OttlaCluster):
    """Brokers have a listener for each other; clients get in without a name."""

    def _write_properties(self, node: ClusterNode, roles: str) -> None:
        super()._write_properties(node, roles)
        (port,) = free_ports(HOST, 1)
        text = node.properties_file.read_text()
        node.properties_file.write_text(text.replace("\nlisteners=", f"\nlisteners=BROKER://{HOST}:{port},", 1))


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider()


@pytest.fixture
def endpoint(provider: Provider) -> Iterator[TokenEndpoint]:
    with token_endpoint(lambda: provider.token(sub="nodes", exp=int(time.time()) + LIFE_S), "node", "pw") as endpoint:
        yield endpoint


def test_nodes_log_in_at_each_other_with_tokens(provider: Provider, endpoint: TokenEndpoint, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(provider.document())
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKER:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        f"{CREDENTIALS}.id": "node",
        f"{CREDENTIALS}.secret": "pw",
        # What nodes do among each other they do in the name that their tokens have.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:nodes;User:ANONYMOUS",
    }
    cluster = LockedCluster(tmp_path, overrides=settings)
    try:
        cluster.start()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", 3, 3, config={"min.insync.replicas": "3"})])["orders"].result(60)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        delivered: list[object] = []
        # One for the controllers and one for the brokers each, and all of them at least once again.
        until = time.monotonic() + 60
        while len(endpoint.asked) < 2 * 2 * 3 or len(delivered) < 100:
            producer.produce("orders", b"a teapot", on_delivery=lambda error, message: delivered.append(error))
            producer.poll(0.05)
            assert time.monotonic() < until, f"{len(endpoint.asked)} tokens, {len(delivered)} records"
        assert producer.flush(60) == 0
        assert set(delivered) == {None}
        for node in cluster.nodes.values():
            assert "refuses our login" not in node.output.read_text()
        assert cluster.stop() == [0, 0, 0]
    finally:
        cluster.end()
