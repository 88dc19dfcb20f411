"""Members of groups: they join, commit what they own, leave, die, come back; one kind for each protocol.

A member has lives. In each it has an id of its own, and goes on from the offsets that the group has committed, one step
a commit. A commit that may or may not have happened ends a life: what is still on its way may come late, and as long as
nobody else uses that id it can do no harm. So within a group the offsets that are committed for a partition never fall
(C14), whoever commits them, unless two members own it at once or an old one is believed.

Every commit carries a name of its own in its metadata, by which the checkers know it again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from ottla.errors import ErrorCode, Malformed
from ottla.model import ZERO_UUID, TopicPartition, Uuid
from ottla.sim.client import Lost, SimClient
from ottla.sim.history import Commit, History, Outcome, Owned
from ottla.wire.message import Message
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.messages.sync_group_response import SyncGroupResponse

M = TypeVar("M", bound=Message)

GROUP = 0
"""The kind of coordinator."""

_ANOTHER_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})

AGAIN = _ANOTHER_COORDINATOR | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.NETWORK_EXCEPTION,
}
"""What a coordinator says to whoever may ask the same again."""

OUT = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""What somebody hears whom the group does not count among its members any more, or not in that generation."""

_VERSION = struct.pack(">h", 1)
_PROTOCOL = "range"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    session_timeout_ms: int
    """Of members of the classic protocol; the others have the broker's."""
    dies: float = 0.02
    """How often, between two heartbeats, it is not heard of any more."""
    leaves: float = 0.02
    misbehaves: float = 0.3
    """How often it commits once more after it has left."""
    request_timeout_s: float = 2.0
    rebalance_timeout_ms: int = 4000


class GroupMember:
    """What both kinds have in common: offsets, and lives."""

    def __init__(
        self, client: SimClient, group_id: str, places: list[TopicPartition], options: MemberOptions, history: History
    ) -> None:
        self.client = client
        self.group_id = group_id
        self.places = places
        self.options = options
        self.history = history
        self.member_id = ""
        self.epoch = 0
        """Or the generation."""
        self.positions: dict[TopicPartition, int] = {}
        """What it owns, and from where it goes on."""
        self.stopped = False
        self.settled = False
        """Has it had nothing to change since its last heartbeat?"""
        self._lives = 0
        self._commits = 0
        self.doubtful = False

    async def run(self, until: float) -> None:
        """Comes and goes until then; afterwards stays until it is stopped."""
        while not self.stopped:
            self._lives += 1
            self._begin()
            await self._live(until)
            self.positions.clear()
            self.settled = False
            if not self.stopped:
                await self.client.sleep(self.client.random.choice((0.05, 0.5, 3.0)))

    def _begin(self) -> None:
        self.member_id = f"{self.client.name}-{self._lives}"
        self.epoch = 0
        self.positions.clear()
        self.doubtful = False

    async def _live(self, until: float) -> None:
        client, options = self.client, self.options
        while not self.stopped:
            if not await self.beat():
                return
            await self.work()
            if self.doubtful:
                # What may still be on its way must find nobody of that name.
                await self.leave()
                return
            if client.now < until:
                chance = client.random.random()
                if chance < options.dies:
                    return
                if chance < options.dies + options.leaves:
                    break
            await client.sleep(0.3 + 0.4 * client.random.random())
        gone, owned = await self.leave(), dict(self.positions)
        if gone and owned and client.random.random() < options.misbehaves:
            await self._misbehave(owned)

    async def beat(self) -> bool:
        """One exchange with the coordinator. False if this life is over."""
        raise NotImplementedError

    async def leave(self) -> bool:
        """Is the coordinator known to have let it go?"""
        raise NotImplementedError

    async def work(self) -> None:
        if self.positions and self.client.random.random() < 0.7:
            await self._commit({place: position + 1 for place, position in self.positions.items()})

    def own(self, places: Iterable[TopicPartition]) -> None:
        """It was told what it has."""
        self.history.owned.append(
            Owned(self.group_id, self.member_id, self.epoch, frozenset(place.partition for place in places))
        )

    # Offsets.

    async def _commit(self, offsets: dict[TopicPartition, int]) -> bool:
        self._commits += 1
        commit = Commit(
            group_id=self.group_id,
            name=f"{self.member_id}:{self._commits}",
            offsets=offsets,
            invoked=self.client.now,
        )
        self.history.commits.append(commit)
        code = await self._send_commit(commit)
        commit.completed = self.client.now
        if code == 0:
            commit.outcome = Outcome.OK
            for place, offset in offsets.items():
                if place in self.positions:
                    self.positions[place] = offset
            return True
        commit.outcome = Outcome.FAILED if code in OUT else Outcome.INFO
        self.doubtful = self.doubtful or commit.outcome is Outcome.INFO
        if code is not None and code not in AGAIN and code not in OUT:
            self.complain("OffsetCommit", code)
        return False

    async def _send_commit(self, commit: Commit) -> int | None:
        topic = self.places[0].topic
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=self._topic_id(),
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=place.partition, committed_offset=offset, committed_metadata=commit.name
                        )
                        for place, offset in commit.offsets.items()
                    ],
                )
            ],
        )
        response = await self.ask(request, OffsetCommitResponse)
        if response is None:
            return None
        codes = {each.error_code for answer in response.topics for each in answer.partitions}
        if self._forget_if_moved(codes):
            return ErrorCode.NOT_COORDINATOR
        return max(codes)

    async def fetch_positions(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int] | None:
        """Where the group has got to; None if that is not known."""
        wanted = sorted(place.partition for place in places)
        found = await fetch_offsets(
            self.client, self.group_id, self.places[0].topic, wanted, member=(self.member_id, self.epoch)
        )
        if found is None:
            return None
        return {
            TopicPartition(self.places[0].topic, partition): max(offset, 0) for partition, (offset, _) in found.items()
        }

    async def _misbehave(self, owned: dict[TopicPartition, int]) -> None:
        """Commit as a member that has left (C7)."""
        commit = Commit(group_id=self.group_id, name="", offsets=owned, invoked=self.client.now)
        self.history.resent += 1
        if await self._send_commit(commit) == 0:
            self.history.unexpected.append(f"C7: {self.member_id} has left {self.group_id}, and its commit was taken")

    # Asking.

    async def ask(self, request: Message, response: type[M], timeout_s: float | None = None) -> M | None:
        """Our coordinator's answer, if one comes."""
        client = self.client
        wire = await client.coordinator(self.group_id, GROUP)
        if wire is None:
            return None
        try:
            answer = await wire.call(request, response, timeout_s=timeout_s or self.options.request_timeout_s)
        except (Lost, Malformed):
            client.forget_coordinator(self.group_id, GROUP)
            return None
        self._forget_if_moved({getattr(answer, "error_code", 0)})
        return answer

    def _forget_if_moved(self, codes: set[int]) -> bool:
        moved = not _ANOTHER_COORDINATOR.isdisjoint(codes)
        if moved:
            self.client.forget_coordinator(self.group_id, GROUP)
        return moved

    def _topic_id(self) -> Uuid:
        leader = self.client.leaders.get(self.places[0])
        return ZERO_UUID if leader is None else leader.topic_id

    async def pause(self) -> None:
        await self.client.sleep(0.05 + 0.2 * self.client.random.random())

    def complain(self, what: str, code: int) -> None:
        self.history.unexpected.append(f"{what} of {self.member_id} in {self.group_id}: {ErrorCode(code).name}")


