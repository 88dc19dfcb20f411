"""Metadata transactions (KIP-868), and going back to an older state."""

from __future__ import annotations

import pytest

from ottla.metadata.images import Provenance
from ottla.metadata.snapshot import image_records
from ottla.metadata.state import MetadataState
from ottla.wire.messages.abort_transaction_record import AbortTransactionRecord
from ottla.wire.messages.begin_transaction_record import BeginTransactionRecord
from ottla.wire.messages.end_transaction_record import EndTransactionRecord
from tests.metadata.making import batch, broker, config, latest, level, partition, topic, uid

BEGIN = latest(BeginTransactionRecord(name="big"))
END = latest(EndTransactionRecord())
ABORT = latest(AbortTransactionRecord(reason="failover"))


def test_records_of_a_transaction_are_published_when_it_ends() -> None:
    state, first = MetadataState().replay(batch(0, level(), topic("before", 1), partition(1, 0), BEGIN))
    assert first.image.topic("before") is not None
    assert first.image.last_offset == 2
    state, second = state.replay(batch(4, topic("within", 2)))
    assert second.delta.empty
    assert state.image.topic("within") is None
    assert state.newest.topic("within") is not None, "the controller goes on from what it has generated"
    assert state.newest.last_offset == 4
    state, third = state.replay(batch(5, partition(2, 0), END, topic("after", 3)))
    assert state.transaction is None
    assert state.image is state.newest
    assert state.image.last_offset == 7
    assert sorted(third.delta.topics_changed) == [uid(2), uid(3)], "as one publication"
    assert state.image.partition("within", 0) is not None


def test_an_aborted_transaction_never_happened() -> None:
    state, _ = MetadataState().replay(batch(0, level(), BEGIN, topic("within", 2)))
    state, publication = state.replay(batch(3, ABORT))
    assert publication.delta.empty
    assert state.image.topic("within") is None
    assert state.newest.topic("within") is None
    assert state.image.last_offset == 3


@pytest.mark.parametrize("records", [[END], [ABORT], [BEGIN, BEGIN]])
def test_transactions_that_make_no_sense_stop_the_node(records: list[object]) -> None:
    with pytest.raises(AssertionError):
        MetadataState().replay(batch(0, *records))  # type: ignore[arg-type]


def test_an_older_state_is_untouched_by_what_came_after() -> None:
    old, _ = MetadataState().replay(batch(0, level(), broker(1, 1), topic("a", 1), partition(1, 0)))
    before = list(image_records(old.image))
    new, _ = old.replay(batch(4, topic("b", 2), partition(2, 0), config(2, "a", "retention.ms", "1")))
    newest, _ = new.replay(batch(7, BEGIN, topic("c", 3)))
    assert newest.newest.topic("c") is not None
    assert list(image_records(old.image)) == before
    again, _ = old.replay(batch(4, topic("b", 2), partition(2, 0), config(2, "a", "retention.ms", "1")))
    assert again == new


def test_a_snapshot_replaces_whatever_was_there() -> None:
    old, _ = MetadataState().replay(
        batch(
            0,
            level(),
            broker(1, 1),
            broker(2, 2),
            topic("a", 1),
            partition(1, 0),
            config(2, "a", "x", "1"),
            topic("b", 2),
        )
    )
    wanted, _ = MetadataState().replay(batch(0, level(), broker(1, 9), topic("a", 1), partition(1, 0, (2,))))
    state, publication = old.load_snapshot(list(image_records(wanted.image)), Provenance(20, 3, 50))
    assert state.image.topics == wanted.image.topics
    assert state.image.cluster == wanted.image.cluster
    assert state.image.configs == wanted.image.configs
    assert state.image.provenance == Provenance(20, 3, 50)
    assert list(publication.delta.topics_deleted) == [uid(2)]
    assert publication.delta.brokers_changed[2] is None
