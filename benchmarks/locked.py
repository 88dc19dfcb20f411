"""Locks beside Apache Kafka's: TLS, logins and quotas, one node a side, measured in turns. Driven by `hostile`.

Both sides read the same keys: an elliptic key of 256 bits, TLS 1.3 with the suite that they agree on, SCRAM with 4,096
iterations. The bars are about TLS, which must not cost more than it costs Kafka, and about quotas, which must hold
within a tenth. Logins have none.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from rich.console import Console

from ottla.wire.messages import alter_client_quotas_request as alter
from ottla.wire.messages.alter_client_quotas_response import AlterClientQuotasResponse
from tests.certificates import Authority
from tests.oracle.apache_kafka import KafkaTools, free_ports
from tests.oracle.ottla_node import ottla_command
from tests.wire_client import WireClient

from . import clients, report, series, servers, tls_load
from .cases import FILL_BYTES, KB, LARGE_BATCHES, Case, Metric, Sample, fill
from .load import LoadFailed
from .runner import Result
from .servers import SETTINGS, KafkaSide, Node, OttlaSide, Side

REPETITIONS = 5
RUN_SECONDS = 2.0
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
USER, PASSWORD = "ann", "a secret"
LOGGERS_IN = 8
"""Connections that log in at the same time."""

QUOTA_BYTES_S = 2_000_000
QUOTA_VALUE = bytes(10_000)
QUOTA_WINDOW_S = 11
QUOTA_SECONDS = 2 * QUOTA_WINDOW_S
"""Whole windows: when the burst that a quiet client may have leaves the window, there is room for another."""


class Locks:
    """What both sides are locked with."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self._store = self.authority.issue("node").store

    def settings(self) -> tuple[dict[str, str], dict[str, int]]:
        """Of one node, and the ports of its listeners."""
        *ports, controller = free_ports(len(PROTOCOLS) + 1)
        by_protocol = dict(zip(PROTOCOLS, ports, strict=True))
        listeners = [f"{protocol}://127.0.0.1:{port}" for protocol, port in by_protocol.items()]
        settings = {
            **SETTINGS,
            "listeners": ",".join([*listeners, f"CONTROLLER://127.0.0.1:{controller}"]),
            "listener.security.protocol.map": ",".join(
                [*(f"{protocol}:{protocol}" for protocol in PROTOCOLS), "CONTROLLER:PLAINTEXT"]
            ),
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._store),
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            # Kafka wants one of each listener, though its users are in the metadata.
            **{
                f"listener.name.{protocol}.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram."
                "ScramLoginModule required;"
                for protocol in ("sasl_plaintext", "sasl_ssl")
            },
        }
        return settings, by_protocol

    def client(self) -> dict[str, str]:
        """librdkafka's settings for TLS."""
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.certificate),
            # The certificate is for this address too, but librdkafka looks for the name that brokers are known by.
            "ssl.endpoint.identification.algorithm": "none",
        }


class LockedOttla(OttlaSide):
    def __init__(self, directory: Path, locks: Locks) -> None:
        super().__init__(directory, ottla_command(), series.COMPILED)
        self._locks = locks
        self.ports: dict[str, int] = {}

    def make(self, directory: Path) -> Node:
        self._settings, self.ports = self._locks.settings()
        return super().make(directory)


class LockedKafka(KafkaSide):
    def __init__(self, directory: Path, tools: KafkaTools, locks: Locks) -> None:
        super().__init__(directory, tools)
        self._locks = locks
        self.ports: dict[str, int] = {}

    def make(self, directory: Path) -> Node:
        self._settings, self.ports = self._locks.settings()
        return super().make(directory)


def _port(side: Side, protocol: str) -> int:
    assert isinstance(side, LockedOttla | LockedKafka)
    assert side.node.pid
    return side.ports[protocol]


def _sample(side: Side, act: Callable[[], dict[str, float]], unit: float) -> Sample:
    pid = side.node.pid
    before = servers.cpu_seconds(pid)
    answer = act()
    return Sample(
        values=(answer["per_s"] / unit,),
        server_cpu_s=servers.cpu_seconds(pid) - before,
        gigabytes=answer["moved"] / 1e9 if unit > 1 else 0.0,
        client_cpu=answer["client_cpu"],
    )


# TLS.


def _offsets() -> list[int]:
    """Of every sixteenth batch of what `fill` wrote: a fetch from there has a megabyte."""
    step = 16 * LARGE_BATCHES.records
    batches = int(FILL_BYTES / (LARGE_BATCHES.records * (KB + 10)))
    return list(range(0, (batches - 32) * LARGE_BATCHES.records, step))


