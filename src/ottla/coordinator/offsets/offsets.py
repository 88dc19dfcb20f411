"""`Offsets`: the part itself. See the package for what it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from ottla.coordinator.groups import Group, Shared
from ottla.coordinator.offsets import deletion, expiry, fetches, gone_topics
from ottla.coordinator.offsets.commits import Admitted, Commits
from ottla.coordinator.offsets.simple_group import SimpleGroup
from ottla.coordinator.offsets.state import OffsetState
from ottla.coordinator.outcome import AnyEffect, Outcome
from ottla.coordinator.stored import AnyRecord, EncodedRecord
from ottla.errors import ErrorCode
from ottla.metadata.images import MetadataImage, TopicsImage
from ottla.wire.messages.delete_groups_response import DeletableGroupResult
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.offset_delete_request import OffsetDeleteRequest
from ottla.wire.messages.offset_delete_response import OffsetDeleteResponse
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequestGroup
from ottla.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from ottla.wire.messages.txn_offset_commit_response import TxnOffsetCommitResponse


class Offsets:
    """A part of `GroupShard`."""

    __slots__ = ("_commits", "_expiry", "_gone", "_shared", "_topics", "state")

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.state = OffsetState(shared.timeline)
        self._commits = Commits(shared)
        self._expiry = expiry.Expiry(shared, self.state)
        self._gone = gone_topics.GoneTopics(shared, self.state)
        self._topics: TopicsImage | None = None
        """Those that existed when we last looked."""

    # Requests.

    def commit(self, request: OffsetCommitRequest, api_version: int, now_ms: int) -> Outcome[OffsetCommitResponse]:
        return self._commits.commit(request, api_version, now_ms)

    def admit_commit(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation: int, api_version: int
    ) -> Admitted:
        """The same rule, for who makes the record without a request (`broker/api/offset_commit`)."""
        return self._commits.admit(group_id, member_id, group_instance_id, generation, api_version)

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, api_version: int, now_ms: int
    ) -> Outcome[TxnOffsetCommitResponse]:
        return self._commits.commit_transactional(request, api_version, now_ms)

    def look_up(self, request: OffsetFetchRequestGroup, *, require_stable: bool) -> fetches.Found:
        return fetches.look_up(self.state, self._shared.groups, request, require_stable)

    def delete(self, request: OffsetDeleteRequest) -> Outcome[OffsetDeleteResponse]:
        outcome = deletion.delete_offsets(self.state, self._shared.groups, request)
        self._shared.tally.offset_deletions.value += len(outcome.records)
        return outcome

    def delete_groups(self, group_ids: Iterable[str]) -> Outcome[list[DeletableGroupResult]]:
        return deletion.delete_groups(self.state, self._shared.groups, group_ids)

    # Groups that have offsets and nothing else.

    def group(self, group_id: str) -> Group | None:
        state = self.state
        return SimpleGroup(group_id) if group_id in state.table or state.has_staged(group_id) else None

    def groups(self) -> Iterator[Group]:
        """Those that no other part has, and that are committed."""
        state = self.state
        for group_id in self.group_ids():
            if state.table.is_committed(group_id) or state.is_staging_committed(group_id):
                group = self._shared.groups.group(group_id)
                if isinstance(group, SimpleGroup):
                    yield group

    def group_ids(self) -> Iterator[str]:
        """Those that have offsets, of whatever kind they are; none twice."""
        table = self.state.table
        return chain(table.group_ids(), (each for each in self.state.staged_group_ids() if each not in table))

    def on_group_tombstone(self, group_id: str) -> None:
        """A record took back the group, of whatever kind it was."""
        self.state.table.forget(group_id)

    # Records.

    def replay(self, record: AnyRecord, producer_id: int, producer_epoch: int) -> None:
        assert type(record) is EncodedRecord, "offsets are not decoded on their way here"
        self.state.replay(record, producer_id)

    def load(self, base_offset: int, records: Sequence[tuple[int, bytes | None, bytes | None]]) -> int:
        return self.state.load(base_offset, records)

    def replay_marker(self, producer_id: int, producer_epoch: int, commit: bool) -> None:
        self.state.replay_marker(producer_id, commit)

    # Facts.

    def take_up(self, image: MetadataImage) -> Iterator[list[AnyEffect]]:
        for _ in self.state.table.forget_empty():
            yield []

    def on_loaded(self, image: MetadataImage, now_ms: int) -> Outcome[None]:
        self._topics = image.topics
        return Outcome(effects=[self._expiry.begin(), *self._gone.on_loaded(image)])

    def on_metadata(self, image: MetadataImage, now_ms: int) -> Outcome[None]:
        before, self._topics = self._topics, image.topics
        if before is None:
            return Outcome()
        return self._gone.on_deleted(before.by_id.values_missing_in(image.topics.by_id))

    def on_timer(self, key: tuple[str, ...], now_ms: int) -> Outcome[None]:
        if key == gone_topics.TIMER:
            return self._gone.on_timer()
        assert key == expiry.TIMER
        return self._expiry.on_timer(now_ms)

    def on_written(self, tag: object, error: ErrorCode, now_ms: int) -> Outcome[None]:
        assert isinstance(tag, tuple)
        return self._gone.on_written(tag[1], error)
