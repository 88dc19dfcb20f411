"""What the checker of groups notices, from records as they become committed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from ottla.coordinator.consumer import records
from ottla.coordinator.consumer.member import Member
from ottla.coordinator.offsets.codec import CommittedOffset, encode_key, encode_value
from ottla.coordinator.stored import GROUP_KINDS, AnyRecord, EncodedRecord
from ottla.model import GROUP_TOPIC, TopicPartition, Uuid
from ottla.records import BatchBuilder, end_txn_batch, read_header
from ottla.sim import view
from ottla.sim.checkers.group_work import unmet
from ottla.sim.checkers.groups import GroupChecker
from ottla.sim.checkers.looks import LookChecker
from ottla.sim.checkers.mirror import Batch
from ottla.sim.checkers.silence import check_silence
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Machine
from ottla.sim.faults import KINDS
from ottla.sim.history import Commit, History, Look, Outcome, Owned
from ottla.sim.options import Mode, expand
from ottla.sim.run import Simulation
from ottla.sim.volume import FileNode

TOPIC = Uuid(bytes(range(16)))
PLACES = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


class Log:
    """A partition of `__consumer_offsets` of which everything is committed at once."""

    def __init__(self) -> None:
        self.history = History()
        cluster = Simulation(expand(0, Mode.SAFETY, kinds=tuple(KINDS))).cluster
        self.checker = GroupChecker(cluster, self.history)
        self._end = 0

    def write(self, *written: AnyRecord, producer_id: int = -1) -> None:
        epoch = 0 if producer_id >= 0 else -1
        builder = BatchBuilder(producer_id=producer_id, producer_epoch=epoch, transactional=producer_id >= 0)
        for record in written:
            key, value = GROUP_KINDS.encode(record)
            builder.append(0, key, value)
        self._append(builder.build())

    def mark(self, producer_id: int, *, commit: bool) -> None:
        self._append(
            end_txn_batch(commit=commit, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp=0)
        )

    def _append(self, data: bytearray) -> None:
        data[:8] = self._end.to_bytes(8, "big")
        node = FileNode()
        node.content += data
        header = read_header(node.content, 0)
        batch = Batch(self._end, header.next_offset, 0, 0, len(data), node, 0, "", header.producer_id)
        self._end = header.next_offset
        self.checker.on_committed(TopicPartition(GROUP_TOPIC, 0), batch)
        self.checker.after_step()


@pytest.fixture
def log() -> Log:
    return Log()


def offset(value: int, name: str) -> EncodedRecord:
    return EncodedRecord(encode_key("g", "orders", 0), encode_value(CommittedOffset(value, -1, name, 0)))


def tombstone() -> EncodedRecord:
    return EncodedRecord(encode_key("g", "orders", 0), None)


def member(name: str, epoch: int, *partitions: int, revoking: tuple[int, ...] = ()) -> AnyRecord:
    held = {TOPIC: dict.fromkeys(partitions, epoch)} if partitions else {}
    given_up = {TOPIC: dict.fromkeys(revoking, epoch)} if revoking else {}
    return records.current("g", Member(member_id=name, epoch=epoch, assigned=held, revoking=given_up))


def test_offsets_fall_only_after_they_expired(log: Log) -> None:
    log.write(offset(5, "a"))
    log.write(tombstone())
    log.write(offset(3, "b"))
    with pytest.raises(Violation, match="C14"):
        log.write(offset(2, "c"))


def test_staged_offsets_take_effect_with_their_marker(log: Log) -> None:
    log.write(offset(5, "a"))
    log.write(offset(7, "b"), producer_id=1)
    assert "b" not in log.checker.took_effect
    log.mark(1, commit=True)
    log.write(offset(9, "c"), producer_id=1)
    log.mark(1, commit=False)
    assert log.checker.took_effect == {"a", "b"}


def test_what_is_staged_does_not_expire(log: Log) -> None:
    log.write(offset(5, "a"))
    log.write(offset(7, "b"), producer_id=1)
    with pytest.raises(Violation, match="C12"):
        log.write(tombstone())


def test_a_partition_has_one_owner_until_it_is_given_up(log: Log) -> None:
    log.write(member("m1", 3, 0, 1))
    log.write(member("m1", 3, 0, revoking=(1,)))
    with pytest.raises(Violation, match="C1"):
        log.write(member("m2", 4, 1))


def test_the_epoch_of_a_member_does_not_fall(log: Log) -> None:
    log.write(member("m1", 4, 0))
    with pytest.raises(Violation, match="C5"):
        log.write(member("m1", 3, 0))


def test_a_member_in_the_epoch_of_its_target_has_nothing_else(log: Log) -> None:
    log.write(records.target("g", "m1", {TOPIC: (0,)}), records.target_epoch("g", 2, 0))
    with pytest.raises(Violation, match="C3"):
        log.write(member("m1", 2, 0, 1))


def test_what_is_acknowledged_is_committed(log: Log) -> None:
    log.write(offset(5, "a"))
    commit = Commit(group_id="g", name="a", offsets={PLACES[0]: 5}, invoked=1.0, outcome=Outcome.OK)
    log.history.commits.append(commit)
    log.checker.on_answers()
    log.history.commits.append(Commit(group_id="g", name="b", offsets={}, invoked=1.0, outcome=Outcome.OK))
    with pytest.raises(Violation, match="C9"):
        log.checker.on_answers()


def test_members_are_told_what_was_written(log: Log) -> None:
    log.write(member("m1", 4, 0))
    log.history.owned.append(Owned("g", "m1", 4, frozenset({0})))
    log.checker.on_answers()
    log.history.owned.append(Owned("g", "m1", 4, frozenset({0, 1})))
    with pytest.raises(Violation, match="C1"):
        log.checker.on_answers()


def joined(name: str, *, instance_id: str | None = None) -> AnyRecord:
    return records.member_metadata(
        "g", Member(member_id=name, instance_id=instance_id, topic_names=frozenset({"orders"}))
    )


def test_who_commits_is_a_member(log: Log) -> None:
    log.write(joined("m1"), member("m1", 3, 0))
    log.write(offset(5, "m1:1"))
    with pytest.raises(Violation, match="C7"):
        log.write(offset(6, "m2:1"))


def test_an_instance_id_is_one_members(log: Log) -> None:
    log.write(joined("m1", instance_id="i"), joined("m2", instance_id="j"))
    assert log.checker.replaced == 0
    with pytest.raises(Violation, match="C13"):
        log.write(joined("m3", instance_id="i"))


def test_what_a_group_is_subscribed_to_is_all_shared_out(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = SimpleNamespace(topic_id=TOPIC, partitions={0: None, 1: None})
    image = SimpleNamespace(topic=lambda name: topic if name == "orders" else None)
    monkeypatch.setattr(view, "newest_image", lambda cluster: image)
    log.write(joined("m1"), records.target("g", "m1", {TOPIC: (0, 1)}), records.target_epoch("g", 1, 0))
    with pytest.raises(Violation, match="C2"):
        log.write(records.target("g", "m1", {TOPIC: (1,)}))


def test_a_staged_offset_is_not_told(log: Log) -> None:
    log.write(offset(5, "a"))
    log.write(offset(7, "b"), producer_id=1)
    look = Look(group_id="g", topic="orders", stable=False, node="n1", invoked=1.0, completed=1.1, found={0: (5, "a")})
    log.history.looks.append(look)
    log.checker.on_answers()
    assert log.checker.looks.while_staged == 1
    log.history.looks.append(
        Look(group_id="g", topic="orders", stable=False, node="n1", invoked=1.0, completed=1.1, found={0: (7, "b")})
    )
    with pytest.raises(Violation, match="C10"):
        log.checker.on_answers()


@pytest.mark.parametrize("decided", [False, True])
def test_stable_offsets_are_those_of_nobodys_transaction(
    log: Log, decided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LookChecker, "_leader_epoch", lambda self, node, partition: 3)
    log.write(offset(5, "a"))
    log.write(offset(7, "b"), producer_id=1)
    look = Look(group_id="g", topic="orders", stable=True, node="n1", invoked=1.0)
    log.history.looks.append(look)
    log.checker.on_answers()
    if decided:
        log.mark(1, commit=False)
    look.found[0], look.completed = (5, "a"), 1.1
    if decided:
        log.checker.on_answers()
    else:
        with pytest.raises(Violation, match="C10"):
            log.checker.on_answers()


@pytest.mark.parametrize("leader", [None, SimpleNamespace(leader_epoch=4)])
def test_who_does_not_lead_does_not_coordinate(leader: object, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = SimpleNamespace(leader=SimpleNamespace(leader_epoch=3), topic_partition=PLACES[0])
    served = SimpleNamespace(partition=partition, leader_epoch=3)
    monkeypatch.setattr(view, "served_shards", lambda machine: [served])
    machine = cast(Machine, SimpleNamespace(name="n1"))
    check_silence(machine)
    partition.leader = leader
    with pytest.raises(Violation, match="C15"):
        check_silence(machine)


def test_what_is_committed_with_its_end_was_true_for_a_while(log: Log) -> None:
    """A high watermark that was held back passes much at once."""
    log.write(joined("m1"), member("m1", 4, 0), *records.no_member("g", "m1"))
    log.history.owned.append(Owned("g", "m1", 4, frozenset({0})))
    log.checker.on_answers()


def test_an_offset_may_expire_after_the_last_look(log: Log) -> None:
    log.write(offset(5, "a"))
    log.history.looks.append(Look(group_id="g", topic="orders", stable=True, node="n1", invoked=0.0, completed=0.1))
    log.history.final_offsets["g"] = {0: (4, "z")}
    with pytest.raises(Violation, match="C8"):
        log.checker.at_end()
    log.history.final_offsets["g"] = {0: (5, "a")}
    log.checker.at_end()
    log.write(tombstone())
    log.checker.at_end()


def test_a_group_has_converged_when_all_is_shared_out() -> None:
    assert not unmet({"g": [("m1", True, {PLACES[0]}), ("m2", True, {PLACES[1]})]}, PLACES)
    assert unmet({"g": [("m1", True, {PLACES[0]}), ("m2", False, {PLACES[1]})]}, PLACES)
    assert unmet({"g": [("m1", True, {PLACES[0]}), ("m2", True, {PLACES[0]})]}, PLACES)
