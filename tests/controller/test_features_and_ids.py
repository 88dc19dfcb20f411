"""Feature levels, blocks of producer ids, and the first records of a cluster."""

from __future__ import annotations

import pytest

from ottla.controller.activation import activation_records
from ottla.errors import StartupError
from ottla.metadata.features import ELR_VERSION, GROUP_VERSION, TRANSACTION_VERSION, default_features
from ottla.metadata.records import MetadataRecord
from ottla.metadata.state import MetadataBatch, MetadataState
from ottla.wire.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from ottla.wire.messages.begin_transaction_record import BeginTransactionRecord
from ottla.wire.messages.feature_level_record import FeatureLevelRecord
from ottla.wire.messages.producer_ids_record import ProducerIdsRecord
from ottla.wire.messages.topic_record import TopicRecord
from ottla.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.controller.acting import Acting, uid

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def update(name: str, level: int, kind: int = UPGRADE, *, validate_only: bool = False) -> UpdateFeaturesRequest:
    key = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    return UpdateFeaturesRequest(feature_updates=[key], validate_only=validate_only)


def test_the_metadata_version_is_raised_when_everybody_can_speak_it() -> None:
    acting = Acting(metadata_version=29)
    acting.unfenced(1)
    acting.ask(lambda c, now: c.update_features(update("metadata.version", 30, validate_only=True), now))
    assert acting.image.features.metadata_version == 29
    response = acting.ask(lambda c, now: c.update_features(update("metadata.version", 30), now))
    assert (response.error_code, response.error_message) == (0, None)
    assert acting.image.features.metadata_version == 30
    before = len(acting.log)
    acting.ask(lambda c, now: c.update_features(update("metadata.version", 30), now))
    assert len(acting.log) == before


@pytest.mark.parametrize(
    ("name", "level", "kind", "part"),
    [
        ("metadata.version", 31, UPGRADE, "this release speaks 7 to 30"),
        ("metadata.version", 6, SAFE_DOWNGRADE, "this release speaks 7 to 30"),
        ("metadata.version", 28, UPGRADE, "must be asked for as one"),
        ("metadata.version", 22, SAFE_DOWNGRADE, "metadata could be lost"),
        ("metadata.version", 22, UNSAFE_DOWNGRADE, "metadata could be lost"),
        ("metadata.version", 30, SAFE_DOWNGRADE, "would be an upgrade"),
        ("metadata.version", -1, UPGRADE, "not negative"),
        ("metadata.version", 30, 9, "is unknown"),
        ("group.version", 2, UPGRADE, "this release speaks 0 to 1"),
        ("transaction.version", 3, UPGRADE, "this release speaks 0 to 2"),
        ("share.version", 1, UPGRADE, "this release speaks 0 to 0"),
        ("kraft.version", 1, UPGRADE, "set when the quorum is formatted"),
        ("kraft.version", 2, UPGRADE, "this release speaks 0 to 1"),
        ("no.such.version", 1, UPGRADE, "no such feature"),
    ],
)
def test_updates_that_cannot_be(name: str, level: int, kind: int, part: str) -> None:
    acting = Acting(metadata_version=29)
    acting.unfenced(1)
    code, message = acting.refused(lambda c, now: c.update_features(update(name, level, kind), now))
    assert code == "INVALID_UPDATE_VERSION"
    assert part in message


def test_a_broker_that_cannot_follow_holds_an_upgrade_back() -> None:
    acting = Acting(metadata_version=28)
    request = acting.registration(4, features={"metadata.version": (7, 29)})
    acting.ask(lambda c, now: c.register_broker(request, now))
    _, message = acting.refused(lambda c, now: c.update_features(update("metadata.version", 30), now))
    assert "broker 4 speaks 7 to 29" in message


def test_metadata_versions_that_write_the_same_records_can_be_lowered() -> None:
    acting = Acting(metadata_version=29)
    acting.unfenced(1)
    acting.ask(lambda c, now: c.update_features(update("metadata.version", 23, SAFE_DOWNGRADE), now))
    assert acting.image.features.metadata_version == 23


def test_a_feature_rests_on_another() -> None:
    """KIP-1022: neither may it be raised without what it needs, nor may that be lowered under it."""
    acting = Acting(metadata_version=22)
    acting.unfenced(1)
    code, message = acting.refused(lambda c, now: c.update_features(update(ELR_VERSION, 1), now))
    assert (code, "needs metadata.version at 23" in message) == ("INVALID_UPDATE_VERSION", True)
    both = update(ELR_VERSION, 1)
    both.feature_updates += update("metadata.version", 29).feature_updates
    acting.ask(lambda c, now: c.update_features(both, now))
    assert (acting.image.features.elr, acting.image.features.metadata_version) == (True, 29)
    acting.ask(lambda c, now: c.update_features(update(ELR_VERSION, 0, SAFE_DOWNGRADE), now))
    assert acting.image.features.levels == {}


