"""Run by `test_standalone` as the driver of a Spark cluster: source and sink, batch and stream, on its executors.

Arguments: the master, the bootstrap address, and a directory that driver and executors share.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.spark import session

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 1000


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The directory of the executor, one for each."""
    import pyarrow as pa

    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"place": [os.getcwd()]})


def main(master: str, bootstrap: str, directory: str) -> None:
    spark = session(
        "on-standalone",
        master=master,
        config={"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2", "spark.cores.max": "2"},
    )
    cluster = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.range(ROWS, numPartitions=4).selectExpr("cast(id as string) key", "cast(id as string) value")
    rows.write.format("ottla").mode("append").options(**cluster, topic="from").save()
    read = spark.read.format("ottla").options(**cluster, subscribe="from").load()
    places = {row.place for row in read.mapInArrow(where, "place STRING").collect()}
    stream = spark.readStream.format("ottla").options(**cluster, subscribe="from", startingOffsets="earliest").load()
    writing = stream.select("key", "value").writeStream.format("ottla").options(**cluster, topic="to")
    query = writing.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    committed = {**cluster, "subscribe": "to", "kafka.isolation.level": "read_committed"}
    values = [int(row.value) for row in spark.read.format("ottla").options(**committed).load().collect()]
    print(json.dumps({"executors": len(places), "read": read.count(), "written": sorted(values)}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
