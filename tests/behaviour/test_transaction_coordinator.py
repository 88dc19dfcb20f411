"""The transaction coordinator: who has a transactional id, what its transaction is made of, and how it ends."""

from __future__ import annotations

import uuid

import pytest

from ottla.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from ottla.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.wire.messages.list_transactions_response import ListTransactionsResponse
from tests.behaviour.client import Client, Topic, eventually, now_ms
from tests.behaviour.conftest import Node, StartNode
from tests.behaviour.groups import Groups
from tests.behaviour.transactions import V1, V2, Transactional, only

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
STRANGER = ErrorCode.INVALID_PRODUCER_ID_MAPPING
INVALID = ErrorCode.INVALID_TXN_STATE


@pytest.fixture
def producer(client: Client) -> Transactional:
    return Transactional.begun(client)


# Identity.


def test_a_transactional_id_keeps_its_producer_id_and_gets_epoch_after_epoch(client: Client) -> None:
    producer = Transactional.begun(client)
    first = producer.producer_id
    assert producer.epoch == 0
    for epoch in (1, 2, 3):
        producer.take()
        assert (producer.producer_id, producer.epoch) == (first, epoch)
    assert Transactional.begun(client).producer_id != first


@pytest.mark.parametrize("version", range(6))
def test_an_identity_is_given_in_every_version(client: Client, version: int) -> None:
    producer = Transactional(client)
    producer.find_coordinator()
    producer.take(version=version)
    assert producer.producer_id >= 0
    assert producer.epoch == 0


def test_what_init_producer_id_refuses(producer: Transactional) -> None:
    nameless = Transactional(producer.client, "")
    assert nameless.init().error_code == ErrorCode.INVALID_REQUEST
    # Half an identity is none.
    assert producer.init(producer_id=producer.producer_id).error_code == ErrorCode.INVALID_REQUEST
    assert producer.init(epoch=0).error_code == ErrorCode.INVALID_REQUEST
    for timeout_ms in (-1, 0, 900_001):
        answer = producer.init(timeout_ms=timeout_ms)
        assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    assert producer.init(timeout_ms=900_000).error_code == NONE


def test_a_producer_that_met_an_error_goes_on_with_the_next_epoch(producer: Transactional) -> None:
    # KIP-360
    first = producer.producer_id
    answer = producer.init(producer_id=first, epoch=0)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (NONE, first, 1)
    # Its answer was lost: it gets the same again.
    answer = producer.init(producer_id=first, epoch=0)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (NONE, first, 1)
    answer = producer.init(producer_id=first, epoch=1)
    assert (answer.error_code, answer.producer_epoch) == (NONE, 2)
    # Now the first is too old; somebody else's id never was right.
    for version, code in ((3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, FENCED), (5, FENCED)):
        answer = producer.init(producer_id=first, epoch=0, version=version)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)
        assert producer.init(producer_id=first + 77, epoch=2, version=version).error_code == code


def test_a_new_producer_fences_one_that_would_go_on(producer: Transactional) -> None:
    producer.init()
    assert producer.init(producer_id=producer.producer_id, epoch=0).error_code == FENCED


def test_an_unknown_transactional_id_is_new_whatever_its_producer_expects(client: Client) -> None:
    producer = Transactional(client)
    producer.find_coordinator()
    answer = producer.init(producer_id=4711, epoch=3)
    assert answer.error_code == NONE
    assert answer.producer_id != 4711
    assert answer.producer_epoch == 0


# Partitions.


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_in_every_version(
    client: Client, producer: Transactional, name: str, version: int
) -> None:
    topic = client.create_topic(name, 3)
    began_ms = now_ms()
    assert producer.add(topic, 0, 2, version=version) == {(name, 0): NONE, (name, 2): NONE}
    described = producer.describe()
    assert described.transaction_state == "Ongoing"
    assert described.transaction_timeout_ms == 60_000
    assert began_ms - 60_000 <= described.transaction_start_time_ms <= now_ms() + 60_000
    assert (described.producer_id, described.producer_epoch) == (producer.producer_id, producer.epoch)
    # Some more; what is there is not added twice.
    assert producer.add(topic, 1, 2, version=version) == {(name, 1): NONE, (name, 2): NONE}
    (told,) = producer.describe().topics
    assert (told.topic, sorted(told.partitions)) == (name, [0, 1, 2])
    assert producer.describe().transaction_start_time_ms == described.transaction_start_time_ms


