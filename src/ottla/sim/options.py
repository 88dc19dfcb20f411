"""What a seed stands for: the cluster, its settings, the clients and the kinds of trouble. Printed with a failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import ceil
from random import Random

from ottla.sim.view import DATA, LOG_DIRS

SECONDS = 60.0
"""How long trouble lasts, unless another time is asked for."""
FAULTS_MIN = 10
"""So many faults are in a seed at least, or it says that there were fewer."""
COORDINATOR_MOVE = "coordinator move"
"""The one kind of fault that needs coordinators."""
TOPIC_ANEW = "topic anew"
RECORD_DELETION = "record deletion"
"""The kinds that need a topic of which nobody keeps anything for long."""
LATER_KINDS = ("metadata damage", "directory failure", "silent return")
"""Chosen by a generator of their own, so that the rest of a seed stays what it was before there were these."""


OLD_RULES = 0.25
"""How often transactions are of version 1."""
EPOCHS_RUN_OUT = 0.25
FEW_EPOCHS = 8
"""So many has a producer then: they are used up by as many transactions of version 2."""

FORGETFUL = 0.3
"""How often producers are forgotten within seconds, where that does no harm."""

OUTLASTING_MS = 600_000
"""Longer than any replica is behind in a simulation."""


class Mode(Enum):
    SAFETY = "safety"
    """Faults everywhere, then all is healed; nothing may have gone wrong."""
    LIVENESS = "liveness"
    """Faults everywhere, then a core is healed and the rest stays broken; the core must work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    seed: int
    mode: Mode
    seconds: float
    """How long faults and clients go on; healing and the last look come after."""
    nodes: int
    separate_controllers: int
    """So many nodes that are controllers only; 0 has every node in both roles."""
    replication_factor: int
    min_isr: int
    partitions: int
    flush_each: bool
    """`flush.messages=1`: what is acknowledged is synced, so that any number of nodes may lose power."""
    rate: float
    latency_s: float
    faults_per_s: float
    coordinated: bool
    """Are there clients of transactions, and so coordinators?"""
    grouped: bool
    """Are there groups as well?"""
    transaction_version: int
    """The level of the feature: 2, or 1, where many transactions have one epoch."""
    epochs: int | None
    """A producer has so many epochs, if not as many as fit into its records: they run out before a seed is over."""
    forgetful: bool
    """Are producers that are silent for a second or two forgotten? There are none then who send again what may be
    there, but within transactions of version 2, whose epochs tell."""
    compacted: dict[str, str] | None
    """The configuration of a compacted topic, if there is one; then the coordinators' own are compacted, too."""
    fleeting: dict[str, str] | None
    """The configuration of a topic that is deleted and created again, if there is one."""
    follower_reads: bool
    """Do consumers read from the replica in their rack (KIP-392)?"""
    fault_kinds: tuple[str, ...]
    settings: dict[str, str] = field(default_factory=dict)
    topic: dict[str, str] = field(default_factory=dict)
    producers: int = 6
    consumers: int = 2
    transactors: int = 4

    @property
    def faults_min(self) -> int:
        """`FAULTS_MIN`, or the share of them that a shorter time can hold."""
        return min(FAULTS_MIN, ceil(FAULTS_MIN * self.seconds / SECONDS))

    def describe(self) -> str:
        roles = f"{self.separate_controllers} controllers apart" if self.separate_controllers else "combined"
        return (
            f"{self.nodes} nodes ({roles}), {self.partitions} partitions, rf {self.replication_factor}, "
            f"min isr {self.min_isr}{', every append synced' if self.flush_each else ''}"
            f"{', consumers read from followers' if self.follower_reads else ''}"
            f"{f', transactions (version {self.transaction_version})' if self.coordinated else ''}"
            f"{' and groups' if self.grouped else ''}{f', {self.epochs} epochs' if self.epochs else ''}"
            f"{', producers soon forgotten' if self.forgetful else ''}"
            f"{', compaction' if self.compacted else ''}"
            f"{', a fleeting topic' if self.fleeting is not None else ''}"
            f"{', two directories' if ',' in self.settings.get('log.dirs', '') else ''}, "
            f"{self.latency_s * 1000:.1f} ms latency, faults: {', '.join(self.fault_kinds)}"
        )


