"""The one door to the controller: a method a request. See the package's docstring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from ottla.config.node import NodeConfig
from ottla.controller.activation import activation_records, check_features
from ottla.controller.cluster_control import ClusterControl
from ottla.controller.config_control import ConfigControl
from ottla.controller.config_table import ConfigTable
from ottla.controller.feature_control import FeatureControl
from ottla.controller.generated import Generated
from ottla.controller.leadership import Leadership
from ottla.controller.producer_id_control import ProducerIdControl
from ottla.controller.sessions import Sessions
from ottla.controller.settings import ControllerSettings
from ottla.controller.speculation import Speculation
from ottla.controller.topic_control import TopicControl
from ottla.metadata.images import MetadataImage
from ottla.metadata.records import MetadataRecord
from ottla.metadata.state import MetadataBatch, MetadataState, Publication

if TYPE_CHECKING:
    from ottla.wire.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
    from ottla.wire.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
    from ottla.wire.messages.alter_configs_request import AlterConfigsRequest
    from ottla.wire.messages.alter_configs_response import AlterConfigsResponse
    from ottla.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
    from ottla.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse
    from ottla.wire.messages.broker_registration_request import BrokerRegistrationRequest
    from ottla.wire.messages.broker_registration_response import BrokerRegistrationResponse
    from ottla.wire.messages.controller_registration_request import ControllerRegistrationRequest
    from ottla.wire.messages.controller_registration_response import ControllerRegistrationResponse
    from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest
    from ottla.wire.messages.create_partitions_response import CreatePartitionsResponse
    from ottla.wire.messages.create_topics_request import CreateTopicsRequest
    from ottla.wire.messages.create_topics_response import CreateTopicsResponse
    from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest
    from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse
    from ottla.wire.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
    from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
    from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest
    from ottla.wire.messages.unregister_broker_response import UnregisterBrokerResponse
    from ottla.wire.messages.update_features_request import UpdateFeaturesRequest
    from ottla.wire.messages.update_features_response import UpdateFeaturesResponse


def _any_topic(name: str) -> bool:
    return True


class Controller:
    """The active controller of one epoch. A node that loses the leadership drops it; the next leader makes its own.

    A refusal of the whole request is a `KafkaError`; whoever holds the connection gives it the response's form.
    """

    def __init__(
        self,
        *,
        settings: ControllerSettings,
        config: NodeConfig,
        random: Random,
        committed: MetadataState,
        next_offset: int,
        now_ms: int,
    ) -> None:
        check_features(committed)
        self._state = Speculation(committed, next_offset)
        self._sessions = Sessions(settings.session_timeout_ms)
        self._sessions.activate(committed.newest.cluster.brokers, now_ms)
        table = ConfigTable(config)
        leadership = Leadership(self._state, table)
        self._cluster = ClusterControl(self._state, settings, self._sessions, leadership)
        self._configs = ConfigControl(self._state, table)
        self._topics = TopicControl(self._state, settings, self._configs, random)
        self._features = FeatureControl(self._state)
        self._producer_ids = ProducerIdControl(self._state, self._cluster)

    # The log: what was generated is appended and replayed at once; it is committed later, or never.

    @property
    def image(self) -> MetadataImage:
        """The newest, committed or not."""
        return self._state.image

    @property
    def next_offset(self) -> int:
        return self._state.next_offset

    @property
    def has_uncommitted(self) -> bool:
        return self._state.uncommitted > 0

    @property
    def committed(self) -> MetadataState:
        return self._state.committed

    def replay(self, batch: MetadataBatch) -> None:
        self._state.replay(batch)

    def on_committed(self, high_watermark: int) -> list[tuple[Publication, MetadataState]]:
        return self._state.commit(high_watermark)

    def revert(self) -> None:
        self._state.revert()

    def activate(self, bootstrap: Sequence[MetadataRecord]) -> Generated[None]:
        return Generated(activation_records(self._state.newest, bootstrap), None)

    # Time.

    def next_session_check_ms(self) -> int | None:
        """When `fence_stale_broker` may next have something to do."""
        return self._cluster.next_session_check_ms()

    def fence_stale_broker(self, now_ms: int) -> Generated[None]:
        return self._cluster.fence_stale_broker(now_ms)

    def on_paused(self, now_ms: int) -> None:
        """This process did not run for a while, so that silence says nothing about the brokers."""
        self._sessions.forgive(now_ms)

    # Requests.

    def register_broker(self, request: BrokerRegistrationRequest, now_ms: int) -> Generated[BrokerRegistrationResponse]:
        return self._cluster.register_broker(request, now_ms)

    def register_controller(
        self, request: ControllerRegistrationRequest, now_ms: int
    ) -> Generated[ControllerRegistrationResponse]:
        return self._cluster.register_controller(request)

    def broker_heartbeat(self, request: BrokerHeartbeatRequest, now_ms: int) -> Generated[BrokerHeartbeatResponse]:
        return self._cluster.heartbeat(request, now_ms)

    def unregister_broker(self, request: UnregisterBrokerRequest, now_ms: int) -> Generated[UnregisterBrokerResponse]:
        return self._cluster.unregister_broker(request)

    def create_topics(
        self, request: CreateTopicsRequest, now_ms: int, describable: Callable[[str], bool] = _any_topic
    ) -> Generated[CreateTopicsResponse]:
        return self._topics.create_topics(request, describable)

    def delete_topics(self, request: DeleteTopicsRequest, now_ms: int) -> Generated[DeleteTopicsResponse]:
        return self._topics.delete_topics(request)

    def create_partitions(self, request: CreatePartitionsRequest, now_ms: int) -> Generated[CreatePartitionsResponse]:
        return self._topics.create_partitions(request)

    def alter_configs(self, request: AlterConfigsRequest, now_ms: int) -> Generated[AlterConfigsResponse]:
        return self._configs.alter_configs(request)

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, now_ms: int
    ) -> Generated[IncrementalAlterConfigsResponse]:
        return self._configs.incremental_alter_configs(request)

    def update_features(self, request: UpdateFeaturesRequest, now_ms: int) -> Generated[UpdateFeaturesResponse]:
        return self._features.update_features(request)

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, now_ms: int
    ) -> Generated[AllocateProducerIdsResponse]:
        return self._producer_ids.allocate(request)
