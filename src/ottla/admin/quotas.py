"""Quotas: which users, clients and addresses are kept to which rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.admin.asking import ask_once, check
from ottla.client.blocking import BlockingClient
from ottla.wire.messages.alter_client_quotas_request import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.alter_client_quotas_response import AlterClientQuotasResponse
from ottla.wire.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from ottla.wire.messages.describe_client_quotas_response import DescribeClientQuotasResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    entity: Mapping[str, str | None]
    """`user`, `client-id` or `ip`, or two of them, each with a name, or none for all without a quota of their own."""
    values: Mapping[str, float]
    """By Kafka's keys, such as `producer_byte_rate`."""


def list_quotas(client: BlockingClient) -> list[Quota]:
    answer = client.ask_any(DescribeClientQuotasRequest(components=[], strict=False), DescribeClientQuotasResponse)
    check(answer.error_code, answer.error_message, "The quotas cannot be listed")
    quotas = [
        Quota(
            entity={each.entity_type: each.entity_name for each in entry.entity},
            values={each.key: each.value for each in sorted(entry.values, key=lambda value: value.key)},
        )
        for entry in answer.entries or ()
    ]
    return sorted(quotas, key=lambda quota: sorted((kind, name or "") for kind, name in quota.entity.items()))


def alter_quota(
    client: BlockingClient,
    entity: Mapping[str, str | None],
    *,
    set: Mapping[str, float] | None = None,
    delete: Iterable[str] = (),
) -> None:
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            *(OpData(key=key, value=value) for key, value in (set or {}).items()),
            *(OpData(key=key, remove=True) for key in delete),
        ],
    )
    answer = ask_once(client, AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse)
    for result in answer.entries:
        check(result.error_code, result.error_message, "The quota cannot be changed")
