"""One module an API. To add one: a row here, a module with `handle`, and a test.

`handle(context, request)` gets the decoded request and returns the response, or an awaitable of it when the answer has
to wait. Produce and Fetch, which are tuned by hand, are started by the dispatcher directly.
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
    10: "find_coordinator",
    18: "api_versions",
    19: "create_topics",
    20: "delete_topics",
    21: "delete_records",
    22: "init_producer_id",
    23: "offset_for_leader_epoch",
    32: "describe_configs",
    33: "alter_configs",
    35: "describe_log_dirs",
    37: "create_partitions",
    44: "incremental_alter_configs",
    55: "describe_quorum",
    60: "describe_cluster",
    61: "describe_producers",
    71: "get_telemetry_subscriptions",
    72: "push_telemetry",
    74: "list_config_resources",
    75: "describe_topic_partitions",
    80: "add_raft_voter",
    81: "remove_raft_voter",
}
"""The module of each API that this node serves, by key; loaded when first asked for."""

CONTROLLER_HANDLERS = {
    1: "raft_fetch",
    18: "api_versions",
    19: "create_topics",
    20: "delete_topics",
    32: "describe_configs",
    33: "alter_configs",
    37: "create_partitions",
    44: "incremental_alter_configs",
    52: "vote",
    53: "begin_quorum_epoch",
    54: "end_quorum_epoch",
    55: "describe_quorum",
    59: "fetch_snapshot",
    60: "describe_cluster",
    80: "add_raft_voter",
    81: "remove_raft_voter",
    82: "update_raft_voter",
}
"""Those that the controller's listener serves."""


def load(module: str) -> Handler:
    handler: Handler = import_module(f"{__name__}.{module}").handle
    return handler
