"""kafka-configs: what is described, what may change, and where each value comes from.

The lists themselves are compared with Apache Kafka's own answers: names, defaults, synonyms and sensitivity.
"""

from __future__ import annotations

import re
import time

import pytest

from .conftest import At

pytestmark = pytest.mark.oracle

_LINE = re.compile(r"  (?P<name>[\w.]+)=(?P<value>.*?) sensitive=(?P<sensitive>\w+) synonyms=\{(?P<synonyms>.*)\}")


def described(at: At, *arguments: str) -> dict[str, tuple[str, str, str]]:
    """Every described key with its value, its sensitivity and its synonyms."""
    found = {}
    for line in at("kafka-configs", "--describe", *arguments).lines:
        if match := _LINE.fullmatch(line):
            found[match["name"]] = (match["value"], match["sensitive"], match["synonyms"])
    return found


def eventually(at: At, arguments: list[str], name: str, value: str | None) -> tuple[str, str, str]:
    """Describe until `name` has `value` (None: is absent); a broker follows the controller a moment later."""
    deadline = time.monotonic() + 60
    while True:
        configs = described(at, *arguments)
        found = configs.get(name, ("", "", ""))
        if (found[0] == value) if value is not None else name not in configs:
            return found
        assert time.monotonic() < deadline, configs
        time.sleep(0.05)


def test_every_topic_config_is_described_as_kafka_describes_it(at_node: At, at_apache: At, topic: str) -> None:
    for at in (at_node, at_apache):
        at("kafka-topics", "--create", "--topic", topic, "--config", "retention.bytes=5000")
    ours = described(at_node, "--topic", topic, "--all")
    kafkas = described(at_apache, "--topic", topic, "--all")
    assert len(kafkas) > 30
    # KIP-966: with eligible leader replicas, formatting pins this one for all brokers, at the same value.
    for configs in (ours, kafkas):
        value, sensitive, sources = configs["min.insync.replicas"]
        pinned = "DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=1, "
        configs["min.insync.replicas"] = (value, sensitive, sources.removeprefix(pinned))
    assert ours == kafkas


def as_shipped(config: tuple[str, str, str], other: tuple[str, str, str]) -> tuple[str, str, str]:
    """A config without what the command line or the properties file of either node set: its default."""
    value, sensitive, sources = config
    if any("STATIC_BROKER_CONFIG" in each[2] or "DYNAMIC_DEFAULT" in each[2] for each in (config, other)):
        value = "set"
    default = re.search(r"DEFAULT_CONFIG:.*", sources)
    return value, sensitive, default[0] if default else ""


def test_broker_configs_have_kafkas_defaults(at_node: At, at_apache: At) -> None:
    ours = described(at_node, "--broker", "1", "--all")
    kafkas = described(at_apache, "--broker", "1", "--all")
    # A key that Kafka knows and we do not would be lost when a server.properties moves over.
    assert sorted(kafkas.keys() - ours.keys()) == []
    differing = {
        name: (ours[name], kafkas[name])
        for name in kafkas
        if as_shipped(ours[name], kafkas[name]) != as_shipped(kafkas[name], ours[name])
    }
    assert differing == {}


