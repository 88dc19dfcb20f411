"""Quotas, throttles and metrics."""

from __future__ import annotations

from ottla.config.key import ConfigKey as K
from ottla.config.key import Importance, ListOf, Range, Type, Update

CLASS = Type.CLASS
INT = Type.INT
LIST = Type.LIST
LONG = Type.LONG
STRING = Type.STRING
LOW = Importance.LOW
CLUSTER_WIDE = Update.CLUSTER_WIDE

# fmt: off
ROWS = (
    K("quota.window.num", INT, "11",
      "Samples over which client quotas are measured.", rule=Range(1), importance=LOW),
    K("quota.window.size.seconds", INT, "1",
      "Length of a sample of client quotas.", rule=Range(1), importance=LOW),
    K("replication.quota.window.num", INT, "11",
      "Samples over which replication throttles are measured.", rule=Range(1), importance=LOW),
    K("replication.quota.window.size.seconds", INT, "1",
      "Length of a sample of replication throttles.", rule=Range(1), importance=LOW),
    K("alter.log.dirs.replication.quota.window.num", INT, "11",
      "Samples over which moves between directories are measured.", rule=Range(1), importance=LOW),
    K("alter.log.dirs.replication.quota.window.size.seconds", INT, "1",
      "Length of a sample of moves between directories.", rule=Range(1), importance=LOW),
    K("controller.quota.window.num", INT, "11",
      "Samples over which the rate of changes to the cluster is measured.", rule=Range(1), importance=LOW),
    K("controller.quota.window.size.seconds", INT, "1",
      "Length of a sample of the rate of changes to the cluster.", rule=Range(1), importance=LOW),
    K("client.quota.callback.class", CLASS, None,
      "A class that decides quotas; the name is kept, but Ottla loads no classes.", importance=LOW),
    K("leader.replication.throttled.rate", LONG, "9223372036854775807",
      "The most bytes a second that this leader sends to throttled replicas.",
      rule=Range(0), update=CLUSTER_WIDE, dynamic_only=True),
    K("follower.replication.throttled.rate", LONG, "9223372036854775807",
      "The most bytes a second that this follower fetches for throttled replicas.",
      rule=Range(0), update=CLUSTER_WIDE, dynamic_only=True),
    K("replica.alter.log.dirs.io.max.bytes.per.second", LONG, "9223372036854775807",
      "The most bytes a second that moves between directories use.",
      rule=Range(0), update=CLUSTER_WIDE, dynamic_only=True),
    K("metric.reporters", LIST, "org.apache.kafka.common.metrics.JmxReporter",
      "Classes that report metrics in Apache Kafka; Ottla answers Prometheus itself and loads none.",
      rule=ListOf(), importance=LOW, update=CLUSTER_WIDE),
    K("metrics.num.samples", INT, "2",
      "Samples over which metrics are computed in Apache Kafka.", rule=Range(1), importance=LOW),
    K("metrics.sample.window.ms", LONG, "30000",
      "Length of a sample of metrics in Apache Kafka.", rule=Range(1), importance=LOW),
    K("metrics.recording.level", STRING, "INFO",
      "The finest level of metrics that are recorded in Apache Kafka.", importance=LOW),
    K("kafka.metrics.reporters", LIST, "",
      "Yammer reporters of Apache Kafka; Ottla loads none.", rule=ListOf(), importance=LOW),
    K("kafka.metrics.polling.interval.secs", INT, "10",
      "Interval that those reporters may use.", rule=Range(1), importance=LOW),
)