class ConsumerMember(GroupMember):
    """A member by the protocol of KIP-848. It gives up at once what it is asked for."""

    async def beat(self) -> bool:
        joining = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=self.options.rebalance_timeout_ms,
            subscribed_topic_names=[self.places[0].topic],
            topic_partitions=[] if joining else self._owned(),
        )
        response = await self.ask(request, ConsumerGroupHeartbeatResponse)
        if response is None or response.error_code in AGAIN:
            self.settled = False
            await self.pause()
            return True
        if response.error_code in OUT:
            return False
        if response.error_code:
            self.complain("ConsumerGroupHeartbeat", response.error_code)
            return False
        self.epoch = response.member_epoch
        if response.assignment is not None:
            topic = self.places[0].topic
            assigned = {
                TopicPartition(topic, partition)
                for each in response.assignment.topic_partitions
                for partition in each.partitions
            }
            self.settled = assigned == set(self.positions)
            if not self.settled:
                await self._take(assigned)
        return True

    def _owned(self) -> list[TopicPartitions]:
        if not self.positions:
            return []
        return [
            TopicPartitions(topic_id=self._topic_id(), partitions=sorted(place.partition for place in self.positions))
        ]

    async def _take(self, assigned: set[TopicPartition]) -> None:
        self.own(assigned)
        for place in sorted(set(self.positions) - assigned):
            del self.positions[place]
        added = assigned - set(self.positions)
        if added:
            found = await self.fetch_positions(added)
            # Without it we own nothing yet: the next heartbeat says so, and is told of it again.
            self.positions.update(found or {})

    async def leave(self) -> bool:
        request = ConsumerGroupHeartbeatRequest(group_id=self.group_id, member_id=self.member_id, member_epoch=-1)
        response = await self.ask(request, ConsumerGroupHeartbeatResponse)
        return response is not None and not response.error_code


