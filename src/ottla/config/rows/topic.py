"""Keys of a topic."""

from __future__ import annotations

from ottla.config.key import ConfigKey as K
from ottla.config.key import GzipLevel, ListOf, OneOf, Range, ThrottledReplicas, Type

BOOLEAN = Type.BOOLEAN
DOUBLE = Type.DOUBLE
INT = Type.INT
LIST = Type.LIST
LONG = Type.LONG
STRING = Type.STRING

# fmt: off
ROWS = (
    K("cleanup.policy", LIST, "delete",
      "`delete` removes old segments, `compact` keeps the last value of each key; both may be set, or neither.",
      rule=ListOf(("compact", "delete"))),
    K("compression.type", STRING, "producer",
      "How batches are compressed on disk: a codec, `uncompressed`, or `producer` to keep what the producer chose.",
      rule=OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))),
    K("compression.gzip.level", INT, "-1",
      "Level used where the broker compresses with gzip, -1 for the codec's own default.", rule=GzipLevel()),
    K("compression.lz4.level", INT, "9",
      "Level used where the broker compresses with lz4.", rule=Range(1, 17)),
    K("compression.zstd.level", INT, "3",
      "Level used where the broker compresses with zstd.", rule=Range(-131072, 22)),
    K("delete.retention.ms", LONG, "86400000",
      "How long a compacted topic keeps tombstones and end-of-transaction markers.", rule=Range(0)),
    K("file.delete.delay.ms", LONG, "60000",
      "Time between marking a file as deleted and removing it.", rule=Range(0)),
    K("flush.messages", LONG, "9223372036854775807",
      "Records that may be written to a partition before it is synced to disk; 1 syncs each append.", rule=Range(1)),
    K("flush.ms", LONG, "9223372036854775807",
      "Time a record may wait before its partition is synced to disk.", rule=Range(0)),
    K("follower.replication.throttled.replicas", LIST, "",
      "Replicas, as partition:broker, that are throttled when they fetch; `*` for all.", rule=ThrottledReplicas()),
    K("leader.replication.throttled.replicas", LIST, "",
      "Replicas, as partition:broker, that are throttled when they send; `*` for all.", rule=ThrottledReplicas()),
    K("index.interval.bytes", INT, "4096",
      "Bytes of batches between two entries of the offset index.", rule=Range(0)),
    K("internal.segment.bytes", INT, None,
      "Overrides `segment.bytes` without its lower bound; meant for tests.", internal=True),
    K("local.retention.bytes", LONG, "-2",
      "Local size above which segments that remote storage holds may go; -2 takes `retention.bytes`.", rule=Range(-2)),
    K("local.retention.ms", LONG, "-2",
      "Age at which local segments that remote storage holds may go; -2 takes `retention.ms`.", rule=Range(-2)),
    K("max.compaction.lag.ms", LONG, "9223372036854775807",
      "Age above which a record makes its log due for compaction.", rule=Range(1)),
    K("max.message.bytes", INT, "1048588",
      "The largest batch that the topic accepts.", rule=Range(0)),
    K("message.timestamp.after.max.ms", LONG, "3600000",
      "How far a record's timestamp may lie ahead of the broker's clock.", rule=Range(0)),
    K("message.timestamp.before.max.ms", LONG, "9223372036854775807",
      "How far a record's timestamp may lie behind the broker's clock.", rule=Range(0)),
    K("message.timestamp.type", STRING, "CreateTime",
      "Whether a record keeps its producer's timestamp or gets the broker's: `CreateTime` or `LogAppendTime`.",
      rule=OneOf(("CreateTime", "LogAppendTime"))),
    K("min.cleanable.dirty.ratio", DOUBLE, "0.5",
      "Share of a log that must be uncompacted before compaction is worth it.", rule=Range(0, 1)),
    K("min.compaction.lag.ms", LONG, "0",
      "Age below which a record is never compacted away.", rule=Range(0)),
    K("min.insync.replicas", INT, "1",
      "Replicas that must be in sync for a write with acks=all to be taken.", rule=Range(1)),
    K("preallocate", BOOLEAN, "false",
      "Whether a new segment reserves its whole size on disk."),
    K("remote.log.copy.disable", BOOLEAN, "false",
      "Whether segments stop being copied to remote storage, which then is only read."),
    K("remote.log.delete.on.disable", BOOLEAN, "false",
      "Whether turning remote storage off deletes what it holds."),
    K("remote.storage.enable", BOOLEAN, "false",
      "Whether the topic's old segments go to remote storage."),
    K("retention.bytes", LONG, "-1",
      "Size of a partition above which its oldest segments are deleted, -1 for no limit."),
    K("retention.ms", LONG, "604800000",
      "Age at which segments may be deleted, -1 for never.", rule=Range(-1)),
    K("segment.bytes", INT, "1073741824",
      "Size at which a segment is closed and another begun.", rule=Range(1048576)),
    K("segment.index.bytes", INT, "10485760",
      "The largest offset or time index of a segment.", rule=Range(4)),
    K("segment.jitter.ms", LONG, "0",
      "The most by which a segment's age limit is shortened at random.", rule=Range(0)),
    K("segment.ms", LONG, "604800000",
      "Age at which a segment is closed and another begun.", rule=Range(1)),
    K("unclean.leader.election.enable", BOOLEAN, "false",
      "Whether a replica that may miss acknowledged records may lead when no other can."),
)
