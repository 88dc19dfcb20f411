"""A connection between nodes that speaks for a client: the client's rights, quotas and host count on it, and no more is
done by it than a gateway hands on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from ottla.admin.acls import Acl, create_acls
from ottla.admin.quotas import alter_quota, list_quotas
from ottla.broker.forwarding import pack_address, pack_principal
from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode
from ottla.runtime.system import free_ports
from ottla.wire.message import Message
from ottla.wire.messages.create_delegation_token_request import CreateDelegationTokenRequest
from ottla.wire.messages.create_topics_request import CreateTopicsRequest
from ottla.wire.messages.envelope_request import EnvelopeRequest
from ottla.wire.messages.envelope_response import EnvelopeResponse
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.produce_response import ProduceResponse
from tests.behaviour.client import Client, Topic, batch, eventually
from tests.node_process import running_node

pytestmark = pytest.mark.slow

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_names = count(1)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """A node whose super user is nobody, as nodes are to each other here; by the listener's name."""
    plain, other, controller = free_ports("127.0.0.1", 3)
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},OTHER://127.0.0.1:{other},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }
    arguments = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    with running_node(Path(tmp_path_factory.mktemp("node")), "--registry", "off", *arguments):
        yield {"PLAINTEXT": plain, "OTHER": other}


@pytest.fixture
def node(ports: dict[str, int]) -> Iterator[Client]:
    """As another node would connect."""
    with Client(("127.0.0.1", ports["PLAINTEXT"])) as client:
        yield client


@pytest.fixture
def admin(ports: dict[str, int]) -> Iterator[BlockingClient]:
    settings = ClientSettings.parse({"bootstrap.servers": f"127.0.0.1:{ports['PLAINTEXT']}"})
    with BlockingClient(settings) as client:
        yield client


@pytest.fixture
def topic(node: Client) -> Topic:
    with node.another() as other:
        return other.create_topic(f"topic-{next(_names)}")


def introduce(node: Client, principal: str = "User:ann", host: str = "10.1.2.3") -> ErrorCode:
    request = EnvelopeRequest(request_principal=pack_principal(principal), client_host_address=pack_address(host))
    return ErrorCode(node.call(request, EnvelopeResponse, 0).error_code)


def write(node: Client, topic: Topic) -> ErrorCode:
    return ErrorCode(node.produce(topic, batch(b"x")).error_code)


def allow(admin: BlockingClient, topic: Topic, host: str = "*", principal: str = "User:ann") -> None:
    create_acls(admin, [Acl(resource="topic", name=topic.name, principal=principal, operation="write", host=host)])


def test_the_rights_are_those_of_whom_it_speaks_for(node: Client, admin: BlockingClient, topic: Topic) -> None:
    assert write(node, topic) == ErrorCode.NONE
    assert introduce(node) == ErrorCode.NONE
    assert write(node, topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    allow(admin, topic)
    assert eventually(lambda: write(node, topic), lambda code: code == ErrorCode.NONE) == ErrorCode.NONE


def test_the_host_is_the_client_s(node: Client, admin: BlockingClient, topic: Topic) -> None:
    allow(admin, topic, host="10.1.2.3", principal="User:host-bound")
    elsewhere = node.another()
    assert introduce(node, "User:host-bound", "10.1.2.3") == ErrorCode.NONE
    assert introduce(elsewhere, "User:host-bound", "10.1.2.4") == ErrorCode.NONE
    eventually(lambda: write(node, topic), lambda code: code == ErrorCode.NONE)
    assert write(elsewhere, topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elsewhere.close()


def test_the_quota_is_the_client_s(node: Client, admin: BlockingClient, topic: Topic) -> None:
    allow(admin, topic, principal="User:slow")
    alter_quota(admin, {"user": "slow"}, set={"producer_byte_rate": 1_000.0})
    eventually(lambda: list_quotas(admin), lambda found: any(each.entity == {"user": "slow"} for each in found))
    assert introduce(node, "User:slow") == ErrorCode.NONE
    eventually(lambda: write(node, topic), lambda code: code == ErrorCode.NONE)

    def throttled(client: Client) -> int:
        request = client.produce_request(topic, batch(bytes(50_000)))
        return client.call(request, ProduceResponse, 13).throttle_time_ms

    other = node.another()
    assert throttled(other) == 0  # Of nobody nothing is asked.
    assert throttled(node) > 0
    other.close()


def test_nobody_is_introduced_by_who_is_no_node(node: Client) -> None:
    """Ann, for whom it speaks now, may not speak for others."""
    assert introduce(node) == ErrorCode.NONE
    assert introduce(node, "User:bob") == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    "request_", [CreateTopicsRequest(), CreateDelegationTokenRequest(), MetadataRequest()], ids=repr
)
def test_what_no_gateway_hands_on_is_not_done(node: Client, request_: Message) -> None:
    assert introduce(node) == ErrorCode.NONE
    node.send(request_, type(request_).VERSIONS[-1])
    assert node.is_hung_up()


def test_it_is_said_where_nodes_speak_and_nowhere_else(ports: dict[str, int]) -> None:
    with Client(("127.0.0.1", ports["OTHER"])) as client:
        client.send(EnvelopeRequest(request_principal=pack_principal("User:ann")), 0)
        assert client.is_hung_up()


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (EnvelopeRequest(request_data=b"x", client_host_address=bytes(4)), ErrorCode.INVALID_REQUEST),
        (EnvelopeRequest(request_principal=None), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (EnvelopeRequest(request_principal=b"\0\x09x"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (EnvelopeRequest(request_principal=pack_principal("User:a")), ErrorCode.INVALID_REQUEST),
    ],
    ids=["a request inside", "nobody", "nonsense", "no address"],
)
def test_nonsense_introduces_nobody(node: Client, topic: Topic, request_: EnvelopeRequest, code: ErrorCode) -> None:
    assert node.call(request_, EnvelopeResponse, 0).error_code == code
    assert write(node, topic) == ErrorCode.NONE  # It is still itself.
