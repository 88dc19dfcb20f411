"""Idempotence and transactions as a partition sees them: who may write what, and how far readers may see."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.log import Log, LogConfig, ProducerStates, files, snapshots
from ottla.log.append import AppendInfo
from ottla.log.producers import KNOWN_OPEN, MAX_EPOCH, MAX_SEQUENCE, ProducerEntry
from ottla.records import read_header

from .faulty_disk import FaultyDisk
from .story import COORDINATOR, NOW, TP, append, batch, create, fill, marker, open_manager

PRODUCER = 77


def new_log(config: LogConfig | None = None) -> Log:
    return create(open_manager(FaultyDisk(), config), config)


def send(log: Log, sequence: int, *, count: int = 1, epoch: int = 0, producer_id: int = PRODUCER) -> AppendInfo:
    return append(log, batch(count, producer_id=producer_id, producer_epoch=epoch, sequence=sequence))


def refused(code: ErrorCode, *args: object, **kwargs: object) -> None:
    log = args[0]
    assert isinstance(log, Log)
    end = log.log_end_offset
    with pytest.raises(KafkaError) as refusal:
        send(*args, **kwargs)  # type: ignore[arg-type]
    assert refusal.value.code is code
    assert log.log_end_offset == end


def test_a_retry_of_the_last_five_batches_gets_the_place_of_the_original() -> None:
    log = new_log()
    for i in range(7):
        append(log, batch(2, producer_id=PRODUCER, producer_epoch=0, sequence=2 * i, timestamp=NOW + i))
    for i in range(2, 7):
        info = send(log, 2 * i, count=2)
        assert info == (2 * i, 2 * i + 1, NOW + i + 1, True)
    assert log.log_end_offset == 14
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 2, count=2)  # Older than the window.
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 12, count=1)  # Not the same range.
    assert not send(log, 14).duplicate


@pytest.mark.parametrize("sequence", [0, 3, 5, 6, 100])
def test_a_sequence_must_follow_the_last(sequence: int) -> None:
    log = new_log()
    send(log, 0, count=4)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, sequence)
    assert send(log, 4).first_offset == 4


def test_sequences_wrap() -> None:
    log = new_log()
    send(log, MAX_SEQUENCE - 2, count=2)
    info = send(log, MAX_SEQUENCE, count=3)
    assert info.first_offset == 2
    assert log.producers.entries[PRODUCER].last_sequence == 1
    assert send(log, MAX_SEQUENCE, count=3).duplicate
    assert send(log, 2).first_offset == 5


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert send(new_log(), 500).first_offset == 0


def test_producers_that_invent_ids_do_not_fill_the_memory() -> None:
    log = new_log()
    log.producers.producers_max = 3
    for producer_id in (1, 2, 3):
        send(log, 0, producer_id=producer_id)
    refused(ErrorCode.POLICY_VIOLATION, log, 0, producer_id=4)
    send(log, 1, producer_id=2)
    append(log, batch(1))
    log.producers.remove_expired(1 << 50)
    send(log, 0, producer_id=4)


def test_a_new_epoch_begins_at_zero_and_fences_the_old() -> None:
    log = new_log()
    send(log, 0)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 1, epoch=1)
    send(log, 0, epoch=1)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, 1, epoch=0)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, 0, epoch=0)
    send(log, 1, epoch=1)


def test_a_producer_id_needs_a_sequence() -> None:
    refused(ErrorCode.INVALID_RECORD, new_log(), -1)


def test_silence_makes_the_log_forget_a_producer_but_not_its_open_transaction() -> None:
    log = new_log()
    send(log, 5)
    begin_transaction(log, producer_id=8)
    assert log.producers.remove_expired(NOW + 24 * 3600 * 1000 - 1) == 0
    assert log.producers.remove_expired(NOW + 24 * 3600 * 1000) == 1
    assert list(log.producers.entries) == [8]
    assert send(log, 99).first_offset == 2, "forgotten, it may begin anywhere"


def test_a_failed_append_leaves_no_trace() -> None:
    disk = FaultyDisk()
    log = create(open_manager(disk))
    send(log, 0)

    def full(operation: object) -> None:
        from ottla.runtime.seams import DiskError

        raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")

    disk.hook = full
    with pytest.raises(KafkaError):
        send(log, 1)
    assert log.producers.entries[PRODUCER].last_sequence == 0
    assert log.offline


@pytest.mark.parametrize("clean", [True, False])
def test_producers_survive_a_restart(clean: bool) -> None:
    disk = FaultyDisk()
    config = LogConfig(segment_bytes=600)
    manager = open_manager(disk, config)
    log = create(manager, config)
    for i in range(30):
        send(log, i)
        send(log, i, producer_id=5)
    if clean:
        manager.close(NOW)
    log = open_manager(disk.copy(), config).logs[TP]
    assert send(log, 29).duplicate, "the last batch is in the snapshot"
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, 31)
    assert send(log, 30).first_offset == 60


def test_truncation_takes_back_what_it_cut() -> None:
    log = new_log(LogConfig(segment_bytes=600))
    for i in range(30):
        send(log, i)
    send(log, 0, producer_id=5)
    log.truncate_to(20)
    assert log.producers.entries[PRODUCER].last_sequence == 19
    assert 5 not in log.producers.entries
    assert send(log, 20).first_offset == 20


def test_a_snapshot_round_trips_and_a_torn_one_is_not_believed() -> None:
    log = new_log()
    send(log, MAX_SEQUENCE - 1, count=3)
    begin_transaction(log, producer_id=9)
    data = snapshots.encode(log.producers.entries.values())
    entries = snapshots.decode(data)
    assert entries is not None
    first, second = entries
    assert (first.producer_id, first.epoch, list(first.batches)) == (
        PRODUCER,
        0,
        list(log.producers.entries[PRODUCER].batches),
    )
    assert (first.next_sequence, second.txn_first_offset) == (1, 3)
    for size in range(len(data)):
        assert snapshots.decode(data[:size]) is None
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 4
        assert snapshots.decode(bytes(flipped)) is None


# Transactions.


class CountedOffset(int):
    """Tells how often two of its kind were compared."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        CountedOffset.comparisons += 1
        return int(self) < int(other)


