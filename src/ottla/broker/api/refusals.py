"""A refusal of a whole request, in the form of that request's own response.

A request that only the controller answers can fail before the controller has looked at its parts: nobody leads, the one
who led is gone, the disk failed. Some responses have a place for such an error, the others only one a part: then each
part of the request is told. Used by everything that asks the controller (`forwarded`, `on_controller`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

from ottla.errors import ErrorCode, KafkaError
from ottla.wire.apis import APIS, Api
from ottla.wire.message import Message

Told = dict[str, Any]
"""The fields of one part of a response, of whatever type the response has there, besides its error."""


def refusal(request: Message, error: KafkaError, version: int) -> Message:
    """The response to `request`, which came in `version`, that says `error` and nothing else."""
    assert request.API_KEY is not None
    response_class = APIS[request.API_KEY].response
    response = response_class()
    name = type(request).__name__
    if hasattr(response, "error_code") and version >= _ERROR_CODE_FROM.get(name, 0):
        response.error_code = error.code
        if hasattr(response, "error_message"):
            response.error_message = error.message
    row = _PARTS.get(name)
    if row is not None:
        field, part_class, parts = row
        wire = import_module(response_class.__module__)
        made = [getattr(wire, part_class)(**told) for told in parts(request, wire, error)]
        setattr(response, field, made)
    return response


def has_form(api: Api) -> bool:
    """Has the API's response a place for an error that `refusal` knows?"""
    return hasattr(api.response(), "error_code") or f"{api.name}Request" in _PARTS


def says(response: Message, code: ErrorCode) -> bool:
    """Is `code` the error of the response, or of one of its parts?"""
    if getattr(response, "error_code", 0) == code:
        return True
    return any(
        getattr(part, "error_code", 0) == code
        for name in response.__slots__
        if isinstance(parts := getattr(response, name), list)
        for part in parts
    )


def _named(*fields: tuple[str, ...], renamed: str | None = None) -> Callable[..., Iterable[Told]]:
    """Each element of some lists of the request, known by the fields that follow the list's name."""

    def parts(request: Message, wire: ModuleType, error: KafkaError) -> Iterable[Told]:
        named: list[Told] = [
            {renamed or name: getattr(part, name) for name in names}
            for source, *names in fields
            for part in getattr(request, source)
        ]
        if renamed is not None:
            # Who is in several lists is told once.
            named = list({told[renamed]: told for told in named}.values())
        return [{**told, "error_code": error.code, "error_message": error.message} for told in named]

    return parts


def _deleted_topics(request: Any, wire: ModuleType, error: KafkaError) -> Iterable[Told]:
    said = {"error_code": error.code, "error_message": error.message}
    for topic in request.topics:
        yield {"name": topic.name, "topic_id": topic.topic_id, **said}
    for name in request.topic_names:
        yield {"name": name, **said}


def _quota_entries(request: Any, wire: ModuleType, error: KafkaError) -> Iterable[Told]:
    for entry in request.entries:
        entity = [wire.EntityData(entity_type=e.entity_type, entity_name=e.entity_name) for e in entry.entity]
        yield {"entity": entity, "error_code": error.code, "error_message": error.message}


def _elections(request: Any, wire: ModuleType, error: KafkaError) -> Iterable[Told]:
    for topic in request.topic_partitions or ():
        results = [
            wire.PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
            for index in topic.partitions
        ]
        yield {"topic": topic.topic, "partition_result": results}


def _moves(request: Any, wire: ModuleType, error: KafkaError) -> Iterable[Told]:
    for directory in request.dirs:
        for topic in directory.topics:
            results = [
                wire.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error.code)
                for index in topic.partitions
            ]
            yield {"topic_name": topic.name, "partitions": results}


_ERROR_CODE_FROM = {"ElectLeadersRequest": 1}

_PARTS: dict[str, tuple[str, str, Callable[..., Iterable[Told]]]] = {
    "AlterClientQuotasRequest": ("entries", "EntryData", _quota_entries),
    "AlterConfigsRequest": (
        "responses",
        "AlterConfigsResourceResponse",
        _named(("resources", "resource_type", "resource_name")),
    ),
    "AlterReplicaLogDirsRequest": ("results", "AlterReplicaLogDirTopicResult", _moves),
    "AlterUserScramCredentialsRequest": (
        "results",
        "AlterUserScramCredentialsResult",
        _named(("deletions", "name"), ("upsertions", "name"), renamed="user"),
    ),
    "CreateAclsRequest": ("results", "AclCreationResult", _named(("creations",))),
    "CreatePartitionsRequest": ("results", "CreatePartitionsTopicResult", _named(("topics", "name"))),
    "CreateTopicsRequest": ("topics", "CreatableTopicResult", _named(("topics", "name"))),
    "DeleteAclsRequest": ("filter_results", "DeleteAclsFilterResult", _named(("filters",))),
    "DeleteTopicsRequest": ("responses", "DeletableTopicResult", _deleted_topics),
    "ElectLeadersRequest": ("replica_election_results", "ReplicaElectionResult", _elections),
    "IncrementalAlterConfigsRequest": (
        "responses",
        "AlterConfigsResourceResponse",
        _named(("resources", "resource_type", "resource_name")),
    ),
}
"""Requests whose parts are told: the response's field, the class of its elements, and what each says."""
