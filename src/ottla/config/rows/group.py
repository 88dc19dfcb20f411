"""Keys of a group."""

from __future__ import annotations

from ottla.config.key import ConfigKey as K
from ottla.config.key import OneOf, Range, ShareOffsetReset, Type

BOOLEAN = Type.BOOLEAN
INT = Type.INT
STRING = Type.STRING

# fmt: off
ROWS = (
    K("consumer.session.timeout.ms", INT, "45000",
      "How long a consumer may be silent before the group goes on without it.", rule=Range(1)),
    K("consumer.heartbeat.interval.ms", INT, "5000",
      "How often members of the consumer group report.", rule=Range(1)),
    K("consumer.assignment.interval.ms", INT, "1000",
      "The least time between two new assignments of the consumer group.", rule=Range(0)),
    K("share.session.timeout.ms", INT, "45000",
      "How long a member of the share group may be silent before the group goes on without it.", rule=Range(1)),
    K("share.heartbeat.interval.ms", INT, "5000",
      "How often members of the share group report.", rule=Range(1)),
    K("share.assignment.interval.ms", INT, "1000",
      "The least time between two new assignments of the share group.", rule=Range(0)),
    K("share.auto.offset.reset", STRING, "latest",
      "Where a share group starts in a new partition: an end of the log, or a duration back from now.",
      rule=ShareOffsetReset()),
    K("share.delivery.count.limit", INT, "5",
      "How often a record is delivered before it is given up.", rule=Range(2)),
    K("share.isolation.level", STRING, "read_uncommitted",
      "Whether share consumers see records of transactions that are not committed.",
      rule=OneOf(("read_committed", "read_uncommitted"))),
    K("share.partition.max.record.locks", INT, "2000",
      "The most records of a partition that are delivered but not yet settled.", rule=Range(100)),
    K("share.record.lock.duration.ms", INT, "30000",
      "How long a consumer holds a delivered record before others may have it.", rule=Range(1000)),
    K("share.renew.acknowledge.enable", BOOLEAN, "true",
      "Whether consumers may extend their hold on a record."),
    K("streams.session.timeout.ms", INT, "45000",
      "How long a member of the streams group may be silent before the group goes on without it.", rule=Range(1)),
    K("streams.heartbeat.interval.ms", INT, "5000",
      "How often members of the streams group report.", rule=Range(1)),
    K("streams.assignment.interval.ms", INT, "1000",
      "The least time between two new assignments of the streams group.", rule=Range(0)),
    K("streams.initial.rebalance.delay.ms", INT, "3000",
      "How long a new streams group waits for more members before its first assignment.", rule=Range(0)),
    K("streams.num.standby.replicas", INT, "0",
      "Standby copies of each stateful task.", rule=Range(0)),
)
