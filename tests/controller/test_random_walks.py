"""Brokers come and go, leaders propose, operators reassign, in any order: what may never happen never does.

Each seed walks a controller through requests, some of them wrong, with failovers and lost appends between. After every
single record the partitions that it touched are held against the rules (A13 to A15, A17, A18, A24, A26), and a standby
that only reads the log ends with the same image as the controller that wrote it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest

from ottla.controller.controller import Controller
from ottla.controller.generated import Generated
from ottla.controller.reassignment import Reassignment
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.images import (
    DEFAULT_BROKER,
    LEADER_RECOVERING,
    NO_LEADER,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    MetadataImage,
    PartitionImage,
)
from ottla.metadata.records import decode_record, encode_record
from ottla.metadata.snapshot import image_records
from ottla.metadata.state import MetadataBatch, MetadataState
from ottla.model import Uuid
from ottla.wire.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.register_broker_record import RegisterBrokerRecord
from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from tests.controller.acting import Acting, uid
from tests.controller.test_directory_control import assign
from tests.controller.test_elections import alter
from tests.controller.test_elr import set_level

BROKERS = range(1, 7)
TOPICS = ("a", "b", "c")
STEPS = 150

Replica = tuple[Uuid, int, int]


@dataclass(slots=True)
class Rules:
    """The checks, fed with every record of the log in turn."""

    state: MetadataState = field(default_factory=MetadataState)
    tainted: set[Replica] = field(default_factory=set)
    """Replicas whose broker came back without proof of a clean shutdown, and which have not caught up since."""

    doing: str = ""
    began_without_elr: bool = False
    """Then there may be ISRs whose last member is gone, from before eligible replicas were kept."""

    epochs: dict[int, int] = field(default_factory=dict)

    @property
    def image(self) -> MetadataImage:
        return self.state.image

    def on_record(self, batch: MetadataBatch, index: int, clean: bool) -> None:
        record = batch.records[index]
        before = self.image
        offset = batch.base_offset + index
        self.state, _ = self.state.replay(MetadataBatch(offset, offset, batch.epoch, batch.timestamp_ms, [record]))
        message = record.message
        if isinstance(message, RegisterBrokerRecord):
            self._on_registration(message, offset, clean)
        for topic in self.image.topics.by_id.values():
            old_topic = before.topics.by_id.get(topic.topic_id)
            for partition_id, new in topic.partitions.items():
                old = None if old_topic is None else old_topic.partitions.get(partition_id)
                if old is not new or self.image.cluster is not before.cluster:
                    self._check(topic.topic_id, topic.name, partition_id, old, new)

    def _on_registration(self, record: RegisterBrokerRecord, offset: int, clean: bool) -> None:
        broker_id = record.broker_id
        if record.broker_epoch != self.epochs.get(broker_id):
            assert record.broker_epoch == offset, "A26: the epoch is the offset"
            assert offset > self.epochs.get(broker_id, -1), "A26: and rises"
            self.epochs[broker_id] = offset
            if not clean and self.image.features.elr:
                for topic in self.image.topics.by_id.values():
                    for partition_id, partition in topic.partitions.items():
                        if broker_id in partition.replicas:
                            self.tainted.add((topic.topic_id, partition_id, broker_id))

    def min_isr(self, name: str, partition: PartitionImage) -> int:
        own = self.image.topic_config(name).get("min.insync.replicas")
        default = self.image.config(DEFAULT_BROKER).get("min.insync.replicas", "2")
        minimum = int(default if own is None else own)
        return min(minimum, len(partition.replicas))

    def _check(
        self, topic_id: Uuid, name: str, partition_id: int, old: PartitionImage | None, new: PartitionImage
    ) -> None:
        where = f"{name}-{partition_id} while {self.doing}: {old} -> {new}"
        brokers = self.image.cluster.brokers
        elr = self.image.features.elr
        isr, eligible, replicas = set(new.isr), set(new.elr), set(new.replicas)
        # A15, and what goes without saying.
        assert (len(isr), len(replicas)) == (len(new.isr), len(new.replicas)), where
        assert isr | eligible <= replicas, where
        assert not isr & eligible, where
        assert new.leader == NO_LEADER or new.leader in isr, where
        assert len(new.directories) == len(new.replicas), where
        assert {*new.adding_replicas, *new.removing_replicas} <= replicas, where
        assert isr or elr or eligible or new.last_known_elr, where
        if elr and old is not None and old is not new and len(isr) >= self.min_isr(name, new):
            assert not eligible, where
        # A14.
        for replica in new.isr:
            broker = brokers.get(replica)
            gone = broker is None or broker.fenced
            assert not gone or ((self.began_without_elr or not elr) and len(new.isr) == 1), where
            assert not gone or new.leader != replica, where
        if old is None or old is new:
            return
        # A13.
        assert new.partition_epoch == old.partition_epoch + 1, where
        assert new.leader_epoch in (old.leader_epoch, old.leader_epoch + 1), where
        assert new.leader == old.leader or new.leader_epoch > old.leader_epoch, where
        if Reassignment.of(old).in_progress and not Reassignment.of(new).in_progress:
            assert new.leader_epoch > old.leader_epoch, where
        unclean = new.leader != old.leader and new.leader_recovery_state == LEADER_RECOVERING
        for joined in isr - set(old.isr):
            broker = brokers.get(joined)
            assert broker is not None, f"A18: {where}"
            assert broker.active, f"A14: {where}"
            if self.doing == "proposing" or unclean:
                self.tainted.discard((topic_id, partition_id, joined))
        # A17.
        for replica in (*new.isr, *new.elr, new.leader):
            assert (topic_id, partition_id, replica) not in self.tainted, where
        # A24.
        if self.doing == "reassigning" and not unclean:
            assert isr <= set(old.isr or old.elr), where
            assert len(isr) >= min(self.min_isr(name, new), len(old.isr)), where


class Walk:
    def __init__(self, seed: int, *, elr: bool) -> None:
        self.random = Random(seed)
        self.acting = Acting(elr=elr, seed=seed, min_insync_replicas="2")
        self.rules = Rules(began_without_elr=not elr)
        self.incarnations = dict.fromkeys(BROKERS, 0)
        self.producer_ids: set[int] = set()
        self.seen = 0
        self.committed_batches = 0
        self.clean = True

    def step(self) -> None:
        actions: list[tuple[int, str, Callable[[], None]]] = [
            (6, "registering", self.register),
            (14, "beating", self.heartbeat),
            (4, "waiting", self.wait),
            (4, "creating", self.create),
            (1, "deleting", self.delete),
            (16, "proposing", self.propose),
            (6, "reassigning", self.reassign),
            (3, "electing", self.elect),
            (2, "configuring", self.configure),
            (1, "unregistering", self.unregister),
            (2, "failing a disk", self.fail_disk),
            (4, "placing", self.place),
            (2, "allocating", self.allocate),
            (1, "growing", self.grow),
            (2, "taking over", self.take_over),
            (1, "losing an append", self.lose),
        ]
        weights = [weight for weight, _, _ in actions]
        _, self.rules.doing, action = self.random.choices(actions, weights)[0]
        self.clean = True
        with suppress(KafkaError):
            action()
        self.acting.commit()
        self.check()

    def check(self) -> None:
        for batch in self.acting.log[self.seen :]:
            for index in range(len(batch.records)):
                self.rules.on_record(batch, index, self.clean)
        self.seen = len(self.acting.log)

    # Brokers.

    def any_broker(self) -> int:
        return self.random.choice(BROKERS)

    def register(self) -> None:
        broker_id = self.any_broker()
        existing = self.acting.image.broker(broker_id)
        if existing is None or self.random.random() < 0.8:
            self.incarnations[broker_id] += 1
        self.clean = existing is not None and self.random.random() < 0.5
        previous = existing.epoch if existing is not None and self.clean else self.random.choice([-1, 3])
        if existing is not None and previous == existing.epoch:
            self.clean = True
        if self.random.random() < 0.8:
            self.acting.now_ms += 9_001
        directories = [uid(50 + broker_id), uid(70 + broker_id)]
        if existing is not None and existing.incarnation_id == uid(broker_id * 1000 + self.incarnations[broker_id]):
            directories = list(existing.log_dirs)
        self.acting.register(
            broker_id,
            self.incarnations[broker_id],
            previous_epoch=previous,
            rack=f"rack{broker_id % 3}",
            log_dirs=directories,
        )

    def heartbeat(self) -> None:
        for broker in list(self.acting.image.cluster.brokers.values()):
            if self.random.random() < 0.7:
                self.acting.heartbeat(
                    broker.broker_id,
                    offset=self.acting.image.last_offset - self.random.choice([0, 0, 0, 40]),
                    fence=self.random.random() < 0.03,
                    shut_down=self.random.random() < 0.06,
                )
                self.check()

    def wait(self) -> None:
        self.acting.time_passes(self.random.choice([500, 4_000, 5_000, 9_001]))

    def unregister(self) -> None:
        request = UnregisterBrokerRequest(broker_id=self.any_broker())
        self.acting.ask(lambda c, now: c.unregister_broker(request, now))

    def fail_disk(self) -> None:
        broker_id = self.any_broker()
        self.acting.heartbeat(broker_id, offline=[uid(self.random.choice([50, 70]) + broker_id)])

    def place(self) -> None:
        """A broker says where it has put its replicas."""
        broker = self.acting.image.broker(self.any_broker())
        topic = self.acting.image.topic(self.any_topic())
        if broker is not None and topic is not None:
            directory = uid(self.random.choice([50, 70]) + broker.broker_id)
            assign(self.acting, (directory, topic.topic_id, 0), (directory, topic.topic_id, 1), broker=broker.broker_id)

    # Topics.

    def any_topic(self) -> str:
        return self.random.choice(TOPICS)

    def create(self) -> None:
        config: dict[str, str | None] = {}
        if self.random.random() < 0.3:
            config["min.insync.replicas"] = self.random.choice(["1", "2", "3"])
        if self.random.random() < 0.2:
            config["unclean.leader.election.enable"] = "true"
        self.acting.create(self.any_topic(), self.random.randint(1, 3), self.random.randint(1, 3), configs=config)

    def delete(self) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=self.any_topic())])
        self.acting.ask(lambda c, now: c.delete_topics(request, now))

    def grow(self) -> None:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=self.any_topic(), count=4, assignments=None)]
        )
        self.acting.ask(lambda c, now: c.create_partitions(request, now))

    def propose(self) -> None:
        name = self.any_topic()
        topic = self.acting.image.topic(name)
        if topic is None:
            return
        index = self.random.randrange(len(topic.partitions))
        partition = topic.partitions[index]
        if partition.leader == NO_LEADER:
            return
        others = [replica for replica in partition.replicas if replica != partition.leader]
        isr = [partition.leader, *self.random.sample(others, self.random.randint(0, len(others)))]
        before = self.acting.controller.next_offset
        stale = self.random.choice([None, None, None, "epoch", "leader", "member"])
        members = {member: self.acting.image.broker(member) for member in isr}
        epochs = {m: broker.epoch for m, broker in members.items() if broker is not None}
        if stale == "member" and len(isr) > 1:
            epochs[isr[1]] = epochs.get(isr[1], 7) - 1
        answer = self.acting.propose(
            name,
            isr,
            index=index,
            leader_epoch=partition.leader_epoch - 1 if stale == "leader" else None,
            partition_epoch=partition.partition_epoch - 1 if stale == "epoch" else None,
            epochs=epochs,
        )
        code = ErrorCode(answer.error_code)
        eligible = all(b is not None and b.active for b in members.values())
        if stale == "leader":
            assert code is ErrorCode.FENCED_LEADER_EPOCH
        elif stale == "epoch":
            assert code is ErrorCode.INVALID_UPDATE_VERSION
        elif not eligible or (stale == "member" and len(isr) > 1):
            assert code is ErrorCode.INELIGIBLE_REPLICA
        else:
            assert code in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED)
        if code is ErrorCode.INELIGIBLE_REPLICA:
            raised = partition._replace(partition_epoch=partition.partition_epoch + 1)
            assert self.acting.partition(name, index) == raised, "so that no copy is accepted later"
        elif code not in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED):
            assert self.acting.controller.next_offset == before

    def reassign(self) -> None:
        known = list(self.acting.image.cluster.brokers)
        if not known:
            return
        target = (
            None
            if self.random.random() < 0.3
            else self.random.sample(known, min(len(known), self.random.randint(1, 3)))
        )
        name = self.any_topic()
        code, _ = self.acting.reassign(name, target)
        assert code != "INVALID_REQUEST"

    def elect(self) -> None:
        wanted = None if self.random.random() < 0.3 else {self.any_topic(): [0, 1]}
        self.acting.elect(self.random.choice([0, 0, 0, 1]), wanted)

    def configure(self) -> None:
        kind, name = self.random.choice([(RESOURCE_TOPIC, self.any_topic()), (RESOURCE_BROKER, "")])
        if self.random.random() < 0.7:
            alter(self.acting, kind, name, "min.insync.replicas", self.random.choice(["1", "2", "3"]))
        else:
            alter(self.acting, kind, name, "unclean.leader.election.enable", self.random.choice(["true", "false"]))

    def allocate(self) -> None:
        broker = self.acting.image.broker(self.any_broker())
        if broker is not None:
            request = AllocateProducerIdsRequest(broker_id=broker.broker_id, broker_epoch=broker.epoch)
            answer = self.acting.ask(lambda c, now: c.allocate_producer_ids(request, now))
            given = set(range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len))
            assert not given & self.producer_ids, "D20"
            self.producer_ids |= given

    # The controller itself.

    def take_over(self) -> None:
        self.acting.take_over()

    def lose(self) -> None:
        """An append fails: what was generated never happened."""
        before, length = self.acting.image, len(self.acting.log)
        broker_id = self.any_broker()

        def operation(controller: Controller, now_ms: int) -> Generated[object]:
            request = self.acting.registration(broker_id, 999 + self.random.randrange(1000))
            return Generated(*controller.register_broker(request, now_ms))

        try:
            self.acting.generate(operation)
        finally:
            self.acting.controller.revert()
            del self.acting.log[length:]
        assert self.acting.image is before


def through_bytes(image: MetadataImage) -> MetadataImage:
    records = [decode_record(encode_record(record)) for record in image_records(image)]
    state, _ = MetadataState().load_snapshot(records, image.provenance)
    return state.image


@pytest.mark.parametrize("elr", [True, False], ids=["elr", "no-elr"])
@pytest.mark.parametrize("seed", range(8))
def test_a_walk(seed: int, elr: bool) -> None:
    walk = Walk(seed, elr=elr)
    for step in range(STEPS):
        walk.step()
        if step == STEPS // 2 and seed % 4 == 3:
            walk.rules.doing = "changing features"
            set_level(walk.acting, 0 if elr else 1, 2 if elr else 1)
            walk.rules.tainted.clear()
            walk.check()
    standby = MetadataState()
    for batch in walk.acting.log:
        standby, _ = standby.replay(batch)
    assert standby.image == walk.acting.image
    assert walk.acting.committed.image == walk.acting.image
    snapshot = through_bytes(walk.acting.image)
    assert snapshot == walk.acting.image, "B21: a snapshot says all of it"


@pytest.mark.long
@pytest.mark.parametrize("elr", [True, False], ids=["elr", "no-elr"])
@pytest.mark.parametrize("hundred", range(5))
def test_many_walks(hundred: int, elr: bool) -> None:
    for seed in range(1_000 + hundred * 100, 1_100 + hundred * 100):
        try:
            test_a_walk(seed, elr)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_the_walks_meet_what_they_are_about() -> None:
    """Without this, a walk in which nothing happens would prove everything."""
    kinds: dict[str, int] = {}
    met = {"unclean": 0, "eligible": 0, "leaderless": 0, "reassigned": 0}
    for seed in range(6):
        walk = Walk(seed, elr=True)
        for _ in range(STEPS):
            walk.step()
            for topic in walk.acting.image.topics.by_id.values():
                for partition in topic.partitions.values():
                    met["unclean"] += partition.leader_recovery_state == LEADER_RECOVERING
                    met["eligible"] += bool(partition.elr)
                    met["leaderless"] += partition.leader == NO_LEADER
                    met["reassigned"] += Reassignment.of(partition).in_progress
        for batch in walk.acting.log:
            for record in batch.records:
                name = type(record.message).__name__
                kinds[name] = kinds.get(name, 0) + 1
    assert all(met.values()), met
    for name in ("PartitionChangeRecord", "RegisterBrokerRecord", "BrokerRegistrationChangeRecord", "ClearElrRecord"):
        assert kinds.get(name, 0) > 10, kinds
