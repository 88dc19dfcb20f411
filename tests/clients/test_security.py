"""Real clients at locked doors: each mechanism, encrypted and not, with the right credentials and with wrong ones."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider

from tests.locked_site import LOGINS, WRONG, Login, Site, locked_site, shown

pytestmark = pytest.mark.slow

RECORD = b"x" * 100_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with locked_site(tmp_path_factory.mktemp("site")) as site:
        yield site


# confluent-kafka.


def confluent(site: Site, login: Login) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap.servers": site.bootstrap(login), "security.protocol": login.protocol}
    if login.protocol.endswith("SSL"):
        settings["ssl.ca.location"] = str(site.authority.certificate)
    if login.protocol == "SSL":
        own = site.certificate(login)
        settings |= {"ssl.certificate.location": str(own.certificate), "ssl.key.location": str(own.key)}
    if login.mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (site.token(login), time.time() + 3600)
    if login.mechanism:
        settings["sasl.mechanism"] = login.mechanism
    if login.mechanism not in ("", "OAUTHBEARER"):
        settings |= {"sasl.username": "ann", "sasl.password": login.password}
    return settings


@pytest.mark.parametrize("login", LOGINS, ids=shown)
def test_confluent_is_let_in(site: Site, login: Login, topic: str) -> None:
    producer = Producer(confluent(site, login))
    delivered: list[object] = []
    producer.produce(topic, RECORD, on_delivery=lambda error, message: delivered.append(error))
    producer.flush(60)
    assert delivered == [None]
    consumer = Consumer({**confluent(site, login), "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(60)
    assert message is not None
    assert message.value() == RECORD
    consumer.close()


@pytest.mark.parametrize("login", WRONG, ids=shown)
def test_confluent_is_kept_out(site: Site, login: Login) -> None:
    told: list[str] = []
    producer = Producer({**confluent(site, login), "error_cb": lambda error: told.append(error.name())})
    until = time.monotonic() + 60
    while not told and time.monotonic() < until:
        producer.poll(0.1)
    if login.protocol == "SSL":
        assert told[0] in ("_SSL", "_TRANSPORT", "_ALL_BROKERS_DOWN")
    else:
        assert told[0] == "_AUTHENTICATION"
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=0.5)


# kafka-python.


class KafkaPythonToken(KafkaPythonTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


def kafka_python(site: Site, login: Login) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": site.bootstrap(login), "security_protocol": login.protocol}
    if login.protocol.endswith("SSL"):
        settings["ssl_cafile"] = str(site.authority.certificate)
    if login.protocol == "SSL":
        own = site.certificate(login)
        settings |= {"ssl_certfile": str(own.certificate), "ssl_keyfile": str(own.key)}
    if login.mechanism:
        settings |= {"sasl_mechanism": login.mechanism, "sasl_plain_username": "ann"}
        settings["sasl_plain_password"] = login.password
    if login.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = KafkaPythonToken(site.token(login))
    return settings


@pytest.mark.parametrize("login", LOGINS, ids=shown)
def test_kafka_python_is_let_in(site: Site, login: Login, topic: str) -> None:
    producer = KafkaProducer(**kafka_python(site, login))
    assert producer.send(topic, RECORD).get(60).offset == 0
    producer.close()
    consumer = KafkaConsumer(**kafka_python(site, login), auto_offset_reset="earliest", consumer_timeout_ms=60_000)
    consumer.assign([KafkaPythonPartition(topic, 0)])
    assert next(consumer).value == RECORD
    consumer.close()


REASONS = {
    "PLAIN": "Authentication failed: Invalid username or password",
    "SCRAM-SHA-256": "invalid credentials with SASL mechanism SCRAM-SHA-256",
    "SCRAM-SHA-512": "invalid credentials with SASL mechanism SCRAM-SHA-512",
    "OAUTHBEARER": "invalid credentials with SASL mechanism OAUTHBEARER",
}
"""Why a login is refused, in Apache Kafka's words. Both clients tell it in their logs, and raise an error that only
says that there is no cluster."""

KAFKA_PYTHON_TRIES = """
import json, logging, ssl, sys
from kafka import KafkaProducer
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

