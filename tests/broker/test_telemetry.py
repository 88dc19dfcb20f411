"""Who is asked for which metrics, and who may push when: Apache Kafka 4.3.1's answers, recorded by experiment."""

from __future__ import annotations

from random import Random

import pytest

from ottla.broker.monitoring.telemetry import ClientAttributes, Instance, Telemetry, compute_subscription_id, unpack
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.otlp import Point, PointKind
from ottla.metrics.registry import Registry
from ottla.model import METADATA_TOPIC_ID, ZERO_UUID, Uuid, uuid_from_text
from ottla.records.compression import compress

SOMEBODY = ClientAttributes("my-client", "apache-kafka-java", "4.3.1", "::1", 4711)
ONE = Uuid(bytes.fromhex("0123456789abcdeffedcba9876543210"))
OTHER = uuid_from_text("AQIDBAUGBwgJCgsMDQ4PEA")
MANY = ["zeta", "alpha", "org.apache.kafka.client.", *(f"m.{number}" for number in range(1, 26))]


class HandClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s


class Desk:
    """One node's telemetry, asked as clients ask it."""

    def __init__(self, instances_max: int = 10_000) -> None:
        self.clock = HandClock()
        self.registry = Registry()
        self.telemetry = Telemetry(
            clock=self.clock, random=Random(5), registry=self.registry, max_bytes=1000, instances_max=instances_max
        )

    def get(self, instance_id: Uuid, client: ClientAttributes = SOMEBODY, connection: object = "c1") -> Instance:
        found, instance = self.telemetry.get(instance_id, client, connection)
        assert found == instance_id
        return instance

    def get_error(self, instance_id: Uuid, connection: object = "c1") -> ErrorCode:
        try:
            self.telemetry.get(instance_id, SOMEBODY, connection)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def push(
        self,
        instance_id: Uuid,
        subscription_id: int,
        *,
        terminating: bool = False,
        compression_type: int = 0,
        size: int = 0,
        connection: object = "c1",
    ) -> ErrorCode:
        try:
            self.telemetry.check_push(
                instance_id,
                SOMEBODY,
                connection,
                subscription_id=subscription_id,
                terminating=terminating,
                compression_type=compression_type,
                size=size,
            )
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE


def test_a_client_without_a_subscription_is_asked_for_nothing() -> None:
    instance = Desk().get(ONE)
    assert instance.metrics == []
    assert instance.interval_ms == 300_000
    assert instance.subscription_id == -725132322


def test_a_client_without_an_id_is_given_one_and_no_other_has_it() -> None:
    desk = Desk()
    ids = {desk.telemetry.get(ZERO_UUID, SOMEBODY, number)[0] for number in range(50)}
    assert len(ids) == 50
    assert ZERO_UUID not in ids


@pytest.mark.parametrize(
    ("metrics", "of_one", "of_other"),
    [
        (["*"], 848016057, 848016041),
        (["a", "*", "b"], 848016057, 848016041),
        (["org.apache.kafka.producer."], 690914681, 690914665),
        (["org.apache.kafka.producer.", "org.apache.kafka.consumer."], 626919101, 626919085),
        (list("abcdefghijklmn"), 1125867123, 1125867107),
        (MANY, 1894599933, 1894599917),
    ],
)
def test_subscription_ids_are_kafkas_own(metrics: list[str], of_one: int, of_other: int) -> None:
    desk = Desk()
    desk.telemetry.set_subscriptions({"S": {"metrics": ",".join(metrics), "interval.ms": "1000"}})
    assert desk.get(ONE).subscription_id == of_one
    assert desk.get(OTHER).subscription_id == of_other
    assert set(desk.get(Uuid(bytes(15) + b"\x07")).metrics) == ({"*"} if "*" in metrics else set(metrics))


