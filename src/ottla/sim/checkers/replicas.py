"""Section A of the replicas of partitions, and of the metadata log, which is a log like any other.

Driven after every step with the machines that ran in it. For each of their logs a few numbers are compared with those
of the last look; only what moved is looked into.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.hosted import HostedPartition
from ottla.log.log import Log
from ottla.metadata.images import PartitionImage
from ottla.model import METADATA_TOPIC, TopicPartition
from ottla.sim import view
from ottla.sim.checkers.compaction import CompactionChecker
from ottla.sim.checkers.ledger import Ledger
from ottla.sim.checkers.mirror import Batch, Mirror, durable_end
from ottla.sim.checkers.storage import (
    Remains,
    Watch,
    check_checksums,
    check_clean_close,
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
        self.ledgers: dict[tuple[str, int, bytes], Ledger] = {}
        self._watches: dict[Process, dict[Log, Watch]] = {}
        self._counts: dict[Process, int] = {}
        self._remains: dict[tuple[int, str], Remains] = {}
        self.on_committed: Callable[[TopicPartition, Batch], None] = lambda place, batch: None
        """Is told of each batch when it becomes committed, in order."""
        self.truncations = 0
        self.unclean_restarts = 0
        self.leaderships = 0
        self._damaged: dict[int, None] = {}
        """Machines with damage on their disks: what is in their files is not held against them."""
        self._ever_damaged: dict[int, None] = {}

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
                log = hosted.log
                watch = watches.get(log)
                if watch is None:
                    watch = self._begin(machine, process, hosted.log, hosted)
                    watches[log] = watch
                elif (
                    log.log_end_offset == watch.end
                    and log.high_watermark == watch.high_watermark
                    and hosted.leader is watch.leader
                    and log.log_start_offset == watch.start
                    and log.recovery_point == watch.recovery_point
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
        where = f"{place} on {machine.name}"
        compacted = hosted is not None and self._compaction.concerns(log)
        damaged = machine.id in self._damaged
        mirror = Mirror(log, machine.volume, where, damaged=damaged, compacted=compacted)
        watch = Watch(place, log, hosted, ledger, mirror, where, compacted=compacted)
        watch.end = watch.mirror.end
        ledger.cleaned_to = max(ledger.cleaned_to, watch.untouched)
        remains = self._remains.pop((machine.id, log.directory), None)
        if damaged:
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
            self.check_candidates(watch.place, watch.ledger)
            if machine.id not in self._damaged:
                check_table(machine, watch)
        elif mirror.cleaned is not None:
            watch.noted = watch.committed = 0
            watch.ledger.cleaned_to = max(watch.ledger.cleaned_to, watch.untouched)
            if machine.id not in self._damaged:
                self._compaction.on_cleaned(machine, watch.place, log, mirror.cleaned, mirror.batches)
        elif mirror.dropped:
            watch.noted = max(0, watch.noted - mirror.dropped)
            watch.committed = max(0, watch.committed - mirror.dropped)
        watch.end, watch.start = end, start
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
        if log.recovery_point != watch.recovery_point:
            watch.recovery_point = log.recovery_point
            check_recovery_point(machine, watch)

    def _look_at_last_words(self, machine: Machine, watch: Watch) -> None:
        """The disk failed in the very step in which something was committed, and said so to a client."""
        if machine.volume.find(watch.log.directory) is not None and watch.mirror.update() is None:
            watch.end = watch.log.log_end_offset
            watch.high_watermark = watch.log.high_watermark
            watch.committed = max(0, watch.committed - watch.mirror.dropped)
            for batch in watch.mirror.batches[watch.committed :]:
                if batch.next <= watch.high_watermark and watch.ledger.commit(
                    batch, watch.where, compacted=watch.compacted
                ):
                    self.on_committed(watch.place, batch)

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
        self.check_candidates(watch.place, watch.ledger)

    def _on_leadership(self, machine: Machine, watch: Watch) -> None:
        """A1, as a leader begins."""
        hosted, ledger = watch.hosted, watch.ledger
        assert hosted is not None
        assert hosted.leader is not None
        epoch = hosted.leader.leader_epoch
        self.leaderships += 1
        ledger.lead(epoch, machine.id)
        current = view.newest_image(self._cluster).partition(watch.place.topic, watch.place.partition)
        if current is None or current.leader != machine.id or current.leader_epoch != epoch:
            return  # It is old news already.
        self._cluster.trace.note(machine.name, f"leads {watch.place} in epoch {epoch} from {watch.end}")
        if current.leader_recovery_state:
            return  # Elected uncleanly, with everybody's consent.
        if watch.end < ledger.end:
            raise Violation(
                "A1",
                f"{watch.where} leads in epoch {epoch} with a log that ends at {watch.end}; {ledger.end} is committed",
            )
        if machine.id in self._damaged:
            return
        check_table(machine, watch)
        if watch.compacted:
            self._compaction.check_held(machine, watch.place, watch.mirror.batches, watch.end)
        missing = ledger.first_missing(watch.mirror.batches, max(watch.start, ledger.cleaned_to))
        if missing is not None:
            raise Violation("A1", f"{watch.where} leads in epoch {epoch} without {missing}, which is committed")

    def check_candidates(self, place: TopicPartition, ledger: Ledger) -> None:
        """A2: whoever may be elected has everything that is committed."""
        partition = view.newest_image(self._cluster).partition(place.topic, place.partition)
        if partition is None or partition.leader_recovery_state:
            return
        for replica in (*partition.isr, *partition.elr):
            machine = self._cluster.machines.get(replica)
            if machine is None or not view.is_member(machine):
                continue
            hosted = view.hosted(machine, place)
            if hosted is None or hosted.offline:
                continue
            if hosted.log.log_end_offset < ledger.end:
                raise Violation(
                    "A2",
                    f"{place} on {machine.name} may be elected (isr {partition.isr}, elr {partition.elr}), but "
                    f"ends at {hosted.log.log_end_offset}, where {ledger.end} is committed",
                )

    def on_isr_changed(self, place: TopicPartition, before: PartitionImage, after: PartitionImage) -> None:
        """A3, A18 and A19, as far as the leader that the metadata names can still be asked."""
        machine = self._cluster.machines.get(after.leader)
        hosted = None if machine is None else view.hosted(machine, place)
        leader = None if hosted is None else hosted.leader
        if leader is None or leader.leader_epoch != after.leader_epoch:
            return
        if len(leader.isr) >= leader.effective_min_isr and not {*after.isr, *after.elr} <= leader.maximal_isr:
            raise Violation(
                "A3",
                f"{place}: isr {after.isr} and elr {after.elr} may be elected, and the leader counts only "
                f"{sorted(leader.maximal_isr)}",
            )
        if before.leader_epoch != after.leader_epoch:
            return
        image = view.newest_image(self._cluster)
        for replica in after.isr:
            follower = leader.followers.get(replica)
            if replica in before.isr or follower is None:
                continue
            registered = image.broker(replica)
            if registered is None or follower.broker_epoch not in (-1, registered.epoch):
                raise Violation(
                    "A18",
                    f"{place}: node {replica} joined the isr with the epoch {follower.broker_epoch}, and is registered "
                    f"with {None if registered is None else registered.epoch}",
                )
            if follower.log_end < leader.start_offset:
                raise Violation(
                    "A19",
                    f"{place}: node {replica} joined the isr at {follower.log_end}, and the epoch began at "
                    f"{leader.start_offset}",
                )

    # Storage.

    def on_death(self, machine: Machine, process: Process, *, power: bool) -> None:
        """The process is gone; its objects are as they were at that moment."""
        watches = self._watches.pop(process, None)
        if not machine.last_end_clean:
            self.unclean_restarts += 1
        for watch in (watches or {}).values():
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

    def forgive(self, machine: Machine, *, damaged: bool) -> None:
        """The disk was spoiled on purpose: recovery owes nothing, until the next death or, if it is `damaged`, until
        it has been repaired."""
        if damaged:
            self._damaged[machine.id] = self._ever_damaged[machine.id] = None
        else:
            self._damaged.pop(machine.id, None)
        for key in [key for key in self._remains if key[0] == machine.id]:
            del self._remains[key]

    def check_corrupt(self, place: TopicPartition, node: int) -> None:
        """E1, as clients see it: damage at rest is served by the node that has it, and never spreads to another."""
        if node not in self._ever_damaged:
            raise Violation("E1", f"n{node} sent a batch of {place} with a wrong checksum, and its disk is sound")

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
