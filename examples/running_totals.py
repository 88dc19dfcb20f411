"""A pipeline for Spark: what each city has ordered, minute by minute, from one topic into another.

    ottla pipeline run examples/running_totals.py

Reads JSON from the topic `orders-by-city`, counts in windows of a minute by the records' own time, and writes each
window to `totals` when it can change no more: once, also if the pipeline breaks off in the middle and is run again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ottla.spark.pipelines import to_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BOOTSTRAP = os.environ.get("BOOTSTRAP", "127.0.0.1:9092")
ORDERS = os.environ.get("ORDERS", "orders-by-city")
TOTALS = os.environ.get("TOTALS", "totals")


def pipeline(spark: SparkSession) -> DataFrame:
    from pyspark.sql import functions as F

    orders = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", ORDERS)
        .option("startingOffsets", "earliest")
        .load()
        .withColumn("order", F.from_json(F.col("value").cast("string"), "city STRING, amount LONG"))
        .withWatermark("timestamp", "1 minute")
    )
    totals = orders.groupBy(F.window("timestamp", "1 minute"), "order.city").agg(F.sum("order.amount").alias("amount"))
    return totals.select(
        F.col("city").alias("key"),
        F.to_json(F.struct(F.unix_millis("window.start").alias("minute_ms"), "city", "amount")).alias("value"),
    )


sink = to_topic(BOOTSTRAP, TOTALS)
