"""A node's log directories: who they belong to, what is remembered about them, how logs come and go."""

from __future__ import annotations

from random import Random

import pytest

from ottla.errors import ErrorCode, StartupError
from ottla.log import Log, LogConfig, LogManager, MetaProperties, files, read_meta_properties, write_meta_properties
from ottla.log.checkpoints import decode_offsets, decode_partition_metadata, encode_offsets
from ottla.model import METADATA_TOPIC_ID, TopicPartition, Uuid, uuid_from_text
from ottla.runtime.disk import SystemDisk
from ottla.runtime.seams import DiskError

from .faulty_disk import FaultyDisk, Operation
from .story import DIRECTORY, NOW, TOPIC_ID, TP, append, batch, create, fill, offsets_of, open_manager, restart

DIRECTORY_ID = Uuid(bytes(range(16, 32)))


def test_meta_properties_round_trip_and_are_read_as_kafka_writes_them() -> None:
    disk = FaultyDisk()
    assert read_meta_properties(disk, DIRECTORY) is None
    properties = MetaProperties(cluster_id="4L6g3nShT-eMCtK--X86sw", node_id=3, directory_id=DIRECTORY_ID)
    write_meta_properties(disk, DIRECTORY, properties)
    assert read_meta_properties(disk, DIRECTORY) == properties
    disk.write_atomically(
        f"{DIRECTORY}/{files.META_PROPERTIES}",
        b"#\n#Sun Nov 15 08:44:27 UTC 2026\nnode.id=1\ndirectory.id=7ylyEF_eR1COfM9kgxxMsw\nversion=1\n"
        b"cluster.id=4L6g3nShT-eMCtK--X86sw\n",
    )
    read = read_meta_properties(disk, DIRECTORY)
    assert read is not None
    assert (read.node_id, read.directory_id) == (1, uuid_from_text("7ylyEF_eR1COfM9kgxxMsw"))


@pytest.mark.parametrize(
    "content",
    [b"", b"version=0\nbroker.id=1\n", b"version=1\nnode.id=x\ncluster.id=a\ndirectory.id=7ylyEF_eR1COfM9kgxxMsw"],
)
def test_a_broken_identity_stops_the_node_with_a_sentence(content: bytes) -> None:
    disk = FaultyDisk()
    disk.make_dirs(DIRECTORY)
    disk.write_atomically(f"{DIRECTORY}/{files.META_PROPERTIES}", content)
    with pytest.raises(StartupError, match=r"meta\.properties"):
        read_meta_properties(disk, DIRECTORY)


def test_directories_of_different_nodes_are_not_mixed() -> None:
    disk = FaultyDisk()
    for path, node in (("/a", 1), ("/b", 2)):
        write_meta_properties(disk, path, MetaProperties(cluster_id="c", node_id=node, directory_id=DIRECTORY_ID))
    with pytest.raises(StartupError, match="node_id"):
        LogManager(disk, ["/a", "/b"], random=Random(1)).read_identities()
    write_meta_properties(disk, "/b", MetaProperties(cluster_id="c", node_id=1, directory_id=DIRECTORY_ID))
    with pytest.raises(StartupError, match=r"directory\.id"):
        LogManager(disk, ["/a", "/b"], random=Random(1)).read_identities()


def test_a_directory_belongs_to_one_process() -> None:
    disk = FaultyDisk()
    disk.make_dirs("/free")
    first = LogManager(disk, [DIRECTORY], random=Random(1))
    first.lock()
    second = LogManager(disk, ["/free", DIRECTORY], random=Random(1))
    with pytest.raises(StartupError, match="another node"):
        second.lock()
    LogManager(disk, ["/free"], random=Random(1)).lock()  # What it had taken it gave back.


def test_the_marker_names_the_broker_epoch_and_is_gone_while_the_node_runs() -> None:
    disk = FaultyDisk()
    manager = open_manager(disk)
    assert not manager.directories[DIRECTORY].was_clean
    fill(create(manager), 3)
    manager.close(NOW, broker_epoch=13)
    assert disk.read_file(f"{DIRECTORY}/{files.CLEAN_SHUTDOWN}") == b'{"version":0,"brokerEpoch":13}'
    manager = open_manager(disk)
    directory = manager.directories[DIRECTORY]
    assert (directory.was_clean, directory.previous_broker_epoch) == (True, 13)
    assert not disk.exists(f"{DIRECTORY}/{files.CLEAN_SHUTDOWN}")


def test_a_node_that_never_finished_loading_leaves_no_marker() -> None:
    disk = FaultyDisk()
    manager = LogManager(disk, [DIRECTORY], random=Random(1))
    manager.lock()
    manager.close(NOW)
    assert not disk.exists(f"{DIRECTORY}/{files.CLEAN_SHUTDOWN}")


def test_a_new_log_is_cheap_and_has_kafkas_files_once_it_is_closed() -> None:
    disk = FaultyDisk()
    manager = open_manager(disk)
    operations, syncs = disk.operations, disk.syncs
    log = create(manager)
    log.begin_epoch(0)
    assert disk.operations - operations == 4, "a directory, an identity, a log"
    assert disk.syncs == syncs
    manager.close(NOW)
    assert disk.list(log.directory) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert decode_partition_metadata(disk.read_file(f"{log.directory}/partition.metadata")) == TOPIC_ID
    assert open_manager(disk).logs[TP].topic_id == TOPIC_ID


