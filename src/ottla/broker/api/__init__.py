"""One module an API. To add one: a row here, a module with `handle`, and a test.

`handle(context, request)` gets the decoded request and returns the response, or, when the answer has to wait, a
`Promise` of it, or any other awaitable, which costs a task. Produce and Fetch, which are tuned by hand, are started by
the dispatcher directly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.wire.message import Message

Handler = Callable[["Context", Any], "Message | Awaitable[Message]"]

HANDLERS = {
    0: "produce",
    1: "fetch",
    2: "list_offsets",
    3: "metadata",
    8: "offset_commit",
    9: "offset_fetch",
    10: "find_coordinator",
    11: "join_group",
    12: "heartbeat",
    13: "leave_group",
    14: "sync_group",
    15: "describe_groups",
    16: "list_groups",
    17: "sasl_handshake",
    18: "api_versions",
    19: "forwarded",  # CreateTopics
    20: "forwarded",  # DeleteTopics
    21: "delete_records",
    22: "init_producer_id",
    23: "offset_for_leader_epoch",
    24: "add_partitions_to_txn",
    25: "add_offsets_to_txn",
    26: "end_txn",
    27: "write_txn_markers",
    28: "txn_offset_commit",
    29: "describe_acls",
    30: "forwarded",  # CreateAcls
    31: "forwarded",  # DeleteAcls
    32: "describe_configs",
    33: "alter_configs",
    34: "alter_replica_log_dirs",
    35: "describe_log_dirs",
    36: "sasl_authenticate",
    37: "forwarded",  # CreatePartitions
    38: "create_delegation_token",
    39: "change_delegation_token",  # RenewDelegationToken
    40: "change_delegation_token",  # ExpireDelegationToken
    41: "describe_delegation_token",
    42: "delete_groups",
    43: "forwarded",  # ElectLeaders
    44: "incremental_alter_configs",
    45: "forwarded",  # AlterPartitionReassignments
    46: "forwarded",  # ListPartitionReassignments
    47: "offset_delete",
    48: "describe_client_quotas",
    49: "forwarded",  # AlterClientQuotas
    50: "describe_user_scram_credentials",
    51: "forwarded",  # AlterUserScramCredentials
    55: "forwarded",  # DescribeQuorum
    57: "forwarded",  # UpdateFeatures
    60: "describe_cluster",
    61: "describe_producers",
    64: "forwarded",  # UnregisterBroker
    65: "describe_transactions",
    66: "list_transactions",
    68: "consumer_group_heartbeat",
    69: "consumer_group_describe",
    71: "get_telemetry_subscriptions",
    72: "push_telemetry",
    74: "list_config_resources",
    75: "describe_topic_partitions",
    80: "forwarded",  # AddRaftVoter
    81: "forwarded",  # RemoveRaftVoter
}
"""The module of each API that this node serves, by key; loaded when first asked for."""

CONTROLLER_HANDLERS = {
    1: "raft_fetch",
    17: "sasl_handshake",
    18: "api_versions",
    19: "on_controller",  # CreateTopics
    20: "on_controller",  # DeleteTopics
    29: "describe_acls",
    30: "on_controller",  # CreateAcls
    31: "on_controller",  # DeleteAcls
    32: "describe_configs",
    33: "on_controller",  # AlterConfigs
    36: "sasl_authenticate",
    37: "on_controller",  # CreatePartitions
    38: "create_delegation_token",
    39: "change_delegation_token",  # RenewDelegationToken
    40: "change_delegation_token",  # ExpireDelegationToken
    41: "describe_delegation_token",
    43: "on_controller",  # ElectLeaders
    44: "incremental_alter_configs",
    45: "on_controller",  # AlterPartitionReassignments
    46: "on_controller",  # ListPartitionReassignments
    49: "on_controller",  # AlterClientQuotas
    50: "describe_user_scram_credentials",
    51: "on_controller",  # AlterUserScramCredentials
    52: "vote",
    53: "begin_quorum_epoch",
    54: "end_quorum_epoch",
    55: "describe_quorum",
    56: "on_controller",  # AlterPartition
    57: "on_controller",  # UpdateFeatures
    58: "envelope",
    59: "fetch_snapshot",
    60: "describe_cluster",
    62: "on_controller",  # BrokerRegistration
    63: "on_controller",  # BrokerHeartbeat
    64: "on_controller",  # UnregisterBroker
    67: "on_controller",  # AllocateProducerIds
    70: "on_controller",  # ControllerRegistration
    73: "on_controller",  # AssignReplicasToDirs
    80: "add_raft_voter",
    81: "remove_raft_voter",
    82: "update_raft_voter",
}
"""Those that the controller's listener serves."""


def load(module: str) -> Handler:
    handler: Handler = import_module(f"{__name__}.{module}").handle
    return handler
