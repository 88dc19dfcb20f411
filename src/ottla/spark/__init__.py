"""Topics as DataFrames: a source and a sink for PySpark that need no jar, and serve any Kafka cluster.

PySpark finds the format by itself (`pyspark_ottla`, `format`), in the driver and in every executor:

    spark.read.format("ottla").option("kafka.bootstrap.servers", …).option("subscribe", "orders").load()

`source/` reads and `sink/` writes; `avro/` has typed columns, `pipelines/` what `ottla pipeline` runs, and `sql` is the
way from a query to topics. `session` makes a quiet local session. Executors load a small tree: this room, `client`,
`records`, `wire`, `runtime`, and never the server.
"""

from __future__ import annotations

from ottla.spark.session import session
from ottla.spark.versions import SparkUnavailable

__all__ = ["SparkUnavailable", "session"]
