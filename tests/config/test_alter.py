"""Alterations as they were once sent to Apache Kafka: the same pass, and the same fail for the same reason."""

from __future__ import annotations

import pytest

from ottla.config.alter import AlterOp, Change, apply_changes
from ottla.config.key import Scope
from ottla.errors import ErrorCode, KafkaError

from .recorded import Cluster, changes_of, refusals

CODES = {
    "InvalidConfigurationException": ErrorCode.INVALID_CONFIG,
    "InvalidRequestException": ErrorCode.INVALID_REQUEST,
}
ELSEWHERE = ("does not exist", "Default topic resources", "cannot be altered while ELR", "more than double")
"""Refusals that need to know the cluster's topics, its features or its threads."""


def test_alterations_end_as_in_kafka() -> None:
    cluster = Cluster()
    compared = 0
    for row in refusals()["alterations"]:
        resource, name, _, answer = row
        if resource == "BROKER_LOGGER" or any(words in answer for words in ELSEWHERE):
            continue
        try:
            cluster.alter(resource, name, changes_of(row))
            ours = "OK"
        except KafkaError as refused:
            ours = f"{refused.code.name}: {refused.message}"
        theirs = answer.replace("requirement failed: ", "")
        kind, _, message = theirs.partition(": ")
        if message == "/ by zero":
            assert ours == "INVALID_REQUEST: log.cleaner.threads must be at least 1"
        else:
            assert ours == (f"{CODES[kind].name}: {message}" if message else "OK"), row
        compared += 1
    assert compared > 100


def test_lists_grow_and_shrink() -> None:
    def apply(stored: dict[str, str], op: AlterOp, value: str) -> dict[str, str]:
        return apply_changes(Scope.TOPIC, stored, [Change("cleanup.policy", op, value)])

    assert apply({}, AlterOp.APPEND, "compact") == {"cleanup.policy": "delete,compact"}
    assert apply({"cleanup.policy": "compact"}, AlterOp.APPEND, "compact,compact") == {"cleanup.policy": "compact"}
    assert apply({"cleanup.policy": "compact,delete"}, AlterOp.SUBTRACT, "delete,nope") == {"cleanup.policy": "compact"}
    assert apply({"cleanup.policy": ""}, AlterOp.APPEND, "delete") == {"cleanup.policy": "delete"}
    assert apply({}, AlterOp.SUBTRACT, "delete") == {"cleanup.policy": ""}


def test_what_is_stored_stays_as_it_was() -> None:
    stored = {"retention.ms": "1"}
    assert apply_changes(Scope.TOPIC, stored, [Change("retention.ms", AlterOp.DELETE, None)]) == {}
    assert stored == {"retention.ms": "1"}


def test_an_operation_that_does_not_exist_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        apply_changes(Scope.TOPIC, {}, [Change("retention.ms", 7, "1")])
    assert refused.value.code is ErrorCode.INVALID_REQUEST
