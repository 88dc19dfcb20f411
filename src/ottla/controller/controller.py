"""The one door to the controller: a method a request. See the package's docstring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING

from ottla.config.node import NodeConfig
from ottla.controller.acl_control import AclControl
from ottla.controller.activation import activation_records, check_features
from ottla.controller.alter_partition import AlterPartitionControl
from ottla.controller.cluster_control import ClusterControl
from ottla.controller.config_control import ConfigControl
from ottla.controller.config_table import ConfigTable
from ottla.controller.directory_control import DirectoryControl
from ottla.controller.election_control import ElectionControl
from ottla.controller.feature_control import FeatureControl
from ottla.controller.generated import Generated
from ottla.controller.leadership import Leadership
from ottla.controller.producer_id_control import ProducerIdControl
from ottla.controller.quota_control import QuotaControl
from ottla.controller.reassignment_control import ReassignmentControl
from ottla.controller.requester import ANYBODY, Requester
from ottla.controller.scram_control import ScramControl
from ottla.controller.sessions import Sessions
from ottla.controller.settings import ControllerSettings
from ottla.controller.speculation import Speculation
from ottla.controller.timed_work import TimedWork
from ottla.controller.token_control import TokenControl
from ottla.controller.topic_control import TopicControl
from ottla.metadata.images import MetadataImage
from ottla.metadata.records import MetadataRecord
from ottla.metadata.state import MetadataBatch, MetadataState, Publication

if TYPE_CHECKING:
    from ottla.wire.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
    from ottla.wire.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
    from ottla.wire.messages.alter_client_quotas_request import AlterClientQuotasRequest
    from ottla.wire.messages.alter_client_quotas_response import AlterClientQuotasResponse
    from ottla.wire.messages.alter_configs_request import AlterConfigsRequest
    from ottla.wire.messages.alter_configs_response import AlterConfigsResponse
    from ottla.wire.messages.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
    from ottla.wire.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
    from ottla.wire.messages.alter_partition_request import AlterPartitionRequest
    from ottla.wire.messages.alter_partition_response import AlterPartitionResponse
    from ottla.wire.messages.alter_user_scram_credentials_request import AlterUserScramCredentialsRequest
    from ottla.wire.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
    from ottla.wire.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
    from ottla.wire.messages.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse
    from ottla.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
    from ottla.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse
    from ottla.wire.messages.broker_registration_request import BrokerRegistrationRequest
    from ottla.wire.messages.broker_registration_response import BrokerRegistrationResponse
    from ottla.wire.messages.controller_registration_request import ControllerRegistrationRequest
    from ottla.wire.messages.controller_registration_response import ControllerRegistrationResponse
    from ottla.wire.messages.create_acls_request import CreateAclsRequest
    from ottla.wire.messages.create_acls_response import CreateAclsResponse
    from ottla.wire.messages.create_delegation_token_request import CreateDelegationTokenRequest
    from ottla.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse
    from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest
    from ottla.wire.messages.create_partitions_response import CreatePartitionsResponse
    from ottla.wire.messages.create_topics_request import CreateTopicsRequest
    from ottla.wire.messages.create_topics_response import CreateTopicsResponse
    from ottla.wire.messages.delete_acls_request import DeleteAclsRequest
    from ottla.wire.messages.delete_acls_response import DeleteAclsResponse
    from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest
    from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse
    from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest
    from ottla.wire.messages.elect_leaders_response import ElectLeadersResponse
    from ottla.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
    from ottla.wire.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
    from ottla.wire.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
    from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
    from ottla.wire.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
    from ottla.wire.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse
    from ottla.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest
    from ottla.wire.messages.renew_delegation_token_response import RenewDelegationTokenResponse
    from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest
    from ottla.wire.messages.unregister_broker_response import UnregisterBrokerResponse
    from ottla.wire.messages.update_features_request import UpdateFeaturesRequest
    from ottla.wire.messages.update_features_response import UpdateFeaturesResponse

METHODS: dict[str, str] = {
    "AllocateProducerIdsRequest": "allocate_producer_ids",
    "AlterClientQuotasRequest": "alter_client_quotas",
    "AlterConfigsRequest": "alter_configs",
    "AlterPartitionReassignmentsRequest": "alter_partition_reassignments",
    "AlterPartitionRequest": "alter_partition",
    "AlterUserScramCredentialsRequest": "alter_user_scram_credentials",
    "AssignReplicasToDirsRequest": "assign_replicas_to_dirs",
    "BrokerHeartbeatRequest": "broker_heartbeat",
    "BrokerRegistrationRequest": "register_broker",
    "ControllerRegistrationRequest": "register_controller",
    "CreateAclsRequest": "create_acls",
    "CreateDelegationTokenRequest": "create_delegation_token",
    "CreatePartitionsRequest": "create_partitions",
    "CreateTopicsRequest": "create_topics",
    "DeleteAclsRequest": "delete_acls",
    "DeleteTopicsRequest": "delete_topics",
    "ElectLeadersRequest": "elect_leaders",
    "ExpireDelegationTokenRequest": "expire_delegation_token",
    "IncrementalAlterConfigsRequest": "incremental_alter_configs",
    "ListPartitionReassignmentsRequest": "list_partition_reassignments",
    "RenewDelegationTokenRequest": "renew_delegation_token",
    "UnregisterBrokerRequest": "unregister_broker",
    "UpdateFeaturesRequest": "update_features",
}
"""What the controller answers: the class of each request, and the method of `Controller` that it goes to."""


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
        unfenced = (broker.broker_id for broker in committed.newest.cluster.brokers.values() if not broker.fenced)
        self._sessions.activate(unfenced, now_ms, own_broker=settings.node_id)
        table = ConfigTable(config)
        leadership = Leadership(self._state, table)
        self._cluster = ClusterControl(self._state, settings, self._sessions, leadership)
        self._alter_partition = AlterPartitionControl(self._state, self._cluster, leadership)
        self._elections = ElectionControl(self._state, leadership)
        self._reassignments = ReassignmentControl(self._state, leadership)
        self._directories = DirectoryControl(self._state, self._cluster, leadership)
        self._configs = ConfigControl(self._state, table)
        self._topics = TopicControl(self._state, settings, self._configs, random)
        self._features = FeatureControl(self._state, self._configs, settings.node_id)
        self._producer_ids = ProducerIdControl(self._state, self._cluster)
        self._scram = ScramControl(self._state)
        self._acls = AclControl(self._state, settings, random)
        self._quotas = QuotaControl(self._state)
        self._tokens = TokenControl(self._state, settings, random)
        self._timed_work = TimedWork(settings, self._cluster, self._elections, self._tokens, now_ms)
        self._wall_ahead_ms = 0

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
        self._timed_work.on_appended(batch.records)

    def on_committed(self, high_watermark: int) -> list[tuple[Publication, MetadataState]]:
        return self._state.commit(high_watermark)

    def revert(self) -> None:
        self._state.revert()

    def activate(self, bootstrap: Sequence[MetadataRecord]) -> Generated[None]:
        default = self._configs.static_min_insync_replicas
        return Generated(activation_records(self._state.newest, bootstrap, default), None)

    # Time.

    def next_timed_work_ms(self) -> int:
        """When `timed_work` next has something to look at. What was asked meanwhile may bring it forward."""
        return self._timed_work.next_ms()

    def timed_work(self, now_ms: int) -> Generated[None]:
        """One step of what is due, to be appended and then called again, until it generates nothing."""
        return Generated(self._timed_work.step(now_ms, now_ms + self._wall_ahead_ms), None)

    def on_wall_clock(self, ahead_ms: int) -> None:
        """By how much the wall clock is ahead of the clock that times are told by: tokens expire by the wall's."""
        self._wall_ahead_ms = ahead_ms

    def on_listeners(self, *, present: bool) -> None:
        """Does any other node read this log, so that it must not fall silent?"""
        self._timed_work.has_listeners = present

    def on_quorum(self, voters: Iterable[int], kraft_version: int) -> None:
        """Who votes in the quorum, and its `kraft.version`: what of the features is not metadata."""
        self._features.on_quorum(voters, kraft_version)

    def on_paused(self, now_ms: int) -> None:
        """This process did not run for a while, so that silence says nothing about the brokers."""
        self._sessions.forgive(now_ms)

    # Requests. `METHODS` names them all; each takes the request, the time and who asks.

    def register_broker(
        self, request: BrokerRegistrationRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[BrokerRegistrationResponse]:
        return self._cluster.register_broker(request, now_ms)

    def register_controller(
        self, request: ControllerRegistrationRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[ControllerRegistrationResponse]:
        return self._cluster.register_controller(request)

    def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[BrokerHeartbeatResponse]:
        return self._cluster.heartbeat(request, now_ms)

    def unregister_broker(
        self, request: UnregisterBrokerRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[UnregisterBrokerResponse]:
        return self._cluster.unregister_broker(request)

    def create_topics(
        self, request: CreateTopicsRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[CreateTopicsResponse]:
        return self._topics.create_topics(request, requester)

    def delete_topics(
        self, request: DeleteTopicsRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[DeleteTopicsResponse]:
        return self._topics.delete_topics(request, requester)

    def create_partitions(
        self, request: CreatePartitionsRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[CreatePartitionsResponse]:
        return self._topics.create_partitions(request, requester)

    def alter_partition(
        self, request: AlterPartitionRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[AlterPartitionResponse]:
        return self._alter_partition.alter_partition(request)

    def elect_leaders(
        self, request: ElectLeadersRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[ElectLeadersResponse]:
        return self._elections.elect_leaders(request)

    def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[AlterPartitionReassignmentsResponse]:
        return self._reassignments.alter(request)

    def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[ListPartitionReassignmentsResponse]:
        return self._reassignments.list(request)

    def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[AssignReplicasToDirsResponse]:
        return self._directories.assign(request)

    def alter_configs(
        self, request: AlterConfigsRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[AlterConfigsResponse]:
        return self._configs.alter_configs(request)

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[IncrementalAlterConfigsResponse]:
        return self._configs.incremental_alter_configs(request)

    def update_features(
        self, request: UpdateFeaturesRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[UpdateFeaturesResponse]:
        return self._features.update_features(request)

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[AllocateProducerIdsResponse]:
        return self._producer_ids.allocate(request)

    def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[AlterUserScramCredentialsResponse]:
        return self._scram.alter(request)

    def create_delegation_token(
        self, request: CreateDelegationTokenRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[CreateDelegationTokenResponse]:
        return self._tokens.create(request, now_ms + self._wall_ahead_ms, requester)

    def renew_delegation_token(
        self, request: RenewDelegationTokenRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[RenewDelegationTokenResponse]:
        return self._tokens.renew(request, now_ms + self._wall_ahead_ms, requester)

    def expire_delegation_token(
        self, request: ExpireDelegationTokenRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[ExpireDelegationTokenResponse]:
        return self._tokens.expire(request, now_ms + self._wall_ahead_ms, requester)

    def create_acls(
        self, request: CreateAclsRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[CreateAclsResponse]:
        return self._acls.create(request)

    def delete_acls(
        self, request: DeleteAclsRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[DeleteAclsResponse]:
        return self._acls.delete(request)

    def alter_client_quotas(
        self, request: AlterClientQuotasRequest, now_ms: int, requester: Requester = ANYBODY
    ) -> Generated[AlterClientQuotasResponse]:
        return self._quotas.alter(request)
