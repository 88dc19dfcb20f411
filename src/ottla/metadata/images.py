"""What the metadata log says when it has been read up to some offset.

An image never changes; the next one shares with it all that stayed the same (`persistent.py`). Brokers look things up
in the newest committed image, the controller generates records from the newest image of all. Images are made by
`MetadataDelta` alone, and written out by `snapshot.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ottla.metadata.features import ELR_VERSION, METADATA_VERSION_MIN, VersionRange
from ottla.metadata.persistent import PersistentMap
from ottla.model import Uuid

if TYPE_CHECKING:
    from ottla.wire.messages.access_control_entry_record import AccessControlEntryRecord
    from ottla.wire.messages.delegation_token_record import DelegationTokenRecord
    from ottla.wire.messages.user_scram_credential_record import UserScramCredentialRecord

NO_LEADER = -1

LEADER_RECOVERED = 0
LEADER_RECOVERING = 1
"""KIP-704: the leader was elected uncleanly and has yet to say that it has dealt with what was lost."""

UNASSIGNED_DIRECTORY = Uuid(bytes(16))
LOST_DIRECTORY = Uuid(bytes(15) + b"\x01")
MIGRATING_DIRECTORY = Uuid(bytes(15) + b"\x02")
"""KIP-858's reserved directory ids."""


def is_reserved_directory(directory: Uuid) -> bool:
    """Kafka keeps the first hundred ids for itself."""
    return directory[:15] == bytes(15) and directory[15] < 100


class PartitionImage(NamedTuple):
    """One partition as the controller last decided it. A tuple: there may be very many."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[Uuid, ...]
    leader_recovery_state: int = LEADER_RECOVERED
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    def directory_of(self, replica: int) -> Uuid:
        return self.directories[self.replicas.index(replica)]

    def is_lost(self, replica: int) -> bool:
        """Has the replica's broker said that it lacks what was committed, wherever it is?"""
        return replica in self.replicas and bool(self.directories) and self.directory_of(replica) == LOST_DIRECTORY

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0]


class TopicImage(NamedTuple):
    name: str
    topic_id: Uuid
    partitions: PersistentMap[int, PartitionImage]


@dataclass(frozen=True, slots=True)
class TopicsImage:
    by_name: PersistentMap[str, TopicImage] = field(default_factory=PersistentMap)
    by_id: PersistentMap[Uuid, TopicImage] = field(default_factory=PersistentMap)
    collisions: PersistentMap[str, tuple[str, ...]] = field(default_factory=PersistentMap)
    """Names with '.' or '_', under the name that metrics would give all of them."""

    partition_count: int = 0

    def partition(self, topic_id: Uuid, partition: int) -> PartitionImage | None:
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(partition)


def collision_key(name: str) -> str | None:
    """Metric names cannot tell '.' from '_', so two topics may not differ in that alone."""
    return name.replace(".", "_") if "." in name or "_" in name else None


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: int


class BrokerRegistration(NamedTuple):
    broker_id: int
    epoch: int
    """The offset of the record that registered this incarnation."""

    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: dict[str, VersionRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[Uuid, ...]
    cordoned_log_dirs: tuple[Uuid, ...] | None = None
    is_migrating_zk_broker: bool = False

    @property
    def active(self) -> bool:
        """May this broker lead, and join an ISR (KIP-841)?"""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online(self, directory: Uuid) -> bool:
        """Is a replica that was put into `directory` there to be used (KIP-858)?

        One that the broker has not placed yet counts as online. A broker that registered before directories had ids
        says nothing of them.
        """
        if is_reserved_directory(directory):
            return directory != LOST_DIRECTORY
        return not self.log_dirs or directory in self.log_dirs

    def new_directory(self) -> Uuid:
        """Where a new replica goes: known at once where there is one directory; else the broker chooses, and says."""
        if not self.log_dirs:
            return MIGRATING_DIRECTORY
        return self.log_dirs[0] if len(self.log_dirs) == 1 else UNASSIGNED_DIRECTORY

    @property
    def takes_replicas(self) -> bool:
        """Has it a directory that is not cordoned (KIP-1066)?"""
        cordoned = self.cordoned_log_dirs or ()
        return not self.log_dirs or any(directory not in cordoned for directory in self.log_dirs)

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)


class ControllerRegistration(NamedTuple):
    controller_id: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: dict[str, VersionRange]
    zk_migration_ready: bool = False


@dataclass(frozen=True, slots=True)
class FeaturesImage:
    metadata_version: int = METADATA_VERSION_MIN
    levels: dict[str, int] = field(default_factory=dict)
    """Finalized levels above zero, of everything but metadata.version. Never changed in place."""

    @property
    def elr(self) -> bool:
        """Are eligible leader replicas kept (KIP-966)?"""
        return self.levels.get(ELR_VERSION, 0) > 0


@dataclass(frozen=True, slots=True)
class ClusterImage:
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    controllers: dict[int, ControllerRegistration] = field(default_factory=dict)
    """Both in the order of their ids. Never changed in place."""


RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_BROKER_LOGGER = 8
RESOURCE_CLIENT_METRICS = 16
RESOURCE_GROUP = 32


class ConfigResource(NamedTuple):
    type: int
    name: str
    """Empty for the default of all brokers."""


DEFAULT_BROKER = ConfigResource(RESOURCE_BROKER, "")


class EntityPart(NamedTuple):
    """One part of what a quota is for. A tuple that sorts, where the default entity has no name."""

    type: str
    named: bool
    name: str


QuotaEntity = tuple[EntityPart, ...]


class Provenance(NamedTuple):
    """Where in the log an image was taken: the last offset in it, the epoch of that batch, and when it was written."""

    offset: int
    epoch: int
    timestamp_ms: int


NOWHERE = Provenance(-1, -1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    provenance: Provenance = NOWHERE
    features: FeaturesImage = field(default_factory=FeaturesImage)
    cluster: ClusterImage = field(default_factory=ClusterImage)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: PersistentMap[ConfigResource, dict[str, str]] = field(default_factory=PersistentMap)
    next_producer_id: int = -1
    """The first of the next block; -1 until a block has been given out."""

    client_quotas: PersistentMap[QuotaEntity, dict[str, float]] = field(default_factory=PersistentMap)
    acls: PersistentMap[Uuid, AccessControlEntryRecord] = field(default_factory=PersistentMap)
    scram_credentials: PersistentMap[tuple[str, int], UserScramCredentialRecord] = field(default_factory=PersistentMap)
    delegation_tokens: PersistentMap[str, DelegationTokenRecord] = field(default_factory=PersistentMap)

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.by_name.get(name)

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        return self.topics.by_id.get(topic_id)

    def partition(self, name: str, partition: int) -> PartitionImage | None:
        topic = self.topics.by_name.get(name)
        return None if topic is None else topic.partitions.get(partition)

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        return self.cluster.brokers.get(broker_id)

    def alive_brokers(self) -> list[BrokerRegistration]:
        """Those that clients are told of."""
        return [broker for broker in self.cluster.brokers.values() if not broker.fenced]

    def config(self, resource: ConfigResource) -> dict[str, str]:
        """The overrides of one resource; not to be changed."""
        return self.configs.get(resource) or {}

    def topic_config(self, name: str) -> dict[str, str]:
        return self.config(ConfigResource(RESOURCE_TOPIC, name))

    @property
    def last_offset(self) -> int:
        return self.provenance.offset


EMPTY_IMAGE = MetadataImage()
