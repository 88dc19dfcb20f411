"""What is decided without asking a cluster: where replicas go, what is wrong, where restored positions are."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from ottla.admin import health
from ottla.admin.cluster import Broker, Cluster, Quorum, QuorumReplica
from ottla.admin.log_dirs import LogDirectory
from ottla.admin.reassignment import plan_moves
from ottla.admin.snapshots import Restored
from ottla.admin.topics import Partition, Topic
from ottla.admin.transactions import OpenProducer, Transaction
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition

NOW_MS = 1_000_000_000


def partition(index: int, replicas: tuple[int, ...], *, leader: int | None = 1, isr: tuple[int, ...] = ()) -> Partition:
    return Partition(
        topic="orders",
        partition=index,
        leader=leader,
        leader_epoch=0,
        replicas=replicas,
        isr=isr or replicas,
        offline_replicas=(),
    )


def topic(*replicas: tuple[int, ...]) -> Topic:
    partitions = tuple(partition(index, each) for index, each in enumerate(replicas))
    return Topic(name="orders", topic_id="", is_internal=False, partitions=partitions)


def test_what_is_even_already_stays() -> None:
    assert plan_moves([topic((1, 2), (2, 3), (3, 1))], [1, 2, 3]) == []


def test_a_new_broker_gets_its_share_and_the_rest_stays() -> None:
    before = topic(*[(1, 2), (2, 1)] * 6)
    moves = plan_moves([before], [1, 2, 3])
    after = {each.partition: each.replicas for each in before.partitions} | {
        each.partition: each.after for each in moves
    }
    assert Counter(node for replicas in after.values() for node in replicas) == {1: 8, 2: 8, 3: 8}
    assert set(Counter(replicas[0] for replicas in after.values()).values()) == {4}
    assert all(len(set(replicas)) == 2 for replicas in after.values())


def test_a_broker_that_goes_is_emptied() -> None:
    moves = plan_moves([topic((1, 2), (2, 3), (3, 1))], [1, 2])
    assert all(3 not in move.after for move in moves)
    assert {move.partition for move in moves} >= {1, 2}


def test_replicas_of_a_partition_go_to_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    moves = plan_moves([topic((1,), (2,), (3,), (4,))], [1, 2, 3, 4], racks=racks, replication_factor=2)
    assert len(moves) == 4
    for move in moves:
        assert {racks[node] for node in move.after} == {"a", "b"}


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        plan_moves([topic((1,))], [1, 2], replication_factor=3)
    assert refused.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


# What the doctor finds.


def broker(node: int, *, fenced: bool = False) -> Broker:
    return Broker(node=node, host=f"host-{node}", port=9092, rack=None, is_fenced=fenced)


def facts(**changes: object) -> health.Facts:
    given: dict[str, object] = {"cluster": Cluster(cluster_id="x", controller=1, brokers=(broker(1), broker(2)))}
    return health.Facts(now_ms=NOW_MS, **{**given, **changes})  # type: ignore[arg-type]


def judged(**changes: object) -> list[tuple[str, str]]:
    found = health.judge(facts(**changes), health.Limits())
    for each in found:
        assert each.problem.endswith(".")
        assert each.advice.endswith(".")
    return [(each.severity, each.subject) for each in found]


def quorum(clock_ms: int, *, behind_ms: int = 0, lag: int = 0) -> Quorum:
    def voter(node: int, end: int, caught_up_ms: int) -> QuorumReplica:
        return QuorumReplica(
            node=node,
            directory_id="",
            log_end_offset=end,
            lag=10 - end,
            last_fetch_ms=caught_up_ms,
            last_caught_up_ms=caught_up_ms,
        )

    voters = (voter(1, 10, clock_ms), voter(2, 10 - lag, clock_ms - behind_ms))
    return Quorum(leader=1, leader_epoch=3, high_watermark=9, voters=voters, observers=())


def test_a_healthy_cluster_has_no_findings() -> None:
    assert judged(partitions=[partition(0, (1, 2))], quorum=quorum(NOW_MS), lags={"g": 5}, states={"g": "Stable"}) == []


def test_brokers_that_cannot_be_reached_and_fenced_ones_are_found() -> None:
    brokers = (broker(1), broker(2, fenced=True), broker(3))
    cluster = Cluster(cluster_id="x", controller=1, brokers=brokers)
    unreachable = {3: "host-3:9092 cannot be reached"}
    assert judged(cluster=cluster, unreachable=unreachable) == [("error", "broker 2"), ("error", "broker 3")]
    # The controller misses a dead broker only after a while: until then nobody knows whether it runs.
    advice = health.judge(facts(cluster=cluster, unreachable=unreachable), health.Limits())[1].advice
    assert advice == "Start it; if it runs, set advertised.listeners to an address that clients can reach."


def test_partitions_in_trouble_are_found() -> None:
    troubled = [
        partition(0, (1, 2), leader=None, isr=(2,)),
        *(partition(each, (1, 2), isr=(1,)) for each in range(1, 8)),
    ]
    assert judged(partitions=troubled) == [
        ("error", "orders-0"),
        ("error", "orders-1, orders-2, orders-3, orders-4, orders-5 and 2 more"),
    ]
    offline = health.judge(facts(partitions=troubled), health.Limits())[0]
    assert "`ottla cluster elect orders:0 --unclean`" in offline.advice  # Without a name it would be refused.


def test_a_controller_that_lags_is_found_and_one_that_is_a_record_behind_for_a_moment_is_not() -> None:
    assert judged(quorum=quorum(NOW_MS, behind_ms=60_000, lag=3)) == [("error", "controller 2")]
    assert judged(quorum=quorum(NOW_MS, behind_ms=100, lag=3)) == []


def test_a_controller_that_was_never_heard_of_is_not_said_to_lag_since_1970() -> None:
    (found,) = health.judge(facts(quorum=quorum(NOW_MS, behind_ms=NOW_MS + 1, lag=11)), health.Limits())
    assert (found.subject, found.problem) == ("controller 2", "The quorum's leader has not heard of it.")


@pytest.mark.parametrize(("isr", "said"), [((1, 2), "broker 3 is not in sync"), ((1,), "brokers 2, 3 are not in sync")])
def test_who_is_not_in_sync_is_named(isr: tuple[int, ...], said: str) -> None:
    (found,) = health.judge(facts(partitions=[partition(0, (1, 2, 3), isr=isr)]), health.Limits())
    assert said in found.problem


def test_what_was_not_answered_has_a_next_step_that_fits() -> None:
    codes = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR)
    found = health.judge(facts(unanswered=[KafkaError(each, "It is so.") for each in codes]), health.Limits())
    assert [each.advice for each in found] == [
        "Ask as somebody who may describe the cluster.",
        "Start the controllers that are down.",
        "Look into that broker's log.",
    ]


def test_clocks_that_differ_are_found() -> None:
    assert judged(quorum=quorum(NOW_MS), clock_skew_ms=60_000) == [("warning", "controller 1")]
    assert judged(quorum=quorum(NOW_MS), clock_skew_ms=-60_000) == [("warning", "controller 1")]
    assert judged(newest_ms={TopicPartition("orders", 0): NOW_MS + 3_600_000}) == [("warning", "orders-0")]


def directory(node: int, **changes: object) -> LogDirectory:
    given: dict[str, object] = {"path": "/data", "error": None, "total_bytes": 1000, "usable_bytes": 500}
    return LogDirectory(node=node, is_cordoned=False, replicas=(), **{**given, **changes})  # type: ignore[arg-type]


def test_disks_that_fill_and_disks_that_fail_are_found() -> None:
    failed = directory(2, error=KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    found = judged(directories=[directory(1, usable_bytes=99), failed, directory(3)])
    assert found == [("error", "broker 2"), ("warning", "broker 1")]


@pytest.mark.parametrize(
    ("total_gib", "free_gib", "is_found"),
    [(252, 23.5, False), (252, 19, True), (20_000, 100, False), (20_000, 19, True), (100, 11, False), (100, 9, True)],
)
def test_a_disk_fills_that_has_little_left_of_much_or_of_little(
    total_gib: int, free_gib: float, is_found: bool
) -> None:
    volume = directory(1, total_bytes=total_gib << 30, usable_bytes=int(free_gib * 2**30))
    assert judged(directories=[volume]) == ([("warning", "broker 1")] if is_found else [])


def test_whoever_says_how_much_should_be_free_means_that_alone() -> None:
    volume = directory(1, total_bytes=1 << 40, usable_bytes=1 << 39)
    limits = health.Limits(free_share_min=0.6, free_bytes_enough=math.inf)
    (found,) = health.judge(facts(directories=[volume]), limits)
    assert found.problem == "The volume of /data is nearly full: 50.0 % are free."


def test_why_disks_cannot_be_asked_is_said_and_whoever_may_not_ask_is_told_so() -> None:
    errors = (
        KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        KafkaError(ErrorCode.NETWORK_EXCEPTION, "Node 2 hung up."),
    )
    directories = [directory(node, path="", error=error) for node, error in enumerate(errors, 1)]
    found = health.judge(facts(directories=directories), health.Limits())
    assert [(each.problem, each.advice) for each in found] == [
        (
            "Its disks cannot be asked: you have no right to this on the cluster.",
            "Ask as somebody who may describe the cluster.",
        ),
        ("Its disks cannot be asked: Node 2 hung up.", "Look into its log."),
    ]


def test_stuck_transactions_are_found() -> None:
    def transaction(name: str, started_ms: int) -> Transaction:
        return Transaction(
            transactional_id=name,
            producer_id=1,
            producer_epoch=0,
            state="Ongoing",
            coordinator=1,
            timeout_ms=60_000,
            started_ms=started_ms,
            partitions=(),
        )

    hanging = OpenProducer(
        topic="orders",
        partition=4,
        producer_id=7,
        producer_epoch=0,
        last_sequence=0,
        last_timestamp_ms=0,
        coordinator_epoch=0,
        transaction_start_offset=5,
    )
    stuck = transaction("old", NOW_MS - 600_000)
    found = judged(open_transactions=[stuck, transaction("new", NOW_MS - 10_000)], hanging=[hanging])
    assert found == [("error", "transaction old"), ("error", "orders-4")]


def test_groups_that_lag_are_found_and_told_apart_by_their_members() -> None:
    limits = health.Limits(group_lag=100)
    found = health.judge(
        facts(
            lags={"idle": 500, "slow": 500, "fine": 100}, states={"idle": "Empty", "slow": "Stable", "fine": "Stable"}
        ),
        limits,
    )
    assert [(each.subject, "Start" in each.advice) for each in found] == [("group idle", True), ("group slow", False)]


# Where positions go when a snapshot is restored.


def test_positions_stay_where_offsets_do() -> None:
    restored = Restored()
    for offset in range(5, 10):
        restored.add(offset, offset)
    restored.end = 10
    assert restored.is_exact
    assert [restored.position(each) for each in (5, 7, 10, 12)] == [5, 7, 10, 10]


def test_positions_go_with_their_records_where_holes_close() -> None:
    restored = Restored()
    for new, old in enumerate((3, 4, 8, 9, 20)):
        restored.add(old, new)
    restored.end = 5
    assert not restored.is_exact
    # Before the first, on a record, in a hole (the next record is what follows), behind the last.
    assert [restored.position(each) for each in (0, 3, 4, 5, 7, 8, 10, 20, 21, 30)] == [0, 0, 1, 2, 2, 2, 4, 4, 5, 5]


def test_a_clock_that_may_agree_is_not_called_wrong() -> None:
    """A slow answer is no skew: the leader's clock must be outside of the time between question and answer."""
    assert health._skew_ms(quorum(5_000), 1_000, 9_000) == 0
    assert health._skew_ms(quorum(9_500), 1_000, 9_000) == 500
    assert health._skew_ms(quorum(400), 1_000, 9_000) == -600
    assert health._skew_ms(quorum(-1), 1_000, 9_000) == 0  # It does not tell.
