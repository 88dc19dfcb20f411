"""The follower's machine, in dialogues: see follower_transcripts/*.txt."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ottla.errors import ErrorCode
from ottla.partition.follower import (
    Append,
    FollowerEffect,
    PartitionFollower,
    StartOverAt,
    TruncateTo,
)
from tests.partition.paper_log import PaperLog
from tests.transcript import Command, run, transcripts


@dataclass
class Stage:
    """One follower on a log that is a list of epochs; what it asks for is done at once, as a driver would."""

    log: PaperLog = field(default_factory=PaperLog)
    follower: PartitionFollower | None = None
    now_ms: int = 0

    def execute(self, command: Command) -> list[str]:
        if command.name == "log":
            # Runs of an epoch: 0:3 is three records of epoch 0.
            self.log = PaperLog(start=command.integer("start", 0))
            for word in command.words:
                epoch, count = word.split(":")
                self.log.extend([int(epoch)] * int(count))
            self.log.high_watermark = command.integer("hw", self.log.log_start_offset)
            return self._show()
        if command.name == "begin":
            self.log.begin_epoch(int(command.words[0]))
            return self._show()
        if command.name == "follow":
            self.follower = PartitionFollower(
                leader_id=int(command.words[0]),
                leader_epoch=command.integer("epoch"),
                log=self.log,
                backoff_ms=command.integer("backoff", 1000),
            )
            return self._show()
        follower = self.follower
        assert follower is not None
        if command.name == "time":
            self.now_ms = int(command.words[0])
            ready = follower.is_ready(self.now_ms)
            return [f"ready={str(ready).lower()}", *self._show()]
        offset = command.integer("from", self.log.log_end_offset)
        if command.name == "records":
            effect = follower.on_response(offset, ErrorCode.NONE, None, self.now_ms)
            lines = [repr(effect)]
            if isinstance(effect, Append):
                self.log.extend(command.integers("epochs"))
                bounds = follower.on_appended(command.integer("hw"), command.integer("start", 0))
                self.log.high_watermark, self.log.log_start_offset = bounds
            return [*lines, *self._show()]
        if command.name == "diverging":
            diverging = (command.integer("epoch"), command.integer("end"))
            return self._carry_out(follower.on_response(offset, ErrorCode.NONE, diverging, self.now_ms))
        if command.name == "error":
            return self._carry_out(follower.on_response(offset, ErrorCode[command.words[0]], None, self.now_ms))
        if command.name == "range":
            return self._carry_out(follower.on_range(command.integer("start"), command.integer("end"), self.now_ms))
        if command.name == "corrupt":
            return self._carry_out(follower.on_corrupt("CRC", self.now_ms))
        raise AssertionError(f"line {command.line}: no command {command.name}")

    def _carry_out(self, effect: FollowerEffect) -> list[str]:
        assert self.follower is not None
        if isinstance(effect, TruncateTo):
            self.log.truncate_to(effect.offset)
            self.follower.on_truncated()
        elif isinstance(effect, StartOverAt):
            self.log.start_over_at(effect.offset)
            self.follower.on_truncated()
        return [repr(effect), *self._show()]

    def _show(self) -> list[str]:
        log = self.log
        lines = [
            f"log {log.log_start_offset}..{log.log_end_offset} hw={log.high_watermark} epochs={log.epochs.entries}"
        ]
        follower = self.follower
        if follower is not None and follower.log is log:
            fetch_offset, last_epoch, _ = follower.position
            lag = "" if follower.lag is None else f" lag={follower.lag}"
            lines.append(f"{follower.state.value} from={fetch_offset} last_epoch={last_epoch}{lag}")
        return lines


@pytest.mark.parametrize(
    "path", transcripts(Path(__file__).parent / "follower_transcripts"), ids=lambda path: path.stem
)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    run(path, Stage().execute, request.config)
