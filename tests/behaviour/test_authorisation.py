"""Who may do what, API by API: refused with the code that Kafka has for it, and served once the right is given.

Everybody is `User:ANONYMOUS` here, so that it is the address by which an administrator and a stranger differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from ottla.model import METADATA_TOPIC, Uuid
from ottla.wire.apis import APIS
from ottla.wire.message import Message
from ottla.wire.messages import add_partitions_to_txn_request as add_partitions
from ottla.wire.messages import alter_client_quotas_request as quotas
from ottla.wire.messages import alter_configs_request as alter
from ottla.wire.messages import alter_user_scram_credentials_request as scram
from ottla.wire.messages import create_partitions_request as create_partitions
from ottla.wire.messages import create_topics_request as create_topics
from ottla.wire.messages import create_topics_response
from ottla.wire.messages import delete_acls_request as delete_acls
from ottla.wire.messages import delete_records_request as delete_records
from ottla.wire.messages import describe_configs_request as describe_configs
from ottla.wire.messages import describe_quorum_request as quorum
from ottla.wire.messages import describe_topic_partitions_request as pages
from ottla.wire.messages import elect_leaders_request as elect
from ottla.wire.messages import fetch_request as fetch
from ottla.wire.messages import incremental_alter_configs_request as incremental
from ottla.wire.messages import list_offsets_request as list_offsets
from ottla.wire.messages import offset_commit_request as commit
from ottla.wire.messages import offset_delete_request as delete_offsets
from ottla.wire.messages import offset_fetch_request as offset_fetch
from ottla.wire.messages import offset_for_leader_epoch_request as epochs
from ottla.wire.messages import txn_offset_commit_request as txn_commit
from ottla.wire.messages import write_txn_markers_request as markers
from ottla.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.wire.messages.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
from ottla.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_acls_response import CreateAclsResponse
from ottla.wire.messages.delete_acls_response import DeleteAclsResponse
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_acls_request import DescribeAclsRequest
from ottla.wire.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import DescribeClusterResponse
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from ottla.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from ottla.wire.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from ottla.wire.messages.end_txn_request import EndTxnRequest
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.join_group_request import JoinGroupRequest
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from ottla.wire.messages.list_groups_request import ListGroupsRequest
from ottla.wire.messages.list_groups_response import ListGroupsResponse
from ottla.wire.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from ottla.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.wire.messages.list_transactions_response import ListTransactionsResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.wire.messages.sync_group_request import SyncGroupRequest
from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from ottla.wire.messages.update_features_request import UpdateFeaturesRequest
from tests.behaviour.client import LATEST, Client, Topic, batch, eventually
from tests.behaviour.conftest import Node, StartNode
from tests.behaviour.groups import Groups, new_group
from tests.wire_client import last_version

pytestmark = pytest.mark.slow

ADMINISTRATOR, STRANGER = "127.0.0.1", "127.0.0.2"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
ONE, ANY = 3, 1
READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
ALTER_CONFIGS, DESCRIBE_CONFIGS = Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS

TOPIC_FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_FAILED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_FAILED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ID_FAILED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
FAILED = {TOPIC_FAILED, GROUP_FAILED, CLUSTER_FAILED, ID_FAILED}

Grant = tuple[Operation, ResourceType, str]
"""What a test names, topic, group and id alike, is its own: `it`."""


def on_topic(operation: Operation) -> Grant:
    return operation, ResourceType.TOPIC, "it"


def on_group(operation: Operation) -> Grant:
    return operation, ResourceType.GROUP, "it"


def on_cluster(operation: Operation) -> Grant:
    return operation, ResourceType.CLUSTER, CLUSTER_NAME


def on_id(operation: Operation) -> Grant:
    return operation, ResourceType.TRANSACTIONAL_ID, "it"


def creation(
    grant: Grant,
    host: str,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
) -> AclCreation:
    operation, kind, name = grant
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal="User:ANONYMOUS",
        host=host,
        operation=operation,
        permission_type=permission,
    )


class Administrator(Client):
    """Gives rights to the stranger, and takes them."""

    def create(self, *creations: AclCreation) -> None:
        response = self.call(CreateAclsRequest(creations=list(creations)), CreateAclsResponse)
        assert [result.error_code for result in response.results] == [0] * len(creations)

    def give(self, *grants: Grant) -> None:
        self.create(*(creation(grant, STRANGER) for grant in grants))

    def take_all(self) -> None:
        everything = delete_acls.DeleteAclsFilter(ANY, None, ANY, None, STRANGER, ANY, ANY)
        response = self.call(delete_acls.DeleteAclsRequest(filters=[everything]), DeleteAclsResponse)
        assert response.filter_results[0].error_code == 0


def start_guarded(start_node: StartNode, settings: Mapping[str, str] = SETTINGS) -> Node:
    """A node on which only the administrator may do anything."""
    node = start_node(settings)
    with Administrator((node.host, node.port), host=ADMINISTRATOR) as admin:
        kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
        everything = [(Operation.ALL, kind, "*") for kind in kinds]
        admin.create(*(creation(each, ADMINISTRATOR) for each in (on_cluster(Operation.ALL), *everything)))
        Groups(admin).ready(new_group())
    return node


@pytest.fixture(scope="module")
def guarded(start_node: StartNode) -> Node:
    return start_guarded(start_node)


@pytest.fixture
def admin(guarded: Node) -> Iterator[Administrator]:
    with Administrator((guarded.host, guarded.port), host=ADMINISTRATOR) as connected:
        yield connected
        connected.take_all()


@pytest.fixture
def stranger(guarded: Node) -> Iterator[Client]:
    with Client((guarded.host, guarded.port), host=STRANGER) as connected:
        yield connected


@pytest.fixture
def it(admin: Administrator, name: str) -> Topic:
    return admin.create_topic(name)


def codes(message: Message) -> set[int]:
    """Every error code of a response, wherever it is."""
    found: set[int] = set()
    for slot in message.__slots__:
        value = getattr(message, slot)
        if slot.endswith("error_code") and value:
            found.add(value)
        elif isinstance(value, Message):
            found |= codes(value)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Message):
                    found |= codes(each)
    return found


def asked(client: Client, request: Message, version: int | None) -> set[int]:
    assert request.API_KEY is not None
    version = last_version(request) if version is None else version
    return codes(client.call(request, APIS[request.API_KEY].response, version))


class Case(NamedTuple):
    name: str
    request: Callable[[Topic], Message]
    """Made anew for each time."""
    code: ErrorCode
    needed: Grant
    given: tuple[Grant, ...] = ()
    """What the stranger has already, and is not enough."""
    version: int | None = None
    committed: bool = False
    """Does the group exist already?"""


def _fetch(topic: Topic, replica_id: int = -1) -> Message:
    wanted = fetch.FetchPartition(partition=0, partition_max_bytes=1000)
    topics = [fetch.FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[wanted])]
    return fetch.FetchRequest(replica_id=replica_id, max_bytes=1000, topics=topics)


def _produce(topic: Topic, transactional_id: str | None = None) -> Message:
    records = batch(b"x")
    if transactional_id is not None:
        records = batch(b"x", producer_id=1, producer_epoch=0, sequence=0, transactional=True)
    data = PartitionProduceData(index=0, records=records)
    topics = [TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[data])]
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=5_000, topic_data=topics)


def _move(topic: Topic) -> Message:
    named = [AlterReplicaLogDirTopic(name=topic.name, partitions=[0])]
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/nowhere", topics=named)])


def _commit(topic: Topic) -> Message:
    partitions = [commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    topics = [commit.OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)]
    return commit.OffsetCommitRequest(group_id=topic.name, generation_id_or_member_epoch=-1, topics=topics)


def _offset_fetch(topic: Topic) -> Message:
    topics = [offset_fetch.OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=[0])]
    return offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id=topic.name, topics=topics)]
    )


def _txn_commit(topic: Topic) -> Message:
    partitions = [txn_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    return txn_commit.TxnOffsetCommitRequest(
        transactional_id=topic.name,
        group_id=topic.name,
        producer_id=1,
        topics=[txn_commit.TxnOffsetCommitRequestTopic(name=topic.name, partitions=partitions)],
    )


def _delete_offsets(topic: Topic) -> Message:
    partitions = [delete_offsets.OffsetDeleteRequestPartition(partition_index=0)]
    topics = [delete_offsets.OffsetDeleteRequestTopic(name=topic.name, partitions=partitions)]
    return delete_offsets.OffsetDeleteRequest(group_id=topic.name, topics=topics)


def _add_partitions(topic: Topic) -> Message:
    return add_partitions.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=topic.name,
        v3_and_below_producer_id=1,
        v3_and_below_topics=[add_partitions.AddPartitionsToTxnTopic(name=topic.name, partitions=[0])],
    )


def _add_partitions_batched(topic: Topic) -> Message:
    topics = [add_partitions.AddPartitionsToTxnTopic(name=topic.name, partitions=[0])]
    transaction = add_partitions.AddPartitionsToTxnTransaction(topic.name, 1, 0, True, topics)
    return add_partitions.AddPartitionsToTxnRequest(transactions=[transaction])


def _markers(topic: Topic) -> Message:
    topics = [markers.WritableTxnMarkerTopic(name=topic.name, partition_indexes=[7])]
    return markers.WriteTxnMarkersRequest(markers=[markers.WritableTxnMarker(producer_id=1, topics=topics)])


def _describe_configs(kind: int, name: str) -> Message:
    resource = describe_configs.DescribeConfigsResource(kind, name, None)
    return describe_configs.DescribeConfigsRequest(resources=[resource])


def _alter_incrementally(kind: int, name: str) -> Message:
    resource = incremental.AlterConfigsResource(kind, name, [])
    return incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)


def _quotas(topic: Topic) -> Message:
    entity = [quotas.EntityData(entity_type="client-id", entity_name="x")]
    entry = quotas.EntryData(entity=entity, ops=[quotas.OpData(key="producer_byte_rate", value=1.0)])
    return quotas.AlterClientQuotasRequest(entries=[entry], validate_only=True)


def _create_acls(topic: Topic) -> Message:
    nobody = creation((READ, ResourceType.TOPIC, "nothing"), "10.9.9.9")
    return CreateAclsRequest(creations=[nobody])


def _epochs(topic: Topic) -> Message:
    partitions = [epochs.OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    topics = [epochs.OffsetForLeaderTopic(topic=topic.name, partitions=partitions)]
    return epochs.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)


def _list_offsets(topic: Topic) -> Message:
    partitions = [list_offsets.ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
    topics = [list_offsets.ListOffsetsTopic(name=topic.name, partitions=partitions)]
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics)


def _delete_records(topic: Topic) -> Message:
    partitions = [delete_records.DeleteRecordsPartition(partition_index=0, offset=0)]
    topics = [delete_records.DeleteRecordsTopic(name=topic.name, partitions=partitions)]
    return delete_records.DeleteRecordsRequest(topics=topics, timeout_ms=5_000)


def _create_topics(topic: Topic) -> Message:
    wanted = create_topics.CreatableTopic(name=topic.name, num_partitions=1, replication_factor=1)
    return create_topics.CreateTopicsRequest(topics=[wanted], timeout_ms=5_000)


def _create_partitions(topic: Topic) -> Message:
    wanted = create_partitions.CreatePartitionsTopic(name=topic.name, count=2)
    return create_partitions.CreatePartitionsRequest(topics=[wanted], timeout_ms=5_000, validate_only=True)


def _delete_topics(topic: Topic) -> Message:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)], timeout_ms=5_000)


def _delete_topics_by_id(topic: Topic) -> Message:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic.topic_id)], timeout_ms=5_000)


def _metadata(topic: Topic) -> Message:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)], allow_auto_topic_creation=False)


def _metadata_by_id(topic: Topic) -> Message:
    return MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic.topic_id)])


def _elect(topic: Topic) -> Message:
    partitions = [elect.TopicPartitions(topic=topic.name, partitions=[0])]
    return elect.ElectLeadersRequest(topic_partitions=partitions, timeout_ms=5_000)


def _quorum(topic: Topic) -> Message:
    partitions = [quorum.PartitionData(partition_index=0)]
    return quorum.DescribeQuorumRequest(topics=[quorum.TopicData(topic_name=METADATA_TOPIC, partitions=partitions)])


def _delete_acls(topic: Topic) -> Message:
    nobody = delete_acls.DeleteAclsFilter(ANY, None, ANY, "User:nobody", None, ANY, ANY)
    return delete_acls.DeleteAclsRequest(filters=[nobody])


def _scram(topic: Topic) -> Message:
    deletion = scram.ScramCredentialDeletion(name="nobody", mechanism=1)
    return scram.AlterUserScramCredentialsRequest(deletions=[deletion])


def _alter_whole(topic: Topic) -> Message:
    resource = alter.AlterConfigsResource(2, topic.name, [])
    return alter.AlterConfigsRequest(resources=[resource], validate_only=True)


def _join(topic: Topic) -> Message:
    return JoinGroupRequest(group_id=topic.name, session_timeout_ms=10_000, protocol_type="consumer")


def _modern(topic: Topic) -> Message:
    return ConsumerGroupHeartbeatRequest(
        group_id=topic.name,
        member_id="AAAAAAAAAAAAAAAAAAAAAA",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[topic.name],
        topic_partitions=[],
    )


CASES = [
    Case("produce", _produce, TOPIC_FAILED, on_topic(WRITE)),
    Case("produce by name", _produce, TOPIC_FAILED, on_topic(WRITE), version=12),
    Case("produce in a transaction", lambda t: _produce(t, t.name), ID_FAILED, on_id(WRITE), (on_topic(WRITE),)),
    Case("produce to a topic", lambda t: _produce(t, t.name), TOPIC_FAILED, on_topic(WRITE), (on_id(WRITE),)),
    Case("fetch", _fetch, TOPIC_FAILED, on_topic(READ)),
    Case("fetch by name", _fetch, TOPIC_FAILED, on_topic(READ), version=12),
    Case("fetch as a replica", lambda t: _fetch(t, 1), TOPIC_FAILED, on_cluster(CLUSTER_ACTION), (on_topic(READ),), 12),
    Case("list offsets", _list_offsets, TOPIC_FAILED, on_topic(DESCRIBE)),
    Case("metadata", _metadata, TOPIC_FAILED, on_topic(DESCRIBE)),
    Case("metadata by id", _metadata_by_id, TOPIC_FAILED, on_topic(DESCRIBE)),
    Case("metadata implied by writing", _metadata, TOPIC_FAILED, on_topic(WRITE)),
    Case(
        "describe topic partitions",
        lambda t: pages.DescribeTopicPartitionsRequest(topics=[pages.TopicRequest(name=t.name)]),
        TOPIC_FAILED,
        on_topic(DESCRIBE),
    ),
    Case("epochs", _epochs, TOPIC_FAILED, on_topic(DESCRIBE)),
    Case("epochs for the cluster", _epochs, TOPIC_FAILED, on_cluster(CLUSTER_ACTION)),
    Case("delete records", _delete_records, TOPIC_FAILED, on_topic(DELETE), (on_topic(READ),)),
    Case(
        "describe producers",
        lambda t: DescribeProducersRequest(topics=[TopicRequest(name=t.name, partition_indexes=[0])]),
        TOPIC_FAILED,
        on_topic(READ),
        (on_topic(DESCRIBE),),
    ),
    # Groups.
    Case("offset commit", _commit, GROUP_FAILED, on_group(READ), (on_topic(READ),)),
    Case("offset commit of a topic", _commit, TOPIC_FAILED, on_topic(READ), (on_group(READ),)),
    Case("offset commit by name", _commit, TOPIC_FAILED, on_topic(READ), (on_group(READ),), 9),
    Case("offset fetch", _offset_fetch, GROUP_FAILED, on_group(DESCRIBE), (on_topic(DESCRIBE),)),
    Case("offset fetch of a topic", _offset_fetch, TOPIC_FAILED, on_topic(DESCRIBE), (on_group(DESCRIBE),)),
    Case("offset fetch by name", _offset_fetch, TOPIC_FAILED, on_topic(DESCRIBE), (on_group(DESCRIBE),), 9),
    Case(
        "find a group's coordinator",
        lambda t: FindCoordinatorRequest(key_type=0, coordinator_keys=[t.name]),
        GROUP_FAILED,
        on_group(DESCRIBE),
    ),
    Case(
        "find one as of old",
        lambda t: FindCoordinatorRequest(key_type=0, key=t.name),
        GROUP_FAILED,
        on_group(READ),
        version=3,
    ),
    Case("join", _join, GROUP_FAILED, on_group(READ), (on_group(DESCRIBE),)),
    Case(
        "sync",
        lambda t: SyncGroupRequest(group_id=t.name, member_id="m", protocol_type="consumer", protocol_name="range"),
        GROUP_FAILED,
        on_group(READ),
    ),
    Case("heartbeat", lambda t: HeartbeatRequest(group_id=t.name, member_id="m"), GROUP_FAILED, on_group(READ)),
    Case(
        "leave",
        lambda t: LeaveGroupRequest(group_id=t.name, members=[MemberIdentity(member_id="m")]),
        GROUP_FAILED,
        on_group(READ),
    ),
    Case("describe groups", lambda t: DescribeGroupsRequest(groups=[t.name]), GROUP_FAILED, on_group(DESCRIBE)),
    Case(
        "delete groups",
        lambda t: DeleteGroupsRequest(groups_names=[t.name]),
        GROUP_FAILED,
        on_group(DELETE),
        (on_group(READ),),
    ),
    Case("delete offsets", _delete_offsets, GROUP_FAILED, on_group(DELETE), (on_topic(READ),)),
    Case(
        "delete offsets of a topic", _delete_offsets, TOPIC_FAILED, on_topic(READ), (on_group(DELETE),), committed=True
    ),
    Case("consumer heartbeat", _modern, GROUP_FAILED, on_group(READ), (on_topic(DESCRIBE),)),
    Case("consumer subscription", _modern, TOPIC_FAILED, on_topic(DESCRIBE), (on_group(READ),)),
    Case(
        "describe consumer groups",
        lambda t: ConsumerGroupDescribeRequest(group_ids=[t.name]),
        GROUP_FAILED,
        on_group(DESCRIBE),
    ),
    # Transactions.
    Case(
        "find a transaction's coordinator",
        lambda t: FindCoordinatorRequest(key_type=1, coordinator_keys=[t.name]),
        ID_FAILED,
        on_id(DESCRIBE),
    ),
    Case(
        "an identity",
        lambda t: InitProducerIdRequest(transactional_id=None),
        CLUSTER_FAILED,
        on_cluster(Operation.IDEMPOTENT_WRITE),
    ),
    Case(
        "an identity to write with",
        lambda t: InitProducerIdRequest(transactional_id=None),
        CLUSTER_FAILED,
        on_topic(WRITE),
    ),
    Case(
        "a transactional identity",
        lambda t: InitProducerIdRequest(transactional_id=t.name, transaction_timeout_ms=1000),
        ID_FAILED,
        on_id(WRITE),
        (on_cluster(Operation.IDEMPOTENT_WRITE),),
    ),
    Case("add partitions", _add_partitions, ID_FAILED, on_id(WRITE), (on_topic(WRITE),), 3),
    Case("add partitions of a topic", _add_partitions, TOPIC_FAILED, on_topic(WRITE), (on_id(WRITE),), 3),
    Case("add partitions as a broker", _add_partitions_batched, CLUSTER_FAILED, on_cluster(CLUSTER_ACTION)),
    Case(
        "add offsets",
        lambda t: AddOffsetsToTxnRequest(transactional_id=t.name, group_id=t.name),
        ID_FAILED,
        on_id(WRITE),
        (on_group(READ),),
    ),
    Case(
        "add offsets of a group",
        lambda t: AddOffsetsToTxnRequest(transactional_id=t.name, group_id=t.name),
        GROUP_FAILED,
        on_group(READ),
        (on_id(WRITE),),
    ),
    Case("end", lambda t: EndTxnRequest(transactional_id=t.name, producer_id=1), ID_FAILED, on_id(WRITE)),
    Case("offsets of a transaction", _txn_commit, ID_FAILED, on_id(WRITE), (on_group(READ), on_topic(READ))),
    Case("offsets in a group", _txn_commit, GROUP_FAILED, on_group(READ), (on_id(WRITE), on_topic(READ))),
    Case("offsets of a topic", _txn_commit, TOPIC_FAILED, on_topic(READ), (on_id(WRITE), on_group(READ))),
    Case("markers", _markers, CLUSTER_FAILED, on_cluster(CLUSTER_ACTION)),
    Case("markers by hand", _markers, CLUSTER_FAILED, on_cluster(ALTER)),
    Case(
        "describe transactions",
        lambda t: DescribeTransactionsRequest(transactional_ids=[t.name]),
        ID_FAILED,
        on_id(DESCRIBE),
    ),
    # Topics and configs.
    Case("create topics", _create_topics, TOPIC_FAILED, on_topic(CREATE)),
    Case("create topics anywhere", _create_topics, TOPIC_FAILED, on_cluster(CREATE)),
    Case("delete topics", _delete_topics, TOPIC_FAILED, on_topic(DELETE), (on_topic(READ),)),
    Case("delete topics by id", _delete_topics_by_id, TOPIC_FAILED, on_topic(DELETE)),
    Case("create partitions", _create_partitions, TOPIC_FAILED, on_topic(ALTER), (on_topic(READ),)),
    Case("a topic's configs", lambda t: _describe_configs(2, t.name), TOPIC_FAILED, on_topic(DESCRIBE_CONFIGS)),
    Case("a broker's configs", lambda t: _describe_configs(4, "1"), CLUSTER_FAILED, on_cluster(DESCRIBE_CONFIGS)),
    Case("a group's configs", lambda t: _describe_configs(32, t.name), GROUP_FAILED, on_group(DESCRIBE_CONFIGS)),
    Case("alter a topic", lambda t: _alter_incrementally(2, t.name), TOPIC_FAILED, on_topic(ALTER_CONFIGS)),
    Case("alter a broker", lambda t: _alter_incrementally(4, "1"), CLUSTER_FAILED, on_cluster(ALTER_CONFIGS)),
    Case("alter a logger", lambda t: _alter_incrementally(8, "1"), CLUSTER_FAILED, on_cluster(ALTER_CONFIGS)),
    Case("alter a group", lambda t: _alter_incrementally(32, t.name), GROUP_FAILED, on_group(ALTER_CONFIGS)),
    Case("alter a topic as of old", _alter_whole, TOPIC_FAILED, on_topic(ALTER_CONFIGS)),
    Case("all that has configs", lambda t: ListConfigResourcesRequest(), CLUSTER_FAILED, on_cluster(DESCRIBE_CONFIGS)),
    # The cluster.
    Case(
        "describe acls",
        lambda t: DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY),
        CLUSTER_FAILED,
        on_cluster(DESCRIBE),
    ),
    Case("create acls", _create_acls, CLUSTER_FAILED, on_cluster(ALTER), (on_cluster(DESCRIBE),)),
    Case("delete acls", _delete_acls, CLUSTER_FAILED, on_cluster(ALTER), (on_cluster(DESCRIBE),)),
    Case("log dirs", lambda t: DescribeLogDirsRequest(topics=None), CLUSTER_FAILED, on_cluster(DESCRIBE)),
    Case("move to a directory", _move, CLUSTER_FAILED, on_cluster(ALTER), (on_cluster(DESCRIBE),)),
    Case("elections", _elect, CLUSTER_FAILED, on_cluster(ALTER)),
    Case(
        "reassignments",
        lambda t: AlterPartitionReassignmentsRequest(timeout_ms=5_000),
        CLUSTER_FAILED,
        on_cluster(ALTER),
    ),
    Case(
        "list reassignments",
        lambda t: ListPartitionReassignmentsRequest(topics=None, timeout_ms=5_000),
        CLUSTER_FAILED,
        on_cluster(DESCRIBE),
    ),
    Case("quotas", lambda t: DescribeClientQuotasRequest(), CLUSTER_FAILED, on_cluster(DESCRIBE_CONFIGS)),
    Case("alter quotas", _quotas, CLUSTER_FAILED, on_cluster(ALTER_CONFIGS)),
    Case(
        "credentials",
        lambda t: DescribeUserScramCredentialsRequest(users=[]),
        CLUSTER_FAILED,
        on_cluster(DESCRIBE),
    ),
    Case("alter credentials", _scram, CLUSTER_FAILED, on_cluster(ALTER)),
    Case("quorum", _quorum, CLUSTER_FAILED, on_cluster(DESCRIBE)),
    Case("features", lambda t: UpdateFeaturesRequest(timeout_ms=5_000), CLUSTER_FAILED, on_cluster(ALTER)),
    Case("unregister", lambda t: UnregisterBrokerRequest(broker_id=99), CLUSTER_FAILED, on_cluster(ALTER)),
    Case(
        "remove a voter",
        lambda t: RemoveRaftVoterRequest(cluster_id="another", voter_id=9),
        CLUSTER_FAILED,
        on_cluster(ALTER),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_without_the_right_it_is_refused_and_with_it_served(
    admin: Administrator, stranger: Client, it: Topic, case: Case
) -> None:
    def named(grant: Grant) -> Grant:
        operation, kind, name = grant
        return operation, kind, it.name if name == "it" else name

    if case.committed:
        assert Groups(admin).commit_one(it.name, it, 1) is ErrorCode.NONE
    if case.given:
        admin.give(*map(named, case.given))
    eventually(lambda: asked(stranger, case.request(it), case.version) & FAILED, lambda found: found == {case.code})
    admin.give(named(case.needed))
    eventually(lambda: asked(stranger, case.request(it), case.version) & FAILED, lambda found: not found)


def test_what_may_not_be_described_is_not_listed(admin: Administrator, stranger: Client, it: Topic) -> None:
    def listed() -> set[str | None]:
        return {topic.name for topic in stranger.call(MetadataRequest(topics=None), MetadataResponse).topics}

    def in_pages() -> set[str | None]:
        request = pages.DescribeTopicPartitionsRequest()
        return {topic.name for topic in stranger.call(request, APIS[75].response).topics}  # type: ignore[attr-defined]

    assert listed() == in_pages() == set()
    admin.give((READ, ResourceType.TOPIC, it.name))
    eventually(listed, lambda found: found == {it.name})
    assert in_pages() == {it.name}


def test_groups_are_listed_to_whom_they_concern(admin: Administrator, stranger: Client, it: Topic) -> None:
    ours, theirs = new_group(), new_group()
    for group_id in (ours, theirs):
        Groups(admin).ready(group_id)
        assert Groups(admin).commit_one(group_id, it, 1) is ErrorCode.NONE

    def listed() -> set[str]:
        return {group.group_id for group in stranger.call(ListGroupsRequest(), ListGroupsResponse).groups}

    assert listed() & {ours, theirs} == set()
    admin.give((DESCRIBE, ResourceType.GROUP, ours))
    eventually(lambda: listed() & {ours, theirs}, lambda found: found == {ours})
    # All that it committed, but for what it may not know of.
    request = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(group_id=ours, topics=None)])
    (group,) = stranger.call(request, OffsetFetchResponse).groups
    assert (group.error_code, group.topics) == (0, [])
    admin.give(on_cluster(DESCRIBE))
    eventually(lambda: listed() & {ours, theirs}, lambda found: found == {ours, theirs})


def test_transactions_are_listed_to_whom_they_concern(admin: Administrator, stranger: Client, name: str) -> None:
    def made(transactional_id: str) -> set[int]:
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
        identity = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)
        return asked(admin, find, None) | asked(admin, identity, None)

    eventually(lambda: made(f"{name}-ours") | made(f"{name}-theirs"), lambda found: not found)

    def listed() -> set[str]:
        response = stranger.call(ListTransactionsRequest(), ListTransactionsResponse)
        return {each.transactional_id for each in response.transaction_states if each.transactional_id.startswith(name)}

    assert listed() == set()
    admin.give((DESCRIBE, ResourceType.TRANSACTIONAL_ID, f"{name}-ours"))
    eventually(listed, lambda found: found == {f"{name}-ours"})


def test_configs_of_a_new_topic_are_told_to_whom_may_see(admin: Administrator, stranger: Client, name: str) -> None:
    def created(topic: str) -> create_topics_response.CreatableTopicResult:
        wanted = create_topics.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        request = create_topics.CreateTopicsRequest(topics=[wanted], timeout_ms=5_000)
        (result,) = stranger.call(request, create_topics_response.CreateTopicsResponse).topics
        return result

    both = (f"{name}-1", f"{name}-2")
    admin.give(*((CREATE, ResourceType.TOPIC, each) for each in both))
    first = eventually(lambda: created(both[0]), lambda result: result.error_code == 0)
    assert (first.topic_config_error_code, first.configs) == (TOPIC_FAILED, [])
    admin.give((DESCRIBE_CONFIGS, ResourceType.TOPIC, both[1]))
    eventually(lambda: asked(stranger, _describe_configs(2, both[1]), None) & FAILED, lambda found: not found)
    second = created(both[1])
    assert (second.error_code, second.topic_config_error_code) == (0, 0)
    assert second.configs


def test_the_operations_that_a_client_may_carry_out(admin: Administrator, stranger: Client, it: Topic) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=it.name)], include_topic_authorized_operations=True)

    def of_topic() -> int:
        (topic,) = stranger.call(request, MetadataResponse).topics
        return topic.topic_authorized_operations

    def of_cluster() -> int:
        described = DescribeClusterRequest(include_cluster_authorized_operations=True)
        return stranger.call(described, DescribeClusterResponse).cluster_authorized_operations

    assert of_topic() == -(1 << 31)
    assert of_cluster() == 0
    admin.give((WRITE, ResourceType.TOPIC, it.name), on_cluster(ALTER))
    eventually(of_topic, lambda bits: bits == 1 << WRITE | 1 << DESCRIBE)
    eventually(of_cluster, lambda bits: bits == 1 << ALTER | 1 << DESCRIBE)


def test_a_topic_is_created_on_first_use_by_whom_may_create_it(
    admin: Administrator, stranger: Client, name: str
) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    admin.give((DESCRIBE, ResourceType.TOPIC, name))
    unknown = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    plain = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    eventually(lambda: asked(stranger, plain, None), lambda found: found == unknown)
    assert asked(stranger, request, None) == {TOPIC_FAILED}
    admin.give((CREATE, ResourceType.TOPIC, name))
    eventually(lambda: asked(stranger, request, None), lambda found: not found)


def test_what_is_denied_is_denied_whatever_else_is_allowed(admin: Administrator, stranger: Client, it: Topic) -> None:
    prefix = it.name[:-3]
    admin.create(creation((READ, ResourceType.TOPIC, prefix), STRANGER, pattern=PatternType.PREFIXED))
    eventually(lambda: asked(stranger, _fetch(it), None), lambda found: not found)
    admin.create(creation((READ, ResourceType.TOPIC, it.name), STRANGER, Permission.DENY))
    eventually(lambda: asked(stranger, _fetch(it), None), lambda found: found == {TOPIC_FAILED})


def test_a_request_is_served_as_far_as_its_client_may(admin: Administrator, stranger: Client, it: Topic) -> None:
    other = Topic(it.name + "-other", it.topic_id)
    admin.create_topic(other.name)
    admin.give((CREATE, ResourceType.TOPIC, it.name), (DESCRIBE, ResourceType.TOPIC, it.name))
    both = MetadataRequest(topics=[MetadataRequestTopic(name=each.name) for each in (it, other)])

    def described() -> dict[str | None, int]:
        return {topic.name: topic.error_code for topic in stranger.call(both, MetadataResponse).topics}

    eventually(described, lambda found: found == {it.name: 0, other.name: TOPIC_FAILED})
    wanted = [
        create_topics.CreatableTopic(name=each.name, num_partitions=1, replication_factor=1) for each in (it, other)
    ]
    assert asked(stranger, create_topics.CreateTopicsRequest(topics=wanted, timeout_ms=5_000), None) == {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        TOPIC_FAILED,
    }


def test_a_regular_expression_finds_what_its_member_may_know_of(
    admin: Administrator, stranger: Client, it: Topic
) -> None:
    admin.create_topic(f"{it.name}-hidden")
    group_id = new_group()
    admin.give((READ, ResourceType.GROUP, group_id), (DESCRIBE, ResourceType.TOPIC, it.name))
    member_id = "AAAAAAAAAAAAAAAAAAAAAA"
    assigned: list[set[Uuid]] = []
    epoch = 0

    def beat() -> list[set[Uuid]]:
        nonlocal epoch
        request = ConsumerGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=epoch)
        request.rebalance_timeout_ms = 10_000
        request.subscribed_topic_regex = f"{it.name}.*"
        request.topic_partitions = []
        response = stranger.call(request, ConsumerGroupHeartbeatResponse)
        if not response.error_code:
            epoch = response.member_epoch
            if response.assignment is not None:
                assigned.append({topic.topic_id for topic in response.assignment.topic_partitions})
        return assigned

    eventually(beat, lambda found: bool(found) and found[-1] == {it.topic_id})
    assert all(topics <= {it.topic_id} for topics in assigned)
