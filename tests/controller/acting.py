"""A controller on a log that is a list, with short ways to ask it things."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from ottla.config.node import NodeConfig
from ottla.controller.controller import Controller
from ottla.controller.generated import Generated
from ottla.controller.settings import ControllerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import ELR_VERSION
from ottla.metadata.images import MetadataImage, PartitionImage
from ottla.metadata.records import MetadataRecord, decode_record, encode_record
from ottla.metadata.state import MetadataBatch, MetadataState
from ottla.model import Uuid
from ottla.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.alter_partition_request import AlterPartitionRequest
from ottla.wire.messages.alter_partition_request import BrokerState as MemberState
from ottla.wire.messages.alter_partition_request import PartitionData as Proposal
from ottla.wire.messages.alter_partition_request import TopicData as ProposedTopic
from ottla.wire.messages.alter_partition_response import PartitionData as AlteredPartition
from ottla.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from ottla.wire.messages.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.create_topics_response import CreatableTopicResult
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.feature_level_record import FeatureLevelRecord

R = TypeVar("R")

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
FEATURES = {"metadata.version": (7, 30), "group.version": (0, 0), "kraft.version": (0, 1), ELR_VERSION: (0, 1)}


def uid(number: int) -> Uuid:
    return Uuid((1 << 100 | number).to_bytes(16, "big"))


def node_config(**properties: str) -> NodeConfig:
    return NodeConfig(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "/data",
            **{key.replace("_", "."): value for key, value in properties.items()},
        }
    )


class Acting:
    """`ask` commits at once; `generate` only appends, and `commit` follows."""

    def __init__(self, *, metadata_version: int = 30, elr: bool = False, seed: int = 7, **properties: str) -> None:
        self.config = node_config(**properties)
        self.random = Random(seed)
        self.now_ms = 1_000_000
        self.log: list[MetadataBatch] = []
        self.committed = MetadataState()
        self.take_over()
        bootstrap = [MetadataRecord(FeatureLevelRecord(name="metadata.version", feature_level=metadata_version), 0)]
        if elr:
            bootstrap.append(MetadataRecord(FeatureLevelRecord(name=ELR_VERSION, feature_level=1), 0))
        self.ask(lambda c, now: c.activate(bootstrap))

    def take_over(self) -> None:
        """Another controller is active from now on, with what was committed."""
        self.controller = Controller(
            settings=ControllerSettings.from_config(self.config, CLUSTER),
            config=self.config,
            random=self.random,
            committed=self.committed,
            next_offset=self.committed.newest.last_offset + 1,
            now_ms=self.now_ms,
        )

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    def generate(self, operation: Callable[[Controller, int], Generated[R]]) -> R:
        generated = operation(self.controller, self.now_ms)
        if generated.records:
            base = self.controller.next_offset
            # Through their bytes, as a log keeps them.
            records = [decode_record(encode_record(record)) for record in generated.records]
            batch = MetadataBatch(base, base + len(records) - 1, 1, self.now_ms, records)
            self.controller.replay(batch)
            self.log.append(batch)
        return generated.response

    def commit(self) -> None:
        for _, state in self.controller.on_committed(self.controller.next_offset):
            self.committed = state

    def ask(self, operation: Callable[[Controller, int], Generated[R]]) -> R:
        response = self.generate(operation)
        self.commit()
        return response

    def refused(self, operation: Callable[[Controller, int], Generated[R]]) -> tuple[str, str]:
        """The name of the code, and the message, with which the request as a whole is refused."""
        before = self.controller.next_offset
        try:
            self.generate(operation)
        except KafkaError as error:
            assert self.controller.next_offset == before
            return error.code.name, error.message or ""
        raise AssertionError("the request was not refused")

    def time_passes(self, ms: int = 0) -> None:
        """Everything that is due after `ms` more is done."""
        self.now_ms += ms
        while True:
            before = self.controller.next_offset
            self.ask(lambda c, now: c.timed_work(now))
            if self.controller.next_offset == before:
                return

    @property
    def last_records(self) -> list[str]:
        return [type(record.message).__name__ for record in self.log[-1].records]

    # Brokers.

    def registration(
        self,
        broker_id: int,
        incarnation: int = 1,
        *,
        rack: str | None = None,
        cluster_id: str = CLUSTER,
        log_dirs: list[Uuid] | None = None,
        features: dict[str, tuple[int, int]] | None = None,
        previous_epoch: int = -1,
    ) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=cluster_id,
            incarnation_id=uid(broker_id * 1000 + incarnation),
            listeners=[Listener(name="PLAINTEXT", host=f"host{broker_id}", port=9092, security_protocol=0)],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in (FEATURES if features is None else features).items()
            ],
            rack=rack,
            log_dirs=[uid(50 + broker_id)] if log_dirs is None else log_dirs,
            previous_broker_epoch=previous_epoch,
        )

    def register(
        self,
        broker_id: int,
        incarnation: int = 1,
        *,
        rack: str | None = None,
        log_dirs: list[Uuid] | None = None,
        previous_epoch: int = -1,
    ) -> int:
        request = self.registration(broker_id, incarnation, rack=rack, log_dirs=log_dirs, previous_epoch=previous_epoch)
        return self.ask(lambda c, now: c.register_broker(request, now)).broker_epoch

    def heartbeat(
        self,
        broker_id: int,
        *,
        epoch: int | None = None,
        offset: int | None = None,
        fence: bool = False,
        shut_down: bool = False,
        offline: list[Uuid] | None = None,
    ) -> BrokerHeartbeatResponse:
        broker = self.image.broker(broker_id)
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=epoch if epoch is not None else (-1 if broker is None else broker.epoch),
            current_metadata_offset=self.image.last_offset if offset is None else offset,
            want_fence=fence,
            want_shut_down=shut_down,
            offline_log_dirs=offline or [],
        )
        return self.ask(lambda c, now: c.broker_heartbeat(request, now))

    def unfenced(self, *broker_ids: int, racks: dict[int, str] | None = None) -> None:
        for broker_id in broker_ids:
            self.register(broker_id, rack=(racks or {}).get(broker_id))
            self.heartbeat(broker_id)

    # Topics.

    def create(
        self,
        name: str,
        partitions: int = 1,
        factor: int = 1,
        *,
        assignment: dict[int, list[int]] | None = None,
        validate_only: bool = False,
        configs: dict[str, str | None] | None = None,
    ) -> CreatableTopicResult:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=factor,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                        for index, brokers in (assignment or {}).items()
                    ],
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
                )
            ],
            validate_only=validate_only,
        )
        return self.ask(lambda c, now: c.create_topics(request, now)).topics[0]

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        found = self.image.partition(name, index)
        assert found is not None
        return found

    def assigned(self, name: str, *replicas: int, **configs: str) -> PartitionImage:
        """A topic with one partition on `replicas`."""
        overrides: dict[str, str | None] = {key.replace("_", "."): value for key, value in configs.items()}
        result = self.create(name, -1, -1, assignment={0: list(replicas)}, configs=overrides)
        assert result.error_code == 0, result.error_message
        return self.partition(name)

    def epoch(self, broker_id: int) -> int:
        broker = self.image.broker(broker_id)
        assert broker is not None
        return broker.epoch

    def propose(
        self,
        name: str,
        isr: Sequence[int],
        *,
        sender: int | None = None,
        index: int = 0,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        recovery: int = 0,
        epochs: dict[int, int] | None = None,
        without_epochs: bool = False,
    ) -> AlteredPartition:
        """The leader asks for another ISR, with the epochs that the image has unless others are given."""
        topic = self.image.topic(name)
        assert topic is not None
        partition = topic.partitions.get(index)
        leader = sender if sender is not None else 0 if partition is None else partition.leader
        proposal = Proposal(
            partition_index=index,
            leader_epoch=leader_epoch
            if leader_epoch is not None
            else 0
            if partition is None
            else partition.leader_epoch,
            partition_epoch=partition_epoch
            if partition_epoch is not None
            else 0
            if partition is None
            else partition.partition_epoch,
            leader_recovery_state=recovery,
        )
        if without_epochs:
            proposal.new_isr = list(isr)
        else:
            registered = {broker.broker_id: broker.epoch for broker in self.image.cluster.brokers.values()}
            known = {**registered, **(epochs or {})}
            proposal.new_isr_with_epochs = [MemberState(broker_id=m, broker_epoch=known.get(m, -1)) for m in isr]
        request = AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=self.epoch(leader),
            topics=[ProposedTopic(topic_id=topic.topic_id, partitions=[proposal])],
        )
        return self.ask(lambda c, now: c.alter_partition(request, now)).topics[0].partitions[0]

    def reassign(self, name: str, replicas: Sequence[int] | None, *, allow: bool = True) -> tuple[str, str | None]:
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=allow,
            topics=[
                ReassignableTopic(
                    name=name,
                    partitions=[
                        ReassignablePartition(partition_index=0, replicas=None if replicas is None else list(replicas))
                    ],
                )
            ],
        )
        answer = self.ask(lambda c, now: c.alter_partition_reassignments(request, now))
        result = answer.responses[0].partitions[0]
        return ErrorCode(result.error_code).name, result.error_message

    def elect(self, election: int, partitions: dict[str, list[int]] | None) -> dict[tuple[str, int], str]:
        request = ElectLeadersRequest(
            election_type=election,
            topic_partitions=None
            if partitions is None
            else [TopicPartitions(topic=name, partitions=indexes) for name, indexes in partitions.items()],
        )
        answer = self.ask(lambda c, now: c.elect_leaders(request, now))
        return {
            (topic.topic, result.partition_id): ErrorCode(result.error_code).name
            for topic in answer.replica_election_results
            for result in topic.partition_result
        }

    def fence(self, broker_id: int) -> None:
        """Nobody has heard of `broker_id` for too long; of all the others somebody has."""
        others = [b.broker_id for b in self.image.alive_brokers() if b.broker_id != broker_id]
        self.now_ms += 9_001
        for other in others:
            self.heartbeat(other)
        self.time_passes()
        broker = self.image.broker(broker_id)
        assert broker is not None
        assert broker.fenced