def test_the_open_transactions_of_a_snapshot_are_put_in_order_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its producers in no order of offsets, and they may be very many."""
    count = 1_000
    before = ProducerStates()
    for producer_id in range(count):
        entry = before.entries[producer_id] = ProducerEntry(producer_id)
        entry.txn_first_offset = 5 + 389 * producer_id % count
    disk = FaultyDisk()
    disk.make_dirs("d")
    taken = snapshots.SnapshotFiles(disk, "d")
    taken.take(before, 2 * count)
    decode = snapshots.decode

    def decode_counted(data: bytes) -> list[ProducerEntry] | None:
        entries = decode(data)
        for entry in entries or ():
            entry.txn_first_offset = CountedOffset(entry.txn_first_offset)
        return entries

    monkeypatch.setattr(snapshots, "decode", decode_counted)
    monkeypatch.setattr(CountedOffset, "comparisons", 0)
    after = ProducerStates()
    assert taken.load_latest(after, 2 * count, NOW) == 2 * count
    assert after.first_unstable_offset == 5
    assert count <= CountedOffset.comparisons + 1 <= count * count.bit_length()


def begin_transaction(log: Log, *, producer_id: int, sequence: int = 0, epoch: int = 0) -> AppendInfo:
    data = batch(producer_id=producer_id, producer_epoch=epoch, sequence=sequence, transactional=True)
    guard = log.producers.start_verification(producer_id, sequence, epoch, NOW)
    return append(log, data, verification_guard=guard)


def end_transaction(
    log: Log, *, producer_id: int, commit: bool, epoch: int = 0, coordinator_epoch: int = 0, version: int = 0
) -> AppendInfo:
    data = marker(commit=commit, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=coordinator_epoch)
    return append(log, data, origin=COORDINATOR, transaction_version=version)


def test_readers_stop_before_the_first_undecided_transaction() -> None:
    log = new_log()
    fill(log, 2)
    begin_transaction(log, producer_id=1)  # 2
    begin_transaction(log, producer_id=2)  # 3
    fill(log, 1)
    assert (log.high_watermark, log.last_stable_offset) == (5, 2)
    end_transaction(log, producer_id=1, commit=True)  # 5
    assert log.last_stable_offset == 2, "its marker is not replicated yet"
    log.update_high_watermark(6)
    assert log.last_stable_offset == 3
    end_transaction(log, producer_id=2, commit=False)  # 6
    log.update_high_watermark(7)
    assert log.last_stable_offset == log.high_watermark == 7


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("clean", [True, False])
def test_a_transaction_whose_marker_is_not_replicated_is_undecided_after_a_restart_too(
    clean: bool, commit: bool
) -> None:
    """Snapshots tell of open transactions and of nothing else: one behind the marker says that all is decided."""
    disk = FaultyDisk()
    manager = open_manager(disk)
    log = create(manager)
    begin_transaction(log, producer_id=1)  # 0
    send(log, 0, producer_id=5)  # 1
    log.roll(NOW)
    end_transaction(log, producer_id=1, commit=commit)  # 2
    log.roll(NOW)
    send(log, 1, producer_id=5)  # 3
    log.update_high_watermark(1)
    assert log.last_stable_offset == 0
    log.flush(NOW)
    manager.prepare_checkpoints().run()
    if clean:
        manager.close(NOW)
    log = open_manager(disk.copy()).logs[TP]
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 0
    log.update_high_watermark(3)
    assert log.last_stable_offset == 3


def test_a_cut_does_not_decide_a_transaction_whose_marker_is_not_replicated() -> None:
    log = new_log()
    begin_transaction(log, producer_id=1)  # 0
    end_transaction(log, producer_id=1, commit=True)  # 1
    log.roll(NOW)
    send(log, 0, count=3, producer_id=5)  # 2 to 4
    send(log, 3, producer_id=5)  # 5
    log.update_high_watermark(1)
    log.truncate_to(5)
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)


def test_aborted_transactions_are_listed_for_every_range_that_they_overlap() -> None:
    log = new_log(LogConfig(segment_bytes=400))
    begin_transaction(log, producer_id=1)  # 0
    fill(log, 8)
    end_transaction(log, producer_id=1, commit=False)  # 9
    begin_transaction(log, producer_id=2)  # 10
    end_transaction(log, producer_id=2, commit=True)  # 11
    begin_transaction(log, producer_id=3)  # 12
    end_transaction(log, producer_id=3, commit=False)  # 13
    assert len(log.segment_base_offsets) > 2
    log.update_high_watermark(14)
    listed = {
        (first, upper): [txn.producer_id for txn in log.aborted_transactions(first, upper)]
        for first in range(14)
        for upper in range(first + 1, 15)
    }
    for (first, upper), producers in listed.items():
        expected = [p for p, begin, end in ((1, 0, 9), (3, 12, 13)) if end >= first and begin < upper]
        assert producers == expected
    log.flush(NOW)
    assert [txn.producer_id for txn in log.aborted_transactions(0, 14)] == [1, 3], "also from the disk"


def test_a_record_outside_a_transaction_is_refused() -> None:
    log = new_log()
    data = batch(producer_id=1, producer_epoch=0, sequence=0, transactional=True)
    with pytest.raises(KafkaError) as refusal:
        append(log, data, verification_guard=KNOWN_OPEN)
    assert refusal.value.code is ErrorCode.INVALID_TXN_STATE
    begin_transaction(log, producer_id=1)
    with pytest.raises(KafkaError) as refusal:
        append(log, batch(producer_id=1, producer_epoch=0, sequence=1))
    assert refusal.value.code is ErrorCode.INVALID_TXN_STATE


def test_records_of_a_transaction_come_in_a_request_that_names_it() -> None:
    """Else whoever may write to the topic could write into the transactions of others."""
    log = new_log()
    begin_transaction(log, producer_id=1)
    for sequence in (0, 1):
        with pytest.raises(KafkaError) as refusal:
            append(log, batch(producer_id=1, producer_epoch=0, sequence=sequence, transactional=True))
        assert refusal.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert log.log_end_offset == 1


def test_a_verification_from_before_a_marker_is_of_no_use_after_it() -> None:
    log = new_log()
    stale = log.producers.start_verification(1, 0, 0, NOW)
    end_transaction(log, producer_id=1, commit=False)
    log.producers.start_verification(1, 0, 0, NOW)
    with pytest.raises(KafkaError) as refusal:
        append(log, batch(producer_id=1, producer_epoch=0, sequence=0, transactional=True), verification_guard=stale)
    assert refusal.value.code is ErrorCode.INVALID_TXN_STATE


def test_while_a_verification_is_under_way_nothing_overtakes_it() -> None:
    log = new_log()
    log.producers.start_verification(1, 4, 0, NOW)
    guard = log.producers.start_verification(1, 7, 0, NOW)
    with pytest.raises(KafkaError) as refusal:
        append(log, batch(producer_id=1, producer_epoch=0, sequence=7, transactional=True), verification_guard=guard)
    assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_fenced_producer_hears_of_its_epoch_before_its_transaction() -> None:
    log = new_log()
    send(log, 0, epoch=3, producer_id=1)
    late = batch(producer_id=1, producer_epoch=2, sequence=0, transactional=True)
    with pytest.raises(KafkaError) as refusal:
        append(log, late, verification_guard=KNOWN_OPEN)
    assert refusal.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_old_coordinator_is_fenced_and_a_repeated_marker_is_not() -> None:
    log = new_log()
    begin_transaction(log, producer_id=1)
    end_transaction(log, producer_id=1, commit=True, coordinator_epoch=5)
    with pytest.raises(KafkaError) as refusal:
        end_transaction(log, producer_id=1, commit=True, coordinator_epoch=4)
    assert refusal.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    end_transaction(log, producer_id=1, commit=True, coordinator_epoch=5)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset
    assert log.aborted_transactions(0, 10) == []


def test_a_late_marker_does_not_end_the_next_transaction() -> None:
    """Version 2: the marker of a transaction in epoch 0 carries epoch 1, and so do the next one's records."""
    log = new_log()
    begin_transaction(log, producer_id=1, epoch=0)
    end_transaction(log, producer_id=1, commit=True, epoch=1, version=2)
    end_transaction(log, producer_id=1, commit=True, epoch=1, version=2)  # A retry.
    begin_transaction(log, producer_id=1, epoch=1)
    with pytest.raises(KafkaError) as refusal:
        end_transaction(log, producer_id=1, commit=True, epoch=1, version=2)
    assert refusal.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.producers.has_ongoing_transaction(1, 1)