def test_what_the_quorum_says_of_itself() -> None:
    acting = Acting(metadata_version=29)
    acting.controller.on_quorum([1, 2, 3], kraft_version=1)
    _, message = acting.refused(lambda c, now: c.update_features(update("metadata.version", 30), now))
    assert "controller 2 has not registered" in message
    acting.controller.on_quorum([1], kraft_version=1)
    assert acting.ask(lambda c, now: c.update_features(update("kraft.version", 1), now)).error_code == 0
    assert acting.refused(lambda c, now: c.update_features(update("kraft.version", 0, SAFE_DOWNGRADE), now))


def test_what_a_new_cluster_has() -> None:
    """As Apache Kafka 4.3.1 formats one, of the features that this release has."""
    assert default_features(30) == {ELR_VERSION: 1, GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
    assert default_features(25) == {GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
    assert default_features(23) == {GROUP_VERSION: 1}
    assert default_features(21) == {}


def allocate(acting: Acting, broker_id: int) -> tuple[int, int]:
    broker = acting.image.broker(broker_id)
    request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=-1 if broker is None else broker.epoch)
    response = acting.ask(lambda c, now: c.allocate_producer_ids(request, now))
    return response.producer_id_start, response.producer_id_len


def test_no_producer_id_is_given_twice_whatever_happens_to_the_blocks() -> None:
    acting = Acting()
    acting.unfenced(1, 2)
    assert [allocate(acting, broker) for broker in (1, 2, 1)] == [(0, 1000), (1000, 1000), (2000, 1000)]
    acting.take_over()
    assert allocate(acting, 2) == (3000, 1000)
    stale = AllocateProducerIdsRequest(broker_id=1, broker_epoch=0)
    assert acting.refused(lambda c, now: c.allocate_producer_ids(stale, now))[0] == "STALE_BROKER_EPOCH"
    unknown = AllocateProducerIdsRequest(broker_id=9, broker_epoch=0)
    assert acting.refused(lambda c, now: c.allocate_producer_ids(unknown, now))[0] == "STALE_BROKER_EPOCH"


def test_producer_ids_run_out_rather_than_wrap() -> None:
    acting = Acting()
    acting.unfenced(1)
    last = MetadataRecord(ProducerIdsRecord(broker_id=1, next_producer_id=(1 << 63) - 1000), 0)
    base = acting.controller.next_offset
    acting.controller.replay(MetadataBatch(base, base, 1, 0, [last]))
    broker = acting.image.broker(1)
    assert broker is not None
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=broker.epoch)
    assert acting.refused(lambda c, now: c.allocate_producer_ids(request, now))[0] == "UNKNOWN_SERVER_ERROR"


def level(number: int) -> MetadataRecord:
    return MetadataRecord(FeatureLevelRecord(name="metadata.version", feature_level=number), 0)


def names(records: list[MetadataRecord]) -> list[str]:
    return [type(record.message).__name__.removesuffix("Record") for record in records]


def test_the_first_records_come_in_a_transaction_where_there_are_transactions() -> None:
    empty = MetadataState()
    assert names(activation_records(empty, [level(30)], 1)) == ["BeginTransaction", "FeatureLevel", "EndTransaction"]
    assert names(activation_records(empty, [level(13)], 1)) == ["FeatureLevel"]


def test_a_bootstrap_that_was_cut_off_is_begun_anew() -> None:
    begin = MetadataRecord(BeginTransactionRecord(name="Bootstrap records"), 0)
    torn, _ = MetadataState().replay(MetadataBatch(3, 4, 1, 0, [begin, level(30)]))
    assert names(activation_records(torn, [level(30)], 1)) == [
        "AbortTransaction",
        "BeginTransaction",
        "FeatureLevel",
        "EndTransaction",
    ]


def test_a_later_controller_writes_nothing_but_an_end_to_what_was_left_open() -> None:
    state, _ = MetadataState().replay(MetadataBatch(0, 0, 1, 0, [level(30)]))
    assert activation_records(state, [level(30)], 1) == []
    begin = MetadataRecord(BeginTransactionRecord(name="big"), 0)
    topic = MetadataRecord(TopicRecord(name="half", topic_id=uid(1)), 0)
    torn, _ = state.replay(MetadataBatch(1, 2, 1, 0, [begin, topic]))
    assert names(activation_records(torn, [level(30)], 1)) == ["AbortTransaction"]


def test_a_cluster_beyond_our_reach_is_not_led() -> None:
    acting = Acting()
    for name, beyond in (("metadata.version", 31), ("share.version", 1), ("new.version", 1)):
        record = MetadataRecord(FeatureLevelRecord(name=name, feature_level=beyond), 0)
        offset = acting.committed.newest.last_offset + 1
        acting.committed, _ = acting.committed.replay(MetadataBatch(offset, offset, 1, 0, [record]))
        with pytest.raises(StartupError, match=r"at level .* but this release speaks"):
            acting.take_over()
