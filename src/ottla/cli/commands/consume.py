"""`ottla consume`: records of topics on standard output, by librdkafka.

Without a group, partitions are read from where `-o` says, and nothing is committed. With one, the group's positions
count, and are committed up to what was printed: every few seconds, and at the end.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

import typer

from ottla.cli import complete
from ottla.cli.formats import Record, json_bytes, parse_format, record_json, unescape
from ottla.cli.librdkafka import Troubles, librdkafka_config, sentence
from ottla.cli.schemas import RegistryUrl, asking_registry, registry_of
from ottla.cli.serialization import Decoder, Undecodable
from ottla.cli.session import Session, command, single
from ottla.errors import StartupError, UsageError
from ottla.model import TopicPartition

app = single()

_POLL_S = 0.5
_KEEP_S = 5.0
"""As often as Kafka's clients commit by themselves."""


@command(
    app,
    "consume",
    examples=[
        "ottla consume orders",
        "ottla consume orders -o beginning -e",
        "ottla consume orders -o -10 -e          # the last ten of each partition",
        "ottla consume orders -o @-1h -f '%T %p:%o %k %s\\n'",
        "ottla consume orders payments -G audit --json --grep 'ann|bob'",
    ],
    no_args_is_help=True,
)
def consume(
    session: Session,
    topics: Annotated[
        list[str], typer.Argument(help="The topics.", show_default=False, autocompletion=complete.topics)
    ],
    offset: Annotated[
        str,
        typer.Option("--offset", "-o", metavar="WHERE", help="beginning, end, N, -N (so many before the end), @TIME"),
    ] = "end",
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="Stop at the end of every partition.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-c", help="Stop after so many records.")] = None,
    partition: Annotated[list[int] | None, typer.Option("--partition", "-p", help="Only this one.")] = None,
    format_: Annotated[
        str | None, typer.Option("--format", "-f", help="%t %p %o %k %s %h %T, lengths %S %K, and \\n \\t \\xNN")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Print keys too, with this after them.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-G", help="Read as a member of this group.", autocompletion=complete.groups),
    ] = None,
    grep: Annotated[str | None, typer.Option(metavar="REGEX", help="Only records whose key or value matches.")] = None,
    uncommitted: Annotated[bool, typer.Option("--uncommitted", help="Records of open transactions too.")] = False,
    schema_registry: RegistryUrl = None,
) -> None:
    """Print the records of topics as they come."""
    if format_ is not None and (session.out.as_json or key_separator is not None):
        raise typer.BadParameter("--format says it all: leave --json and -K out.")
    if count is not None and count < 1:
        raise typer.BadParameter("--count must be at least 1.")
    if group is not None and partition:
        raise typer.BadParameter("A group shares out partitions by itself: leave --partition out.")
    printer, as_shown = _printer(session, format_, key_separator, schema_registry)
    wanted = _filter(grep, as_shown)
    config = librdkafka_config(session.properties, session.settings)
    config.update(
        {
            "group.id": group or "ottla-consume",
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "auto.offset.reset": _reset(offset) if group is not None else "error",
            "enable.partition.eof": "true",
            "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
        }
    )
    reading = Reading(session, config, group)
    if group is None:
        reading.assign(_starts(session, topics, partition, offset))
    else:
        reading.subscribe(topics)
    printed = 0
    try:
        for record in reading.records(exit_at_end=exit_at_end):
            if wanted(record):
                sys.stdout.buffer.write(printer(record))
                printed += 1
            reading.read(record)
            if printed == count:
                break
            reading.keep()
    finally:
        shown = False
        try:
            sys.stdout.buffer.flush()
            shown = True
        finally:  # What nobody has seen, because who listened is gone, the group has still to read.
            reading.close(commit=shown and group is not None)


