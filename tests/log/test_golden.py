"""Files that Apache Kafka 4.3.1 wrote: read as it reads them, and written as it writes them, byte for byte.

`golden` is a log directory after a clean shutdown. `golden` the topic was written by an idempotent producer, with
timestamps that do not rise and that roll the segments; `golden-txn` by a transactional one (three aborted transactions,
three committed, one open) and by one that compresses with lz4. Both have small index intervals.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from ottla.log import LogConfig, LogManager, files
from ottla.model import TopicPartition
from ottla.records import iterate
from ottla.runtime.disk import SystemDisk

from .story import NOW, all_batches

GOLDEN = Path(__file__).parent / "golden"
PLAIN, TRANSACTIONAL = TopicPartition("golden", 0), TopicPartition("golden-txn", 0)
CONFIGS = {
    "golden": LogConfig(index_interval_bytes=512, segment_ms=60_000),
    "golden-txn": LogConfig(index_interval_bytes=200, segment_ms=60_000),
}


def start(directory: str) -> LogManager:
    manager = LogManager(SystemDisk(), [directory], random=Random(1))
    manager.lock()
    manager.load(CONFIGS.__getitem__, NOW)
    return manager


def contents(directory: Path) -> dict[str, bytes]:
    return {
        f"{partition.name}/{file.name}": file.read_bytes()
        for partition in sorted(directory.iterdir())
        if partition.is_dir()
        for file in sorted(partition.iterdir())
    }


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    target = tmp_path / "data"
    shutil.copytree(GOLDEN, target)
    return target


def test_kafkas_directory_is_taken_over_as_it_is(copy: Path) -> None:
    manager = start(str(copy))
    assert manager.directories[str(copy)].was_clean
    assert manager.directories[str(copy)].previous_broker_epoch == 13
    identity = manager.read_identities()[0]
    assert identity is not None
    assert (identity.node_id, identity.cluster_id) == (1, "4L6g3nShT-eMCtK--X86sw")

    log = manager.logs[PLAIN]
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 300, 300)
    assert log.segment_base_offsets == [0, 80, 160, 240]
    assert log.epochs.entries == [(0, 0)]
    assert sum(len(list(iterate(data))) for _, data in all_batches(log)) == 300
    assert log.producers.entries[0].last_sequence == 299

    log = manager.logs[TRANSACTIONAL]
    assert (log.log_end_offset, log.last_stable_offset) == (75, 24)
    assert [txn[:3] for txn in log.aborted_transactions(0, 75)] == [(1, 0, 3), (1, 8, 11), (1, 16, 19)]
    manager.close(NOW, broker_epoch=13)
    assert contents(copy) == contents(GOLDEN), "and nothing in it has changed"


def test_everything_derived_comes_out_of_recovery_byte_for_byte_as_kafka_wrote_it(copy: Path) -> None:
    os.remove(copy / files.CLEAN_SHUTDOWN)
    os.remove(copy / files.RECOVERY_POINT_CHECKPOINT)
    for partition in (PLAIN, TRANSACTIONAL):
        for file in (copy / str(partition)).iterdir():
            if file.suffix != files.LOG and file.name != files.PARTITION_METADATA:
                file.unlink()
    start(str(copy)).close(NOW, broker_epoch=13)
    assert contents(copy) == contents(GOLDEN)
    assert (copy / files.CLEAN_SHUTDOWN).read_bytes() == (GOLDEN / files.CLEAN_SHUTDOWN).read_bytes()


def test_a_leader_that_appends_the_same_batches_writes_the_same_files(copy: Path, tmp_path: Path) -> None:
    """What Kafka's leader wrote, appended here batch by batch: the same rolls, indexes and snapshots."""
    source = start(str(copy))
    target = tmp_path / "target"
    manager = start(str(target))
    for partition in (PLAIN, TRANSACTIONAL):
        log = manager.create(partition, source.logs[partition].topic_id, CONFIGS[partition.topic], NOW)
        for _, data in all_batches(source.logs[partition]):
            log.append_replicated(memoryview(data), NOW)
            log.update_high_watermark(log.log_end_offset)
    manager.close(NOW, broker_epoch=13)
    assert contents(target) == contents(GOLDEN)
