"""Run by `test_standalone` as the driver of a Spark cluster that runs copies of slow tasks: the first attempt at a task
waits for its copy, which stands still in mid transaction, and wins.

Arguments: the master, the bootstrap address, the topic, and a directory that driver and executors share.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.spark import session

if TYPE_CHECKING:
    import pyarrow as pa

SINK = "speculating"
TASKS = 2
ROWS = 45_000
"""Of each task. Spark hands them on by the ten thousand: some of a task that stands still have gone on."""
PATIENCE_S = 300.0


def value(task: int, row: int) -> str:
    return f"{task}/{row:0100}"


def rows_of(bootstrap: str, directory: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for _ in batches:
            pass
        task, is_copy = context.partitionId(), context.attemptNumber() > 0
        if task == 0 and not is_copy:
            wait_for_the_copy(bootstrap)
        yield pa.RecordBatch.from_pydict({"value": [value(task, row) for row in range(ROWS)]})
        if is_copy:
            Path(directory, "copied").touch()
            time.sleep(PATIENCE_S)  # It is killed long before.

    return rows


def wait_for_the_copy(bootstrap: str) -> None:
    """Until it has begun its transaction, as the other task has."""
    from ottla.spark.sink.connections import connections
    from ottla.spark.sink.decision_log import task_prefix
    from ottla.spark.sink.options import SinkOptions

    coordination = connections(SinkOptions.parse({"kafka.bootstrap.servers": bootstrap}).client).coordination
    deadline_s = time.monotonic() + PATIENCE_S
    while len(coordination.open_under(task_prefix(SINK))) < TASKS:
        assert time.monotonic() < deadline_s, "no copy has come"
        time.sleep(0.1)


def main(master: str, bootstrap: str, topic: str, directory: str) -> None:
    spark = session(
        "on-speculation",
        master=master,
        config={
            "spark.executor.memory": "512m",
            "spark.cores.max": "2",
            "spark.speculation": "true",
            "spark.speculation.quantile": "0.5",
        },
    )
    to = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "sinkId": SINK}
    before = spark.range(1).selectExpr("'before' value")
    before.write.format("ottla").mode("append").options(**to, batchId="0").save()
    rows = spark.range(TASKS, numPartitions=TASKS).mapInArrow(rows_of(bootstrap, directory), "value STRING")
    rows.write.format("ottla").mode("append").options(**to, batchId="1").save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
