"""What a client must be allowed to do before an API is served at all: one row an API, for each kind of listener.

Where a right to the whole cluster is asked, the request is refused before its handler sees it. Where the answer depends
on what the request names, the handler asks for itself, with `Context.may`. What is handed on to the active controller
is judged there, in the name of the client. Read by `broker/authorisation`; that no API is forgotten is a test.
"""

from __future__ import annotations

from enum import Enum

from ottla.metadata.acls import Operation


class Asked(Enum):
    BY_HANDLER = "of each resource that the request names, by its handler"
    BY_CONTROLLER = "by the active controller, to which the request is handed on"
    OF_OWNERS = "by the active controller, whose answer depends on whose the thing is and not on any entry"
    NEVER = "of nobody"


Right = Operation | Asked

_ALTER, _ALTER_CONFIGS, _CLUSTER_ACTION = Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CLUSTER_ACTION
_DESCRIBE, _DESCRIBE_CONFIGS = Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS

BROKER_RIGHTS: dict[int, Right] = {
    0: Asked.BY_HANDLER,  # Produce
    1: Asked.BY_HANDLER,  # Fetch
    2: Asked.BY_HANDLER,  # ListOffsets
    3: Asked.BY_HANDLER,  # Metadata
    8: Asked.BY_HANDLER,  # OffsetCommit
    9: Asked.BY_HANDLER,  # OffsetFetch
    10: Asked.BY_HANDLER,  # FindCoordinator
    11: Asked.BY_HANDLER,  # JoinGroup
    12: Asked.BY_HANDLER,  # Heartbeat
    13: Asked.BY_HANDLER,  # LeaveGroup
    14: Asked.BY_HANDLER,  # SyncGroup
    15: Asked.BY_HANDLER,  # DescribeGroups
    16: Asked.BY_HANDLER,  # ListGroups
    17: Asked.NEVER,  # SaslHandshake
    18: Asked.NEVER,  # ApiVersions
    19: Asked.BY_CONTROLLER,  # CreateTopics
    20: Asked.BY_CONTROLLER,  # DeleteTopics
    21: Asked.BY_HANDLER,  # DeleteRecords
    22: Asked.BY_HANDLER,  # InitProducerId
    23: Asked.BY_HANDLER,  # OffsetForLeaderEpoch
    24: Asked.BY_HANDLER,  # AddPartitionsToTxn
    25: Asked.BY_HANDLER,  # AddOffsetsToTxn
    26: Asked.BY_HANDLER,  # EndTxn
    27: Asked.BY_HANDLER,  # WriteTxnMarkers
    28: Asked.BY_HANDLER,  # TxnOffsetCommit
    29: _DESCRIBE,  # DescribeAcls
    30: Asked.BY_CONTROLLER,  # CreateAcls
    31: Asked.BY_CONTROLLER,  # DeleteAcls
    32: Asked.BY_HANDLER,  # DescribeConfigs
    33: Asked.BY_CONTROLLER,  # AlterConfigs
    34: _ALTER,  # AlterReplicaLogDirs
    35: _DESCRIBE,  # DescribeLogDirs
    36: Asked.NEVER,  # SaslAuthenticate
    37: Asked.BY_CONTROLLER,  # CreatePartitions
    38: Asked.BY_HANDLER,  # CreateDelegationToken
    39: Asked.OF_OWNERS,  # RenewDelegationToken
    40: Asked.OF_OWNERS,  # ExpireDelegationToken
    41: Asked.BY_HANDLER,  # DescribeDelegationToken
    42: Asked.BY_HANDLER,  # DeleteGroups
    43: Asked.BY_CONTROLLER,  # ElectLeaders
    44: Asked.BY_HANDLER,  # IncrementalAlterConfigs: of loggers, which are this node's own
    45: Asked.BY_CONTROLLER,  # AlterPartitionReassignments
    46: Asked.BY_CONTROLLER,  # ListPartitionReassignments
    47: Asked.BY_HANDLER,  # OffsetDelete
    48: _DESCRIBE_CONFIGS,  # DescribeClientQuotas
    49: Asked.BY_CONTROLLER,  # AlterClientQuotas
    50: _DESCRIBE,  # DescribeUserScramCredentials
    51: Asked.BY_CONTROLLER,  # AlterUserScramCredentials
    55: Asked.BY_CONTROLLER,  # DescribeQuorum
    57: Asked.BY_CONTROLLER,  # UpdateFeatures
    60: Asked.BY_HANDLER,  # DescribeCluster
    61: Asked.BY_HANDLER,  # DescribeProducers
    64: Asked.BY_CONTROLLER,  # UnregisterBroker
    65: Asked.BY_HANDLER,  # DescribeTransactions
    66: Asked.BY_HANDLER,  # ListTransactions
    68: Asked.BY_HANDLER,  # ConsumerGroupHeartbeat
    69: Asked.BY_HANDLER,  # ConsumerGroupDescribe
    71: Asked.NEVER,  # GetTelemetrySubscriptions
    72: Asked.NEVER,  # PushTelemetry
    74: _DESCRIBE_CONFIGS,  # ListConfigResources
    75: Asked.BY_HANDLER,  # DescribeTopicPartitions
    80: Asked.BY_CONTROLLER,  # AddRaftVoter
    81: Asked.BY_CONTROLLER,  # RemoveRaftVoter
}

CONTROLLER_RIGHTS: dict[int, Right] = {
    1: _CLUSTER_ACTION,  # Fetch
    17: Asked.NEVER,  # SaslHandshake
    18: Asked.NEVER,  # ApiVersions
    19: Asked.BY_HANDLER,  # CreateTopics
    20: Asked.BY_HANDLER,  # DeleteTopics
    29: _DESCRIBE,  # DescribeAcls
    30: _ALTER,  # CreateAcls
    31: _ALTER,  # DeleteAcls
    32: Asked.BY_HANDLER,  # DescribeConfigs
    33: Asked.BY_HANDLER,  # AlterConfigs
    36: Asked.NEVER,  # SaslAuthenticate
    37: Asked.BY_HANDLER,  # CreatePartitions
    38: Asked.BY_HANDLER,  # CreateDelegationToken
    39: Asked.OF_OWNERS,  # RenewDelegationToken
    40: Asked.OF_OWNERS,  # ExpireDelegationToken
    41: Asked.BY_HANDLER,  # DescribeDelegationToken
    43: _ALTER,  # ElectLeaders
    44: Asked.BY_HANDLER,  # IncrementalAlterConfigs
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
