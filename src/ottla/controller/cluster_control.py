"""Brokers and controllers: who is registered, who is fenced, who is shutting down.

A broker starts fenced. It is unfenced when it has read the metadata log up to its own registration, stays so while it
is heard of, and shuts down in steps: it asks, its leaderships are moved, the others have seen that they were, and then
it may stop (KIP-841). Whether it is fenced or shutting down is metadata; when it was last heard of is not.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from ottla.controller.generated import Generated
from ottla.controller.leadership import Leadership
from ottla.controller.sessions import NO_SHUTDOWN_OFFSET, Sessions
from ottla.controller.settings import ControllerSettings
from ottla.controller.speculation import Speculation
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.delta import FENCE, UNFENCE
from ottla.metadata.features import (
    METADATA_VERSION,
    VersionRange,
    has_controller_registration,
    has_cordoned_directories,
    has_directory_assignment,
)
from ottla.metadata.images import BrokerRegistration, ControllerRegistration, Endpoint, is_reserved_directory
from ottla.metadata.records import MetadataRecord
from ottla.metadata.snapshot import register_broker_record, register_controller_record
from ottla.model import Uuid, uuid_to_text

if TYPE_CHECKING:
    from ottla.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
    from ottla.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse
    from ottla.wire.messages.broker_registration_request import BrokerRegistrationRequest
    from ottla.wire.messages.broker_registration_response import BrokerRegistrationResponse
    from ottla.wire.messages.controller_registration_request import ControllerRegistrationRequest
    from ottla.wire.messages.controller_registration_response import ControllerRegistrationResponse
    from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest
    from ottla.wire.messages.unregister_broker_response import UnregisterBrokerResponse


class BrokerState(Enum):
    FENCED = "takes no part"
    UNFENCED = "leads and follows"
    CONTROLLED_SHUTDOWN = "gives its leaderships away"
    SHUTDOWN_NOW = "may stop"


class ClusterControl:
    def __init__(
        self, state: Speculation, settings: ControllerSettings, sessions: Sessions, leadership: Leadership
    ) -> None:
        self._state = state
        self._settings = settings
        self._sessions = sessions
        self._leadership = leadership

    @property
    def _brokers(self) -> dict[int, BrokerRegistration]:
        return self._state.image.cluster.brokers

    def check_epoch(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self._brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} is not registered.")
        if broker.epoch != epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Broker {broker_id} has epoch {broker.epoch}, but the request has {epoch}.",
            )
        return broker

    # Registration.

    def register_broker(self, request: BrokerRegistrationRequest, now_ms: int) -> Generated[BrokerRegistrationResponse]:
        from ottla.wire.messages.broker_registration_response import BrokerRegistrationResponse

        broker_id = request.broker_id
        existing = self._brokers.get(broker_id)
        if request.cluster_id != self._settings.cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"This is cluster {self._settings.cluster_id}, but the broker belongs to {request.cluster_id}.",
            )
        same = existing is not None and existing.incarnation_id == request.incarnation_id
        # The proof of a clean shutdown also proves that the former incarnation is gone, though nobody was told: a
        # cluster that stopped as a whole need not wait for the sessions of its former self.
        gone = existing is not None and existing.epoch == request.previous_broker_epoch
        if existing is not None and not same and not gone and self._sessions.is_valid(broker_id, now_ms):
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION, f"Another broker with id {broker_id} is alive in this cluster."
            )
        if request.is_migrating_zk_broker:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Brokers that use ZooKeeper cannot register.")
        level = self._state.image.features.metadata_version
        if has_directory_assignment(level):
            self._check_directories(broker_id, request.log_dirs)
        features = {f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in request.features}
        self._check_features(broker_id, features)
        records: list[MetadataRecord] = []
        epoch, fenced, shutting_down = self._state.next_offset, True, False
        if existing is not None and same:
            # A retry of a registration whose answer was lost.
            epoch, fenced, shutting_down = existing.epoch, existing.fenced, existing.in_controlled_shutdown
        else:
            # The former incarnation is gone, whether or not it was fenced before. What it left behind in the file of a
            # clean shutdown was its epoch: only its successor can know that.
            clean = existing is not None and request.previous_broker_epoch == existing.epoch
            records += self._leadership.broker_restarted(broker_id, clean=clean)
            self._sessions.remove(broker_id)
            epoch += len(records)
        registration = BrokerRegistration(
            broker_id=broker_id,
            epoch=epoch,
            incarnation_id=request.incarnation_id,
            endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners),
            features=features,
            rack=request.rack,
            fenced=fenced,
            in_controlled_shutdown=shutting_down,
            log_dirs=tuple(request.log_dirs),
        )
        records.append(register_broker_record(registration, level))
        self._sessions.touch(broker_id, now_ms, -1)
        return Generated(records, BrokerRegistrationResponse(broker_epoch=epoch))

    def _check_directories(self, broker_id: int, directories: list[Uuid]) -> None:
        if not directories:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "A broker registers with the ids of its directories.")
        if any(is_reserved_directory(directory) for directory in directories):
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "A directory's id is a reserved one.")
        if len(set(directories)) != len(directories):
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Two directories have the same id.")
        for other in self._brokers.values():
            if other.broker_id != broker_id and (shared := set(other.log_dirs) & set(directories)):
                raise KafkaError(
                    ErrorCode.INVALID_REGISTRATION,
                    f"Directory {uuid_to_text(min(shared))} belongs to broker {other.broker_id}.",
                )

    def _check_features(self, broker_id: int, features: dict[str, VersionRange]) -> None:
        image = self._state.image.features
        if METADATA_VERSION not in features:
            raise KafkaError(
                ErrorCode.INVALID_REGISTRATION, f"Broker {broker_id} does not say which {METADATA_VERSION} it speaks."
            )
        finalized = {**image.levels, METADATA_VERSION: image.metadata_version}
        for name, level in finalized.items():
            supported = features.get(name, VersionRange(0, 0))
            if level not in supported:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"Broker {broker_id} speaks {name} {supported.min} to {supported.max}, but the cluster is at "
                    f"{level}.",
                )
        for name, supported in features.items():
            if name not in finalized and supported.min > 0:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"Broker {broker_id} needs {name} {supported.min} or later, which the cluster has not enabled.",
                )

    def register_controller(self, request: ControllerRegistrationRequest) -> Generated[ControllerRegistrationResponse]:
        from ottla.wire.messages.controller_registration_response import ControllerRegistrationResponse

        if not has_controller_registration(self._state.image.features.metadata_version):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "The cluster's metadata.version is older than controller registrations."
            )
        registration = ControllerRegistration(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners),
            features={f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in request.features},
        )
        return Generated([register_controller_record(registration)], ControllerRegistrationResponse())

    def unregister_broker(self, request: UnregisterBrokerRequest) -> Generated[UnregisterBrokerResponse]:
        from ottla.wire.messages.unregister_broker_record import UnregisterBrokerRecord
        from ottla.wire.messages.unregister_broker_response import UnregisterBrokerResponse

        broker = self._brokers.get(request.broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {request.broker_id} is not registered.")
        records = self._leadership.broker_unregistered(broker.broker_id)
        records.append(MetadataRecord(UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch), 0))
        self._sessions.remove(broker.broker_id)
        return Generated(records, UnregisterBrokerResponse(error_message=None))

    # Life and death.

    def heartbeat(self, request: BrokerHeartbeatRequest, now_ms: int) -> Generated[BrokerHeartbeatResponse]:
        from ottla.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse

        broker = self.check_epoch(request.broker_id, request.broker_epoch)
        caught_up = request.current_metadata_offset >= broker.epoch
        current = _state_of(broker)
        offline = self._newly_offline(broker, request)
        after = self._next_state(broker, current, request)
        online = [directory for directory in broker.log_dirs if directory not in offline]
        if offline and not online:
            # It has nothing left to serve from; there is no registration without a directory, and it is to stop anyhow.
            offline = set()
            after = BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
        elif offline and after is BrokerState.UNFENCED:
            # What it may lead is to be decided without those directories: first they go, and it is unfenced next time.
            after = current
        records: list[MetadataRecord] = []
        if after is not current:
            if after is BrokerState.UNFENCED:
                records.append(_registration_change(broker, fenced=UNFENCE))
                records += self._leadership.broker_unfenced(broker.broker_id)
            elif after is BrokerState.CONTROLLED_SHUTDOWN:
                records.append(_registration_change(broker, in_controlled_shutdown=1))
                records += self._leadership.broker_fenced(broker.broker_id)
            elif not broker.fenced:
                records += self._leadership.broker_fenced(broker.broker_id)
                records.append(_registration_change(broker, fenced=FENCE))
        if offline:
            if after is current:
                records += self._leadership.directories_failed(broker.broker_id, offline)
            records.append(_registration_change(broker, log_dirs=online))
        records += self._cordoned(broker, request)
        self._sessions.touch(broker.broker_id, now_ms, request.current_metadata_offset)
        if after is BrokerState.CONTROLLED_SHUTDOWN:
            self._sessions.begin_shutdown(broker.broker_id, self._state.next_offset + len(records) - 1)
        elif after is BrokerState.SHUTDOWN_NOW:
            self._sessions.end(broker.broker_id)
        response = BrokerHeartbeatResponse(
            is_caught_up=caught_up,
            is_fenced=after in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
            should_shut_down=after is BrokerState.SHUTDOWN_NOW,
        )
        return Generated(records, response)

    def _next_state(
        self, broker: BrokerRegistration, current: BrokerState, request: BrokerHeartbeatRequest
    ) -> BrokerState:
        if current is BrokerState.FENCED:
            if request.want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            if broker.in_controlled_shutdown or request.want_fence:
                # One that began to shut down comes back as another incarnation, or not at all.
                return current
            return BrokerState.UNFENCED if request.current_metadata_offset >= broker.epoch else current
        leads = self._leadership.leads_any
        if current is BrokerState.UNFENCED:
            if request.want_fence:
                return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
            if request.want_shut_down:
                return BrokerState.CONTROLLED_SHUTDOWN if leads(broker.broker_id) else BrokerState.SHUTDOWN_NOW
            return current
        if leads(broker.broker_id):
            return current
        # Others must have seen that the leaders moved, or their clients would be sent to a broker that is gone. One
        # that began under another controller has no offset here: then they must have seen all that there is.
        offset = self._sessions.shutdown_offset(broker.broker_id)
        if offset == NO_SHUTDOWN_OFFSET:
            offset = self._state.next_offset - 1
        others = (b.broker_id for b in self._brokers.values() if b.active and b.broker_id != broker.broker_id)
        lowest = self._sessions.lowest_offset(others)
        return BrokerState.SHUTDOWN_NOW if lowest is None or offset <= lowest else current

    def _newly_offline(self, broker: BrokerRegistration, request: BrokerHeartbeatRequest) -> set[Uuid]:
        if not has_directory_assignment(self._state.image.features.metadata_version):
            return set()
        return set(request.offline_log_dirs) & set(broker.log_dirs)

    def _cordoned(self, broker: BrokerRegistration, request: BrokerHeartbeatRequest) -> list[MetadataRecord]:
        cordoned = request.cordoned_log_dirs
        if cordoned is None or not has_cordoned_directories(self._state.image.features.metadata_version):
            return []
        if set(cordoned) == set(broker.cordoned_log_dirs or ()):
            return []
        return [_registration_change(broker, cordoned_log_dirs=cordoned)]

    def fence_stale_broker(self, now_ms: int) -> list[MetadataRecord]:
        """Fence one broker that has not been heard of; called again until there is none."""
        unfenced = [broker.broker_id for broker in self._brokers.values() if not broker.fenced]
        stale = self._sessions.stale(unfenced, now_ms)
        if stale is None:
            return []
        records = self._leadership.broker_fenced(stale)
        records.append(_registration_change(self._brokers[stale], fenced=FENCE))
        self._sessions.remove(stale)
        return records

    def next_session_check_ms(self) -> int | None:
        return self._sessions.next_check_ms(b.broker_id for b in self._brokers.values() if not b.fenced)


def _state_of(broker: BrokerRegistration) -> BrokerState:
    if broker.fenced:
        return BrokerState.FENCED
    return BrokerState.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else BrokerState.UNFENCED


def _registration_change(
    broker: BrokerRegistration,
    *,
    fenced: int = 0,
    in_controlled_shutdown: int = 0,
    log_dirs: list[Uuid] | None = None,
    cordoned_log_dirs: list[Uuid] | None = None,
) -> MetadataRecord:
    from ottla.wire.messages.broker_registration_change_record import BrokerRegistrationChangeRecord

    # The oldest form that can say it, as Kafka does.
    version = 3 if cordoned_log_dirs is not None else 2 if log_dirs is not None else 1 if in_controlled_shutdown else 0
    return MetadataRecord(
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id,
            broker_epoch=broker.epoch,
            fenced=fenced,
            in_controlled_shutdown=in_controlled_shutdown,
            log_dirs=log_dirs,
            cordoned_log_dirs=cordoned_log_dirs,
        ),
        version,
    )
