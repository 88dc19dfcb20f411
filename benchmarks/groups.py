"""`python -m benchmarks.groups`: consumer groups, offsets and transactions, Ottla beside Apache Kafka, in one run.

Both sides have `group.initial.rebalance.delay.ms=0`; the rest are what `ottla up` and Apache Kafka set by themselves.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse
from tests.oracle.apache_kafka import KafkaTools
from tests.oracle.ottla_node import ottla_command
from tests.wire_client import WireClient

from . import load, series, servers
from .cases import Case, Metric, Sample
from .load import LoadFailed
from .runner import Result
from .servers import SETTINGS, KafkaSide, OttlaSide, Side

REPETITIONS = 3
MEMBERS, PARTITIONS = 100, 1000
CONSUMERS = 50
MILLION = 1_000_000
GROUPS = 1000
"""Of a thousand offsets each, for the million."""
BARE = 25
"""Bare first assignments a run, of which the quickest counts: the others tell of the machine."""
DEFAULT_INTERVAL_MS = 1000
"""Of `group.consumer.assignment.interval.ms`."""

_GROUP_RESOURCE = 32
_NOT_SLOWER = (Metric(unit="s", better="less", bar=1.0),)

_SETTINGS = {**SETTINGS, "group.initial.rebalance.delay.ms": "0"}
_WAIT_S = 60


# The first assignment.


def _first_assignment(bootstrap: str, topic: str, group: str, protocol: str) -> float:
    """Seconds from the first poll of a new consumer to its partitions."""
    assigned: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic], on_assign=lambda _consumer, _partitions: assigned.append(time.monotonic()))
    began = time.monotonic()
    while not assigned:
        consumer.poll(0.01)
        if time.monotonic() - began > _WAIT_S:
            raise LoadFailed(f"no assignment after {_WAIT_S} s")
    consumer.close()
    return assigned[0] - began


def _fresh(protocol: str) -> Case:
    def measure(side: Side, _topic: str) -> Sample:
        node = side.fresh()
        node.spawn()
        node.wait_ready()
        try:
            producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
            producer.produce("first", b"x")
            producer.flush(_WAIT_S)
            return Sample(values=(_first_assignment(node.bootstrap, "first", "first", protocol),))
        finally:
            node.stop()

    return Case(
        title=f"first assignment on a fresh node, {protocol} protocol",
        metrics=(Metric(unit="s", better="less", bar=0.5),),
        measure=measure,
        partitions=0,
        group="assignment",
    )


def _warm(protocol: str, bar: float | None) -> Case:
    def measure(side: Side, topic: str) -> Sample:
        group = f"warm-{time.monotonic_ns()}"
        return Sample(values=(_first_assignment(side.node.bootstrap, topic, group, protocol),))

    return Case(
        title=f"first assignment on a warm node, {protocol} protocol",
        metrics=(Metric(unit="s", better="less", bar=bar),),
        measure=measure,
        group="assignment",
        times=3,
    )


def _warm_bare(side: Side, topic: str) -> Sample:
    """By the very requests that librdkafka sends, one after the other and without the pauses that it makes."""
    group = f"bare-{time.monotonic_ns()}"
    return Sample(values=(load.run("assign", port=side.port, topic=topic, group=group, times=BARE)["least_s"],))


# Rebalances.


def _classic_rebalance(side: Side, topic: str) -> Sample:
    """A group of a hundred is made, and then all of it joins again, a few times."""
    group = f"classic-{time.monotonic_ns()}"
    answer = load.run(
        "classic", port=side.port, topic=topic, group=group, members=MEMBERS, partitions=PARTITIONS, rounds=5
    )
    return Sample(values=(answer["first_s"], answer["median_s"]))


def _consumer_rebalance(interval_ms: int) -> Case:
    def measure(side: Side, topic: str) -> Sample:
        group = f"consumer-{time.monotonic_ns()}"
        _set_assignment_interval(side.port, group, interval_ms)
        answer = load.run("consumer", port=side.port, topic=topic, group=group, members=MEMBERS, partitions=PARTITIONS)
        return Sample(values=(answer["median_s"],))

    pace = f"at most one assignment in {interval_ms:,} ms" if interval_ms else "every change assigned at once"
    return Case(
        title=f"a new group of {MEMBERS} members × {PARTITIONS:,} partitions is stable, consumer protocol, {pace}",
        metrics=_NOT_SLOWER,
        measure=measure,
        partitions=PARTITIONS,
        group="rebalance",
        times=1 if interval_ms else 3,
    )


def _set_assignment_interval(port: int, group: str, interval_ms: int) -> None:
    config = AlterableConfig(name="consumer.assignment.interval.ms", config_operation=0, value=str(interval_ms))
    resource = AlterConfigsResource(resource_type=_GROUP_RESOURCE, resource_name=group, configs=[config])
    with WireClient(("127.0.0.1", port), timeout_s=_WAIT_S) as client:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        told = client.call(request, IncrementalAlterConfigsResponse, 1).responses[0]
    if told.error_code:
        raise LoadFailed(f"the group's interval cannot be set: error {told.error_code}: {told.error_message}")


# Offsets.


def _commits(side: Side, topic: str) -> Sample:
    before = servers.cpu_seconds(side.node.pid)
    answer = load.run("commit", port=side.port, topic=topic, connections=CONSUMERS, seconds=2, group="commits")
    return Sample(
        values=(answer["requests_s"],),
        server_cpu_s=servers.cpu_seconds(side.node.pid) - before,
        client_cpu=answer["client_cpu"],
    )


def _first_commit(side: Side, topic: str) -> None:
    """The coordinator is there, and has been asked before."""
    _await_coordinator(side.node.bootstrap, topic)
    load.run("commit", port=side.port, topic=topic, connections=CONSUMERS, seconds=2, group="commits")


def _await_coordinator(bootstrap: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "commits", "log_level": 0})
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            consumer.commit(offsets=[Place(topic, 0, 1)], asynchronous=False)
            break
        except Exception:
            if time.monotonic() > deadline:
                raise
    consumer.close()


def _load_million(side: Side, _topic: str) -> Sample:
    """A node whose coordinator holds a million offsets is ended and started: until the last group's are told."""
    node = side.fresh()
    node.spawn()
    node.wait_ready()
    try:
        wide = NewTopic("wide", num_partitions=PARTITIONS, replication_factor=1)
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        admin.create_topics([wide])["wide"].result(_WAIT_S)
        _await_coordinator(node.bootstrap, "wide")
        load.run(
            "commit", timeout=300, port=node.port, topic="wide", connections=4, groups=GROUPS, partitions=PARTITIONS
        )
        node.stop()
        began = time.monotonic()
        node.spawn()
        node.wait_ready()
        for group in range(0, GROUPS, GROUPS // 100):
            _await_offset(node.port, f"group-{group}")
        took = time.monotonic() - began
        return Sample(values=(took, servers.pss_bytes(node.pid) / 1e6))
    finally:
        node.stop()


def _await_offset(port: int, group: str) -> None:
    deadline = time.monotonic() + 2 * _WAIT_S
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    with WireClient(("127.0.0.1", port), timeout_s=_WAIT_S) as client:
        while True:
            found = client.call(request, OffsetFetchResponse, 9).groups[0]
            if not found.error_code:
                told = sum(len(topic.partitions) for topic in found.topics)
                if told != PARTITIONS:
                    raise LoadFailed(f"{told} offsets of {group} were found, not {PARTITIONS}")
                return
            if time.monotonic() > deadline:
                raise LoadFailed(f"the offsets of {group} are not told: error {found.error_code}")
            time.sleep(0.002)


# Transactions.


def _transactions(records: int) -> Case:
    def measure(side: Side, topic: str) -> Sample:
        producer = Producer(
            {
                "bootstrap.servers": side.node.bootstrap,
                "transactional.id": f"bench-{time.monotonic_ns()}",
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        producer.init_transactions(_WAIT_S)
        count, began = 0, time.monotonic()
        end = began + 3
        while time.monotonic() < end:
            producer.begin_transaction()
            for _ in range(records):
                producer.produce(topic, b"x" * 100, partition=0)
            producer.commit_transaction(_WAIT_S)
            count += 1
        return Sample(values=(count / (time.monotonic() - began),))

    return Case(
        title=f"transactions of {records:,} records",
        metrics=(Metric(unit="/s", bar=1.0),),
        measure=measure,
        group="transactions",
    )


def all_cases() -> list[Case]:
    return [
        *(_fresh(protocol) for protocol in ("classic", "consumer")),
        # Nobody can halve it: of librdkafka's own making are 50 ms on either side. The line after the next is without.
        _warm("classic", bar=None),
        _warm("consumer", bar=0.5),
        Case(
            title="first assignment on a warm node, classic protocol, without the client's own pause",
            metrics=(Metric(unit="s", better="less", bar=0.5),),
            measure=_warm_bare,
            group="assignment",
            times=3,
        ),
        Case(
            title=f"a group of {MEMBERS} members × {PARTITIONS:,} partitions, classic protocol",
            metrics=(
                Metric(name="new, until it is stable", unit="s", better="less", bar=1.0),
                Metric(name="all of it joins again, until it is stable", unit="s", better="less", bar=1.0),
            ),
            measure=_classic_rebalance,
            partitions=PARTITIONS,
            group="rebalance",
            times=3,
        ),
        _consumer_rebalance(0),
        _consumer_rebalance(DEFAULT_INTERVAL_MS),
        Case(
            title=f"offset commits from {CONSUMERS} consumers",
            metrics=(Metric(unit="/s", bar=1.0),),
            measure=_commits,
            prepare=_first_commit,
            group="offsets",
            times=2,
        ),
        *(_transactions(records) for records in (10, 1000)),
        Case(
            title="a coordinator with a million offsets",
            metrics=(
                Metric(name="from start to the last group's offsets", unit="s", better="less", bar=1.0),
                Metric(name="memory (PSS)", unit="MB", better="less", bar=1.0),
            ),
            measure=_load_million,
            partitions=0,
            group="offsets",
        ),
    ]


# Running.


def warm_up(sides: Sequence[Side]) -> None:
    """Long enough for a JVM to compile what is asked of it."""
    for side in sides:
        with side.topic("warm-up", 6) as topic:
            _first_commit(side, topic)
            for protocol in ("classic", "consumer"):
                _first_assignment(side.node.bootstrap, topic, f"warm-up-{protocol}", protocol)
            for records in (10, 1000):
                _transactions(records).measure(side, topic)


def run(options: argparse.Namespace, console: Console, scratch: Path) -> list[Result]:
    command = shlex.split(options.ottla) if options.ottla else ottla_command()
    with contextlib.ExitStack() as stack:
        tools = stack.enter_context(KafkaTools())
        sides = (
            OttlaSide(scratch / "ottla", command, series.COMPILED, _SETTINGS),
            KafkaSide(scratch / "kafka", tools, settings=_SETTINGS),
        )
        for side in sides:
            stack.callback(side.end)
        cases = series.chosen(all_cases(), options.only)
        return series.run_series(cases, sides, options.repetitions, console, warm_up=lambda tick: warm_up(sides))


COMMAND = series.Command(
    name="groups",
    description="Groups and transactions, side by side.",
    repetitions=REPETITIONS,
    cases=all_cases,
    run=run,
    facts=[
        "One node a side, with `group.initial.rebalance.delay.ms=0`; else as `ottla up` and Apache Kafka set "
        "themselves up (one partition of `__consumer_offsets` here, fifty there).",
        "The first assignment is librdkafka's, from its first poll. On a warm node that of the classic protocol is "
        "mostly its own pause, on either side: it closes its first connection, and opens one to another broker no "
        "sooner than 50 ms later (docs/groups.md), so that no server could be twice as quick and the line has no bar. "
        f"The one without the pause has the same requests, from a client in C; the quickest of {BARE} a run.",
        "The members of a group are bare connections of one process in C that speak the protocol and consume nothing "
        "(benchmarks/rawgroups.c). A group is stable when all members are of one generation, or epoch, and each has "
        "its share of the partitions. Classic ones send a heartbeat every 5 ms, the others every 20. All that join "
        "again do so at once: the median of five such rounds a run.",
        "Offset commits are requests of one partition each, one in flight a consumer, each consumer in a group of its "
        "own. Transactions are librdkafka's, 100 B a record, one after another.",
    ],
)


if __name__ == "__main__":
    sys.exit(COMMAND.main(sys.argv[1:]))
