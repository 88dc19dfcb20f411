"""The partition's machines, in dialogues: see transcripts/*.txt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.partition import Effect, PartitionLeader
from tests.transcript import Command, run, transcripts


class Stage:
    """Carries out the commands of a transcript on one leader."""

    def __init__(self) -> None:
        self._leader: PartitionLeader | None = None

    def execute(self, command: Command) -> list[str]:
        if command.name == "leader":
            replicas = tuple(command.integers("replicas"))
            self._leader = PartitionLeader(
                replica_id=int(command.words[0]),
                leader_epoch=command.integer("epoch", 0),
                partition_epoch=command.integer("partition_epoch", 0),
                start_offset=command.integer("start", 0),
                replicas=replicas,
                isr=frozenset(command.integers("isr") or replicas),
                min_isr=command.integer("min_isr", 1),
                high_watermark=command.integer("hw", 0),
            )
            return self._show(())
        leader = self._leader
        assert leader is not None
        if command.name == "end":
            return self._show(leader.on_log_end(int(command.words[0]), command.integer("offset")))
        if command.name == "min_isr":
            return self._show(leader.on_min_isr(int(command.words[0])))
        if command.name == "partition":
            replicas = tuple(command.integers("replicas")) or leader.replicas
            effects = leader.on_partition(command.integer("epoch"), replicas, frozenset(command.integers("isr")))
            return self._show(effects)
        raise AssertionError(f"line {command.line}: no command {command.name}")

    def _show(self, effects: Sequence[Effect]) -> list[str]:
        leader = self._leader
        assert leader is not None
        frozen = "" if leader.has_min_isr else " frozen"
        return [f"hw={leader.high_watermark}{frozen}", *(repr(effect) for effect in effects)]


@pytest.mark.parametrize("path", transcripts(Path(__file__).parent / "transcripts"), ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    run(path, Stage().execute, request.config)
