"""Commits, transactions, deletions, expiry, failed appends and moves in any order: the answer is always the log's.

Beside the machine stands a model that keeps nothing: it looks at the whole log and says what is in force. After every
step the newest state is held against the model of the whole log, the committed state against that of the committed part
(C9, C10), and against other nodes that load that part: as it is, and as compaction may have left it (C8, C11, C14).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from random import Random

import pytest

from ottla.coordinator.offsets.codec import decode_key, decode_value
from ottla.errors import ErrorCode, KafkaError
from tests.coordinator.offsets.acting import MINUTE_MS, Acting, ActingGroup, Entry, Partition

GROUPS = ("g", "h", "i")
PARTITIONS: Sequence[Partition] = (("a", 0), ("a", 1), ("b", 0))
PRODUCERS = (1, 2, 3)
STEPS = 120

Place = tuple[str, str, int]


# The model.


def places(log: Iterable[Entry]) -> set[Place]:
    return {decode_key(entry.key) for entry in log if entry.key is not None and entry.key[1] == 1}


def endings(log: Sequence[Entry]) -> dict[int, Entry | None]:
    """For each transactional record, by offset, the marker of its transaction: the next of its producer."""
    next_marker: dict[int, Entry] = {}
    found: dict[int, Entry | None] = {}
    for entry in reversed(log):
        if entry.key is None:
            next_marker[entry.producer_id] = entry
        elif entry.producer_id >= 0:
            found[entry.offset] = next_marker.get(entry.producer_id)
    return found


def in_force(log: Sequence[Entry]) -> dict[Place, int]:
    """Of the records since the last tombstone of a place, plain ones and those of committed transactions: the last."""
    ended = endings(log)
    found: dict[Place, int] = {}
    for entry in log:
        if entry.key is None or entry.key[1] != 1:
            continue
        place = decode_key(entry.key)
        if entry.value is None:
            found.pop(place, None)
            continue
        marker = ended.get(entry.offset)
        if entry.producer_id < 0 or (marker is not None and marker.commit):
            found[place] = decode_value(entry.value).offset
    return found


def staged(log: Sequence[Entry]) -> set[Place]:
    ended = endings(log)
    found: set[Place] = set()
    for entry in log:
        if entry.key is None or entry.key[1] != 1:
            continue
        if entry.value is None:
            found.discard(decode_key(entry.key))
        elif entry.producer_id >= 0 and ended[entry.offset] is None:
            found.add(decode_key(entry.key))
    return found


def compacted(log: Sequence[Entry], random: Random) -> list[Entry]:
    """What the cleaner may leave: of each key the last record, below the first open transaction; no aborted ones; a
    marker while records of its transaction are there; a tombstone for a while."""
    ended = endings(log)
    stable = min(
        (offset for offset, marker in ended.items() if marker is None), default=len(log) and log[-1].offset + 1
    )
    stable = random.randint(0, stable)
    last: dict[bytes, int] = {}
    for entry in log:
        marker = ended.get(entry.offset)
        aborted = marker is not None and not marker.commit
        if entry.key is not None and entry.offset < stable and not aborted:
            last[entry.key] = entry.offset
    kept: list[Entry] = []
    for entry in log:
        marker = ended.get(entry.offset)
        if entry.offset < stable and entry.key is not None:
            if marker is not None and not marker.commit and marker.offset < stable:
                continue
            if entry.offset < last.get(entry.key, -1):
                continue
            if entry.value is None and random.random() < 0.3:
                continue
        kept.append(entry)
    still_needed = {marker.offset for entry in kept if (marker := ended.get(entry.offset)) is not None}
    return [entry for entry in kept if entry.key is not None or entry.offset >= stable or entry.offset in still_needed]


# The walk.


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.acting = Acting(offsets_retention_minutes="10")
        self.acting.held = True
        self.number = 0
        self.done: list[str] = []
        self.answered: dict[Place, int] = {}

    def offsets(self) -> dict[Partition, int]:
        chosen = self.random.sample(PARTITIONS, self.random.randint(1, len(PARTITIONS)))
        self.number += 1
        return {partition: self.number * 10 + index for index, partition in enumerate(chosen)}

    def commit(self) -> None:
        self.acting.commit(self.random.choice(GROUPS), self.offsets())

    def stage(self) -> None:
        self.acting.stage(self.random.choice(PRODUCERS), self.random.choice(GROUPS), self.offsets())

    def end_transaction(self) -> None:
        self.acting.end_transaction(self.random.choice(PRODUCERS), commit=self.random.random() < 0.7)

    def delete(self) -> None:
        with suppress(KafkaError):
            self.acting.delete(self.random.choice(GROUPS), *self.offsets())

    def delete_group(self) -> None:
        self.acting.delete_groups(self.random.choice(GROUPS))

    def expire(self) -> None:
        self.acting.now_ms += self.random.choice((0, 0, 4, 12)) * MINUTE_MS
        before = staged(self.acting.log)
        self.acting.expire()
        assert staged(self.acting.log) == before, "C12: what a transaction has staged does not expire"

    def join_or_leave(self) -> None:
        """A group with members, whose offsets do not expire; later it is empty, and may be deleted."""
        group_id = self.random.choice(GROUPS)
        group = self.acting.others.by_id.get(group_id)
        if group is None:
            self.acting.others.add(ActingGroup(group_id))
        elif group.empty_since_ms is None:
            group.empty_since_ms = self.acting.now_ms

    def advance(self) -> None:
        self.acting.commit_up_to(self.random.randint(self.acting.committed, self.acting.end))

    def fail(self) -> None:
        self.acting.revert_to(self.random.randint(self.acting.committed, self.acting.end))

    def move(self) -> None:
        self.acting = self.acting.moved(compacted(self.committed_log(), self.random))
        self.acting.held = True

    def committed_log(self) -> list[Entry]:
        return [entry for entry in self.acting.log if entry.offset < self.acting.committed]

    def step(self) -> None:
        action = self.random.choices(*zip(*WEIGHTS.items(), strict=True))[0]
        self.done.append(action.__name__)
        action(self)
        self.check()

    def check(self) -> None:
        acting = self.acting
        committed = self.committed_log()
        assert acting.everything() == in_force(committed)
        one_by_one = {
            (group_id, *partition): answer
            for group_id in GROUPS
            for partition, answer in acting.fetch(group_id, *PARTITIONS).items()
            if answer != -1
        }
        assert one_by_one == in_force(committed)
        expected: dict[Place, int | ErrorCode] = dict(in_force(acting.log))
        for place in staged(acting.log):
            expected[place] = ErrorCode.UNSTABLE_OFFSET_COMMIT
        newest = {
            (group_id, *partition): answer
            for group_id in GROUPS
            for partition, answer in acting.fetch_newest(group_id, *PARTITIONS).items()
            if answer != -1
        }
        assert newest == expected
        assert not acting.shard.timeline.pending or acting.end > acting.committed
        for log in (committed, compacted(committed, self.random)):
            after = acting.moved(log)
            assert after.everything() == in_force(committed)
            assert staged(log) == staged(committed)
            assert {group.group_id for group in after.offsets.groups()} >= {
                place[0] for place in in_force(committed)
            } - (acting.others.by_id.keys())


WEIGHTS: dict[Callable[[Walk], None], int] = {
    Walk.commit: 6,
    Walk.stage: 6,
    Walk.end_transaction: 5,
    Walk.delete: 2,
    Walk.delete_group: 1,
    Walk.expire: 3,
    Walk.join_or_leave: 1,
    Walk.advance: 8,
    Walk.fail: 3,
    Walk.move: 1,
}


def walk(seed: int) -> None:
    walking = Walk(seed)
    try:
        for _ in range(STEPS):
            walking.step()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, after {', '.join(walking.done[-12:])}") from error


@pytest.mark.parametrize("seed", range(12))
def test_the_answer_is_always_the_logs(seed: int) -> None:
    walk(seed)


@pytest.mark.long
def test_the_answer_is_always_the_logs_for_long() -> None:
    for seed in range(1000, 1300):
        walk(seed)
