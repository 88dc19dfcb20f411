"""What the documents that Ottla grew from say of a replicated log, claim by claim, on real processes.

Each test quotes one claim, in our words, and shows it. Three brokers, each in a rack of its own, and five controllers
apart from them, so that brokers can die without taking the quorum along. Nothing is configured but timeouts, racks and
the selector of replicas: replication factor and `min.insync.replicas` are the defaults unless a topic says otherwise.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from ottla.errors import ErrorCode
from ottla.wire.messages.create_topics_request import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_configs_response import DescribeConfigsResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse
from tests.behaviour.client import LATEST, Topic, batch, values_of
from tests.cluster.harness import PATIENCE_S, eventually
from tests.cluster.layout import BOTH, BROKER, CONTROLLER, LaidOut, NodePlan, laid_out
from tests.cluster.seed_helpers import (
    ALL,
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    SlowLink,
    alter,
    alter_and_wait,
    at,
    connections,
    create,
    metric,
    numbered,
    poll_values,
    reader,
    values_at,
    write,
)

pytestmark = pytest.mark.slow

BROKERS = (1, 2, 3)
CONTROLLERS = (11, 12, 13, 14, 15)
RACKS = {1: "east", 2: "west", 3: "north"}
SETTINGS = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    # A follower is out of sync well before its broker counts as dead, so that the two can be told apart.
    "replica.lag.time.max.ms": "1000",
    "broker.session.timeout.ms": "2500",
    "broker.heartbeat.interval.ms": "300",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.max.bytes": "131072",
}
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"
ISR_SHRINKS = "kafka_server_replicamanager_isrshrinks_total"
ISR_EXPANDS = "kafka_server_replicamanager_isrexpands_total"
UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions"
UNDER_MIN_ISR = "kafka_server_replicamanager_underminisrpartitioncount"
OFFLINE = "kafka_controller_kafkacontroller_offlinepartitionscount"
ACTIVE = "kafka_controller_kafkacontroller_activecontrollercount"
FOLLOWER_LAG = "kafka_cluster_partition_followerlag"
APPLIED = "kafka_server_broker_metadata_metrics_last_applied_record_offset"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LaidOut]:
    plans = [NodePlan(node_id=each, roles=CONTROLLER) for each in CONTROLLERS]
    plans += [NodePlan(node_id=each, roles=BROKER, settings={"broker.rack": RACKS[each]}) for each in BROKERS]
    with laid_out(tmp_path_factory.mktemp("seeds"), plans, SETTINGS) as cluster:
        yield cluster
        assert "Traceback" not in cluster.complaints(), cluster.complaints()


@pytest.fixture
def cluster(whole: LaidOut) -> Iterator[LaidOut]:
    """All nodes run before and after each test."""
    yield whole
    whole.restore()
    eventually(lambda: len(whole.metadata().brokers) == len(BROKERS) or None, "all brokers, unfenced")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic's name, made from the test's."""
    return re.sub(r"\W+", "-", request.node.name.removeprefix("test_")).strip("-")[:80]


# Replicas.


def test_a_broker_holds_at_most_one_replica_of_a_partition(cluster: LaidOut, name: str) -> None:
    """The unit of replication is the partition, and every replica of one is on another broker: three brokers cannot
    hold four, and no broker two."""
    too_many = CreatableTopic(name=name, num_partitions=1, replication_factor=4)
    twice = CreatableTopic(name=f"{name}-twice", num_partitions=-1, replication_factor=-1)
    twice.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 1, 2])]
    answer = cluster.ask(CreateTopicsRequest(topics=[too_many, twice], timeout_ms=5000), CreateTopicsResponse)
    assert {each.name: each.error_code for each in answer.topics} == {
        name: ErrorCode.INVALID_REPLICATION_FACTOR,
        f"{name}-twice": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }


