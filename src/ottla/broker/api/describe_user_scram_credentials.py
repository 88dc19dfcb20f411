"""DescribeUserScramCredentials (key 50): which credentials users have, and never what they are (KIP-554)."""

from __future__ import annotations

from collections import Counter

from ottla.broker.context import Context
from ottla.errors import ErrorCode
from ottla.wire.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from ottla.wire.messages.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(context: Context, request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    """Of the users that are named, or of all where none is."""
    known: dict[str, list[CredentialInfo]] = {}
    for (user, mechanism), credential in context.services.image.scram_credentials.items():
        known.setdefault(user, []).append(CredentialInfo(mechanism, credential.iterations))
    names = [user.name for user in request.users] if request.users else list(known)
    response = DescribeUserScramCredentialsResponse(error_message=None)
    for name, mentions in Counter(names).items():
        result = DescribeUserScramCredentialsResult(user=name, error_message=None)
        if mentions > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = f"The request names user {name} more than once."
        elif name not in known:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"User {name} has no SCRAM credentials."
        else:
            result.credential_infos = known[name]
        response.results.append(result)
    return response
