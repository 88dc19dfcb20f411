"""Images to records and back, and both beside what Apache Kafka 4.3.1 wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.metadata.images import NOWHERE, RESOURCE_BROKER, MetadataImage
from ottla.metadata.records import MetadataRecord, decode_record, encode_record
from ottla.metadata.snapshot import image_records
from ottla.metadata.state import MetadataBatch, MetadataState
from ottla.raft.checkpoint import decode_checkpoint
from ottla.records import batches, iterate
from ottla.wire.messages.access_control_entry_record import AccessControlEntryRecord
from ottla.wire.messages.client_quota_record import ClientQuotaRecord, EntityData
from ottla.wire.messages.delegation_token_record import DelegationTokenRecord
from ottla.wire.messages.feature_level_record import FeatureLevelRecord
from ottla.wire.messages.partition_change_record import PartitionChangeRecord
from ottla.wire.messages.producer_ids_record import ProducerIdsRecord
from ottla.wire.messages.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from ottla.wire.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from ottla.wire.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
from ottla.wire.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from ottla.wire.messages.user_scram_credential_record import UserScramCredentialRecord
from tests.metadata.making import batch, broker, broker_change, config, latest, level, partition, removed, topic, uid

GOLDEN = Path(__file__).parent / "golden"


def replay(records: list[MetadataRecord]) -> MetadataImage:
    state, _ = MetadataState().replay(batch(0, *records))
    return replace(state.image, provenance=NOWHERE)


def round_trip(image: MetadataImage) -> MetadataImage:
    """Through the bytes of the records, as a snapshot goes."""
    return replay([decode_record(encode_record(record)) for record in image_records(image)])


def quota(key: str, value: float, *entity: tuple[str, str | None], remove: bool = False) -> MetadataRecord:
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    return latest(ClientQuotaRecord(entity=parts, key=key, value=value, remove=remove))


def acl(number: int) -> MetadataRecord:
    return latest(
        AccessControlEntryRecord(
            id=uid(number),
            resource_type=2,
            resource_name="t",
            pattern_type=3,
            principal="User:a",
            host="*",
            operation=3,
        )
    )


def scram(name: str, mechanism: int) -> MetadataRecord:
    return latest(
        UserScramCredentialRecord(
            name=name, mechanism=mechanism, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        )
    )


def token(name: str) -> MetadataRecord:
    return latest(DelegationTokenRecord(owner="User:a", requester="User:b", renewers=["User:c"], token_id=name))


def controller(number: int) -> MetadataRecord:
    return latest(
        RegisterControllerRecord(
            controller_id=number,
            incarnation_id=uid(number),
            end_points=[ControllerEndpoint(name="CONTROLLER", host="h", port=9093, security_protocol=0)],
            features=[ControllerFeature(name="kraft.version", min_supported_version=0, max_supported_version=1)],
        )
    )


def test_an_image_with_everything_in_it_survives_a_snapshot() -> None:
    elr = PartitionChangeRecord(
        topic_id=uid(1),
        partition_id=0,
        isr=[1],
        eligible_leader_replicas=[2],
        last_known_elr=[3],
        removing_replicas=[3],
        leader_recovery_state=1,
    )
    image = replay(
        [
            level(),
            latest(FeatureLevelRecord(name="group.version", feature_level=1)),
            broker(1, 5, rack="r"),
            broker_change(1, 5, fenced=-1, shutting_down=1),
            controller(7),
            topic("a.b", 1),
            partition(1, 0, (1, 2, 3)),
            partition(1, 1, (2, 3, 1)),
            latest(elr),
            topic("c", 2),
            partition(2, 0),
            config(2, "a.b", "retention.ms", "1"),
            config(4, "", "x", ""),
            quota("producer_byte_rate", 1.5, ("user", "a"), ("client-id", None)),
            quota("request_percentage", 50.0, ("user", None)),
            latest(ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=4000)),
            acl(1),
            acl(2),
            scram("alice", 1),
            scram("alice", 2),
            token("t1"),
        ]
    )
    assert round_trip(image) == image
    assert len(list(image_records(image))) == 19


def test_what_was_taken_back_is_in_no_snapshot() -> None:
    image = replay(
        [
            level(),
            acl(1),
            scram("alice", 1),
            token("t1"),
            quota("x", 1.0, ("user", "a")),
            quota("x", 0.0, ("user", "a"), remove=True),
            latest(RemoveAccessControlEntryRecord(id=uid(1))),
            latest(RemoveUserScramCredentialRecord(name="alice", mechanism=1)),
            latest(RemoveDelegationTokenRecord(token_id="t1")),
        ]
    )
    assert image == replay([level()])
    assert len(list(image_records(image))) == 1


steps = st.lists(
    st.one_of(
        st.tuples(st.just("topic"), st.integers(1, 5), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.integers(1, 5), st.just(0)),
        st.tuples(st.just("leader"), st.integers(1, 5), st.integers(-1, 3)),
        st.tuples(st.just("config"), st.integers(1, 5), st.integers(0, 3)),
        st.tuples(st.just("broker"), st.integers(1, 3), st.integers(0, 9)),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(steps, st.integers(0, 30), st.sampled_from([7, 14, 17, 23, 30]))
def test_replaying_a_snapshot_and_the_rest_is_replaying_all(
    story: list[tuple[str, int, int]], cut: int, metadata_version: int
) -> None:
    """B21: wherever the snapshot is taken, and whatever forms of the records its metadata.version has."""
    state, _ = MetadataState().replay(batch(0, level(metadata_version)))
    states = [state]
    tail: list[MetadataBatch] = []
    for kind, number, value in story:
        image = state.image
        exists = image.topic_by_id(uid(number)) is not None
        records: list[MetadataRecord] = []
        if kind == "topic" and not exists:
            records = [topic(f"t{number}", number)]
            if metadata_version >= 17:
                records += [partition(number, index, (1, 2)) for index in range(value)]
        elif kind == "delete" and exists:
            records = [removed(number)]
        elif kind == "config":
            records = [config(2, f"t{number}", f"key{value}", str(value) if value else None)]
        elif kind == "broker":
            records = [config(RESOURCE_BROKER, str(number), "k", str(value))]
        elif kind == "leader" and exists and image.partition(f"t{number}", 0) is not None:
            records = [latest(PartitionChangeRecord(topic_id=uid(number), partition_id=0, leader=value))]
        step = batch(state.image.last_offset + 1, *records)
        tail.append(step)
        state, _ = state.replay(step)
        states.append(state)
    at = min(cut, len(tail))
    start = states[at]
    loaded, _ = MetadataState().load_snapshot(
        [decode_record(encode_record(record)) for record in image_records(start.image)], start.image.provenance
    )
    assert loaded.image == start.image
    for step in tail[at:]:
        loaded, _ = loaded.replay(step)
    assert loaded.image == state.image


def kafkas_log(before: int) -> list[MetadataBatch]:
    data = memoryview((GOLDEN / "kafka-4.3.1.log").read_bytes())
    return [
        MetadataBatch(
            header.base_offset,
            header.last_offset,
            header.leader_epoch,
            header.max_timestamp,
            [] if header.is_control else [decode_record(record.value or b"") for record in iterate(batch)],
        )
        for header, batch in batches(data)
        if header.base_offset < before
    ]


def test_kafkas_log_and_kafkas_snapshot_of_it_give_the_same_image() -> None:
    state = MetadataState()
    for step in kafkas_log(before=58):
        state, _ = state.replay(step)
    checkpoint = decode_checkpoint((GOLDEN / "kafka-4.3.1-58.checkpoint").read_bytes(), "golden")
    records = [decode_record(value) for value in checkpoint.values]
    assert replay(records) == replace(state.image, provenance=NOWHERE)
    assert state.image.last_offset == 57
    assert state.image.provenance.timestamp_ms == checkpoint.last_contained_log_timestamp


def test_we_snapshot_kafkas_image_into_kafkas_records() -> None:
    checkpoint = decode_checkpoint((GOLDEN / "kafka-4.3.1-58.checkpoint").read_bytes(), "golden")
    records = [decode_record(value) for value in checkpoint.values]
    ours = list(image_records(replay(records)))
    assert [type(record.message) for record in ours] == [type(record.message) for record in records]
    # Kafka lists features in no particular order, so their bytes and places may differ.
    unordered = {"FeatureLevelRecord", "RegisterBrokerRecord", "RegisterControllerRecord"}
    assert [encode_record(record) for record in ours if type(record.message).__name__ not in unordered] == [
        encode_record(record) for record in records if type(record.message).__name__ not in unordered
    ]


def test_kafkas_whole_log_replays() -> None:
    state = MetadataState()
    for step in kafkas_log(before=1 << 40):
        state, _ = state.replay(step)
    image = state.image
    assert image.last_offset == 73
    assert image.topic("t.one") is None
    two = image.partition("two", 0)
    assert two is not None
    assert (two.isr, two.leader, two.elr, two.last_known_elr) == ((), -1, (1,), (1,))
    assert [b.fenced for b in image.cluster.brokers.values()] == [True]
    assert image.features.metadata_version == 30
    assert image.features.levels["transaction.version"] == 2
    assert image.config((4, "")) == {"min.insync.replicas": "1"}  # type: ignore[arg-type]
