"""Members of groups: they join, commit what they own, leave, die, come back; one kind for each protocol."""

from __future__ import annotations

import struct

from ottla.coordinator.consumer.member import LEAVING_EPOCH, LEAVING_STATIC_EPOCH
from ottla.errors import ErrorCode
from ottla.model import TopicPartition
from ottla.sim.coordinator_client import AGAIN
from ottla.sim.group_clients import OUT, Committer
from ottla.sim.history import Plan
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
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.messages.sync_group_response import SyncGroupResponse

_BEAT_AGAIN = AGAIN | {ErrorCode.UNRELEASED_INSTANCE_ID}
"""A static member that died has its place until its session ends."""
_VERSION = struct.pack(">h", 1)
_PROTOCOL = "range"


class ConsumerMember(Committer):
    """A member by the protocol of KIP-848. It gives up at once what it is asked for."""

    async def beat(self) -> bool:
        joining = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.options.instance_id,
            rebalance_timeout_ms=self.options.rebalance_timeout_ms,
            subscribed_topic_names=[self.places[0].topic],
            topic_partitions=[] if joining else self._owned(),
        )
        response = await self.ask(request, ConsumerGroupHeartbeatResponse)
        if response is None or response.error_code in _BEAT_AGAIN:
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
        self.believe(assigned)
        for place in sorted(set(self.positions) - assigned):
            del self.positions[place]
        added = assigned - set(self.positions)
        if added:
            found = await self.fetch_positions(added)
            # Without it we own nothing yet: the next heartbeat says so, and is told of it again.
            self.positions.update(found or {})
            self.believe(self.positions)

    async def leave(self) -> bool:
        instance_id = self.options.instance_id
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            instance_id=instance_id,
            member_epoch=LEAVING_EPOCH if instance_id is None else LEAVING_STATIC_EPOCH,
        )
        response = await self.ask(request, ConsumerGroupHeartbeatResponse)
        return response is not None and not response.error_code


class ClassicMember(Committer):
    """A member by the classic protocol, which gives up everything before it joins again."""

    _member_known = False

    def begin(self) -> None:
        super().begin()
        self.member_id = ""
        self.epoch = -1
        self._member_known = False

    async def beat(self) -> bool:
        if not self._member_known:
            return await self._join()
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.options.instance_id,
        )
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
        self._member_known = False
        self._assigned = frozenset()
        self.disown()
        subscription = ConsumerProtocolSubscription(topics=[self.places[0].topic])
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.options.session_timeout_ms,
            rebalance_timeout_ms=self.options.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.options.instance_id,
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
        if joined.leader == self.member_id and not joined.skip_assignment:
            members = sorted(member.member_id for member in joined.members)
            shares = {member: self._share(at, len(members)) for at, member in enumerate(members)}
            plan = {member: frozenset(share) for member, share in shares.items()}
            self.history.plans.append(Plan(self.group_id, self.epoch, self.member_id, plan))
            assignments = [
                SyncGroupRequestAssignment(member_id=member, assignment=self._encode(share))
                for member, share in shares.items()
            ]
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.options.instance_id,
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
        self.believe(self._assigned)
        if self._assigned:
            self.positions.update(await self.fetch_positions(self._assigned) or {})
        return True

    def _share(self, at: int, members: int) -> list[int]:
        return [place.partition for place in self.places if place.partition % members == at]

    def _encode(self, partitions: list[int]) -> bytes:
        assigned = [AssignedTopic(topic=self.places[0].topic, partitions=partitions)] if partitions else []
        return _VERSION + ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=None).encode(1)

    async def leave(self) -> bool:
        if not self.member_id:
            return False
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.options.instance_id)
        request = LeaveGroupRequest(group_id=self.group_id, members=[identity])
        response = await self.ask(request, LeaveGroupResponse)
        return response is not None and not response.error_code and not response.members[0].error_code
