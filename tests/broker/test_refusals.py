"""A request that fails as a whole is answered in its own form: by one error, or by one a part."""

from __future__ import annotations

import pytest

from ottla.broker.api import CONTROLLER_HANDLERS, HANDLERS
from ottla.broker.api.refusals import refusal, says
from ottla.broker.forwarding import FORWARDABLE
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Uuid
from ottla.wire.apis import APIS
from ottla.wire.message import Message
from ottla.wire.messages import alter_client_quotas_request, alter_client_quotas_response, message_class
from ottla.wire.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from ottla.wire.messages.alter_configs_response import AlterConfigsResourceResponse, AlterConfigsResponse
from ottla.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from ottla.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.elect_leaders_response import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from ottla.wire.messages.update_features_request import UpdateFeaturesRequest
from ottla.wire.messages.update_features_response import UpdateFeaturesResponse

LOST = KafkaError(ErrorCode.NOT_CONTROLLER, "Nobody leads.")
TOPIC_ID = Uuid(b"0123456789abcdef")

CASES: list[tuple[Message, Message]] = [
    (UpdateFeaturesRequest(), UpdateFeaturesResponse(error_code=41, error_message="Nobody leads.")),
    (
        CreateTopicsRequest(topics=[CreatableTopic(name="a"), CreatableTopic(name="b")]),
        CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name="a", error_code=41, error_message="Nobody leads."),
                CreatableTopicResult(name="b", error_code=41, error_message="Nobody leads."),
            ]
        ),
    ),
    (
        DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=TOPIC_ID)], topic_names=["old"]),
        DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(name=None, topic_id=TOPIC_ID, error_code=41, error_message="Nobody leads."),
                DeletableTopicResult(name="old", error_code=41, error_message="Nobody leads."),
            ]
        ),
    ),
    (
        AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=2, resource_name="t")]),
        AlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=41, error_message="Nobody leads.", resource_type=2, resource_name="t"
                )
            ]
        ),
    ),
    (
        CreateAclsRequest(creations=[AclCreation(), AclCreation()]),
        CreateAclsResponse(results=[AclCreationResult(error_code=41, error_message="Nobody leads.")] * 2),
    ),
    (
        ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[3])]),
        ElectLeadersResponse(
            error_code=41,
            replica_election_results=[
                ReplicaElectionResult(
                    topic="t",
                    partition_result=[PartitionResult(partition_id=3, error_code=41, error_message="Nobody leads.")],
                )
            ],
        ),
    ),
    (ElectLeadersRequest(topic_partitions=None), ElectLeadersResponse(error_code=41)),
    (
        alter_client_quotas_request.AlterClientQuotasRequest(
            entries=[
                alter_client_quotas_request.EntryData(
                    entity=[alter_client_quotas_request.EntityData(entity_type="user", entity_name=None)]
                )
            ]
        ),
        alter_client_quotas_response.AlterClientQuotasResponse(
            entries=[
                alter_client_quotas_response.EntryData(
                    error_code=41,
                    error_message="Nobody leads.",
                    entity=[alter_client_quotas_response.EntityData(entity_type="user", entity_name=None)],
                )
            ]
        ),
    ),
]


@pytest.mark.parametrize(("request_", "response"), CASES, ids=lambda message: type(message).__name__)
def test_the_refusal_has_the_form_of_the_response(request_: Message, response: Message) -> None:
    assert refusal(request_, LOST, 1) == response
    assert says(response, ErrorCode.NOT_CONTROLLER)
    assert not says(response, ErrorCode.REQUEST_TIMED_OUT)


def test_a_user_is_told_once_whatever_is_asked_of_it() -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="ann", mechanism=1), ScramCredentialDeletion(name="ann", mechanism=2)],
        upsertions=[ScramCredentialUpsertion(name="ann"), ScramCredentialUpsertion(name="bob")],
    )
    response = refusal(request, LOST, 0)
    assert isinstance(response, AlterUserScramCredentialsResponse)
    assert [result.user for result in response.results] == ["ann", "bob"]


DECIDED = sorted(
    {key for key, module in CONTROLLER_HANDLERS.items() if module == "on_controller"}
    | {key for key, module in HANDLERS.items() if module == "forwarded"}
)


@pytest.mark.parametrize("key", DECIDED)
def test_every_request_to_the_controller_can_be_refused_in_every_version(key: int) -> None:
    api = APIS[key]
    for version in range(api.first_version, api.last_version + 1):
        response = refusal(api.request(), LOST, version)
        assert type(response) is message_class(f"{api.name}Response")
        told = type(response).decode(response.encode(version), version)
        assert says(told, ErrorCode.NOT_CONTROLLER) == says(response, ErrorCode.NOT_CONTROLLER)


def test_the_oldest_election_has_errors_of_partitions_alone() -> None:
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[3])])
    response = refusal(request, LOST, 0)
    assert isinstance(response, ElectLeadersResponse)
    assert response.error_code == 0
    assert response.replica_election_results[0].partition_result[0].error_code == ErrorCode.NOT_CONTROLLER
    response.encode(0)


def test_what_is_served_is_what_kafka_has_on_each_listener() -> None:
    assert all(APIS[key].on_broker for key in HANDLERS)
    assert all(APIS[key].on_controller for key in CONTROLLER_HANDLERS)
    # And what a broker hands on can be opened by a controller.
    assert {
        key for key, module in HANDLERS.items() if module == "forwarded"
    } <= FORWARDABLE & CONTROLLER_HANDLERS.keys()