def _tls_cases(locks: Locks) -> list[Case]:
    trusted = str(locks.authority.certificate)
    bar = (Metric(unit="MB/s", bar=1.0),)
    shape = LARGE_BATCHES.options()

    def fetch(connections: int) -> Case:
        def measure(side: Side, topic: str) -> Sample:
            options: dict[str, Any] = {
                "topic": topic,
                "offsets": _offsets(),
                "connections": connections,
                "seconds": RUN_SECONDS,
            }
            port = _port(side, "SSL")
            return _sample(side, lambda: tls_load.run("fetch", port=port, authority=trusted, **options), 1e6)

        return Case(
            title=f"fetch over TLS, {connections} connection{'s' if connections > 1 else ''}",
            metrics=bar,
            measure=measure,
            prepare=fill,
            group="tls",
        )

    def produce(connections: int) -> Case:
        def measure(side: Side, topic: str) -> Sample:
            options: dict[str, Any] = {"topic": topic, "connections": connections, "seconds": RUN_SECONDS / 2, **shape}
            port = _port(side, "SSL")
            return _sample(side, lambda: tls_load.run("produce", port=port, authority=trusted, **options), 1e6)

        return Case(
            title=f"produce over TLS, 1 KB, 64 KB batches, {connections} connection{'s' if connections > 1 else ''}",
            metrics=bar,
            measure=measure,
            group="tls",
        )

    def confluent(action: str, records: int, *, filled: bool) -> Case:
        def measure(side: Side, topic: str) -> Sample:
            bootstrap = f"127.0.0.1:{_port(side, 'SSL')}"
            return Sample(values=(clients.librdkafka(action, bootstrap, topic, records, KB, locks.client()),))

        return Case(
            title=f"confluent-kafka over TLS, {action}, 1 KB",
            metrics=bar,
            measure=measure,
            prepare=fill if filled else None,
            group="tls",
        )

    filled = int(FILL_BYTES / (KB + 10)) - LARGE_BATCHES.records
    return [
        fetch(1),
        fetch(4),
        produce(1),
        produce(4),
        confluent("produce", 200_000, filled=False),
        confluent("consume", filled, filled=True),
    ]


# Logins.


def _add_user(side: Side, _topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": side.node.bootstrap})
    made = UserScramCredentialUpsertion(
        USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), PASSWORD.encode()
    )
    admin.alter_user_scram_credentials([made])[USER].result(60)
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        _log_in(side, protocol, None if protocol == "SASL_PLAINTEXT" else _trusted(side), seconds=1.0)


def _trusted(side: Side) -> str:
    assert isinstance(side, LockedOttla | LockedKafka)
    return str(side._locks.authority.certificate)


def _log_in(side: Side, protocol: str, authority: str | None, *, seconds: float = RUN_SECONDS) -> Sample:
    options: dict[str, Any] = {"mechanism": "SCRAM-SHA-256", "user": USER, "password": PASSWORD}
    port = _port(side, protocol)
    return _sample(
        side,
        lambda: tls_load.run(
            "log_in", port=port, authority=authority, connections=LOGGERS_IN, seconds=seconds, **options
        ),
        1,
    )


def _login_cases() -> list[Case]:
    def case(title: str, measure: Callable[[Side], Sample]) -> Case:
        return Case(
            title=title,
            metrics=(Metric(unit="/s"),),
            measure=lambda side, _topic: measure(side),
            prepare=_add_user,
            group="logins",
        )

    return [
        case("SCRAM-SHA-256 logins", lambda side: _log_in(side, "SASL_PLAINTEXT", None)),
        case("SCRAM-SHA-256 logins over TLS", lambda side: _log_in(side, "SASL_SSL", _trusted(side))),
    ]


# Quotas.


def _limit(side: Side, client_id: str, key: str) -> None:
    entity = alter.EntityData(entity_type="client-id", entity_name=client_id)
    op = alter.OpData(key=key, value=float(QUOTA_BYTES_S))
    request = alter.AlterClientQuotasRequest(entries=[alter.EntryData(entity=[entity], ops=[op])])
    with WireClient(("127.0.0.1", side.port)) as admin:
        if code := admin.call(request, AlterClientQuotasResponse).entries[0].error_code:
            raise LoadFailed(f"the quota was refused with error {code}")


def _rate(step: Callable[[], int]) -> float:
    """Bytes a second of `step`, which says how many it has moved, once the first burst is over."""
    began_s = time.monotonic()
    while time.monotonic() < began_s + QUOTA_WINDOW_S:
        step()
    began_s, moved = time.monotonic(), 0
    while time.monotonic() < began_s + QUOTA_SECONDS:
        moved += step()
    return moved / (time.monotonic() - began_s)


