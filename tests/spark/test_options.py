"""The source's options: Spark's own names, and a sentence for what cannot be obeyed."""

from __future__ import annotations

import pickle

import pytest

from ottla.model import TopicPartition
from ottla.spark.source.offsets import EARLIEST, LATEST, SourceError
from ottla.spark.source.options import SourceOptions

BASE = {"kafka.bootstrap.servers": "one:9092", "subscribe": "orders"}


def parse(*, streaming: bool = False, **more: str) -> SourceOptions:
    return SourceOptions.parse(
        BASE | {key.replace("__", "."): value for key, value in more.items()}, streaming=streaming
    )


def test_defaults_are_those_of_sparks_own_source() -> None:
    batch, stream = parse(), parse(streaming=True)
    assert (batch.starting.everywhere, batch.ending.everywhere) == (EARLIEST, LATEST)
    assert stream.starting.everywhere == LATEST
    assert batch.fail_on_data_loss
    assert not batch.read_committed
    assert not batch.include_headers
    assert stream.group_id == "spark-ottla-orders"
    assert pickle.loads(pickle.dumps(batch)) == batch


def test_names_do_not_mind_their_case() -> None:
    options = parse(
        FAILONDATALOSS="False", maxoffsetspertrigger="5", minPartitions="7", KAFKA__ISOLATION__LEVEL="read_committed"
    )
    assert (options.fail_on_data_loss, options.offsets_max, options.parts_min) == (False, 5, 7)
    assert options.read_committed


def test_subscriptions() -> None:
    assert parse(subscribe=" a, b ,a").subscription.topics == ("a", "b")
    pattern = {"kafka.bootstrap.servers": "one:9092", "subscribePattern": "ord.*"}
    assert SourceOptions.parse(pattern, streaming=False).subscription.pattern == "ord.*"
    assign = {"kafka.bootstrap.servers": "one:9092", "assign": '{"a": [1, 0]}'}
    found = SourceOptions.parse(assign, streaming=False).subscription
    assert found.assigned == (TopicPartition("a", 0), TopicPartition("a", 1))


def test_timestamps_go_before_offsets() -> None:
    one = parse(startingOffsets="earliest", startingTimestamp="17", startingOffsetsByTimestamp='{"orders": {"0": 5}}')
    assert (one.starting.everywhere, one.starting.by_timestamp) == (17, True)
    each = parse(startingOffsetsByTimestamp='{"orders": {"0": 5}}').starting
    assert (each.each, each.by_timestamp) == ({TopicPartition("orders", 0): 5}, True)


def test_the_groups_name_can_be_chosen() -> None:
    assert parse(groupIdPrefix="team").group_id == "team-orders"
    assert parse(kafka__group__id="mine").group_id == "mine"


@pytest.mark.parametrize(
    ("text", "ms"), [("30s", 30_000), ("15m", 900_000), ("2 h", 7_200_000), ("250", 250), ("5min", 300_000)]
)
def test_a_delay_is_a_number_and_a_unit(text: str, ms: int) -> None:
    assert parse(maxTriggerDelay=text).trigger_delay_ms_max == ms


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            {"assign": "{}"},
            "Exactly one of subscribe, subscribePattern and assign must be set, not assign and subscribe.",
        ),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"startingOffsets": "latest"}, "startingOffsets cannot be the latest in a batch query"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "startingOffsets cannot be the latest in a batch query"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be the earliest"),
        ({"minPartitions": "many"}, "minPartitions is 'many'; it takes a whole number"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss is 'perhaps'; it takes true or false."),
        ({"maxTriggerDelay": "a while"}, "maxTriggerDelay is 'a while'; write a time such as 30s"),
        (
            {"kafka__isolation__level": "all"},
            "kafka.isolation.level is 'all'; it takes read_uncommitted or read_committed.",
        ),
        (
            {"kafka__auto__offset__reset": "earliest"},
            "The option kafka.auto.offset.reset cannot be set: set startingOffsets",
        ),
        ({"kafka__value__deserializer": "x"}, "The option kafka.value.deserializer cannot be set"),
        ({"kafka__bootstrap__servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"startingTimestamp": "noon"}, "startingTimestamp is 'noon'"),
        (
            {"startingOffsetsByTimestampStrategy": "x"},
            "startingOffsetsByTimestampStrategy is 'x'; it takes error or latest.",
        ),
    ],
)
def test_what_cannot_be_obeyed_is_said_in_a_sentence(more: dict[str, str], sentence: str) -> None:
    with pytest.raises(SourceError) as raised:
        parse(streaming=False, **more)
    assert str(raised.value).startswith(sentence)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(SourceError, match="endingOffsets is for batch queries"):
        parse(streaming=True, endingOffsets="latest")


def test_patterns_must_be_patterns() -> None:
    with pytest.raises(SourceError, match="subscribePattern is not a regular expression"):
        SourceOptions.parse({"kafka.bootstrap.servers": "one:9092", "subscribePattern": "("}, streaming=False)
