"""Every question of the room `admin` is one that Apache Kafka answers too, and the commands serve any cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.admin import (
    acls,
    cluster,
    configs,
    groups,
    health,
    log_dirs,
    quotas,
    reassignment,
    replicas,
    topics,
    transactions,
    users,
)
from ottla.cli.times import now_ms
from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from tests.cli.sessions import run_ottla
from tests.cluster.harness import eventually

from .conftest import At

pytestmark = pytest.mark.oracle


@pytest.fixture(params=["at_node", "at_apache"])
def at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> At:
    monkeypatch.setenv("OTTLA_CONFIG", "/nonexistent/config.toml")
    found: At = request.getfixturevalue(request.param)
    return found


def test_every_question_is_answered(at: At, topic: str) -> None:
    with BlockingClient(ClientSettings.parse({"bootstrap.servers": at.bootstrap})) as client:
        topics.create_topic(client, topic, partitions=2, replication_factor=1, configs={"retention.ms": "12345"})
        assert run_ottla(["produce", topic, "-p", "1", "-b", at.bootstrap], b"a\nb\n")[0] == 0
        (described,) = client.persist(lambda: topics.describe_topics(client, [topic]))
        (node,) = described.partitions[0].replicas
        assert [(each.leader, each.isr, each.is_under_replicated) for each in described.partitions] == [
            (node, (node,), False)
        ] * 2
        (listed,) = topics.list_topics(client, [topic])
        assert (listed.topic_id, len(listed.partitions)) == (described.topic_id, 2)
        extent = topics.extents_of(client, [described])[TopicPartition(topic, 1)]
        assert (extent.start_offset, extent.end_offset, extent.records) == (0, 2, 2)
        assert extent.size_bytes
        assert extent.size_bytes > 60

        picture = replicas.replica_picture(client, topic, 1)
        assert (picture.high_watermark, picture.last_stable_offset) == (2, 2)
        (replica,) = picture.replicas
        assert (replica.node, replica.is_leader, replica.in_sync, replica.start_offset, replica.end_offset) == (
            *(node, True, True, 0, 2),
        )
        (directory,) = log_dirs.describe_log_dirs(client, [TopicPartition(topic, 1)])
        assert directory.error is None
        assert directory.total_bytes >= directory.usable_bytes > 0
        assert [each.size_bytes for each in directory.replicas] == [extent.size_bytes]

        assert configs.own_configs(client, topic) == {"retention.ms": "12345"}
        configs.alter_configs(client, configs.ResourceKind.TOPIC, topic, append={"cleanup.policy": "compact"})

        def policy() -> configs.ConfigEntry | None:
            (found,) = configs.describe_configs(client, configs.ResourceKind.TOPIC, topic, keys=["cleanup.policy"])
            return found if found.value == "delete,compact" else None

        changed = eventually(policy, "the policy is changed")
        assert (changed.source, changed.type) == (configs.ConfigSource.TOPIC, "list")
        assert [each.source for each in changed.synonyms][-1] == configs.ConfigSource.DEFAULT
        of_broker = configs.describe_configs(client, configs.ResourceKind.BROKER, str(node), keys=["node.id"])
        assert [(each.value, each.is_read_only) for each in of_broker] == [(str(node), True)]

        found = cluster.describe_cluster(client)
        assert [(each.node, each.is_fenced) for each in found.brokers] == [(node, False)]
        quorum = cluster.describe_quorum(client)
        assert quorum.leader in {each.node for each in quorum.voters}
        assert quorum.high_watermark > 0
        assert {"metadata.version", "group.version"} <= {each.name for each in cluster.list_features(client)}
        (election,) = cluster.elect_leaders(client, [TopicPartition(topic, 0)])
        assert (election.was_needed, election.error) == (False, None)
        assert reassignment.list_moves(client) == []
        with pytest.raises(KafkaError) as refused:
            reassignment.cancel_moves(client, [TopicPartition(topic, 0)])
        assert refused.value.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

        assert isinstance(transactions.list_transactions(client), list)
        assert transactions.find_hanging(client, [TopicPartition(topic, 1)], now_ms=1 << 50, silent_ms=0) == []
        (producer,) = transactions.list_producers(client, [TopicPartition(topic, 1)])
        assert (producer.last_sequence, producer.transaction_start_offset) == (1, None)
        assert all(each.name for each in users.list_users(client))
        users.set_user(client, f"user-{topic}", "secret", mechanism="SCRAM-SHA-256", iterations=4096)
        # A broker hears of a change a moment after whoever asked for it.
        eventually(
            lambda: f"user-{topic}" in {each.name for each in users.list_users(client)} or None, "the user is known"
        )
        users.remove_user(client, f"user-{topic}", mechanism="SCRAM-SHA-256")
        quotas.alter_quota(client, {"user": topic}, set={"producer_byte_rate": 1e6})

        def limited() -> bool | None:
            found = [each.values for each in quotas.list_quotas(client) if each.entity == {"user": topic}]
            return found == [{"producer_byte_rate": 1e6}] or None

        eventually(limited, "the quota is known")
        quotas.alter_quota(client, {"user": topic}, delete=["producer_byte_rate"])
        with pytest.raises(KafkaError) as refused:
            acls.list_acls(client)
        assert refused.value.code == ErrorCode.SECURITY_DISABLED

        with pytest.raises(KafkaError) as refused:
            groups.describe_group(client, f"nobody-{topic}")
        assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND
        facts = health.gather(client, clock=now_ms, limits=health.Limits())
        assert (facts.unreachable, facts.unanswered) == ({}, [])
        assert abs(facts.clock_skew_ms) < 1_000  # Both run on this machine.
        topics.add_partitions(client, topic, 3)
        topics.delete_topic(client, topic)
        with pytest.raises(KafkaError) as refused:
            topics.delete_topic(client, topic)
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_snapshot_goes_from_one_kafka_to_the_other(
    at: At, at_node: At, at_apache: At, topic: str, tmp_path: Path
) -> None:
    other = at_apache if at is at_node else at_node
    file = str(tmp_path / "saved.zip")
    here, there = ("-b", at.bootstrap), ("-b", other.bootstrap)
    assert run_ottla(["topic", "create", topic, "-p", "1", "-r", "1", "-c", "retention.ms=-1", *here])[0] == 0
    assert run_ottla(["produce", topic, "-K", ":", "-z", "lz4", *here], b"a:1\nb:2\nc:3\nd:4\n")[0] == 0
    assert run_ottla(["topic", "trim", topic, "--before", "1", "--yes", *here])[0] == 0
    assert run_ottla(["group", "seek", f"group-{topic}", "--to", "3", topic, "--new", *here])[0] == 0
    assert run_ottla(["snapshot", "save", file, topic, *here])[0] == 0
    status, _, said = run_ottla(["snapshot", "restore", file, "-r", "1", *there])
    assert status == 0, said
    read = ("consume", topic, "-o", "beginning", "-e", "-f", "%o %T %k %s\\n")
    assert run_ottla([*read, *there]) == run_ottla([*read, *here])
    described = [
        json.loads(run_ottla(["group", "describe", f"group-{topic}", "--json", *where])[1]) for where in (here, there)
    ]
    assert described[0]["partitions"] == described[1]["partitions"]
    assert described[1]["partitions"][0]["committed"] == 3
