"""The keys that OAUTHBEARER's tokens are signed with: fetched from a file or a server, and kept fresh.

Without keys there is no telling good tokens from bad ones, so a node that cannot get them does not start. Later a
fetch that fails leaves the keys as they are. A token with a key that is not known has them fetched again, though not
more often than `REFRESH_MS_MIN` apart: whoever sends such tokens should not make us a client of our identity provider.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.client.safe_asking import is_safe, safe_opener
from ottla.config.node import NodeConfig
from ottla.errors import KafkaError, StartupError
from ottla.security.oauth import Keys, read_keys
from ottla.security.sasl import OAUTHBEARER

if TYPE_CHECKING:
    from ottla.broker.services import Services

_log = logging.getLogger(__name__)

URL_KEY = "sasl.oauthbearer.jwks.endpoint.url"
REFRESH_MS_MIN = 10_000
DOCUMENT_BYTES_MAX = 1024 * 1024
_TIMEOUT_MS = 10_000


class Jwks:
    """Of one listener."""

    def __init__(self, config: NodeConfig, listener: str, services: Services) -> None:
        url = config.mechanism_value(listener, OAUTHBEARER, URL_KEY)
        if not isinstance(url, str) or not url:
            raise StartupError(
                f"Listener {listener} offers OAUTHBEARER, but nothing says whose tokens count: set {URL_KEY} to a file "
                f"or a server with the keys."
            )
        if not is_safe(url):
            # Whoever is on the way could put his own keys there, and let anybody in.
            raise StartupError(f"{URL_KEY} is neither a file: nor an https: URL, and no others are believed: {url}")
        self._url = url
        self._services = services
        connect_ms, read_ms = config["sasl.login.connect.timeout.ms"], config["sasl.login.read.timeout.ms"]
        named = [value for value in (connect_ms, read_ms) if isinstance(value, int)]
        self._timeout_s = max(named, default=_TIMEOUT_MS) / 1000
        refresh_ms = config.mechanism_value(listener, OAUTHBEARER, "sasl.oauthbearer.jwks.endpoint.refresh.ms")
        assert isinstance(refresh_ms, int)
        self._refresh_ms = max(refresh_ms, REFRESH_MS_MIN)
        self._keys: Keys = {}
        self._fetched_ms = 0.0
        self._fetching = False

    def known(self) -> Keys:
        return self._keys

    async def start(self) -> None:
        try:
            self._keys = await self._services.offload.run(self._fetch)
        except (OSError, ValueError, KafkaError) as error:
            raise StartupError(f"The keys at {self._url} ({URL_KEY}) cannot be had: {error}") from None
        self._fetched_ms = self._services.timers.now_ms()
        self._services.timers.every(self._refresh_ms, self._refresh)

    def refresh_soon(self) -> None:
        if self._services.timers.now_ms() - self._fetched_ms >= REFRESH_MS_MIN:
            self._refresh()

    def _refresh(self) -> None:
        if not self._fetching:
            self._fetching = True
            self._services.spawn(self._fetch_again())

    async def _fetch_again(self) -> None:
        try:
            self._keys = await self._services.offload.run(self._fetch)
        except (OSError, ValueError, KafkaError) as error:
            _log.warning("the keys at %s could not be fetched again, and stay as they were: %s", self._url, error)
        finally:
            self._fetching = False
            self._fetched_ms = self._services.timers.now_ms()

    def _fetch(self) -> Keys:
        """Blocks."""
        from urllib.parse import unquote, urlsplit

        if self._url.startswith("file:"):
            return read_keys(self._services.disk.read_file(unquote(urlsplit(self._url).path)))
        with safe_opener().open(self._url, timeout=self._timeout_s) as answer:
            document: bytes = answer.read(DOCUMENT_BYTES_MAX + 1)
        if len(document) > DOCUMENT_BYTES_MAX:
            raise ValueError(f"the document has more than {DOCUMENT_BYTES_MAX} bytes")
        return read_keys(document)
