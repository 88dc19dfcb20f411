"""The sink on three nodes, of which the leader of a partition, then the coordinator, are killed in mid batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.spark.sink.connections import connections
from ottla.spark.sink.decision_log import DEFAULT_TOPIC, claim_id
from ottla.spark.sink.handover import TaskResult
from tests.cluster.harness import Cluster, running_cluster
from tests.spark.sink_world import Query, committed, set_transaction_version

pytestmark = pytest.mark.slow

TOPIC = "orders"


@pytest.fixture(params=[2, pytest.param(1, marks=pytest.mark.long)], ids=["version2", "version1"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """With that level of `transaction.version`."""
    with running_cluster(tmp_path) as running:
        if request.param != 2:
            set_transaction_version(running.bootstrap, request.param)
        running.create_topic(TOPIC, partitions=1, min_insync_replicas="2")
        yield running


def test_leaders_and_coordinators_die_between_the_two_phases(cluster: Cluster) -> None:
    query = Query(cluster.bootstrap, TOPIC)
    query.run_batch(0)
    coordination = connections(query.sink_options.client).coordination

    def kill_before_commit(batch_id: int, node_id: int) -> None:
        """The batch is staged when the node dies, and committed without it."""
        results: list[TaskResult | None] = []
        opened = query.open()
        results += [query.run_task(opened, batch_id, task) for task in range(query.tasks)]
        cluster.kill(node_id)
        query.commit(results)
        cluster.restart(node_id)
        cluster.wait_in_sync(TOPIC, cluster.nodes)

    kill_before_commit(1, cluster.leader_of(TOPIC))
    kill_before_commit(2, cluster.leader_of(DEFAULT_TOPIC))
    kill_before_commit(3, coordination.coordinator(claim_id(query.sink)))
    query.run_batch(4)
    assert committed(cluster.bootstrap, TOPIC, 1) == query.expected(5)
