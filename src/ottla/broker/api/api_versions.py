"""ApiVersions (key 18): what this listener serves, and the features that the cluster has settled on.

Telemetry is offered only while somebody has subscribed to it. A client that sees it asks at once, and librdkafka says
so on its standard error; Apache Kafka, too, keeps it to itself unless a plugin receives what is pushed. Whoever asks
all the same is answered.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ottla.broker.api import CONTROLLER_HANDLERS, HANDLERS
from ottla.broker.context import Context
from ottla.errors import ErrorCode
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.wire.apis import APIS
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from ottla.broker.services import Services

_TELEMETRY = frozenset({71, 72})
"""GetTelemetrySubscriptions and PushTelemetry."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.software = (name, version)
    services = context.services
    response = _served(services, context.on_controller)
    # Before version 4 a client would choke on a feature whose least level is zero (KAFKA-17011).
    response.supported_features = [
        SupportedFeatureKey(name=name, min_version=least, max_version=most)
        for name, (least, most) in SUPPORTED_FEATURES.items()
        if least > 0 or context.api_version >= 4
    ]
    response.finalized_features_epoch = services.image.last_offset
    response.finalized_features = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in services.control.finalized_features.items()
    ]
    return response


def unsupported(services: Services, on_controller: bool) -> ApiVersionsResponse:
    """The answer to a version that does not exist yet: the error, and how far down to step."""
    response = _served(services, on_controller)
    response.error_code = ErrorCode.UNSUPPORTED_VERSION
    return response


def _served(services: Services, on_controller: bool) -> ApiVersionsResponse:
    served = CONTROLLER_HANDLERS if on_controller else HANDLERS
    hidden = frozenset() if services.telemetry.is_wanted else _TELEMETRY
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=api.advertised_first_version, max_version=api.last_version)
            for key, api in ((key, APIS[key]) for key in served if key not in hidden)
        ]
    )
