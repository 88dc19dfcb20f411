"""The quorum-state file: the epoch, and what this node has promised in it.

Kafka's JSON, in both of its versions: 0 where voters are known by id alone (kraft.version 0), 1 with directory ids.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ottla.errors import StartupError
from ottla.model import ZERO_UUID, uuid_from_text, uuid_to_text
from ottla.raft.voters import ReplicaKey

QUORUM_STATE_FILE = "quorum-state"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionState:
    """What is durable about an epoch: its leader if this node knows it, and this node's vote if it gave one."""

    epoch: int
    leader_id: int | None = None
    voted: ReplicaKey | None = None


NEVER_ELECTED = ElectionState(epoch=0)


def encode_quorum_state(state: ElectionState, *, kraft_version: int, voter_ids: tuple[int, ...]) -> bytes:
    leader = -1 if state.leader_id is None else state.leader_id
    voted = ReplicaKey(-1) if state.voted is None else state.voted
    fields: dict[str, object]
    if kraft_version == 0:
        fields = {
            "clusterId": "",
            "leaderId": leader,
            "leaderEpoch": state.epoch,
            "votedId": voted.id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in voter_ids],
            "data_version": 0,
        }
    else:
        fields = {
            "leaderId": leader,
            "leaderEpoch": state.epoch,
            "votedId": voted.id,
            "votedDirectoryId": uuid_to_text(voted.directory_id),
            "data_version": 1,
        }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes, path: str) -> ElectionState:
    """Raises `StartupError`: without its promises a voter must not vote again."""
    try:
        fields = json.loads(data)
        version = _number(fields["data_version"], least=0)
        if version > 1:
            raise StartupError(f"{path} was written by a newer release, as version {version}: use that release")
        epoch = _number(fields["leaderEpoch"], least=0)
        leader, voted_id = _number(fields["leaderId"], least=-1), _number(fields["votedId"], least=-1)
        directory = uuid_from_text(fields["votedDirectoryId"]) if version == 1 else ZERO_UUID
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        # An only voter has promised nothing to anybody else, and its log knows the epochs.
        raise StartupError(
            f"{path} is damaged (it is not what a node writes): restore it from a backup, or remove this voter from "
            f"the quorum and format its directory anew; a quorum's only voter needs nothing but that file removed"
        ) from error
    return ElectionState(
        epoch=epoch,
        leader_id=leader if leader >= 0 else None,
        voted=ReplicaKey(voted_id, directory) if voted_id >= 0 else None,
    )


def _number(value: object, *, least: int) -> int:
    """An INT32 of the file, which has nothing below `least`. Raises `ValueError`."""
    if type(value) is not int or not least <= value < 1 << 31:
        raise ValueError(value)
    return value
