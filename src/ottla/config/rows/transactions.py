"""Transactions and producer ids."""

from __future__ import annotations

from ottla.config.key import ConfigKey as K
from ottla.config.key import Importance, Range, Type, Update

BOOLEAN = Type.BOOLEAN
INT = Type.INT
SHORT = Type.SHORT
HIGH = Importance.HIGH
LOW = Importance.LOW
CLUSTER_WIDE = Update.CLUSTER_WIDE

# fmt: off
ROWS = (
    K("transactional.id.expiration.ms", INT, "604800000",
      "How long a transactional id is remembered after its last transaction.", rule=Range(1), importance=HIGH),
    K("transaction.max.timeout.ms", INT, "900000",
      "The longest timeout that a producer may ask for its transactions.", rule=Range(1), importance=HIGH),
    K("transaction.state.log.num.partitions", INT, "50",
      "Partitions of `__transaction_state`; not to be changed once it exists.", rule=Range(1), importance=HIGH),
    K("transaction.state.log.replication.factor", SHORT, "3",
      "Replicas of `__transaction_state`.", rule=Range(1), importance=HIGH),
    K("transaction.state.log.min.isr", INT, "2",
      "In-sync replicas that writes to `__transaction_state` need.", rule=Range(1), importance=HIGH),
    K("transaction.state.log.segment.bytes", INT, "104857600",
      "Segment size of `__transaction_state`, small so that it is compacted and loaded quickly.",
      rule=Range(1), importance=HIGH),
    K("transaction.state.log.load.buffer.size", INT, "5242880",
      "Bytes read at once while a coordinator loads transactions.", rule=Range(1), importance=HIGH),
    K("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, "10000",
      "How often the coordinator looks for transactions that have run out of time.", rule=Range(1), importance=LOW),
    K("transaction.remove.expired.transaction.cleanup.interval.ms", INT, "3600000",
      "How often the coordinator looks for transactional ids that have expired.", rule=Range(1), importance=LOW),
    K("transaction.partition.verification.enable", BOOLEAN, "true",
      "Whether a partition asks the coordinator if a transaction has begun before it takes its records (KIP-890).",
      importance=LOW, update=CLUSTER_WIDE),
    K("transaction.two.phase.commit.enable", BOOLEAN, "false",
      "Whether producers may leave the decision over a transaction to a coordinator outside (KIP-939).",
      importance=LOW),
    K("producer.id.expiration.ms", INT, "86400000",
      "How long a partition remembers the sequence numbers of a silent producer.",
      rule=Range(1), importance=LOW, update=CLUSTER_WIDE),
    K("producer.id.expiration.check.interval.ms", INT, "600000",
      "How often partitions look for producers to forget.", rule=Range(1), importance=LOW, internal=True),
    K("add.partitions.to.txn.retry.backoff.ms", INT, "20",
      "Pause before the broker again asks the coordinator to add a partition to a transaction.",
      rule=Range(1), importance=HIGH),
    K("add.partitions.to.txn.retry.backoff.max.ms", INT, "100",
      "How long in all the broker keeps asking the coordinator to add a partition to a transaction.",
      rule=Range(0), importance=HIGH),
)