def test_the_last_epoch_has_no_next_one_for_its_marker() -> None:
    log = new_log()
    begin_transaction(log, producer_id=1, epoch=MAX_EPOCH)
    end_transaction(log, producer_id=1, commit=True, epoch=MAX_EPOCH, version=2)
    assert not log.producers.has_ongoing_transaction(1, MAX_EPOCH)


def test_a_transaction_of_a_new_epoch_is_verified_though_one_of_the_old_is_open() -> None:
    log = new_log()
    begin_transaction(log, producer_id=1, epoch=0)
    newer = batch(producer_id=1, producer_epoch=1, sequence=0, transactional=True)
    with pytest.raises(KafkaError) as refusal:
        append(log, newer, verification_guard=KNOWN_OPEN)
    assert refusal.value.code is ErrorCode.INVALID_TXN_STATE
    guard = log.producers.start_verification(1, 0, 1, NOW)
    assert guard is not KNOWN_OPEN
    append(log, newer, verification_guard=guard)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 0


def test_a_fenced_producer_is_not_worth_a_verification() -> None:
    log = new_log()
    send(log, 0, epoch=3, producer_id=1)
    with pytest.raises(KafkaError) as refusal:
        log.producers.start_verification(1, 0, 2, NOW)
    assert refusal.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_marker_before_a_transaction_with_its_own_epoch_leaves_its_verification_alone() -> None:
    """Version 2: the next one may be verified while the marker of the last, which has its epoch, is on its way."""
    log = new_log()
    begin_transaction(log, producer_id=1, epoch=0)
    guard = log.producers.start_verification(1, 0, 1, NOW, new_epoch_each=True)
    end_transaction(log, producer_id=1, commit=True, epoch=1, version=2)
    append(log, batch(producer_id=1, producer_epoch=1, sequence=0, transactional=True), verification_guard=guard)
    assert log.producers.has_ongoing_transaction(1, 1)
    stale = log.producers.start_verification(2, 0, 0, NOW, new_epoch_each=True)
    end_transaction(log, producer_id=2, commit=False, epoch=1, version=2)
    with pytest.raises(KafkaError) as refusal:
        append(log, batch(producer_id=2, producer_epoch=1, sequence=0, transactional=True), verification_guard=stale)
    assert refusal.value.code is ErrorCode.INVALID_TXN_STATE