class Token(AbstractTokenProvider):
    def __init__(self, token):
        self._token = token

    def token(self):
        return self._token

said = []
logging.basicConfig(level=logging.WARNING)
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())
logging.getLogger("kafka").addHandler(handler)

for settings in json.loads(sys.argv[1]):
    if "token" in settings:
        settings["sasl_oauth_token_provider"] = Token(settings.pop("token"))
    said.clear()
    try:
        KafkaProducer(**settings, bootstrap_timeout_ms=500)
    except (KafkaError, ssl.SSLError) as error:
        print(json.dumps([str(error), *said]))
    else:
        print(json.dumps(["let in"]))
"""


def test_kafka_python_is_kept_out(site: Site) -> None:
    """In a process of its own: after a refusal it leaves its sockets lying about."""
    tries = []
    for login in WRONG:
        settings = kafka_python(site, login)
        if settings.pop("sasl_oauth_token_provider", None):
            settings["token"] = site.token(login)
        tries.append(settings)
    done = subprocess.run(
        [sys.executable, "-c", KAFKA_PYTHON_TRIES, json.dumps(tries)], capture_output=True, text=True, timeout=120
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == len(WRONG), done.stderr
    for login, lines in zip(WRONG, told, strict=True):
        reason = REASONS.get(login.mechanism, "alert unknown ca")
        assert any(reason in line for line in lines), (shown(login), lines)


# aiokafka.


class AioToken(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def aiokafka(site: Site, login: Login) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": site.bootstrap(login), "security_protocol": login.protocol}
    if login.protocol.endswith("SSL"):
        files = {"cafile": str(site.authority.certificate)}
        if login.protocol == "SSL":
            own = site.certificate(login)
            files |= {"certfile": str(own.certificate), "keyfile": str(own.key)}
        settings["ssl_context"] = create_ssl_context(**files)
    if login.mechanism:
        settings |= {"sasl_mechanism": login.mechanism, "sasl_plain_username": "ann"}
        settings["sasl_plain_password"] = login.password
    if login.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = AioToken(site.token(login))
    return settings


@pytest.mark.parametrize("login", LOGINS, ids=shown)
async def test_aiokafka_is_let_in(site: Site, login: Login, topic: str) -> None:
    async with asyncio.timeout(60), AIOKafkaProducer(**aiokafka(site, login)) as producer:
        assert (await producer.send_and_wait(topic, RECORD)).offset == 0
    async with (
        asyncio.timeout(60),
        AIOKafkaConsumer(topic, **aiokafka(site, login), auto_offset_reset="earliest") as consumer,
    ):
        assert (await consumer.getone()).value == RECORD


async def hung_up() -> None:
    """TLS takes leave of the other side, which is late with it where it has refused somebody."""
    for _ in range(6_000):
        if not any(not transport.is_closing() or transport._sock for transport in transports()):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("a connection is still open after a minute")


def transports() -> list[Any]:
    return list(getattr(asyncio.get_running_loop(), "_transports", {}).values())


@pytest.mark.parametrize("login", WRONG, ids=shown)
async def test_aiokafka_is_kept_out(site: Site, login: Login, caplog: pytest.LogCaptureFixture) -> None:
    producer = AIOKafkaProducer(**aiokafka(site, login))
    if login.mechanism == "OAUTHBEARER":
        # It takes the refusal for a welcome, goes on, and is told nothing.
        await producer.start()
        assert not producer.client.cluster.brokers()
    else:
        with pytest.raises(KafkaConnectionError):
            await producer.start()
        await hung_up()
        told = [record.getMessage() for record in caplog.records if record.name.startswith("aiokafka")]
        # It does not look at TLS' alerts.
        assert any(REASONS.get(login.mechanism, "closed") in line for line in told), told
    await producer.stop()
