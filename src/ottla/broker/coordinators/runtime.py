"""What handlers see of a coordinator: the shard of a name is found, asked, and answers when that is durable.

One instance a kind of coordinator. It has a `ServedShard` for each partition of the coordinator's topic that this node
leads: made when the node is elected, brought up from the log, thrown away with the leadership. A shard is of one
leadership: one partition, one leader epoch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.broker.coordinators.loading import LoadTimes, TakingUp, load
from ottla.broker.coordinators.served import ServedShard, ShardState
from ottla.broker.hosted import HostedPartition
from ottla.broker.promise import Promise, broken
from ottla.coordinator.java_hash import partition_for
from ottla.coordinator.outcome import Effect, Outcome
from ottla.coordinator.shard import Shard
from ottla.coordinator.stored import RecordKinds
from ottla.errors import ErrorCode, KafkaError
from ottla.log.producers import VerificationGuard
from ottla.records import CompressionType

if TYPE_CHECKING:
    from ottla.broker.services import Services
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.images import MetadataImage

KeyValueAt = tuple[int, bytes | None, bytes | None]
S = TypeVar("S", bound=Shard)
R = TypeVar("R")

_REMEMBERED_NAMES_MAX = 100_000


class CoordinatorRuntime(Generic[S]):
    """Driven by handlers, by the replica manager (leaderships) and by published metadata."""

    def __init__(
        self,
        services: Services,
        topic: str,
        kinds: RecordKinds,
        make: Callable[[int, int], S],
        *,
        partitions: int,
        timeout_ms: int,
        load_bytes: int,
        compression: CompressionType = CompressionType.NONE,
    ) -> None:
        """`make(partition, leader_epoch)` makes an empty shard. `partitions` is how many the topic will have, while it
        does not exist."""
        self.services = services
        self.topic = topic
        self.kinds = kinds
        self._make = make
        self._partitions = partitions
        self.timeout_ms = timeout_ms
        """How long those who wait for a commit wait."""
        self.load_bytes = load_bytes
        self.compression = compression
        self.carry_out: Callable[[int, int, Effect], None] = _nobody
        """Takes partition, leader epoch and an effect of the shard's own kind, once that is committed."""
        self.load_plainly: Callable[[S, int, list[KeyValueAt]], int] = lambda shard, base_offset, records: 0
        """Replays the first of a batch's records, while loading, as far as the shard has a quick way with them; takes
        the batch's first offset, and for each record its distance from there, its key and its value."""
        self.on_unloaded: Callable[[int], None] = lambda partition: None
        """Is told of each partition whose leadership is lost."""
        self.load_times = LoadTimes(services.clock)
        self.taking_up: TakingUp[S] = TakingUp(services.clock)
        self._served: dict[int, ServedShard[S]] = {}
        self._to_load: deque[ServedShard[S]] = deque()
        self._loading = False
        self._known: dict[str, int] = {}
        """The partitions of names."""
        self._known_of = 0
        """Of how many partitions `_known` tells, by `_image`."""
        self._image: MetadataImage | None = None

    # Finding.

    def partition_for(self, name: str) -> int:
        """The partition that holds a group or a transactional id."""
        if self.services.image is not self._image:
            self._count()
        partition = self._known.get(name)
        if partition is None:
            if len(self._known) >= _REMEMBERED_NAMES_MAX:
                self._known.clear()
            partition = self._known[name] = partition_for(name, self._known_of)
        return partition

    def _count(self) -> None:
        """Forget where names are if the topic has another number of partitions now."""
        self._image = self.services.image
        topic = self._image.topic(self.topic)
        count = self._partitions if topic is None else len(topic.partitions)
        if count != self._known_of:
            self._known_of = count
            self._known.clear()

    def find(self, name: str) -> ServedShard[S] | None:
        """The shard of a group or a transactional id, if it is served here. It may be kept as long as it is active."""
        served = self._served.get(self.partition_for(name))
        return served if served is not None and served.active else None

    def _refusal(self, served: ServedShard[S] | None) -> KafkaError:
        loading = served is not None and served.state is ShardState.LOADING
        return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR)

    # Asking.

    def write(self, name: str, operation: Callable[[S, int], Outcome[R]]) -> Promise[R]:
        """Run `operation(shard, now_ms)` at once. Its records are replayed before this returns and appended at the end
        of the loop's turn; the promise is kept when they are committed."""
        served = self._served.get(self.partition_for(name))
        if served is None or not served.active:
            return broken(self._refusal(served))
        return served.write(operation)

    def write_waiting(self, name: str, operation: Callable[[S, int, int], Outcome[R]]) -> Promise[R]:
        """The same of `operation(shard, token, now_ms)`. If it has no response, an `Answer` with the token has."""
        served = self._served.get(self.partition_for(name))
        if served is None or not served.active:
            return broken(self._refusal(served))
        return served.write_waiting(operation)

    def write_transactional(
        self,
        name: str,
        producer_id: int,
        producer_epoch: int,
        operation: Callable[[S, int], Outcome[R]],
        guard: VerificationGuard | None = None,
    ) -> Promise[R]:
        """The same, with the records as one batch of that producer's transaction. `guard` is of the transaction's
        verification, if the partition is not part of it already."""
        served = self._served.get(self.partition_for(name))
        if served is None or not served.active:
            return broken(self._refusal(served))
        return served.write_transactional(producer_id, producer_epoch, operation, guard)

    def complete_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
    ) -> Promise[None]:
        """A transaction that wrote to the coordinator's own partition has ended: append the marker, and replay it. The
        promise fails with what clients of a coordinator are told (`refusals.py`)."""
        served = self._served.get(partition)
        if served is None or not served.active:
            return broken(self._refusal(served))
        return served.complete_transaction(producer_id, producer_epoch, coordinator_epoch, commit, transaction_version)

    def read(self, name: str, operation: Callable[[S, int], R]) -> R:
        """What `operation(shard, now_ms)`, which reads committed state, says now. Raises `KafkaError`."""
        served = self._served.get(self.partition_for(name))
        if served is None or not served.active:
            raise self._refusal(served)
        return operation(served.shard, self.services.clock.wall_ms())

    def shards(self) -> Iterator[S]:
        """Those that are served here, loaded and well."""
        return (served.shard for served in self._served.values() if served.active)

    def count_partitions(self) -> dict[ShardState, int]:
        """How many of the topic's partitions are in each state here."""
        counts = dict.fromkeys(ShardState, 0)
        for served in self._served.values():
            counts[served.state] += 1
        return counts

    def read_all(self, operation: Callable[[S, int], R]) -> list[R]:
        """The same of every shard that is served here. Raises COORDINATOR_LOAD_IN_PROGRESS while one of them loads."""
        served = [each for each in self._served.values() if each.state is not ShardState.FAILED]
        if any(each.state is ShardState.LOADING for each in served):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        now_ms = self.services.clock.wall_ms()
        return [operation(each.shard, now_ms) for each in served]

    # Leaderships.

    def on_elected(self, partition: HostedPartition) -> None:
        self._unload(partition.index)
        assert partition.leader is not None
        epoch = partition.leader.leader_epoch
        served = ServedShard(self, partition, epoch, self._make(partition.index, epoch))
        self._served[partition.index] = served
        log = partition.log
        if log.log_start_offset == log.log_end_offset:
            served.on_loaded()
            return
        # One after the other: many at once would each take its part of every turn of the loop.
        self._to_load.append(served)
        if not self._loading:
            self._loading = True
            self.services.spawn(self._load_all())

    async def _load_all(self) -> None:
        try:
            while self._to_load:
                served = self._to_load.popleft()
                if served.closed:
                    continue
                try:
                    await load(self, served)
                except Exception as error:  # Whatever it is, the others are loaded.
                    served.fail(error)
        finally:
            self._loading = False

    def on_resigned(self, partition: HostedPartition) -> None:
        self._unload(partition.index)

    def before_outsider(self, partition: HostedPartition) -> None:
        served = self._served.get(partition.index)
        if served is not None and served.active:
            served.flush()

    def on_outsider(self, partition: HostedPartition, batch: memoryview, first_offset: int) -> None:
        served = self._served.get(partition.index)
        if served is not None and served.active:
            served.on_outsider(batch, first_offset)

    def reload(self, served: ServedShard[S]) -> None:
        """Somebody else wrote to the partition what the shard cannot take up as it is."""
        self.on_elected(served.partition)

    def _unload(self, partition: int) -> None:
        served = self._served.pop(partition, None)
        if served is not None:
            served.close()
            self.on_unloaded(partition)

    # Metadata.

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta, offset: int) -> None:
        """Called after the image was acted upon."""
        for served in list(self._served.values()):
            if served.active:
                served.on_metadata()


def _nobody(partition: int, leader_epoch: int, effect: Effect) -> None:
    raise AssertionError(f"nobody carries out {effect}")
