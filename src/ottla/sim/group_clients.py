"""What members of groups have in common, whatever their protocol: lives, and the offsets that they commit.

A member has lives. In each it has an id of its own, and goes on from the offsets that the group has committed, one step
a commit. A commit that may or may not have happened ends a life: what is still on its way may come late, and as long as
nobody else uses that id it can do no harm. So within a group the offsets that are committed for a partition never fall
(C14), whoever commits them, unless two members own it at once or an old one is believed.

A static member has the same instance id in all its lives. When it is back, its last life is over for the group as well
(C13): now and then it still speaks as who it was, and must not be believed.

Every commit carries a name of its own in its metadata, by which the checkers know it again, and see who made it: a
member's id, its epoch or generation, and a number. Now and then a member commits as if it had not heard of its newest
epoch.

What a member takes for its own is in the history at any time (C1): from when it is told until it gives it up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla.errors import ErrorCode, Malformed
from ottla.model import ZERO_UUID, TopicPartition, Uuid
from ottla.sim.client import Lost, SimClient
from ottla.sim.coordinator_client import AGAIN, ANOTHER_COORDINATOR, GROUP, CoordinatorClient
from ottla.sim.history import Belief, Commit, History, Look, Outcome, Owned
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

COMMIT_AGAIN = AGAIN | {ErrorCode.UNSTABLE_OFFSET_COMMIT}

OUT = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""What somebody hears whom the group does not count among its members any more, or not in that generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    session_timeout_ms: int
    """Of members of the classic protocol; the others have the broker's."""
    instance_id: str | None = None
    """Of a static member."""
    dies: float = 0.02
    """How often, between two heartbeats, it is not heard of any more."""
    leaves: float = 0.02
    misbehaves: float = 0.3
    """How often it commits once more after it has left, or as who it was before."""
    lags: float = 0.1
    """How often, between two heartbeats, it commits in the epoch before its own."""
    request_timeout_s: float = 2.0
    rebalance_timeout_ms: int = 4000


class GroupMember(Protocol):
    """One member, by whichever protocol. Driven by `live`."""

    client: SimClient
    options: MemberOptions
    group_id: str
    member_id: str
    positions: dict[TopicPartition, int]
    stopped: bool
    settled: bool
    doubtful: bool

    def begin(self) -> None:
        """Another life."""

    def disown(self) -> None:
        """Nothing is its own any more."""

    async def beat(self) -> bool:
        """One exchange with the coordinator. False if this life is over."""
        ...

    async def work(self) -> None:
        """Whatever it does with what it owns."""

    async def leave(self) -> bool:
        """Is the coordinator known to have let it go?"""
        ...

    async def commit_late(self, owned: dict[TopicPartition, int]) -> None:
        """Commit as a member that has left."""


async def live(member: GroupMember, until: float) -> None:
    """Comes and goes until then; afterwards stays until it is stopped."""
    while not member.stopped:
        member.begin()
        await _live_once(member, until)
        member.disown()
        if not member.stopped:
            await member.client.sleep(member.client.random.choice((0.05, 0.5, 3.0)))


async def _live_once(member: GroupMember, until: float) -> None:
    client, options = member.client, member.options
    while not member.stopped:
        if not await member.beat():
            return
        await member.work()
        if member.doubtful:
            # What may still be on its way must find nobody of that name.
            await member.leave()
            return
        if client.now < until:
            chance = client.random.random()
            if chance < options.dies:
                return
            if chance < options.dies + options.leaves:
                break
        await client.sleep(0.3 + 0.4 * client.random.random())
    gone, owned = await member.leave(), dict(member.positions)
    if gone and owned and client.random.random() < options.misbehaves:
        await member.commit_late(owned)


class Life(NamedTuple):
    """Who a member is in one life."""

    member_id: str
    epoch: int


def commit_name(who: tuple[str, int], number: int) -> str:
    """Of a commit: who made it, in which epoch or generation, and which of its commits it is."""
    return f"{who[0]}:{who[1]}:{number}"


def committer_of(name: str) -> tuple[str, int]:
    """The member and its epoch; nobody's is the epoch -1."""
    member_id, epoch, _ = name.rsplit(":", 2)
    return member_id, int(epoch)


