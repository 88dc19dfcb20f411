"""A leader dies while its partition is read: the next one is found, and nothing is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.spark.source.batch import BatchReader
from ottla.spark.source.options import SourceOptions
from ottla.spark.source.stream import StreamReader
from tests.cluster.harness import running_cluster

pytestmark = pytest.mark.slow


def test_a_leader_is_killed_midway(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        cluster.create_topic("orders")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 50})
        for number in range(1000):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(60) == 0
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "orders"}
        small = {"kafka.max.partition.fetch.bytes": "2000"}
        reader = BatchReader(SourceOptions.parse(given | small, streaming=False))
        stream = StreamReader(SourceOptions.parse(given | {"startingOffsets": "earliest"}, streaming=True))
        start = stream.initialOffset()
        (part,) = reader.partitions()
        reading = reader.read(part)
        found = next(reading).column("value").to_pylist()
        assert len(found) < 500
        cluster.kill(cluster.leader_of("orders"))
        for batch in reading:
            found += batch.column("value").to_pylist()
        assert found == [b"%d" % number for number in range(1000)]
        assert stream.latestOffset(start, stream.getDefaultReadLimit())["orders"] == {"0": 1000}
        stream.stop()
