"""Batches from real clients and from Apache Kafka's own logs."""

from __future__ import annotations

import pytest

from ottla.records import (
    ControlType,
    EndTxnMarker,
    ValidationRules,
    control_batch,
    control_type,
    crc_is_valid,
    end_txn_batch,
    iterate,
    read_end_txn_marker,
    read_header,
    set_offset_and_epoch,
    validate_produced,
)

from .crafting import NOW, golden

GOLDEN = golden()
CLIENTS = [name for name in GOLDEN if name[0] in ("java", "confluent", "aiokafka", "kafkapython")]


@pytest.mark.parametrize("name", GOLDEN, ids=" ".join)
def test_every_batch_has_the_crc_that_it_says(name: tuple[str, str]) -> None:
    batch = GOLDEN[name]
    assert crc_is_valid(batch, 0, len(batch))
    assert read_header(batch).size == len(batch)


@pytest.mark.parametrize("name", CLIENTS, ids=" ".join)
def test_what_each_client_sends_in_each_codec_is_read_and_taken(name: tuple[str, str]) -> None:
    batch = GOLDEN[name]
    first, second, third = iterate(batch)
    assert first[:4] == (0, NOW, b"key", b"value" * 20)
    assert second == (1, NOW + 7, None, b"second", ())
    assert third == (2, NOW + 3, b"gone", None, ())
    headers = (("trace", b"abc"), ("none", None))
    assert first.headers == (headers[:1] if name[0] == "kafkapython" else headers)
    set_offset_and_epoch(batch, 0, -1)
    view = memoryview(batch)
    validated = validate_produced(view, ValidationRules(), NOW)
    assert validated.batch is view or validated.batch == view
    assert validated.header == read_header(batch)
    assert validated.header.max_timestamp == NOW + 7


def test_transaction_markers_are_what_apache_kafka_writes() -> None:
    for name, commit in (("commit", True), ("abort", False)):
        theirs = GOLDEN["transaction", name]
        header = read_header(theirs)
        (marker,) = iterate(theirs)
        assert header.is_control
        assert header.is_transactional
        assert read_end_txn_marker(marker) == EndTxnMarker(commit, 0)
        ours = end_txn_batch(
            commit=commit,
            coordinator_epoch=0,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            timestamp=header.base_timestamp,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
        )
        assert ours == theirs


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        (("metadata", "0"), [ControlType.LEADER_CHANGE, ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]),
        (("snapshot", "0"), [ControlType.SNAPSHOT_HEADER, ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]),
        (("snapshot", "1"), [ControlType.SNAPSHOT_FOOTER]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_control_batches_of_the_metadata_log_are_what_apache_kafka_writes(
    name: tuple[str, str], kinds: list[ControlType]
) -> None:
    theirs = GOLDEN[name]
    header = read_header(theirs)
    records = list(iterate(theirs))
    assert [control_type(record.key) for record in records] == kinds
    assert all(read_end_txn_marker(record) is None for record in records)
    ours = control_batch(
        *((kind, record.value or b"") for kind, record in zip(kinds, records, strict=True)),
        timestamp=header.base_timestamp,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
    )
    assert ours == theirs


def test_the_bootstrap_records_of_a_formatted_directory_are_read() -> None:
    values = [record.value or b"" for record in iterate(GOLDEN["bootstrap", "1"])]
    assert b"metadata.version" in values[0]
    assert len(values) == read_header(GOLDEN["bootstrap", "1"]).record_count == 6