def test_subscriptions_that_match_are_joined_and_the_shortest_interval_counts() -> None:
    desk = Desk()
    desk.telemetry.set_subscriptions(
        {
            "A": {"metrics": "x.,y.", "interval.ms": "700"},
            "B": {
                "metrics": "y.,z.",
                "interval.ms": "5000",
                "match": "client_id=my-.*,client_software_name=apache.*",
            },
            "C": {"metrics": "never", "interval.ms": "100", "match": "client_id=other"},
            "D": {"metrics": "adr", "match": "client_source_address=0:0:0:0:0:0:0:1,client_source_port=4711"},
        }
    )
    instance = desk.get(ONE)
    assert instance.metrics == ["z.", "y.", "x.", "adr"]  # In Kafka's order too.
    assert instance.interval_ms == 700
    assert instance.subscription_id == 1196257490


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("client_id=my-client", True),
        ("client_id=my", False),  # The whole of it.
        ("client_instance_id=ASNFZ4mrze_-3LqYdlQyEA", True),
        ("client_software_version=4\\..*", True),
        ("client_source_address=10\\..*", False),
        ("client_id=my-client,client_source_port=1", False),  # All of them.
    ],
)
def test_a_pattern_looks_at_what_the_client_is(match: str, matches: bool) -> None:
    desk = Desk()
    desk.telemetry.set_subscriptions({"S": {"metrics": "*", "match": match}})
    assert bool(desk.get(ONE).metrics) == matches


def test_a_client_without_a_name_or_with_an_endless_one_matches_no_pattern() -> None:
    desk = Desk()
    desk.telemetry.set_subscriptions({"S": {"metrics": "*", "match": "client_id=.*"}})
    assert desk.get(ONE, SOMEBODY._replace(client_id=None)).metrics == []
    assert desk.get(OTHER, SOMEBODY._replace(client_id="x" * 257)).metrics == []
    assert desk.get(Uuid(bytes(15) + b"\x07"), SOMEBODY._replace(client_id="x" * 256)).metrics == ["*"]


def test_a_subscription_that_cannot_be_read_takes_no_other_with_it() -> None:
    desk = Desk()
    desk.telemetry.set_subscriptions({"bad": {"match": "client_id=(?>a)++)"}, "good": {"metrics": "*"}})
    assert desk.get(ONE).metrics == ["*"]


def test_a_changed_subscription_is_told_at_once_and_makes_the_old_id_unknown() -> None:
    desk = Desk()
    before = desk.get(ONE).subscription_id
    assert desk.get_error(ONE) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    desk.telemetry.set_subscriptions({"S": {"metrics": "*", "interval.ms": "700"}})
    assert desk.push(ONE, before) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    after = desk.get(ONE).subscription_id
    assert after != before
    desk.clock.now_s += 0.7
    assert desk.push(ONE, after) is ErrorCode.NONE


