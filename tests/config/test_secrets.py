"""What is secret stays so when configs are described, under a listener's or a mechanism's prefix too."""

from __future__ import annotations

import pytest

from ottla.config.table import broker_key


@pytest.mark.parametrize(
    "name",
    [
        "sasl.jaas.config",
        "listener.name.client.sasl.jaas.config",
        "listener.name.client.plain.sasl.jaas.config",
        "listener.name.client.scram-sha-512.sasl.jaas.config",
        "ssl.keystore.key",
        "listener.name.client.ssl.keystore.key",
        "listener.name.client.ssl.key.password",
        "delegation.token.secret.key",
    ],
)
def test_a_secret_is_known_for_one(name: str) -> None:
    key = broker_key(name)
    assert key is not None
    assert key.sensitive
