"""Leader epochs as a reader meets them: fenced when it lags, asked to wait when it leads, and told where logs part."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.errors import ErrorCode
from ottla.records import batches
from ottla.wire.messages.fetch_response import FetchResponse
from tests.behaviour.client import EARLIEST, LATEST, Client, Topic, eventually, records_of, values_of
from tests.behaviour.conftest import Node, StartNode


@pytest.fixture(scope="module")
def aged(start_node: StartNode) -> tuple[Node, str]:
    """A node that was restarted three times, with two records written in each of its lives but the second."""
    node = start_node({})
    name = "aged"
    with Client((node.host, node.port)) as client:
        client.append(client.create_topic(name), b"0-a", b"0-b")
    live_again(node, name)
    for life in (1, 2):
        live_again(node, name, b"%d-a" % life, b"%d-b" % life)
    return node, name


def live_again(node: Node, name: str, *values: bytes) -> None:
    node.stop()
    node.spawn()
    node.wait_ready()
    with Client((node.host, node.port)) as client:
        topic = topic_called(client, name)
        if values:
            client.append(topic, *values)


@pytest.fixture
def veteran(aged: tuple[Node, str]) -> Iterator[tuple[Client, Topic, int]]:
    """A client of that node, its topic, and the topic's leader epoch, which has risen with every election."""
    node, name = aged
    with Client((node.host, node.port)) as client:
        topic = topic_called(client, name)
        yield client, topic, client.describe_topic(name).partitions[0].leader_epoch


def topic_called(client: Client, name: str) -> Topic:
    found = eventually(
        lambda: client.describe_topic(name),
        lambda topic: not topic.error_code and all(not partition.error_code for partition in topic.partitions),
    )
    topic = Topic(name, found.topic_id)
    eventually(lambda: client.list_offset(topic, LATEST).error_code, lambda code: code == 0)
    return topic


def test_every_election_raises_the_epoch(veteran: tuple[Client, Topic, int]) -> None:
    client, topic, epoch = veteran
    assert epoch >= 2
    epochs = [client.epoch_end(topic, asked).leader_epoch for asked in range(epoch + 1)]
    assert epochs == sorted(epochs)
    assert epochs[0] == 0
    assert epochs[-1] == epoch


def test_the_latest_epoch_ends_at_the_log_end(veteran: tuple[Client, Topic, int]) -> None:
    client, topic, epoch = veteran
    found = client.epoch_end(topic, epoch)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, epoch, 6)


def test_an_older_epoch_ends_where_the_next_begins(veteran: tuple[Client, Topic, int]) -> None:
    client, topic, _ = veteran
    found = client.epoch_end(topic, 0)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, 2)


def test_an_epoch_that_nobody_led_in_is_answered_by_the_one_below(veteran: tuple[Client, Topic, int]) -> None:
    client, topic, epoch = veteran
    ends = {asked: client.epoch_end(topic, asked) for asked in range(epoch + 1)}
    led = sorted({found.leader_epoch for found in ends.values()})
    assert [ends[each].end_offset for each in led] == [2, 4, 6]
    for asked, found in ends.items():
        assert found.leader_epoch == max(each for each in led if each <= asked)


def test_an_epoch_of_the_future_is_not_known(veteran: tuple[Client, Topic, int]) -> None:
    client, topic, epoch = veteran
    found = client.epoch_end(topic, epoch + 1)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, -1, -1)


def test_a_negative_epoch_is_not_known(veteran: tuple[Client, Topic, int]) -> None:
    client, topic, _ = veteran
    found = client.epoch_end(topic, -1)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, -1, -1)