def test_a_life_of_gets_and_pushes() -> None:
    """The very steps that Apache Kafka was asked, with its answers."""
    desk = Desk()
    desk.telemetry.set_subscriptions({"S": {"metrics": "x.", "interval.ms": "700"}})
    wanted = desk.get(ONE).subscription_id

    def later() -> None:
        desk.clock.now_s += 0.7

    assert desk.push(ONE, wanted) is ErrorCode.NONE  # Right after the get, whatever the interval.
    assert desk.push(ONE, wanted) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert desk.get_error(ONE) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    later()
    assert desk.push(ONE, wanted + 1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert desk.get_error(ONE) is ErrorCode.NONE  # It was told to ask again.
    assert desk.push(ONE, wanted) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    later()
    assert desk.push(ONE, wanted, compression_type=5) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    later()
    assert desk.push(ONE, wanted, compression_type=-1) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    later()
    assert desk.push(ONE, wanted, size=1001) is ErrorCode.TELEMETRY_TOO_LARGE
    later()
    assert desk.push(ONE, wanted, size=1000) is ErrorCode.NONE
    assert desk.push(ONE, wanted + 1, terminating=True) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    later()
    assert desk.push(ONE, wanted) is ErrorCode.INVALID_REQUEST  # It had said goodbye.
    later()
    assert desk.push(ONE, wanted) is ErrorCode.NONE
    assert desk.push(ONE, wanted, terminating=True) is ErrorCode.NONE  # The last one may come early.
    assert desk.push(ONE, wanted, terminating=True) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("reserved", [ZERO_UUID, METADATA_TOPIC_ID])
def test_a_push_needs_an_id(reserved: Uuid) -> None:
    assert Desk().push(reserved, 0) is ErrorCode.INVALID_REQUEST


def test_a_push_out_of_the_blue_is_told_to_ask_first() -> None:
    desk = Desk()
    assert desk.push(ONE, 1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert desk.get_error(ONE) is ErrorCode.NONE
    assert desk.get_error(ONE) is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_a_client_that_comes_back_is_as_good_as_new() -> None:
    desk = Desk()
    desk.get(ONE)
    assert desk.get_error(ONE) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    desk.telemetry.on_closed("c1")
    assert desk.telemetry.instance_count == 0
    assert desk.get_error(ONE, "c2") is ErrorCode.NONE


def test_instances_are_forgotten_after_three_intervals() -> None:
    desk = Desk()
    desk.telemetry.set_subscriptions({"S": {"metrics": "*", "interval.ms": "30000"}})
    desk.get(ONE)
    desk.clock.now_s += 89
    desk.telemetry.sweep()
    assert desk.telemetry.instance_count == 1
    desk.clock.now_s += 2
    desk.telemetry.sweep()
    assert desk.telemetry.instance_count == 0
    assert not desk.telemetry._by_connection


def test_a_flood_of_made_up_ids_stays_within_bounds() -> None:
    desk = Desk(instances_max=100)
    for number in range(1000):
        desk.get(Uuid(number.to_bytes(16, "little")[::-1] if number else b"\x01" * 16), connection=number)
    assert desk.telemetry.instance_count == 100
    desk.telemetry.sweep()
    assert len(desk.telemetry._by_connection) == 100


def test_one_connection_that_makes_up_ids_leaves_nothing_when_it_closes_but_what_will_expire() -> None:
    desk = Desk()
    for number in range(1, 50):
        desk.get(Uuid(number.to_bytes(16, "big")), connection="c1")
    desk.telemetry.on_closed("c1")
    desk.clock.now_s += 10_000
    desk.telemetry.sweep()
    assert desk.telemetry.instance_count == 0


def test_the_last_push_of_a_client_is_shown_for_a_minute_and_then_gone() -> None:
    desk = Desk()
    telemetry = desk.telemetry
    point = Point("org.apache.kafka.producer.records", (), PointKind.GAUGE, 7.0)
    telemetry.keep(ONE, "mine", [point], terminating=True)
    desk.clock.now_s += 59
    telemetry.sweep()
    page = telemetry.pushed.render(desk.clock.now_s)
    assert (
        'client_org_apache_kafka_producer_records{client_instance_id="ASNFZ4mrze_-3LqYdlQyEA",client_id="mine"} 7.0'
        in page
    )
    desk.clock.now_s += 2
    telemetry.sweep()
    assert telemetry.pushed.client_count == 0


def test_a_client_that_goes_on_after_its_goodbye_is_not_forgotten() -> None:
    desk = Desk()
    desk.telemetry.keep(ONE, "mine", [], terminating=True)
    desk.telemetry.keep(ONE, "mine", [], terminating=False)
    desk.clock.now_s += 61
    desk.telemetry.sweep()
    assert desk.telemetry.pushed.client_count == 1


def test_pushes_and_refusals_are_counted() -> None:
    desk = Desk()
    desk.push(ONE, 1)
    desk.telemetry.keep(ONE, None, [], terminating=False)
    page = desk.registry.render(0)
    assert "kafka_server_clientmetrics_telemetrypushes_total 1\n" in page
    assert "kafka_server_clientmetrics_telemetryerrors_total 1\n" in page
    assert "kafka_server_clientmetrics_clientinstancecount 1\n" in page


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_refused_by_what_it_holds_not_by_what_it_weighs(codec: int) -> None:
    harmless = b"\x7a\xe5\x07" + bytes(997)  # One field of 997 bytes that nobody knows, and so skips.
    assert unpack(compress(codec, harmless), codec, 1000) == []
    for size in (1001, 5_000_000):
        with pytest.raises(KafkaError) as refused:
            unpack(compress(codec, bytes(size)), codec, 1000)
        assert refused.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_bytes_that_are_nothing_are_an_invalid_record(codec: int) -> None:
    with pytest.raises(KafkaError) as refused:
        unpack(b"\xff\x01\x02", codec, 1000)
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_the_id_changes_with_the_interval_and_with_the_client() -> None:
    ids = {compute_subscription_id(["*"], interval, who) for interval in (100, 200) for who in (ONE, OTHER)}
    assert len(ids) == 4