def _limited_producer(side: Side, topic: str) -> Sample:
    _limit(side, "limited-producer", "producer_byte_rate")
    producer = Producer({"bootstrap.servers": side.node.bootstrap, "client.id": "limited-producer", "linger.ms": 5})
    acknowledged = 0

    def on_delivery(error: object, message: object) -> None:
        nonlocal acknowledged
        if error is not None:
            raise LoadFailed(f"a record was refused: {error}")
        acknowledged += len(QUOTA_VALUE)

    def step() -> int:
        before = acknowledged
        while len(producer) < 100:
            producer.produce(topic, QUOTA_VALUE, on_delivery=on_delivery)
        producer.poll(0.05)
        return acknowledged - before

    return Sample(values=(abs(_rate(step) / QUOTA_BYTES_S - 1),))


def _limited_consumer(side: Side, topic: str) -> Sample:
    _limit(side, "limited-consumer", "consumer_byte_rate")
    consumer = Consumer(
        {
            "bootstrap.servers": side.node.bootstrap,
            "client.id": "limited-consumer",
            "group.id": "quota",
            "fetch.message.max.bytes": 65_536,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])

    def step() -> int:
        found = consumer.poll(0.05)
        if found is None:
            return 0
        if found.error():
            raise KafkaException(found.error())
        return len(found.value() or b"")

    try:
        return Sample(values=(abs(_rate(step) / QUOTA_BYTES_S - 1),))
    finally:
        consumer.close()


def _quota_cases() -> list[Case]:
    def case(title: str, measure: Callable[[Side, str], Sample], *, filled: bool = False) -> Case:
        return Case(
            title=title,
            metrics=(Metric(unit="off", better="less", bar=0.1, of_itself=True),),
            measure=measure,
            prepare=fill if filled else None,
            group="quotas",
        )

    return [
        case("a producer at its quota of 2 MB/s", _limited_producer),
        case("a consumer at its quota of 2 MB/s", _limited_consumer, filled=True),
    ]


# Running.


def _warm_up(sides: Sequence[Side], locks: Locks) -> None:
    """Long enough for a JVM to compile what is asked of it."""
    trusted = str(locks.authority.certificate)
    shape = LARGE_BATCHES.options()
    for side in sides:
        with side.topic("warm-up", 1) as topic:
            fill(side, topic)
            port = _port(side, "SSL")
            for _ in range(3):
                tls_load.run("produce", port=port, authority=trusted, topic=topic, connections=2, seconds=2, **shape)
                tls_load.run(
                    "fetch", port=port, authority=trusted, topic=topic, offsets=_offsets(), connections=2, seconds=2
                )


def measured(part: str, options: argparse.Namespace, console: Console, scratch: Path) -> list[Result]:
    locks = Locks(scratch / "authority")
    quotas = part == "quotas"
    with contextlib.ExitStack() as stack:
        tools = stack.enter_context(KafkaTools())
        sides = (LockedOttla(scratch / "ottla", locks), LockedKafka(scratch / "kafka", tools, locks))
        for side in sides:
            stack.callback(side.end)
        cases = series.chosen(_quota_cases() if quotas else [*_tls_cases(locks), *_login_cases()], options.only)
        if quotas:  # Half a minute each, and they do not spread.
            return series.run_series(cases, sides, 1, console)
        return series.run_series(
            cases, sides, options.repetitions, console, warm_up=lambda tick: _warm_up(sides, locks)
        )


def compare(part: str, options: argparse.Namespace, console: Console) -> tuple[list[str], list[str]]:
    """The section of the page, and the bars that were missed."""
    with tempfile.TemporaryDirectory(prefix="ottla-locked-") as directory:
        results = measured(part, options, console, Path(directory))
    return section(part, results), missed(results)


def section(part: str, results: Sequence[Result]) -> list[str]:
    names = ("Ottla", "Apache Kafka")
    return [
        f"## {part.title()}",
        "",
        "| " + " | ".join(heading.format(*names) for heading in report.HEADINGS) + " |",
        "|---" + "|--:" * (len(report.HEADINGS) - 1) + "|",
        *("| " + " | ".join(report.cells(row)) + " |" for row in report.all_rows(results)),
        "",
        *(f"- {fact}" for fact in FACTS[part]),
        "",
    ]


def missed(results: Sequence[Result]) -> list[str]:
    return [
        f"{row.title}: {report.cells(row)[3]}"
        for row in report.all_rows(results)
        if row.verdict in ("missed", "failed")
    ]


FACTS: Mapping[str, Sequence[str]] = {
    "locks": (
        "One node a side, with PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL listeners; an elliptic key of 256 bits, "
        "TLS 1.3.",
        "Load: `tls_load.py`, a thread a connection, OpenSSL. A fetch has 1 MiB of 400 MB that are in the page cache, "
        "one request in flight; a produce request has one batch, acks=1, five in flight.",
        "A login is a new connection, the handshake and both messages of SCRAM (4,096 iterations), eight at a time; "
        "the client derives its key once.",
        "Medians, the sides taking turns.",
    ),
    "quotas": (
        "A confluent-kafka client at full speed, over two windows of eleven seconds after a first one. What is shown "
        "is how far the rate is from the quota, as a share of it.",
    ),
}