def test_only_the_leader_takes_writes(cluster: LaidOut, name: str) -> None:
    """One leader a partition, and all writes go there: who asks a follower is sent away, and what the leader took is
    soon on all replicas, the same to the byte."""
    topic = create(cluster, name, (2, 1, 3))
    for follower in (1, 3):
        with at(cluster, follower) as client:
            assert client.produce(topic, batch(b"x")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    write(cluster, topic, *numbered(0, 20))
    copies = [(cluster.data[each] / f"{name}-0" / f"{0:020d}.log").read_bytes() for each in BROKERS]
    assert len(copies[0]) > 0
    assert copies[0] == copies[1] == copies[2]


# No record that was acknowledged is lost.


@pytest.mark.parametrize(
    "victim", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_any_one_broker_may_die(cluster: LaidOut, name: str, victim: int) -> None:
    """Three replicas, two of them required, acks=all: no data is lost, and the partition goes on, when one broker dies,
    whichever it is."""
    topic = create(cluster, name, (1, 2, 3), min_insync_replicas="2")
    before, after = numbered(0, 50), numbered(50, 50)
    assert write(cluster, topic, *before) == 0
    cluster.kill(victim)
    assert write(cluster, topic, *after) == 50
    assert cluster.leader_of(name) != victim
    assert values_at(cluster, topic) == before + after


@pytest.mark.slow
def test_all_but_one_replica_may_die(cluster: LaidOut, name: str) -> None:
    """The in-sync set tolerates the death of all replicas but one: with min.insync.replicas=1 and a quorum that lives
    elsewhere, the last of three brokers takes acks=all writes and has everything."""
    topic = create(cluster, name, (1, 2, 3), min_insync_replicas="1")
    written = numbered(0, 20)
    write(cluster, topic, *written)
    for victim in (1, 2):
        cluster.kill(victim)
        more = numbered(len(written), 20)
        assert write(cluster, topic, *more) == len(written)
        written += more
    cluster.wait_in_sync(name, [3])
    assert values_at(cluster, topic, of=3) == written


@pytest.mark.slow
def test_too_few_in_sync_replicas_refuse_writes(cluster: LaidOut, name: str) -> None:
    """min.insync.replicas=2 of three is CP: below it acks=all is refused with NOT_ENOUGH_REPLICAS, nothing of it is
    kept, and a producer that goes on trying is blocked until there are enough again."""
    topic = create(cluster, name, (1, 2, 3), min_insync_replicas="2")
    write(cluster, topic, b"before")
    eventually(lambda: metric(cluster, 1, UNDER_MIN_ISR) == 0 or None, "no partition below its minimum")
    for follower in (2, 3):
        cluster.kill(follower)
    cluster.wait_in_sync(name, [1])
    eventually(lambda: metric(cluster, 1, UNDER_MIN_ISR) > 0 or None, "a partition below its minimum")
    with at(cluster, 1) as client:
        refused = client.produce(topic, batch(b"refused"), acks=ALL)
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        # What it holds may be read all the while.
        assert [record.value for record in client.read_all(topic)] == [b"before"]
    outcomes: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "retry.backoff.ms": 50, "enable.metrics.push": False}
    )
    producer.produce(name, b"blocked", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(1)
    assert outcomes == []
    cluster.restart(2)
    assert producer.flush(PATIENCE_S) == 0
    assert outcomes == [None]
    assert values_at(cluster, topic) == [b"before", b"blocked"]
    cluster.restore()
    eventually(lambda: metric(cluster, 1, UNDER_MIN_ISR) == 0 or None, "no partition below its minimum")


def test_the_defaults_prefer_to_be_available(cluster: LaidOut, name: str) -> None:
    """Out of the box (default.replication.factor=1, min.insync.replicas=1) the system is AP: one broker alone accepts
    acks=all, and when it is gone there is no second copy."""
    resource = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE,
        resource_name="1",
        configuration_keys=["default.replication.factor", "min.insync.replicas", "unclean.leader.election.enable"],
    )
    (described,) = cluster.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, of=1).results
    assert {each.name: each.value for each in described.configs} == {
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "unclean.leader.election.enable": "false",
    }
    # A client that merely writes gets a topic as the defaults make it.
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    cluster.ask(wanted, MetadataResponse)
    owner = cluster.leader_of(name)
    found = cluster.metadata(name).topics[0]
    assert [each.replica_nodes for each in found.partitions] == [[owner]]
    topic = Topic(name, found.topic_id)
    write(cluster, topic, b"acknowledged")
    controller = cluster.active_controller()
    eventually(lambda: metric(cluster, controller, OFFLINE) == 0 or None, "no partition offline")
    cluster.kill(owner)

    def is_lost_for_now() -> bool | None:
        (partition,) = cluster.metadata(name).topics[0].partitions
        return (partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE and partition.leader_id == -1) or None

    eventually(is_lost_for_now, "a partition without a leader")
    eventually(lambda: metric(cluster, controller, OFFLINE) > 0 or None, "a partition that is counted as offline")
    cluster.restart(owner)
    eventually(lambda: metric(cluster, controller, OFFLINE) == 0 or None, "no partition offline")


