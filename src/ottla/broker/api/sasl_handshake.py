"""SaslHandshake (key 17) on a connection that needs none any more: it begins a re-authentication, where there is one.

What comes before a client is authenticated never gets here (`broker/doors/authentication`).
"""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.errors import ErrorCode
from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from ottla.wire.messages.sasl_handshake_response import SaslHandshakeResponse


def handle(context: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    authentication = context.connection.authentication
    response = None if authentication is None else authentication.renew(request.mechanism, context.api_version)
    return response or SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
