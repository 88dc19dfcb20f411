"""One step of a member from what it holds towards its target (KIP-848's reconciliation).

    STABLE ──a newer target──► UNREVOKED_PARTITIONS ──it owns none of them any more──┐
       ▲            └──────────────nothing to give up────────────────────────────────┤
       │                                                                             ▼
       └──────── all of the target is free ◄─── UNRELEASED_PARTITIONS ◄── some is still another's

A member goes to the target's epoch only when it holds nothing that is not in its target; a partition is given to it
only when nobody holds it. So no partition has two owners, whatever is lost, repeated or late (KAFKA-16147: what a
member has yet to give up is still its own, and counts as owned).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from ottla.coordinator.consumer.assignors import Assignment
from ottla.coordinator.consumer.member import NOTHING, Held, Member, MemberState
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Uuid

Owned = Mapping[Uuid, Collection[int]]
"""What a member says that it owns."""


class Step(NamedTuple):
    """What a member is to be reconciled with."""

    target_epoch: int
    target: Assignment
    subscribed: Callable[[Uuid], bool]
    """Whether the member is subscribed to the topic, and there is such a topic."""
    subscription_changed: bool
    owned: Owned | None
    """None: the request does not say."""
    is_owned: Callable[[Uuid, int], bool]
    """Whether the partition is held by any member."""


def reconcile(member: Member, step: Step) -> Member:
    """The member after the step; the same one if there is nothing to do."""
    match member.state:
        case MemberState.STABLE if member.epoch == step.target_epoch:
            return _drop_unsubscribed(member, step) if step.subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS if _owns_any(step.owned, member.revoking):
            return _drop_unsubscribed(member, step) if step.subscription_changed else member
        case MemberState.UNKNOWN:
            if step.owned is None or step.owned:
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. The member must abandon all its partitions and "
                    "rejoin.",
                )
            return _advance(member, step, step.target_epoch)
        case _:
            return _advance(member, step, member.epoch)


def _owns_any(owned: Owned | None, held: Held) -> bool:
    """Whether the member still owns some of `held`; if it does not say, it does."""
    if owned is None:
        return True
    return any(partition in held.get(topic, ()) for topic, partitions in owned.items() for partition in partitions)


def _moved(member: Member, epoch: int, state: MemberState, assigned: Held, revoking: Held) -> Member:
    return member._replace(epoch=epoch, previous_epoch=member.epoch, state=state, assigned=assigned, revoking=revoking)


def _drop_unsubscribed(member: Member, step: Step) -> Member:
    """Between targets: give up the topics that the member has just unsubscribed from."""
    gone = [topic for topic in member.assigned if not step.subscribed(topic)]
    if not gone:
        return member
    assigned = {topic: held for topic, held in member.assigned.items() if topic not in gone}
    revoking = dict(member.revoking)
    for topic in gone:
        revoking[topic] = {**revoking.get(topic, {}), **member.assigned[topic]}
    if _owns_any(step.owned, revoking):
        return _moved(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    return _moved(member, member.epoch, member.state, assigned, member.revoking)


def _advance(member: Member, step: Step, epoch: int) -> Member:
    assigned: dict[Uuid, Mapping[int, int]] = {}
    revoking: dict[Uuid, Mapping[int, int]] = {}
    granted: dict[Uuid, list[int]] = {}
    unreleased = False
    for topic in dict.fromkeys((*step.target, *member.assigned)):
        target = step.target.get(topic, ()) if step.subscribed(topic) else ()
        held = member.assigned.get(topic, {})
        wanted = set(target)
        kept = {partition: since for partition, since in held.items() if partition in wanted}
        given_up = {partition: since for partition, since in held.items() if partition not in wanted}
        # What the member itself has yet to give up is nobody else's, so that it may have it back.
        own = member.revoking.get(topic, {})
        missing = [partition for partition in target if partition not in kept]
        free = [partition for partition in missing if partition in own or not step.is_owned(topic, partition)]
        unreleased = unreleased or len(free) < len(missing)
        if kept:
            assigned[topic] = kept
        if given_up:
            revoking[topic] = given_up
        if free:
            granted[topic] = free
    if revoking and _owns_any(step.owned, revoking):
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    for topic, partitions in granted.items():
        assigned[topic] = {**assigned.get(topic, {}), **dict.fromkeys(partitions, step.target_epoch)}
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return _moved(member, step.target_epoch, state, assigned, NOTHING)