def expand(
    seed: int,
    mode: Mode,
    *,
    kinds: tuple[str, ...],
    nodes: int | None = None,
    seconds: float = SECONDS,
    with_groups: bool = False,
    with_compaction: bool = False,
    with_fleeting: bool = False,
    with_forgetting: bool = False,
) -> Options:
    """The same for the same seed, always. `with_groups`: whatever the seed says, there are groups and transactions;
    `with_compaction`: there is a compacted topic; `with_fleeting`: there is one that is deleted and created again;
    `with_forgetting`: producers are soon forgotten, where transactions are of version 2 and nothing is compacted."""
    random = Random(f"options/{seed}")
    if nodes is None:
        nodes = random.choice((3, 3, 3, 3, 4, 5))
    separate = 3 if nodes >= 3 and random.random() < 0.2 else 0
    replication_factor = min(3, nodes)
    min_isr = min(2, replication_factor)
    later = (COORDINATOR_MOVE, TOPIC_ANEW, RECORD_DELETION, *LATER_KINDS)
    chosen = tuple(kind for kind in kinds if kind not in later and random.random() < 0.7) or kinds
    # As in production a session outlasts the election of another controller, or every such election would fence all.
    session_ms = random.choice((2000, 3000, 5000))
    settings = {
        "default.replication.factor": str(replication_factor),
        "min.insync.replicas": str(min_isr),
        "broker.session.timeout.ms": str(session_ms),
        "broker.heartbeat.interval.ms": str(session_ms // random.choice((4, 6))),
        "replica.lag.time.max.ms": str(random.choice((1000, 2000, 4000))),
        "replica.fetch.wait.max.ms": str(random.choice((100, 250, 500))),
        "replica.high.watermark.checkpoint.interval.ms": str(random.choice((500, 2000, 5000))),
        "log.flush.offset.checkpoint.interval.ms": str(random.choice((500, 2000, 10_000))),
        "controller.quorum.election.timeout.ms": str(random.choice((200, 400, 600))),
        "controller.quorum.fetch.timeout.ms": str(random.choice((900, 1200, 1500))),
        "controller.quorum.election.backoff.max.ms": str(random.choice((100, 200, 400))),
        "controller.quorum.request.timeout.ms": str(random.choice((1000, 1200, 1500))),
        "metadata.log.max.record.bytes.between.snapshots": str(random.choice((4_000, 20_000, 20_971_520))),
        "metadata.max.retention.bytes": str(random.choice((20_000, 104_857_600))),
        "metadata.log.segment.ms": str(random.choice((3_000, 604_800_000))),
        "metadata.max.idle.interval.ms": str(random.choice((500, 1000, 2000))),
        "leader.imbalance.check.interval.seconds": str(random.choice((5, 300))),
        "num.replica.fetchers": str(random.choice((1, 1, 2))),
        "auto.create.topics.enable": "false",
        "log.cleaner.enable": "false",
    }
    flush_each = nodes == 1 or random.random() < 0.25
    topic = {
        "min.insync.replicas": str(min_isr),
        # Clocks are stepped by hours, and nobody's records should be refused for that.
        "message.timestamp.after.max.ms": str((1 << 63) - 1),
    }
    if flush_each:
        topic["flush.messages"] = "1"
    if random.random() < 0.5:
        topic["internal.segment.bytes"] = str(random.choice((1_000, 4_000)))
        topic["index.interval.bytes"] = str(random.choice((0, 200, 4096)))
    follower_reads = random.random() < 0.3
    if follower_reads:
        settings["replica.selector.class"] = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    coordinated = random.random() < 0.5 or with_groups
    grouped = (coordinated and random.random() < 0.6) or with_groups
    if coordinated:
        chosen += tuple(kind for kind in kinds if kind == COORDINATOR_MOVE)
        settings |= _coordinator_settings(random, replication_factor, min_isr)
        if flush_each:
            settings["log.flush.interval.messages"] = "1"
    rules = Random(f"transactions/{seed}")
    transaction_version = 1 if rules.random() < OLD_RULES and not with_forgetting else 2
    epochs = FEW_EPOCHS if rules.random() < EPOCHS_RUN_OUT and coordinated else None
    # From a generator of its own: a seed stays what it is, with compaction or without.
    chance = Random(f"compaction/{seed}")
    compacted = None
    if (chance.random() < (0.5 if coordinated else 0.2) and not with_forgetting) or with_compaction:
        settings |= _cleaner_settings(chance)
        compacted = _compacted_topic(chance, topic)
        # Tombstones must outlast the time that a replica may be behind, or it keeps what they delete: so it is in
        # Kafka. Of the coordinators' topics they do; the other topic's may go soon.
        compacted["delete.retention.ms"] = settings["log.cleaner.delete.retention.ms"]
        settings["log.cleaner.delete.retention.ms"] = str(OUTLASTING_MS)
    chance = Random(f"forgetful/{seed}")
    forgetful = coordinated and transaction_version == 2 and compacted is None
    # Where mutations are looked for in groups, seeds stay what they were before there was this.
    forgetful = forgetful and ((chance.random() < FORGETFUL and not with_groups) or with_forgetting)
    if forgetful:
        settings |= _forgetful_settings(chance)
    chance = Random(f"later/{seed}")
    chosen += tuple(kind for kind in kinds if kind in LATER_KINDS and chance.random() < 0.5)
    settings["log.dirs"] = ",".join(LOG_DIRS) if chance.random() < 0.3 else DATA
    fleeting = None
    if chance.random() < 0.4 or with_fleeting:
        chosen += tuple(kind for kind in kinds if kind in (TOPIC_ANEW, RECORD_DELETION))
        fleeting = _fleeting_topic(chance, topic)
        settings |= {"log.initial.task.delay.ms": "500", "log.retention.check.interval.ms": "1500"}
    return Options(
        seed=seed,
        mode=mode,
        seconds=seconds,
        nodes=nodes,
        separate_controllers=separate,
        replication_factor=replication_factor,
        min_isr=min_isr,
        partitions=random.choice((1, 2, 3)),
        flush_each=flush_each,
        rate=20.0,
        latency_s=random.choice((0.0002, 0.0005, 0.002, 0.01)),
        faults_per_s=random.choice((0.2, 0.3, 0.5)),
        fault_kinds=chosen,
        coordinated=coordinated,
        grouped=grouped,
        transaction_version=transaction_version,
        epochs=epochs,
        forgetful=forgetful,
        compacted=compacted,
        fleeting=fleeting,
        follower_reads=follower_reads,
        settings=settings,
        topic=topic,
    )


def _coordinator_settings(random: Random, replication_factor: int, min_isr: int) -> dict[str, str]:
    """Few partitions, so that everybody meets, and timeouts that come within a simulation."""
    return {
        "offsets.topic.num.partitions": str(random.choice((1, 2))),
        "offsets.topic.replication.factor": str(replication_factor),
        "transaction.state.log.num.partitions": str(random.choice((1, 2))),
        "transaction.state.log.replication.factor": str(replication_factor),
        "transaction.state.log.min.isr": str(min_isr),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(random.choice((500, 2000))),
        "offsets.retention.check.interval.ms": "2000",
        "offsets.retention.minutes": "1",
        "group.initial.rebalance.delay.ms": str(random.choice((0, 300))),
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.session.timeout.ms": str(random.choice((2000, 4000))),
        "group.consumer.heartbeat.interval.ms": str(random.choice((200, 500))),
    }


def _forgetful_settings(random: Random) -> dict[str, str]:
    """Sooner than the coordinator ends a transaction whose producer stalls."""
    return {
        "producer.id.expiration.ms": str(random.choice((500, 2_000))),
        "producer.id.expiration.check.interval.ms": "200",
    }


def _cleaner_settings(random: Random) -> dict[str, str]:
    """So that much is compacted in a minute."""
    return {
        "log.cleaner.enable": "true",
        "log.cleaner.backoff.ms": str(random.choice((500, 2000))),
        "log.cleaner.min.cleanable.ratio": str(random.choice((0.1, 0.5))),
        "log.cleaner.delete.retention.ms": str(random.choice((1000, 5000))),
        # Of topics that say nothing else, as the coordinators' own.
        "log.roll.ms": str(random.choice((3_000, 604_800_000))),
    }


def _compacted_topic(random: Random, topic: dict[str, str]) -> dict[str, str]:
    return {
        **{name: value for name, value in topic.items() if name != "index.interval.bytes"},
        "cleanup.policy": "compact",
        "internal.segment.bytes": str(random.choice((600, 1500))),
    }


def _fleeting_topic(random: Random, topic: dict[str, str]) -> dict[str, str]:
    """Small segments, of which only so many are kept."""
    return {
        **{name: value for name, value in topic.items() if name != "index.interval.bytes"},
        "internal.segment.bytes": str(random.choice((400, 1000))),
        "retention.bytes": str(random.choice((-1, 2_000, 6_000))),
        "file.delete.delay.ms": str(random.choice((0, 1_000, 60_000))),
    }
