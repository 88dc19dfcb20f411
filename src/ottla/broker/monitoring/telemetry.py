"""What clients are asked to measure, and what they push (KIP-714): subscriptions, instances, and who may push when.

A subscription is a config resource of the metadata image: prefixes of metrics, an interval, and what a client must
match. An instance is a client as this node knows it. Its answers are Apache Kafka 4.3.1's `ClientMetricsManager`'s,
checked by experiment. Driven by the handlers of GetTelemetrySubscriptions and PushTelemetry, by the metadata, by
closed connections and by a timer; what was pushed goes to `metrics.telemetry`.

Bounds: instances are at most `ottla.telemetry.instances.max`, and those not heard of for a while are forgotten; what a
client says of itself is matched up to `ATTRIBUTE_CHARS_MAX` characters; a push is unpacked to `telemetry.max.bytes` at
most, whatever its compressed size.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.ids import random_uuid
from ottla.metadata.images import RESOURCE_CLIENT_METRICS, MetadataImage
from ottla.metrics.registry import Registry
from ottla.metrics.telemetry import ClientTelemetry
from ottla.model import METADATA_TOPIC_ID, ZERO_UUID, Uuid, uuid_to_text
from ottla.records import CompressionType
from ottla.records._hot import crc32c
from ottla.records.compression import CorruptCompression, decompress
from ottla.runtime import Clock

if TYPE_CHECKING:
    from ottla.config.group import Pattern
    from ottla.metrics.otlp import Point

_log = logging.getLogger(__name__)

ACCEPTED_COMPRESSION_TYPES = (
    CompressionType.ZSTD,
    CompressionType.LZ4,
    CompressionType.GZIP,
    CompressionType.SNAPPY,
)
"""In the order of preference that clients are told."""
ALL_METRICS = "*"
DEFAULT_INTERVAL_MS = 300_000
EXPIRY_S = 60.0
"""An instance is kept at least this long after its last request, and three intervals if that is longer."""
SWEEP_MS = 30_000
LINGER_S = 60.0
"""What a client pushed before it ended is shown this long, so that its last push is not missed."""
ENDED_MAX = 1_000
ATTRIBUTE_CHARS_MAX = 256

_ASK_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""Errors that tell a client to ask for its subscription at once, so that it may."""


class ClientAttributes(NamedTuple):
    """What a subscription's `match` may look at, besides the instance id."""

    client_id: str | None
    software_name: str
    software_version: str
    source_address: str
    source_port: int


class Subscription(NamedTuple):
    """One client-metrics config resource."""

    name: str
    metrics: Sequence[str]
    interval_ms: int
    match: Mapping[str, Pattern]

    def matches(self, attributes: Mapping[str, str | None]) -> bool:
        for attribute, pattern in self.match.items():
            text = attributes[attribute]
            if text is None or len(text) > ATTRIBUTE_CHARS_MAX or not pattern.fullmatch(text):
                return False
        return True


class Instance:
    """One client: what it is asked for, and when it was last heard of."""

    __slots__ = (
        "attributes",
        "expires_at_s",
        "interval_ms",
        "last_error",
        "last_get_s",
        "last_push_s",
        "metrics",
        "subscription_id",
        "terminating",
        "version",
    )

    def __init__(
        self,
        attributes: Mapping[str, str | None],
        metrics: list[str],
        interval_ms: int,
        subscription_id: int,
        version: int,
    ) -> None:
        self.attributes = attributes
        self.metrics = metrics
        self.interval_ms = interval_ms
        self.subscription_id = subscription_id
        self.version = version
        self.last_get_s = -inf
        self.last_push_s = -inf
        self.terminating = False
        self.last_error = ErrorCode.NONE
        self.expires_at_s = 0.0

    def accepts_get(self, now_s: float) -> bool:
        if (now_s - max(self.last_get_s, self.last_push_s)) * 1000 >= self.interval_ms:
            self.last_get_s = now_s
            return True
        return False

    def accepts_push(self, now_s: float) -> bool:
        """The first push after a subscription was asked for may come early: clients spread it by half an interval."""
        if self.last_get_s > self.last_push_s or (now_s - self.last_push_s) * 1000 >= self.interval_ms:
            self.last_push_s = now_s
            return True
        return False


