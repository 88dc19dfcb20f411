"""A program on Spark's own Kafka connector, as a user has it: nothing in it knows of Ottla's format.

Arguments: bootstrap servers, a directory for checkpoints, the connector's jars. Writes a topic as a batch, reads it as
a batch, and copies it as a stream into another; says `midway` when the stream is, and goes on when a line comes in. The
last line that it prints is what it counted, as JSON. Driven by test_spark_connector.py.
"""

from __future__ import annotations

import json
import sys

from ottla.spark import session

ROWS = 4_000


def main(bootstrap: str, directory: str, jars: str) -> None:
    spark = session("connector", master="local[2]", config={"spark.jars": jars, "spark.sql.shuffle.partitions": "2"})

    def write(first: int) -> None:
        rows = spark.range(first, first + ROWS, numPartitions=2).selectExpr(
            "cast(id as string) key", "repeat('x', 100) value"
        )
        rows.write.format("kafka").options(**{"kafka.bootstrap.servers": bootstrap, "topic": "copied-from"}).save()

    def read(topic: str) -> dict[str, int]:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
        found = spark.read.format("kafka").options(**options).load().selectExpr("cast(key as string) key", "value")
        counted = found.selectExpr("count(*) rows", "count(distinct key) keys", "sum(length(value)) bytes").first()
        assert counted is not None
        return counted.asDict()

    write(0)
    batch = read("copied-from")
    source = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": "copied-from",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1000",
    }
    rows = spark.readStream.format("kafka").options(**source).load().select("key", "value")
    sink = {"kafka.bootstrap.servers": bootstrap, "topic": "copied-to", "checkpointLocation": f"{directory}/checkpoint"}
    query = rows.writeStream.format("kafka").options(**sink).start()
    while len(query.recentProgress) < 2:
        query.awaitTermination(1)
    print("midway", flush=True)
    sys.stdin.readline()
    write(ROWS)
    query.processAllAvailable()
    query.stop()
    print(json.dumps({"batch": batch, "from": read("copied-from"), "to": read("copied-to")}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