def test_a_topic_config_is_set_shown_with_its_source_and_removed(at_node: At, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    done = at_node(
        "kafka-configs", "--alter", "--topic", topic, "--add-config", "retention.ms=86400000,max.message.bytes=2000"
    )
    assert f"Completed updating config for topic {topic}." in done.out
    eventually(at_node, ["--topic", topic], "retention.ms", "86400000")
    configs = described(at_node, "--topic", topic)
    assert configs["max.message.bytes"] == (
        "2000",
        "false",
        "DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000, DEFAULT_CONFIG:message.max.bytes=1048588",
    )
    assert configs["retention.ms"] == ("86400000", "false", "DYNAMIC_TOPIC_CONFIG:retention.ms=86400000")

    at_node("kafka-configs", "--alter", "--topic", topic, "--delete-config", "retention.ms")
    eventually(at_node, ["--topic", topic], "retention.ms", None)
    assert "max.message.bytes" in described(at_node, "--topic", topic)


def test_a_list_takes_several_values(at_node: At, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    at_node("kafka-configs", "--alter", "--topic", topic, "--add-config", "cleanup.policy=[compact,delete]")
    eventually(at_node, ["--topic", topic], "cleanup.policy", "compact,delete")


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("retention.ms=abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ("no.such.key=1", "Unknown topic config name: no.such.key"),
        (
            "min.cleanable.dirty.ratio=2",
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        ("cleanup.policy=shred", "cleanup.policy"),
        ("segment.bytes=13", "Invalid value 13 for configuration segment.bytes: Value must be at least 1048576"),
    ],
)
def test_an_invalid_topic_config_is_refused(at_node: At, topic: str, setting: str, sentence: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    before = described(at_node, "--topic", topic)
    refused = at_node.run("kafka-configs", "--alter", "--topic", topic, "--add-config", setting).check(status=1)
    assert "InvalidConfigurationException" in refused.printed
    assert sentence in refused.printed
    assert described(at_node, "--topic", topic) == before


def test_a_missing_topic_has_no_configs(at_node: At, topic: str) -> None:
    answer = at_node("kafka-configs", "--describe", "--topic", topic)
    assert f"The topic '{topic}' doesn't exist and doesn't have dynamic config." in answer.out


def test_a_broker_config_changes_while_the_node_runs(at_node: At, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    at_node("kafka-configs", "--alter", "--broker", "1", "--add-config", "log.retention.ms=3600000")
    sources = "DYNAMIC_BROKER_CONFIG:log.retention.ms=3600000, DEFAULT_CONFIG:log.retention.hours=168"
    try:
        found = eventually(at_node, ["--broker", "1"], "log.retention.ms", "3600000")
        assert found == ("3600000", "false", sources)
        # A topic without a value of its own follows its broker.
        found = eventually(at_node, ["--topic", topic, "--all"], "retention.ms", "3600000")
        assert found == ("3600000", "false", sources)
    finally:
        at_node("kafka-configs", "--alter", "--broker", "1", "--delete-config", "log.retention.ms")
    eventually(at_node, ["--topic", topic, "--all"], "retention.ms", "604800000")


def test_a_default_for_all_brokers_is_told_from_one_brokers_value(at_node: At) -> None:
    at_node("kafka-configs", "--alter", "--broker-defaults", "--add-config", "message.max.bytes=2097152")
    source = "DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=2097152"
    try:
        found = eventually(at_node, ["--broker-defaults"], "message.max.bytes", "2097152")
        assert found[2] == source
        found = eventually(at_node, ["--broker", "1", "--all"], "message.max.bytes", "2097152")
        assert found[2] == f"{source}, DEFAULT_CONFIG:message.max.bytes=1048588"
    finally:
        at_node("kafka-configs", "--alter", "--broker-defaults", "--delete-config", "message.max.bytes")
    eventually(at_node, ["--broker-defaults"], "message.max.bytes", None)


def test_a_read_only_broker_config_is_refused(at_node: At) -> None:
    refused = at_node.run("kafka-configs", "--alter", "--broker", "1", "--add-config", "log.dirs=elsewhere").check(
        status=1
    )
    assert "InvalidRequestException" in refused.printed
    assert "log.dirs" in refused.printed


def test_client_metrics_subscriptions_are_kept(at_node: At, topic: str) -> None:
    name = f"subscription-{topic}"
    wanted = "metrics=[org.apache.kafka.producer.],interval.ms=10000"
    at_node("kafka-configs", "--alter", "--client-metrics", name, "--add-config", wanted)
    eventually(at_node, ["--client-metrics", name], "interval.ms", "10000")
    eventually(at_node, ["--client-metrics", name], "metrics", "org.apache.kafka.producer.")
    listed = at_node("kafka-configs", "--describe", "--entity-type", "client-metrics")
    assert name in listed.out