class Telemetry:
    """One instance a node, on its event loop."""

    def __init__(self, *, clock: Clock, random: Random, registry: Registry, max_bytes: int, instances_max: int) -> None:
        self.max_bytes = max_bytes
        self._instances_max = instances_max
        self.pushed = ClientTelemetry()
        """What is shown with the node's own metrics."""
        self._clock = clock
        self._random = random
        self._subscriptions: list[Subscription] = []
        self._version = 0
        self._instances: OrderedDict[Uuid, Instance] = OrderedDict()
        """The one heard of last comes last."""
        self._by_connection: dict[object, Uuid] = {}
        self._ended: OrderedDict[str, float] = OrderedDict()
        self._pushes = registry.meter("kafka_server_clientmetrics_telemetrypushes")
        self._errors = registry.meter("kafka_server_clientmetrics_telemetryerrors")
        registry.gauge("kafka_server_clientmetrics_clientinstancecount", lambda: self.pushed.client_count)

    @property
    def instance_count(self) -> int:
        return len(self._instances)

    # Subscriptions.

    @property
    def is_wanted(self) -> bool:
        """Is there a subscription, for whichever clients?"""
        return bool(self._subscriptions)

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta, offset: int) -> None:
        if any(resource.type == RESOURCE_CLIENT_METRICS for resource in delta.configs_changed):
            self.set_subscriptions(
                {
                    resource.name: values
                    for resource, values in image.configs.items()
                    if resource.type == RESOURCE_CLIENT_METRICS
                }
            )

    def set_subscriptions(self, resources: Mapping[str, Mapping[str, str]]) -> None:
        """All of them, by name. Every instance is looked at anew when it is next heard of."""
        from ottla.config.group import client_metrics_values, parse_match

        self._version += 1
        self._subscriptions = []
        for name in sorted(resources):
            try:
                values = client_metrics_values(resources[name])
                metrics, interval_ms, match = values["metrics"], values["interval.ms"], values["match"]
                assert isinstance(metrics, tuple)
                assert isinstance(interval_ms, int)
                assert isinstance(match, tuple)
                patterns = parse_match(match)
            except KafkaError as error:
                # Its writer's idea of a pattern was not ours; the others go on.
                _log.warning("the metrics subscription %s is passed over: %s", name, error)
                continue
            self._subscriptions.append(Subscription(name, _hash_order(metrics, sized=True), interval_ms, patterns))

    def _subscribe(self, instance_id: Uuid, attributes: Mapping[str, str | None]) -> Instance:
        interval_ms = DEFAULT_INTERVAL_MS
        metrics: dict[str, None] = {}
        for subscription in self._subscriptions:
            if subscription.matches(attributes):
                metrics.update(dict.fromkeys(subscription.metrics))
                interval_ms = min(interval_ms, subscription.interval_ms)
        wanted = [ALL_METRICS] if ALL_METRICS in metrics else _hash_order(metrics)
        subscription_id = compute_subscription_id(wanted, interval_ms, instance_id)
        return Instance(attributes, wanted, interval_ms, subscription_id, self._version)

    # Instances.

    def get(self, instance_id: Uuid, client: ClientAttributes, connection: object) -> tuple[Uuid, Instance]:
        """The subscription of a client, which is given an id if it has none. Raises `KafkaError`."""
        if instance_id == ZERO_UUID:
            instance_id = random_uuid(self._random)
        now_s = self._clock.monotonic()
        instance = self._instance(instance_id, client, connection, now_s)
        if not instance.accepts_get(now_s) and instance.last_error not in _ASK_AGAIN:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return instance_id, instance

    def check_push(
        self,
        instance_id: Uuid,
        client: ClientAttributes,
        connection: object,
        *,
        subscription_id: int,
        terminating: bool,
        compression_type: int,
        size: int,
    ) -> None:
        """May the client push this now? Raises `KafkaError`."""
        if instance_id in (ZERO_UUID, METADATA_TOPIC_ID):
            raise self.refused(instance_id, ErrorCode.INVALID_REQUEST)
        now_s = self._clock.monotonic()
        instance = self._instance(instance_id, client, connection, now_s)
        was_terminating, instance.terminating = instance.terminating, terminating
        code = ErrorCode.NONE
        if was_terminating:
            code = ErrorCode.INVALID_REQUEST
        elif not instance.accepts_push(now_s) and not terminating:
            code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        elif subscription_id != instance.subscription_id:
            code = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        elif not 0 <= compression_type <= CompressionType.ZSTD:
            code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        elif size > self.max_bytes:
            code = ErrorCode.TELEMETRY_TOO_LARGE
        if code:
            raise self.refused(instance_id, code)
        instance.last_error = ErrorCode.NONE

    def refused(self, instance_id: Uuid, code: ErrorCode) -> KafkaError:
        """Note that a push was refused; the error to answer with."""
        self._errors.value += 1
        instance = self._instances.get(instance_id)
        if instance is not None:
            instance.last_error = code
        return KafkaError(code)

    def keep(self, instance_id: Uuid, client_id: str | None, points: Iterable[Point], *, terminating: bool) -> None:
        """A push has passed every check."""
        name = uuid_to_text(instance_id)
        now_s = self._clock.monotonic()
        self._pushes.value += 1
        self.pushed.push(name, client_id or "", points, now_s)
        self._ended.pop(name, None)
        if terminating:
            self._ended[name] = now_s
            if len(self._ended) > ENDED_MAX:
                self.pushed.forget(self._ended.popitem(last=False)[0])

    def on_closed(self, connection: object) -> None:
        """A client that comes back is as good as new, and may ask and push at once."""
        instance_id = self._by_connection.pop(connection, None)
        if instance_id is not None:
            self._instances.pop(instance_id, None)

    def sweep(self) -> None:
        """Forget who has not been heard of, and what the ended left. Called every `SWEEP_MS`."""
        now_s = self._clock.monotonic()
        for instance_id in [key for key, instance in self._instances.items() if instance.expires_at_s <= now_s]:
            del self._instances[instance_id]
        self._by_connection = {key: value for key, value in self._by_connection.items() if value in self._instances}
        while self._ended:
            name, ended_at_s = next(iter(self._ended.items()))
            if now_s - ended_at_s < LINGER_S:
                return
            del self._ended[name]
            self.pushed.forget(name)

    def _instance(self, instance_id: Uuid, client: ClientAttributes, connection: object, now_s: float) -> Instance:
        instance = self._instances.get(instance_id)
        if instance is None or instance.version < self._version:
            attributes = _attributes(instance_id, client) if instance is None else instance.attributes
            instance = self._instances[instance_id] = self._subscribe(instance_id, attributes)
            self._by_connection[connection] = instance_id
            if len(self._instances) > self._instances_max:
                self._instances.popitem(last=False)
        self._instances.move_to_end(instance_id)
        instance.expires_at_s = now_s + max(EXPIRY_S, 3 * instance.interval_ms / 1000)
        return instance


