"""Where bearer tokens come from (OAUTHBEARER): a file that somebody keeps fresh, or an identity provider that issues
one for a name and a secret (RFC 6749, 4.4). Blocking: nodes fetch theirs off the loop (`broker/doors/token_source`).

A secret goes to the address that was configured and nowhere else: encrypted, unless it stays on this machine, and
after no redirection.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import unquote, urlencode, urlsplit

from ottla.client.safe_asking import is_safe, safe_opener
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.blocking import read_file
from ottla.security.oauth_login import IssuedToken, read_answer, read_token

URL_KEY = "sasl.oauthbearer.token.endpoint.url"
CLIENT_KEY = "sasl.oauthbearer.client.credentials.client"
ANSWER_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    timeout_s: float = 10.0

    @property
    def is_file(self) -> bool:
        return urlsplit(self.url).scheme == "file"

    def flaw(self) -> str | None:
        """What keeps tokens from coming from here, as a sentence; None if nothing does."""
        if self.is_file:
            return None
        if not is_safe(self.url):
            return f"{URL_KEY} is neither a file: nor an https: URL, and a secret goes nowhere else: {self.url}"
        if not self.client_id or not self.client_secret:
            return f"The identity provider wants a name and a secret: set {CLIENT_KEY}.id and {CLIENT_KEY}.secret."
        return None


def fetch_token(endpoint: TokenEndpoint) -> IssuedToken:
    """Blocks. Raises `KafkaError` (SASL_AUTHENTICATION_FAILED), which tells no secret."""
    try:
        if endpoint.is_file:
            return read_token(read_file(unquote(urlsplit(endpoint.url).path), ANSWER_BYTES_MAX + 1).decode("latin-1"))
        return read_answer(_ask(endpoint))
    except (OSError, ValueError) as error:
        message = f"No token is to be had from {endpoint.url} ({URL_KEY}): {error}"
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, message) from None


def _ask(endpoint: TokenEndpoint) -> bytes:
    from urllib.error import HTTPError
    from urllib.request import Request

    asked = {"grant_type": "client_credentials", **({"scope": endpoint.scope} if endpoint.scope else {})}
    name = b64encode(f"{endpoint.client_id}:{endpoint.client_secret}".encode()).decode()
    request = Request(
        endpoint.url,
        data=urlencode(asked).encode(),
        headers={"Authorization": f"Basic {name}", "Accept": "application/json"},
    )
    try:
        with safe_opener().open(request, timeout=endpoint.timeout_s) as answer:
            document: bytes = answer.read(ANSWER_BYTES_MAX + 1)
    except HTTPError as refusal:
        refusal.close()  # It is an answer too, and holds its connection.
        raise
    if len(document) > ANSWER_BYTES_MAX:
        raise ValueError(f"the answer has more than {ANSWER_BYTES_MAX} bytes")
    return document
