"""Programs that wait talk to brokers: a real node, and a server that misbehaves by script."""

from __future__ import annotations

import pickle
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottla.client.blocking import BlockingClient, CoordinatorKind
from ottla.client.peer import PeerLost
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.blocking import pause
from ottla.wire.frames import RequestHead
from ottla.wire.message import Message
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.end_txn_request import EndTxnRequest
from ottla.wire.messages.end_txn_response import EndTxnResponse
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.list_offsets_response import ListOffsetsResponse
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse, MetadataResponseBroker
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import ProduceResponse
from ottla.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from ottla.wire.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.client.certificates import self_signed
from tests.client.scripted_server import Handler, ScriptedServer
from tests.node_process import NodeProcess, running_node

PLAIN_LOGIN = 'PlainLoginModule required username="alice" password="it\'s; \\"a\\" secret";'


def client_of(bootstrap: str, **options: str) -> BlockingClient:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return BlockingClient(ClientSettings.parse({"bootstrap.servers": bootstrap, "retry.backoff.ms": "5", **named}))


# A real node.


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture
def client(node: NodeProcess) -> Iterator[BlockingClient]:
    with client_of(node.bootstrap) as client:
        yield client


def create(client: BlockingClient, name: str, partitions: int) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)], timeout_ms=30_000
    )
    (answer,) = client.ask_any(request, CreateTopicsResponse).topics
    assert answer.error_code == ErrorCode.NONE


def test_topics_have_ids_and_partitions_with_leaders(client: BlockingClient) -> None:
    create(client, "orders", 3)
    found = client.topics(["orders", "missing"])
    assert set(found) == {"orders"}
    assert list(found["orders"].partitions) == [0, 1, 2]
    assert len(set(found["orders"].topic_id)) > 1
    assert client.leader_of("orders", 2) == found["orders"].partitions[2].leader
    assert "orders" in client.topics()
    with pytest.raises(KafkaError, match=r"The topic orders has no partition 3\."):
        client.leader_of("orders", 3)


def test_requests_are_pipelined_and_their_answers_may_be_read_in_any_order(client: BlockingClient) -> None:
    create(client, "pipelined", 2)
    leader = client.leader_of("pipelined", 0)
    started = [client.start(leader, list_request("pipelined", partition), ListOffsetsResponse) for partition in (0, 1)]
    for partition in (1, 0):
        answer = client.finish(started[partition])
        assert answer.topics[0].partitions[0].partition_index == partition


def list_request(topic: str, partition: int) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])


def test_what_has_come_can_be_told_without_waiting(client: BlockingClient) -> None:
    node = client.nodes()[0]
    first, second = (client.start(node, MetadataRequest(topics=[]), MetadataResponse) for _ in range(2))
    while not client.has_come(first):
        pause(0.01)
    client.finish(second)  # Which reads the first answer too, and keeps it.
    assert client.has_come(first)
    client.finish(first)
    assert not first.connection.has_come(first.token), "nothing is left"
    first.connection.close()
    assert client.has_come(second), "no answer will come, so nobody need wait for one"


def test_a_coordinator_is_found_and_asked(client: BlockingClient) -> None:
    request = InitProducerIdRequest(transactional_id="payer", transaction_timeout_ms=60_000)
    answer = client.to_coordinator(CoordinatorKind.TRANSACTION, "payer", request, InitProducerIdResponse)
    assert answer.producer_id >= 0
    stale = EndTxnRequest(transactional_id="payer", producer_id=answer.producer_id + 7, producer_epoch=0)
    with pytest.raises(KafkaError) as raised:
        client.to_coordinator(CoordinatorKind.TRANSACTION, "payer", stale, EndTxnResponse)
    assert raised.value.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_restart_of_the_node_is_waited_for(tmp_path: Path) -> None:
    with running_node(tmp_path) as first:
        client = client_of(first.bootstrap)
        create(client, "lasting", 1)
        port = first.address[1]
    with pytest.raises(PeerLost):
        client.topics(["lasting"])
    with running_node(tmp_path, port=port):
        assert set(client.persist(lambda: client.topics(["lasting"]))) == {"lasting"}
    client.close()


# A server by script.


def cluster_of(server: ScriptedServer) -> MetadataResponse:
    return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=server.port)])


