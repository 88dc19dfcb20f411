"""The operations that a client may carry out on a resource, as the bit field that some APIs answer with (KIP-430).

Without an authorizer everybody may do everything that the kind of resource knows. Read by Metadata, DescribeCluster,
DescribeTopicPartitions, DescribeGroups and ConsumerGroupDescribe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metadata.acls import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context

_KNOWN = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


def on_topic(context: Context, name: str) -> int:
    return _bits(context, ResourceType.TOPIC, name)


def on_group(context: Context, name: str) -> int:
    return _bits(context, ResourceType.GROUP, name)


def on_cluster(context: Context) -> int:
    """None at all for whoever may not describe the cluster."""
    if not context.silently.may_cluster(Operation.DESCRIBE):
        return 0
    return _bits(context, ResourceType.CLUSTER, CLUSTER_NAME)


def _bits(context: Context, kind: ResourceType, name: str) -> int:
    client = context.silently
    return sum(1 << operation for operation in _KNOWN[kind] if client.may(operation, kind, name))
