"""What clients of a gateway listener are told of the cluster: it has one broker, which does everything.

That broker has the same id on every node, so that a load balancer may send the next connection to another node.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.wire.message import Message
from ottla.wire.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from ottla.wire.messages.describe_topic_partitions_response import DescribeTopicPartitionsResponse
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.metadata_response import MetadataResponse, MetadataResponseBroker

GATEWAY_ID = 0

METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 3, 10, 60, 75
PRESENTED = frozenset({METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS})
"""The APIs whose answers tell of brokers."""


class Address(NamedTuple):
    host: str
    port: int


def present(response: Message, address: Address) -> None:
    """Make `response` name the one broker at `address`, wherever it names any. Others stay as they are."""
    match response:
        case MetadataResponse():
            response.brokers = [MetadataResponseBroker(node_id=GATEWAY_ID, host=address.host, port=address.port)]
            response.controller_id = GATEWAY_ID
            for topic in response.topics:
                for partition in topic.partitions:
                    partition.leader_id = _leader(partition.leader_id)
                    partition.replica_nodes = partition.isr_nodes = [GATEWAY_ID]
                    partition.offline_replicas = []
        case DescribeTopicPartitionsResponse():
            for described in response.topics:
                for each in described.partitions:
                    each.leader_id = _leader(each.leader_id)
                    each.replica_nodes = each.isr_nodes = [GATEWAY_ID]
                    each.offline_replicas = []
                    each.eligible_leader_replicas = each.last_known_elr = None
        case DescribeClusterResponse() if not response.error_code:
            response.brokers = [DescribeClusterBroker(broker_id=GATEWAY_ID, host=address.host, port=address.port)]
            response.controller_id = GATEWAY_ID
        case FindCoordinatorResponse():
            for found in response.coordinators:
                if not found.error_code:
                    found.node_id, found.host, found.port = GATEWAY_ID, *address
            if response.node_id >= 0 and not response.error_code and not response.coordinators:
                response.node_id, response.host, response.port = GATEWAY_ID, *address


def _leader(leader_id: int) -> int:
    return GATEWAY_ID if leader_id >= 0 else leader_id
