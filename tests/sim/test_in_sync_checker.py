"""Who joins an in-sync set, by whose word, and what a move may take out of it: the checker sees what is wrong."""

from __future__ import annotations

import pytest

from ottla.metadata.images import (
    RESOURCE_TOPIC,
    BrokerRegistration,
    ClusterImage,
    ConfigResource,
    MetadataImage,
    PartitionImage,
)
from ottla.metadata.persistent import PersistentMap
from ottla.model import TopicPartition, Uuid
from ottla.partition import IsrMember, LiveBroker, PartitionLeader, ProposeIsr
from ottla.sim.checkers.in_sync import InSyncChecker
from ottla.sim.checkers.violation import Violation
from ottla.sim.faults import KINDS
from ottla.sim.options import Mode, expand
from ottla.sim.run import Simulation

PLACE = TopicPartition("t", 0)
TOPIC_ID = Uuid(b"t" * 16)
HOME = Uuid(b"d" * 16)
EPOCHS = {1: 10, 2: 20, 3: 30, 4: 40}
GROWTH = ProposeIsr(3, 7, (IsrMember(1, -1), IsrMember(2, 20), IsrMember(3, 30)), joining=(3,))


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    """Of which nothing runs."""
    return Simulation(expand(0, Mode.SAFETY, kinds=tuple(KINDS), nodes=3))


@pytest.fixture
def checker(simulation: Simulation) -> InSyncChecker:
    return InSyncChecker(simulation.cluster)


def leader() -> PartitionLeader:
    return PartitionLeader(
        replica_id=1,
        leader_epoch=3,
        partition_epoch=7,
        start_offset=10,
        replicas=(1, 2, 3),
        isr=frozenset({1, 2}),
        min_isr=2,
        high_watermark=8,
        now_ms=0,
        brokers={2: LiveBroker(20), 3: LiveBroker(30)},
    )


def partition(*isr: int, epoch: int, replicas: tuple[int, ...] = (1, 2, 3), leader_epoch: int = 3) -> PartitionImage:
    return PartitionImage(replicas, isr, isr[0], leader_epoch, epoch, (HOME,) * len(replicas))


def image(*, epochs: dict[int, int] = EPOCHS, fenced: tuple[int, ...] = (), min_isr: str = "2") -> MetadataImage:
    brokers = {
        number: BrokerRegistration(number, epoch, HOME, (), {}, None, number in fenced, False, (HOME,))
        for number, epoch in epochs.items()
    }
    configs = PersistentMap([(ConfigResource(RESOURCE_TOPIC, "t"), {"min.insync.replicas": min_isr})])
    return MetadataImage(cluster=ClusterImage(brokers), configs=configs)


def propose(checker: InSyncChecker, proposal: ProposeIsr = GROWTH) -> None:
    known = leader()
    known.on_fetch(3, 30, 10, 12, 1)
    checker.on_proposal(PLACE, TOPIC_ID, known, proposal)


def test_a_follower_that_has_not_fetched_is_not_proposed(checker: InSyncChecker) -> None:
    with pytest.raises(Violation, match=r"A19: .*has fetched nothing"):
        checker.on_proposal(PLACE, TOPIC_ID, leader(), GROWTH)


def test_a_follower_below_the_start_of_the_epoch_is_not_proposed(checker: InSyncChecker) -> None:
    """As soon as it is: by the time that the controller has answered it may have caught up."""
    known = leader()
    known.on_fetch(3, 30, 9, 12, 1)
    with pytest.raises(Violation, match=r"A19: .*at 9, where the epoch began at 10"):
        checker.on_proposal(PLACE, TOPIC_ID, known, GROWTH)


def test_whoever_was_proposed_may_join(checker: InSyncChecker) -> None:
    propose(checker)
    checker.on_changed(PLACE, TOPIC_ID, partition(1, 2, epoch=7), partition(1, 2, 3, epoch=8), image())


def test_another_incarnation_than_was_proposed_may_not(checker: InSyncChecker) -> None:
    propose(checker)
    with pytest.raises(Violation, match=r"A18: .*with the epochs \[30\], and is registered with 41"):
        checker.on_changed(
            PLACE, TOPIC_ID, partition(1, 2, epoch=7), partition(1, 2, 3, epoch=8), image(epochs={**EPOCHS, 3: 41})
        )


def test_nobody_joins_whom_no_leader_proposed(checker: InSyncChecker) -> None:
    """A move gives a partition to node 4; that does not put it in sync."""
    before = partition(1, 2, 3, epoch=7)
    after = partition(1, 2, 3, 4, epoch=8, replicas=(1, 2, 3, 4))
    with pytest.raises(Violation, match=r"A24: .*node 4 has joined"):
        checker.on_changed(PLACE, TOPIC_ID, before, after, image())


def test_an_old_proposal_is_no_excuse(checker: InSyncChecker) -> None:
    propose(checker)
    with pytest.raises(Violation, match="A24"):
        checker.on_changed(PLACE, TOPIC_ID, partition(1, 2, epoch=9), partition(1, 2, 3, epoch=10), image())


def test_an_eligible_replica_is_elected_into_an_empty_set(checker: InSyncChecker) -> None:
    before = PartitionImage((1, 2, 3), (), -1, 3, 7, (HOME,) * 3, elr=(2, 3))
    checker.on_changed(PLACE, TOPIC_ID, before, partition(2, epoch=8, leader_epoch=4), image())
    with pytest.raises(Violation, match="A24"):
        checker.on_changed(PLACE, TOPIC_ID, before, partition(1, epoch=8, leader_epoch=4), image())


def test_it_may_have_started_anew_since_its_last_leader_asked_for_it(checker: InSyncChecker) -> None:
    """A proposal that nobody granted is not what put it there, but its election is, and it alone."""
    propose(checker)
    before = PartitionImage((1, 2, 3), (1,), 1, 3, 7, (HOME,) * 3, elr=(2, 3))
    restarted = image(epochs={**EPOCHS, 2: 41, 3: 42})
    checker.on_changed(PLACE, TOPIC_ID, before, partition(3, epoch=8, leader_epoch=4), restarted)
    with pytest.raises(Violation, match=r"A18: .*node 2 .*epochs \[20\], and is registered with 41"):
        checker.on_changed(PLACE, TOPIC_ID, before, partition(3, 2, epoch=8, leader_epoch=4), restarted)


@pytest.mark.parametrize(
    ("after", "fenced", "fair"),
    [
        ((3, 4), (), True),
        ((4,), (), False),
        # What was in sync and went with it was gone in any case.
        ((4,), (1, 2), True),
    ],
)
def test_a_move_leaves_enough_in_sync(
    checker: InSyncChecker, after: tuple[int, ...], fenced: tuple[int, ...], fair: bool
) -> None:
    """Away from 1 and 2, to 4, which was in sync already."""
    before = partition(1, 2, *after, epoch=7, replicas=(1, 2, 3, 4))
    moved = partition(*after, epoch=8, replicas=(3, 4))
    if fair:
        checker.on_changed(PLACE, TOPIC_ID, before, moved, image(fenced=fenced))
    else:
        with pytest.raises(Violation, match=r"A24: .*a move took \[1, 2\] out"):
            checker.on_changed(PLACE, TOPIC_ID, before, moved, image(fenced=fenced))
