"""A topic's effective values, and what its overrides must not be."""

from __future__ import annotations

import pytest

from ottla.config.group import client_metrics_values, group_values, parse_match, validate_group
from ottla.config.key import InvalidConfig
from ottla.config.topic import topic_values, validate_topic

from .recorded import node


def test_a_topic_takes_what_its_broker_has() -> None:
    config = node({"log.retention.hours": "24", "message.max.bytes": "5000", "log.cleanup.policy": "compact"})
    values = topic_values(config, {"segment.ms": "77", "cleanup.policy": ""})
    assert values["retention.ms"] == 86_400_000
    assert values["max.message.bytes"] == 5000
    assert values["cleanup.policy"] == ()
    assert values["segment.ms"] == 77
    assert values["flush.ms"] == 2**63 - 1
    assert values["leader.replication.throttled.replicas"] == ()
    assert values["internal.segment.bytes"] is None
    assert len(values) == 34


def test_dynamic_defaults_reach_topics() -> None:
    config = node({"log.retention.ms": "1"}).with_dynamic({"log.retention.ms": "2", "log.segment.bytes": "2000000"}, {})
    values = topic_values(config, {})
    assert values["retention.ms"] == 2
    assert values["segment.bytes"] == 2_000_000


TIERED = {"remote.log.storage.system.enable": "true"}
REMOTE = {"remote.storage.enable": "true"}


@pytest.mark.parametrize(
    ("broker", "overrides", "message"),
    [
        ({}, {"nope": "1"}, "Unknown topic config name: nope"),
        ({}, {"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
        (
            {"log.cleaner.max.compaction.lag.ms": "10"},
            {"min.compaction.lag.ms": "11"},
            "conflict topic config setting min.compaction.lag.ms (11) > max.compaction.lag.ms (10)",
        ),
        (TIERED, {**REMOTE, "cleanup.policy": "compact"}, "Remote log storage is unsupported for the compacted topics"),
        (
            TIERED,
            {**REMOTE, "local.retention.ms": "604800001"},
            "Invalid value 604800001 for configuration local.retention.ms: "
            "Value must not be more than retention.ms property value: 604800000",
        ),
        (
            TIERED,
            {**REMOTE, "retention.bytes": "10", "local.retention.bytes": "-1"},
            "Invalid value -1 for configuration local.retention.bytes: "
            "Value must not be -1 as retention.bytes value is set as 10.",
        ),
    ],
)
def test_overrides_that_no_topic_may_have(
    broker: dict[str, str], overrides: dict[str, str | None], message: str
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        validate_topic(node({**broker}), overrides)
    assert refused.value.message == message


def test_remote_storage_that_fits() -> None:
    config = node({**TIERED})
    validate_topic(config, {**REMOTE, "local.retention.ms": "1000", "retention.ms": "2000"})
    validate_topic(
        config, {**REMOTE, "remote.log.copy.disable": "true", "local.retention.ms": "5", "retention.ms": "5"}
    )
    with pytest.raises(InvalidConfig, match="identical value"):
        validate_topic(config, {**REMOTE, "remote.log.copy.disable": "true", "local.retention.ms": "5"})


def test_remote_storage_is_not_lost_by_accident() -> None:
    config = node({**TIERED})
    with pytest.raises(InvalidConfig, match="without deleting remote data"):
        validate_topic(config, {}, existing=REMOTE)
    validate_topic(config, {"remote.log.delete.on.disable": "true"}, existing=REMOTE)


def test_a_group_stays_within_bounds_that_were_drawn_later() -> None:
    stored = {"consumer.session.timeout.ms": "50000", "share.delivery.count.limit": "8"}
    validate_group(node(), "g", {**stored})
    tighter = node({"group.consumer.max.session.timeout.ms": "48000", "group.share.max.delivery.count.limit": "6"})
    values = group_values(tighter, stored)
    assert values["consumer.session.timeout.ms"] == 48_000
    assert values["share.delivery.count.limit"] == 6
    assert values["share.auto.offset.reset"] == "latest"


@pytest.mark.parametrize("reset", ["by_duration:P1DT2H", "by_duration:PT0.5S", "earliest", "LATEST"])
def test_share_groups_start_where_they_are_told(reset: str) -> None:
    validate_group(node(), "g", {"share.auto.offset.reset": reset})


@pytest.mark.parametrize("reset", ["by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1h", "nearest", ""])
def test_share_groups_start_nowhere_else(reset: str) -> None:
    with pytest.raises(InvalidConfig, match="by_duration"):
        validate_group(node(), "g", {"share.auto.offset.reset": reset})


def test_subscriptions_match_clients_by_pattern() -> None:
    patterns = parse_match(["client_id = orders-.*", "client_software_name=librdkafka"])
    assert patterns["client_id"].fullmatch("orders-7")
    assert not patterns["client_software_name"].fullmatch("apache-kafka-java")
    assert client_metrics_values({"metrics": "org.apache.kafka.consumer."})["interval.ms"] == 300_000


def test_a_pattern_costs_no_more_than_its_text_is_long() -> None:
    """One that a backtracking engine would be at for longer than the universe has been there."""
    pattern = parse_match(["client_id=(a|a)*(a|a)*(a|aa)+$"])["client_id"]
    assert not pattern.fullmatch("a" * 200 + "b")


@pytest.mark.parametrize("pattern", ["(", "a\\1", "(?=a)", "((a{100}){100}){100}"])
def test_a_pattern_that_could_cost_more_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidConfig, match="Illegal client matching pattern"):
        parse_match([f"client_id={pattern}"])
