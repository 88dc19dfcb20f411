"""What a person can do whom the cluster has refused: a few words behind the sentence that says why. Pure."""

from __future__ import annotations

from ottla.errors import ErrorCode, KafkaError

_SEE_TOPICS = "see `ottla topic list`"
_LOG_IN = "log in as somebody who has it, or give it with `ottla acl add`"
_ASK_DOCTOR = "see what `ottla doctor` finds"

_STEPS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _SEE_TOPICS,
    ErrorCode.UNKNOWN_TOPIC_ID: _SEE_TOPICS,
    ErrorCode.TOPIC_ALREADY_EXISTS: "say --if-not-exists if that is as it should be",
    ErrorCode.GROUP_ID_NOT_FOUND: "see `ottla group list`",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "see `ottla txn list`",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _LOG_IN,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _LOG_IN,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _LOG_IN,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _LOG_IN,
    ErrorCode.SECURITY_DISABLED: "set authorizer.class.name on its nodes",
    ErrorCode.REQUEST_TIMED_OUT: _ASK_DOCTOR,
    ErrorCode.BROKER_NOT_AVAILABLE: _ASK_DOCTOR,
    ErrorCode.LEADER_NOT_AVAILABLE: _ASK_DOCTOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _ASK_DOCTOR,
    ErrorCode.NOT_CONTROLLER: _ASK_DOCTOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: _ASK_DOCTOR,
    ErrorCode.KAFKA_STORAGE_ERROR: _ASK_DOCTOR,
}


def sentence(error: KafkaError) -> str:
    """What is wrong and, where there is one, the next step; a message that names a command has its own."""
    said = error.message or error.code.name
    step = _STEPS.get(error.code)
    return said if step is None or "`" in said else f"{said.rstrip('.')}; {step}."
