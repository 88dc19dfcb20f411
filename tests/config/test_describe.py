"""DescribeConfigs against what a real broker answered, before and after a long list of alterations."""

from __future__ import annotations

from functools import cache

import pytest

from ottla.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_loggers,
    describe_topic,
)
from ottla.errors import KafkaError

from .recorded import Cluster, changes_of, described, node, refusals


@cache
def altered_cluster() -> Cluster:
    cluster = Cluster()
    for row in refusals()["alterations"]:
        if row[0] == "BROKER_LOGGER":
            continue
        if row[3] == "OK":
            cluster.alter(row[0], row[1], changes_of(row))
    return cluster


def entries(resource: str) -> dict[str, ConfigEntry]:
    before, after = Cluster(), altered_cluster()
    described = {
        "topic": lambda: describe_topic(before.node, before.configs["TOPIC", "t"]),
        "plain_topic": lambda: describe_topic(before.node, {}),
        "broker": lambda: describe_broker(before.node),
        "group": lambda: describe_group(before.node, {}),
        "client_metrics": lambda: describe_client_metrics({}),
        "topic2": lambda: describe_topic(after.node, after.configs["TOPIC", "t"]),
        "broker_2": lambda: describe_broker(after.node),
        "broker_default_2": lambda: describe_cluster_default(after.node),
        "group_2": lambda: describe_group(after.node, after.configs["GROUP", "g"]),
        "client_metrics_2": lambda: describe_client_metrics(after.configs["CLIENT_METRICS", "cm"]),
    }[resource]()
    return {entry.name: entry for entry in described}


@pytest.mark.parametrize("resource", sorted({row[0] for row in described()["entries"]}))
def test_entries_are_those_of_a_real_broker(resource: str) -> None:
    theirs = {row[1]: row for row in described()["entries"] if row[0] == resource}
    ours = entries(resource)
    if resource == "broker_2":  # Of which only what the alterations changed was recorded.
        first = {row[1] for row in described()["entries"] if row[0] == "broker"}
        assert set(ours) == first | set(theirs)
    else:
        assert set(ours) == set(theirs)
    for name, row in theirs.items():
        entry = ours[name]
        synonyms = [[synonym.name, synonym.value, synonym.source.name] for synonym in entry.synonyms]
        assert [
            entry.value,
            entry.type.name,
            entry.source.name,
            entry.read_only,
            entry.is_sensitive,
            entry.is_default,
            synonyms,
        ] == list(row[2:]), name


def test_only_the_named_entries_are_shown() -> None:
    config = node()
    assert [entry.name for entry in describe_broker(config, ["num.partitions", "nope"])] == ["num.partitions"]
    assert [entry.name for entry in describe_topic(config, {}, {"retention.ms"})] == ["retention.ms"]
    assert len(describe_group(config, {}, [])) == 17


def test_secrets_are_never_told() -> None:
    secrets = {
        "ssl.keystore.password": "hunter2",
        "listener.name.plaintext.ssl.key.password": "hunter2",
        "some.plugin.secret": "hunter2",
        "delegation.token.secret.key": "hunter2",
    }
    told = [entry for entry in describe_broker(node({**secrets})) if entry.name in secrets]
    assert len(told) == 4
    assert all(entry.is_sensitive for entry in told)
    assert "hunter2" not in repr(told)


def test_an_internal_key_is_shown_once_it_is_set() -> None:
    assert not describe_broker(node(), ["unstable.api.versions.enable"])
    (entry,) = describe_broker(node({"unstable.api.versions.enable": "true"}), ["unstable.api.versions.enable"])
    assert entry.value == "true"


def test_every_entry_is_documented_in_a_sentence() -> None:
    for entry in describe_broker(node()):
        assert entry.documentation


def test_loggers_have_levels() -> None:
    (entry,) = describe_loggers({"ottla.raft": "INFO", "ottla.log": "WARN"}, ["ottla.log"])
    assert (entry.value, entry.source.name) == ("WARN", "DYNAMIC_BROKER_LOGGER_CONFIG")


def test_a_refused_alteration_leaves_the_broker_as_it_was() -> None:
    cluster = Cluster()
    before = cluster.node
    with pytest.raises(KafkaError):
        cluster.alter("BROKER", "", changes_of(("BROKER", "", [("log.retention.ms", "SET", "0")], "")))
    assert cluster.node is before
