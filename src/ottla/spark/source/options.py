"""The options of the source, under the names of Spark's own Kafka source, checked before anything is asked of a broker.

Plain data: it is made in Spark's driver and sent to the executors. Options that begin with `kafka.` are the client's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.client.settings import ClientSettings, InvalidClientConfig
from ottla.model import TopicPartition
from ottla.records.arrow import WINDOW_BYTES
from ottla.spark.source.offsets import EARLIEST, LATEST, OffsetSpec, SourceError, parse_offsets, parse_positions

SUBSCRIPTIONS = ("assign", "subscribe", "subscribePattern")

_REFUSED = {
    "auto.offset.reset": "set startingOffsets instead",
    "enable.auto.commit": "progress is committed when a micro-batch is done; see commitProgress",
    "key.deserializer": "keys come as binary: decode them with DataFrame functions",
    "value.deserializer": "values come as binary: decode them with DataFrame functions",
    "interceptor.classes": "rows can be intercepted with DataFrame functions",
}
_BATCH_ONLY = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def kafka_options(properties: Mapping[str, str]) -> dict[str, str]:
    """A client's properties as options of source and sink, which are told where the cluster is and how to log in."""
    return {f"kafka.{key}": value for key, value in properties.items() if key not in _REFUSED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which partitions a query reads: exactly one of the three."""

    assigned: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str | None = None

    def __str__(self) -> str:
        if self.pattern is not None:
            return self.pattern
        return "+".join(self.topics or dict.fromkeys(each.topic for each in self.assigned))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    client: ClientSettings
    subscription: Subscription
    starting: OffsetSpec
    ending: OffsetSpec
    latest_without_match: bool = False
    """Begin at the end where no record is as young as the starting timestamp; else that is an error."""
    fail_on_data_loss: bool = True
    include_headers: bool = False
    read_committed: bool = False
    parts_min: int = 0
    part_size_max: int = 0
    offsets_max: int = 0
    """Of a micro-batch; 0: no limit."""
    offsets_min: int = 0
    trigger_delay_ms_max: int = 900_000
    """How long to wait for `offsets_min`."""
    commit_progress: bool = True
    group_id: str = ""
    poll_timeout_ms: int = 120_000
    """How long a task waits for records that it knows are there."""
    fetch_bytes_max: int = WINDOW_BYTES
    metadata_ms_max: int = 1_000
    """How old may be what a stream knows of topics and partitions?"""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
        """Raises `SourceError`."""
        given = {key.lower(): str(value) for key, value in options.items()}
        kafka = {key.removeprefix("kafka."): value for key, value in given.items() if key.startswith("kafka.")}
        for key, advice in _REFUSED.items():
            if key in kafka:
                raise SourceError(f"The option kafka.{key} cannot be set: {advice}.")
        if streaming:
            for option in _BATCH_ONLY:
                if option.lower() in given:
                    raise SourceError(f"{option} is for batch queries: a stream has no end.")
        kafka.setdefault("client.id", "ottla-spark")
        try:
            client = ClientSettings.parse(kafka)
        except InvalidClientConfig as error:
            raise SourceError(f"kafka.{error}") from None
        subscription = _subscription(given)
        prefix = given.get("groupidprefix", "spark-ottla")
        return cls(
            client=client,
            subscription=subscription,
            starting=_starting(given, streaming),
            ending=_ending(given),
            latest_without_match=_choice(given, "startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
            fail_on_data_loss=_flag(given, "failOnDataLoss", True),
            include_headers=_flag(given, "includeHeaders", False),
            read_committed=_choice(kafka, "isolation.level", ("read_uncommitted", "read_committed"), "kafka.")
            == "read_committed",
            parts_min=_number(given, "minPartitions", 0),
            part_size_max=_number(given, "maxRecordsPerPartition", 0),
            offsets_max=_number(given, "maxOffsetsPerTrigger", 0),
            offsets_min=_number(given, "minOffsetsPerTrigger", 0),
            trigger_delay_ms_max=_duration_ms(given, "maxTriggerDelay", 900_000),
            commit_progress=_flag(given, "commitProgress", True),
            group_id=kafka.get("group.id") or f"{prefix}-{subscription}",
            poll_timeout_ms=_number(given, "kafkaConsumer.pollTimeoutMs", 120_000),
            fetch_bytes_max=_number(kafka, "max.partition.fetch.bytes", WINDOW_BYTES, "kafka."),
            metadata_ms_max=_number(kafka, "metadata.max.age.ms", 1_000, "kafka."),
        )


def _subscription(given: Mapping[str, str]) -> Subscription:
    chosen = [option for option in SUBSCRIPTIONS if option.lower() in given]
    if len(chosen) != 1:
        said = f"not {' and '.join(chosen)}" if chosen else "and none is"
        raise SourceError(f"Exactly one of subscribe, subscribePattern and assign must be set, {said}.")
    text = given[chosen[0].lower()].strip()
    if chosen[0] == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
        if not topics:
            raise SourceError("subscribe names no topic: write their names, separated by commas.")
        return Subscription(topics=topics)
    if chosen[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise SourceError(f"subscribePattern is not a regular expression: {error}.") from None
        return Subscription(pattern=text)
    try:
        assigned = tuple(
            sorted(TopicPartition(topic, int(each)) for topic, numbers in json.loads(text).items() for each in numbers)
        )
    except (ValueError, TypeError, AttributeError):
        assigned = ()
    if not assigned:
        raise SourceError(f'assign is {text!r}; write it as JSON such as {{"orders": [0, 1]}}.')
    return Subscription(assigned=assigned)


def _starting(given: Mapping[str, str], streaming: bool) -> OffsetSpec:
    by_timestamp = _by_timestamp(given, "starting")
    if by_timestamp is not None:
        return by_timestamp
    spec = parse_offsets("startingOffsets", given.get("startingoffsets", "latest" if streaming else "earliest"))
    if not streaming and (spec.everywhere == LATEST or LATEST in (spec.each or {}).values()):
        raise SourceError("startingOffsets cannot be the latest in a batch query: there is nothing after it.")
    return spec


def _ending(given: Mapping[str, str]) -> OffsetSpec:
    by_timestamp = _by_timestamp(given, "ending")
    if by_timestamp is not None:
        return by_timestamp
    spec = parse_offsets("endingOffsets", given.get("endingoffsets", "latest"))
    if spec.everywhere == EARLIEST or EARLIEST in (spec.each or {}).values():
        raise SourceError("endingOffsets cannot be the earliest: there is nothing before it.")
    return spec


def _by_timestamp(given: Mapping[str, str], which: str) -> OffsetSpec | None:
    """As in Spark, one timestamp for all counts before one for each, and that before offsets."""
    option = f"{which}Timestamp"
    if option.lower() in given:
        return OffsetSpec(everywhere=_number(given, option, 0), by_timestamp=True)
    option = f"{which}OffsetsByTimestamp"
    if option.lower() in given:
        return OffsetSpec(each=parse_positions(option, given[option.lower()]), by_timestamp=True)
    return None


def _number(given: Mapping[str, str], option: str, default: int, prefix: str = "") -> int:
    text = given.get(option.lower())
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise SourceError(f"{prefix}{option} is {text!r}; it takes a whole number that is not negative.")
    return value


def _flag(given: Mapping[str, str], option: str, default: bool) -> bool:
    text = given.get(option.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise SourceError(f"{option} is {text!r}; it takes true or false.")
    return text == "true"


def _choice(given: Mapping[str, str], option: str, choices: tuple[str, ...], prefix: str = "") -> str:
    text = given.get(option.lower(), choices[0]).strip().lower()
    if text not in choices:
        raise SourceError(f"{prefix}{option} is {text!r}; it takes {' or '.join(choices)}.")
    return text


def _duration_ms(given: Mapping[str, str], option: str, default: int) -> int:
    text = given.get(option.lower())
    if text is None:
        return default
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    unit = None if found is None else _UNITS_MS.get(found[2] or "ms")
    if found is None or unit is None:
        raise SourceError(f"{option} is {text!r}; write a time such as 30s, 15m or 1h.")
    return int(found[1]) * unit
