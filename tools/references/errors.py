"""The page of all error codes: whether a client may try again, what each means, and whether a node ever says it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import ottla
from ottla.errors import ErrorCode

_INTRODUCTION = """\
# Error codes

<!-- Made by `make references` from ottla.errors and the sentences in tools/references/errors.py. -->

What a response may carry, as of Apache Kafka 4.3.1. *Again* says whether a client may send the same request once more
and hope; clients do that by themselves. A code with a star is known here, so that it can be told to people, but no node
of Ottla says it.

| code | name | again | what it means |
|--:|---|---|---|"""

_SERVERS = ("broker", "controller", "coordinator", "log", "metadata", "partition", "raft", "records", "security")
"""The rooms of which a node is made."""

_MEANINGS = {
    "UNKNOWN_SERVER_ERROR": "The node met something that it did not expect; its log says more.",
    "NONE": "No error.",
    "OFFSET_OUT_OF_RANGE": (
        "The offset lies before the log's start or behind its end: begin anew where `auto.offset.reset` says."
    ),
    "CORRUPT_MESSAGE": "A batch does not match its checksum, or a record is not what its batch promises.",
    "UNKNOWN_TOPIC_OR_PARTITION": (
        "There is no such topic or partition here; it may just have been created, or have moved."
    ),
    "INVALID_FETCH_SIZE": "The size that a fetch asks for makes no sense.",
    "LEADER_NOT_AVAILABLE": "Nobody leads the partition at the moment.",
    "NOT_LEADER_OR_FOLLOWER": "Another node leads the partition: ask for the metadata again.",
    "REQUEST_TIMED_OUT": "What was asked for did not happen in time; it may happen still.",
    "BROKER_NOT_AVAILABLE": "The broker cannot be reached.",
    "REPLICA_NOT_AVAILABLE": "The node should have a replica and has none yet.",
    "MESSAGE_TOO_LARGE": "The batch is larger than `max.message.bytes` of the topic.",
    "STALE_CONTROLLER_EPOCH": "Whoever asked is a controller that has been replaced.",
    "OFFSET_METADATA_TOO_LARGE": (
        "The text that was committed with an offset is longer than `offset.metadata.max.bytes`."
    ),
    "NETWORK_EXCEPTION": "The connection broke before an answer came.",
    "COORDINATOR_LOAD_IN_PROGRESS": "The coordinator is new and still reads what its predecessor wrote.",
    "COORDINATOR_NOT_AVAILABLE": "There is no coordinator yet, or what it wrote could not be committed.",
    "NOT_COORDINATOR": "Another node coordinates this group or transactional id: look for it again.",
    "INVALID_TOPIC_EXCEPTION": "The name is none that a topic may have, or clients may not write to this topic.",
    "RECORD_LIST_TOO_LARGE": "The batch is larger than a segment may be.",
    "NOT_ENOUGH_REPLICAS": "Fewer replicas are in sync than `min.insync.replicas` asks for; nothing was appended.",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "The records were appended, and then too few replicas were in sync.",
    "INVALID_REQUIRED_ACKS": "`acks` is neither 0 nor 1 nor -1 (all).",
    "ILLEGAL_GENERATION": "The group has rebalanced since: join again.",
    "INCONSISTENT_GROUP_PROTOCOL": "The member shares no assignor, or no protocol, with its group.",
    "INVALID_GROUP_ID": "The id is none that a group may have.",
    "UNKNOWN_MEMBER_ID": "The coordinator does not know this member, or no more: join again.",
    "INVALID_SESSION_TIMEOUT": (
        "The session timeout is outside `group.min.session.timeout.ms` and `group.max.session.timeout.ms`."
    ),
    "REBALANCE_IN_PROGRESS": "The group shares its partitions out anew: join again.",
    "INVALID_COMMIT_OFFSET_SIZE": "The commit is larger than a batch of `__consumer_offsets` may be.",
    "TOPIC_AUTHORIZATION_FAILED": "The client may not do this with this topic.",
    "GROUP_AUTHORIZATION_FAILED": "The client may not do this with this group.",
    "CLUSTER_AUTHORIZATION_FAILED": "The client may not do this to the cluster.",
    "INVALID_TIMESTAMP": (
        "A record's timestamp is too far from the broker's clock (`message.timestamp.before.max.ms`, "
        "`message.timestamp.after.max.ms`)."
    ),
    "UNSUPPORTED_SASL_MECHANISM": "The listener does not offer this SASL mechanism.",
    "ILLEGAL_SASL_STATE": "The request has no place at this point of a login.",
    "UNSUPPORTED_VERSION": "The node does not speak this version of the request.",
    "TOPIC_ALREADY_EXISTS": "There is a topic of that name.",
    "INVALID_PARTITIONS": "The number of partitions is not possible; they can only become more.",
    "INVALID_REPLICATION_FACTOR": "There are not so many brokers that could take a copy.",
    "INVALID_REPLICA_ASSIGNMENT": (
        "The list of replicas names unknown brokers, or one twice, or not as many for each partition."
    ),
    "INVALID_CONFIG": "A config has a value that it cannot have.",
    "NOT_CONTROLLER": "Another node is the active controller.",
    "INVALID_REQUEST": "The request contradicts itself, or asks for what cannot be.",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": "The message format of the topic is too old for this.",
    "POLICY_VIOLATION": "A policy of the cluster refuses this.",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "A batch of an idempotent producer is missing before this one.",
    "DUPLICATE_SEQUENCE_NUMBER": "The batch came before, too long ago to tell where it is.",
    "INVALID_PRODUCER_EPOCH": "A newer producer has taken this one's place.",
    "INVALID_TXN_STATE": "The transaction is not in a state in which this can be done.",
    "INVALID_PRODUCER_ID_MAPPING": "The transactional id belongs to another producer id.",
    "INVALID_TRANSACTION_TIMEOUT": "The timeout is longer than `transaction.max.timeout.ms`.",
    "CONCURRENT_TRANSACTIONS": "The transaction before is still being ended.",
    "TRANSACTION_COORDINATOR_FENCED": "The markers come from a coordinator that has been replaced.",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "The client may not use this transactional id.",
    "SECURITY_DISABLED": "There is no authorizer: `authorizer.class.name` is not set.",
    "OPERATION_NOT_ATTEMPTED": "Something else in the same request failed first.",
    "KAFKA_STORAGE_ERROR": "The disk under the partition has failed.",
    "LOG_DIR_NOT_FOUND": "The broker has no such directory.",
    "SASL_AUTHENTICATION_FAILED": "The credentials are wrong.",
    "UNKNOWN_PRODUCER_ID": "Nothing of this producer is left in the log.",
    "REASSIGNMENT_IN_PROGRESS": "The replicas of the partition are being moved.",
    "DELEGATION_TOKEN_AUTH_DISABLED": "Delegation tokens are not switched on (`delegation.token.secret.key`).",
    "DELEGATION_TOKEN_NOT_FOUND": "There is no such token.",
    "DELEGATION_TOKEN_OWNER_MISMATCH": "The token is somebody else's.",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": "Tokens are not given out on a connection like this one.",
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": "The client may not do this with this token.",
    "DELEGATION_TOKEN_EXPIRED": "The token has expired.",
    "INVALID_PRINCIPAL_TYPE": "Only users can have this.",
    "NON_EMPTY_GROUP": "The group has members.",
    "GROUP_ID_NOT_FOUND": "There is no such group.",
    "FETCH_SESSION_ID_NOT_FOUND": "The fetch session is gone: begin a new one.",
    "INVALID_FETCH_SESSION_EPOCH": "A request of the fetch session is missing: begin a new one.",
    "LISTENER_NOT_FOUND": "The leader has no listener of the name by which the client came.",
    "TOPIC_DELETION_DISABLED": "`delete.topic.enable` is false.",
    "FENCED_LEADER_EPOCH": "The client knows an older leader than the node: ask for the metadata again.",
    "UNKNOWN_LEADER_EPOCH": "The client knows a newer leader than the node, which will hear of it soon.",
    "UNSUPPORTED_COMPRESSION_TYPE": "The client cannot read this compression.",
    "STALE_BROKER_EPOCH": "The broker has registered anew since it sent this.",
    "OFFSET_NOT_AVAILABLE": "The leader is new and does not know yet how far records are committed.",
    "MEMBER_ID_REQUIRED": "Join again with the member id that came with this answer.",
    "PREFERRED_LEADER_NOT_AVAILABLE": "The preferred leader is not in sync, or not there.",
    "GROUP_MAX_SIZE_REACHED": "The group has as many members as it may have.",
    "FENCED_INSTANCE_ID": "Another member has come with the same `group.instance.id`.",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE": "No replica could be elected.",
    "ELECTION_NOT_NEEDED": "Who should lead does so already.",
    "NO_REASSIGNMENT_IN_PROGRESS": "There is no move to cancel.",
    "GROUP_SUBSCRIBED_TO_TOPIC": "The group is subscribed to the topic, so its offsets cannot be deleted.",
    "INVALID_RECORD": "A record breaks a rule of its topic, such as having no key where the topic is compacted.",
    "UNSTABLE_OFFSET_COMMIT": "An open transaction has staged another offset: ask again.",
    "THROTTLING_QUOTA_EXCEEDED": "The client's quota of changes is used up for now.",
    "PRODUCER_FENCED": "Another producer has come with the same transactional id.",
    "RESOURCE_NOT_FOUND": "There is no such thing, for example no such user.",
    "DUPLICATE_RESOURCE": "The request names one thing twice.",
    "UNACCEPTABLE_CREDENTIAL": "The credential is too weak, or incomplete.",
    "INCONSISTENT_VOTER_SET": "The two sides do not have the same voters.",
    "INVALID_UPDATE_VERSION": "The feature cannot be set to this level.",
    "FEATURE_UPDATE_FAILED": "The features could not be changed.",
    "PRINCIPAL_DESERIALIZATION_FAILURE": "The principal in an envelope cannot be read.",
    "SNAPSHOT_NOT_FOUND": "There is no such snapshot of the metadata.",
    "POSITION_OUT_OF_RANGE": "The snapshot is shorter than that.",
    "UNKNOWN_TOPIC_ID": "There is no topic with this id here: it may be new, or deleted.",
    "DUPLICATE_BROKER_REGISTRATION": "A broker of this id is registered and alive.",
    "BROKER_ID_NOT_REGISTERED": "No broker of this id is registered.",
    "INCONSISTENT_TOPIC_ID": "The topic has another id: it was deleted and made again.",
    "INCONSISTENT_CLUSTER_ID": "The node belongs to another cluster.",
    "TRANSACTIONAL_ID_NOT_FOUND": "The coordinator does not know this transactional id.",
    "FETCH_SESSION_TOPIC_ID_ERROR": "The fetch session knows topics in another way: begin a new one.",
    "INELIGIBLE_REPLICA": (
        "The replica may not join the in-sync set: its broker is fenced, shutting down, or has started anew."
    ),
    "NEW_LEADER_ELECTED": "The change was made, and another leads now.",
    "OFFSET_MOVED_TO_TIERED_STORAGE": "The offset is only in remote storage.",
    "FENCED_MEMBER_EPOCH": "The member has fallen out of its group: give all partitions up and join again.",
    "UNRELEASED_INSTANCE_ID": "Another member with this `group.instance.id` is still there.",
    "UNSUPPORTED_ASSIGNOR": "The coordinator has no such assignor.",
    "STALE_MEMBER_EPOCH": "The member has not heard of its newest epoch yet: try again after the next heartbeat.",
    "MISMATCHED_ENDPOINT_TYPE": "Brokers were asked for at a controller, or the other way round.",
    "UNSUPPORTED_ENDPOINT_TYPE": "There is no such type of endpoint.",
    "UNKNOWN_CONTROLLER_ID": "No controller of this id is known.",
    "UNKNOWN_SUBSCRIPTION_ID": "The subscription of client metrics has changed: ask for it again.",
    "TELEMETRY_TOO_LARGE": "More metrics were pushed than `telemetry.max.bytes` allows.",
    "INVALID_REGISTRATION": (
        "The registration is not possible, for example because its listeners or features do not fit."
    ),
    "TRANSACTION_ABORTABLE": "The transaction cannot go on: abort it, and begin another.",
    "INVALID_RECORD_STATE": "The record of a share group is not in a state in which this can be done.",
    "SHARE_SESSION_NOT_FOUND": "The share session is gone.",
    "INVALID_SHARE_SESSION_EPOCH": "A request of the share session is missing.",
    "FENCED_STATE_EPOCH": "The share coordinator has a newer state epoch.",
    "INVALID_VOTER_KEY": "The request is for a voter with another directory id.",
    "DUPLICATE_VOTER": "It is a voter already.",
    "VOTER_NOT_FOUND": "There is no such voter.",
    "INVALID_REGULAR_EXPRESSION": "The pattern of a subscription cannot be read.",
    "REBOOTSTRAP_REQUIRED": "The client should begin again with its bootstrap servers.",
    "STREAMS_INVALID_TOPOLOGY": "The topology of a streams group is not possible.",
    "STREAMS_INVALID_TOPOLOGY_EPOCH": "The topology's epoch is not possible.",
    "STREAMS_TOPOLOGY_FENCED": "The member has an older topology than its group.",
    "SHARE_SESSION_LIMIT_REACHED": "There are as many share sessions as there may be.",
}


def render() -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, *_rows(), ""])


def _rows() -> Iterator[str]:
    said = _said_by_nodes()
    for code in ErrorCode:
        star = "" if code.name in said else " ★"
        yield f"| {code.value} | `{code.name}`{star} | {'yes' if code.retriable else ''} | {_MEANINGS[code.name]} |"


@cache
def _said_by_nodes() -> set[str]:
    """The codes that the rooms of a node name."""
    assert ottla.__file__ is not None
    source = Path(ottla.__file__).parent
    named = re.compile(r"\bErrorCode\.([A-Z_]+)\b")
    files = (path for room in _SERVERS for path in (source / room).rglob("*.py"))
    return {name for path in files for name in named.findall(path.read_text())}
