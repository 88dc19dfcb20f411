"""What a client must be allowed to do before an API is served: one row an API, for each kind of listener.

Where a row is one operation, it is asked of the whole cluster before the handler sees the request. Where it lists
rights, the handler asks for them, of each resource that the request names; of several, which ones depends on the
request, and whoever has one may need no other. What is handed on to the active controller is judged there, in the name
of the client.

The table is the code: a right that a row does not name is refused to everybody (`broker/access/authorisation`). It is
the page docs/api-reference.md too; and tests/behaviour/test_rights.py tries every API with every right there is.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ottla.metadata.acls import Operation, ResourceType


class Asked(Enum):
    BY_CONTROLLER = "by the active controller, to which the request is handed on"
    OF_OWNERS = "by the active controller, whose answer depends on whose the thing is and not on any entry"
    NEVER = "of nobody"


class Right(NamedTuple):
    """To do `operation` to a resource of the kind that a request names."""

    operation: Operation
    kind: ResourceType


Rights = tuple[Right, ...]
Row = Operation | Rights | Asked

_READ, _WRITE, _CREATE, _DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
_ALTER, _ALTER_CONFIGS, _CLUSTER_ACTION = Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CLUSTER_ACTION
_DESCRIBE, _DESCRIBE_CONFIGS = Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS


def _rights(kind: ResourceType, operations: tuple[Operation, ...]) -> Rights:
    return tuple(Right(operation, kind) for operation in operations)


def _topic(*operations: Operation) -> Rights:
    return _rights(ResourceType.TOPIC, operations)


def _group(*operations: Operation) -> Rights:
    return _rights(ResourceType.GROUP, operations)


def _cluster(*operations: Operation) -> Rights:
    return _rights(ResourceType.CLUSTER, operations)


def _id(*operations: Operation) -> Rights:
    return _rights(ResourceType.TRANSACTIONAL_ID, operations)


_DESCRIBE_ALL_CONFIGS = _topic(_DESCRIBE_CONFIGS) + _group(_DESCRIBE_CONFIGS) + _cluster(_DESCRIBE_CONFIGS)
_ALTER_ALL_CONFIGS = _topic(_ALTER_CONFIGS) + _group(_ALTER_CONFIGS) + _cluster(_ALTER_CONFIGS)
_CREATE_TOKENS = (Right(Operation.CREATE_TOKENS, ResourceType.USER),)
_DESCRIBE_TOKENS = (
    Right(Operation.DESCRIBE_TOKENS, ResourceType.USER),
    Right(_DESCRIBE, ResourceType.DELEGATION_TOKEN),
)
_IDENTITIES = _cluster(Operation.IDEMPOTENT_WRITE) + _topic(_WRITE) + _id(_WRITE, Operation.TWO_PHASE_COMMIT)

BROKER_RIGHTS: dict[int, Row] = {
    0: _topic(_WRITE) + _id(_WRITE),  # Produce
    1: _topic(_READ) + _cluster(_CLUSTER_ACTION),  # Fetch
    2: _topic(_DESCRIBE),  # ListOffsets
    3: _topic(_DESCRIBE, _CREATE) + _cluster(_CREATE),  # Metadata
    8: _group(_READ) + _topic(_READ),  # OffsetCommit
    9: _group(_DESCRIBE) + _topic(_DESCRIBE),  # OffsetFetch
    10: _group(_DESCRIBE) + _id(_DESCRIBE),  # FindCoordinator
    11: _group(_READ) + _topic(_DESCRIBE),  # JoinGroup
    12: _group(_READ),  # Heartbeat
    13: _group(_READ),  # LeaveGroup
    14: _group(_READ),  # SyncGroup
    15: _group(_DESCRIBE),  # DescribeGroups
    16: _cluster(_DESCRIBE) + _group(_DESCRIBE),  # ListGroups
    17: Asked.NEVER,  # SaslHandshake
    18: Asked.NEVER,  # ApiVersions
    19: Asked.BY_CONTROLLER,  # CreateTopics
    20: Asked.BY_CONTROLLER,  # DeleteTopics
    21: _topic(_DELETE),  # DeleteRecords
    22: _IDENTITIES,  # InitProducerId
    23: _topic(_DESCRIBE) + _cluster(_CLUSTER_ACTION),  # OffsetForLeaderEpoch
    24: _id(_WRITE) + _topic(_WRITE) + _cluster(_CLUSTER_ACTION),  # AddPartitionsToTxn
    25: _id(_WRITE) + _group(_READ),  # AddOffsetsToTxn
    26: _id(_WRITE),  # EndTxn
    27: _cluster(_ALTER, _CLUSTER_ACTION),  # WriteTxnMarkers
    28: _id(_WRITE) + _group(_READ) + _topic(_READ),  # TxnOffsetCommit
    29: _DESCRIBE,  # DescribeAcls
    30: Asked.BY_CONTROLLER,  # CreateAcls
    31: Asked.BY_CONTROLLER,  # DeleteAcls
    32: _DESCRIBE_ALL_CONFIGS,  # DescribeConfigs
    33: Asked.BY_CONTROLLER,  # AlterConfigs
    34: _ALTER,  # AlterReplicaLogDirs
    35: _DESCRIBE,  # DescribeLogDirs
    36: Asked.NEVER,  # SaslAuthenticate
    37: Asked.BY_CONTROLLER,  # CreatePartitions
    38: _CREATE_TOKENS,  # CreateDelegationToken
    39: Asked.OF_OWNERS,  # RenewDelegationToken
    40: Asked.OF_OWNERS,  # ExpireDelegationToken
    41: _DESCRIBE_TOKENS,  # DescribeDelegationToken
    42: _group(_DELETE),  # DeleteGroups
    43: Asked.BY_CONTROLLER,  # ElectLeaders
    44: _cluster(_ALTER_CONFIGS),  # IncrementalAlterConfigs: of loggers, which are this node's own
    45: Asked.BY_CONTROLLER,  # AlterPartitionReassignments
    46: Asked.BY_CONTROLLER,  # ListPartitionReassignments
    47: _group(_DELETE) + _topic(_READ),  # OffsetDelete
    48: _DESCRIBE_CONFIGS,  # DescribeClientQuotas
    49: Asked.BY_CONTROLLER,  # AlterClientQuotas
    50: _DESCRIBE,  # DescribeUserScramCredentials
    51: Asked.BY_CONTROLLER,  # AlterUserScramCredentials
    55: Asked.BY_CONTROLLER,  # DescribeQuorum
    57: Asked.BY_CONTROLLER,  # UpdateFeatures
    58: _CLUSTER_ACTION,  # Envelope: a gateway's introduction of its client
    60: _cluster(_DESCRIBE),  # DescribeCluster: to be told what one may do to it
    61: _topic(_READ),  # DescribeProducers
    64: Asked.BY_CONTROLLER,  # UnregisterBroker
    65: _id(_DESCRIBE) + _topic(_DESCRIBE),  # DescribeTransactions
    66: _id(_DESCRIBE),  # ListTransactions
    68: _group(_READ) + _topic(_DESCRIBE),  # ConsumerGroupHeartbeat
    69: _group(_DESCRIBE) + _topic(_DESCRIBE),  # ConsumerGroupDescribe
    71: Asked.NEVER,  # GetTelemetrySubscriptions
    72: Asked.NEVER,  # PushTelemetry
    74: _DESCRIBE_CONFIGS,  # ListConfigResources
    75: _topic(_DESCRIBE),  # DescribeTopicPartitions
    80: Asked.BY_CONTROLLER,  # AddRaftVoter
    81: Asked.BY_CONTROLLER,  # RemoveRaftVoter
}

CONTROLLER_RIGHTS: dict[int, Row] = {
    1: _CLUSTER_ACTION,  # Fetch
    17: Asked.NEVER,  # SaslHandshake
    18: Asked.NEVER,  # ApiVersions
    19: _topic(_CREATE, _DESCRIBE_CONFIGS) + _cluster(_CREATE),  # CreateTopics
    20: _topic(_DESCRIBE, _DELETE) + _cluster(_DELETE),  # DeleteTopics
    29: _DESCRIBE,  # DescribeAcls
    30: _ALTER,  # CreateAcls
    31: _ALTER,  # DeleteAcls
    32: _DESCRIBE_ALL_CONFIGS,  # DescribeConfigs
    33: _ALTER_ALL_CONFIGS,  # AlterConfigs
    36: Asked.NEVER,  # SaslAuthenticate
    37: _topic(_ALTER),  # CreatePartitions
    38: _CREATE_TOKENS,  # CreateDelegationToken
    39: Asked.OF_OWNERS,  # RenewDelegationToken
    40: Asked.OF_OWNERS,  # ExpireDelegationToken
    41: _DESCRIBE_TOKENS,  # DescribeDelegationToken
    43: _ALTER,  # ElectLeaders
    44: _ALTER_ALL_CONFIGS + _cluster(_CLUSTER_ACTION),  # IncrementalAlterConfigs
    45: _ALTER,  # AlterPartitionReassignments
    46: _DESCRIBE,  # ListPartitionReassignments
    49: _ALTER_CONFIGS,  # AlterClientQuotas
    50: _DESCRIBE,  # DescribeUserScramCredentials
    51: _ALTER,  # AlterUserScramCredentials
    52: _CLUSTER_ACTION,  # Vote
    53: _CLUSTER_ACTION,  # BeginQuorumEpoch
    54: _CLUSTER_ACTION,  # EndQuorumEpoch
    55: _DESCRIBE,  # DescribeQuorum
    56: _CLUSTER_ACTION,  # AlterPartition
    57: _ALTER,  # UpdateFeatures
    58: _CLUSTER_ACTION,  # Envelope
    59: _CLUSTER_ACTION,  # FetchSnapshot
    60: _ALTER,  # DescribeCluster: controllers are told of to administrators alone
    62: _CLUSTER_ACTION,  # BrokerRegistration
    63: _CLUSTER_ACTION,  # BrokerHeartbeat
    64: _ALTER,  # UnregisterBroker
    67: _CLUSTER_ACTION,  # AllocateProducerIds
    70: _CLUSTER_ACTION,  # ControllerRegistration
    73: _CLUSTER_ACTION,  # AssignReplicasToDirs
    80: _ALTER,  # AddRaftVoter
    81: _ALTER,  # RemoveRaftVoter
    82: _CLUSTER_ACTION,  # UpdateRaftVoter
}


def may_be_asked(api_key: int, operation: Operation, kind: ResourceType, *, on_controller: bool) -> bool:
    """Does the API's row name this right?"""
    row = (CONTROLLER_RIGHTS if on_controller else BROKER_RIGHTS)[api_key]
    if isinstance(row, Operation):
        return operation is row and kind is ResourceType.CLUSTER
    return not isinstance(row, Asked) and (operation, kind) in row