def test_the_first_address_that_answers_serves() -> None:
    def answer(head: RequestHead, request: Message) -> Message:
        return cluster_of(server)

    with ScriptedServer(answer) as dead:
        silent = dead.port
    with ScriptedServer(answer) as server, client_of(f"127.0.0.1:{silent},{server.bootstrap}") as client:
        assert client.topics(["any"]) == {}


def test_an_old_broker_is_spoken_to_in_its_own_versions() -> None:
    versions: list[int] = []

    def answer(head: RequestHead, request: Message) -> Message:
        versions.append(head.api_version)
        return cluster_of(server)

    # As Kafka 2.1 advertises them.
    with (
        ScriptedServer(answer, versions={3: (0, 7), 18: (0, 2)}) as server,
        client_of(server.bootstrap) as client,
    ):
        client.topics(["any"])
        with pytest.raises(KafkaError) as raised:
            client.ask(1, FindCoordinatorRequest(key="any"), FindCoordinatorResponse)
    assert versions == [7]
    assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION


def moving(codes: list[int]) -> tuple[Handler, list[ScriptedServer]]:
    """A coordinator that refuses with these codes, one after the other, before it answers; -99 hangs up."""
    servers: list[ScriptedServer] = []

    def answer(head: RequestHead, request: Message) -> Message | None:
        if isinstance(request, MetadataRequest):
            return cluster_of(servers[0])
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=servers[0].port)
        code = codes.pop(0) if codes else 0
        return None if code == -99 else EndTxnResponse(error_code=code)

    return answer, servers


def test_a_coordinator_that_moves_or_loads_or_hangs_up_is_followed() -> None:
    passing = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -99]
    answer, servers = moving([int(code) for code in passing])
    with ScriptedServer(answer) as server, client_of(server.bootstrap) as client:
        servers.append(server)
        done = client.to_coordinator(CoordinatorKind.TRANSACTION, "payer", EndTxnRequest(), EndTxnResponse)
    assert done.error_code == ErrorCode.NONE
    assert len([each for each in server.asked if isinstance(each, EndTxnRequest)]) == 4
    assert len([each for each in server.asked if isinstance(each, FindCoordinatorRequest)]) == 4


def test_a_lost_answer_can_be_left_to_the_caller() -> None:
    answer, servers = moving([-99])
    with ScriptedServer(answer) as server, client_of(server.bootstrap) as client:
        servers.append(server)
        with pytest.raises(PeerLost):
            client.to_coordinator(
                CoordinatorKind.TRANSACTION, "payer", EndTxnRequest(), EndTxnResponse, retry_lost=False
            )
    assert len([each for each in server.asked if isinstance(each, EndTxnRequest)]) == 1


def test_patience_ends_with_the_last_error() -> None:
    answer, servers = moving([int(ErrorCode.NOT_COORDINATOR)] * 10_000)
    with (
        ScriptedServer(answer) as server,
        client_of(server.bootstrap, default_api_timeout_ms="50") as client,
    ):
        servers.append(server)
        with pytest.raises(KafkaError) as raised:
            client.to_coordinator(CoordinatorKind.TRANSACTION, "payer", EndTxnRequest(), EndTxnResponse)
    assert raised.value.code == ErrorCode.NOT_COORDINATOR


# Authentication.


def guarded(head: RequestHead, request: Message) -> Message:
    if isinstance(request, SaslHandshakeRequest):
        offered = ["PLAIN"]
        return SaslHandshakeResponse(error_code=0 if request.mechanism in offered else 33, mechanisms=offered)
    if isinstance(request, SaslAuthenticateRequest):
        good = request.auth_bytes == b'\0alice\0it\'s; "a" secret'
        return SaslAuthenticateResponse(error_code=0 if good else 58, error_message=None if good else "Who are you?")
    return MetadataResponse()


def test_plain_credentials_are_given_when_a_connection_opens() -> None:
    with (
        ScriptedServer(guarded) as server,
        client_of(
            server.bootstrap, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_jaas_config=PLAIN_LOGIN
        ) as client,
    ):
        assert client.topics(["any"]) == {}