def test_checkpoints_have_kafkas_form() -> None:
    disk = FaultyDisk()
    manager = open_manager(disk)
    log = create(manager)
    fill(log, 5)
    log.flush(NOW)
    log.advance_log_start(2)
    manager.prepare_checkpoints().run()
    assert disk.read_file(f"{DIRECTORY}/{files.RECOVERY_POINT_CHECKPOINT}") == b"0\n1\ntopic 0 5\n"
    assert disk.read_file(f"{DIRECTORY}/{files.LOG_START_CHECKPOINT}") == b"0\n1\ntopic 0 2\n"
    assert disk.read_file(f"{DIRECTORY}/{files.HIGH_WATERMARK_CHECKPOINT}") == b"0\n1\ntopic 0 5\n"


@pytest.mark.parametrize(
    "content", [b"", b"0\n", b"0\n1\n", b"0\n1\na 0 5", b"1\n0\n", b"0\n2\na 0 5\n", b"0\n1\na b c\n", b"\xff\n0\n"]
)
def test_a_torn_checkpoint_is_no_checkpoint(content: bytes) -> None:
    assert decode_offsets(content) is None
    assert decode_offsets(encode_offsets({TP: 5})) == {TP: 5}


def test_an_older_checkpoint_never_replaces_a_newer() -> None:
    disk = FaultyDisk()
    manager = open_manager(disk)
    log = create(manager)
    fill(log, 5)
    log.flush(NOW)
    older = manager.prepare_checkpoints()
    log.truncate_to(2)
    older.run()
    assert disk.read_file(f"{DIRECTORY}/{files.RECOVERY_POINT_CHECKPOINT}") == b"0\n1\ntopic 0 2\n"


def test_the_high_watermark_comes_back_within_the_log() -> None:
    disk = FaultyDisk()
    manager = open_manager(disk)
    log = create(manager)
    fill(log, 5)
    manager.prepare_high_watermark_checkpoints().run()
    log.truncate_to(3)
    assert restart(disk).logs[TP].high_watermark == 3


def test_a_deleted_topic_leaves_its_name_at_once_and_its_files_later() -> None:
    disk = FaultyDisk()
    config = LogConfig(file_delete_delay_ms=1000)
    manager = open_manager(disk, config)
    log = create(manager, config)
    fill(log, 5)
    log.flush(NOW)
    manager.prepare_checkpoints().run()
    manager.delete([TP], NOW).run()
    assert manager.logs == {}
    (retired,) = [name for name in disk.list(DIRECTORY) if name.endswith("-delete")]
    assert retired.startswith("topic-0.")
    assert len(retired) == len("topic-0.") + 32 + len("-delete")
    assert decode_offsets(disk.read_file(f"{DIRECTORY}/{files.RECOVERY_POINT_CHECKPOINT}")) == {}
    again = manager.create(TP, Uuid(b"n" * 16), config, NOW)
    assert again.log_end_offset == 0
    manager.remove_deleted(NOW + 999)
    assert retired in disk.list(DIRECTORY)
    names = disk.list(f"{DIRECTORY}/{retired}")
    manager.remove_deleted(NOW + 1000)
    assert retired not in disk.list(DIRECTORY)
    assert disk.forgotten == [f"{DIRECTORY}/{retired}/{name}" for name in names]


def test_a_deletion_that_a_crash_interrupted_is_finished() -> None:
    disk = FaultyDisk()
    manager = open_manager(disk)
    fill(create(manager), 5)
    manager.delete([TP], NOW).run()
    manager = open_manager(disk.copy())
    assert manager.logs == {}
    manager.remove_deleted(NOW)


def test_long_topic_names_still_fit_when_they_are_retired() -> None:
    disk = FaultyDisk()
    manager = open_manager(disk)
    partition = TopicPartition("t" * 249, 12345)
    create(manager, partition=partition)
    manager.delete([partition], NOW).run()
    assert max(len(name) for name in disk.list(DIRECTORY)) == 255


def test_strays_are_set_apart_with_their_data() -> None:
    disk = FaultyDisk()
    manager = open_manager(disk)
    fill(create(manager), 5)
    manager.set_apart([TP], NOW).run()
    (stray,) = manager.strays
    assert stray.endswith("-stray")
    assert disk.file_size(f"{stray}/00000000000000000000.log") > 0
    assert open_manager(disk.copy()).strays == [stray]


def test_what_is_no_partition_is_left_alone() -> None:
    disk = FaultyDisk()
    manager = open_manager(disk)
    fill(create(manager), 1)
    manager.close(NOW)
    for name in ("lost+found", "nodash", "a-b-future", "x-", "-1"):
        disk.make_dirs(f"{DIRECTORY}/{name}")
    assert list(open_manager(disk).logs) == [TP]


