"""Who a client is, as plain data, and the SASL exchange that shows it to a broker.

`Credentials` come from a client's settings and travel to the processes that open connections; `login_of` makes the
machine for one connection, which `conversation` carries out. The mechanisms are in `security`, where nodes need them
too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.security.oauth_login import BearerClient
from ottla.security.plain import PlainClient
from ottla.security.sasl import OAUTHBEARER, PLAIN, ClientMechanism
from ottla.security.scram import ScramClient

if TYPE_CHECKING:
    from ottla.client.tokens import TokenEndpoint

_BY_DELEGATION_TOKEN = ",tokenauth=true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    by_delegation_token: bool = False
    """Username and password are a delegation token's id and HMAC (KIP-48)."""
    token_provider: str = ""
    """`module:function`, which returns a fresh bearer token whenever it is called."""
    token_endpoint: TokenEndpoint | None = None
    """Where bearer tokens are, if no function provides them."""

    def bearer_token(self) -> str:
        """A fresh one. Raises `KafkaError` if there is none."""
        if self.token_provider:
            return _provider(self.token_provider)()
        assert self.token_endpoint is not None  # The settings have one of the two.
        from ottla.client.tokens import fetch_token

        return fetch_token(self.token_endpoint).text


def login_of(credentials: Credentials, nonce: str) -> ClientMechanism:
    """Raises `KafkaError` if a bearer token is asked for and cannot be had."""
    if credentials.mechanism == PLAIN:
        return PlainClient(credentials.username, credentials.password)
    if credentials.mechanism == OAUTHBEARER:
        return BearerClient(credentials.bearer_token())
    extensions = _BY_DELEGATION_TOKEN if credentials.by_delegation_token else ""
    return ScramClient(
        credentials.mechanism, credentials.username, credentials.password, nonce=nonce, extensions=extensions
    )


def _provider(name: str) -> Callable[[], str]:
    module, _, function = name.partition(":")
    try:
        found: Callable[[], str] = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        message = f"The token provider {name!r} cannot be loaded ({error}); name it as module:function."
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, message) from None
    return found
