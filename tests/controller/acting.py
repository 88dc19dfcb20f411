"""A controller on a log that is a list, with short ways to ask it things."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

from ottla.config.node import NodeConfig
from ottla.controller.controller import Controller
from ottla.controller.generated import Generated
from ottla.controller.settings import ControllerSettings
from ottla.errors import KafkaError
from ottla.metadata.images import MetadataImage, PartitionImage
from ottla.metadata.records import MetadataRecord, decode_record, encode_record
from ottla.metadata.state import MetadataBatch, MetadataState
from ottla.model import Uuid
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
from ottla.wire.messages.feature_level_record import FeatureLevelRecord

R = TypeVar("R")

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
FEATURES = {"metadata.version": (7, 30), "group.version": (0, 0), "kraft.version": (0, 1)}


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

    def __init__(self, *, metadata_version: int = 30, seed: int = 7, **properties: str) -> None:
        self.config = node_config(**properties)
        self.random = Random(seed)
        self.now_ms = 1_000_000
        self.log: list[MetadataBatch] = []
        self.committed = MetadataState()
        self.take_over()
        bootstrap = [MetadataRecord(FeatureLevelRecord(name="metadata.version", feature_level=metadata_version), 0)]
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
        )

    def register(self, broker_id: int, incarnation: int = 1, *, rack: str | None = None) -> int:
        request = self.registration(broker_id, incarnation, rack=rack)
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