def test_wrong_credentials_are_not_tried_again() -> None:
    with (
        ScriptedServer(guarded) as server,
        client_of(
            server.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="alice",
            sasl_password="guess",
        ) as client,
        pytest.raises(KafkaError, match="Who are you") as raised,
    ):
        client.persist(lambda: client.topics(["any"]))
    assert raised.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert server.connections == 1


def test_a_mechanism_that_is_not_offered_is_said() -> None:
    with (
        ScriptedServer(guarded) as server,
        client_of(
            server.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_username="alice",
            sasl_password="guess",
        ) as client,
        pytest.raises(KafkaError, match="SCRAM-SHA-256 is not enabled there, but PLAIN"),
    ):
        client.topics(["any"])


# TLS.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls"))


def serve_tls(server: ScriptedServer, certificate: Path) -> None:
    server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.tls.load_cert_chain(certificate)


@pytest.mark.parametrize("partitions", [1, 700])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_long_requests_arrive_whole(certificate: Path, tls: bool, partitions: int) -> None:
    """More than a connection takes at once, in more pieces than a system takes at once, and with pieces of nothing."""
    size = 6_000_000 // partitions
    batches = [bytes([number % 251]) * (size + number) for number in range(partitions)]
    data = [
        PartitionProduceData(index=number, records=memoryview(batch))
        for number, batch in enumerate([b"", *batches, b""])
    ]
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    with ScriptedServer(lambda head, asked: ProduceResponse()) as server:
        options = {}
        if tls:
            serve_tls(server, certificate)
            options = {"security_protocol": "SSL", "ssl_truststore_location": str(certificate)}
        with client_of(server.bootstrap, **options) as client:
            client.ask_any(request, ProduceResponse, max_version=12)  # The last one with names of topics.
            assert server.asked == [request]


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "nosuch.pem")
    with pytest.raises(KafkaError, match=r"nosuch\.pem: No such file or directory"):
        client_of("127.0.0.1:1", security_protocol="SSL", ssl_ca_location=path)


def test_a_trusted_server_is_spoken_to_over_tls(certificate: Path) -> None:
    with ScriptedServer(guarded) as server:
        serve_tls(server, certificate)
        with client_of(server.bootstrap, security_protocol="SSL", ssl_truststore_location=str(certificate)) as client:
            assert client.topics(["any"]) == {}
            assert client.topics(["any"]) == {}
    assert server.connections == 1


def test_who_speaks_tls_to_a_plain_port_is_told_so(certificate: Path) -> None:
    def answer() -> socket.socket:
        peer, _ = plain.accept()
        peer.sendall(b"This is no TLS.")
        return peer  # Open until the test ends: what was sent arrives.

    with (
        socket.create_server(("127.0.0.1", 0)) as plain,
        ThreadPoolExecutor(1) as pool,
        client_of(
            f"127.0.0.1:{plain.getsockname()[1]}", security_protocol="SSL", ssl_truststore_location=str(certificate)
        ) as client,
    ):
        answering = pool.submit(answer)
        with pytest.raises(KafkaError, match=r"Perhaps that port is without TLS: then leave out security\.protocol"):
            client.topics(["any"])
        answering.result(60).close()


def test_certificates_may_be_given_as_text(certificate: Path) -> None:
    with ScriptedServer(guarded) as server:
        serve_tls(server, certificate)
        text = certificate.read_text()
        chain, key = text[: text.index("-----BEGIN PRIVATE")], text[text.index("-----BEGIN PRIVATE") :]
        options = {
            "bootstrap.servers": server.bootstrap,
            "security.protocol": "SSL",
            "ssl.truststore.certificates": chain,
            "ssl.keystore.certificate.chain": chain,
            "ssl.keystore.key": key,
        }
        # As Spark does on the way to its executors.
        settings = pickle.loads(pickle.dumps(ClientSettings.parse(options)))
        with BlockingClient(settings) as client:
            assert client.topics(["any"]) == {}


def test_a_server_that_is_not_trusted_is_refused_at_once(certificate: Path) -> None:
    with ScriptedServer(guarded) as server:
        serve_tls(server, certificate)
        with (
            client_of(server.bootstrap, security_protocol="SSL") as client,
            pytest.raises(KafkaError, match="TLS handshake") as raised,
        ):
            client.persist(lambda: client.topics(["any"]))
    assert raised.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
