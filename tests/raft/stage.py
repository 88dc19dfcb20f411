"""Plays transcripts of one raft machine: what others say comes from the transcript, its log is a list of epochs.

Requests that the machine has sent wait for a `reply`; a request of another gets the answer shown as `-> …`. Time is in
milliseconds since the machine was made: `at=` sets it, else it stands still.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, cast

from ottla.errors import ErrorCode, KafkaError
from ottla.model import METADATA_TOPIC, METADATA_TOPIC_ID, Uuid
from ottla.raft.checkpoint import SnapshotId
from ottla.raft.config import RaftConfig
from ottla.raft.control_records import KRAFT_VERSION, KRAFT_VOTERS, LEADER_CHANGE, ControlRecord
from ottla.raft.effects import (
    AppendControlRecords,
    AppendFetched,
    Effect,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeaderChanged,
    LeadershipEstablished,
    PersistQuorumState,
    Resigned,
    Respond,
    RespondWithRecords,
    RespondWithSnapshot,
    SendRequest,
    TruncateTo,
    WriteSnapshotChunk,
)
from ottla.raft.election import ElectionState
from ottla.raft.machine import RaftMachine
from ottla.raft.roles import Candidate, Follower, Leader, Prospective, Role, Unattached
from ottla.raft.roles import Resigned as ResignedRole
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterHistory, VoterSet
from ottla.wire.message import Message
from tests.transcript import Command

if TYPE_CHECKING:
    from ottla.wire.messages.voters_record import VotersRecord

NAMES = {LEADER_CHANGE: "LeaderChange", KRAFT_VERSION: "KRaftVersion", KRAFT_VOTERS: "KRaftVoters"}


class NoJitter(Random):
    """Every election timeout is the shortest, and of the bootstrap servers the first is asked."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0


def directory(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"\0"))


def key(text: str) -> ReplicaKey:
    """From '1:a' or '1'."""
    node, _, name = text.partition(":")
    return ReplicaKey(int(node), directory(name))


def endpoint(node: int, host: str = "host") -> VoterEndpoint:
    return VoterEndpoint("CONTROLLER", host, 9000 + node)


def voters(text: str) -> VoterSet:
    """From '1:a,2:b'."""
    return VoterSet(Voter(key(part), (endpoint(key(part).id),)) for part in text.split(","))


def show_key(key: ReplicaKey) -> str:
    name = bytes(key.directory_id).rstrip(b"\0").decode()
    return f"{key.id}:{name}" if name else str(key.id)


class ListedLog:
    """A log of which only the epochs are kept, one a record."""

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.epochs: list[int] = []
        self.snapshots: dict[SnapshotId, int] = {}

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.epochs)

    @property
    def last_epoch(self) -> int:
        if self.epochs:
            return self.epochs[-1]
        return self.latest_snapshot.epoch if self.latest_snapshot is not None else 0

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return min(self.snapshots, default=None)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return max(self.snapshots, default=None)

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        return self.snapshots.get(snapshot)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        for slot in range(len(self.epochs), 0, -1):
            if self.epochs[slot - 1] <= epoch:
                return self.epochs[slot - 1], self.log_start_offset + slot
        first = self.earliest_snapshot
        return (0 if first is None else first.epoch), self.log_start_offset


def show_role(role: Role) -> str:
    shown = f"{type(role).__name__} epoch={role.epoch}"
    match role:
        case Leader():
            return f"{shown} start={role.epoch_start_offset} end={role.log_end_offset} hw={role.high_watermark}"
        case Follower():
            return f"{shown} leader={role.leader_id}"
        case Unattached() | Prospective():
            leader = "" if role.leader_id is None else f" leader={role.leader_id}"
            return shown + leader + ("" if role.voted is None else f" voted={show_key(role.voted)}")
        case Candidate() | ResignedRole():
            return shown


def show_election(election: ElectionState) -> str:
    voted = "-" if election.voted is None else str(election.voted.id)
    leader = "-" if election.leader_id is None else str(election.leader_id)
    return f"epoch={election.epoch} leader={leader} voted={voted}"


def show_record(record: ControlRecord) -> str:
    shown = NAMES[record.type]
    if record.type == KRAFT_VOTERS:
        found = VoterSet.from_record(cast("VotersRecord", record.message))
        shown += f"[{','.join(show_key(voter.key) for voter in found.voters)}]"
    return shown


