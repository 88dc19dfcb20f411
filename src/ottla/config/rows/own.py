"""What Apache Kafka does not have: keys of Ottla's own, whose names begin so. They are described only where set."""

from __future__ import annotations

from ottla.config.key import ConfigKey as K
from ottla.config.key import ListOf, Range, Type

# fmt: off
ROWS = (
    K("ottla.metrics.listener", Type.STRING, None,
      "A port that serves `/metrics` and health pages and nothing else, as host:port; a port alone is one of "
      "127.0.0.1. For nodes whose listeners ask for a login, since those serve no pages.",
      internal=True),
    K("ottla.gateway.listeners", Type.LIST, "",
      "Names of listeners on which this node stands for the whole cluster: it forwards what is for others.",
      rule=ListOf(), internal=True),
    K("ottla.partitions.max", Type.INT, "500000",
      "Partitions that the cluster may have; a topic that does not fit in is refused (POLICY_VIOLATION). The active "
      "controller's value counts.",
      rule=Range(1), internal=True),
    K("ottla.partition.producers.max", Type.INT, "100000",
      "Producer ids that a partition remembers at a time; those that do not fit in are refused (POLICY_VIOLATION) "
      "until others expire (`producer.id.expiration.ms`).",
      rule=Range(1), internal=True),
    K("ottla.groups.max", Type.INT, "200000",
      "Groups that a node may coordinate; one more is refused (POLICY_VIOLATION) until others are deleted or expire "
      "(`offsets.retention.minutes`).",
      rule=Range(1), internal=True),
    K("ottla.transactional.ids.max", Type.INT, "200000",
      "Transactional ids that a node may coordinate; one more is refused (POLICY_VIOLATION) until others expire "
      "(`transactional.id.expiration.ms`).",
      rule=Range(1), internal=True),
    K("ottla.fetch.session.partitions.max", Type.INT, "200000",
      "Partitions that all fetch sessions remember together; a client that does not fit in goes on without a session.",
      rule=Range(0), internal=True),
    K("ottla.telemetry.instances.max", Type.INT, "16384",
      "Clients whose telemetry is taken at a time; beyond that the one not heard of for longest is forgotten.",
      rule=Range(1), internal=True),
)
