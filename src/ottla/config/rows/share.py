"""Share groups and the share coordinator."""

from __future__ import annotations

from ottla.config.key import ConfigKey as K
from ottla.config.key import Importance, ListOf, Range, Type, Update

INT = Type.INT
LIST = Type.LIST
SHORT = Type.SHORT
STRING = Type.STRING
HIGH = Importance.HIGH
LOW = Importance.LOW
CLUSTER_WIDE = Update.CLUSTER_WIDE

# fmt: off
ROWS = (
    K("group.share.session.timeout.ms", INT, "45000",
      "How long a member of a share group may be silent before the group goes on without it.", rule=Range(1)),
    K("group.share.min.session.timeout.ms", INT, "45000",
      "The shortest session timeout that a share group may be given.", rule=Range(1)),
    K("group.share.max.session.timeout.ms", INT, "60000",
      "The longest session timeout that a share group may be given.", rule=Range(1)),
    K("group.share.heartbeat.interval.ms", INT, "5000",
      "How often members of a share group report.", rule=Range(1)),
    K("group.share.min.heartbeat.interval.ms", INT, "5000",
      "The shortest heartbeat interval that a share group may be given.", rule=Range(1)),
    K("group.share.max.heartbeat.interval.ms", INT, "15000",
      "The longest heartbeat interval that a share group may be given.", rule=Range(1)),
    K("group.share.max.size", INT, "200",
      "The most members of a share group.", rule=Range(1, 1000)),
    K("group.share.max.share.sessions", INT, "2000",
      "The most share sessions on one broker.", rule=Range(1)),
    K("group.share.assignors", LIST, "simple",
      "The assignor of share groups.", rule=ListOf(may_be_empty=False)),
    K("group.share.delivery.count.limit", INT, "5",
      "How often a record is delivered to a share group before it is given up.", rule=Range(2, 10)),
    K("group.share.min.delivery.count.limit", INT, "2",
      "The lowest delivery limit that a share group may be given.", rule=Range(2, 5)),
    K("group.share.max.delivery.count.limit", INT, "10",
      "The highest delivery limit that a share group may be given.", rule=Range(5, 25)),
    K("group.share.record.lock.duration.ms", INT, "30000",
      "How long a consumer holds a delivered record before others may have it.", rule=Range(1000, 3600000)),
    K("group.share.min.record.lock.duration.ms", INT, "15000",
      "The shortest lock that a share group may be given.", rule=Range(1000, 30000)),
    K("group.share.max.record.lock.duration.ms", INT, "60000",
      "The longest lock that a share group may be given.", rule=Range(30000, 3600000)),
    K("group.share.partition.max.record.locks", INT, "2000",
      "The most records of a share partition that are delivered but not yet settled.", rule=Range(100, 10000)),
    K("group.share.min.partition.max.record.locks", INT, "100",
      "The lowest limit of locks that a share group may be given.", rule=Range(100, 2000)),
    K("group.share.max.partition.max.record.locks", INT, "4000",
      "The highest limit of locks that a share group may be given.", rule=Range(2000, 10000)),
    K("group.share.assignment.interval.ms", INT, "1000",
      "The least time between two new assignments of a share group.", rule=Range(0), update=CLUSTER_WIDE),
    K("group.share.min.assignment.interval.ms", INT, "0",
      "The lowest assignment interval that a share group may be given.", rule=Range(0)),
    K("group.share.max.assignment.interval.ms", INT, "15000",
      "The highest assignment interval that a share group may be given.", rule=Range(0)),
    K("group.share.initialize.retry.interval.ms", INT, "30000",
      "Pause before setting up the state of a share group is tried again.",
      rule=Range(1), importance=LOW, internal=True),
    K("group.share.persister.class.name", STRING, "org.apache.kafka.server.share.persister.DefaultStatePersister",
      "The class that stores the state of share groups; the name is kept, but Ottla loads no classes.", internal=True),
    K("share.coordinator.state.topic.num.partitions", INT, "50",
      "Partitions of `__share_group_state`; not to be changed once it exists.", rule=Range(1), importance=HIGH),
    K("share.coordinator.state.topic.replication.factor", SHORT, "3",
      "Replicas of `__share_group_state`.", rule=Range(1), importance=HIGH),
    K("share.coordinator.state.topic.min.isr", SHORT, "2",
      "In-sync replicas that writes to `__share_group_state` need.", rule=Range(1), importance=HIGH),
    K("share.coordinator.state.topic.segment.bytes", INT, "104857600",
      "Segment size of `__share_group_state`.", rule=Range(1), importance=HIGH),
    K("share.coordinator.state.topic.compression.codec", INT, "0",
      "Codec id of the batches in `__share_group_state`.", importance=HIGH),
    K("share.coordinator.state.topic.prune.interval.ms", INT, "300000",
      "How often records of `__share_group_state` that no longer count are removed.",
      rule=Range(1), importance=LOW, internal=True),
    K("share.coordinator.snapshot.update.records.per.snapshot", INT, "500",
      "Updates of a share partition between two full snapshots of it.", rule=Range(0, 500)),
    K("share.coordinator.cold.partition.snapshot.interval.ms", INT, "300000",
      "How often share partitions without changes get a new snapshot, so that old records can go.",
      rule=Range(1), importance=LOW, internal=True),
    K("share.coordinator.load.buffer.size", INT, "5242880",
      "Bytes read at once while the share coordinator loads its state.", rule=Range(1), importance=HIGH),
    K("share.coordinator.write.timeout.ms", INT, "5000",
      "How long a write of the share coordinator may wait for its replicas.", rule=Range(1), importance=HIGH),
    K("share.coordinator.append.linger.ms", INT, "-1",
      "How long the share coordinator gathers writes before it appends them; -1 lets it decide.", rule=Range(-1)),
    K("share.coordinator.cached.buffer.max.bytes", INT, "1048588",
      "The largest write buffer that the share coordinator keeps for the next write.",
      rule=Range(524288), update=CLUSTER_WIDE),
    K("share.coordinator.threads", INT, "1",
      "Threads of the share coordinator in Apache Kafka.", rule=Range(1)),
)
