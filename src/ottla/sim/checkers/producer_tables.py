"""D2, D21 and E14: what a log knows of its producers is what its batches say of them.

The table is rebuilt from the batches as they lie on the disk, by rules of the checker's own, and held against the one
that the log keeps: after a truncation, a restart, a change of leaders, and in the end. A log that was loaded remembers
the last batch of a producer, and perhaps some before it; a compacted one has lost all but the last. Who has been silent
for long may be forgotten, unless his transaction is open; and who comes back then has had no marker yet.

Of a transaction that has ended compaction may take the first batches, or all, and then a power loss the marker, which
was not synced. A snapshot still knows where it began. So the table of a compacted log may also be what the batches said
before: that which was committed, where the log has nothing any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from ottla.log.log import Log
from ottla.log.producers import ProducerEntry
from ottla.model import NO_OFFSET, NO_SEQUENCE
from ottla.records import BatchHeader, iterate, read_end_txn_marker, read_header
from ottla.sim.checkers.mirror import Batch
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Machine

REMEMBERED_BATCHES = 5


class Account:
    """One producer, by the batches of a log."""

    __slots__ = ("coordinator_epoch", "epoch", "first_offset", "last_timestamp", "least_timestamp", "window")

    def __init__(self) -> None:
        self.epoch = -1
        self.coordinator_epoch = -1
        self.first_offset = NO_OFFSET
        """Of its open transaction."""
        self.last_timestamp = -1
        self.least_timestamp: int | None = None
        """Of all its batches: a marker has the time of its coordinator, which may be behind."""
        self.window: deque[tuple[int, int, int, int]] = deque(maxlen=REMEMBERED_BATCHES)
        """First and last sequence, first and last offset, of its last batches in this epoch."""

    @property
    def last_sequence(self) -> int:
        return self.window[-1][1] if self.window else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.window[-1][3] if self.window else NO_OFFSET

    def in_short(self) -> tuple[int, int, int]:
        """The epoch, the last sequence, the open transaction."""
        return self.epoch, self.last_sequence, self.first_offset

    def take(self, header: BatchHeader) -> None:
        """Its next batch."""
        if self.least_timestamp is None or header.max_timestamp < self.least_timestamp:
            self.least_timestamp = header.max_timestamp
        if header.producer_epoch != self.epoch:
            self.epoch = header.producer_epoch
            self.window.clear()
        if header.is_control:
            self.first_offset = NO_OFFSET
            return
        self.window.append((header.base_sequence, header.last_sequence, header.base_offset, header.last_offset))
        self.last_timestamp = header.max_timestamp
        if header.is_transactional and self.first_offset < 0:
            self.first_offset = header.base_offset


def rebuild(batches: Iterable[Batch]) -> dict[int, Account]:
    """All producers that wrote them."""
    accounts: dict[int, Account] = {}
    for batch in batches:
        if batch.producer_id >= 0:
            _take(accounts, batch)
    return accounts


def _take(accounts: dict[int, Account], batch: Batch) -> None:
    content = batch.file.content
    header = read_header(content, batch.position)
    account = accounts.setdefault(header.producer_id, Account())
    account.take(header)
    if header.is_control:
        with memoryview(content) as everything, everything[batch.position : batch.position + batch.size] as data:
            for record in iterate(data):  # There is none if all of the transaction was compacted away.
                marker = read_end_txn_marker(record)
                if marker is not None:
                    account.coordinator_epoch, account.last_timestamp = marker.coordinator_epoch, record.timestamp


def check_producers(
    machine: Machine,
    where: str,
    log: Log,
    batches: list[Batch],
    *,
    compacted: bool,
    written: Sequence[BatchHeader] = (),
) -> int:
    """`batches` are all that the log has, and `written` what producers have committed, if it is `compacted`. How many
    of them it has forgotten."""
    accounts, entries = rebuild(batches), log.producers.entries
    whole = log.log_start_offset == 0
    forgotten = 0
    for producer_id, account in accounts.items():
        entry = entries.get(producer_id)
        if entry is None:
            _check_forgotten(machine, where, log, producer_id, account)
            forgotten += 1
            continue
        known = (entry.epoch, entry.last_sequence, entry.txn_first_offset)
        right = known == account.in_short()
        if not right and not whole and 0 <= entry.txn_first_offset < log.log_start_offset:
            right = known[:2] == account.in_short()[:2]  # What its transaction began with is gone.
        if not right and compacted:
            right = known == _before_compaction(producer_id, batches, written).in_short()
        if right and not compacted:
            right = _same_window(entry, account) and (not whole or _same_coordinator(machine, log, entry, account))
        if not right:
            raise Violation(
                "D2",
                f"{where}: by its batches producer {producer_id} has (epoch, last sequence, open since) "
                f"{account.in_short()}, coordinator epoch {account.coordinator_epoch} and wrote {list(account.window)} "
                f"last, and the table says {known}, {entry.coordinator_epoch} and {list(entry.batches)}",
            )
    strangers = [producer_id for producer_id in entries if producer_id not in accounts]
    if whole and not compacted and strangers:
        raise Violation("D2", f"{where}: the table has producers {strangers}, of whom there is no batch")
    return forgotten


def _before_compaction(producer_id: int, batches: list[Batch], written: Sequence[BatchHeader]) -> Account:
    """The producer by what the log has, and by what was committed where it has nothing any more."""
    account = Account()
    end = 0
    for batch in batches:
        gone = [header for header in written if end <= header.base_offset < batch.base]
        for header in [*gone, read_header(batch.file.content, batch.position)]:
            if header.producer_id == producer_id:
                account.take(header)
        end = batch.next
    return account


def _check_forgotten(machine: Machine, where: str, log: Log, producer_id: int, account: Account) -> None:
    if account.first_offset >= 0:
        raise Violation(
            "D21",
            f"{where}: producer {producer_id} has a transaction open since {account.first_offset}, and is forgotten",
        )
    silent_ms = machine.clock.highest_wall_ms - account.last_timestamp
    if silent_ms < log.producers.expiration_ms:
        raise Violation("D2", f"{where}: producer {producer_id} wrote {silent_ms} ms ago, and is not in the table")


def _same_coordinator(machine: Machine, log: Log, entry: ProducerEntry, account: Account) -> bool:
    if entry.coordinator_epoch == account.coordinator_epoch:
        return True
    assert account.least_timestamp is not None
    silent_ms = machine.clock.highest_wall_ms - account.least_timestamp
    return entry.coordinator_epoch == -1 and silent_ms >= log.producers.expiration_ms


def _same_window(entry: ProducerEntry, account: Account) -> bool:
    """As far back as both go, and that is one batch at least, if there is any."""
    remembered = [tuple(batch[:4]) for batch in entry.batches]
    shared = min(len(remembered), len(account.window))
    if not shared:
        return not remembered and not account.window
    return remembered[-shared:] == list(account.window)[-shared:]


def check_compacted(where: str, log: Log, before: list[Batch], after: list[Batch]) -> None:
    """E14: compaction leaves of each producer that is still known what a rebuild needs. Batches may have come since."""
    end = before[-1].next if before else 0
    had, has = rebuild(before), rebuild(batch for batch in after if batch.base < end)
    for producer_id, account in had.items():
        left = has.get(producer_id, Account())
        had_last, has_last = ((*each.in_short(), each.last_offset) for each in (account, left))
        if producer_id in log.producers.entries and had_last != has_last:
            raise Violation(
                "E14",
                f"{where}: before compaction producer {producer_id} had (epoch, last sequence, open since, last "
                f"offset) {had_last}, and has {has_last}",
            )