def show_error(code: int) -> str:
    return ErrorCode(code).name


class Stage:
    """Carries out a transcript's commands on one machine, and checks B7 and B8 after each."""

    def __init__(self) -> None:
        self.log = ListedLog()
        self.now_ms = 0
        self.machine = self._machine(key("1"), VoterHistory(VoterSet()), 0, {})
        self.sent: dict[int, SendRequest] = {}
        self.high_watermark = -1

    def _machine(
        self, local: ReplicaKey, history: VoterHistory, kraft_version: int, options: dict[str, str]
    ) -> RaftMachine:
        bootstrap = [node for node in options.get("bootstrap", "").split(",") if node]
        return RaftMachine(
            local=local,
            cluster_id="ours",
            voters=history,
            kraft_version=kraft_version,
            log=self.log,
            random=NoJitter(),
            config=RaftConfig(auto_join=options.get("join") == "auto"),
            endpoints=() if options.get("endpoints") == "none" else (endpoint(local.id),),
            bootstrap=tuple(("host", 9000 + int(node)) for node in bootstrap),
            can_become_voter=options.get("role", "controller") == "controller",
        )

    def execute(self, command: Command) -> list[str]:
        self.now_ms = command.integer("at", self.now_ms)
        shown = self._carry_out(command)
        role = self.machine.role
        if isinstance(role, Leader) and role.high_watermark is not None:
            assert role.high_watermark >= self.high_watermark
            assert role.high_watermark > role.epoch_start_offset
            self.high_watermark = role.high_watermark
        return [show_role(role), *shown]

    def _carry_out(self, command: Command) -> list[str]:
        method = getattr(self, "_" + command.name.replace("-", "_"))
        came = method(command)
        if came is None:
            return []
        if came and isinstance(came[0], str):
            return cast("list[str]", came)
        return [self._show(effect) for effect in cast("list[Effect]", came)]

    # The machine and its log.

    def _new(self, command: Command) -> None:
        self.log = ListedLog()
        self.now_ms, self.sent, self.high_watermark = 0, {}, -1
        text = command.options.get("voters")
        self.machine = self._machine(
            key(command.words[0]),
            VoterHistory(VoterSet() if text is None else voters(text)),
            command.integer("kraft", 1 if text else 0),
            command.options,
        )

    def _log(self, command: Command) -> None:
        """`log 1 1 2`: a record of epoch 1, another, one of epoch 2."""
        self.log.epochs = [int(word) for word in command.words]
        self.log.log_start_offset = command.integer("start", 0)

    def _snapshot(self, command: Command) -> None:
        found = self._snapshot_id(command.words[0])
        self.log.snapshots[found] = command.integer("size", 10)
        self.log.log_start_offset = command.integer("start", self.log.log_start_offset)

    def _snapshot_id(self, text: str) -> SnapshotId:
        end, _, epoch = text.partition("@")
        return SnapshotId(int(end), int(epoch))

    def _start(self, command: Command) -> list[Effect]:
        stored = None
        if "epoch" in command.options:
            leader, voted = command.options.get("leader"), command.options.get("voted")
            stored = ElectionState(
                epoch=command.integer("epoch"),
                leader_id=None if leader is None else int(leader),
                voted=None if voted is None else key(voted),
            )
        return self.machine.on_start(stored=stored, now_ms=self.now_ms)

    def _timer(self, command: Command) -> list[Effect]:
        due = self.machine.next_deadline_ms
        assert due is not None
        assert due <= self.now_ms, f"line {command.line}: nothing is due before {due}"
        return self.machine.on_timer(self.now_ms)

    def _due(self, command: Command) -> list[str]:
        return [f"due at {self.machine.next_deadline_ms}"]

    def _appended(self, command: Command) -> list[Effect]:
        base, count = self.log.log_end_offset, command.integer("records")
        self.log.epochs += [self.machine.epoch] * count
        if "voters" in command.options:
            self.machine.on_voters(base + count - 1, voters(command.options["voters"]))
        return self.machine.on_appended(
            epoch=self.machine.epoch,
            base_offset=base,
            end_offset=base + count,
            now_ms=self.now_ms,
            idle="idle" in command.words,
        )

    def _flushed(self, command: Command) -> list[Effect]:
        return self.machine.on_flushed(command.integer("end", self.log.log_end_offset), self.now_ms)

    def _fetched(self, command: Command) -> list[Effect]:
        """What was fetched is appended: `fetched 3 3 voters=1:a,2:b`."""
        self.log.epochs += [int(word) for word in command.words]
        if "voters" in command.options:
            self.machine.on_voters(self.log.log_end_offset - 1, voters(command.options["voters"]))
        return self.machine.on_fetched_appended(self.log.log_end_offset, self.now_ms)

    def _truncated(self, command: Command) -> list[Effect]:
        end = command.integer("end")
        del self.log.epochs[end - self.log.log_start_offset :]
        return self.machine.on_truncated(end, self.now_ms)

    def _installed(self, command: Command) -> list[Effect]:
        found = self._snapshot_id(command.words[0])
        self.log.epochs, self.log.log_start_offset = [], found.end_offset
        self.log.snapshots = {found: 10}
        text = command.options.get("voters")
        return self.machine.on_snapshot_installed(
            found,
            voters=None if text is None else voters(text),
            kraft_version=command.integer("kraft", 1),
            now_ms=self.now_ms,
        )

    def _rejected(self, command: Command) -> list[Effect]:
        return self.machine.on_snapshot_rejected(self._snapshot_id(command.words[0]), self.now_ms)

    def _voters(self, command: Command) -> list[str] | None:
        if command.words:
            self.machine.on_voters(command.integer("offset"), voters(command.words[0]))
            return None
        return [",".join(show_key(voter.key) for voter in self.machine.voters.latest.voters)]

    def _kraft_version(self, command: Command) -> None:
        self.machine.on_kraft_version(command.integer("offset"), int(command.words[0]))

    def _endpoints(self, command: Command) -> list[Effect]:
        found = tuple(endpoint(self.machine.local.id, host) for host in command.words)
        return self.machine.on_endpoints(found, self.now_ms)

    def _upgrade(self, command: Command) -> list[Effect] | list[str]:
        try:
            return self.machine.upgrade_kraft_version(
                int(command.words[0]),
                epoch=command.integer("epoch", self.machine.epoch),
                validate_only="validate" in command.words,
                now_ms=self.now_ms,
            )
        except KafkaError as refusal:
            return [str(refusal)]

    def _resign(self, command: Command) -> list[Effect]:
        return self.machine.on_resign(self.machine.epoch, self.now_ms)

    def _disk_failed(self, command: Command) -> list[Effect]:
        return self.machine.on_disk_failed(self.now_ms)

    def _stop(self, command: Command) -> list[Effect]:
        return self.machine.on_stop(self.now_ms)

    def _may_stop(self, command: Command) -> list[str]:
        return [str(self.machine.may_stop)]

    def _gone(self, command: Command) -> None:
        self.machine.on_cancelled(command.words[0])

    def _describe(self, command: Command) -> list[str]:
        status = self.machine.describe(self.now_ms)
        if status is None:
            return ["only the leader can tell"]
        rows = [("voter", row) for row in status.voters] + [("observer", row) for row in status.observers]
        return [
            f"leader={status.leader_id} epoch={status.leader_epoch} hw={status.high_watermark}",
            *(
                f"{kind} {show_key(row.replica)} end={row.log_end_offset} fetched={row.last_fetch_ms} "
                f"caught-up={row.last_caught_up_ms}"
                for kind, row in rows
            ),
        ]

    # What others ask.

    def _ask(self, command: Command, request: Message) -> list[Effect]:
        token = command.options.get("token", "it")
        return self.machine.on_request(token, request, self.now_ms, version=command.integer("version", 18))

    def _cluster(self, command: Command) -> str:
        return command.options.get("cluster", "ours")

    def _vote(self, command: Command) -> list[Effect]:
        from ottla.wire.messages.vote_request import PartitionData, TopicData, VoteRequest

        candidate = key(command.words[0])
        to = key(command.options["to"]) if "to" in command.options else self.machine.local
        end, _, epoch = command.options["log"].partition("@")
        asked = PartitionData(
            replica_epoch=command.integer("epoch"),
            replica_id=candidate.id,
            replica_directory_id=candidate.directory_id,
            voter_directory_id=to.directory_id,
            last_offset_epoch=int(epoch),
            last_offset=int(end),
            pre_vote="pre" in command.words,
        )
        topics = [TopicData(topic_name=command.options.get("topic", METADATA_TOPIC), partitions=[asked])]
        return self._ask(command, VoteRequest(cluster_id=self._cluster(command), voter_id=to.id, topics=topics))

    def _begin(self, command: Command) -> list[Effect]:
        from ottla.wire.messages.begin_quorum_epoch_request import (
            BeginQuorumEpochRequest,
            LeaderEndpoint,
            PartitionData,
            TopicData,
        )

        leader = int(command.words[0])
        to = key(command.options["to"]) if "to" in command.options else self.machine.local
        asked = PartitionData(
            voter_directory_id=to.directory_id, leader_id=leader, leader_epoch=command.integer("epoch")
        )
        known = [] if "nowhere" in command.words else [endpoint(leader)]
        return self._ask(
            command,
            BeginQuorumEpochRequest(
                cluster_id=self._cluster(command),
                voter_id=to.id,
                topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[asked])],
                leader_endpoints=[LeaderEndpoint(name=e.name, host=e.host, port=e.port) for e in known],
            ),
        )

    def _end(self, command: Command) -> list[Effect]:
        from ottla.wire.messages.end_quorum_epoch_request import (
            EndQuorumEpochRequest,
            PartitionData,
            ReplicaInfo,
            TopicData,
        )

        preferred = [key(text) for text in command.options.get("successors", "").split(",") if text]
        asked = PartitionData(
            leader_id=int(command.words[0]),
            leader_epoch=command.integer("epoch"),
            preferred_candidates=[
                ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id) for key in preferred
            ],
        )
        topics = [TopicData(topic_name=METADATA_TOPIC, partitions=[asked])]
        return self._ask(command, EndQuorumEpochRequest(cluster_id=self._cluster(command), topics=topics))

    def _fetch(self, command: Command) -> list[Effect]:
        from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState

        replica = key(command.words[0])
        asked = FetchPartition(
            current_leader_epoch=command.integer("epoch", self.machine.epoch),
            fetch_offset=command.integer("offset"),
            last_fetched_epoch=command.integer("last"),
            replica_directory_id=replica.directory_id,
            high_watermark=command.integer("hw", 1 << 40),
        )
        return self._ask(
            command,
            FetchRequest(
                cluster_id=self._cluster(command),
                replica_state=ReplicaState(replica_id=replica.id),
                max_wait_ms=command.integer("wait", 0),
                topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[asked])],
            ),
        )

    def _fetch_snapshot(self, command: Command) -> list[Effect]:
        from ottla.wire.messages.fetch_snapshot_request import FetchSnapshotRequest, PartitionSnapshot, TopicSnapshot
        from ottla.wire.messages.fetch_snapshot_request import SnapshotId as SnapshotIdData

        replica, found = key(command.words[0]), self._snapshot_id(command.words[1])
        asked = PartitionSnapshot(
            current_leader_epoch=command.integer("epoch", self.machine.epoch),
            snapshot_id=SnapshotIdData(end_offset=found.end_offset, epoch=found.epoch),
            position=command.integer("position", 0),
            replica_directory_id=replica.directory_id,
        )
        topics = [TopicSnapshot(name=command.options.get("topic", METADATA_TOPIC), partitions=[asked])]
        return self._ask(
            command,
            FetchSnapshotRequest(
                cluster_id=self._cluster(command),
                replica_id=replica.id,
                max_bytes=command.integer("bytes", 1 << 20),
                topics=topics,
            ),
        )

    def _add(self, command: Command) -> list[Effect]:
        from ottla.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener

        replica = key(command.words[0])
        return self._ask(
            command,
            AddRaftVoterRequest(
                cluster_id=self._cluster(command),
                voter_id=replica.id,
                voter_directory_id=replica.directory_id,
                listeners=[
                    Listener(name=command.options.get("listener", "CONTROLLER"), host="host", port=9000 + replica.id)
                ],
                ack_when_committed=command.options.get("ack", "committed") == "committed",
            ),
        )

    def _remove(self, command: Command) -> list[Effect]:
        from ottla.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest

        replica = key(command.words[0])
        return self._ask(
            command,
            RemoveRaftVoterRequest(
                cluster_id=self._cluster(command), voter_id=replica.id, voter_directory_id=replica.directory_id
            ),
        )

    def _update(self, command: Command) -> list[Effect]:
        from ottla.wire.messages.update_raft_voter_request import (
            KRaftVersionFeature,
            Listener,
            UpdateRaftVoterRequest,
        )

        replica = key(command.words[0])
        return self._ask(
            command,
            UpdateRaftVoterRequest(
                cluster_id=self._cluster(command),
                current_leader_epoch=command.integer("epoch", self.machine.epoch),
                voter_id=replica.id,
                voter_directory_id=replica.directory_id,
                listeners=[
                    Listener(name="CONTROLLER", host=command.options.get("host", "host"), port=9000 + replica.id)
                ],
                kraft_version_feature=KRaftVersionFeature(
                    min_supported_version=command.integer("min", 0), max_supported_version=command.integer("max", 1)
                ),
            ),
        )

    # What others answer.

    def _reply(self, command: Command) -> list[Effect]:
        """`reply 2 granted`, `reply 2 error=… epoch=… leader=…`: to the last request to node 2."""
        node = int(command.words[0])
        sent = self.sent.pop(node)
        if "lost" in command.words:
            return self.machine.on_send_failed(sent.correlation_id, self.now_ms)
        if "unsupported" in command.words:
            return self.machine.on_send_failed(sent.correlation_id, self.now_ms, ErrorCode.UNSUPPORTED_VERSION)
        response = self._response(command, sent)
        return self.machine.on_response(sent.correlation_id, response, self.now_ms)

    def _response(self, command: Command, sent: SendRequest) -> Message:
        from ottla.wire.messages import begin_quorum_epoch_response as begin
        from ottla.wire.messages import end_quorum_epoch_response as end
        from ottla.wire.messages import vote_response as vote
        from ottla.wire.messages.add_raft_voter_response import AddRaftVoterResponse
        from ottla.wire.messages.api_versions_response import ApiVersionsResponse, SupportedFeatureKey
        from ottla.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse
        from ottla.wire.messages.update_raft_voter_response import CurrentLeader, UpdateRaftVoterResponse

        error = ErrorCode[command.options.get("error", "NONE")]
        epoch, leader = command.integer("epoch", self.machine.epoch), command.integer("leader", -1)
        known = [] if leader < 0 or "nowhere" in command.words else [endpoint(leader)]
        match type(sent.request).__name__:
            case "VoteRequest":
                answer = vote.PartitionData(
                    error_code=error, leader_id=leader, leader_epoch=epoch, vote_granted="granted" in command.words
                )
                return vote.VoteResponse(
                    topics=[vote.TopicData(topic_name=METADATA_TOPIC, partitions=[answer])],
                    node_endpoints=[vote.NodeEndpoint(node_id=leader, host=e.host, port=e.port) for e in known],
                )
            case "BeginQuorumEpochRequest":
                begun = begin.PartitionData(error_code=error, leader_id=leader, leader_epoch=epoch)
                return begin.BeginQuorumEpochResponse(
                    topics=[begin.TopicData(topic_name=METADATA_TOPIC, partitions=[begun])]
                )
            case "EndQuorumEpochRequest":
                ended = end.PartitionData(error_code=error, leader_id=leader, leader_epoch=epoch)
                return end.EndQuorumEpochResponse(topics=[end.TopicData(topic_name=METADATA_TOPIC, partitions=[ended])])
            case "FetchRequest":
                return self._fetch_response(command, error, leader, epoch, known)
            case "FetchSnapshotRequest":
                return self._chunk(command, error, leader, epoch)
            case "ApiVersionsRequest":
                feature = SupportedFeatureKey(
                    name="kraft.version", min_version=command.integer("min", 0), max_version=command.integer("max", 1)
                )
                return ApiVersionsResponse(error_code=error, supported_features=[feature])
            case "UpdateRaftVoterRequest":
                return UpdateRaftVoterResponse(
                    error_code=error, current_leader=CurrentLeader(leader_id=leader, leader_epoch=epoch)
                )
            case "AddRaftVoterRequest":
                return AddRaftVoterResponse(error_code=error)
            case "RemoveRaftVoterRequest":
                return RemoveRaftVoterResponse(error_code=error)
            case other:
                raise AssertionError(f"line {command.line}: no reply to {other}")

    def _fetch_response(
        self, command: Command, error: ErrorCode, leader: int, epoch: int, known: list[VoterEndpoint]
    ) -> Message:
        from ottla.wire.messages import fetch_response as fetch

        answer = fetch.PartitionData(
            error_code=error,
            high_watermark=command.integer("hw", -1),
            current_leader=fetch.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
            records=b"records" if "records" in command.words else b"",
        )
        if "diverging" in command.options:
            end, _, of = command.options["diverging"].partition("@")
            answer.diverging_epoch = fetch.EpochEndOffset(epoch=int(of), end_offset=int(end))
        if "snapshot" in command.options:
            found = self._snapshot_id(command.options["snapshot"])
            answer.snapshot_id = fetch.SnapshotId(end_offset=found.end_offset, epoch=found.epoch)
        return fetch.FetchResponse(
            responses=[fetch.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[answer])],
            node_endpoints=[fetch.NodeEndpoint(node_id=leader, host=e.host, port=e.port) for e in known],
        )

    def _chunk(self, command: Command, error: ErrorCode, leader: int, epoch: int) -> Message:
        from ottla.wire.messages import fetch_snapshot_response as chunk

        found = self._snapshot_id(command.options.get("snapshot", "0@0"))
        answer = chunk.PartitionSnapshot(
            error_code=error,
            snapshot_id=chunk.SnapshotId(end_offset=found.end_offset, epoch=found.epoch),
            current_leader=chunk.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
            size=command.integer("size", 0),
            position=command.integer("position", 0),
            unaligned_records=b"x" * command.integer("bytes", 0),
        )
        return chunk.FetchSnapshotResponse(topics=[chunk.TopicSnapshot(name=METADATA_TOPIC, partitions=[answer])])

    # What is shown.

    def _show(self, effect: Effect) -> str:
        match effect:
            case PersistQuorumState():
                return f"Persist({show_election(effect.election)})"
            case SendRequest():
                self.sent[effect.node_id] = effect
                return f"{self._show_request(effect.request)} => {effect.node_id}"
            case Respond():
                return f"-> {self._show_response(effect.response)}" + self._show_token(effect.token)
            case RespondWithRecords():
                shown = self._show_response(effect.response)
                return f"-> {shown}, records from {effect.offset}" + self._show_token(effect.token)
            case RespondWithSnapshot():
                return f"-> {effect.snapshot_id.file_name}, {effect.max_bytes} bytes from {effect.position}"
            case AppendControlRecords():
                return f"Append(epoch={effect.epoch} {' '.join(map(show_record, effect.records))})"
            case AppendFetched():
                return f"AppendFetched(epoch={effect.leader_epoch})"
            case TruncateTo():
                return f"TruncateTo({effect.offset})"
            case WriteSnapshotChunk():
                return f"WriteSnapshotChunk({effect.position}..{effect.position + len(effect.data)})"
            case InstallSnapshot():
                return f"InstallSnapshot({effect.snapshot_id.end_offset}@{effect.snapshot_id.epoch})"
            case HighWatermarkAdvanced():
                return f"HighWatermarkAdvanced({effect.offset})"
            case LeaderChanged():
                where = "" if effect.endpoint is None else f" at {effect.endpoint.host}:{effect.endpoint.port}"
                return f"LeaderChanged({effect.leader_id} epoch={effect.epoch}{where})"
            case LeadershipEstablished():
                return f"LeadershipEstablished(epoch={effect.epoch})"
            case Resigned():
                return f"Resigned(epoch={effect.epoch})"

    def _show_token(self, token: object) -> str:
        return "" if token == "it" else f" to {token}"

    def _show_request(self, request: Message) -> str:
        from ottla.wire.messages.begin_quorum_epoch_request import BeginQuorumEpochRequest
        from ottla.wire.messages.end_quorum_epoch_request import EndQuorumEpochRequest
        from ottla.wire.messages.fetch_request import FetchRequest
        from ottla.wire.messages.fetch_snapshot_request import FetchSnapshotRequest
        from ottla.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
        from ottla.wire.messages.vote_request import VoteRequest

        name = type(request).__name__.removesuffix("Request")
        match request:
            case VoteRequest():
                vote = request.topics[0].partitions[0]
                name = "PreVote" if vote.pre_vote else "Vote"
                return f"{name}(epoch={vote.replica_epoch} log={vote.last_offset}@{vote.last_offset_epoch})"
            case BeginQuorumEpochRequest():
                return f"{name}(epoch={request.topics[0].partitions[0].leader_epoch})"
            case EndQuorumEpochRequest():
                ended = request.topics[0].partitions[0]
                successors = ",".join(str(info.candidate_id) for info in ended.preferred_candidates)
                return f"{name}(epoch={ended.leader_epoch} successors={successors})"
            case FetchRequest():
                fetch = request.topics[0].partitions[0]
                return (
                    f"{name}(epoch={fetch.current_leader_epoch} from={fetch.fetch_offset}@{fetch.last_fetched_epoch})"
                )
            case FetchSnapshotRequest():
                chunk = request.topics[0].partitions[0]
                return f"{name}({chunk.snapshot_id.end_offset}@{chunk.snapshot_id.epoch} position={chunk.position})"
            case RemoveRaftVoterRequest():
                return f"{name}({show_key(ReplicaKey(request.voter_id, request.voter_directory_id))})"
            case _:
                return name

    def _show_response(self, response: Message) -> str:
        from ottla.wire.messages.add_raft_voter_response import AddRaftVoterResponse
        from ottla.wire.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse
        from ottla.wire.messages.end_quorum_epoch_response import EndQuorumEpochResponse
        from ottla.wire.messages.fetch_response import FetchResponse
        from ottla.wire.messages.fetch_snapshot_response import FetchSnapshotResponse
        from ottla.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse
        from ottla.wire.messages.update_raft_voter_response import UpdateRaftVoterResponse
        from ottla.wire.messages.vote_response import VoteResponse

        match response:
            case VoteResponse() | BeginQuorumEpochResponse() | EndQuorumEpochResponse():
                if not response.topics:
                    return show_error(response.error_code)
                answer = response.topics[0].partitions[0]
                shown = show_error(answer.error_code)
                if shown == "NONE" and isinstance(response, VoteResponse):
                    shown = "granted" if response.topics[0].partitions[0].vote_granted else "refused"
                where = "".join(f" at {e.host}:{e.port}" for e in response.node_endpoints)
                return f"{shown} epoch={answer.leader_epoch} leader={answer.leader_id}{where}"
            case FetchResponse():
                return self._show_fetch(response)
            case FetchSnapshotResponse():
                if not response.topics:
                    return show_error(response.error_code)
                chunk = response.topics[0].partitions[0]
                return f"{show_error(chunk.error_code)} leader={chunk.current_leader.leader_id}"
            case AddRaftVoterResponse() | RemoveRaftVoterResponse():
                because = f": {response.error_message}" if response.error_message else ""
                return show_error(response.error_code) + because
            case UpdateRaftVoterResponse():
                leader = response.current_leader
                return f"{show_error(response.error_code)} epoch={leader.leader_epoch} leader={leader.leader_id}"
            case _:
                raise AssertionError(f"what is {response}?")

    def _show_fetch(self, response: Message) -> str:
        from ottla.wire.messages.fetch_response import FetchResponse

        assert isinstance(response, FetchResponse)
        if not response.responses:
            return show_error(response.error_code)
        answer = response.responses[0].partitions[0]
        leader = answer.current_leader
        shown = f"{show_error(answer.error_code)} epoch={leader.leader_epoch} leader={leader.leader_id}"
        if answer.diverging_epoch.epoch >= 0:
            shown += f", diverging at {answer.diverging_epoch.end_offset}@{answer.diverging_epoch.epoch}"
        if answer.snapshot_id.epoch >= 0:
            shown += f", snapshot {answer.snapshot_id.end_offset}@{answer.snapshot_id.epoch}"
        return f"{shown} hw={answer.high_watermark}" if answer.error_code == ErrorCode.NONE else shown
