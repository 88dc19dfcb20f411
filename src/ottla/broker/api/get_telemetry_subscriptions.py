"""GetTelemetrySubscriptions (key 71): which metrics this client is to push, and how often (KIP-714)."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.monitoring.telemetry import ACCEPTED_COMPRESSION_TYPES, ClientAttributes
from ottla.errors import KafkaError
from ottla.wire.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from ottla.wire.messages.get_telemetry_subscriptions_response import GetTelemetrySubscriptionsResponse

_UNKNOWN = ("unknown", "unknown")


def handle(context: Context, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    telemetry = context.services.telemetry
    try:
        instance_id, instance = telemetry.get(
            request.client_instance_id, client_attributes(context), context.connection
        )
    except KafkaError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(ACCEPTED_COMPRESSION_TYPES),
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=instance.metrics,
    )


def client_attributes(context: Context) -> ClientAttributes:
    """Who is asking, as far as the connection tells."""
    name, version = context.connection.software or _UNKNOWN
    address, port = context.connection.peer
    return ClientAttributes(context.client_id, name, version, address, port)
