"""The controller's decisions about one partition, in dialogues: see transcripts/*.txt."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.images import NO_LEADER, PartitionImage
from tests.controller.acting import Acting
from tests.controller.test_elections import alter
from tests.transcript import Command, run, transcripts


class Stage:
    """Carries out the commands of a transcript, and tells what the records say and what became of the partition."""

    def __init__(self) -> None:
        self._acting = Acting()
        self._incarnations: dict[int, int] = {}

    def execute(self, command: Command) -> list[str]:
        acting = self._acting
        if command.name == "cluster":
            self._acting = acting = Acting(elr=command.options.get("elr") == "on")
            acting.unfenced(*command.integers("brokers"))
            return [f"brokers {' '.join(str(broker.broker_id) for broker in acting.image.alive_brokers())}"]
        before = len(acting.log)
        said = self._carry_out(command)
        records = [type(record.message).__name__ for batch in acting.log[before:] for record in batch.records]
        written = [f"{name.removesuffix('Record')} x{records.count(name)}" for name in dict.fromkeys(records)]
        partition = acting.image.partition("p", 0)
        return [*said, *written, *([] if partition is None else [_shown(partition)])]

    def _carry_out(self, command: Command) -> list[str]:
        acting = self._acting
        broker = int(command.words[0]) if command.words and command.words[0].isdecimal() else 0
        match command.name:
            case "topic":
                configs = {key: value for key, value in command.options.items() if "." in key}
                replicas = command.integers("replicas")
                result = acting.create("p", -1, -1, assignment={0: replicas}, configs={**configs})
                return _error(result.error_code)
            case "isr":
                sender = command.options.get("from")
                members = [int(part) for part in command.words[0].split(",")]
                answer = acting.propose(
                    "p",
                    members,
                    sender=None if sender is None else int(sender),
                    recovery=command.integer("recovery", 0),
                )
                return [ErrorCode(answer.error_code).name]
            case "silence":
                acting.fence(broker)
                return []
            case "beat":
                response = acting.heartbeat(broker, shut_down="shut_down" in command.words)
                return ["may stop"] if response.should_shut_down else ["fenced"] if response.is_fenced else []
            case "restart":
                epoch = acting.epoch(broker) if "clean" in command.words else -1
                self._incarnations[broker] = self._incarnations.get(broker, 1) + 1
                acting.now_ms += 9_001
                for other in [b.broker_id for b in acting.image.alive_brokers() if b.broker_id != broker]:
                    acting.heartbeat(other)
                acting.register(broker, self._incarnations[broker], previous_epoch=epoch)
                return []
            case "reassign" | "cancel":
                target = None if command.name == "cancel" else [int(part) for part in command.words[0].split(",")]
                return [acting.reassign("p", target)[0]]
            case "elect":
                return list(acting.elect(["preferred", "unclean"].index(command.words[0]), {"p": [0]}).values())
            case "config":
                ((key, value),) = command.options.items()
                return _error(alter(acting, 2, "p", key, value))
            case "time":
                acting.now_ms += command.integer("ms")
                for alive in acting.image.alive_brokers():
                    acting.heartbeat(alive.broker_id)
                acting.time_passes()
                return []
            case "failover":
                acting.take_over()
                return []
        raise AssertionError(f"line {command.line}: no command {command.name}")


def _error(code: int) -> list[str]:
    return [ErrorCode(code).name] if code else []


def _shown(partition: PartitionImage) -> str:
    def joined(replicas: tuple[int, ...]) -> str:
        return ",".join(map(str, replicas)) or "none"

    parts = [
        f"leader={'none' if partition.leader == NO_LEADER else partition.leader}",
        f"epoch={partition.leader_epoch}.{partition.partition_epoch}",
        f"replicas={joined(partition.replicas)}",
        f"isr={joined(partition.isr)}",
    ]
    optional = {
        "elr": partition.elr,
        "last": partition.last_known_elr,
        "adding": partition.adding_replicas,
        "removing": partition.removing_replicas,
    }
    parts += [f"{name}={joined(replicas)}" for name, replicas in optional.items() if replicas]
    return " ".join([*parts, *(["recovering"] if partition.leader_recovery_state else [])])


@pytest.mark.parametrize("path", transcripts(Path(__file__).parent / "transcripts"), ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    stage = Stage()

    def execute(command: Command) -> list[str]:
        try:
            return stage.execute(command)
        except KafkaError as error:
            return [error.code.name]

    run(path, execute, request.config)
