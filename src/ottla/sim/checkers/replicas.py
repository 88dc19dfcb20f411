"""Section A of the replicas of partitions, and of the metadata log, which is a log like any other.

Driven after every step with the machines that ran in it. For each of their logs a few numbers are compared with those
of the last look; only what moved is looked into.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.hosted import HostedPartition
from ottla.log.log import Log
from ottla.metadata.images import MetadataImage
from ottla.model import METADATA_TOPIC, TopicPartition, Uuid
from ottla.partition import PartitionLeader
from ottla.sim import view
from ottla.sim.checkers.compaction import CompactionChecker
from ottla.sim.checkers.in_sync import InSyncChecker
from ottla.sim.checkers.kept import check_kept
from ottla.sim.checkers.ledger import Ledger
from ottla.sim.checkers.mirror import Batch, Mirror, durable_end
from ottla.sim.checkers.storage import (
    Damage,
    Remains,
    Watch,
    check_checksums,
    check_clean_close,
    check_identity,
    check_log_start,
    check_recovery,
    check_recovery_point,
    check_synced,
    check_table,
    check_whole,
)
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Cluster, Machine, Process

METADATA = TopicPartition(METADATA_TOPIC, 0)


class ReplicaChecker:
    def __init__(self, cluster: Cluster, compaction: CompactionChecker) -> None:
        self._cluster = cluster
        self._compaction = compaction
        self.in_sync = InSyncChecker(cluster)
        self.ledgers: dict[tuple[str, int, bytes], Ledger] = {}
        self._watches: dict[Process, dict[Log, Watch]] = {}
        self._counts: dict[Process, int] = {}
        self._remains: dict[tuple[int, str], Remains] = {}
        self.on_committed: Callable[[TopicPartition, Batch], None] = lambda place, batch: None
        """Is told of each batch when it becomes committed, in order."""
        self.truncations = 0
        self.forgotten = 0
        """Producers that new leaders did not know any more."""
        self.unclean_restarts = 0
        self.leaderships = 0
        self.starts_moved = 0
        self._asked: dict[TopicPartition, set[int]] = {}
        """Where somebody has asked logs to begin."""
        self._damaged: dict[int, Damage | None] = {}
        """Machines with damage on their disks: what is in their files is not held against them."""
        self._ever_damaged: dict[int, None] = {}
        self._found: dict[tuple[int, TopicPartition], None] = {}
        """Damage that its machine has noticed, and cut off."""
        self._lost_something = False
        """Has anybody less than before, since everybody was last asked?"""

    def committed_metadata(self) -> int:
        """Everything before it was committed in the metadata log."""
        return max((ledger.end for key, ledger in self.ledgers.items() if key[0] == METADATA_TOPIC), default=0)

    # After every step.

    def after_step(self, machine: Machine) -> None:
        process = machine.process
        if process is None:
            return
        services = process.node._services
        if services is None:
            return
        watches = self._watches.get(process)
        if watches is None:
            watches = self._watches[process] = {}
        for topic in services.replicas.by_name.values():
            for hosted in topic.partitions.values():
                log, leader = hosted.log, hosted.leader
                watch = watches.get(log)
                if watch is None:
                    watch = self._begin(machine, process, hosted.log, hosted)
                    watches[log] = watch
                if leader is not None and leader.pending is not watch.pending:
                    self._look_at_proposal(watch, leader)
                elif (
                    log.log_end_offset == watch.end
                    and log.high_watermark == watch.high_watermark
                    and leader is watch.leader
                    and log.log_start_offset == watch.start
                    and log.recovery_point == watch.recovery_point
                    and log._swap is watch.swap
                ):
                    continue
                if not log.offline:
                    self._look(machine, watch)
                elif log.high_watermark > watch.high_watermark:
                    self._look_at_last_words(machine, watch)
        metadata = services.logs.metadata_log
        if metadata is not None:
            watch = watches.get(metadata)
            if watch is None:
                if process.node._control is None:
                    return
                watch = watches[metadata] = self._begin(machine, process, metadata, None)
            elif (
                metadata.log_end_offset == watch.end
                and metadata.high_watermark == watch.high_watermark
                and metadata.log_start_offset == watch.start
                and metadata.recovery_point == watch.recovery_point
            ):
                return
            if not metadata.offline:
                self._look(machine, watch)
            elif metadata.high_watermark > watch.high_watermark:
                self._look_at_last_words(machine, watch)

    def _begin(self, machine: Machine, process: Process, log: Log, hosted: HostedPartition | None) -> Watch:
        place = METADATA if hosted is None else TopicPartition(hosted.topic, hosted.index)
        key = (place.topic, place.partition, bytes(log.topic_id))
        ledger = self.ledgers.get(key)
        if ledger is None:
            ledger = self.ledgers[key] = Ledger(str(place))
            ledger.starts |= self._asked.get(place, set())
        where = f"{place} on {machine.name}"
        if hosted is not None:
            check_identity(machine.volume, log, hosted.topic_id, where)
        compacted = hosted is not None and self._compaction.concerns(log)
        damaged = machine.id in self._damaged
        mirror = Mirror(log, machine.volume, where, damaged=damaged, compacted=compacted)
        watch = Watch(place, log, hosted, ledger, mirror, where, compacted=compacted)
        watch.end = watch.mirror.end
        ledger.cleaned_to = max(ledger.cleaned_to, watch.untouched)
        self._compaction.on_end(machine, place, watch.end)
        remains = self._remains.pop((machine.id, log.directory), None)
        if damaged:
            damage = self._damaged[machine.id]
            if damage is not None and damage.directory == log.directory and watch.end <= damage.offset:
                self._found[machine.id, place] = None
                self._cluster.trace.note(machine.name, f"has found that {place} is damaged at {damage.offset}")
            return watch
        check_checksums(watch)
        if remains is not None:
            check_recovery(machine, watch, remains, self._compaction)
            check_table(machine, watch)
        return watch

    def _look(self, machine: Machine, watch: Watch) -> None:
        log, mirror = watch.log, watch.mirror
        end, high_watermark, start = log.log_end_offset, log.high_watermark, log.log_start_offset
        if not start <= high_watermark <= end:
            raise Violation("A11", f"{watch.where}: start {start}, high watermark {high_watermark}, end {end}")
        begins_elsewhere = start != watch.start and watch.hosted is not None
        if log.last_stable_offset > high_watermark:
            raise Violation("A11", f"{watch.where}: last stable offset {log.last_stable_offset} > {high_watermark}")
        changed = mirror.update()
        if changed is not None:
            self.truncations += 1
            self._cluster.trace.note(machine.name, f"cuts {watch.place} at {changed} (it ended at {watch.end})")
            if watch.place == METADATA and changed < watch.high_watermark and start == watch.start:
                raise Violation("B9", f"{watch.where} was cut at {changed}, below its high watermark")
            watch.noted = watch.committed = 0
            watch.end = end
            self._compaction.on_end(machine, watch.place, changed)
            self.check_candidates(watch.place, log.topic_id, watch.ledger)
            self._lost_something = True
            if machine.id not in self._damaged:
                check_table(machine, watch)
        elif mirror.cleaned is not None:
            watch.noted = watch.committed = 0
            watch.ledger.cleaned_to = max(watch.ledger.cleaned_to, watch.untouched)
            if machine.id not in self._damaged:
                self._compaction.on_cleaned(machine, watch.place, log, mirror.cleaned, mirror.batches)
            else:
                self._compaction.on_cleaned_damaged(watch.place, mirror.cleaned, mirror.batches)
        elif mirror.dropped:
            watch.noted = max(0, watch.noted - mirror.dropped)
            watch.committed = max(0, watch.committed - mirror.dropped)
        watch.end, watch.start, watch.swap = end, start, log._swap
        if watch.noted < len(mirror.batches) and machine.id not in self._damaged:
            self._note(watch)
        leader = watch.hosted.leader if watch.hosted is not None else None
        if leader is not watch.leader:
            watch.leader = leader
            if leader is not None:
                if watch.hosted is not None and watch.hosted.following is not None:
                    raise Violation("A21", f"{watch.where} leads, and copies from {watch.hosted.following}")
                self._on_leadership(machine, watch)
        if high_watermark != watch.high_watermark:
            watch.high_watermark = high_watermark
            self._commit(machine, watch)
        if begins_elsewhere and machine.id not in self._damaged:
            self.starts_moved += start > 0
            check_log_start(watch, start)
        if log.recovery_point != watch.recovery_point:
            watch.recovery_point = log.recovery_point
            check_recovery_point(machine, watch)

    def _look_at_last_words(self, machine: Machine, watch: Watch) -> None:
        """The disk failed, or the process died, in the very step in which something was committed, and others may have
        been told."""
        mirror = watch.mirror
        if machine.volume.find(watch.log.directory) is None or mirror.update() is not None:
            return
        watch.end = watch.log.log_end_offset
        watch.high_watermark = watch.log.high_watermark
        watch.committed = 0 if mirror.cleaned is not None else max(0, watch.committed - mirror.dropped)
        if not watch.log.offline:
            self._commit(machine, watch)
            return
        for batch in mirror.batches[watch.committed :]:
            if batch.next <= watch.high_watermark and watch.ledger.commit(
                batch, watch.where, compacted=watch.compacted
            ):
                self.on_committed(watch.place, batch)

    def _look_at_proposal(self, watch: Watch, leader: PartitionLeader) -> None:
        watch.pending = leader.pending
        if leader.pending is not None:
            self.in_sync.on_proposal(watch.place, watch.log.topic_id, leader, leader.pending)

    def _note(self, watch: Watch) -> None:
        batches, ledger = watch.mirror.batches, watch.ledger
        at = watch.noted
        before = batches[at - 1] if at else None
        for batch in batches[at:]:
            ledger.note(batch, before, watch.where, compacted=watch.compacted)
            before = batch
        watch.noted = len(batches)

    def _commit(self, machine: Machine, watch: Watch) -> None:
        """Everything below the high watermark must be what is committed there, or becomes it."""
        batches, ledger, high_watermark = watch.mirror.batches, watch.ledger, watch.high_watermark
        at = watch.committed
        true_end = ledger.end
        while at < len(batches) and batches[at].next <= high_watermark:
            if ledger.commit(batches[at], watch.where, compacted=watch.compacted):
                self.on_committed(watch.place, batches[at])
            at += 1
        watch.committed = at
        if ledger.end > true_end and watch.hosted is not None:
            self._on_committed(machine, watch, true_end)

    def _on_committed(self, machine: Machine, watch: Watch, before: int) -> None:
        """This replica is the first to hold something for committed."""
        hosted = watch.hosted
        assert hosted is not None
        leader = hosted.leader
        if leader is None:
            raise Violation(
                "A9",
                f"{watch.where} follows, and its high watermark {watch.high_watermark} is beyond what any leader "
                f"has committed ({before})",
            )
        for replica, follower in leader.followers.items():
            if replica in leader.maximal_isr and follower.log_end < watch.high_watermark:
                raise Violation(
                    "A9",
                    f"{watch.where} moved the high watermark to {watch.high_watermark}, and node {replica}, in sync or "
                    f"about to be, is known to end at {follower.log_end}",
                )
        if len(leader.isr) < leader.effective_min_isr:
            raise Violation(
                "A8",
                f"{watch.where} moved the high watermark to {watch.high_watermark} with {sorted(leader.isr)} in "
                f"sync, where {leader.effective_min_isr} are needed",
            )
        if watch.log.config.flush_messages == 1 and machine.id not in self._damaged:
            check_synced(machine, watch, before)
        self.check_candidates(watch.place, watch.log.topic_id, watch.ledger)

    def _on_leadership(self, machine: Machine, watch: Watch) -> None:
        """A1, as a leader begins."""
        hosted, ledger = watch.hosted, watch.ledger
        assert hosted is not None
        assert hosted.leader is not None
        epoch = hosted.leader.leader_epoch
        self.leaderships += 1
        ledger.lead(epoch, machine.id)
        current = view.newest_image(self._cluster).topics.partition(watch.log.topic_id, watch.place.partition)
        if current is None or current.leader != machine.id or current.leader_epoch != epoch:
            return  # It is old news already.
        self._cluster.trace.note(machine.name, f"leads {watch.place} in epoch {epoch} from {watch.end}")
        if current.leader_recovery_state:
            return  # Elected uncleanly, with everybody's consent.
        if watch.log.lacks_committed:
            raise Violation(
                "E16",
                f"{watch.where} leads in epoch {epoch}, ends at {watch.end}, and knows that it once had all up to "
                f"{watch.log.missing_until}",
            )
        if watch.end < ledger.end:
            raise Violation(
                "E16" if machine.id in self._damaged else "A1",
                f"{watch.where} leads in epoch {epoch} with a log that ends at {watch.end}; {ledger.end} is committed",
            )
        if machine.id in self._damaged:
            return
        self.forgotten += check_table(machine, watch)
        if watch.compacted:
            self._compaction.check_held(machine, watch.place, watch.mirror.batches, watch.end)
        missing = ledger.first_missing(watch.mirror.batches, max(watch.start, ledger.cleaned_to))
        if missing is not None:
            raise Violation("A1", f"{watch.where} leads in epoch {epoch} without {missing}, which is committed")

    def check_candidates(self, place: TopicPartition, topic_id: Uuid, ledger: Ledger) -> None:
        """A2: whoever may be elected has everything that is committed, also one that is fenced yet."""
        partition = view.newest_image(self._cluster).topics.partition(topic_id, place.partition)
        if partition is None or partition.leader_recovery_state:
            return
        for replica in (*partition.isr, *partition.elr):
            machine = self._cluster.machines.get(replica)
            if machine is None or not view.is_registered(machine):
                continue
            log = view.log(machine, place)
            if log is None or log.offline or log.topic_id != topic_id:
                continue
            if log.log_end_offset < ledger.end:
                raise Violation(
                    "A2",
                    f"{place} on {machine.name} may be elected (isr {partition.isr}, elr {partition.elr}), but "
                    f"ends at {log.log_end_offset}, where {ledger.end} is committed",
                )

    def check_kept(self, image: MetadataImage) -> None:
        """A7, of every topic that the newest `image` knows, if anybody has lost anything."""
        if not self._lost_something:
            return
        self._lost_something = False
        volumes = [machine.volume for machine in self._cluster.machines.values()]
        for (name, index, topic_id), ledger in self.ledgers.items():
            if image.topics.partition(Uuid(topic_id), index) is None or ledger.cleaned_to:
                continue
            running = [
                watch.mirror
                for process, watches in self._watches.items()
                if process.machine.id not in self._damaged
                for watch in watches.values()
                if watch.ledger is ledger and not watch.log.offline
            ]
            check_kept(TopicPartition(name, index), Uuid(topic_id), ledger, running, volumes)

    def allow_start(self, place: TopicPartition, offset: int) -> None:
        """Somebody asks for the deletion of everything before `offset`, of whatever topic has that name."""
        self._asked.setdefault(place, set()).add(offset)
        for (name, index, _), ledger in self.ledgers.items():
            if (name, index) == place:
                ledger.starts.add(offset)

    def ledger_of(self, place: TopicPartition, topic_id: Uuid) -> Ledger | None:
        return self.ledgers.get((place.topic, place.partition, bytes(topic_id)))

    # Storage.

    def on_death(self, machine: Machine, process: Process, *, power: bool) -> None:
        """The process is gone; its objects are as they were at that moment."""
        watches = self._watches.pop(process, None)
        self._lost_something = self._lost_something or power
        if not machine.last_end_clean:
            self.unclean_restarts += 1
        for watch in (watches or {}).values():
            if watch.hosted is not None and watch.hosted.leader is not None:
                # What it asked for in its last moment may have left it.
                self._look_at_proposal(watch, watch.hosted.leader)
                if watch.log.high_watermark > watch.high_watermark:
                    self._look_at_last_words(machine, watch)
            if not self._is_current(process, watch):
                continue
            if watch.log.offline and not process.clean:
                continue
            if not process.clean or watch.compacted:
                watch.mirror.update()
            if process.clean and machine.id not in self._damaged:
                check_clean_close(machine, watch)
            durable = durable_end(machine.volume, watch.mirror.batches)
            self._remains[machine.id, watch.log.directory] = Remains(watch, power, durable)

    def _is_current(self, process: Process, watch: Watch) -> bool:
        """Is it still the node's log, or was that deleted, or moved away and back?"""
        logs = process.node._logs
        return watch.log is logs.logs.get(watch.place) or watch.log is logs.metadata_log

    def forgive(self, machine: Machine, *, damaged: bool, damage: Damage | None = None) -> None:
        """The disk was spoiled on purpose: recovery owes nothing, until the next death or, if it is `damaged`, until
        it has been repaired. `damage` says where, if it is in a partition's records."""
        self._lost_something = True
        for found in [found for found in self._found if found[0] == machine.id]:
            del self._found[found]
        if damaged:
            self._damaged[machine.id] = damage
            self._ever_damaged[machine.id] = None
        else:
            self._damaged.pop(machine.id, None)
        for key in [key for key in self._remains if key[0] == machine.id]:
            del self._remains[key]

    def check_corrupt(self, place: TopicPartition, node: int) -> None:
        """E1, as clients see it: damage at rest is served by the node that has it, and never spreads to another."""
        if node not in self._ever_damaged:
            raise Violation("E1", f"n{node} sent a batch of {place} with a wrong checksum, and its disk is sound")
        if (node, place) in self._found:
            raise Violation("E16", f"n{node} has found that {place} is damaged, and still serves what is")

    # At the end.

    def at_end(self) -> None:
        """Look into everything once more, whole."""
        for process, watches in self._watches.items():
            machine = process.machine
            for watch in watches.values():
                if not watch.log.offline and machine.id not in self._damaged and self._is_current(process, watch):
                    self._look(machine, watch)
                    check_whole(machine, watch)
                    if watch.compacted:
                        self._compaction.check_held(machine, watch.place, watch.mirror.batches, watch.high_watermark)