def test_a_transaction_with_its_own_epoch_begins_at_zero() -> None:
    """Nothing of a new epoch can have been forgotten, so that there is no excuse for another first sequence."""
    log = new_log()
    guard = log.producers.start_verification(1, 3, 0, NOW, new_epoch_each=True)
    with pytest.raises(KafkaError) as refusal:
        append(log, batch(producer_id=1, producer_epoch=0, sequence=3, transactional=True), verification_guard=guard)
    assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    older = log.producers.start_verification(2, 3, 0, NOW)
    append(log, batch(producer_id=2, producer_epoch=0, sequence=3, transactional=True), verification_guard=older)


def test_an_open_transaction_survives_a_restart_and_its_abort_is_found() -> None:
    disk = FaultyDisk()
    manager = open_manager(disk)
    log = create(manager)
    begin_transaction(log, producer_id=1)
    fill(log, 3)
    manager.close(NOW)
    log = open_manager(disk).logs[TP]
    assert log.last_stable_offset == 0
    end_transaction(log, producer_id=1, commit=False)
    log.update_high_watermark(log.log_end_offset)
    assert [txn[:3] for txn in log.aborted_transactions(0, 9)] == [(1, 0, 4)]


@pytest.mark.parametrize("broken", [b"\xff", b"\xff" * 34, bytes(33)])
def test_a_transaction_index_that_makes_no_sense_is_built_anew(broken: bytes) -> None:
    """Without it readers of committed records would take what was aborted for good."""
    disk = FaultyDisk()
    config = LogConfig(segment_bytes=300)
    manager = open_manager(disk, config)
    log = create(manager, config)
    for number in range(12):
        begin_transaction(log, producer_id=number % 3, sequence=number // 3)
        if number % 2:
            end_transaction(log, producer_id=number % 3, commit=False)
    for producer_id in range(3):
        end_transaction(log, producer_id=producer_id, commit=producer_id == 1)
    log.update_high_watermark(log.log_end_offset)
    before = log.aborted_transactions(0, log.log_end_offset)
    manager.close(NOW)
    indexes = [name for name in disk.list(log.directory) if name.endswith(files.TXN_INDEX)]
    assert len(indexes) > 3
    for name in indexes:
        file = disk.open(f"{log.directory}/{name}")
        file.truncate(0)
        file.write(0, broken)
        file.close()
    log = open_manager(disk, config).logs[TP]
    assert log.aborted_transactions(0, log.log_end_offset) == before


def test_replication_is_never_refused() -> None:
    log = new_log()
    for sequence, epoch in ((9, 4), (3, 4), (0, 2)):
        data = batch(
            producer_id=1, producer_epoch=epoch, sequence=sequence, base_offset=log.log_end_offset, leader_epoch=0
        )
        log.append_replicated(data)
    assert log.log_end_offset == 3
    assert log.producers.entries[1].epoch == 2


def test_expiry_and_verification_can_be_configured() -> None:
    states = ProducerStates(expiration_ms=10, verify_transactions=False)
    data = batch(producer_id=1, producer_epoch=0, sequence=0, transactional=True)
    header = read_header(data)
    from ottla.log import AppendOrigin

    assert states.check(header, 0, AppendOrigin.CLIENT, KNOWN_OPEN) is None
    states.record(header, 0, 0)
    assert states.first_unstable_offset == 0