class ClassicMember(GroupMember):
    """A member by the classic protocol, which gives up everything before it joins again."""

    _member_known = False

    def _begin(self) -> None:
        super()._begin()
        self.member_id = ""
        self.epoch = -1
        self._member_known = False

    async def beat(self) -> bool:
        if not self._member_known:
            return await self._join()
        request = HeartbeatRequest(group_id=self.group_id, generation_id=self.epoch, member_id=self.member_id)
        response = await self.ask(request, HeartbeatResponse)
        if response is None or response.error_code in AGAIN:
            self.settled = False
            await self.pause()
            return True
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return await self._join()
        if response.error_code in OUT:
            return False
        if response.error_code:
            self.complain("Heartbeat", response.error_code)
            return False
        self.settled = True
        if not self.positions and self._assigned:
            self.positions.update(await self.fetch_positions(self._assigned) or {})
        return True

    _assigned: frozenset[TopicPartition] = frozenset()

    async def _join(self) -> bool:
        self.settled = False
        self._member_known = False
        self._assigned = frozenset()
        self.positions.clear()
        subscription = ConsumerProtocolSubscription(topics=[self.places[0].topic])
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.options.session_timeout_ms,
            rebalance_timeout_ms=self.options.rebalance_timeout_ms,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=_VERSION + subscription.encode(1))],
        )
        timeout_s = self.options.rebalance_timeout_ms / 1000 + 2.0
        response = await self.ask(request, JoinGroupResponse, timeout_s)
        if response is None or response.error_code in AGAIN:
            await self.pause()
            return True
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return True
        if response.error_code in OUT:
            return False
        if response.error_code:
            self.complain("JoinGroup", response.error_code)
            return False
        self.member_id, self.epoch = response.member_id, response.generation_id
        return await self._sync(response)

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        assignments = []
        if joined.leader == self.member_id:
            members = sorted(member.member_id for member in joined.members)
            assignments = [
                SyncGroupRequestAssignment(member_id=member, assignment=self._share(at, len(members)))
                for at, member in enumerate(members)
            ]
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=_PROTOCOL,
            assignments=assignments,
        )
        response = await self.ask(request, SyncGroupResponse, self.options.rebalance_timeout_ms / 1000 + 2.0)
        if response is None or response.error_code in AGAIN or response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            await self.pause()
            return True  # And joins again.
        if response.error_code in OUT:
            return False
        if response.error_code:
            self.complain("SyncGroup", response.error_code)
            return False
        self._member_known = True
        assignment = ConsumerProtocolAssignment.read(response.assignment, 2, 1)[0] if response.assignment else None
        self._assigned = frozenset(
            TopicPartition(topic.topic, partition)
            for topic in (assignment.assigned_partitions if assignment is not None else ())
            for partition in topic.partitions
        )
        self.own(self._assigned)
        if self._assigned:
            self.positions.update(await self.fetch_positions(self._assigned) or {})
        return True

    def _share(self, at: int, members: int) -> bytes:
        partitions = [place.partition for place in self.places if place.partition % members == at]
        assigned = [AssignedTopic(topic=self.places[0].topic, partitions=partitions)] if partitions else []
        return _VERSION + ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=None).encode(1)

    async def leave(self) -> bool:
        if not self.member_id:
            return False
        request = LeaveGroupRequest(group_id=self.group_id, members=[MemberIdentity(member_id=self.member_id)])
        response = await self.ask(request, LeaveGroupResponse)
        return response is not None and not response.error_code and not response.members[0].error_code


async def fetch_offsets(
    client: SimClient,
    group_id: str,
    topic: str,
    partitions: list[int],
    *,
    member: tuple[str, int] | None = None,
    timeout_s: float = 2.0,
) -> dict[int, tuple[int, str]] | None:
    """What the group has committed for each partition, and by which commit; None where that is not to be had."""
    wire = await client.coordinator(group_id, GROUP)
    if wire is None:
        return None
    leader = client.leaders.get(TopicPartition(topic, 0))
    wanted = OffsetFetchRequestTopics(
        name=topic, topic_id=ZERO_UUID if leader is None else leader.topic_id, partition_indexes=partitions
    )
    group = OffsetFetchRequestGroup(group_id=group_id, topics=[wanted])
    if member is not None:
        group.member_id, group.member_epoch = member
    try:
        response = await wire.call(
            OffsetFetchRequest(groups=[group], require_stable=True), OffsetFetchResponse, timeout_s=timeout_s
        )
    except (Lost, Malformed):
        client.forget_coordinator(group_id, GROUP)
        return None
    answer = response.groups[0]
    if answer.error_code:
        client.forget_coordinator(group_id, GROUP)
        return None
    found: dict[int, tuple[int, str]] = {}
    for answered in answer.topics:
        for each in answered.partitions:
            if each.error_code:
                return None
            found[each.partition_index] = (each.committed_offset, each.metadata or "")
    return found