class Reading:
    """A consumer of librdkafka. Which partitions are at their end is known while none was taken away."""

    def __init__(self, session: Session, config: dict[str, Any], group: str | None) -> None:
        from confluent_kafka import Consumer, KafkaException

        self._troubles = Troubles(session.bootstrap)
        self._group = group
        self._topics: list[str] = []
        self._open: set[TopicPartition] = set()
        self._has_assignment = False
        self._positions: dict[TopicPartition, int] = {}
        self._has_read = False
        self._keep_at_s = 0.0
        try:
            self._consumer = Consumer({**config, "error_cb": self._troubles.on_error})
        except KafkaException as error:
            raise StartupError(f"The consumer cannot be made: {sentence(error.args[0])}") from None

    def assign(self, starts: dict[TopicPartition, int]) -> None:
        from confluent_kafka import TopicPartition as Assigned

        self._topics = sorted({each.topic for each in starts})
        self._open = set(starts)
        self._has_assignment = True
        self._consumer.assign([Assigned(each.topic, each.partition, offset) for each, offset in starts.items()])

    def subscribe(self, topics: list[str]) -> None:
        def on_assign(consumer: Any, partitions: list[Any]) -> None:
            self._open |= {TopicPartition(each.topic, each.partition) for each in partitions}
            self._has_assignment = True

        def on_revoke(consumer: Any, partitions: list[Any]) -> None:
            self._open -= {TopicPartition(each.topic, each.partition) for each in partitions}
            self.commit()

        self._topics = topics
        self._consumer.subscribe(topics, on_assign=on_assign, on_revoke=on_revoke)

    def records(self, *, exit_at_end: bool) -> Iterator[Record]:
        """What comes, until the caller has enough, or, if asked for, every partition has been read to its end."""
        from confluent_kafka import KafkaError

        while not (exit_at_end and self._has_assignment and not self._open):
            message = self._consumer.poll(0)
            if message is None:
                sys.stdout.buffer.flush()  # Whoever watches sees what is there before we wait.
                self._troubles.check()
                self.keep()
                message = self._consumer.poll(_POLL_S)
                if message is None:
                    continue
            error = message.error()
            partition = TopicPartition(message.topic() or "", message.partition() or 0)
            if error is None:
                self._open.add(partition)
                yield _record(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._open.discard(partition)
            elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                # librdkafka looks for a coordinator even where nobody is to join a group or to commit.
                if self._group is not None:
                    raise StartupError(
                        f"You have no right to read as the group {self._group}: choose another with -G, or have it "
                        "allowed with `ottla acl add`."
                    )
            else:
                subject = str(partition) if message.topic() else ", ".join(self._topics)
                raise StartupError(f"{subject} cannot be read: {sentence(error)}")

    def read(self, record: Record) -> None:
        self._positions[TopicPartition(record.topic, record.partition)] = record.offset + 1
        self._has_read = True

    def keep(self) -> None:
        """Commits now and then what was printed, so that a group that reads for hours is seen to. One that does not
        come through is made good by the next, or at the end."""
        if self._group is None or not self._has_read or time.monotonic() < self._keep_at_s:
            return
        from confluent_kafka import KafkaException

        sys.stdout.buffer.flush()
        with suppress(KafkaException):
            self._consumer.commit(offsets=self._as_positions(), asynchronous=True)
        self._has_read = False
        self._keep_at_s = time.monotonic() + _KEEP_S

    def _as_positions(self) -> list[Any]:
        from confluent_kafka import TopicPartition as Position

        return [Position(each.topic, each.partition, offset) for each, offset in self._positions.items()]

    def commit(self) -> None:
        from confluent_kafka import KafkaException

        if not self._positions:
            return
        positions = self._as_positions()
        self._positions = {}
        try:
            self._consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            raise StartupError(f"The group's positions cannot be committed: {sentence(error.args[0])}") from None

    def close(self, *, commit: bool) -> None:
        try:
            if commit:
                self.commit()
            self._positions = {}
        finally:
            self._consumer.close()


def _starts(session: Session, topics: list[str], only: list[int] | None, where: str) -> dict[TopicPartition, int]:
    """Where to begin in each partition, asked of the cluster."""
    from ottla.admin.offsets import LATEST, bounds_of, list_offsets
    from ottla.cli.times import parse_moment
    from ottla.model import NO_OFFSET

    with (
        session.out.waiting("Not every leader answers; they are waited for, a minute at most …"),
        session.client() as client,
    ):
        partitions = [
            TopicPartition(topic, each)
            for topic in topics
            for each in client.topic(topic).partitions
            if not only or each in only
        ]
        missing = [each for each in only or [] if each not in {found.partition for found in partitions}]
        if missing:
            named = ", ".join(topics)
            raise StartupError(f"There is no partition {missing[0]} in {named}: see `ottla topic describe`.")
        if where.startswith("@"):
            moment = parse_moment(where[1:])
            found = list_offsets(client, dict.fromkeys(partitions, moment))
            ends = list_offsets(client, dict.fromkeys(partitions, LATEST))
            return {
                each: ends[each].offset if found[each].offset == NO_OFFSET else found[each].offset
                for each in partitions
            }
        bounds = bounds_of(client, partitions)
    if where in ("beginning", "earliest", "start"):
        return {each: bounds[each].start for each in partitions}
    if where in ("end", "latest"):
        return {each: bounds[each].end for each in partitions}
    try:
        number = int(where)
    except ValueError:
        raise UsageError(f"--offset {where}: write beginning, end, a number, or a time after an @.") from None
    if where.startswith("-"):
        return {each: max(bounds[each].end + number, bounds[each].start) for each in partitions}
    return {each: min(max(number, bounds[each].start), bounds[each].end) for each in partitions}


def _reset(where: str) -> str:
    """Where a group begins that has no position yet."""
    resets = {"beginning": "earliest", "earliest": "earliest", "start": "earliest", "end": "latest", "latest": "latest"}
    if where not in resets:
        raise typer.BadParameter(f"--offset {where}: a group has its own position; move it with `ottla group seek`.")
    return resets[where]


def _filter(grep: str | None, as_shown: Callable[[bytes], bytes]) -> Callable[[Record], bool]:
    """Looks at keys and values as they are printed; at those that cannot be, as they are."""
    if grep is None:
        return lambda record: True
    try:
        pattern = re.compile(os.fsencode(grep))
    except re.error as error:
        raise typer.BadParameter(f"--grep {grep} is no regular expression: {error}.") from None

    def matches(data: bytes | None) -> bool:
        if data is None:
            return False
        try:
            return pattern.search(as_shown(data)) is not None
        except Undecodable:
            return pattern.search(data) is not None

    return lambda record: matches(record.key) or matches(record.value)


def _printer(
    session: Session, format_: str | None, key_separator: str | None, url: str | None
) -> tuple[Callable[[Record], bytes], Callable[[bytes], bytes]]:
    """What prints a record, and what a key or a value is in it, which raises `Undecodable`."""
    write = None if format_ is None else parse_format(format_)
    if write is not None and url is None:
        return write, bytes
    decoder = Decoder(registry_of(session, url))
    separator = None if key_separator is None else unescape(key_separator)

    def decoded(data: bytes | None) -> Any:
        with asking_registry():
            return decoder.decode(data)

    def as_bytes(data: bytes | None) -> bytes:
        value = decoded(data)
        if value is None or isinstance(value, str):
            return data or b""
        return json_bytes(value)

    def line(record: Record) -> bytes:
        if write is not None:
            key = None if record.key is None else as_bytes(record.key)
            value = None if record.value is None else as_bytes(record.value)
            return write(replace(record, key=key, value=value))
        if session.out.as_json:
            return json_bytes(record_json(record, decoded(record.key), decoded(record.value))) + b"\n"
        shown_key = b"" if separator is None else as_bytes(record.key) + separator
        return shown_key + as_bytes(record.value) + b"\n"

    def printed(record: Record) -> bytes:
        try:
            return line(record)
        except Undecodable as error:
            way_out = "Print bytes with `-f '%s\\n'`" if write is None else "Leave --schema-registry out to print bytes"
            raise StartupError(f"{error} {way_out}.") from None

    return printed, as_bytes


def _record(message: Any) -> Record:
    headers = message.headers()
    return Record(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=tuple((name, value) for name, value in headers or ()),
    )
