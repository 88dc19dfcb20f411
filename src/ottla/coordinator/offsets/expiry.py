"""Offsets that nobody needs any more, and groups that nobody is in.

Every `offsets.retention.check.interval.ms` all groups are looked at, a slice at a time, so that a million offsets do
not hold up everybody else. A group says from when on the time of its offsets runs (`Group.expiration_base`): from when
it became empty, or from each commit where nobody subscribes. What an open transaction has staged does not expire, and
neither does its group: the tombstone would lie behind the staged record and take away what the marker commits.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.coordinator.groups import Group, Shared
from ottla.coordinator.offsets.codec import NEVER, decode_value
from ottla.coordinator.offsets.deletion import tombstone
from ottla.coordinator.offsets.state import OffsetState
from ottla.coordinator.offsets.table import value_of
from ottla.coordinator.outcome import Outcome, SetTimer
from ottla.coordinator.stored import AnyRecord

TIMER = ("offsets", "expiry")
SLICE_OFFSETS = 2_000
"""Offsets looked at in one go: a few milliseconds."""
PAUSE_MS = 5
"""Between two slices."""

_MS_PER_MINUTE = 60_000


class Expiry:
    """States: between two rounds (`_round` is None), or within one."""

    __slots__ = ("_interval_ms", "_retention_ms", "_round", "_shared", "_state")

    def __init__(self, shared: Shared, state: OffsetState) -> None:
        self._shared = shared
        self._state = state
        self._retention_ms = shared.config.get_int("offsets.retention.minutes") * _MS_PER_MINUTE
        self._interval_ms = shared.config.get_int("offsets.retention.check.interval.ms")
        self._round: Iterator[Group | None] | None = None
        """Groups that this round has yet to look at."""

    def begin(self) -> SetTimer:
        return SetTimer(key=TIMER, delay_ms=self._interval_ms)

    def on_timer(self, now_ms: int) -> Outcome[None]:
        left, self._round = self._round or self._shared.groups.one_by_one(), None
        records: list[AnyRecord] = []
        looked_at = 0
        for group in left:
            looked_at += 1
            if group is not None:
                looked_at += self._expire(group, now_ms, records)
            if looked_at >= SLICE_OFFSETS:
                self._round = left
                break
        again = SetTimer(key=TIMER, delay_ms=self._interval_ms if self._round is None else PAUSE_MS)
        return Outcome(records=records, effects=[again], atomic=False)

    def _expire(self, group: Group, now_ms: int, records: list[AnyRecord]) -> int:
        """How many offsets were looked at."""
        group_id = group.group_id
        topics = self._state.table.topics(group_id)
        count = 0
        all_expired = True
        for topic, partitions in topics.items():
            if group.is_subscribed_to(topic):
                all_expired = False
                continue
            count += len(partitions)
            for partition, kept in partitions.items():
                if self._is_expired(group, kept, now_ms) and not self._state.is_staged(group_id, topic, partition):
                    records.append(tombstone(group_id, topic, partition))
                    self._shared.tally.offset_expirations.value += 1
                else:
                    all_expired = False
        if all_expired and group.is_empty() and not self._state.has_staged(group_id):
            records.extend(group.tombstones())
        return count

    def _is_expired(self, group: Group, kept: bytes, now_ms: int) -> bool:
        committed = decode_value(value_of(kept))
        since_ms = group.expiration_base(committed.commit_timestamp_ms)
        if since_ms is None:
            return False
        if committed.expire_timestamp_ms != NEVER:
            return now_ms >= committed.expire_timestamp_ms
        return now_ms - since_ms >= self._retention_ms
