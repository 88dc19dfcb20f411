"""Replicas, in-sync sets and requests that wait."""

from __future__ import annotations

from ottla.config.key import ConfigKey as K
from ottla.config.key import Importance, Range, Type, Update

BOOLEAN = Type.BOOLEAN
INT = Type.INT
LONG = Type.LONG
STRING = Type.STRING
HIGH = Importance.HIGH
CLUSTER_WIDE = Update.CLUSTER_WIDE

# fmt: off
ROWS = (
    K("default.replication.factor", INT, "1",
      "Replicas of a topic whose creator names no number."),
    K("min.insync.replicas", INT, "1",
      "Replicas that must be in sync for a write with acks=all to be taken.",
      rule=Range(1), importance=HIGH, update=CLUSTER_WIDE),
    K("unclean.leader.election.enable", BOOLEAN, "false",
      "Whether a replica that may miss acknowledged records may lead when no other can.",
      importance=HIGH, update=CLUSTER_WIDE),
    K("unclean.leader.election.interval.ms", LONG, "300000",
      "How often the controller looks for partitions without a leader that an unclean election would help.",
      rule=Range(1), internal=True),
    K("replica.lag.time.max.ms", LONG, "30000",
      "A follower that has not caught up with the leader's end for this long leaves the in-sync set.", importance=HIGH),
    K("replica.socket.timeout.ms", INT, "30000",
      "How long a follower's fetch may take on the network.", importance=HIGH),
    K("replica.socket.receive.buffer.bytes", INT, "65536",
      "Receive buffer of the connections that followers fetch over.", importance=HIGH),
    K("replica.fetch.max.bytes", INT, "1048576",
      "Bytes that a follower asks for from one partition.", rule=Range(0)),
    K("replica.fetch.response.max.bytes", INT, "10485760",
      "Bytes that a follower asks for in one response.", rule=Range(0)),
    K("replica.fetch.wait.max.ms", INT, "500",
      "How long a leader may hold a follower's fetch back while there is too little data.", importance=HIGH),
    K("replica.fetch.min.bytes", INT, "1",
      "Bytes that must be there before a follower's fetch is answered early.", importance=HIGH),
    K("replica.fetch.backoff.ms", INT, "1000",
      "Pause of a follower after a partition could not be fetched.", rule=Range(0)),
    K("replica.high.watermark.checkpoint.interval.ms", LONG, "5000",
      "How often high watermarks are recorded on disk.", importance=HIGH),
    K("replica.selector.class", STRING, None,
      "Which replica a consumer is told to read from; the names of Kafka's own selectors are understood."),
    K("num.replica.fetchers", INT, "1",
      "Fetchers a source broker that copy from it.", rule=Range(1), importance=HIGH, update=CLUSTER_WIDE),
    K("num.replica.alter.log.dirs.threads", INT, None,
      "Workers that move replicas between directories in Apache Kafka; here one task moves all.", importance=HIGH),
    K("auto.leader.rebalance.enable", BOOLEAN, "true",
      "Whether leaderships return to the preferred replicas by themselves.", importance=HIGH),
    K("leader.imbalance.check.interval.seconds", LONG, "300",
      "How often the controller looks for leaders that are not the preferred replica.", rule=Range(1), importance=HIGH),
    K("fetch.purgatory.purge.interval.requests", INT, "1000",
      "Finished fetches that may pile up in Apache Kafka's purgatory; Ottla's lets go of each at once."),
    K("producer.purgatory.purge.interval.requests", INT, "1000",
      "Finished produce requests that may pile up in Apache Kafka's purgatory; Ottla's lets go of each at once."),
    K("delete.records.purgatory.purge.interval.requests", INT, "1",
      "Finished DeleteRecords requests that may pile up in Apache Kafka's purgatory; Ottla's lets go of each at once."),
    K("share.fetch.purgatory.purge.interval.requests", INT, "1000",
      "Finished share fetches that may pile up in Apache Kafka's purgatory; Ottla's lets go of each at once."),
    K("follower.fetch.last.tiered.offset.enable", BOOLEAN, "false",
      "Whether an empty follower starts behind the last offset in remote storage instead of copying everything.",
      update=CLUSTER_WIDE),
)
