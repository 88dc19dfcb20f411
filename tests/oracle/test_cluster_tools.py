"""Apache Kafka's tools operate a cluster of three: each story is what an operator types, and what must come of it.

One cluster serves the whole module, with short timeouts; a story that kills a node starts it again, and topics keep the
stories apart. The fourth node joins for the stories of voters, moves and unclean elections, and is taken off the books
in the last one. With OTTLA_ORACLE_TARGET=apache the cluster is Apache Kafka's own.

kafka-replica-verification is deprecated in Kafka 4.3.1 but still in its jars. It never ends by itself, so it runs in a
process of its own until its first reports.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .apache_kafka import TOOLS, KafkaTools, ToolFailed, classpath, java
from .clusters import Cluster, ClusterNode, KafkaCluster, OttlaCluster
from .conftest import At

pytestmark = pytest.mark.oracle

SHORT = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def cluster(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    running: Cluster
    if os.environ.get("OTTLA_ORACLE_TARGET") == "apache":
        running = KafkaCluster(directory, tools, overrides=SHORT, heap=("-Xmx512M",))
    else:
        running = OttlaCluster(directory, overrides=SHORT)
    try:
        running.start()
        yield running
    finally:
        running.end()


@pytest.fixture(scope="module")
def at(tools: KafkaTools, cluster: Cluster) -> At:
    return At(tools, cluster.bootstrap)


@pytest.fixture(scope="module")
def fourth(cluster: Cluster, at: At, tmp_path_factory: pytest.TempPathFactory) -> ClusterNode:
    """A node of both roles that came later: a broker like the others, and of the quorum an observer."""
    node = cluster.newcomer(tmp_path_factory.mktemp("fourth"), roles="broker,controller")
    node.wait_ready()
    until(lambda: "4" in endpoints(at), "the fourth broker to be unfenced")
    return node


def until(holds: Callable[[], bool], what: str, timeout: float = 60) -> None:
    """Tools show what a broker knows by now: news takes a moment to reach it."""
    deadline = time.monotonic() + timeout
    last = "it was not so"
    while True:
        try:
            if holds():
                return
        except ToolFailed as failure:
            last = str(failure)
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s for {what}: {last}")
        time.sleep(0.1)


def endpoints(at: At) -> dict[str, dict[str, str]]:
    header, *rows = at("kafka-cluster", "list-endpoints", "--include-fenced-brokers").lines
    found = (dict(zip(header.split(), row.split(), strict=True)) for row in rows)
    return {row["ID"]: row for row in found if row["STATE"] == "unfenced"}


def partitions(at: At, *arguments: str) -> dict[tuple[str, int], dict[str, str]]:
    """The partitions that kafka-topics describes, by topic and index."""
    rows = (
        dict(re.findall(r"(\w+): ?([^\t]*)", line))
        for line in at("kafka-topics", "--describe", *arguments).lines
        if line.startswith("\t")
    )
    return {(row["Topic"], int(row["Partition"])): row for row in rows}


def isr(at: At, topic: str) -> set[str]:
    return set(partitions(at, "--topic", topic)[topic, 0]["Isr"].strip().split(","))


def create(at: At, topic: str, assignment: str, *configs: str) -> None:
    settings = [part for config in configs for part in ("--config", config)]
    at("kafka-topics", "--create", "--topic", topic, "--replica-assignment", assignment, *settings)
    until(lambda: leaders(at, topic) == assignment.partition(":")[0], f"{topic} to be led")


def leaders(at: At, topic: str) -> str:
    return ",".join(row["Leader"].strip() for row in partitions(at, "--topic", topic).values())


def type_in(at: At, topic: str, lines: list[str]) -> None:
    settings = ["--command-property", "acks=all"]
    at("kafka-console-producer", "--topic", topic, *settings, stdin="\n".join(lines) + "\n")


def read_back(at: At, topic: str, count: int) -> list[str]:
    place = ["--topic", topic, "--partition", "0", "--offset", "earliest"]
    return at("kafka-console-consumer", *place, "--max-messages", str(count), "--timeout-ms", "15000").out.splitlines()


# Topics.


def test_a_topic_lives_on_all_three_grows_and_goes(at: At, topic: str) -> None:
    at("kafka-topics", "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "3")
    until(lambda: len(partitions(at, "--topic", topic)) == 3, "the topic to be known")
    rows = partitions(at, "--topic", topic)
    assert sorted(row["Leader"] for row in rows.values()) == ["1", "2", "3"]
    assert all(sorted(row["Isr"].split(",")) == ["1", "2", "3"] for row in rows.values())
    assert all(row["Replicas"].split(",")[0] == row["Leader"] for row in rows.values())

    at("kafka-topics", "--alter", "--topic", topic, "--partitions", "5")
    until(lambda: len(partitions(at, "--topic", topic)) == 5, "five partitions")

    at("kafka-topics", "--delete", "--topic", topic)
    until(lambda: topic not in at("kafka-topics", "--list").lines, "the topic to be gone")


def test_more_replicas_than_brokers_are_refused(at: At, topic: str) -> None:
    refused = at.run("kafka-topics", "--create", "--topic", topic, "--replication-factor", "7").check(1)
    assert "InvalidReplicationFactorException" in refused.printed


# Configs.


def test_a_topics_config_is_set_shown_and_unset(at: At, topic: str) -> None:
    at("kafka-topics", "--create", "--topic", topic, "--replication-factor", "3")
    which = ["--entity-type", "topics", "--entity-name", topic]

    def shown() -> bool:
        return "  retention.ms=86400000 " in at("kafka-configs", "--describe", *which).out

    at("kafka-configs", "--alter", *which, "--add-config", "retention.ms=86400000")
    until(shown, "the config to be shown")
    at("kafka-configs", "--alter", *which, "--delete-config", "retention.ms")
    until(lambda: not shown(), "the config to be gone")


@pytest.mark.parametrize("broker", ["1", "2", "3", "default"])
def test_a_brokers_config_changes_while_it_runs(at: At, broker: str) -> None:
    """Wherever the tool goes first, the request reaches the controller, and the answer comes from the broker named."""
    which = ["--entity-type", "brokers", *(["--entity-default"] if broker == "default" else ["--entity-name", broker])]
    source = "DYNAMIC_DEFAULT_BROKER_CONFIG" if broker == "default" else "DYNAMIC_BROKER_CONFIG"
    wanted = f"  log.cleaner.threads=2 sensitive=false synonyms={{{source}:log.cleaner.threads=2"

    def shown() -> bool:
        return wanted in at("kafka-configs", "--describe", *which).out

    at("kafka-configs", "--alter", *which, "--add-config", "log.cleaner.threads=2")
    until(shown, "the config to be shown")
    at("kafka-configs", "--alter", *which, "--delete-config", "log.cleaner.threads")
    until(lambda: not shown(), "the config to be gone")


def test_a_users_credentials_come_and_go(at: At) -> None:
    alice = ["--entity-type", "users", "--entity-name", "alice"]

    def described() -> str:
        return at("kafka-configs", "--describe", *alice).out

    at("kafka-configs", "--alter", *alice, "--add-config", "SCRAM-SHA-256=[iterations=4096,password=secret]")
    until(lambda: "'alice' are SCRAM-SHA-256=iterations=4096" in described(), "the credential")
    assert "secret" not in described()
    at("kafka-configs", "--alter", *alice, "--delete-config", "SCRAM-SHA-256")
    until(lambda: "SCRAM" not in described(), "the credential to be gone")


@pytest.mark.parametrize(
    ("which", "quota", "said"),
    [
        ("--entity-type users --entity-name bob", "producer_byte_rate=1024", "user-principal 'bob' are"),
        ("--entity-type clients --entity-default", "request_percentage=50", "the default client-id are"),
        ("--entity-type ips --entity-name 10.0.0.1", "connection_creation_rate=5", "ip '10.0.0.1' are"),
        ("--entity-type users --entity-name bob --entity-type clients --entity-name c", "consumer_byte_rate=9", "bob"),
    ],
)
def test_client_quotas_come_and_go(at: At, which: str, quota: str, said: str) -> None:
    entity = which.split()

    def shown() -> bool:
        out = at("kafka-configs", "--describe", *entity).out
        return f"{quota}.0" in out and said in out

    at("kafka-configs", "--alter", *entity, "--add-config", quota)
    until(shown, "the quota to be shown")
    at("kafka-configs", "--alter", *entity, "--delete-config", quota.partition("=")[0])
    until(lambda: not shown(), "the quota to be gone")


# What the cluster says of itself.


def quorum_status(at: At) -> dict[str, str]:
    lines = at("kafka-metadata-quorum", "describe", "--status").lines
    return {key: value.strip() for key, value in (line.split(":", 1) for line in lines)}


def quorum_roles(at: At) -> dict[str, str]:
    header, *rows = at("kafka-metadata-quorum", "describe", "--replication").lines
    found = [dict(zip(header.split(), row.split(), strict=True)) for row in rows]
    return {row["NodeId"]: row["Status"] for row in found}


def test_the_quorum_has_one_leader_and_two_followers(at: At, cluster: Cluster) -> None:
    status = quorum_status(at)
    assert int(status["LeaderId"]) == cluster.active_controller().node_id
    assert status["ClusterId"] == cluster.cluster_id
    voters = {voter["id"]: voter for voter in json.loads(status["CurrentVoters"])}
    assert sorted(voters) == [1, 2, 3]
    assert all(voters[node.node_id]["directoryId"] == node.directory_id for node in cluster.nodes.values())
    roles = quorum_roles(at)
    assert roles == {str(node): "Leader" if str(node) == status["LeaderId"] else "Follower" for node in (1, 2, 3)}


def test_the_cluster_and_its_endpoints_are_told_by_every_node(tools: KafkaTools, cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        one = At(tools, f"127.0.0.1:{node.port}")
        assert one("kafka-cluster", "cluster-id").lines == [f"Cluster ID: {cluster.cluster_id}"]
        assert {key: int(row["PORT"]) for key, row in endpoints(one).items()} == {
            str(each.node_id): each.port for each in cluster.nodes.values()
        }


def test_every_broker_serves_the_same_apis(at: At) -> None:
    answers = re.findall(r"\(id: (\d) rack.*?-> \((.*?)^\)", at("kafka-broker-api-versions").out, re.DOTALL | re.M)
    apis = {broker: re.findall(r"^\t(\w+)\(\d+\): (.*?),?$", rows, re.MULTILINE) for broker, rows in answers}
    assert sorted(apis) == ["1", "2", "3"]
    assert apis["1"] == apis["2"] == apis["3"]
    assert dict(apis["1"])["Fetch"] == "4 to 18 [usable: 18]"


def test_a_feature_is_taken_down_and_up_again(at: At) -> None:
    def level() -> str:
        found = re.search(
            r"eligible\.leader\.replicas.*FinalizedVersionLevel: (\d)", at("kafka-features", "describe").out
        )
        assert found is not None
        return found[1]

    assert level() == "1"
    at("kafka-features", "downgrade", "--feature", "eligible.leader.replicas.version=0")
    until(lambda: level() == "0", "the feature to be down")
    at("kafka-features", "upgrade", "--feature", "eligible.leader.replicas.version=1")
    until(lambda: level() == "1", "the feature to be up")
    refused = at.run("kafka-features", "downgrade", "--feature", "metadata.version=7").check(1)
    assert "Could not downgrade metadata.version to 7" in refused.printed


def test_without_an_authorizer_there_are_no_acls(at: At) -> None:
    wishes = ["--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "any"]
    for arguments in (["--list"], wishes):
        refused = at.run("kafka-acls", *arguments).check(1)
        assert "SecurityDisabledException" in refused.printed


# Records, on every replica.


def test_what_one_writes_all_hold(at: At, cluster: Cluster, tools: KafkaTools, topic: str) -> None:
    create(at, topic, "3:1:2")
    at(
        "kafka-producer-perf-test",
        "--topic",
        topic,
        "--num-records",
        "2000",
        "--record-size",
        "500",
        "--throughput",
        "-1",
    )
    lines = [f"line {number}" for number in range(100)]
    type_in(at, topic, lines)
    assert at("kafka-get-offsets", "--topic", topic).lines == [f"{topic}:0:2100"]
    assert read_back(at, topic, 2100)[2000:] == lines

    def sizes() -> dict[int, tuple[int, int]]:
        told = at("kafka-log-dirs", "--describe", "--topic-list", topic).lines[-1]
        found = {}
        for broker in json.loads(told)["brokers"]:
            (partition,) = broker["logDirs"][0]["partitions"]
            found[broker["broker"]] = (partition["size"], partition["offsetLag"])
        return found

    until(lambda: len(set(sizes().values())) == 1, "all replicas to be of one size")
    told = sizes()
    assert sorted(told) == [1, 2, 3]
    size, lag = told[3]
    assert lag == 0

    segments = [node.data / f"{topic}-0" / f"{0:020}.log" for node in cluster.nodes.values() if node.node_id <= 3]
    stored = {segment.read_bytes()[:size] for segment in segments}
    assert len(stored) == 1
    assert len(stored.pop()) == size > 1_000_000
    dumps = [
        tools.check("kafka-dump-log", "--print-data-log", "--files", str(segment)).lines[2:] for segment in segments
    ]
    assert dumps[0] == dumps[1] == dumps[2]
    assert any("line 99" in line for line in dumps[0])


def test_the_replicas_are_verified(at: At, topic: str) -> None:
    create(at, topic, "1:2:3")
    type_in(at, topic, ["one", "two", "three"])
    arguments = ["--broker-list", at.bootstrap, "--topics-include", topic, "--report-interval-ms", "200"]
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", classpath(), TOOLS["kafka-replica-verification"], *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as tool:
        assert tool.stdout is not None
        try:
            said = next((line for line in tool.stdout if "max lag is" in line), "nothing")
        finally:
            tool.kill()
    assert re.search(rf"max lag is 0 for partition {topic}-0 at offset 3 among 1 partitions", said), said


# Deaths and elections.


def test_a_dead_leader_is_missed_and_comes_back_by_preference(at: At, cluster: Cluster, topic: str) -> None:
    lonely, strict = f"{topic}-lonely", f"{topic}-strict"
    create(at, topic, "1:2:3")
    create(at, lonely, "1")
    create(at, strict, "2:1", "min.insync.replicas=2")
    cluster.nodes[1].kill()
    until(lambda: leaders(at, topic) == "2", "another leader")
    until(lambda: (topic, 0) in partitions(at, "--under-replicated-partitions"), "the loss to be told")
    missing = partitions(at, "--under-replicated-partitions")
    assert missing[topic, 0]["Isr"] == "2,3"
    assert {key[0] for key in partitions(at, "--unavailable-partitions")} == {lonely}
    assert strict in {key[0] for key in partitions(at, "--under-min-isr-partitions")}
    type_in(at, topic, ["written without the first"])

    cluster.restart(1)
    until(lambda: isr(at, topic) == {"1", "2", "3"}, "the first to be in sync again")
    until(lambda: not partitions(at, "--under-replicated-partitions"), "everybody to be in sync")
    assert leaders(at, topic) == "2"
    elected = at("kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "Successfully completed leader election (PREFERRED) for partitions" in elected.out
    until(lambda: leaders(at, topic) == "1", "the preferred leader")
    again = at("kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "Valid replica already elected for partitions" in again.out
    assert read_back(at, topic, 1) == ["written without the first"]


# The fourth node: a voter for a while, a home for replicas, a loss.


def test_a_newcomer_becomes_a_voter_and_is_one_no_more(at: At, fourth: ClusterNode) -> None:
    assert quorum_roles(at)["4"] == "Observer"
    properties = ["--command-config", str(fourth.properties_file)]
    at("kafka-metadata-quorum", *properties, "add-controller")
    until(lambda: quorum_roles(at)["4"] == "Follower", "the fourth voter")
    voters = {voter["id"]: voter for voter in json.loads(quorum_status(at)["CurrentVoters"])}
    assert sorted(voters) == [1, 2, 3, 4]
    assert voters[4]["endpoints"] == [f"CONTROLLER://127.0.0.1:{fourth.controller_port}"]
    directory = voters[4]["directoryId"]
    again = at.run("kafka-metadata-quorum", *properties, "add-controller").check(1)
    assert "DuplicateVoterException" in again.printed

    who = ["--controller-id", "4", "--controller-directory-id", directory]
    at("kafka-metadata-quorum", "remove-controller", *who)
    until(lambda: quorum_roles(at)["4"] == "Observer", "the fourth to observe again")
    assert "VoterNotFoundException" in at.run("kafka-metadata-quorum", "remove-controller", *who).check(1).printed


def throttles(at: At, topic: str) -> str:
    told = [at("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", topic).out]
    for broker in "1234":
        told.append(at("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", broker).out)
    return "".join(line for text in told for line in text.splitlines(keepends=True) if "throttled" in line)


def test_a_partition_moves_is_called_back_and_moves(
    at: At, fourth: ClusterNode, topic: str, json_file: Callable[[str], str], tmp_path: Path
) -> None:
    create(at, topic, "1:2:3")
    load = ["--num-records", "2000", "--record-size", "1000", "--throughput", "-1"]
    at("kafka-producer-perf-test", "--topic", topic, *load)
    moved = json_file(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generated = at(
        "kafka-reassign-partitions", "--generate", "--topics-to-move-json-file", moved, "--broker-list", "1,2,3,4"
    )
    current, proposed = (json.loads(line) for line in generated.lines if line.startswith("{"))
    assert current["partitions"][0]["replicas"] == [1, 2, 3]
    assert set(proposed["partitions"][0]["replicas"]) < {1, 2, 3, 4}

    plan = tmp_path / "plan.json"
    partition = {"topic": topic, "partition": 0, "replicas": [4, 2, 3], "log_dirs": ["any"] * 3}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    which = ["--reassignment-json-file", str(plan)]

    def verified(*arguments: str) -> str:
        return at("kafka-reassign-partitions", "--verify", *which, *arguments).out

    at("kafka-reassign-partitions", "--execute", *which, "--throttle", "1000")
    assert f"Reassignment of partition {topic}-0 is still in progress" in verified("--preserve-throttles")
    until(lambda: "throttled.rate=1000" in throttles(at, topic), "the throttle to be shown")
    assert f"{topic}-0: replicas: " in at("kafka-reassign-partitions", "--list").out
    at("kafka-reassign-partitions", "--cancel", *which)
    # The replicas that were to stay came first in the meantime, and so they do after it.
    until(lambda: partitions(at, "--topic", topic)[topic, 0]["Replicas"] == "2,3,1", "the way back")
    assert "No partition reassignments found." in at("kafka-reassign-partitions", "--list").out
    until(lambda: not throttles(at, topic), "the throttles to be gone")
    until(lambda: not (fourth.data / f"{topic}-0").exists(), "the fourth to drop what it had copied")

    at("kafka-reassign-partitions", "--execute", *which, "--throttle", "50000000")
    until(lambda: f"Reassignment of partition {topic}-0 is completed" in verified(), "the move to be done")
    until(lambda: not throttles(at, topic), "the throttles to be gone")
    assert partitions(at, "--topic", topic)[topic, 0]["Replicas"] == "4,2,3"
    assert isr(at, topic) == {"2", "3", "4"}
    elected = at("kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "Valid replica already elected" in elected.out or "Successfully completed" in elected.out
    until(lambda: leaders(at, topic) == "4", "the newcomer to lead")
    assert at("kafka-get-offsets", "--topic", topic).lines == [f"{topic}:0:2000"]


def test_an_unclean_election_serves_again_and_loses_what_was_not_copied(
    at: At, cluster: Cluster, fourth: ClusterNode, topic: str
) -> None:
    create(at, topic, "4:3")
    type_in(at, topic, ["on both"])
    until(lambda: isr(at, topic) == {"3", "4"}, "both to be in sync")
    cluster.nodes[3].kill()
    until(lambda: isr(at, topic) == {"4"}, "one to be left")
    type_in(at, topic, ["on the fourth alone"])
    fourth.kill()
    until(lambda: (topic, 0) in partitions(at, "--unavailable-partitions"), "the last to be gone")
    cluster.restart(3)
    which = ["--topic", topic, "--partition", "0"]
    preferred = at.run("kafka-leader-election", "--election-type", "preferred", *which)
    assert "PreferredLeaderNotAvailableException" in preferred.printed, preferred.printed
    until(lambda: "3" in endpoints(at), "the third to be unfenced")
    assert (topic, 0) in partitions(at, "--unavailable-partitions")
    elected = at("kafka-leader-election", "--election-type", "unclean", *which)
    assert "Successfully completed leader election (UNCLEAN) for partitions" in elected.out
    until(lambda: leaders(at, topic) == "3", "the third to lead")
    type_in(at, topic, ["after"])
    assert read_back(at, topic, 2) == ["on both", "after"]


def test_a_broker_that_will_not_come_back_is_unregistered(at: At, cluster: Cluster, fourth: ClusterNode) -> None:
    fourth.kill()

    def listed() -> bool:
        rows = at("kafka-cluster", "list-endpoints", "--include-fenced-brokers").lines
        return any(row.split()[0] == "4" for row in rows)

    until(lambda: "4" not in endpoints(at), "the dead to be fenced")
    assert listed()
    assert at("kafka-cluster", "unregister", "--id", "4").lines == ["Broker 4 is no longer registered."]
    until(lambda: not listed(), "the dead to be off the books")
    again = at.run("kafka-cluster", "unregister", "--id", "4").check(1)
    assert "BrokerIdNotRegisteredException" in again.printed
