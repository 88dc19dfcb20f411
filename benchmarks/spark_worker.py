"""A Spark session that does as it is told: one JSON command a line on its standard input, one answer a line on its
standard output. Both formats run in it, Ottla's and Spark's own, so that they share a JVM and what it has compiled.

`python -m benchmarks.spark_worker MASTER JARS [--keep-classes]`, driven by `benchmarks.spark`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Options = Mapping[str, str]

PATIENCE_S = 300


class Worker:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, format: str, options: Options) -> dict[str, float]:
        """All records, each value looked at."""
        frame = self._spark.read.format(format).options(**options).load()
        seen = frame.selectExpr("count(1) rows", "sum(length(value)) bytes", "max(offset)", "max(timestamp)")
        began = time.perf_counter()
        (row,) = seen.collect()
        return {"seconds": time.perf_counter() - began, "rows": row.rows, "bytes": row.bytes or 0}

    def write(self, format: str, options: Options, rows: int, size: int, parts: int) -> dict[str, float]:
        """Rows with a key and a value of `size` bytes in all, made as they are written."""
        frame = self._spark.range(0, rows, numPartitions=parts).selectExpr(
            "lpad(cast(id as string), 8, '0') key",
            f"rpad(concat(hex(id * 7919), hex(id * 104729), hex(id)), {size - 8}, 'ottla') value",
        )
        began = time.perf_counter()
        frame.write.format(format).mode("append").options(**options).save()
        return {"seconds": time.perf_counter() - began}

    def latency(
        self, format: str, options: Options, sink: str, sink_options: Options, batches: int
    ) -> dict[str, float]:
        """The median duration of micro-batches of one record each."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": options["kafka.bootstrap.servers"], "linger.ms": 0})

        def feed(query: StreamingQuery) -> None:
            producer.produce(options["subscribe"], b"one")
            producer.flush(60)
            query.processAllAvailable()

        frame = self._spark.readStream.format(format).options(**{**options, "startingOffsets": "latest"}).load()
        return self._median_of(frame.select("key", "value"), sink, sink_options, feed, batches)

    def rate(self, batches: int) -> dict[str, float]:
        """The same of Spark's own generator, into nothing: what a micro-batch costs whatever it reads."""
        frame = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        return self._median_of(frame, "noop", {}, lambda query: time.sleep(0.05), batches)

    def _median_of(
        self,
        frame: DataFrame,
        sink: str,
        sink_options: Options,
        feed: Callable[[StreamingQuery], None],
        batches: int,
    ) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as checkpoint:
            writing = frame.writeStream.format(sink).options(**sink_options).option("checkpointLocation", checkpoint)
            query = writing.start()
            found: dict[int, int] = {}
            deadline = time.monotonic() + PATIENCE_S
            try:
                while len(found) < batches:
                    assert query.isActive, query.exception()
                    assert time.monotonic() < deadline, "the stream does not move"
                    feed(query)
                    for each in query.recentProgress:
                        if each.numInputRows == 1:
                            found[each.batchId] = each.durationMs["triggerExecution"]
            finally:
                query.stop()
        settled = [found[batch] for batch in sorted(found)][batches // 4 :]
        return {"p50_ms": statistics.median(settled)}


def main(master: str, jars: str, *flags: str) -> None:
    config = {"spark.jars": jars, "spark.driver.memory": "2g"}
    spark = session("bench", master=master, config=config, keep_classes="--keep-classes" in flags)
    worker = Worker(spark)
    known: dict[str, Callable[..., dict[str, float]]] = {
        "read": worker.read,
        "write": worker.write,
        "latency": worker.latency,
        "rate": worker.rate,
    }
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # Whatever else is printed is no answer.
        for line in sys.stdin:
            command: dict[str, Any] = json.loads(line)
            answer: dict[str, Any]
            try:
                answer = known[command.pop("do")](**command)
            except Exception as error:
                answer = {"failure": f"{type(error).__name__}: {error}"[:2000]}
            print(json.dumps(answer), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
