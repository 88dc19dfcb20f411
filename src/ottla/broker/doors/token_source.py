"""The token with which this node logs in at others by OAUTHBEARER: had before it starts, renewed before it ends.

`sasl.oauthbearer.token.endpoint.url` says where it comes from (`client/tokens`). Tokens that nobody has signed, which
Apache Kafka makes where no such key is set, are refused: whoever takes them lets everybody in.

A renewal that fails is tried again, with pauses, while the token in force is shown.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.client.tokens import CLIENT_KEY, URL_KEY, TokenEndpoint, fetch_token
from ottla.config.key import ConfigValue
from ottla.config.node import NodeConfig
from ottla.errors import ErrorCode, KafkaError, StartupError
from ottla.security.jaas import LoginModule
from ottla.security.oauth_login import BearerClient, IssuedToken, Renewal
from ottla.security.sasl import OAUTHBEARER

if TYPE_CHECKING:
    from ottla.broker.services import Services

_log = logging.getLogger(__name__)

RENEWAL_MS_MIN = 1_000
"""So that a file whose token is about to expire is not read all the time."""
_TIMEOUT_MS = 10_000
_RETRIEVER_KEY = "sasl.oauthbearer.jwt.retriever.class"
_RETRIEVERS = ("DefaultJwtRetriever", "FileJwtRetriever", "ClientCredentialsJwtRetriever")
_EXTENSION = "extension_"


class TokenSource:
    """Of the logins at one listener."""

    def __init__(self, config: NodeConfig, listener: str, module: LoginModule | None, services: Services) -> None:
        """Raises `StartupError`. `module` is the login configuration, where there is one."""
        self._services = services

        def value(name: str) -> ConfigValue:
            return config.mechanism_value(listener, OAUTHBEARER, name)

        options = {} if module is None else module.options
        named = [value("sasl.login.connect.timeout.ms"), value("sasl.login.read.timeout.ms")]
        self._endpoint = TokenEndpoint(
            url=str(value(URL_KEY) or ""),
            client_id=str(value(f"{CLIENT_KEY}.id") or options.get("clientId", "")),
            client_secret=str(value(f"{CLIENT_KEY}.secret") or options.get("clientSecret", "")),
            scope=str(value("sasl.oauthbearer.scope") or options.get("scope", "")),
            timeout_s=max((each for each in named if isinstance(each, int)), default=_TIMEOUT_MS) / 1000,
        )
        if not self._endpoint.url:
            raise StartupError(
                f"Nodes log in at each other on listener {listener} with OAUTHBEARER, but nothing says where their "
                f"tokens come from: set {URL_KEY} to a file: or an https: URL. Tokens that nobody has signed are not "
                f"made."
            )
        if (flaw := self._endpoint.flaw()) is not None:
            raise StartupError(flaw)
        if str(value(_RETRIEVER_KEY)).rpartition(".")[2] not in _RETRIEVERS:
            raise StartupError(f"{_RETRIEVER_KEY} names a class that Ottla has none for: remove the key.")
        self._extensions = {
            name.removeprefix(_EXTENSION): text for name, text in options.items() if name.startswith(_EXTENSION)
        }
        self._pause_ms, self._pause_ms_max = (
            config.get_int(f"sasl.login.retry.backoff.{each}") for each in ("ms", "max.ms")
        )
        self._renewal = Renewal(
            window_factor=config.get_float("sasl.login.refresh.window.factor"),
            window_jitter=config.get_float("sasl.login.refresh.window.jitter"),
            period_ms_min=1000 * config.get_int("sasl.login.refresh.min.period.seconds"),
            buffer_ms=1000 * config.get_int("sasl.login.refresh.buffer.seconds"),
        )
        self._token: IssuedToken | None = None

    def client(self) -> BearerClient:
        """The exchange of one login, with the token in force."""
        assert self._token is not None, "the source has not started"
        return BearerClient(self._token.text, self._extensions)

    async def start(self) -> None:
        """Tries for as long as a login may take (`sasl.login.retry.backoff.max.ms`). Raises `StartupError`."""
        pause_ms, waited_ms = max(1, self._pause_ms), 0
        while True:
            try:
                await self._renew()
                return
            except KafkaError as error:
                if waited_ms + pause_ms > self._pause_ms_max:
                    raise StartupError(error.message) from None
            await asyncio.sleep(pause_ms / 1000)
            waited_ms, pause_ms = waited_ms + pause_ms, 2 * pause_ms

    async def _renew(self) -> None:
        """Raises `KafkaError`."""
        token = await self._services.offload.run(lambda: fetch_token(self._endpoint))
        now_ms = self._services.clock.wall_ms()
        if token.expires_ms <= now_ms:
            message = f"The token from {self._endpoint.url} ({URL_KEY}) has expired."
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
        self._token = token
        delay_ms = self._renewal.delay_ms(now_ms, token.expires_ms, self._services.random.random())
        self._services.timers.after(max(RENEWAL_MS_MIN, delay_ms), self.renew)

    def renew(self) -> None:
        """Begin to fetch the next token; until it is there the old one is shown."""
        self._services.spawn(self._renew_again(self._pause_ms))

    async def _renew_again(self, pause_ms: int) -> None:
        try:
            await self._renew()
        except KafkaError as error:
            _log.warning("the node's token stays as it is for now: %s", error.message)
            next_ms = min(2 * max(1, pause_ms), self._pause_ms_max)
            self._services.timers.after(pause_ms, lambda: self._services.spawn(self._renew_again(next_ms)))
