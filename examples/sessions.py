"""Sessions of users: which of their clicks belong together, because no more than half an hour lies between them.

    ottla pipeline run examples/sessions.py

Reads the topic `clicks`, whose keys are users and whose timestamps say when. A session is over when the clock of the
stream, its watermark, is half an hour past the last click: then a timer goes off, and the session goes to the topic
`sessions`, once, as JSON. Clicks may come out of order; those that join two sessions make them one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ottla.spark.pipelines import to_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessorHandle, TimerValues

BOOTSTRAP = os.environ.get("BOOTSTRAP", "127.0.0.1:9092")
CLICKS = os.environ.get("CLICKS", "clicks")
SESSIONS = os.environ.get("SESSIONS", "sessions")
GAP_MS = 30 * 60 * 1000

Session = tuple[int, int, int]
"""The first click, the last, and how many."""


def joined(sessions: list[Session], at_ms: int) -> list[Session]:
    """The sessions with one click more: it makes one of all that it is close to."""
    near = [each for each in sessions if each[0] - GAP_MS <= at_ms <= each[1] + GAP_MS]
    far = [each for each in sessions if each not in near]
    first = min(at_ms, *(each[0] for each in near)) if near else at_ms
    last = max(at_ms, *(each[1] for each in near)) if near else at_ms
    return sorted([*far, (first, last, 1 + sum(each[2] for each in near))])


class Sessions(StatefulProcessor):
    """What is open of each user, and a timer for the end of each."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open = handle.getListState("open", "first LONG, last LONG, clicks INT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        sessions: list[Session] = [(each[0], each[1], each[2]) for each in self._open.get()]
        for row in rows:
            sessions = joined(sessions, row.at_ms)
        self._open.put(sessions)
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        for _, last, _ in sessions:
            self._handle.registerTimer(last + GAP_MS)
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        over_ms = expiredTimerInfo.getExpiryTimeInMs() - GAP_MS
        still_open: list[Session] = []
        for first, last, clicks in self._open.get():
            if last <= over_ms:
                yield Row(user=key[0], first_ms=first, last_ms=last, clicks=clicks)
            else:
                still_open.append((first, last, clicks))
        if still_open:
            self._open.put(still_open)
        else:
            self._open.clear()


def pipeline(spark: SparkSession) -> DataFrame:
    from pyspark.sql import functions as F

    # State with timers is kept in RocksDB, which comes with Spark.
    rocks = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", rocks)
    clicks = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", CLICKS)
        .option("startingOffsets", "earliest")
        .load()
        .select(F.col("key").cast("string").alias("user"), "timestamp", F.unix_millis("timestamp").alias("at_ms"))
        .withWatermark("timestamp", "1 minute")
    )
    sessions = clicks.groupBy("user").transformWithState(
        statefulProcessor=Sessions(),
        outputStructType="user STRING, first_ms LONG, last_ms LONG, clicks INT",
        outputMode="Append",
        timeMode="EventTime",
    )
    return sessions.select(
        F.col("user").alias("key"), F.to_json(F.struct("user", "first_ms", "last_ms", "clicks")).alias("value")
    )


sink = to_topic(BOOTSTRAP, SESSIONS)
