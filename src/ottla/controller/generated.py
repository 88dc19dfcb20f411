"""What a request comes to: records to append, and the response to send once they are committed."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.records import MetadataRecord

R = TypeVar("R")

RECORDS_PER_REQUEST_MAX = 10_000
"""A request's records are one batch, all or nothing; more than this is refused, as in Kafka."""


class Generated(NamedTuple, Generic[R]):
    records: list[MetadataRecord]
    response: R


def check_size(records: list[MetadataRecord]) -> None:
    if len(records) > RECORDS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The request would make {len(records)} metadata changes at once; at most {RECORDS_PER_REQUEST_MAX} are "
            f"allowed, so split it.",
        )
