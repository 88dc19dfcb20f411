"""SaslAuthenticate (key 36) on a connection that needs none any more: refused.

What comes before a client is authenticated never gets here (`broker/doors/authentication`).
"""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.errors import ErrorCode
from ottla.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse


def handle(context: Context, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
