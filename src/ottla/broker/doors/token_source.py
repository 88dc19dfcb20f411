"""The token with which this node logs in at others by OAUTHBEARER: had before it starts, renewed before it ends.

`sasl.oauthbearer.token.endpoint.url` says where it comes from: a file that somebody keeps fresh, or an identity provider
that issues one for the node's own name and secret (RFC 6749, 4.4). Tokens that nobody has signed, which Apache Kafka
makes where no such key is set, are refused: whoever takes them lets everybody in.

A renewal that fails is tried again, with pauses, while the token in force is shown.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlencode, urlsplit

from ottla.config.key import ConfigValue
from ottla.config.node import NodeConfig
from ottla.errors import KafkaError, StartupError
from ottla.security.jaas import LoginModule
from ottla.security.oauth_login import BearerClient, IssuedToken, Renewal, read_answer, read_token
from ottla.security.sasl import OAUTHBEARER

if TYPE_CHECKING:
    from http.client import HTTPMessage
    from typing import IO
    from urllib.request import OpenerDirector, Request

    from ottla.broker.services import Services

_log = logging.getLogger(__name__)

URL_KEY = "sasl.oauthbearer.token.endpoint.url"
ANSWER_BYTES_MAX = 64 * 1024
RENEWAL_MS_MIN = 1_000
"""So that a file whose token is about to expire is not read all the time."""
_TIMEOUT_MS = 10_000
_RETRIEVER_KEY = "sasl.oauthbearer.jwt.retriever.class"
_RETRIEVERS = ("DefaultJwtRetriever", "FileJwtRetriever", "ClientCredentialsJwtRetriever")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_EXTENSION = "extension_"


class TokenSource:
    """Of the logins at one listener."""

    def __init__(self, config: NodeConfig, listener: str, module: LoginModule | None, services: Services) -> None:
        """Raises `StartupError`. `module` is the login configuration, where there is one."""
        self._services = services

        def value(name: str) -> ConfigValue:
            return config.mechanism_value(listener, OAUTHBEARER, name)

        options = {} if module is None else module.options
        self._url = str(value(URL_KEY) or "")
        _check_url(self._url, listener)
        if str(value(_RETRIEVER_KEY)).rpartition(".")[2] not in _RETRIEVERS:
            raise StartupError(f"{_RETRIEVER_KEY} names a class that Ottla has none for: remove the key.")
        prefix = "sasl.oauthbearer.client.credentials.client"
        self._client_id = str(value(f"{prefix}.id") or options.get("clientId", ""))
        self._secret = str(value(f"{prefix}.secret") or options.get("clientSecret", ""))
        self._scope = str(value("sasl.oauthbearer.scope") or options.get("scope", ""))
        if not self._url.startswith("file:") and not (self._client_id and self._secret):
            raise StartupError(
                f"The identity provider of listener {listener} wants a name and a secret: set {prefix}.id and "
                f"{prefix}.secret."
            )
        self._extensions = {
            name.removeprefix(_EXTENSION): text for name, text in options.items() if name.startswith(_EXTENSION)
        }
        named = [value("sasl.login.connect.timeout.ms"), value("sasl.login.read.timeout.ms")]
        self._timeout_s = max((each for each in named if isinstance(each, int)), default=_TIMEOUT_MS) / 1000
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
        pause_ms, waited_ms = self._pause_ms, 0
        while True:
            try:
                await self._renew()
                return
            except (OSError, ValueError, KafkaError) as error:
                if waited_ms + pause_ms > self._pause_ms_max:
                    raise StartupError(f"No token is to be had from {self._url} ({URL_KEY}): {error}") from None
            await asyncio.sleep(pause_ms / 1000)
            waited_ms, pause_ms = waited_ms + pause_ms, max(1, 2 * pause_ms)

    async def _renew(self) -> None:
        now_ms = self._services.clock.wall_ms()
        token = await self._services.offload.run(self._fetch)
        if token.expires_ms <= now_ms:
            raise ValueError("the token has expired")
        self._token = token
        delay_ms = self._renewal.delay_ms(now_ms, token.expires_ms, self._services.random.random())
        self._services.timers.after(max(RENEWAL_MS_MIN, delay_ms), self._begin_renewal)

    def _begin_renewal(self) -> None:
        self._services.spawn(self._renew_again())

    async def _renew_again(self, pause_ms: int = 0) -> None:
        try:
            await self._renew()
        except (OSError, ValueError, KafkaError) as error:
            pause_ms = min(2 * pause_ms or max(1, self._pause_ms), self._pause_ms_max)
            _log.warning("no new token is to be had from %s, the old one stays for now: %s", self._url, error)
            self._services.timers.after(pause_ms, lambda: self._services.spawn(self._renew_again(pause_ms)))

    def _fetch(self) -> IssuedToken:
        """Blocks."""
        if self._url.startswith("file:"):
            return read_token(self._services.disk.read_file(unquote(urlsplit(self._url).path)).decode("latin-1"))
        from urllib.request import Request

        asked = {"grant_type": "client_credentials", **({"scope": self._scope} if self._scope else {})}
        name = b64encode(f"{self._client_id}:{self._secret}".encode()).decode()
        request = Request(
            self._url,
            data=urlencode(asked).encode(),
            headers={"Authorization": f"Basic {name}", "Accept": "application/json"},
        )
        with _opener().open(request, timeout=self._timeout_s) as answer:
            document: bytes = answer.read(ANSWER_BYTES_MAX + 1)
        if len(document) > ANSWER_BYTES_MAX:
            raise ValueError(f"the answer has more than {ANSWER_BYTES_MAX} bytes")
        return read_answer(document)


def _check_url(url: str, listener: str) -> None:
    if not url:
        raise StartupError(
            f"Nodes log in at each other on listener {listener} with OAUTHBEARER, but nothing says where their tokens "
            f"come from: set {URL_KEY} to a file: or an https: URL. Tokens that nobody has signed are not made."
        )
    parts = urlsplit(url)
    if parts.scheme == "file" or parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        return
    raise StartupError(f"{URL_KEY} is neither a file: nor an https: URL, and a secret goes nowhere else: {url}")


def _opener() -> OpenerDirector:
    """One that follows no redirections: the secret is for the address that was configured."""
    from urllib.request import HTTPRedirectHandler, build_opener

    class Stay(HTTPRedirectHandler):
        def redirect_request(
            self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
        ) -> None:
            """None: the redirection is the answer, and an error."""

    return build_opener(Stay)
