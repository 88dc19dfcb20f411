"""Who the clients of a seed are: producers of every kind, consumers, groups, and those who only look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from ottla.model import TopicPartition
from ottla.sim.client import SimClient
from ottla.sim.consumers import Consumer
from ottla.sim.group_clients import GroupMember, MemberOptions
from ottla.sim.group_members import ClassicMember, ConsumerMember
from ottla.sim.history import History
from ottla.sim.lanes import Lane, LaneOptions
from ottla.sim.options import Options
from ottla.sim.transaction_clients import Transactor, TransactorOptions
from ottla.sim.transformers import Transformer

NewClient = Callable[[str], SimClient]

KEEPERS = 2
"""Producers of a compacted topic."""


@dataclass(slots=True, kw_only=True)
class Clients:
    lanes: list[Lane]
    consumers: list[Consumer]
    transactors: list[Transactor]
    members: list[GroupMember]
    watchers: list[tuple[SimClient, TopicPartition]]
    group_ids: list[str]
    """Whose offsets are looked at from outside."""
    admin: SimClient
    final: SimClient
    """Who takes the last look."""
    busy: list[SimClient]
    """All but those two: they know who leads before they begin, and can be cut off."""


def build_clients(
    options: Options,
    client: NewClient,
    places: list[TopicPartition],
    history: History,
    compacted: list[TopicPartition],
    kept: History,
) -> Clients:
    """`kept` is the history of the `compacted` partitions: not all that was written stays there."""
    random = Random(f"{options.seed}/clients")
    lanes: list[Lane] = []
    for number in range(options.producers):
        owner = client(f"p{number}")
        acks = 1 if number == options.producers - 1 else -1
        idempotent = acks == -1 and number % 2 == 0 and not options.forgetful
        lane_options = LaneOptions(
            acks=acks,
            idempotent=idempotent,
            retry_uncertain=not idempotent and random.random() < 0.5,
            request_timeout_s=random.choice((1.0, 2.0, 4.0)),
            delivery_timeout_s=random.choice((5.0, 15.0)),
            resend_old=0.05 if idempotent else 0.0,
        )
        lanes += [Lane(owner, at, place, lane_options, history) for at, place in enumerate(places)]
    consumers = [
        Consumer(
            client(f"c{number}"),
            places,
            history,
            read_committed=random.random() < 0.3,
            rack=f"r{number % 3}" if options.follower_reads else "",
        )
        for number in range(options.consumers)
    ]
    transactors: list[Transactor] = []
    for number in range(options.transactors if options.coordinated else 0):
        # The first two share their id, and fence each other.
        transactional_id = f"t{max(number, 1)}"
        chances = TransactorOptions(
            timeout_ms=random.choice((2000, 4000)),
            version=options.transaction_version,
            commits_offsets=0.4 if options.grouped else 0.0,
        )
        transactors.append(Transactor(client(f"t{number}"), transactional_id, places, chances, history))
    group_ids = [f"of-{each.transactional_id}" for each in transactors[1:]] if options.grouped else []
    if compacted:
        keeps = LaneOptions(acks=-1, idempotent=True, retry_uncertain=True, keys=True)
        for number in range(KEEPERS):
            owner = client(f"l{number}")
            lanes += [Lane(owner, at, place, keeps, kept) for at, place in enumerate(compacted)]
        if options.coordinated:
            chances = TransactorOptions(timeout_ms=3000, version=options.transaction_version, keys=True)
            transactors.append(Transactor(client("l9"), "kept", compacted, chances, kept))
    members = _members(client, places, history, options) if options.grouped else []
    group_ids += list(dict.fromkeys(member.group_id for member in members))
    watcher = client("w0")
    busy = [*(lane.client for lane in lanes), *(consumer.client for consumer in consumers), watcher]
    busy += [transactor.client for transactor in transactors] + [member.client for member in members]
    return Clients(
        lanes=lanes,
        consumers=consumers,
        transactors=transactors,
        members=members,
        watchers=[(watcher, place) for place in places],
        group_ids=group_ids,
        admin=client("a0"),
        final=client("f0"),
        busy=list(dict.fromkeys(busy)),
    )


def _members(client: NewClient, places: list[TopicPartition], history: History, options: Options) -> list[GroupMember]:
    """One group of each protocol, and one whose offsets are committed in transactions."""
    members: list[GroupMember] = []
    random = Random(f"{options.seed}/groups")
    timeout_ms = random.choice((1500, 3000))
    static = random.random() < 0.5

    def chances(name: str) -> MemberOptions:
        """The first of each group may be a static member."""
        instance_id = f"{name}-static" if static and name.endswith("0") else None
        return MemberOptions(session_timeout_ms=timeout_ms, instance_id=instance_id)

    for number in range(random.choice((2, 3))):
        name = f"m{number}"
        members.append(ConsumerMember(client(name), "modern", places, chances(name), history))
    for number in range(random.choice((2, 3))):
        name = f"k{number}"
        members.append(ClassicMember(client(name), "classic", places, chances(name), history))
    for number in range(2):
        owner = client(f"x{number}")
        rules = TransactorOptions(timeout_ms=3000, version=options.transaction_version)
        transactor = Transactor(owner, owner.name, places, rules, history)
        members.append(
            Transformer(transactor, "transform", places, MemberOptions(session_timeout_ms=timeout_ms), history)
        )
    return members
