"""A client's properties as librdkafka wants them: produce, consume and bench go through it.

Java's names for TLS and SASL become librdkafka's; keys of other libraries are left out; everything else is passed on,
so that `-X linger.ms=50` does what it says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ottla.client.login import Credentials
from ottla.client.settings import ClientSettings
from ottla.errors import StartupError
from ottla.security.oauth_login import read_token
from ottla.security.sasl import OAUTHBEARER

_JAVA_ALONE = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.oauthbearer.",
    "ssl.truststore.",
    "ssl.keystore.",
    "ssl.enabled.protocols",
    "default.api.timeout.ms",
    "request.timeout.ms",
    "schema.registry.",
    "basic.auth.",
    "key.serializer",
    "value.serializer",
    "key.deserializer",
    "value.deserializer",
)


def librdkafka_config(properties: Mapping[str, str], settings: ClientSettings) -> dict[str, Any]:
    config: dict[str, Any] = {
        key: value for key, value in properties.items() if not key.startswith(_JAVA_ALONE) and key != "client.id"
    }
    config["client.id"] = properties.get("client.id", "ottla")
    # What clients tell of themselves (KIP-714) is of no use for a command that ends in a moment.
    config.setdefault("enable.metrics.push", "false")
    config.setdefault("log_level", "2")
    if settings.sasl is not None:
        config["sasl.mechanism"] = settings.sasl.mechanism
        config.pop("sasl.mechanisms", None)
        if settings.sasl.mechanism == OAUTHBEARER:
            config["oauth_cb"] = _token_of(settings.sasl)
        else:
            config["sasl.username"], config["sasl.password"] = settings.sasl.username, settings.sasl.password
    if settings.tls is not None:
        tls = settings.tls
        renamed = {
            "ssl.ca.location": tls.trusted_file,
            "ssl.ca.pem": tls.trusted_text,
            "ssl.certificate.location": tls.certificate_file,
            "ssl.key.location": tls.key_file or tls.certificate_file,
            "ssl.certificate.pem": tls.certificate_text,
            "ssl.key.pem": tls.key_text,
            "ssl.key.password": tls.key_password,
        }
        config.update({key: value for key, value in renamed.items() if value is not None})
        config["ssl.endpoint.identification.algorithm"] = "https" if tls.verify_host else "none"
    return config


def _token_of(credentials: Credentials) -> Callable[[str], tuple[str, float]]:
    """What librdkafka calls for a token: the token, and when it is to be asked for again."""

    def fetch(_: str) -> tuple[str, float]:
        token = credentials.bearer_token()
        return token, _expiry_s(token)

    return fetch


def _expiry_s(token: str) -> float:
    """When the token says that it ends; in an hour, if it does not say."""
    try:
        return read_token(token).expires_ms / 1000
    except ValueError:
        return time.time() + 3600


class Troubles:
    """What librdkafka tells of beside records: which of it passes, and which ends the command.

    A host that does not resolve is no end: librdkafka goes on with the other bootstrap servers, and says so when none
    of them can be reached either.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._unresolved: Any = None
        self._final: Any = None

    def on_error(self, error: Any) -> None:
        """Librdkafka's `error_cb`."""
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._RESOLVE:
            self._unresolved = error
        elif error.fatal() or error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION):
            self.on_refusal(error)

    def on_refusal(self, error: Any) -> None:
        """Something was refused for good. The first of these counts."""
        self._final = self._final or error

    @property
    def is_final(self) -> bool:
        return self._final is not None

    @property
    def is_invalid_record(self) -> bool:
        """Does a record break a rule of its topic? Others of its batch, which break none, are refused with it."""
        from confluent_kafka import KafkaError

        invalid = (KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD)
        return self._final is not None and self._final.code() in invalid

    def check(self, subject: str = "") -> None:
        """Raises `StartupError` if there is no going on; `subject` says what did not come to be."""
        from confluent_kafka import KafkaError

        if self._final is None:
            return
        if self._final.code() != KafkaError._ALL_BROKERS_DOWN:
            raise StartupError(f"{subject}{sentence(self._final)}")
        reason = "" if self._unresolved is None else f" ({sentence(self._unresolved)[:-1]})"
        raise StartupError(
            f"The cluster at {self._bootstrap} does not answer{reason}. Start one with `ottla up`, or name another "
            "with --bootstrap or --profile."
        )


def sentence(error: Any) -> str:
    """librdkafka's words for what went wrong, as one sentence."""
    return f"{str(error.str()).rstrip('.')}."
