"""A Kafka client for programs that wait: Spark's driver and executors, and tools. Any Kafka cluster serves it.

Knows the cluster as far as it was asked about: brokers, leaders, coordinators. A request goes to a broker by its id
(`ask`, or `start` and `finish` where the answer can wait), to whichever answers (`ask_any`), or to a coordinator
(`to_coordinator`). `persist` tries again what failed for a passing reason: a leader that moved, a broker that restarts.
One thread drives it; it opens a connection when one is first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from types import TracebackType
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypeVar, cast

from ottla.client.blocking_connection import BlockingConnection
from ottla.client.peer import PeerLost
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Uuid
from ottla.runtime.blocking import monotonic_s, pause
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.wire.messages.metadata_response import MetadataResponse

M = TypeVar("M", bound=Message)
T = TypeVar("T")

NO_NODE = -1


class CoordinatorKind(IntEnum):
    """As FindCoordinator numbers them."""

    GROUP = 0
    TRANSACTION = 1


class PartitionInfo(NamedTuple):
    leader: int
    """`NO_NODE` while there is none."""
    leader_epoch: int


class TopicInfo(NamedTuple):
    name: str
    topic_id: Uuid
    """Zero where the cluster is too old for ids (KIP-516)."""
    partitions: dict[int, PartitionInfo]


class Pending(NamedTuple, Generic[M]):
    """A request whose answer has not been read."""

    connection: BlockingConnection
    token: int
    timeout_ms: int


class BlockingClient:
    """See the module's docstring. Raises `KafkaError`, of which `PeerLost` says that no answer came."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._tls = None
        if settings.tls is not None:
            try:
                self._tls = settings.tls.context()
            except OSError as error:
                why = f"{error.filename}: {error.strerror}" if error.filename else error
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"The ssl.* settings cannot be used: {why}.") from error
        self._connections: dict[tuple[str, int], BlockingConnection] = {}
        self._nodes: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # One broker.

    def ask(
        self,
        node_id: int,
        request: Message,
        response: type[M],
        *,
        timeout_ms: int | None = None,
        max_version: int = 1000,
    ) -> M:
        """The answer of one broker, asked once."""
        return self.finish(self.start(node_id, request, response, timeout_ms=timeout_ms, max_version=max_version))

    def start(
        self,
        node_id: int,
        request: Message,
        response: type[M],
        *,
        timeout_ms: int | None = None,
        max_version: int = 1000,
    ) -> Pending[M]:
        """Sends the request; the broker works on it while the caller does something else."""
        return self._send(self._connection(self._address_of(node_id)), request, response, timeout_ms, max_version)

    def finish(self, pending: Pending[M]) -> M:
        """The answer to what was started, which is waited for now."""
        return cast(M, pending.connection.receive(pending.token, timeout_ms=pending.timeout_ms))

    def has_come(self, pending: Pending[M]) -> bool:
        """Would `finish` hardly wait?"""
        return pending.connection.has_come(pending.token)

    def version_of(self, node_id: int, request: Message, max_version: int = 1000) -> int:
        """The version that `request` would go out in."""
        return self._connection(self._address_of(node_id)).version_of(request, max_version)

    def ask_any(
        self, request: Message, response: type[M], *, timeout_ms: int | None = None, max_version: int = 1000
    ) -> M:
        """The answer of whichever broker can be reached: connected ones first, then known ones, then the bootstrap's.

        The request may reach several, so it should be one that changes nothing."""
        connected = [address for address, connection in self._connections.items() if connection.is_usable]
        addresses = dict.fromkeys((*connected, *self._nodes.values(), *self.settings.bootstrap))
        lost: PeerLost | None = None
        for address in addresses:
            try:
                return self.finish(self._send(self._connection(address), request, response, timeout_ms, max_version))
            except PeerLost as error:
                lost = error
        assert lost is not None  # The bootstrap names at least one.
        raise lost

    # Topics and their leaders.

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """These topics, or all, as the cluster has them now. Those that do not exist are left out; one that must not be
        seen is `KafkaError`."""
        from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
        from ottla.wire.messages.metadata_response import MetadataResponse

        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        if wanted is not None and not wanted:
            return {}
        answer = self.ask_any(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), MetadataResponse)
        self._learn_nodes(answer)
        found: dict[str, TopicInfo] = {}
        for topic in answer.topics:
            assert topic.name is not None  # They were asked for by name.
            if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                self._topics.pop(topic.name, None)
                continue
            if topic.error_code and topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                code = ErrorCode(topic.error_code)
                why = code.name.lower().replace("_", " ")
                if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    why = "you have no right to describe it, if it exists"
                raise KafkaError(code, f"The topic {topic.name} cannot be looked up: {why}.")
            partitions = {
                each.partition_index: PartitionInfo(each.leader_id, each.leader_epoch) for each in topic.partitions
            }
            found[topic.name] = TopicInfo(topic.name, topic.topic_id, dict(sorted(partitions.items())))
        self._topics.update(found)
        return found

    def nodes(self) -> list[int]:
        """The ids of the brokers that the cluster has now."""
        from ottla.wire.messages.metadata_request import MetadataRequest
        from ottla.wire.messages.metadata_response import MetadataResponse

        # No topic: whichever it was, there would be somebody who must not see it.
        self._learn_nodes(self.ask_any(MetadataRequest(topics=[]), MetadataResponse))
        return sorted(self._nodes)

    def _learn_nodes(self, answer: MetadataResponse) -> None:
        self._nodes = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers} or self._nodes

    def topic(self, name: str) -> TopicInfo:
        """The topic as it was last heard of, or as it is now. Raises `KafkaError` if it does not exist."""
        known = self._topics.get(name) or self.topics([name]).get(name)
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic {name} does not exist.")
        return known

    def partition_count(self, topic: str) -> int:
        return len(self.topic(topic).partitions)

    def leader_of(self, topic: str, partition: int) -> int:
        """The id of the broker that leads, as last heard. Raises `KafkaError` while there is none."""
        found = self.topic(topic).partitions.get(partition)
        if found is None:
            self.forget(topic)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic {topic} has no partition {partition}.")
        if found.leader == NO_NODE:
            self.forget(topic)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"Partition {topic}-{partition} has no leader.")
        return found.leader

    def forget(self, topic: str) -> None:
        """Its leaders are asked for again when they are next needed."""
        self._topics.pop(topic, None)

    # Coordinators.

    def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        """The id of the broker that coordinates the group or the transactional id `key`."""
        known = self._coordinators.get((kind, key))
        if known is None:
            known = self._coordinators[kind, key] = self._find_coordinator(kind, key)
        return known

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    def to_coordinator(
        self,
        kind: CoordinatorKind,
        key: str,
        request: Message,
        response: type[M],
        *,
        errors: Callable[[M], Iterable[int]] = lambda answer: (answer.error_code,),  # type: ignore[attr-defined]
        timeout_ms: int | None = None,
        max_version: int = 1000,
        retry_lost: bool = True,
    ) -> M:
        """The coordinator's answer, wherever it moves meanwhile. Raises `KafkaError` for the first of its `errors` that
        does not pass; with `retry_lost` off, also where a connection broke and the request may have been acted on."""

        def attempt() -> M:
            pending = self.start(
                self.coordinator(kind, key), request, response, timeout_ms=timeout_ms, max_version=max_version
            )
            try:
                answer = self.finish(pending)
            except PeerLost as error:
                self.forget_coordinator(kind, key)
                if retry_lost:
                    raise
                raise _Final(error) from error
            for code in errors(answer):
                if code:
                    self.forget_coordinator(kind, key)
                    raise KafkaError(ErrorCode(code), _message_of(answer))
            return answer

        return self.persist(attempt)

    def _find_coordinator(self, kind: CoordinatorKind, key: str) -> int:
        from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
        from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse

        # From version 4 on one request asks for many (KIP-699); version 3 serves as well, and every broker has it or an
        # older one.
        request = FindCoordinatorRequest(key=key, key_type=kind)
        answer = self.ask_any(request, FindCoordinatorResponse, max_version=3)
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            why = (answer.error_message or code.name.lower().replace("_", " ")).rstrip(".")
            raise KafkaError(code, f"The coordinator of {key} cannot be found: {why}.")
        self._nodes[answer.node_id] = (answer.host, answer.port)
        return answer.node_id

    # Patience.

    def persist(self, attempt: Callable[[], T], *, timeout_ms: int | None = None) -> T:
        """What `attempt` returns, tried until it does. Leaders and coordinators are looked up afresh after a failure;
        a failure that does not pass is raised at once, one that might when the time is up."""
        patience_ms = self.settings.api_timeout_ms if timeout_ms is None else timeout_ms
        deadline_s = monotonic_s() + patience_ms / 1000
        backoff_ms = self.settings.retry_backoff_ms
        while True:
            try:
                return attempt()
            except _Final as final:
                raise final.error from None
            except KafkaError as error:
                if not error.code.retriable or monotonic_s() + backoff_ms / 1000 > deadline_s:
                    raise
            self._topics.clear()
            self._coordinators.clear()
            pause(backoff_ms / 1000)
            backoff_ms = min(2 * backoff_ms, self.settings.retry_backoff_ms_max)

    # Connections.

    def _address_of(self, node_id: int) -> tuple[str, int]:
        if node_id not in self._nodes:
            self.nodes()
        try:
            return self._nodes[node_id]
        except KeyError:
            raise PeerLost(ErrorCode.NETWORK_EXCEPTION, f"the cluster has no broker {node_id} now") from None

    def _connection(self, address: tuple[str, int]) -> BlockingConnection:
        connection = self._connections.get(address)
        if connection is None or not connection.is_usable:
            if connection is not None:
                connection.close()
            connection = self._connections[address] = BlockingConnection(self.settings, *address, self._tls)
        return connection

    def _send(
        self,
        connection: BlockingConnection,
        request: Message,
        response: type[M],
        timeout_ms: int | None = None,
        max_version: int = 1000,
    ) -> Pending[M]:
        patience_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        token = connection.send(request, response, timeout_ms=patience_ms, max_version=max_version)
        return Pending(connection, token, patience_ms)


class _Final(Exception):
    """Ends `persist` with `error`, though that might pass."""

    def __init__(self, error: KafkaError) -> None:
        self.error = error


def _message_of(answer: Message) -> str | None:
    message: str | None = getattr(answer, "error_message", None)
    return message
