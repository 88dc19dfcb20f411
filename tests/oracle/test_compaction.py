"""Apache Kafka compacts the same log, and the same records survive; its tools read what we leave."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from random import Random

import pytest

from ottla.log import Log, LogConfig, LogManager
from ottla.model import TopicPartition
from ottla.records import iterate
from ottla.runtime.disk import SystemDisk
from tests.log.compacting import ChanceWriter, compact, seal
from tests.log.story import all_batches

from .apache_kafka import ApacheKafka, KafkaTools
from .conftest import At, StartNode

pytestmark = pytest.mark.oracle

PARTITION = TopicPartition("compacted", 0)
RETENTION_MS = 1
CONFIG = LogConfig(compact=True, delete=False, segment_bytes=6000, delete_retention_ms=RETENTION_MS)
TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": str(CONFIG.segment_bytes),
    "delete.retention.ms": str(RETENTION_MS),
    "min.cleanable.dirty.ratio": "0.01",
}
CLEANER = {"log.cleaner.backoff.ms": "100"}


class Opened:
    """A node's log, while the node is stopped."""

    def __init__(self, directory: Path) -> None:
        self.disk = SystemDisk()
        self.manager = LogManager(self.disk, [str(directory)], random=Random(1), verify_transactions=False)
        self.manager.lock()
        self.manager.load(lambda topic: CONFIG, _now_ms())
        assert self.manager.directories[str(directory)].was_clean
        self.log: Log = self.manager.logs[PARTITION]

    def close(self) -> None:
        self.manager.close(_now_ms(), broker_epoch=9)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def write(directory: Path, writer: ChanceWriter | None, steps: int, *, seed: int, epoch: int) -> ChanceWriter:
    """The same log again, longer by what chance says; with the same seed by the same."""
    opened = Opened(directory)
    going_on = writer
    writer = ChanceWriter(opened.log, seed, keys=40)
    if going_on is not None:
        writer.sequences, writer.epochs = dict(going_on.sequences), dict(going_on.epochs)
        writer.aborted = set(going_on.aborted)
        writer.now_ms = going_on.now_ms
    else:
        writer.now_ms = _now_ms() - 60_000
    writer.leader_epoch = epoch
    for _ in range(steps):
        writer.step()
    writer.end_all()
    seal(opened.log, writer.now_ms)
    opened.close()
    return writer


def survivors(directory: Path) -> tuple[list[object], dict[int, bool], set[int]]:
    """Every record that is left with its batch's kind, every marker by its offset and whether it has a horizon, and the
    last offsets of empty batches."""
    opened = Opened(directory)
    records: list[object] = []
    markers: dict[int, bool] = {}
    empty: set[int] = set()
    for header, data in all_batches(opened.log):
        kind = (header.base_offset, header.last_offset, header.attributes, header.max_timestamp, header.base_sequence)
        found = list(iterate(data))
        if header.is_control:
            markers.update((record.offset, header.has_delete_horizon) for record in found)
        elif found:
            records += [(*kind, record) for record in found]
        else:
            empty.add(header.last_offset)
    opened.close()
    return records, markers, empty


def compact_ours(directory: Path) -> int:
    opened = Opened(directory)
    reached = compact(opened.disk, opened.manager, opened.log, _now_ms()).next_dirty_offset
    opened.close()
    return reached


def compact_theirs(directory: Path, reached: int, tmp_path: Path) -> None:
    kafka = ApacheKafka(tmp_path, overrides=CLEANER, heap=("-Xmx512M",))
    shutil.move(directory, kafka.data)
    kafka.spawn()
    try:
        checkpoint = kafka.data / "cleaner-offset-checkpoint"
        deadline = time.monotonic() + 60
        while f"{PARTITION.topic} 0 {reached}" not in (checkpoint.read_text() if checkpoint.exists() else ""):
            assert time.monotonic() < deadline, kafka.log_file.read_text()[-4000:]
            time.sleep(0.1)
        # The checkpoint is written before its answer is served: a node that is ready can be stopped cleanly.
        kafka.wait_ready()
    finally:
        kafka.stop()
    assert "ERROR" not in kafka.log_file.read_text()
    shutil.move(kafka.data, directory)


def test_the_same_records_survive_as_in_apache_kafka(start_node: StartNode, tools: KafkaTools, tmp_path: Path) -> None:
    node = start_node("compacted", {"log.cleaner.enable": "false"})
    configs = [part for key, value in TOPIC_CONFIGS.items() for part in ("--config", f"{key}={value}")]
    At(tools, node.bootstrap)("kafka-topics", "--create", "--topic", PARTITION.topic, *configs)
    node.stop()
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    shutil.copytree(node.log_dir, ours)
    writer = write(ours, None, 250, seed=1, epoch=1)
    shutil.copytree(ours, theirs)

    # The first pass removes, and sets horizons; the second, after more was written, removes what is behind them.
    for number in (1, 2):
        if number == 2:
            write(ours, writer, 150, seed=2, epoch=7)
            write(theirs, writer, 150, seed=2, epoch=7)
        everything = len(survivors(ours)[0])
        reached = compact_ours(ours)
        compact_theirs(theirs, reached, tmp_path / f"kafka-{number}")
        our_records, our_markers, our_empty = survivors(ours)
        their_records, their_markers, their_empty = survivors(theirs)
        assert our_records == their_records
        assert len(our_records) < 0.7 * everything
        assert our_markers == their_markers
        assert their_empty <= our_empty, "and ours may also keep where a merged segment ends"
        assert len(our_empty - their_empty) <= 2

    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        files = sorted((ours / str(PARTITION)).glob(f"*{suffix}"))
        assert files or suffix == ".txnindex"
        if files:
            deep = ["--deep-iteration", "--print-data-log"] if suffix == ".log" else []
            dumped = tools.check("kafka-dump-log", "--files", ",".join(map(str, files)), *deep)
            assert "isvalid: false" not in dumped.out
            assert not re.search(r"mismatch|corrupt|not found|Could not read|exception", dumped.printed, re.IGNORECASE)
            if suffix == ".log":
                assert len(re.findall(r"^\| offset: ", dumped.out, re.MULTILINE)) >= len(our_records)
