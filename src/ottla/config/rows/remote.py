"""Remote (tiered) storage."""

from __future__ import annotations

from ottla.config.key import ConfigKey as K
from ottla.config.key import Importance, NonEmpty, Range, Type, Update

BOOLEAN = Type.BOOLEAN
DOUBLE = Type.DOUBLE
INT = Type.INT
LONG = Type.LONG
STRING = Type.STRING
LOW = Importance.LOW
CLUSTER_WIDE = Update.CLUSTER_WIDE

# fmt: off
ROWS = (
    K("remote.log.storage.system.enable", BOOLEAN, "false",
      "Whether the broker offers remote (tiered) storage."),
    K("remote.log.storage.manager.class.name", STRING, None,
      "The class that stores segments remotely; the name is kept, but Ottla loads no classes.", rule=NonEmpty()),
    K("remote.log.storage.manager.class.path", STRING, None,
      "Class path of that class."),
    K("remote.log.storage.manager.impl.prefix", STRING, "rsm.config.",
      "Prefix of the keys that are passed to that class.", rule=NonEmpty()),
    K("remote.log.metadata.manager.class.name", STRING,
      "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
      "The class that keeps the metadata of remote segments; the name is kept, but Ottla loads no classes.",
      rule=NonEmpty()),
    K("remote.log.metadata.manager.class.path", STRING, None,
      "Class path of the metadata class."),
    K("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.",
      "Prefix of the keys that are passed to the metadata class.", rule=NonEmpty()),
    K("remote.log.metadata.manager.listener.name", STRING, None,
      "The listener over which the metadata class reaches this broker.", rule=NonEmpty()),
    K("remote.log.metadata.custom.metadata.max.bytes", INT, "128",
      "The most metadata of its own that a storage class may attach to a segment.", rule=Range(0), importance=LOW),
    K("remote.log.index.file.cache.total.size.bytes", LONG, "1073741824",
      "Disk space for indexes fetched from remote storage.", rule=Range(1), importance=LOW, update=CLUSTER_WIDE),
    K("remote.log.index.file.cache.ttl.ms", LONG, "900000",
      "How long an unused remote index stays cached; -1 for ever.", rule=Range(-1), importance=LOW, internal=True),
    K("remote.log.manager.thread.pool.size", INT, "2",
      "The former size of the pool that follows remote offsets.", rule=Range(1)),
    K("remote.log.manager.follower.thread.pool.size", INT, "2",
      "Workers that learn, for followers, how far segments have been copied.", rule=Range(1), update=CLUSTER_WIDE),
    K("remote.log.manager.copier.thread.pool.size", INT, "10",
      "Workers that copy segments to remote storage.", rule=Range(1), update=CLUSTER_WIDE),
    K("remote.log.manager.expiration.thread.pool.size", INT, "10",
      "Workers that delete expired remote segments.", rule=Range(1), update=CLUSTER_WIDE),
    K("remote.log.manager.task.interval.ms", LONG, "30000",
      "How often segments to copy and to delete are looked for.", rule=Range(1), importance=LOW),
    K("remote.log.manager.task.retry.backoff.ms", LONG, "500",
      "First pause after a remote task failed.", rule=Range(1), importance=LOW, internal=True),
    K("remote.log.manager.task.retry.backoff.max.ms", LONG, "30000",
      "The longest pause after a remote task failed.", rule=Range(1), importance=LOW, internal=True),
    K("remote.log.manager.task.retry.jitter", DOUBLE, "0.2",
      "Random share of that pause.", rule=Range(0, 0.5), importance=LOW, internal=True),
    K("remote.log.reader.threads", INT, "10",
      "Workers that read from remote storage.", rule=Range(1), update=CLUSTER_WIDE),
    K("remote.log.reader.max.pending.tasks", INT, "100",
      "The most remote reads that wait; further ones fail.", rule=Range(1)),
    K("remote.log.manager.copy.max.bytes.per.second", LONG, "9223372036854775807",
      "The most bytes copied to remote storage a second.", rule=Range(1), update=CLUSTER_WIDE),
    K("remote.log.manager.copy.quota.window.num", INT, "11",
      "Samples over which the copying rate is measured.", rule=Range(1)),
    K("remote.log.manager.copy.quota.window.size.seconds", INT, "1",
      "Length of a sample of the copying rate.", rule=Range(1)),
    K("remote.log.manager.fetch.max.bytes.per.second", LONG, "9223372036854775807",
      "The most bytes fetched from remote storage a second.", rule=Range(1), update=CLUSTER_WIDE),
    K("remote.log.manager.fetch.quota.window.num", INT, "11",
      "Samples over which the fetching rate is measured.", rule=Range(1)),
    K("remote.log.manager.fetch.quota.window.size.seconds", INT, "1",
      "Length of a sample of the fetching rate.", rule=Range(1)),
    K("remote.fetch.max.wait.ms", INT, "500",
      "How long a fetch may wait for remote storage.", rule=Range(1), update=CLUSTER_WIDE),
    K("remote.list.offsets.request.timeout.ms", LONG, "30000",
      "How long a ListOffsets request may wait for remote storage.", rule=Range(1), update=CLUSTER_WIDE),
    K("log.local.retention.ms", LONG, "-2",
      "Age at which local segments that remote storage holds may go; -2 takes the topic's whole retention.",
      rule=Range(-2), update=CLUSTER_WIDE),
    K("log.local.retention.bytes", LONG, "-2",
      "Local size above which segments that remote storage holds may go; -2 takes the topic's whole retention.",
      rule=Range(-2), update=CLUSTER_WIDE),
)
