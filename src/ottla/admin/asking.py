"""How the other modules ask: the cluster as a whole, every broker at once, and what a refusal means in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ottla.client.blocking import BlockingClient, CoordinatorKind
from ottla.client.peer import PeerLost
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.message import Message

M = TypeVar("M", bound=Message)

TIMEOUT_MS = 30_000
"""What a broker is given to finish a change before it answers."""

_COORDINATOR_MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)

_MEANINGS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.UNKNOWN_TOPIC_ID: "there is no such topic",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "this is no name for a topic",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "you have no right to this on the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "you have no right to this on the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "you have no right to this on the cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "you have no right to this on the transactional id",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the log does not have that offset",
    ErrorCode.POLICY_VIOLATION: "the cluster's policy forbids it",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop them first",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group is subscribed to the topic; stop its members first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members; stop them first",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the partition is led by another broker now",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader now",
    ErrorCode.REPLICA_NOT_AVAILABLE: "the broker has no such replica",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.PRODUCER_FENCED: "another producer has taken over",
    ErrorCode.INVALID_PRODUCER_EPOCH: "another producer has taken over",
    ErrorCode.KAFKA_STORAGE_ERROR: "the disk of the broker has failed",
    ErrorCode.REQUEST_TIMED_OUT: "it was not done in time",
    ErrorCode.ELECTION_NOT_NEEDED: "the leader is that already",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred replica is not in sync",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica can lead now",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "it is not being moved",
    ErrorCode.SECURITY_DISABLED: "the cluster has no authorizer",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster is too old for this",
}


def check(code: int, message: str | None, subject: str) -> None:
    """Raises `KafkaError` if `code` is one: the cluster's own sentence if it gave one, else what the code means."""
    if code:
        raise refusal(code, message, subject)


def refusal(code: int, message: str | None, subject: str) -> KafkaError:
    return KafkaError(ErrorCode(code), f"{subject}: {_sentence(message) or meaning(ErrorCode(code))}.")


def meaning(code: ErrorCode) -> str:
    return _MEANINGS.get(code) or code.name.lower().replace("_", " ")


def why(error: KafkaError) -> str:
    """The cluster's own sentence if it gave one, else what the code means; without a full stop."""
    return _sentence(error.message) or meaning(error.code)


def _sentence(message: str | None) -> str:
    return (message or "").strip().rstrip(".")


def ask_once(client: BlockingClient, request: Message, response: type[M], *, max_version: int = 1000) -> M:
    """The answer of one broker to a request that changes something: another is tried only if nothing was sent."""
    lost: PeerLost | None = None
    for node in client.nodes():
        try:
            pending = client.start(node, request, response, max_version=max_version)
        except PeerLost as error:
            lost = error
        else:
            return client.finish(pending)
    raise lost or KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "The cluster has no broker now.")


def ask_each(
    client: BlockingClient,
    requests: dict[int, Message],
    response: type[M],
    *,
    max_version: int = 1000,
    timeout_ms: int | None = None,
) -> dict[int, M | KafkaError]:
    """The answer of each of these brokers, who work on them at the same time, or why there is none."""
    answers: dict[int, M | KafkaError] = {}
    started = {}
    for node, request in requests.items():
        try:
            started[node] = client.start(node, request, response, max_version=max_version, timeout_ms=timeout_ms)
        except KafkaError as error:
            answers[node] = error
    for node, pending in started.items():
        try:
            answers[node] = client.finish(pending)
        except KafkaError as error:
            answers[node] = error
    return {node: answers[node] for node in requests}


def ask_coordinator(
    client: BlockingClient,
    kind: CoordinatorKind,
    key: str,
    request: Message,
    response: type[M],
    codes: Callable[[M], Iterable[int]],
    *,
    max_version: int = 1000,
) -> M:
    """The coordinator's answer. Waits while the coordinator moves; what else `codes` says is for the caller."""
    return client.to_coordinator(
        kind,
        key,
        request,
        response,
        errors=lambda answer: [code for code in codes(answer) if code in _COORDINATOR_MOVED],
        max_version=max_version,
    )
