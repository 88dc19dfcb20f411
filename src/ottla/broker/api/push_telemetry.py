"""PushTelemetry (key 72): the metrics that a client was asked for (KIP-714), kept to be shown with the node's own."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.api.get_telemetry_subscriptions import client_attributes
from ottla.broker.context import Context
from ottla.broker.monitoring.telemetry import unpack
from ottla.errors import KafkaError
from ottla.wire.messages.push_telemetry_request import PushTelemetryRequest
from ottla.wire.messages.push_telemetry_response import PushTelemetryResponse


def handle(context: Context, request: PushTelemetryRequest) -> PushTelemetryResponse | Awaitable[PushTelemetryResponse]:
    telemetry = context.services.telemetry
    try:
        telemetry.check_push(
            request.client_instance_id,
            client_attributes(context),
            context.connection,
            subscription_id=request.subscription_id,
            terminating=request.terminating,
            compression_type=request.compression_type,
            size=len(request.metrics),
        )
    except KafkaError as error:
        return PushTelemetryResponse(error_code=error.code)
    if not request.metrics:
        telemetry.keep(request.client_instance_id, context.client_id, (), terminating=request.terminating)
        return PushTelemetryResponse()
    return _unpack_and_keep(context, request)


async def _unpack_and_keep(context: Context, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Off the loop: what is compressed may take long to unpack, and longer to read."""
    telemetry = context.services.telemetry
    data, compression_type, max_bytes = request.metrics, request.compression_type, telemetry.max_bytes
    try:
        points = await context.services.offload.run(lambda: unpack(data, compression_type, max_bytes))
    except KafkaError as error:
        refused = telemetry.refused(request.client_instance_id, error.code)
        return PushTelemetryResponse(error_code=refused.code)
    telemetry.keep(request.client_instance_id, context.client_id, points, terminating=request.terminating)
    return PushTelemetryResponse()