def test_logs_spread_over_directories_and_one_failing_disk_takes_only_its_own() -> None:
    disk = FaultyDisk()
    manager = LogManager(disk, ["/a", "/b"], random=Random(1))
    manager.lock()
    manager.load(lambda topic: LogConfig(), NOW)
    for i in range(6):
        fill(create(manager, partition=TopicPartition("t", i)), 2)
    assert sorted(log.directory[:2] for log in manager.logs.values()) == ["/a"] * 3 + ["/b"] * 3
    manager.close(NOW)

    def broken(operation: Operation) -> None:
        if operation.path.startswith("/a"):
            raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "gone")

    disk.hook = broken
    manager = LogManager(disk, ["/a", "/b"], random=Random(1))
    manager.load(lambda topic: LogConfig(), NOW)
    assert manager.directories["/a"].offline
    assert not manager.directories["/b"].offline
    online = [log for log in manager.logs.values() if not log.offline]
    assert {log.directory[:2] for log in online} == {"/b"}
    assert create(manager, partition=TopicPartition("new", 0)).directory == "/b/new-0"
    manager.close(NOW)
    assert disk.exists("/b/" + files.CLEAN_SHUTDOWN)


def test_no_directory_left_is_a_reason_not_to_start() -> None:
    disk = FaultyDisk()

    def broken(operation: Operation) -> None:
        raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "gone")

    disk.hook = broken
    with pytest.raises(StartupError, match="no log directory"):
        LogManager(disk, [DIRECTORY], random=Random(1)).load(lambda topic: LogConfig(), NOW)


def test_a_failed_directory_takes_its_logs_offline() -> None:
    manager = open_manager(FaultyDisk())
    log = create(manager)
    assert manager.fail_directory(DIRECTORY) == [TP]
    with pytest.raises(DiskError):
        append(log, batch())
    with pytest.raises(DiskError):
        create(manager, partition=TopicPartition("other", 0))


def test_the_metadata_log_is_kept_apart() -> None:
    disk = FaultyDisk()
    manager = open_manager(disk)
    log = manager.load_metadata_log(DIRECTORY, LogConfig(), NOW)
    assert log.topic_id == METADATA_TOPIC_ID
    fill(log, 4, epoch=1)
    crashed = open_manager(disk.copy())
    assert crashed.logs == {}
    assert offsets_of(crashed.load_metadata_log(DIRECTORY, LogConfig(), NOW)) == offsets_of(log)
    manager.close(NOW)
    again = open_manager(disk).load_metadata_log(DIRECTORY, LogConfig(), NOW)
    assert (again.log_end_offset, again.epochs.entries) == (4, [(1, 0)])


@pytest.mark.parametrize("lost", ["half a batch", "a batch", "a batch of a sealed segment", "all of a segment"])
def test_a_metadata_log_that_lost_an_end_is_refused_for_as_long_as_it_lacks_it(lost: str) -> None:
    """With a shorter log its node would help to elect one who does not have what it has told others that it keeps."""
    disk, config = FaultyDisk(), LogConfig(segment_bytes=700)

    def start() -> tuple[LogManager, Log]:
        manager = LogManager(disk, [DIRECTORY], random=Random(7))
        log = manager.load_metadata_log(DIRECTORY, config, NOW)
        manager.accept_metadata_log()
        manager.load(lambda topic: config, NOW)
        return manager, log

    manager, log = start()
    for i in range(20):
        append(log, batch(2, timestamp=NOW + i))
    bases = log.segment_base_offsets
    assert len(bases) >= 3
    manager.close(NOW, broker_epoch=31)
    path = f"{log.directory}/{files.file_name(bases[1] if 'segment' in lost else bases[-1], '.log')}"
    written = disk.read_file(path)
    size = len(written) // 2 // len(bytes(batch(2))) * len(bytes(batch(2)))
    kept = {"half a batch": len(written) - 5, "a batch": len(written) - len(bytes(batch(2))), "all of a segment": 0}
    disk.open(path).truncate(kept.get(lost, size))
    for _ in range(2):
        with pytest.raises(StartupError, match=r"is damaged: .* is gone"):
            start()
    disk.open(path).write(0, written)
    manager, log = start()
    assert offsets_of(log) == [(2 * i, 2 * i + 1) for i in range(20)]
    assert manager.previous_broker_epoch == 31


def test_a_half_made_log_is_unmade() -> None:
    disk = FaultyDisk()
    manager = open_manager(disk)
    disk.make_dirs(f"{DIRECTORY}/half-0")
    assert open_manager(disk.copy()).logs == {}
    manager.close(NOW)


def test_the_lock_holds_on_a_real_disk(tmp_path: object) -> None:
    first = LogManager(SystemDisk(), [str(tmp_path)], random=Random(1))
    first.lock()
    with pytest.raises(StartupError):
        LogManager(SystemDisk(), [str(tmp_path)], random=Random(1)).lock()
    first.load(lambda topic: LogConfig(), NOW)
    first.close(NOW)
    second = LogManager(SystemDisk(), [str(tmp_path)], random=Random(1))
    second.lock()
    second.load(lambda topic: LogConfig(), NOW)
    second.close(NOW)
