"""Bearer tokens for OAUTHBEARER, fetched as Kafka's clients fetch them: from a file, or from an identity provider.

`sasl.oauthbearer.token.endpoint.url` says where. A `file:` is read whenever a token is needed, since whoever keeps it
there renews it; an `http(s):` is asked for one by the client credentials grant (RFC 6749, section 4.4). Blocking.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field

from ottla.errors import ErrorCode, KafkaError

TIMEOUT_S = 10.0
TOKEN_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    url: str
    """`file:///path`, `http://…` or `https://…`."""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""


def fetch_token(endpoint: TokenEndpoint) -> str:
    """A fresh token. Raises `KafkaError` with one sentence."""
    parts = urllib.parse.urlsplit(endpoint.url)
    try:
        if parts.scheme == "file":
            with open(urllib.request.url2pathname(parts.path), encoding="utf-8") as file:
                token = file.read(TOKEN_BYTES_MAX).strip()
        else:
            token = _ask(endpoint)
    except (OSError, ValueError) as error:
        reason = f"HTTP {error.code}" if isinstance(error, urllib.error.HTTPError) else str(error)
        raise _failure(f"No token could be had from {endpoint.url}: {reason}.") from None
    if not token or any(character.isspace() for character in token):
        raise _failure(f"What {endpoint.url} holds is no token.")
    return token


def _ask(endpoint: TokenEndpoint) -> str:
    form = {"grant_type": "client_credentials", **({"scope": endpoint.scope} if endpoint.scope else {})}
    pair = f"{endpoint.client_id}:{endpoint.client_secret}"
    request = urllib.request.Request(
        endpoint.url,
        urllib.parse.urlencode(form).encode(),
        {
            "Accept": "application/json",
            "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
        },
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        read = json.loads(answer.read(TOKEN_BYTES_MAX))
    token = read.get("access_token") if isinstance(read, dict) else None
    if not isinstance(token, str):
        raise ValueError("the answer has no access_token")
    return token


def _failure(message: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
