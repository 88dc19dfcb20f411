"""A streaming query that copies lines of files into a topic, exactly once, as a user has it.

Arguments: bootstrap servers, topic, directory with the files, checkpoint. Driven by test_sink_drivers.py, which kills
it with everything that belongs to it.
"""

from __future__ import annotations

import sys

from ottla.spark import session


def main(bootstrap: str, topic: str, source: str, checkpoint: str) -> None:
    spark = session("copy", master="local[2,4]", config={"spark.sql.shuffle.partitions": "2"})
    lines = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).text(source).repartition(2)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "checkpointLocation": checkpoint}
    query = lines.writeStream.format("ottla").options(**options).trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