class Committer(CoordinatorClient):
    """A member's offsets."""

    def __init__(
        self, client: SimClient, group_id: str, places: list[TopicPartition], options: MemberOptions, history: History
    ) -> None:
        super().__init__(client, group_id, GROUP, places, history, options.request_timeout_s)
        self.group_id = group_id
        self.options = options
        self.member_id = ""
        self.epoch = 0
        """Or the generation."""
        self.positions: dict[TopicPartition, int] = {}
        """What it owns, and from where it goes on."""
        self.stopped = False
        self.settled = False
        """Has it had nothing to change since its last heartbeat?"""
        self.doubtful = False
        self._lives = 0
        self._commits = 0
        self._was: Life | None = None
        """Who a static member was in its last life, as long as it may still speak as that one."""

    def begin(self) -> None:
        self._was = Life(self.member_id, self.epoch) if self.options.instance_id and self.epoch > 0 else None
        self._lives += 1
        self.member_id = f"{self.client.name}-{self._lives}"
        self.epoch = 0
        self.disown()
        self.doubtful = False

    def disown(self) -> None:
        self.positions.clear()
        self.settled = False
        self.believe(())

    async def work(self) -> None:
        if not self.positions:
            return
        if self._was is not None:
            was, self._was = self._was, None
            if self.client.random.random() < self.options.misbehaves:
                await self._commit_as(was)
        if self.epoch > 1 and self.client.random.random() < self.options.lags:
            await self._commit_behind()
        if not self.doubtful and self.client.random.random() < 0.7:
            await self._commit({place: position + 1 for place, position in self.positions.items()})

    def own(self, places: Iterable[TopicPartition]) -> None:
        """It was told what it has."""
        self.history.owned.append(
            Owned(self.group_id, self.member_id, self.epoch, frozenset(place.partition for place in places))
        )

    def believe(self, places: Iterable[TopicPartition]) -> None:
        """These are its own from now on, as far as it knows, and no others."""
        key = (self.group_id, self.client.name)
        partitions = frozenset(place.partition for place in places)
        if partitions:
            is_static = self.options.instance_id is not None
            self.history.beliefs[key] = Belief(self.member_id, self.epoch, partitions, is_static)
        else:
            self.history.beliefs.pop(key, None)
        self.history.belief_changes += 1

    # Offsets.

    async def _commit(self, offsets: dict[TopicPartition, int]) -> bool:
        self._commits += 1
        commit = Commit(
            group_id=self.group_id,
            name=commit_name((self.member_id, self.epoch), self._commits),
            offsets=offsets,
            invoked=self.client.now,
        )
        self.history.commits.append(commit)
        code = await self._send_commit(commit, Life(self.member_id, self.epoch))
        commit.completed = self.client.now
        if code == 0:
            commit.outcome = Outcome.OK
            for place, offset in offsets.items():
                if place in self.positions:
                    self.positions[place] = offset
            return True
        commit.outcome = Outcome.FAILED if code in OUT else Outcome.INFO
        self.doubtful = self.doubtful or commit.outcome is Outcome.INFO
        if code is not None and code not in COMMIT_AGAIN | OUT:
            self.complain("OffsetCommit", code)
        return False

    async def _send_commit(self, commit: Commit, who: Life) -> int | None:
        topic = self.places[0].topic
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=who.epoch,
            member_id=who.member_id,
            group_instance_id=self.options.instance_id,
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
        if not ANOTHER_COORDINATOR.isdisjoint(codes):
            self.client.forget_coordinator(self.group_id, GROUP)
            return ErrorCode.NOT_COORDINATOR
        return max(codes)

    async def fetch_positions(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int] | None:
        """Where the group has got to; None if that is not known."""
        wanted = sorted(place.partition for place in places)
        topic = self.places[0].topic
        who = Life(self.member_id, self.epoch)
        found = await fetch_offsets(self.client, self.group_id, topic, wanted, self.history, member=who)
        if found is None:
            return None
        return {TopicPartition(topic, partition): max(offset, 0) for partition, (offset, _) in found.items()}

    async def commit_late(self, owned: dict[TopicPartition, int]) -> None:
        """C7: nobody believes a member that has left."""
        if await self._send_late(owned, Life(self.member_id, self.epoch)) == 0:
            self.history.unexpected.append(f"C7: {self.member_id} has left {self.group_id}, and its commit was taken")

    async def _commit_as(self, was: Life) -> None:
        """C13: nor one whose place it has taken itself."""
        if await self._send_late(dict(self.positions), was) == 0:
            self.history.unexpected.append(
                f"C13: {self.member_id} of {self.group_id} has taken the place of {was.member_id}, whose commit was "
                f"taken"
            )

    async def _commit_behind(self) -> None:
        """C7: nor a member in an epoch that is over. By the classic protocol it is refused, and by the other, too,
        unless it has had the partitions since then (KIP-1251): that is for the checker to see."""
        code = await self._send_late(dict(self.positions), Life(self.member_id, self.epoch - 1))
        # Where it may be taken, it must not come late: after what is committed next it would be a step back.
        self.doubtful = self.doubtful or code is None or code in COMMIT_AGAIN

    async def _send_late(self, owned: dict[TopicPartition, int], who: Life) -> int | None:
        self.history.resent += 1
        self._commits += 1
        name = commit_name(who, self._commits)
        commit = Commit(group_id=self.group_id, name=name, offsets=owned, invoked=self.client.now)
        return await self._send_commit(commit, who)

    def _topic_id(self) -> Uuid:
        leader = self.client.leaders.get(self.places[0])
        return ZERO_UUID if leader is None else leader.topic_id


async def fetch_offsets(
    client: SimClient,
    group_id: str,
    topic: str,
    partitions: list[int],
    history: History,
    *,
    member: Life | None = None,
    stable: bool = True,
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
    look = Look(group_id=group_id, topic=topic, stable=stable, node=wire.host, invoked=client.now)
    history.looks.append(look)
    try:
        response = await wire.call(
            OffsetFetchRequest(groups=[group], require_stable=stable), OffsetFetchResponse, timeout_s=2.0
        )
    except (Lost, Malformed):
        client.forget_coordinator(group_id, GROUP)
        return None
    finally:
        look.completed = client.now
    answer = response.groups[0]
    if answer.error_code:
        client.forget_coordinator(group_id, GROUP)
        return None
    unstable = False
    for answered in answer.topics:
        for each in answered.partitions:
            if each.error_code:
                unstable = True
            else:
                look.found[each.partition_index] = (each.committed_offset, each.metadata or "")
    return None if unstable else look.found