# The high watermark.


def test_consumers_never_see_past_the_high_watermark(cluster: LaidOut, name: str) -> None:
    """What is not on all in-sync replicas yet might be lost with the leader, so no consumer sees it; acks=1 has been
    answered long before."""
    topic = create(cluster, name, (1, 2, 3), min_insync_replicas="2")
    write(cluster, topic, b"committed")
    consumer = reader(cluster.bootstrap, name)
    assert poll_values(consumer, 1) == [b"committed"]
    for follower in (2, 3):
        cluster.pause(follower)
    with at(cluster, 1) as client:
        # Both may have a fetch waiting, which takes the first record to them; what follows is the leader's alone.
        assert client.produce(topic, batch(b"pending"), acks=1).base_offset == 1
        assert client.produce(topic, batch(b"uncommitted"), acks=1).base_offset == 2
        found = client.fetch(topic, 0)
        assert found.high_watermark == 1
        assert values_of(found) == [b"committed"]
        assert client.list_offset(topic, LATEST).offset == 1
        assert poll_values(consumer, 1, seconds=0.5) == []
        # Nor when those who lack it have left: one replica is fewer than two.
        cluster.wait_in_sync(name, [1])
        assert client.fetch(topic, 0).high_watermark == 1
        assert poll_values(consumer, 1, seconds=0.3) == []
    for follower in (2, 3):
        cluster.resume(follower)
    assert poll_values(consumer, 2) == [b"pending", b"uncommitted"]
    consumer.close()


# In and out of the in-sync set.


def test_a_follower_that_lags_leaves_and_comes_back(cluster: LaidOut, name: str) -> None:
    """A follower that has not kept up for replica.lag.time.max.ms is dropped from the in-sync set; the leader goes on
    committing with the rest; the follower keeps pulling, catches up, and is added again."""
    topic = create(cluster, name, (1, 2, 3), min_insync_replicas="2")
    write(cluster, topic, b"by three")
    eventually(lambda: metric(cluster, 1, UNDER_REPLICATED) == 0 or None, "no partition under-replicated")
    shrinks, expands = metric(cluster, 1, ISR_SHRINKS), metric(cluster, 1, ISR_EXPANDS)
    cluster.pause(3)
    began = time.monotonic()
    with at(cluster, 1) as client:
        # Nothing is committed without it while it counts; the answer comes when it does not any more.
        assert client.produce(topic, batch(b"by two"), acks=ALL, timeout_ms=20_000).error_code == 0
        assert time.monotonic() - began > 0.5
        cluster.wait_in_sync(name, [1, 2])
        # Its leader had it removed, for being slow; the controller has not, for being dead.
        eventually(lambda: metric(cluster, 1, ISR_SHRINKS) > shrinks or None, "the leader has counted it")
        assert client.fetch(topic, 0).high_watermark == 2
        # The figures to watch: how many partitions miss a replica, and how far behind it is.
        assert metric(cluster, 1, UNDER_REPLICATED) >= 1
        assert metric(cluster, 1, FOLLOWER_LAG, topic=name, partition="0", replica="3") == 1
        cluster.resume(3)
        cluster.wait_in_sync(name, [1, 2, 3])
        eventually(lambda: metric(cluster, 1, UNDER_REPLICATED) == 0 or None, "no partition under-replicated")
        eventually(lambda: metric(cluster, 1, ISR_EXPANDS) > expands or None, "and its return")
        assert metric(cluster, 1, FOLLOWER_LAG, topic=name, partition="0", replica="3") == 0
    assert cluster.bytes_of(3, name) == cluster.bytes_of(1, name)


