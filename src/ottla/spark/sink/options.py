"""The sink's options, under the names that Spark's Kafka connector gives them where it has them, checked once.

Plain enough to be sent to the tasks with the writer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ottla.client.settings import ClientSettings, InvalidClientConfig
from ottla.records import Compression, CompressionType
from ottla.records.partitioner import MURMUR2, partitioner
from ottla.spark.sink.decision_log import DEFAULT_TOPIC

TRANSACTION_TIMEOUT_MS = 900_000
"""The longest that brokers allow unless they are told otherwise (`transaction.max.timeout.ms`)."""

BATCH_BYTES = 1_000_000
"""A little less than `max.message.bytes` is by default."""

UNCOMPRESSED = Compression(CompressionType.NONE)

_SINK_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ACKS = {"all": -1, "-1": -1, "1": 1}
_KAFKA = "kafka."
_NOT_YOURS = {
    "kafka.transactional.id": "the sink names its transactions itself; set sinkId to choose the beginning",
    "kafka.key.serializer": "keys and values are bytes or strings; cast the column",
    "kafka.value.serializer": "keys and values are bytes or strings; cast the column",
    "kafka.interceptor.classes": "there are no interceptors here",
    "kafka.enable.idempotence": "the sink is always idempotent",
}


class DeliveryGuarantee(Enum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class InvalidSinkOption(ValueError):
    """An option that cannot be obeyed; the message is one sentence that says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    client: ClientSettings
    topic: str | None = None
    """Where rows go whatever their topic column says."""
    guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE
    acks: int = -1
    partitioner: str = MURMUR2
    sink_id: str | None = None
    batch_id: int | None = None
    checkpoint: str | None = None
    decision_topic: str = DEFAULT_TOPIC
    fail_on_lost: bool = True
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    delivery_timeout_ms: int = 120_000
    compression: Compression = UNCOMPRESSED
    batch_bytes: int = BATCH_BYTES
    request_bytes_max: int = 8 * 1024 * 1024

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SinkOptions:
        """`given` may spell its names in any case, as Spark does. Raises `InvalidSinkOption`."""
        options = {name.lower(): value for name, value in given.items()}
        for name, advice in _NOT_YOURS.items():
            if name in options:
                raise InvalidSinkOption(f"The option {name} cannot be set: {advice}.")
        guarantee = _guarantee(options.get("deliveryguarantee"))
        acks = _acks(options.get("kafka.acks") or options.get("acks"), guarantee)
        topic = options.get("topic")
        if topic is not None and not _TOPIC.fullmatch(topic):
            raise InvalidSinkOption(f"The option topic is {topic!r}, which is no topic's name.")
        sink_id = options.get("sinkid")
        if sink_id is not None and not _SINK_ID.fullmatch(sink_id):
            raise InvalidSinkOption("The option sinkId takes up to 200 letters, digits, dots, dashes and underscores.")
        batch_id = _number(options, "batchid", 0, 0) if "batchid" in options else None
        if batch_id is not None and sink_id is None:
            raise InvalidSinkOption("The option batchId counts the writes of a sink: set sinkId too.")
        chosen = options.get("partitioner", MURMUR2)
        try:
            partitioner(chosen)
        except ValueError as error:
            raise InvalidSinkOption(str(error)) from None
        return cls(
            client=client_settings(options),
            topic=topic,
            guarantee=guarantee,
            acks=acks,
            partitioner=chosen,
            sink_id=sink_id,
            batch_id=batch_id,
            checkpoint=options.get("checkpointlocation"),
            decision_topic=options.get("decisiontopic", DEFAULT_TOPIC),
            fail_on_lost=_flag(options, "failonlosttransaction", True),
            transaction_timeout_ms=_number(options, "kafka.transaction.timeout.ms", TRANSACTION_TIMEOUT_MS, 1),
            delivery_timeout_ms=_number(options, "kafka.delivery.timeout.ms", 120_000, 1),
            compression=_compression(options),
            batch_bytes=_number(options, "kafka.batch.size", BATCH_BYTES, 1),
            request_bytes_max=_number(options, "kafka.max.request.size", 8 * 1024 * 1024, 1),
        )


def client_settings(options: Mapping[str, str]) -> ClientSettings:
    """Of the `kafka.*` options. Raises `InvalidSinkOption`."""
    if f"{_KAFKA}bootstrap.servers" not in options:
        raise InvalidSinkOption("The option kafka.bootstrap.servers is missing: name at least one broker as host:port.")
    given = {name[len(_KAFKA) :]: value for name, value in options.items() if name.startswith(_KAFKA)}
    try:
        return ClientSettings.parse(given)
    except InvalidClientConfig as error:
        raise InvalidSinkOption(f"kafka.{error}") from None


def _guarantee(text: str | None) -> DeliveryGuarantee:
    if text is None:
        return DeliveryGuarantee.EXACTLY_ONCE
    try:
        return DeliveryGuarantee(text.lower().replace("_", "-"))
    except ValueError:
        raise InvalidSinkOption(
            f"The option deliveryGuarantee is {text!r}: choose exactly-once or at-least-once."
        ) from None


def _acks(text: str | None, guarantee: DeliveryGuarantee) -> int:
    if text is None:
        return -1
    acks = _ACKS.get(text.strip().lower())
    if acks is None:
        raise InvalidSinkOption(f"The option kafka.acks is {text!r}: choose all, or 1 with at-least-once delivery.")
    if acks != -1 and guarantee is DeliveryGuarantee.EXACTLY_ONCE:
        raise InvalidSinkOption(
            "Exactly-once delivery needs kafka.acks=all; set deliveryGuarantee=at-least-once for 1."
        )
    return acks


def _compression(options: Mapping[str, str]) -> Compression:
    name = options.get("kafka.compression.type", "none").strip().lower()
    try:
        kind = CompressionType[name.upper()]
    except KeyError:
        known = ", ".join(each.name.lower() for each in CompressionType)
        raise InvalidSinkOption(f"The option kafka.compression.type is {name!r}: choose one of {known}.") from None
    level = options.get(f"kafka.compression.{name}.level")
    try:
        return Compression(kind, None if level is None else int(level))
    except ValueError:
        raise InvalidSinkOption(f"The option kafka.compression.{name}.level is {level!r}: it takes a number.") from None


def _number(options: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise InvalidSinkOption(f"The option {name} is {text!r}: it takes a number from {least} on.")
    return value


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise InvalidSinkOption(f"The option {name} is {text!r}: choose true or false.")
    return text.strip().lower() == "true"
