"""What the metadata and the quorum must never say: each check of them has a case in which it speaks.

Nothing runs here. The checkers are shown what a cluster would have shown them, once as it should be and once as it must
not be.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.log.log import Log
from ottla.metadata.images import (
    BrokerRegistration,
    ClusterImage,
    MetadataImage,
    PartitionImage,
    Provenance,
    TopicImage,
    TopicsImage,
)
from ottla.metadata.persistent import PersistentMap
from ottla.model import TopicPartition, Uuid
from ottla.raft.election import ElectionState, encode_quorum_state
from ottla.raft.leader import Leader
from ottla.raft.machine import RaftMachine
from ottla.raft.roles import Unattached
from ottla.raft.voters import ReplicaKey, Voter, VoterSet
from ottla.sim import view
from ottla.sim.checkers.compaction import CompactionChecker
from ottla.sim.checkers.ledger import Ledger
from ottla.sim.checkers.metadata import MetadataChecker
from ottla.sim.checkers.mirror import Mirror
from ottla.sim.checkers.quorum import DIRECTORY, QUORUM_STATE, QuorumChecker, _Seen
from ottla.sim.checkers.replicas import METADATA, ReplicaChecker
from ottla.sim.checkers.storage import Watch
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Cluster, Machine
from ottla.sim.disk import SimDisk
from ottla.sim.faults import KINDS
from ottla.sim.options import Mode, expand
from ottla.sim.run import Simulation

TOPIC_ID, HOME = Uuid(b"t" * 16), Uuid(b"d" * 16)
EPOCHS = {1: 10, 2: 20, 3: 30}
BEFORE = PartitionImage((1, 2, 3), (1, 2, 3), 1, 3, 7, (HOME,) * 3)
COMMITTED = 1000


@pytest.fixture
def cluster() -> Cluster:
    """Of which nothing runs."""
    return Simulation(expand(0, Mode.SAFETY, kinds=tuple(KINDS), nodes=3)).cluster


# The metadata.


def image(
    partition: PartitionImage, offset: int, *, fenced: tuple[int, ...] = (), epochs: dict[int, int] = EPOCHS
) -> MetadataImage:
    brokers = {
        number: BrokerRegistration(number, epoch, HOME, (), {}, None, number in fenced, False, (HOME,))
        for number, epoch in epochs.items()
    }
    topic = TopicImage("t", TOPIC_ID, PersistentMap([(0, partition)]))
    topics = TopicsImage(by_name=PersistentMap([("t", topic)]), by_id=PersistentMap([(TOPIC_ID, topic)]))
    return MetadataImage(provenance=Provenance(offset, 1, 0), cluster=ClusterImage(brokers), topics=topics)


def show(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, *images: MetadataImage) -> None:
    """A node takes these in, one after the other."""
    checker = MetadataChecker(cluster, lambda: COMMITTED)
    for each in images:
        monkeypatch.setattr(view, "image", lambda machine, each=each: each)
        assert checker.after_step(cluster.machines[1])


@pytest.mark.parametrize(
    ("after", "fenced"),
    [
        (BEFORE._replace(isr=(1, 2), partition_epoch=8), ()),
        (BEFORE._replace(leader=2, isr=(2,), elr=(3,), leader_epoch=4, partition_epoch=8), (1, 3)),
        # The last of an in-sync set stays in it though it is fenced: nobody else has everything.
        (BEFORE._replace(leader=-1, isr=(1,), leader_epoch=4, partition_epoch=8), (1, 2, 3)),
    ],
)
def test_what_may_follow(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, after: PartitionImage, fenced: tuple[int, ...]
) -> None:
    show(monkeypatch, cluster, image(BEFORE, 100), image(after, 101, fenced=fenced))


@pytest.mark.parametrize(
    ("invariant", "after", "fenced"),
    [
        ("A13", BEFORE._replace(leader_epoch=2, partition_epoch=8), ()),
        ("A13", BEFORE._replace(isr=(1, 2)), ()),
        ("A13", BEFORE._replace(leader=2, partition_epoch=8), ()),
        ("A14", BEFORE._replace(partition_epoch=8), (2,)),
        ("A14", BEFORE._replace(isr=(1,), partition_epoch=8), (1,)),
        ("A14", BEFORE._replace(isr=(2, 3), partition_epoch=8), ()),
        ("A15", BEFORE._replace(isr=(1, 2, 4), partition_epoch=8), ()),
        ("A15", BEFORE._replace(isr=(1,), elr=(4,), partition_epoch=8), ()),
        ("A15", BEFORE._replace(isr=(1, 2), elr=(2,), partition_epoch=8), ()),
    ],
)
def test_what_may_not(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, invariant: str, after: PartitionImage, fenced: tuple[int, ...]
) -> None:
    with pytest.raises(Violation, match=f"{invariant}: "):
        show(monkeypatch, cluster, image(BEFORE, 100), image(after, 101, fenced=fenced))


def test_a_broker_that_is_an_older_one_again(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    with pytest.raises(Violation, match="A26: broker 2 had epoch 20, and now 19"):
        show(monkeypatch, cluster, image(BEFORE, 100), image(BEFORE, 101, epochs={**EPOCHS, 2: 19}))


def test_metadata_that_nobody_has_committed(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    show(monkeypatch, cluster, image(BEFORE, COMMITTED - 1))
    with pytest.raises(Violation, match="A25: "):
        show(monkeypatch, cluster, image(BEFORE, COMMITTED))


# The quorum.


@pytest.fixture
def checker(cluster: Cluster) -> QuorumChecker:
    return QuorumChecker(cluster)


@pytest.fixture
def machine(cluster: Cluster) -> Machine:
    return cluster.machines[1]


VOTERS = VoterSet(Voter(ReplicaKey(number, Uuid(bytes([number]) * 16)), ()) for number in (1, 2, 3))


def leader(*, epoch: int = 5, began_at: int = 100, high_watermark: int | None = None) -> Leader:
    return Leader(
        epoch=epoch,
        local=ReplicaKey(1, Uuid(bytes([1]) * 16)),
        voters=VOTERS,
        granted=(),
        epoch_start_offset=began_at,
        log_end_offset=began_at + 10,
        check_quorum_timeout_ms=1000,
        check_quorum_deadline_ms=1000,
        begin_quorum_epoch_ms=0,
        high_watermark=high_watermark,
    )


def raft(
    role: object,
    *,
    high_watermark: int | None = None,
    may_run: bool = True,
    sets: tuple[tuple[int, VoterSet], ...] = ((0, VOTERS),),
) -> RaftMachine:
    """As much of a machine as the checker looks at."""
    voters = SimpleNamespace(latest=VOTERS, _entries=list(sets))
    epoch = cast("Any", role).epoch
    found = SimpleNamespace(epoch=epoch, role=role, high_watermark=high_watermark, may_run=may_run, voters=voters)
    return cast("RaftMachine", found)


def test_two_leaders_of_one_epoch(checker: QuorumChecker, machine: Machine) -> None:
    checker._on_leader(machine, 5, 1)
    checker._on_leader(machine, 6, 2)
    checker._on_leader(machine, 5, 1)
    with pytest.raises(Violation, match="B1: epoch 5: "):
        checker._on_leader(machine, 5, 2)


def store(machine: Machine, *, epoch: int, voted: int | None = None, leader_id: int | None = None) -> None:
    key = None if voted is None else ReplicaKey(voted, Uuid(bytes([voted]) * 16))
    state = ElectionState(epoch=epoch, leader_id=leader_id, voted=key)
    disk = SimDisk(machine.volume)
    disk.make_dirs(DIRECTORY)
    disk.write_atomically(QUORUM_STATE, encode_quorum_state(state, kraft_version=1, voter_ids=(1, 2, 3)))


def test_a_vote_that_is_not_on_the_disk_of_who_gave_it(checker: QuorumChecker, cluster: Cluster) -> None:
    candidate, voter = cluster.machines[1], cluster.machines[2]
    with pytest.raises(Violation, match=r"B2: .*its disk does not know"):
        checker._check_votes(candidate, 5, (1, 2))
    store(voter, epoch=4, voted=1)
    voter.volume.settle()
    with pytest.raises(Violation, match=r"B2: .*its disk does not know"):
        checker._check_votes(candidate, 5, (1, 2))
    store(voter, epoch=5, voted=3)
    voter.volume.settle()
    with pytest.raises(Violation, match=r"B2: .*its disk says"):
        checker._check_votes(candidate, 5, (1, 2))
    store(voter, epoch=5, voted=1)
    voter.volume.settle()
    checker._check_votes(candidate, 5, (1, 2))


def test_a_vote_and_an_epoch_that_are_taken_back(checker: QuorumChecker, machine: Machine) -> None:
    seen = _Seen()
    for state in ({"epoch": 4}, {"epoch": 5, "voted": 2}, {"epoch": 5, "voted": 2, "leader_id": 3}):
        store(machine, **state)
        checker._check_stored(machine, seen)
    store(machine, epoch=5, voted=3)
    with pytest.raises(Violation, match="B2: "):
        checker._check_stored(machine, seen)
    store(machine, epoch=4)
    with pytest.raises(Violation, match=r"B3: .*had stored epoch 5, and now 4"):
        checker._check_stored(machine, seen)


def test_an_epoch_that_falls_in_memory(checker: QuorumChecker, machine: Machine) -> None:
    seen = _Seen()
    checker._on_role(machine, seen, raft(Unattached(epoch=5)))
    with pytest.raises(Violation, match="B3: "):
        checker._on_role(machine, seen, raft(Unattached(epoch=4)))


def test_a_leader_that_is_no_voter(checker: QuorumChecker, machine: Machine) -> None:
    checker._on_role(machine, _Seen(), raft(leader()))
    with pytest.raises(Violation, match="B17: "):
        checker._on_role(machine, _Seen(), raft(leader(epoch=6), may_run=False))


def commit(checker: QuorumChecker, machine: Machine, role: Leader, seen: _Seen | None = None) -> None:
    checker._on_high_watermark(machine, seen or _Seen(), raft(role, high_watermark=role.high_watermark))


def test_what_is_committed_without_a_majority(checker: QuorumChecker, machine: Machine) -> None:
    checker._ends = {1: 110, 2: 104, 3: 90}
    commit(checker, machine, leader(high_watermark=104))
    with pytest.raises(Violation, match=r"B6: .*only \[1\] hold that"):
        commit(checker, machine, leader(high_watermark=105))


def test_what_is_committed_falls(checker: QuorumChecker, machine: Machine) -> None:
    checker._ends = {1: 210, 2: 210, 3: 210}
    seen = _Seen()
    commit(checker, machine, leader(high_watermark=110), seen)
    with pytest.raises(Violation, match=r"B7: .*fell from 110 to 109"):
        commit(checker, machine, leader(high_watermark=109), seen)
    with pytest.raises(Violation, match=r"B7: .*110 was committed"):
        commit(checker, machine, leader(epoch=6, high_watermark=108))


def test_an_older_epoch_that_is_committed_by_counting(checker: QuorumChecker, machine: Machine) -> None:
    checker._ends = {1: 210, 2: 210, 3: 210}
    with pytest.raises(Violation, match=r"B8: .*its epoch began at 100"):
        commit(checker, machine, leader(high_watermark=100))


def test_two_changes_of_the_voters_at_a_time(checker: QuorumChecker, machine: Machine) -> None:
    one = ((0, VOTERS), (120, VOTERS))
    checker._check_voter_changes(machine, raft(leader(), sets=one), 120)
    with pytest.raises(Violation, match=r"B13: .*\[120, 121\]"):
        checker._check_voter_changes(machine, raft(leader(), sets=(*one, (121, VOTERS))), 120)


def test_a_log_that_begins_without_its_snapshot(checker: QuorumChecker, machine: Machine) -> None:
    disk = SimDisk(machine.volume)
    disk.make_dirs(DIRECTORY)
    disk.open(f"{DIRECTORY}/{40:020d}-{3:010d}.checkpoint", create=True)
    checker._on_log_start(machine, _Seen(), 40, loaded=False)
    with pytest.raises(Violation, match="B10: "):
        checker._on_log_start(machine, _Seen(), 41, loaded=False)


def test_a_leader_that_loads_a_snapshot(checker: QuorumChecker, machine: Machine) -> None:
    disk = SimDisk(machine.volume)
    disk.make_dirs(DIRECTORY)
    disk.open(f"{DIRECTORY}/{40:020d}-{3:010d}.checkpoint", create=True)
    seen = _Seen()
    checker._on_log_start(machine, seen, 40, loaded=True)
    assert checker.snapshot_loads == 1
    seen.role = leader()
    with pytest.raises(Violation, match="B11: "):
        checker._on_log_start(machine, seen, 40, loaded=True)


def test_two_who_have_read_the_same_and_differ(checker: QuorumChecker) -> None:
    def read(*images: MetadataImage) -> None:
        machines = {
            number: SimpleNamespace(name=f"n{number}", node=SimpleNamespace(_control=SimpleNamespace(image=each)))
            for number, each in enumerate(images)
        }
        checker._cluster = cast("Cluster", SimpleNamespace(machines=machines))
        checker.at_end()

    changed = BEFORE._replace(isr=(1, 2), partition_epoch=8)
    read(image(BEFORE, 100), image(BEFORE, 100), image(changed, 101))
    with pytest.raises(Violation, match="B21: n0 and n1 have read up to 100"):
        read(image(BEFORE, 100), image(changed, 100))


def test_a_log_of_metadata_that_is_cut_below_what_it_knew_to_be_committed(cluster: Cluster, machine: Machine) -> None:
    def cut(at: int, *, place: TopicPartition = METADATA, began: int = 0) -> None:
        log = SimpleNamespace(
            log_start_offset=0,
            last_stable_offset=40,
            high_watermark=40,
            log_end_offset=max(at, 40),
            recovery_point=0,
            topic_id=TOPIC_ID,
            _swap=None,
        )
        mirror = SimpleNamespace(update=lambda: at, batches=[], cleaned=None, dropped=0)
        where = f"{place} on {machine.name}"
        watch = Watch(place, cast("Log", log), None, Ledger(where), cast("Mirror", mirror), where, compacted=False)
        watch.start, watch.high_watermark, watch.end, watch.recovery_point = began, 40, 50, 0
        ReplicaChecker(cluster, CompactionChecker(cluster))._look(machine, watch)

    cut(40)
    cut(39, began=10)  # A snapshot took the place of the log, which begins anew.
    cut(39, place=TopicPartition("t", 0))  # Of a partition that may be, and is judged by what others have (A2, A7).
    with pytest.raises(Violation, match=r"B9: .*was cut at 39, below its high watermark"):
        cut(39)