def unpack(data: bytes, compression_type: int, max_bytes: int) -> list[Point]:
    """The points of a push; hostile bytes may take long. Raises `KafkaError`.

    The cap is on what comes out: one on the compressed bytes alone would let a bomb through (CVE-2026-111073). As in
    Kafka there is one answer to everything that is wrong with the bytes, and also to too many of them.
    """
    from ottla.metrics.otlp import decode

    try:
        return decode(decompress(compression_type, data, max_bytes) if compression_type else data)
    except (KafkaError, CorruptCompression) as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None


def compute_subscription_id(metrics: Sequence[str], interval_ms: int, instance_id: Uuid) -> int:
    """Changes whenever the set or the interval does. The same number as Apache Kafka's, byte for byte, so that in a
    cluster of both a client can push to any broker what it was asked for by another."""
    text = f"[{', '.join(metrics)}]{interval_ms}".encode()
    words = [int.from_bytes(instance_id[at : at + 4], "big") for at in range(0, 16, 4)]
    number = crc32c(text, 0, len(text)) ^ words[0] ^ words[1] ^ words[2] ^ words[3]
    return number - (1 << 32) if number >> 31 else number


def _hash_order(names: Iterable[str], *, sized: bool = False) -> list[str]:
    """`names` in the order in which Java's HashSet goes through them, which the subscription id depends on.

    `sized` is for a set made from a whole list, whose table is a little larger than that of one which grew.
    """
    unique = list(dict.fromkeys(names))
    capacity = 16
    while (capacity <= len(unique) * 4 // 3) if sized else (capacity * 3 < len(unique) * 4):
        capacity *= 2
    return sorted(unique, key=lambda name: _java_hash(name) & (capacity - 1))


def _java_hash(text: str) -> int:
    """String.hashCode, with the high half spread over the low one as HashMap does."""
    number = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        number = (31 * number + (encoded[at] << 8 | encoded[at + 1])) & 0xFFFFFFFF
    return number ^ number >> 16


def _attributes(instance_id: Uuid, client: ClientAttributes) -> dict[str, str | None]:
    return {
        "client_instance_id": uuid_to_text(instance_id),
        # One character more than is matched: what is too long stays so, and is not kept.
        "client_id": client.client_id and client.client_id[: ATTRIBUTE_CHARS_MAX + 1],
        "client_software_name": client.software_name[: ATTRIBUTE_CHARS_MAX + 1],
        "client_software_version": client.software_version[: ATTRIBUTE_CHARS_MAX + 1],
        "client_source_address": _java_address(client.source_address),
        "client_source_port": str(client.source_port),
    }


def _java_address(address: str) -> str:
    """An address as Java writes it, which is what patterns are written against: no zeros left out of version 6."""
    if ":" not in address:
        return address
    from ipaddress import IPv6Address

    try:
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
