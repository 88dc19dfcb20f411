"""The raft machine, in dialogues: see transcripts/*.txt."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.model import Uuid
from ottla.raft.control_records import KRAFT_VERSION, KRAFT_VOTERS, LEADER_CHANGE, ControlRecord
from ottla.raft.effects import (
    AppendControlRecords,
    Effect,
    HighWatermarkAdvanced,
    LeadershipEstablished,
    PersistQuorumState,
    Resigned,
)
from ottla.raft.election import ElectionState
from ottla.raft.machine import RaftMachine
from ottla.raft.roles import Leader
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterHistory, VoterSet
from tests.transcript import Command, run, transcripts


def directory(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"\0"))


def voters(text: str) -> VoterSet:
    """From '1:a,2:b'."""
    found = []
    for part in text.split(","):
        node, _, name = part.partition(":")
        found.append(Voter(ReplicaKey(int(node), directory(name)), (VoterEndpoint("CONTROLLER", "host", 9093),)))
    return VoterSet(found)


NAMES = {LEADER_CHANGE: "LeaderChange", KRAFT_VERSION: "KRaftVersion", KRAFT_VOTERS: "KRaftVoters"}


def show_record(record: ControlRecord) -> str:
    return NAMES[record.type]


def show_election(election: ElectionState) -> str:
    voted = "-" if election.voted is None else str(election.voted.id)
    leader = "-" if election.leader_id is None else str(election.leader_id)
    return f"epoch={election.epoch} leader={leader} voted={voted}"


def show(effect: Effect) -> str:
    match effect:
        case PersistQuorumState():
            return f"PersistQuorumState({show_election(effect.election)})"
        case AppendControlRecords():
            return f"AppendControlRecords(epoch={effect.epoch} {' '.join(map(show_record, effect.records))})"
        case HighWatermarkAdvanced():
            return f"HighWatermarkAdvanced({effect.offset})"
        case LeadershipEstablished():
            return f"LeadershipEstablished(epoch={effect.epoch})"
        case Resigned():
            return f"Resigned(epoch={effect.epoch})"


class Stage:
    """Carries out a transcript's commands on one machine, and checks B7 and B8 after each."""

    def __init__(self) -> None:
        self.machine = RaftMachine(local=ReplicaKey(1), voters=VoterHistory(VoterSet()), kraft_version=0)
        self.promise: ElectionState | None = None
        self.high_watermark = -1

    def execute(self, command: Command) -> list[str]:
        lines = self._carry_out(command)
        role = self.machine.role
        shown = [f"{type(role).__name__} epoch={role.epoch}"]
        if isinstance(role, Leader):
            shown[0] += f" start={role.epoch_start_offset} end={role.log_end_offset} hw={role.high_watermark}"
            if role.high_watermark is not None:
                assert role.high_watermark >= self.high_watermark
                assert role.high_watermark > role.epoch_start_offset
                self.high_watermark = role.high_watermark
        return shown + lines

    def _carry_out(self, command: Command) -> list[str]:
        machine = self.machine
        effects: list[Effect] = []
        match command.name:
            case "machine":
                text = command.options.get("voters")
                self.machine = RaftMachine(
                    local=ReplicaKey(command.integer("id"), directory(command.options.get("directory", ""))),
                    voters=VoterHistory(VoterSet() if text is None else voters(text)),
                    kraft_version=command.integer("kraft", 1),
                )
                self.high_watermark = -1
            case "start":
                stored = None
                if "epoch" in command.options:
                    leader = command.options.get("leader")
                    voted = command.options.get("voted")
                    stored = ElectionState(
                        epoch=command.integer("epoch"),
                        leader_id=None if leader is None else int(leader),
                        voted=None if voted is None else ReplicaKey(int(voted)),
                    )
                effects = machine.on_start(
                    stored=stored,
                    log_end_offset=command.integer("end", 0),
                    log_end_epoch=command.integer("end_epoch", -1),
                )
            case "persisted":
                election = self.promise or ElectionState(epoch=0)
                if "epoch" in command.options:
                    election = ElectionState(epoch=command.integer("epoch"), leader_id=1)
                effects = machine.on_quorum_state_persisted(election)
            case "appended":
                role = machine.role
                assert isinstance(role, Leader)
                end = role.log_end_offset + command.integer("records")
                effects = machine.on_appended(epoch=role.epoch, base_offset=role.log_end_offset, end_offset=end)
            case "flushed":
                effects = machine.on_flushed(command.integer("end"))
            case "voters":
                machine.on_voters(command.integer("at"), voters(command.words[0]))
            case "endpoints":
                endpoints = tuple(VoterEndpoint("CONTROLLER", host, 9093) for host in command.words)
                effects = machine.on_endpoints(endpoints)
            case "disk-failed":
                effects = machine.on_disk_failed()
            case "stop":
                effects = machine.on_stop()
            case other:
                raise AssertionError(f"no such command: {other}")
        for effect in effects:
            if isinstance(effect, PersistQuorumState):
                self.promise = effect.election
        return [show(effect) for effect in effects]


@pytest.mark.parametrize("path", transcripts(Path(__file__).parent / "transcripts"), ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    run(path, Stage().execute, request.config)