def test_all_partitions_are_added_or_none(producer: Transactional, topic: Topic) -> None:
    unknown = (topic.name, 7)
    assert producer.add(topic, 0, 7) == {
        (topic.name, 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert producer.add("no-such-topic") == {("no-such-topic", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert producer.state == "Empty"


def test_who_may_not_add_partitions(producer: Transactional, topic: Topic) -> None:
    pid = producer.producer_id
    producer.take()
    assert producer.epoch == 1
    for version, fenced in (
        (0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, FENCED),
        (3, FENCED),
    ):
        assert only(producer.as_producer(pid, 0).add(topic, version=version)) == fenced
        assert only(producer.as_producer(pid, 2).add(topic, version=version)) == fenced
        assert only(producer.as_producer(pid + 77, 1).add(topic, version=version)) == STRANGER
    nobody = Transactional(producer.client)
    assert only(nobody.add(topic)) == STRANGER
    assert only(Transactional(producer.client, "").add(topic)) == ErrorCode.INVALID_REQUEST
    assert producer.state == "Empty"


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_add_and_verify_for_their_producers(
    client: Client, producer: Transactional, name: str, version: int
) -> None:
    topic = client.create_topic(name, 3)
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert only(producer.add_as_broker(topic, 0, 1, verify_only=True, version=version)) == abortable
    assert producer.state == "Empty"
    assert only(producer.add_as_broker(topic, 0, version=version)) == NONE
    assert producer.state == "Ongoing"
    verified = producer.add_as_broker(topic, 0, 1, verify_only=True, version=version)
    assert verified == {(name, 0): NONE, (name, 1): abortable}
    for verify_only in (True, False):
        fenced = producer.as_producer(producer.producer_id, producer.epoch + 1)
        assert only(fenced.add_as_broker(topic, 0, verify_only=verify_only, version=version)) == FENCED
        stranger = producer.as_producer(producer.producer_id + 77, producer.epoch)
        assert only(stranger.add_as_broker(topic, 0, verify_only=verify_only, version=version)) == STRANGER
        nobody = Transactional(client)
        assert only(nobody.add_as_broker(topic, 0, verify_only=verify_only, version=version)) == STRANGER
        nameless = Transactional(client, "")
        assert (
            only(nameless.add_as_broker(topic, 0, verify_only=verify_only, version=version))
            == ErrorCode.INVALID_REQUEST
        )
    assert producer.add_as_broker(topic, 0, 9, verify_only=True, version=version) == {
        (name, 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        (name, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_brokers_ask_for_many_transactions_at_once(client: Client, topic: Topic) -> None:
    one, other = Transactional.begun(client), Transactional.begun(client)
    other.epoch += 1
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                topics=[AddPartitionsToTxnTopic(name=topic.name, partitions=[0])],
            )
            for each in (one, other)
        ]
    )
    response = client.call(request, AddPartitionsToTxnResponse, 5)
    codes = {
        result.transactional_id: result.topic_results[0].results_by_partition[0].partition_error_code
        for result in response.results_by_transaction
    }
    assert codes == {one.transactional_id: NONE, other.transactional_id: FENCED}
    assert (one.state, other.state) == ("Ongoing", "Empty")


@pytest.mark.parametrize("version", range(5))
def test_the_offsets_of_a_group_are_added_in_every_version(producer: Transactional, version: int) -> None:
    assert producer.add_offsets("group-of-mine", version=version) == NONE
    (told,) = producer.describe().topics
    assert told.topic == "__consumer_offsets"
    assert len(told.partitions) == 1
    fenced = producer.as_producer(producer.producer_id, producer.epoch + 1)
    assert fenced.add_offsets("g", version=version) == (ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else FENCED)
    assert producer.as_producer(producer.producer_id + 77, 0).add_offsets("g", version=version) == STRANGER
    assert Transactional(producer.client, "").add_offsets("g", version=version) == ErrorCode.INVALID_REQUEST


# The end, for clients that keep their epoch.


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_in_every_version_that_keeps_the_epoch(
    producer: Transactional, topic: Topic, version: int, commit: bool
) -> None:
    assert producer.end(commit=commit, version=version).error_code == INVALID  # Nothing has begun.
    for _ in range(2):
        assert only(producer.add(topic)) == NONE
        answer = producer.end(commit=commit, version=version)
        assert answer.error_code == NONE
        assert producer.settle() == ("CompleteCommit" if commit else "CompleteAbort")
        assert producer.describe().topics == []
        # The same again is a retry; the other is too late.
        assert producer.end(commit=commit, version=version).error_code == NONE
        assert producer.end(commit=not commit, version=version).error_code == INVALID
        assert producer.describe().producer_epoch == producer.epoch


def test_who_may_not_end_a_transaction(producer: Transactional, topic: Topic) -> None:
    assert only(producer.add(topic)) == NONE
    pid = producer.producer_id
    for version in range(5):
        fenced = ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else FENCED
        assert producer.as_producer(pid, 1).end(commit=True, version=version).error_code == fenced
        assert producer.as_producer(pid + 77, 0).end(commit=True, version=version).error_code == STRANGER
    for version in (V1, V2):
        assert Transactional(producer.client).end(commit=True, version=version).error_code == STRANGER
        nameless = Transactional(producer.client, "")
        assert nameless.end(commit=True, version=version).error_code == ErrorCode.INVALID_REQUEST
    assert producer.as_producer(pid, 1).end(commit=True).error_code == FENCED
    assert producer.as_producer(pid + 77, 0).end(commit=True).error_code == STRANGER
    assert producer.state == "Ongoing"


# The end, for clients that take a new epoch with it (KIP-890).


@pytest.mark.parametrize("commit", [True, False])
def test_every_transaction_ends_with_a_new_epoch(producer: Transactional, topic: Topic, commit: bool) -> None:
    pid = producer.producer_id
    for epoch in range(3):
        assert producer.epoch == epoch
        assert only(producer.add_as_broker(topic)) == NONE
        answer = producer.end(commit=commit)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (NONE, pid, epoch + 1)
        assert producer.settle() == ("CompleteCommit" if commit else "CompleteAbort")
        # A retry is known by its epoch, and hears the same.
        again = producer.end(commit=commit)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (NONE, pid, epoch + 1)
        refused = producer.end(commit=not commit)
        assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (INVALID, -1, -1)
        producer.epoch += 1
    # A transaction before the last is of nobody's.
    assert producer.as_producer(pid, 1).end(commit=commit).error_code == FENCED


def test_nothing_can_be_aborted_but_not_committed(producer: Transactional, topic: Topic) -> None:
    assert producer.end(commit=True).error_code == INVALID
    answer = producer.end(commit=False)
    assert (answer.error_code, answer.producer_epoch) == (NONE, 1)
    assert producer.settle() == "CompleteAbort"
    assert producer.end(commit=False).producer_epoch == 1  # A retry.
    producer.epoch = 1
    assert producer.end(commit=True).error_code == INVALID
    assert producer.end(commit=False).producer_epoch == 2
    producer.epoch = 2
    producer.settle()
    # After a commit, too.
    assert only(producer.add_as_broker(topic)) == NONE
    producer.ended(commit=True)
    assert producer.epoch == 3
    assert producer.end(commit=True).error_code == INVALID
    producer.ended(commit=False)
    assert producer.epoch == 4
    assert producer.state == "CompleteAbort"


def test_a_delayed_end_does_not_end_a_later_transaction(producer: Transactional, topic: Topic) -> None:
    first = producer.as_producer(producer.producer_id, producer.epoch)
    assert only(producer.add_as_broker(topic)) == NONE
    producer.ended(commit=True)
    assert only(producer.add_as_broker(topic)) == NONE
    for commit in (True, False):
        assert first.end(commit=commit).error_code == FENCED
    assert producer.state == "Ongoing"


def test_a_retry_after_an_end_may_ask_for_the_epoch_as_well(producer: Transactional, topic: Topic) -> None:
    assert only(producer.add_as_broker(topic)) == NONE
    before = producer.epoch
    producer.ended(commit=False)
    answer = producer.init(producer_id=producer.producer_id, epoch=before)
    assert (answer.error_code, answer.producer_epoch) == (NONE, before + 1)


# Fencing.


@pytest.mark.parametrize("version", [V1, V2])
def test_a_new_producer_aborts_what_the_old_one_began(producer: Transactional, topic: Topic, version: int) -> None:
    assert only(producer.add(topic)) == NONE
    old = producer.as_producer(producer.producer_id, producer.epoch)
    assert producer.init().error_code == BUSY
    producer.take()
    # One epoch for the abort, which nobody has, and one for the new producer.
    assert (producer.producer_id, producer.epoch) == (old.producer_id, old.epoch + 2)
    assert producer.state == "Empty"
    assert old.end(commit=True, version=version).error_code == FENCED
    assert only(old.add(topic)) == FENCED
    assert only(old.add_as_broker(topic, verify_only=True)) == FENCED


def test_a_stale_producer_is_fenced_even_if_it_would_go_on(producer: Transactional, topic: Topic) -> None:
    pid = producer.producer_id
    producer.take()
    assert only(producer.add(topic)) == NONE
    # Whose id is right may end the open transaction, and then hears that it is not the one.
    assert producer.init(producer_id=pid + 77, epoch=1).error_code == FENCED
    assert producer.init(producer_id=pid, epoch=0).error_code == BUSY
    producer.settle()
    assert producer.init(producer_id=pid, epoch=0).error_code == FENCED


@pytest.mark.slow
def test_a_transaction_that_takes_too_long_is_aborted(start_node: StartNode) -> None:
    node = start_node({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"})
    with Client((node.host, node.port)) as client:
        topic = client.create_topic("slow")
        producer = Transactional.begun(client, timeout_ms=300)
        assert only(producer.add_as_broker(topic)) == NONE
        eventually(lambda: producer.state, lambda state: state == "CompleteAbort")
        described = producer.describe()
        assert (described.producer_id, described.producer_epoch) == (producer.producer_id, producer.epoch + 1)
        # The late producer has been fenced; that its transaction is aborted it may hear.
        assert only(producer.add_as_broker(topic)) == FENCED
        assert only(producer.add(topic)) == FENCED
        assert producer.end(commit=True).error_code == INVALID
        assert producer.end(commit=False, version=V1).error_code == FENCED
        answer = producer.end(commit=False)
        assert (answer.error_code, answer.producer_epoch) == (NONE, producer.epoch + 1)


def test_a_topic_that_is_gone_needs_no_marker(client: Client, producer: Transactional, topic: Topic, name: str) -> None:
    other = client.create_topic(f"{name}-other")
    assert only(producer.add_as_broker(topic)) == NONE
    assert only(producer.add_as_broker(other)) == NONE
    client.delete_topic(topic)
    producer.ended(commit=True)
    assert producer.state == "CompleteCommit"


@pytest.mark.slow
def test_a_transactional_id_that_nobody_uses_expires(start_node: StartNode) -> None:
    node = start_node(
        {
            "transactional.id.expiration.ms": "300",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "50",
        }
    )
    with Client((node.host, node.port)) as client:
        topic = client.create_topic("busy")
        busy, idle = Transactional.begun(client), Transactional.begun(client)
        eventually(lambda: busy.describe().error_code, lambda code: code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        busy.take()
        assert only(busy.add_as_broker(topic)) == NONE
        eventually(lambda: idle.describe().error_code, lambda code: code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        # Nobody knows it any more; whoever comes again is new.
        assert idle.end(commit=False).error_code == STRANGER
        before = idle.producer_id
        idle.take(producer_id=before, epoch=idle.epoch)
        assert idle.producer_id != before
        assert idle.epoch == 0
        # A transaction that is open holds its id for as long as it takes.
        assert busy.state == "Ongoing"


# Looking.


def test_what_is_told_of_transactional_ids_that_are_not_there(producer: Transactional) -> None:
    described = Transactional(producer.client).describe()
    assert described.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert described.transaction_state == ""
    assert described.topics == []
    assert Transactional(producer.client, "").describe().error_code == ErrorCode.INVALID_REQUEST


def test_transactions_are_listed_by_state_producer_age_and_name(client: Client, topic: Topic) -> None:
    prefix = f"listed-{uuid.uuid4().hex[:8]}"
    producers = {}
    for what in ("empty", "ongoing", "committed"):
        producer = producers[what] = Transactional(client, f"{prefix}-{what}")
        producer.find_coordinator()
        producer.take()
    for what in ("ongoing", "committed"):
        assert only(producers[what].add(topic)) == NONE
    producers["committed"].ended(commit=True, version=V1)

    def listed(version: int = 2, **filters: object) -> dict[str, str]:
        request = ListTransactionsRequest()
        for key, value in filters.items():
            setattr(request, key, value)
        response = client.call(request, ListTransactionsResponse, version)
        assert response.error_code == NONE
        assert response.unknown_state_filters == []
        return {
            each.transactional_id.removeprefix(f"{prefix}-"): each.transaction_state
            for each in response.transaction_states
            if each.transactional_id.startswith(prefix)
            and each.producer_id == producers[each.transactional_id.removeprefix(f"{prefix}-")].producer_id
        }

    everything = {"empty": "Empty", "ongoing": "Ongoing", "committed": "CompleteCommit"}
    for version in range(3):
        assert listed(version) == everything
        assert listed(version, state_filters=["Ongoing", "Empty"]) == {"empty": "Empty", "ongoing": "Ongoing"}
        assert listed(version, producer_id_filters=[producers["empty"].producer_id, 1 << 40]) == {"empty": "Empty"}
        assert listed(version, state_filters=["Dead", "PrepareEpochFence"]) == {}
    for version in (1, 2):
        # One that has not begun counts as very old.
        assert listed(version, duration_filter=3_600_000) == {"empty": "Empty"}
        assert set(listed(version, duration_filter=-1)) == set(everything)
        eventually(
            lambda version=version: listed(version, duration_filter=0),  # type: ignore[misc]
            lambda found: found == everything,
        )
    assert listed(transactional_id_pattern=f"{prefix}-(empty|on.*)") == {"empty": "Empty", "ongoing": "Ongoing"}
    assert listed(transactional_id_pattern="empty") == {}
    assert listed(transactional_id_pattern=f".*{prefix[-4:]}-empty") == {"empty": "Empty"}
    assert listed(transactional_id_pattern="") == everything


def test_filters_that_mean_nothing(client: Client, producer: Transactional) -> None:
    request = ListTransactionsRequest(state_filters=["Ongoing", "Asleep"])
    response = client.call(request, ListTransactionsResponse, 2)
    assert (response.error_code, response.unknown_state_filters) == (NONE, ["Asleep"])
    request = ListTransactionsRequest(state_filters=["Asleep"])
    assert client.call(request, ListTransactionsResponse, 2).transaction_states == []
    request = ListTransactionsRequest(transactional_id_pattern="(")
    assert client.call(request, ListTransactionsResponse, 2).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


# Coming back.


@pytest.mark.slow
def test_transactions_outlive_the_coordinator(start_node: StartNode) -> None:
    node: Node = start_node({})
    with Client((node.host, node.port)) as client:
        topic = client.create_topic("kept", 2)
        idle, ongoing, complete = (Transactional.begun(client) for _ in range(3))
        assert only(ongoing.add_as_broker(topic, 0, 1)) == NONE
        assert only(complete.add_as_broker(topic, 1)) == NONE
        complete.ended(commit=True)
        before = [each.describe() for each in (idle, ongoing, complete)]
        for state in before:
            for told in state.topics:
                told.partitions.sort()
    node.stop()
    node.spawn()
    node.wait_ready()
    with Client((node.host, node.port)) as client:
        for producer, state in zip((idle, ongoing, complete), before, strict=True):
            producer.client = client
            producer.find_coordinator()
            described = producer.describe()
            for told in described.topics:
                told.partitions.sort()
            assert described == state
        assert only(ongoing.add_as_broker(topic, 0, 1, verify_only=True)) == NONE
        ongoing.ended(commit=True)
        assert complete.as_producer(complete.producer_id, complete.epoch - 1).end(commit=True).error_code == NONE
        idle.take()
        assert idle.epoch == 1


@pytest.mark.parametrize("internal", ["__transaction_state", "__consumer_offsets"])
def test_no_client_adds_an_internal_topic(producer: Transactional, topic: Topic, internal: str) -> None:
    Groups(producer.client).ready("any")
    for version in range(4):
        assert producer.add(internal, version=version) == {(internal, 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert producer.state == "Empty"
    assert only(producer.add(topic)) == 0
