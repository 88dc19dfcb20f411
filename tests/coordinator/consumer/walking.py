"""Clients of one group at random, of both protocols, with lost answers, silence, restarts and moving coordinators.

Each client believes what it was told, and does as real ones do: it gives up before it takes, says what it owns, and
drops everything when it is fenced. After every step the group is looked at (`check`): nobody owns what another owns,
targets are whole, epochs rise, and a coordinator that reads the log knows what this one knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.member import MemberState
from ottla.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.sync_group_response import SyncGroupResponse
from tests.group_plans import planned

from .stage import SENDER, Reply, Stage, topic_id

Owned = set[tuple[str, int]]

_RETRIED = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.UNRELEASED_INSTANCE_ID,
            ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL}  # fmt: skip


def by_topic(owned: Owned) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(owned):
        found.setdefault(topic, []).append(partition)
    return found


@dataclass
class Client:
    member_id: str
    topics: list[str]
    instance: str | None = None
    owned: Owned = field(default_factory=set)
    reply: Reply | None = None
    gone: bool = False

    def send(self, stage: Stage, random: Random) -> None:
        raise NotImplementedError


@dataclass
class NewClient(Client):
    """Speaks the consumer protocol."""

    epoch: int = 0
    regex: str | None = None
    told: Owned = field(default_factory=set)

    def send(self, stage: Stage, random: Random) -> None:
        joining = self.epoch == 0
        full = joining or random.random() < 0.3
        owned = None
        if joining:
            owned = []
        elif self.owned == self.told and (full or random.random() < 0.5):
            # Whoever is still giving up or taking does not say: it would take what it has just said not to own.
            owned = [
                TopicPartitions(topic_id=topic_id(name), partitions=had) for name, had in by_topic(self.owned).items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=30_000 if full else -1,
            subscribed_topic_names=self.topics if full else None,
            subscribed_topic_regex=self.regex if full else None,
            topic_partitions=owned,
        )
        self.reply = stage.ask(lambda shard, _, now_ms: shard.consumer.heartbeat(request, SENDER, now_ms))

    def hear(self, reply: Reply) -> None:
        if reply.error is not None:
            if reply.error is ErrorCode.FENCED_INSTANCE_ID:
                self.gone = True
            elif reply.error not in _RETRIED:
                self.epoch = 0
                self.owned.clear()
                self.told.clear()
            return
        response = reply.response
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if self.epoch < 0:
            return
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.told = {
                (topic.topic_id.lstrip(b".").decode(), partition)
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            }

    def work(self) -> None:
        """Give up first, then take."""
        if self.owned - self.told:
            self.owned &= self.told
        else:
            self.owned |= self.told


@dataclass
class OldClient(Client):
    """Speaks the classic protocol. An eager one gives everything up before it joins."""

    eager: bool = True
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Of the topics that there are, at any moment."""
    generation: int = -1
    needs_join: bool = True
    to_sync: dict[str, dict[str, list[int]]] | None = None
    asked: str = ""

    def send(self, stage: Stage, random: Random) -> None:
        if self.to_sync is not None:
            self.asked = "sync"
            self.reply = stage.sync(self.member_id, self.generation, assignments=self.to_sync, instance=self.instance)
        elif self.needs_join:
            if self.eager:
                self.owned.clear()
            self.asked = "join"
            self.reply = stage.join(
                self.member_id,
                self.topics,
                owned=by_topic(self.owned),
                instance=self.instance,
                fresh=f"o{random.getrandbits(32):x}",
            )
        else:
            self.asked = "beat"
            self.reply = stage.beat(self.member_id, self.generation, instance=self.instance)

    def hear(self, reply: Reply) -> None:
        code = reply.error or ErrorCode(getattr(reply.response, "error_code", 0))
        match code:
            case ErrorCode.NONE:
                self._hear_success(reply)
            case ErrorCode.MEMBER_ID_REQUIRED:
                assert isinstance(reply.response, JoinGroupResponse)
                self.member_id = reply.response.member_id
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self.needs_join = True
                self.to_sync = None
            case ErrorCode.FENCED_INSTANCE_ID:
                self.gone = True
            case _ if code in _RETRIED:
                self.to_sync = None if self.asked == "sync" else self.to_sync
                self.needs_join = self.needs_join or self.asked == "sync"
            case _:
                self.owned.clear()
                self.generation = -1
                self.needs_join = True
                self.to_sync = None
                if code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self.member_id = ""

    def _hear_success(self, reply: Reply) -> None:
        response = reply.response
        match response:
            case JoinGroupResponse():
                self.member_id = response.member_id
                self.generation = response.generation_id
                self.needs_join = False
                self.to_sync = self._plan(response) if response.leader == self.member_id else {}
            case SyncGroupResponse():
                self.to_sync = None
                assigned = {(name, index) for name, had in planned(response.assignment).items() for index in had}
                # Having given something up, a cooperative member comes again for what others gave up.
                self.needs_join = not self.eager and bool(self.owned - assigned)
                self.owned = assigned
            case _:
                assert isinstance(response, HeartbeatResponse)

    def _plan(self, response: JoinGroupResponse) -> dict[str, dict[str, list[int]]]:
        """Everybody in turn: nobody owns anything, since members of a classic group here are eager."""
        plan: dict[str, dict[str, list[int]]] = {member.member_id: {} for member in response.members}
        subscribed: dict[str, list[str]] = {}
        for member in response.members:
            subscription, _ = ConsumerProtocolSubscription.read(member.metadata, 2, 3)
            for topic in subscription.topics:
                subscribed.setdefault(topic, []).append(member.member_id)
        for topic, members in subscribed.items():
            for index in range(self.sizes.get(topic, 0)):
                plan[members[index % len(members)]].setdefault(topic, []).append(index)
        return plan


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.mixed = random.random() < 0.6
        """Whether there are clients of both protocols."""
        self.eager = random.random() < 0.5
        properties = {"group.initial.rebalance.delay.ms": "0", "group.consumer.max.size": "6"}
        if self.mixed and not self.eager:
            # A leader of cooperative members would have to be cleverer than ours.
            properties["group.consumer.migration.policy"] = "upgrade"
        self.stage = Stage(properties)
        self.sizes = {"a": 3, "b": 3}
        self.names = ["a", "b", "c"]
        """Of topics that exist, and of some that may come."""
        self.stage.topics(**self.sizes)
        self.clients: list[Client] = []
        self.named = 0
        self.epochs: dict[str, int] = {}
        self.seen = {"consumer": 0, "classic": 0, "stable": 0, "shared": 0}

    def step(self) -> None:
        random = self.random
        written = len(self.stage.log)
        match random.choices(
            [
                "new",
                "send",
                "hear",
                "work",
                "leave",
                "crash",
                "time",
                "topics",
                "resubscribe",
                "move",
                "hold",
                "return",
            ],
            [4, 30, 25, 20, 2, 1, 4, 1, 2, 3, 3, 2],
        )[0]:
            case "new" if len(self.clients) < 6:
                self.clients.append(self._new())
            case "send":
                for client in self._some(lambda client: client.reply is None):
                    client.send(self.stage, random)
            case "hear":
                for client in self._some(lambda client: client.reply is not None and client.reply.done):
                    self._hear(client)
            case "work":
                for client in self._some(lambda client: isinstance(client, NewClient)):
                    assert isinstance(client, NewClient)
                    client.work()
            case "leave":
                for client in self._some(lambda client: client.reply is None):
                    self._leave(client)
            case "crash":
                for client in self._some(lambda client: True):
                    client.gone = True
            case "time":
                self.stage.advance(random.choice([0, 1_000, 11_000, 31_000]))
            case "topics":
                self._change_topics()
            case "resubscribe":
                for client in self._some(lambda client: isinstance(client, NewClient)):
                    client.topics = self._names()
            case "move":
                self.stage.commit()
                self.stage.close()
                self.stage = self.stage.moved()
            case "hold":
                self._hold()
            case "return":
                self._return()
        self.clients = [client for client in self.clients if not client.gone]
        self.check(written)

    def _some(self, good: object) -> list[Client]:
        assert callable(good)
        found = [client for client in self.clients if good(client)]
        return [self.random.choice(found)] if found else []

    def _new(self) -> Client:
        random = self.random
        self.named += 1
        instance = f"i{self.named}" if random.random() < 0.3 else None
        group = self._group()
        # A cooperative member alone would make a classic group.
        may_be_old = self.mixed and (self.eager or (group is not None and not group.is_empty()))
        if may_be_old and random.random() < 0.5:
            return OldClient("", self._names(), instance, eager=self.eager, sizes=self.sizes)
        regex = random.choice(["", "[ab]", "b|c", "t.*"]) if random.random() < 0.3 else None
        return NewClient(f"n{self.named}", self._names(), instance, regex=regex)

    def _names(self) -> list[str]:
        return self.random.sample(self.names, self.random.randint(1, len(self.names)))

    def _hear(self, client: Client) -> None:
        reply, client.reply = client.reply, None
        assert reply is not None
        assert isinstance(client, NewClient | OldClient)
        if self.random.random() < 0.1 and not (isinstance(client, OldClient) and client.asked == "sync"):
            return  # It never came.
        client.hear(reply)

    def _leave(self, client: Client) -> None:
        if isinstance(client, NewClient):
            client.epoch = -2 if client.instance and self.random.random() < 0.7 else -1
            client.send(self.stage, self.random)
        elif client.member_id:
            self.stage.leave((client.member_id, client.instance))
        client.gone = True

    def _return(self) -> None:
        """A static member comes back under another id."""
        group = self._group()
        if group is not None and len(group.static_members):
            instance = self.random.choice(sorted(group.static_members.keys()))
            if all(client.instance != instance for client in self.clients):
                self.named += 1
                client: Client = NewClient(f"n{self.named}", self._names(), instance)
                if self.mixed and self.random.random() < 0.5:
                    client = OldClient("", self._names(), instance, eager=self.eager, sizes=self.sizes)
                self.clients.append(client)

    def _change_topics(self) -> None:
        name = self.random.choice(self.names)
        if name in self.sizes and self.random.random() < 0.3 and len(self.sizes) > 1:
            # It never comes back: a topic of that name would be another one.
            del self.sizes[name]
            self.names.remove(name)
            self.names.append(f"t{self.named}x{len(self.stage.log)}")
        else:
            self.sizes[name] = self.sizes.get(name, 2) + 1
        self.stage.topics(**self.sizes)

    def _hold(self) -> None:
        """Some requests whose records are not committed; then they are, or they are undone."""
        stage = self.stage
        stage.auto_commit = False
        for _ in range(self.random.randint(1, 4)):
            for client in self._some(lambda client: client.reply is None):
                client.send(stage, self.random)
        if self.random.random() < 0.5:
            stage.revert()
        stage.auto_commit = True
        stage.commit()

    def _group(self) -> ConsumerGroup | None:
        return self.stage.groups.group("g")

    # What holds after every step.

    def check(self, written: int) -> None:
        self._check_beliefs()
        self._check_replayed()
        group = self._group()
        if group is None or self._ended(written):
            self.epochs.clear()
        if group is None:
            return
        self._check_owners(group)
        self._check_derived(group)
        self._check_epochs(group)
        self._check_target(group, written)
        self._check_stable(group)

    def _ended(self, written: int) -> bool:
        """Has the group come to its end since then? One of the same name may follow at once, with epochs of its own."""
        return any(
            type(record.key).__name__ == "ConsumerGroupMetadataKey" and record.value is None
            for record in self.stage.log[written:]
        )

    def _members(self) -> set[str]:
        group = self._group()
        if group is not None:
            self.seen["consumer"] += 1
            return set(group.members)
        classic = self.stage.shard.classic.group("g")
        self.seen["classic"] += classic is not None and bool(classic.members)
        return set() if classic is None else set(classic.members)

    def _check_beliefs(self) -> None:
        """C1: no two members believe that they own the same partition."""
        members = self._members()
        owners: dict[tuple[str, int], str] = {}
        for client in self.clients:
            if client.member_id in members:
                for partition in client.owned:
                    other = owners.setdefault(partition, client.member_id)
                    assert other == client.member_id, f"{partition} is owned by {other} and {client.member_id}"
        self.seen["shared"] += len(set(owners.values())) > 1

    def _check_owners(self, group: ConsumerGroup) -> None:
        """C1 again, as the coordinator has it; and the derived map says the same."""
        held: dict[tuple[bytes, int], str] = {}
        for member_id, member in group.members.items():
            for part in (member.assigned, member.revoking):
                for topic, partitions in part.items():
                    assert partitions, "no topic without partitions"
                    for partition in partitions:
                        other = held.setdefault((topic, partition), member_id)
                        assert other == member_id, f"{partition} is {other}'s and {member_id}'s"
        assert held == dict(group.owners.items())

    def _check_derived(self, group: ConsumerGroup) -> None:
        names: dict[str, list[int]] = {}
        regexes: dict[str, int] = {}
        for member in group.members.values():
            for name in member.topic_names:
                names.setdefault(name, [0, 0])[0] += 1
            if member.topic_regex:
                regexes[member.topic_regex] = regexes.get(member.topic_regex, 0) + 1
        for resolved in group.regexes.values():
            for name in resolved.topics:
                names.setdefault(name, [0, 0])[1] += 1
        assert {name: list(count) for name, count in group.subscribers.items()} == names
        assert dict(group.regex_members.items()) == regexes
        assert set(group.regexes) <= set(regexes), "an expression outlived its last subscriber"
        instances = {member.instance_id: member.member_id for member in group.members.values() if member.instance_id}
        assert dict(group.static_members.items()) == instances

    def _check_epochs(self, group: ConsumerGroup) -> None:
        """C5: a member's epoch never falls, but to the values of joining and leaving."""
        assert group.epochs.assignment <= group.epochs.group
        for member_id, member in group.members.items():
            assert member.epoch <= group.epochs.assignment
            before = self.epochs.get(member_id, 0)
            assert member.epoch >= before or member.epoch == -2, f"{member_id} fell from {before} to {member.epoch}"
            self.epochs[member_id] = max(member.epoch, 0)

    def _check_target(self, group: ConsumerGroup, written: int) -> None:
        """C2: a new target gives every subscribed partition to exactly one member, who is subscribed to it."""
        fresh = any(
            type(record.key).__name__ == "ConsumerGroupTargetAssignmentMetadataKey" and record.value is not None
            for record in self.stage.log[written:]
        )
        if not fresh or group.epochs.assignment < group.epochs.group:
            return
        wanted = {
            (topic_id(name), index)
            for member in group.members.values()
            for name in group.subscribed_names(member)
            for index in range(self.sizes.get(name, 0))
        }
        given = [
            (topic, index)
            for target in group.targets.values()
            for topic, indexes in target.items()
            for index in indexes
        ]
        assert len(given) == len(set(given)), "a partition is in two targets"
        assert set(given) == wanted

    def _check_stable(self, group: ConsumerGroup) -> None:
        """C3 and C4."""
        for member_id, member in group.members.items():
            if member.epoch == group.epochs.assignment:
                for other_id, target in group.targets.items():
                    if other_id != member_id:
                        for topic, indexes in target.items():
                            assert not set(indexes) & set(member.assigned.get(topic, {}))
        if group.state_name() == "Stable":
            self.seen["stable"] += 1
            for member_id, member in group.members.items():
                assert (member.state, member.epoch) == (MemberState.STABLE, group.epochs.group)
                assert not member.revoking
                names = group.subscribed_names(member)
                for topic, held in member.assigned.items():
                    assert topic.lstrip(b".").decode() in names
                    assert set(held) <= set(group.targets[member_id].get(topic, ()))

    def _check_replayed(self) -> None:
        """C8: whoever reads the log knows the same."""
        assert state_of(self.stage.moved()) == state_of(self.stage)


def state_of(stage: Stage) -> object:
    group = stage.groups.group("g")
    if group is None:
        return "classic" if stage.shard.classic.group("g") is not None else None
    return (
        group.epochs,
        dict(group.members.items()),
        dict(group.targets.items()),
        dict(group.regexes.items()),
        dict(group.static_members.items()),
        dict(group.subscribers.items()),
        dict(group.regex_members.items()),
        dict(group.owners.items()),
    )
