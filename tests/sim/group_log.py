"""A partition of `__consumer_offsets` by hand, for tests of what checkers make of its records."""

from __future__ import annotations

from ottla.coordinator.consumer import records
from ottla.coordinator.consumer.member import Member
from ottla.coordinator.offsets.codec import CommittedOffset, encode_key, encode_value
from ottla.coordinator.stored import GROUP_KINDS, AnyRecord, EncodedRecord, StoredRecord
from ottla.model import GROUP_TOPIC, TopicPartition, Uuid
from ottla.records import BatchBuilder, end_txn_batch, read_header
from ottla.sim.checkers.groups import GroupChecker
from ottla.sim.checkers.mirror import Batch
from ottla.sim.faults import KINDS
from ottla.sim.history import History, Plan
from ottla.sim.options import Mode, expand
from ottla.sim.run import Simulation
from ottla.sim.volume import FileNode
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata

_VERSION = b"\x00\x01"
TOPIC = Uuid(bytes(range(16)))
A, B, C, Z = "a:-1:1", "b:-1:1", "c:-1:1", "z:-1:1"
"""Names of commits that are no member's."""
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


def offset(value: int, name: str) -> EncodedRecord:
    return EncodedRecord(encode_key("g", "orders", 0), encode_value(CommittedOffset(value, -1, name, 0)))


def tombstone() -> EncodedRecord:
    return EncodedRecord(encode_key("g", "orders", 0), None)


def member(name: str, epoch: int, *partitions: int, revoking: tuple[int, ...] = ()) -> AnyRecord:
    held = {TOPIC: dict.fromkeys(partitions, epoch)} if partitions else {}
    given_up = {TOPIC: dict.fromkeys(revoking, epoch)} if revoking else {}
    return records.current("g", Member(member_id=name, epoch=epoch, assigned=held, revoking=given_up))


def joined(name: str, *, instance_id: str | None = None) -> AnyRecord:
    return records.member_metadata(
        "g", Member(member_id=name, instance_id=instance_id, topic_names=frozenset({"orders"}))
    )


def generation(number: int, leader: str, shares: dict[str, tuple[int, ...]], *, static: str | None = None) -> AnyRecord:
    """The record of a classic group; the member `static` has an instance id."""
    members = [
        MemberMetadata(
            member_id=name,
            group_instance_id="i" if name == static else None,
            rebalance_timeout=1000,
            session_timeout=1000,
            subscription=_VERSION + ConsumerProtocolSubscription(topics=["orders"]).encode(1),
            assignment=_VERSION
            + ConsumerProtocolAssignment(
                assigned_partitions=[AssignedTopic(topic="orders", partitions=list(partitions))], user_data=None
            ).encode(1),
        )
        for name, partitions in shares.items()
    ]
    value = GroupMetadataValue(
        protocol_type="consumer", generation=number, protocol="range", leader=leader, members=members
    )
    return StoredRecord(GroupMetadataKey(group="g"), value, 3)


def plan(number: int, leader: str, shares: dict[str, tuple[int, ...]]) -> Plan:
    """What the leader sent."""
    return Plan("g", number, leader, {name: frozenset(partitions) for name, partitions in shares.items()})