# Elections.


@dataclass(frozen=True, slots=True)
class Stranded:
    """Two topics whose last in-sync replica died after it had acknowledged what the other replica never got."""

    waiting: Topic
    serving: Topic
    shared: list[bytes]
    alone: list[bytes]
    up_to_date: int
    out_of_date: int


@pytest.fixture(scope="module")
def stranded(whole: LaidOut) -> Iterator[Stranded]:
    whole.restore()
    up_to_date, out_of_date = 1, 2
    replicas = (up_to_date, out_of_date)
    found = Stranded(
        waiting=create(whole, "unclean-off", replicas),
        serving=create(whole, "unclean-on", replicas, unclean_leader_election_enable="true"),
        shared=numbered(0, 10),
        alone=numbered(10, 5),
        up_to_date=up_to_date,
        out_of_date=out_of_date,
    )
    for topic in (found.waiting, found.serving):
        write(whole, topic, *found.shared)
    whole.kill(out_of_date)
    for topic in (found.waiting, found.serving):
        whole.wait_in_sync(topic.name, [up_to_date])
        write(whole, topic, *found.alone)
    whole.kill(up_to_date)
    whole.restart(out_of_date)
    yield found
    whole.restore()


@pytest.mark.slow
def test_without_unclean_election_the_partition_waits(whole: LaidOut, stranded: Stranded) -> None:
    """All in-sync replicas are dead. unclean.leader.election.enable=false, the default: wait until one is back; nothing
    is served, and nothing is lost."""
    topic = stranded.waiting
    eventually(
        lambda: whole.leader_of(stranded.serving.name) == stranded.out_of_date or None,
        "an election of what there is, where that is allowed",
    )
    partition = whole.partition(topic.name)
    assert (partition.leader_id, partition.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    with at(whole, stranded.out_of_date) as client:
        assert client.produce(topic, batch(b"x")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.slow
def test_with_unclean_election_it_serves_and_loses_what_only_the_dead_had(whole: LaidOut, stranded: Stranded) -> None:
    """unclean.leader.election.enable=true: a replica that was out of sync leads. The partition is available, and what
    it lacks is lost, though it was acknowledged: those records and no others."""
    topic = stranded.serving
    eventually(lambda: whole.leader_of(topic.name) == stranded.out_of_date or None, "an unclean election")
    assert values_at(whole, topic) == stranded.shared
    assert write(whole, topic, b"new") == len(stranded.shared)


@pytest.mark.slow
def test_when_the_dead_return_one_topic_is_whole_and_the_other_agrees_on_its_loss(
    whole: LaidOut, stranded: Stranded
) -> None:
    """Waiting was safe: every record is there. Where the unclean leader went on, the one that had more gives it up, and
    all replicas hold the same."""
    eventually(lambda: whole.leader_of(stranded.serving.name) == stranded.out_of_date or None, "an unclean election")
    served = values_at(whole, stranded.serving)
    assert served[: len(stranded.shared)] == stranded.shared
    assert write(whole, stranded.serving, b"newer") == len(served)
    whole.restart(stranded.up_to_date)
    both = [stranded.up_to_date, stranded.out_of_date]
    for topic in (stranded.waiting, stranded.serving):
        whole.wait_in_sync(topic.name, both)
    assert values_at(whole, stranded.waiting) == stranded.shared + stranded.alone
    assert values_at(whole, stranded.serving) == [*served, b"newer"]
    for topic in (stranded.waiting, stranded.serving):
        copies = [whole.data[each] / f"{topic.name}-0" / f"{0:020d}.log" for each in both]
        assert copies[0].read_bytes() == copies[1].read_bytes()


# Acknowledgements.


def test_acks_are_none_one_or_all(cluster: LaidOut, name: str) -> None:
    """A drawing shows acks=2. There is no such thing: a number of replicas other than 0, 1 and all is refused with
    INVALID_REQUIRED_ACKS, and nothing is appended."""
    topic = create(cluster, name, (1, 2, 3))
    with at(cluster, 1) as client:
        for acks in (2, 3, -2):
            assert client.produce(topic, batch(b"x"), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert client.list_offset(topic, LATEST).offset == 0


def test_acks_0_is_not_answered(cluster: LaidOut, name: str) -> None:
    """With acks=0 the producer does not wait at all: there is no answer, and the record is there all the same."""
    topic = create(cluster, name, (1, 2, 3))
    with at(cluster, 1) as client:
        client.send(client.produce_request(topic, batch(b"x"), acks=0), 13)
        # Answers come in order: the first that comes is that of the next request.
        eventually(lambda: client.list_offset(topic, LATEST).offset == 1 or None, "the record")


@pytest.mark.slow
def test_a_stalled_follower_does_not_slow_acks_1(cluster: LaidOut, name: str) -> None:
    """Replication is work in the background and does not block writes with acks=1: with a follower that stands still
    the throughput stays at nine tenths or more."""
    topic = create(cluster, name, (1, 2, 3))
    block, count = batch(*[b"x" * 1024] * 16), 400

    def seconds() -> float:
        """For so many requests, a few of them under way at any time."""
        with at(cluster, 1) as client:
            frame, _ = client.frame(client.produce_request(topic, block, acks=1), 13)
            began = time.monotonic()
            client.send_raw(frame * 4)
            for _ in range(count):
                client.receive_frame()
                client.send_raw(frame)
            return time.monotonic() - began

    seconds()
    flowing: list[float] = []
    stalled: list[float] = []
    for rounds in range(1, 21):  # The best of each; on a busy machine a round may be lucky or not.
        flowing.append(seconds())
        cluster.pause(3)
        stalled.append(seconds())
        cluster.resume(3)
        cluster.wait_in_sync(name, BROKERS)
        if rounds >= 4 and min(flowing) >= 0.9 * min(stalled):
            break
    assert min(flowing) >= 0.9 * min(stalled), (flowing, stalled)


# Settings.


def test_a_setting_that_was_replaced_names_its_successor(tmp_path: Path) -> None:
    """Being too many messages behind (replica.lag.max.messages) has given way to being too long behind: who still sets
    it is told what to set instead, and the node runs."""
    plan = NodePlan(node_id=1, roles=BOTH, settings={"replica.lag.max.messages": "4000"})
    with laid_out(tmp_path, [plan], {}) as alone:
        (line,) = [line for line in alone.nodes[1].log().splitlines() if "replica.lag.max.messages" in line]
        assert "WARNING" in line
        assert "replica.lag.time.max.ms" in line
        alone.stop_all()


# Replication, tuned.


DELAY_S = 0.02


@pytest.fixture(scope="module")
def distant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LaidOut, SlowLink]]:
    """A leader that the others reach over a long line: node 2 with one fetcher, node 3 with four."""
    with SlowLink(DELAY_S) as link:
        from ottla.runtime.system import free_ports

        (link.target,) = free_ports("127.0.0.1", 1)
        plans = [
            NodePlan(node_id=1, replication_port=link.target, replication_reached_at=link.port),
            *(
                NodePlan(
                    node_id=each,
                    roles=BROKER,
                    replication_port=port,
                    settings={
                        "num.replica.fetchers": str(fetchers),
                        "replica.fetch.response.max.bytes": "65536",
                        "replica.fetch.max.bytes": "65536",
                    },
                )
                for each, port, fetchers in zip((2, 3), free_ports("127.0.0.1", 2), (1, 4), strict=True)
            ),
        ]
        with laid_out(tmp_path_factory.mktemp("distant"), plans, {"replica.lag.time.max.ms": "30000"}) as cluster:
            yield cluster, link
            assert "Traceback" not in cluster.complaints(), cluster.complaints()


def _is(ask: Callable[[], int], wanted: int) -> bool | None:
    return ask() == wanted or None


@pytest.mark.slow
def test_four_fetchers_are_four_connections_and_faster(distant: tuple[LaidOut, SlowLink], name: str) -> None:
    """num.replica.fetchers=4 copies by four pipelines from one source; over a line with a delay, where each waits for
    its answers, that is faster than one."""
    cluster, link = distant
    partitions, size = 8, 256 * 1024
    topic = create(cluster, name, *[(1, 2, 3)] * partitions)
    for follower, wanted in ((2, 1), (3, 4)):
        pid = cluster.nodes[follower].pid
        eventually(partial(_is, partial(connections, pid, link.port), wanted), f"{wanted} connections of {follower}")
    block = batch(*[b"x" * 1000] * 30)
    began = time.monotonic()
    with at(cluster, 1) as client:
        for partition in range(partitions):
            for _ in range(size // len(block)):
                assert client.produce(topic, block, acks=1, partition=partition).error_code == 0
    wrote = time.monotonic() - began
    done: dict[int, float] = {}

    def held(node_id: int) -> int:
        return sum(cluster.bytes_of(node_id, name, partition) for partition in range(partitions))

    while len(done) < 2:
        assert time.monotonic() - began < PATIENCE_S
        for follower in (2, 3):
            if follower not in done and held(follower) == held(1):
                done[follower] = time.monotonic() - began
        time.sleep(0.01)
    assert done[3] - wrote < 0.5 * (done[2] - wrote), (wrote, done)


RATE = 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("side", ["follower", "leader"])
def test_a_throttle_holds_its_rate(cluster: LaidOut, name: str, side: str) -> None:
    """A limit on the bytes a second that replication may take holds what it says, to a tenth, while a replica catches
    up."""
    topic = create(cluster, name, (1, 2))
    limited = {"follower": 2, "leader": 1}[side]
    rate_key = f"{side}.replication.throttled.rate"
    alter_and_wait(cluster, BROKER_RESOURCE, str(limited), of=limited, **{rate_key: str(RATE)})
    replicas_key = f"{side}.replication.throttled.replicas"
    alter_and_wait(cluster, TOPIC_RESOURCE, name, of=limited, **{replicas_key: f"0:{limited}"})
    # Only who is not in sync is held back: the others would leave for it.
    cluster.pause(2)
    cluster.wait_in_sync(name, [1])
    block = batch(*[b"x" * 1000] * 30)
    with at(cluster, 1) as client:
        for _ in range(6 * RATE // len(block)):
            assert client.produce(topic, block, acks=1).error_code == 0
    cluster.resume(2)
    began = time.monotonic()
    seen: list[tuple[float, int]] = []
    while time.monotonic() - began < 5.2:
        seen.append((time.monotonic() - began, cluster.bytes_of(2, name)))
        time.sleep(0.02)
    alter(cluster, BROKER_RESOURCE, str(limited), **{rate_key: str(1 << 40)})
    # Past the first second, which may be spent at once.
    (first_s, first), (last_s, last) = next(each for each in seen if each[0] > 1.2), seen[-1]
    rate = (last - first) / (last_s - first_s)
    assert 0.9 * RATE <= rate <= 1.1 * RATE, seen[:: len(seen) // 20]
    cluster.wait_in_sync(name, [1, 2])


# Reading from followers.


def test_a_consumer_reads_from_the_follower_in_its_rack(cluster: LaidOut, name: str) -> None:
    """With replica.selector.class set, a consumer reads from the replica nearest to it, and there too only up to the
    high watermark."""
    # All three, so that nothing is committed without the third, however long it is gone.
    topic = create(cluster, name, (1, 2, 3), min_insync_replicas="3")
    values = [b"x" * 1000 + b"%d" % number for number in range(100)]
    for value in values:
        write(cluster, topic, value)
    consumer = reader(cluster.bootstrap, name, client_rack="west")
    assert poll_values(consumer, 100) == values
    out = {each: metric(cluster, each, BYTES_OUT, topic=name) for each in BROKERS}
    assert out[2] >= 100_000
    assert out[1] + out[3] <= 0.1 * out[2]
    # What the follower has, and not everybody else: it is on its disk, and no reader is shown it.
    cluster.pause(3)
    before = cluster.bytes_of(2, name)
    with at(cluster, 1) as client:
        for value in (b"first", b"second"):
            assert client.produce(topic, batch(value), acks=1).error_code == 0
    eventually(lambda: cluster.bytes_of(2, name) >= before + 2 * len(batch(b"first")) or None, "the follower's copy")
    assert poll_values(consumer, 1, seconds=0.3) == []
    cluster.resume(3)
    assert poll_values(consumer, 2) == [b"first", b"second"]
    consumer.close()


# The quorum.


@pytest.mark.slow
def test_five_controllers_commit_with_three(cluster: LaidOut, name: str) -> None:
    """Metadata is committed when a majority has it, three of five, and no ISR is asked; when the active controller
    dies another one of the backups takes the role."""

    def claim_it() -> list[int]:
        """The controllers that say of themselves that they are the active one."""
        return [each for each in CONTROLLERS if cluster.is_up(each) and metric(cluster, each, ACTIVE) == 1]

    actives = [cluster.active_controller()]
    eventually(lambda: claim_it() == actives or None, "one active controller by the metrics")
    for generation in range(2):
        cluster.kill(actives[-1])
        create(cluster, f"{name}-{generation}", (1, 2, 3))
        actives.append(cluster.active_controller())
        eventually(lambda: claim_it() == actives[-1:] or None, "one active controller by the metrics")
    assert len(set(actives)) == 3
    # Two of five are no majority: nothing is decided.
    cluster.kill(actives[-1])
    wanted = CreatableTopic(name=f"{name}-never", num_partitions=1, replication_factor=1)
    with at(cluster, 1) as client:
        asked = client.send(CreateTopicsRequest(topics=[wanted], timeout_ms=1000), 7)
        if not client.is_silent(1.5):
            answer = client.receive(CreateTopicsResponse, 7, asked)
            assert answer.topics[0].error_code != ErrorCode.NONE, "two controllers of five decided"
    assert cluster.metadata(f"{name}-never").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.restart(actives[0])
    create(cluster, f"{name}-again", (1, 2, 3))


@pytest.mark.slow
def test_every_node_comes_to_know_the_same_metadata(cluster: LaidOut, name: str) -> None:
    """All controllers keep the metadata in memory, brokers tail its log: after the death of the active controller, and
    with a change that was made meanwhile, all of them agree."""
    dead = cluster.active_controller()
    cluster.kill(dead)
    topic = create(cluster, name, (1, 2, 3), (2, 3, 1))
    cluster.restart(dead)

    def applied(node_id: int) -> float:
        return metric(cluster, node_id, APPLIED)

    everyone = (*BROKERS, *CONTROLLERS)

    def agreed() -> bool | None:
        offsets = [applied(each) for each in everyone]
        return (offsets[0] > 0 and max(offsets) - min(offsets) <= 1) or None

    eventually(agreed, "one metadata offset everywhere")
    described = [cluster.metadata(name, of=each).topics[0] for each in BROKERS]
    assert all(each.topic_id == topic.topic_id for each in described)
    assert all(one.partitions == other.partitions for one, other in pairwise(described))