def test_a_reader_with_an_old_leader_is_fenced(veteran: tuple[Client, Topic, int]) -> None:
    client, topic, epoch = veteran
    assert client.fetch(topic, 0, current_leader_epoch=epoch - 1).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert client.list_offset(topic, LATEST, current_leader_epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert client.epoch_end(topic, 0, current_leader_epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_fenced_reader_is_told_who_leads(veteran: tuple[Client, Topic, int]) -> None:
    client, topic, epoch = veteran
    leader = client.fetch(topic, 0, current_leader_epoch=0).current_leader
    assert (leader.leader_id, leader.leader_epoch) == (1, epoch)


def test_a_reader_with_a_newer_leader_is_asked_to_wait(veteran: tuple[Client, Topic, int]) -> None:
    client, topic, epoch = veteran
    unknown = ErrorCode.UNKNOWN_LEADER_EPOCH
    assert client.fetch(topic, 0, current_leader_epoch=epoch + 1).error_code == unknown
    assert client.list_offset(topic, EARLIEST, current_leader_epoch=epoch + 1).error_code == unknown
    assert client.epoch_end(topic, 0, current_leader_epoch=epoch + 1).error_code == unknown


def test_the_current_epoch_or_none_is_welcome(veteran: tuple[Client, Topic, int]) -> None:
    client, topic, epoch = veteran
    for known in (epoch, -1):
        assert len(records_of(client.fetch(topic, 0, current_leader_epoch=known))) == 6
        assert client.list_offset(topic, LATEST, current_leader_epoch=known).offset == 6
        assert client.epoch_end(topic, 0, current_leader_epoch=known).end_offset == 2


def test_the_epoch_is_checked_before_the_offset(veteran: tuple[Client, Topic, int]) -> None:
    client, topic, _ = veteran
    assert client.fetch(topic, 10_000, current_leader_epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_reader_whose_log_agrees_goes_on(veteran: tuple[Client, Topic, int]) -> None:
    client, topic, epoch = veteran
    found = client.fetch(topic, 2, last_fetched_epoch=0)
    assert found.error_code == 0
    assert values_of(found)[-1] == b"2-b"
    assert client.fetch(topic, 6, last_fetched_epoch=epoch).error_code == 0


def test_a_reader_whose_log_is_longer_in_an_old_epoch_is_told_where_it_ended(
    veteran: tuple[Client, Topic, int],
) -> None:
    client, topic, _ = veteran
    found = client.fetch(topic, 5, last_fetched_epoch=0)
    assert found.error_code == 0
    assert not found.records
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (0, 2)
    assert found.high_watermark == 6
    assert found.log_start_offset == 0


def test_a_reader_that_read_in_an_epoch_nobody_led_in_is_told_the_one_below(
    veteran: tuple[Client, Topic, int],
) -> None:
    client, topic, epoch = veteran
    led = {client.epoch_end(topic, asked).leader_epoch for asked in range(epoch + 1)}
    skipped = [asked for asked in range(epoch) if asked not in led]
    assert skipped
    found = client.fetch(topic, 2, last_fetched_epoch=skipped[0])
    assert (found.error_code, found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (0, 0, 2)


def test_a_diverging_reader_does_not_wait(veteran: tuple[Client, Topic, int]) -> None:
    client, topic, _ = veteran
    found = client.fetch(topic, 5, last_fetched_epoch=0, max_wait_ms=15_000, min_bytes=1 << 20)
    assert found.diverging_epoch.epoch == 0


def test_an_offset_out_of_range_comes_before_divergence(client: Client, topic: Topic) -> None:
    client.append(topic, b"a", b"b", b"c")
    client.delete_records(topic, 2)
    assert client.fetch(topic, 1, last_fetched_epoch=0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_last_fetched_epoch_beyond_ours_cannot_be_placed(client: Client, topic: Topic) -> None:
    client.append(topic, b"a", b"b", b"c")
    assert client.fetch(topic, 1, last_fetched_epoch=40).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_stranger_that_claims_to_be_a_replica_moves_nothing(client: Client, topic: Topic) -> None:
    """It may have heard of an assignment before the leader did, if it knows the leader's epoch; else it is lost."""
    client.append(topic, b"a")
    for epoch, code in ((-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (0, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        request = client.fetch_request(topic, 0, current_leader_epoch=epoch)
        request.replica_state.replica_id = 5
        ((found,),) = (each.partitions for each in client.call(request, FetchResponse).responses)
        assert found.error_code == code
        assert not found.records
    assert client.fetch(topic, 0).high_watermark == 1


def test_epoch_zero_is_an_epoch(client: Client, topic: Topic) -> None:
    assert client.epoch_end(topic, 0).end_offset == 0
    client.append(topic, b"a")
    assert client.epoch_end(topic, 0, current_leader_epoch=0).end_offset == 1
    assert client.list_offset(topic, LATEST).leader_epoch == 0


def test_batches_are_stamped_with_the_epoch_they_were_written_in(veteran: tuple[Client, Topic, int]) -> None:
    client, topic, epoch = veteran
    found = client.fetch(topic, 0)
    assert found.records is not None
    stamped = [header.leader_epoch for header, _ in batches(found.records)]
    assert stamped[0] == 0
    assert stamped[-1] == epoch
    assert stamped == sorted(set(stamped))


def test_unknown_partitions_are_unknown_to_every_question(client: Client, topic: Topic, name: str) -> None:
    nobody = Topic(f"{name}-nobody")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for stranger, partition in ((topic, 5), (nobody, 0)):
        assert client.list_offset(stranger, LATEST, partition=partition).error_code == unknown
        assert client.epoch_end(stranger, 0, partition=partition).error_code == unknown
        assert client.fetch(stranger, 0, partition=partition, version=12).error_code == unknown
        assert client.delete_records(stranger, 0, partition=partition).error_code == unknown
    assert client.fetch(topic, 0, partition=5).error_code == unknown
