"""The partition leader's machine, in dialogues: see transcripts/*.txt.

leader 1 replicas=1,2,3 isr=1,2 epoch=4 start=10 hw=8 min_isr=2   broker 1 takes the epoch; others are registered
end 12                     our own log end
fetch 2 from=12            a follower's fetch; epoch=… is its broker's, leader_end=… our log end before the read
at 30000                   the time from now on, in milliseconds
tick
answer epoch=3 isr=1,2     the controller's answer to what is in flight; error=… refuses
partition epoch=3 isr=1,2  the metadata's word
brokers 1,2:7,3:9!         who is alive, with which epoch (101, 102, … unless said), and who shuts down (!)
min_isr 1
low 4                      the low watermark, where our own log starts at 4
readable 7                 who else could serve offset 7 to a consumer
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.partition import Effect, HighWatermarkAdvanced, LiveBroker, PartitionLeader, ProposeIsr
from tests.transcript import Command, run, transcripts


def registered(replica: int) -> int:
    """The broker epoch of a broker of which the transcript says nothing else."""
    return 100 + replica


class Stage:
    """Carries out the commands of a transcript on one leader."""

    def __init__(self) -> None:
        self._leader: PartitionLeader | None = None
        self._now_ms = 0
        self._asked: ProposeIsr | None = None
        self._said: list[str] = []

    def execute(self, command: Command) -> list[str]:
        if command.name == "leader":
            return self._lead(command)
        leader = self._leader
        assert leader is not None
        try:
            return self._show(self._do(leader, command))
        except KafkaError as error:
            return [*self._show(()), error.code.name]

    def _lead(self, command: Command) -> list[str]:
        replicas = tuple(command.integers("replicas"))
        self._now_ms = command.integer("at", 0)
        self._leader = PartitionLeader(
            replica_id=int(command.words[0]),
            leader_epoch=command.integer("epoch", 0),
            partition_epoch=command.integer("partition_epoch", 0),
            start_offset=command.integer("start", 0),
            replicas=replicas,
            isr=frozenset(command.integers("isr") or replicas),
            min_isr=command.integer("min_isr", 1),
            high_watermark=command.integer("hw", 0),
            now_ms=self._now_ms,
            brokers={replica: LiveBroker(registered(replica)) for replica in replicas},
        )
        return self._show(())

    def _do(self, leader: PartitionLeader, command: Command) -> Sequence[Effect]:
        now_ms = self._now_ms
        match command.name:
            case "end":
                if not leader.alone:
                    return leader.on_log_end(int(command.words[0]), now_ms)
                offset = int(command.words[0])
                return (HighWatermarkAdvanced(offset),) if leader.on_log_end_alone(offset) else ()
            case "fetch":
                replica, offset = int(command.words[0]), command.integer("from")
                broker_epoch = command.integer("epoch", registered(replica))
                leader.check_follower(replica, broker_epoch, knows_epoch="old" not in command.words)
                leader_end = command.integer("leader_end", leader.log_end)
                log_start = command.integer("start", 0)
                return leader.on_fetch(replica, broker_epoch, offset, leader_end, now_ms, log_start=log_start)
            case "at":
                self._now_ms = int(command.words[0])
                return ()
            case "tick":
                return leader.on_tick(now_ms)
            case "answer":
                proposal = leader.pending if "late" not in command.words else self._asked
                assert proposal is not None
                error = ErrorCode[command.options.get("error", "NONE")]
                return leader.on_alter_partition_result(proposal, error, now_ms)
            case "partition":
                replicas = tuple(command.integers("replicas")) or leader.replicas
                isr = frozenset(command.integers("isr"))
                min_isr = command.integer("min_isr", leader.min_isr)
                return leader.on_partition(command.integer("epoch"), replicas, isr, min_isr, now_ms)
            case "brokers":
                return leader.on_brokers(_brokers(command.words[0]), now_ms)
            case "min_isr":
                return leader.on_min_isr(int(command.words[0]), now_ms)
            case "low":
                self._said = [f"low={leader.low_watermark(int(command.words[0]))}"]
                return ()
            case "readable":
                found = [replica for replica, _ in leader.readable_replicas(int(command.words[0]))]
                self._said = [f"readable={_ids(found)}"]
                return ()
        raise AssertionError(f"line {command.line}: no command {command.name}")

    def _show(self, effects: Sequence[Effect]) -> list[str]:
        leader = self._leader
        assert leader is not None
        said, self._said = self._said, []
        state = f"hw={leader.high_watermark}"
        if not leader.has_min_isr:
            state += " frozen"
        if not leader.alone:
            state += f" isr={_ids(sorted(leader.isr))}"
        if leader.pending is not None:
            self._asked = leader.pending
            state += f" maximal={_ids(sorted(leader.maximal_isr))}"
        return [*said, state, *(_effect(effect) for effect in effects)]


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids)) or "none"


def _brokers(text: str) -> dict[int, LiveBroker]:
    brokers = {}
    for word in text.split(","):
        number, _, epoch = word.rstrip("!").partition(":")
        brokers[int(number)] = LiveBroker(int(epoch or registered(int(number))), word.endswith("!"))
    return brokers


def _effect(effect: Effect) -> str:
    match effect:
        case HighWatermarkAdvanced():
            return repr(effect)
        case ProposeIsr(isr=isr, partition_epoch=partition_epoch, joining=joining, leaving=leaving):
            members = ",".join(f"{member.replica_id}:{member.broker_epoch}" for member in isr)
            change = f"joining={_ids(joining)}" if joining else f"leaving={_ids(leaving)}"
            return f"ProposeIsr({members} {change} partition_epoch={partition_epoch})"


@pytest.mark.parametrize("path", transcripts(Path(__file__).parent / "transcripts"), ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    run(path, Stage().execute, request.config)
